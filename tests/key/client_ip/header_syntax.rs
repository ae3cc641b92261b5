//! Values that each header's syntax accepts.

use std::iter::repeat_n;

use tower_ratelimit::{
    ClientIp,
    key::{AddressOrigin, ClientIpHeader},
};

use super::{FORWARDED_FOR, PROXIES, forwarded, forwarded_for, ip, request, resolve};

#[test]
fn x_forwarded_for_takes_ports_brackets_and_white_space() {
    let client_ip = ClientIp::behind(PROXIES);
    for (entry, expected) in [
        ("203.0.113.7", "203.0.113.7"),
        ("\t 203.0.113.7 \t", "203.0.113.7"),
        ("203.0.113.7:0", "203.0.113.7"),
        ("203.0.113.7:65535", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:db8::1.2.3.4", "2001:db8::102:304"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("::1", "::1"),
    ] {
        assert_eq!(forwarded_for(&client_ip, entry), expected, "{entry:?}");
        let list = format!("6.6.6.6,{entry},10.0.0.2 ,10.0.0.3");
        assert_eq!(forwarded_for(&client_ip, &list), expected, "{list:?}");
    }
}

#[test]
fn forwarded_takes_all_of_its_grammar() {
    for (element, expected) in [
        ("for=203.0.113.7", "203.0.113.7"),
        ("for=\"203.0.113.7\"", "203.0.113.7"),
        ("FOR=203.0.113.7;by=_x", "203.0.113.7"),
        ("by=_x;foR=203.0.113.7;proto=https", "203.0.113.7"),
        ("for=203.0.113.7;", "203.0.113.7"),
        (";;for=203.0.113.7;;by=_x", "203.0.113.7"),
        ("for=203.0.113.7 ; proto=https", "203.0.113.7"),
        ("for=\"203.0.113.7:80\"", "203.0.113.7"),
        ("for=\"203.0.113.7:_a.b-c_d\"", "203.0.113.7"),
        ("for=\"[2001:db8::1]\"", "2001:db8::1"),
        ("for=\"[2001:db8::1]:_gazonk\"", "2001:db8::1"),
        ("for=\"[::ffff:203.0.113.7]\"", "203.0.113.7"),
        // Escapes where nothing needs them.
        ("for=\"\\2\\0\\3.0.113.7\"", "203.0.113.7"),
        ("for=\"\\[2001:db8::1\\]:80\"", "2001:db8::1"),
        // Separators within quotes.
        ("host=\"a,b;for=6.6.6.6\";for=203.0.113.7", "203.0.113.7"),
        ("for=203.0.113.7;host=\"\\\", for=6.6.6.6\"", "203.0.113.7"),
        ("for=203.0.113.7;host=\"\\\\\"", "203.0.113.7"),
        ("for=203.0.113.7;host=\"\"", "203.0.113.7"),
        // Other parameters twice are not ours to judge.
        ("for=203.0.113.7;x=1;x=2", "203.0.113.7"),
        ("for=203.0.113.7;x!#$%&'*+-.^_`|~=1", "203.0.113.7"),
    ] {
        let found = forwarded(element);
        assert_eq!(found.ip(), ip(expected), "{element}");
        assert_eq!(found.origin(), AddressOrigin::Client, "{element}");
        for list in [
            format!("for=6.6.6.6,{element},for=10.0.0.2"),
            format!("@@,  {element}\t, for=10.0.0.2"),
        ] {
            assert_eq!(forwarded(&list).ip(), ip(expected), "{list}");
        }
    }
}

#[test]
fn forwarded_takes_nothing_else() {
    let long = format!("for=\"\\1{}\"", "1".repeat(100));
    for element in [
        "",
        "for",
        "for=",
        "=203.0.113.7",
        "for =203.0.113.7",
        "for= 203.0.113.7",
        "203.0.113.7",
        "for=203.0.113.7:80",
        "for=2001:db8::1",
        "for=\"2001:db8::1\"",
        "for=[2001:db8::1]",
        "for=\"[203.0.113.7]\"",
        "for=\"[2001:db8::1\"",
        "for=\"[2001:db8::1]80\"",
        "for=\"[2001:db8::1]:\"",
        "for=\"[2001:db8::1]:_\"",
        "for=\"203.0.113.7:\"",
        "for=\"203.0.113.7:70000\"",
        "for=\"203.0.113.7:_\"",
        "for=\" 203.0.113.7\"",
        "for=\"\"",
        "for=\"_\"",
        "for=_",
        "for=_a:b",
        "for=203.0.113.7 proto=https",
        "for=\"203.0.113.7\"x",
        "for=\"203.0.113.7\"\"\"",
        "for=203.0.113.7;proto",
        "for=203.0.113.7;proto=",
        "for=203.0.113.7;pr oto=https",
        "for=203.0.113.7;proto=https;@",
        "for=203.0.113.7;x=\\",
        "for=203.0.113.7;x=a\"b\"",
        "for=203.0.113.7;FOR=203.0.113.7",
        "proto=https",
        "for=\\203.0.113.7",
        "for='203.0.113.7'",
        "for=\"unknown:70000\"",
        "for=unknownx",
        &long,
    ] {
        let found = forwarded(element);
        assert_eq!(found.ip(), ip("10.0.0.1"), "{element}");
        assert_eq!(found.origin(), AddressOrigin::Malformed, "{element}");
        let found = forwarded(&format!("for=6.6.6.6,{element},for=10.0.0.2"));
        assert_eq!(found.ip(), ip("10.0.0.2"), "{element}");
    }
}

#[test]
fn forwarded_may_hide_who_it_was() {
    for element in [
        "for=unknown",
        "for=UnKnown",
        "for=\"unknown:4711\"",
        "for=_hidden",
        "for=\"_SEVKISEK\"",
        "for=\"_a.b-c_d:_port\"",
        "for=\"\\_x\"",
    ] {
        let found = forwarded(&format!("for=6.6.6.6, {element}"));
        assert_eq!(found.ip(), ip("10.0.0.1"), "{element}");
        assert_eq!(found.origin(), AddressOrigin::Hidden, "{element}");
    }
}

/// A quote that the client opens swallows what the proxy appends to its line. The result is the
/// proxy, not what the rest can be made to look like.
#[test]
fn an_open_quote_is_a_fault_however_the_rest_is_made_up() {
    let appended = [
        "for=203.0.113.7",
        "for=\"203.0.113.7:4711\"",
        "for=\"[2001:db8::1]:4711\";proto=https",
        "for=203.0.113.7;host=\", for=6.6.6.6, x=\\\"\"",
        "for=203.0.113.7;host=\", for=6.6.6.6;x=\\\"\"",
        "for=203.0.113.7;host=\", for=6.6.6.6;x=\\\";y=\"",
        "for=203.0.113.7;host=\"\\\", for=6.6.6.6\"",
        "for=203.0.113.7;host=\"a\\\\\\\", for=6.6.6.6\"",
    ];
    for element in appended {
        assert_eq!(
            forwarded(element).origin(),
            AddressOrigin::Client,
            "{element}"
        );
        for opened in [
            "\"",
            "for=\"",
            "for=\"x",
            "for=\"\\",
            "for=6.6.6.6;x=\"",
            "@\"\"\"",
        ] {
            let found = forwarded(&format!("{opened}, {element}"));
            assert_eq!(found.ip(), ip("10.0.0.1"), "{opened}, {element}");
            assert_eq!(
                found.origin(),
                AddressOrigin::Malformed,
                "{opened}, {element}"
            );

            // On a line of its own it does no harm.
            let parts = request("10.0.0.1", "forwarded", &[opened, element]);
            let alone = resolve(&ClientIp::behind(PROXIES).forwarded(), &parts);
            assert_eq!(alone, forwarded(element), "{opened}, {element}");
        }
    }
}

#[test]
fn a_line_of_8_kib_is_read() {
    let element = ",for=203.0.113.7";
    for (len, origin) in [
        (8_192, AddressOrigin::Client),
        (8_193, AddressOrigin::Malformed),
    ] {
        let left: String = repeat_n('x', len - element.len()).collect();
        assert_eq!(forwarded(&(left + element)).origin(), origin, "{len}");
    }
}

#[test]
fn each_header_is_read_and_no_other() {
    let custom = || "x-client-ip".parse().unwrap();
    let headers = [
        ("x-forwarded-for", ClientIpHeader::XForwardedFor),
        ("forwarded", ClientIpHeader::Forwarded),
        ("cf-connecting-ip", ClientIpHeader::CfConnectingIp),
        ("true-client-ip", ClientIpHeader::TrueClientIp),
        ("fly-client-ip", ClientIpHeader::FlyClientIp),
        (
            "cloudfront-viewer-address",
            ClientIpHeader::CloudFrontViewerAddress,
        ),
        ("x-real-ip", ClientIpHeader::XRealIp),
        (
            "x-envoy-external-address",
            ClientIpHeader::XEnvoyExternalAddress,
        ),
        ("x-client-ip", ClientIpHeader::Single(custom())),
        ("x-client-ip", ClientIpHeader::List(custom())),
    ];
    let value = |name| match name {
        "forwarded" => "for=203.0.113.7",
        "cloudfront-viewer-address" => "203.0.113.7:4711",
        _ => "203.0.113.7",
    };
    for (own, header) in &headers {
        let client_ip = ClientIp::behind(PROXIES).header(header.clone());
        for (name, _) in &headers {
            let found = resolve(&client_ip, &request("10.0.0.1", name, &[value(name)]));
            let expected = if name == own {
                ("203.0.113.7", AddressOrigin::Client)
            } else {
                ("10.0.0.1", AddressOrigin::AllTrusted)
            };
            assert_eq!(
                (found.ip(), found.origin()),
                (ip(expected.0), expected.1),
                "{name}"
            );
        }
    }
}

#[test]
fn a_single_value_is_the_client_even_if_it_is_a_trusted_address() {
    let client_ip = ClientIp::behind(PROXIES).header(ClientIpHeader::XRealIp);
    let found = resolve(&client_ip, &request("10.0.0.1", "x-real-ip", &["10.7.7.7"]));
    assert_eq!(
        (found.ip(), found.origin()),
        (ip("10.7.7.7"), AddressOrigin::Client)
    );
}

#[test]
fn viewer_address_needs_its_port() {
    let client_ip = ClientIp::behind(PROXIES).header(ClientIpHeader::CloudFrontViewerAddress);
    for value in [
        "203.0.113.7",
        "203.0.113.7:",
        "[2001:db8::1]:80",
        "::1",
        ":80",
        "",
        "1:2",
    ] {
        let parts = request("10.0.0.1", "cloudfront-viewer-address", &[value]);
        let found = resolve(&client_ip, &parts);
        assert_eq!(found.origin(), AddressOrigin::Malformed, "{value}");
    }
}

#[test]
fn bytes_that_are_no_text_are_faults() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let client_ip = match header {
            "forwarded" => ClientIp::behind(PROXIES).forwarded(),
            "x-real-ip" => ClientIp::behind(PROXIES).header(ClientIpHeader::XRealIp),
            _ => ClientIp::behind(PROXIES),
        };
        for bytes in [&b"\xff"[..], b"203.0.113.7\xff", b"for=\"203.0.113.7\xff\""] {
            let found = resolve(&client_ip, &request("10.0.0.1", header, &[bytes]));
            assert_eq!(found.origin(), AddressOrigin::Malformed, "{header}");
            assert_eq!(found.ip(), ip("10.0.0.1"));
        }
    }
    let left = b"\xff\xfe, 203.0.113.7";
    let found = resolve(
        &ClientIp::behind(PROXIES),
        &request("10.0.0.1", FORWARDED_FOR, &[left]),
    );
    assert_eq!(found.ip(), ip("203.0.113.7"));
}
