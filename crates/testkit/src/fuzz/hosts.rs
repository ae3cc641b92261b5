//! The host that a request names. The parser of the crate comes as an argument: it answers the name in
//! lower case, or the address in brackets.

/// Whatever is read is what other servers read: those that take the field as it is, and those that make
/// a URL of it.
pub fn check(data: &[u8], parse: impl Fn(&[u8]) -> Option<String>) {
    let Some(host) = parse(data) else {
        return;
    };
    let text = std::str::from_utf8(data)
        .expect("a host is ASCII")
        .trim_ascii();
    for reading in [as_is(text), of_url(text)] {
        assert_eq!(reading, host, "{text:?}");
    }
    // The host alone is read again, in any spelling.
    for spelling in [
        host.clone(),
        format!("{host}:80"),
        host.to_ascii_uppercase(),
        format!(" {host}\t"),
    ] {
        assert_eq!(
            parse(spelling.as_bytes()).as_deref(),
            Some(&*host),
            "{spelling:?}"
        );
    }
    for more in ["/", "#", "?", "\\", ",", ":80:80", "%41", "@x", "\u{e9}"] {
        assert_eq!(
            parse(format!("{host}{more}").as_bytes()),
            None,
            "{host}{more}"
        );
        assert_eq!(
            parse(format!("{more}{host}").as_bytes()),
            None,
            "{more}{host}"
        );
    }
}

/// A server that cuts off the port and the last dot.
fn as_is(text: &str) -> String {
    let end = text.rfind(']').map_or(0, |end| end + 1);
    let host = match text[end..].rfind(':') {
        Some(at) => &text[..end + at],
        None => text,
    };
    compared(host)
}

/// A server that makes a URL of the field.
fn of_url(text: &str) -> String {
    let authority = text.split(['/', '?', '#', '\\']).next().unwrap();
    let host_and_port = authority.rsplit('@').next().unwrap();
    let host = match host_and_port.strip_prefix('[') {
        Some(rest) => format!("[{}]", rest.split(']').next().unwrap()),
        None => host_and_port.split(':').next().unwrap().to_owned(),
    };
    assert!(!host.contains('%'), "{host}");
    compared(&host)
}

fn compared(host: &str) -> String {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match inner {
        Some(address) => {
            let address: std::net::Ipv6Addr = address.parse().expect("an address");
            format!("[{address}]")
        }
        None => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}
