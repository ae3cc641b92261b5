//! `X-Forwarded-For`.

use http::HeaderValue;
use tower_ratelimit::ClientIp;

use super::client_ip_oracle::{
    INNER, PEER, append, behind_proxies, host, ip, is_trusted, lines, request, resolve, walk,
};

const HEADER: &str = "x-forwarded-for";

/// A client, as proxies write it, and its address.
const CLIENTS: [(&str, &str); 6] = [
    ("203.0.113.7", "203.0.113.7"),
    ("203.0.113.7:65535", "203.0.113.7"),
    ("::ffff:203.0.113.7", "203.0.113.7"),
    ("2001:db8::7", "2001:db8::7"),
    ("[2001:db8::7]:4711", "2001:db8::7"),
    ("\t[2001:db8::7] ", "2001:db8::7"),
];

/// The first byte chooses what the proxies write, the rest are lines that the client sends.
pub fn check(data: &[u8]) {
    let (choice, sent) = data.split_first().unwrap_or((&0, &[]));
    let sent = lines(sent);
    what_is_sent_changes_nothing(*choice, &sent);
    all_of_it_is_read_right(&sent);
}

/// Through two proxies, whatever the client sent.
fn what_is_sent_changes_nothing(choice: u8, sent: &[HeaderValue]) {
    let (written, client) = CLIENTS[usize::from(choice) % CLIENTS.len()];
    let mut lines = sent.to_vec();
    append(&mut lines, written.as_bytes(), choice & 0x40 != 0);
    append(&mut lines, INNER.as_bytes(), choice & 0x80 != 0);

    let parts = request(PEER, HEADER, &lines);
    for client_ip in [behind_proxies(), ClientIp::hops(2)] {
        let found = resolve(&client_ip, &parts);
        // No more than the proxies' two entries is read.
        assert_eq!((found.ip(), found.entries()), (ip(client), 2));
    }
    // Past the proxies nothing is read at all.
    let direct = resolve(&behind_proxies(), &request(client, HEADER, &lines));
    assert_eq!((direct.ip(), direct.entries()), (ip(client), 0));
}

/// As if a proxy had written all of it.
fn all_of_it_is_read_right(lines: &[HeaderValue]) {
    let parts = request(PEER, HEADER, lines);
    let mut entries = Vec::new();
    for line in lines {
        entries.extend(line.as_bytes().split(|byte| *byte == b',').map(host));
    }
    entries.reverse();

    let found = resolve(&behind_proxies(), &parts).ip();
    assert_eq!(found, walk(&entries, |address, _| is_trusted(address)));
    for hops in [0, 1, 3, 40] {
        let found = resolve(&ClientIp::hops(hops), &parts).ip();
        assert_eq!(found, walk(&entries, |_, number| number < hops.into()));
    }
}
