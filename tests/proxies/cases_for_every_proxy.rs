//! Assertions that hold behind every proxy.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use crate::{
    app::{App, ForwardingHeader, LIMIT},
    client::{Answer, Client},
    proxy::{Kind, Proxy},
};

/// Runs the suite behind a kind of proxy.
macro_rules! behind {
    ($name:ident, $kind:expr) => {
        mod $name {
            use crate::cases_for_every_proxy;

            $crate::cases_for_every_proxy::behind!(@test $kind,
                a_hundred_forged_addresses_are_one_client,
                several_lines_are_one_client,
                garbage_is_one_client,
                clients_that_share_a_connection_to_the_application_are_distinct,
                a_second_proxy_behind_the_first_is_seen_through,
                the_proxy_does_pass_on_what_is_forged,
            );
        }
    };
    (@test $kind:expr, $($test:ident,)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                if !$kind.is_missing() {
                    cases_for_every_proxy::$test($kind).await;
                }
            }
        )+
    };
}
pub(crate) use behind;

/// Sends a request with each of these sets of lines.
async fn send_all(
    client: &mut Client,
    header: ForwardingHeader,
    requests: impl IntoIterator<Item = Vec<Vec<u8>>>,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    for lines in requests {
        answers.push(client.get(header.header(), &lines).await);
    }
    answers
}

/// How often each address was allowed; all others got 429.
fn admitted(answers: &[Answer]) -> HashMap<IpAddr, u64> {
    let mut counts = HashMap::new();
    for answer in answers {
        match answer.status {
            200 => {
                *counts
                    .entry(answer.text.trim().parse().unwrap())
                    .or_default() += 1
            }
            status => assert_eq!(status, 429, "{answer:?}"),
        }
    }
    counts
}

/// As a client that sends `LIMIT` requests or more, and is seen as itself.
fn only(client: &Client) -> HashMap<IpAddr, u64> {
    HashMap::from([(client.address(), LIMIT)])
}

fn lines(values: impl IntoIterator<Item = String>) -> Vec<Vec<u8>> {
    values.into_iter().map(String::into_bytes).collect()
}

pub(crate) async fn a_hundred_forged_addresses_are_one_client(kind: Kind) {
    for header in ForwardingHeader::ALL {
        let app = App::start(header).await;
        let proxy = Proxy::start(kind, app.port(), header).await;
        let forged = || (0..100).map(|last| lines([header.value(format!("203.0.113.{last}"))]));

        let mut attacker = Client::connect(2, proxy.port()).await;
        let answers = send_all(&mut attacker, header, forged()).await;
        assert_eq!(answers.len(), 100);
        assert_eq!(admitted(&answers), only(&attacker), "{kind:?} {header:?}");

        let mut other = Client::connect(3, proxy.port()).await;
        let answers = send_all(&mut other, header, forged()).await;
        assert_eq!(admitted(&answers), only(&other), "{kind:?} {header:?}");

        // Past the proxy, with the address of a client that has requests left.
        let mut direct = Client::connect(2, app.port()).await;
        let answer = direct
            .get(header.header(), &[header.value("127.0.0.4")])
            .await;
        assert_eq!(answer.status, 429, "{kind:?} {header:?}: {answer:?}");
    }
}

pub(crate) async fn several_lines_are_one_client(kind: Kind) {
    for header in ForwardingHeader::ALL {
        let app = App::start(header).await;
        let proxy = Proxy::start(kind, app.port(), header).await;
        let mut attacker = Client::connect(2, proxy.port()).await;
        // The last names a trusted proxy, as if it had come through one.
        let forged = (0..100).map(|last| {
            let address = format!("203.0.113.{last}");
            let list = [&address, "127.0.0.3"]
                .map(|entry| header.value(entry))
                .join(", ");
            lines([header.value(&address), list, header.value("127.0.0.1")])
        });
        let answers = send_all(&mut attacker, header, forged).await;
        assert_eq!(admitted(&answers), only(&attacker), "{kind:?} {header:?}");
    }
}

/// Values that parsers trip over, as far as HTTP allows them.
const GARBAGE: [&[u8]; 16] = [
    b"",
    b",",
    b",,, ,",
    b"unknown",
    b"_hidden",
    b"203.0.113.7:99999999",
    b"[2001:db8::1",
    b"2001:db8::1%eth0",
    b"0x7f.1",
    b"\xff\xfe\x80",
    b"for=",
    b"for=\"[2001:db8::1]",
    b"for=203.0.113.7;for=203.0.113.8",
    b"by=\"\\",
    b"for=203.0.113.7;proto=\"http",
    b"\"",
];

pub(crate) async fn garbage_is_one_client(kind: Kind) {
    for header in ForwardingHeader::ALL {
        let app = App::start(header).await;
        let proxy = Proxy::start(kind, app.port(), header).await;
        let mut attacker = Client::connect(2, proxy.port()).await;
        // Each alone, after a forged address, and before one on the next line.
        let requests = GARBAGE.into_iter().flat_map(|garbage| {
            let forged = header.value("203.0.113.7").into_bytes();
            let joined = [forged.as_slice(), b", ", garbage].concat();
            [
                vec![garbage.to_vec()],
                vec![joined],
                vec![garbage.to_vec(), forged],
            ]
        });
        let answers = send_all(&mut attacker, header, requests).await;
        assert_eq!(answers.len(), 48);

        let mut expected = only(&attacker);
        if (kind, header) == (Kind::Nginx, ForwardingHeader::Forwarded) {
            // A quote that the client opens swallows what nginx appends to the same line. Such
            // requests are the proxy's own, as are all whose client it does not name.
            expected.insert([127, 0, 0, 1].into(), LIMIT);
        }
        assert_eq!(admitted(&answers), expected, "{kind:?} {header:?}");
    }
}

pub(crate) async fn clients_that_share_a_connection_to_the_application_are_distinct(kind: Kind) {
    for header in ForwardingHeader::ALL {
        let app = App::start(header).await;
        let proxy = Proxy::start(kind, app.port(), header).await;
        let mut clients = Vec::new();
        for number in 2..6 {
            clients.push(Client::connect(number, proxy.port()).await);
        }
        let mut users: HashMap<_, HashSet<_>> = HashMap::new();
        let mut answers = Vec::new();
        for _ in 0..LIMIT + 5 {
            for client in &mut clients {
                let answer = client.get("accept", &["text/plain"]).await;
                users
                    .entry(answer.peer)
                    .or_default()
                    .insert(client.address());
                answers.push(answer);
            }
        }
        let expected: HashMap<_, _> = clients.iter().flat_map(only).collect();
        assert_eq!(admitted(&answers), expected, "{kind:?} {header:?}");
        let shared = users.values().any(|clients| clients.len() > 1);
        assert!(
            shared,
            "{kind:?} keeps no connection to the application: {users:?}"
        );
    }
}

pub(crate) async fn a_second_proxy_behind_the_first_is_seen_through(kind: Kind) {
    // One of a single value would be replaced by the second proxy, with the address of the first.
    for header in [ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded] {
        let app = App::start(header).await;
        let second = Proxy::start(kind, app.port(), header).await;
        let first = Proxy::start(kind, second.port(), header).await;
        let mut attacker = Client::connect(2, first.port()).await;
        let forged = (0..100).map(|last| lines([header.value(format!("203.0.113.{last}"))]));
        let answers = send_all(&mut attacker, header, forged).await;
        assert_eq!(admitted(&answers), only(&attacker), "{kind:?} {header:?}");
    }
}

/// Proves that the tests above can fail: a server that reads the header from the left, or does not read it, is
/// wrong behind the same proxies.
pub(crate) async fn the_proxy_does_pass_on_what_is_forged(kind: Kind) {
    let header = ForwardingHeader::XForwardedFor;
    let passed = |answers: &[Answer]| answers.iter().filter(|answer| answer.status == 200).count();
    let forged = || (0..100).map(|last| lines([format!("203.0.113.{last}")]));

    let app = App::by_leftmost().await;
    let proxy = Proxy::start(kind, app.port(), header).await;
    let mut attacker = Client::connect(2, proxy.port()).await;
    assert_eq!(
        passed(&send_all(&mut attacker, header, forged()).await),
        100
    );

    let app = App::by_peer().await;
    let proxy = Proxy::start(kind, app.port(), header).await;
    let mut attacker = Client::connect(2, proxy.port()).await;
    assert_eq!(
        passed(&send_all(&mut attacker, header, forged()).await),
        LIMIT as usize
    );
    let mut other = Client::connect(3, proxy.port()).await;
    assert_eq!(passed(&send_all(&mut other, header, forged()).await), 0);
}
