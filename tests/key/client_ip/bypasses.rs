//! Ways around limits by address that others have had, each with what a naive extractor does.

use std::{collections::HashSet, net::IpAddr};

use http::request::Parts;
use testkit::{limiter, now};
use tower::Layer;
use tower_ratelimit::{
    ClientIp, Key, KeyErrorKind, KeyExtractor, PeerIp, Quota, RateLimitLayer,
    key::{AddressOrigin, ClientIpHeader, key_fn},
};

use super::{FORWARDED_FOR, PROXIES, forwarded, forwarded_for, ip, request, resolve};

/// The likeliest first attempt: the leftmost entry of the first line.
fn leftmost(parts: &Parts) -> Option<Key> {
    let line = parts.headers.get(FORWARDED_FOR)?.to_str().ok()?;
    let address: IpAddr = line.split(',').next()?.trim().parse().ok()?;
    Some(Key::from(address))
}

/// The likeliest second attempt: the last entry that is an address, whoever sent it.
fn rightmost_that_parses(parts: &Parts) -> Option<Key> {
    let line = parts.headers.get_all(FORWARDED_FOR).iter().next_back()?;
    let mut entries = line.to_str().ok()?.rsplit(',');
    let address: IpAddr = entries.find_map(|entry| entry.trim().parse().ok())?;
    Some(Key::from(address))
}

/// How many of these requests a layer of one request a day allows.
fn admitted(extractor: impl KeyExtractor, requests: impl IntoIterator<Item = Parts>) -> usize {
    let (limiter, _clock) = limiter(Quota::per_day(1));
    let service = RateLimitLayer::new(limiter, extractor).layer(testkit::Probe::default());
    let admitted = requests.into_iter().filter(|parts| {
        let request = http::Request::from_parts(parts.clone(), String::new());
        let response = now(tower::ServiceExt::oneshot(service.clone(), request)).unwrap();
        response.status() == 200
    });
    admitted.count()
}

fn spoofed(make: impl Fn(u32) -> Vec<String>) -> Vec<Parts> {
    (0..100)
        .map(|n| request("10.0.0.1", FORWARDED_FOR, &make(n)))
        .collect()
}

/// CVE-2025-59152, CVE-2026-110723, GHSA-fc6g-2gcp-2qrq.
#[test]
fn a_hundred_forged_addresses_are_one_client() {
    let requests = spoofed(|n| vec![format!("6.6.6.{n}, 203.0.113.7")]);
    assert_eq!(admitted(leftmost, requests.clone()), 100);
    assert_eq!(admitted(ClientIp::behind(PROXIES), requests.clone()), 1);
    assert_eq!(admitted(ClientIp::hops(1), requests), 1);
}

/// A program on the machine of a proxy that is trusted as 127.0.0.1 sends through this proxy.
#[test]
fn a_client_on_a_trusted_address_can_lie_and_with_one_hop_it_cannot() {
    let through_proxy = |client: &str| -> Vec<Parts> {
        let forged = |n| [format!("6.6.6.{n}, {client}")];
        (0..100)
            .map(|n| request("127.0.0.1", FORWARDED_FOR, &forged(n)))
            .collect()
    };
    let behind = ClientIp::behind(["127.0.0.1"]);
    assert_eq!(admitted(behind.clone(), through_proxy("127.0.0.1")), 100);
    assert_eq!(admitted(behind, through_proxy("127.0.0.2")), 1);
    let hop = ClientIp::hops(1);
    assert_eq!(admitted(hop.clone(), through_proxy("127.0.0.1")), 1);
    assert_eq!(admitted(hop, through_proxy("127.0.0.2")), 1);
}

/// CVE-2026-26308, and an extractor that read only the first line.
#[test]
fn a_forged_line_before_the_proxys_is_not_read() {
    let requests = spoofed(|n| vec![format!("6.6.6.{n}"), "203.0.113.7".into()]);
    assert_eq!(admitted(leftmost, requests.clone()), 100);
    assert_eq!(admitted(ClientIp::behind(PROXIES), requests), 1);
}

/// RFC 9110 keeps lines in order, so what a proxy adds comes last.
#[test]
fn the_last_line_is_the_nearest() {
    let parts = request("10.0.0.1", FORWARDED_FOR, &["203.0.113.7", "198.51.100.9"]);
    let found = resolve(&ClientIp::behind(PROXIES), &parts);
    assert_eq!(found.ip(), ip("198.51.100.9"));
}

#[test]
fn a_client_past_the_proxy_chooses_nothing() {
    let naive = key_fn(|parts| {
        let value = parts.headers.get("cf-connecting-ip")?;
        Some(Key::from(value.to_str().ok()?))
    });
    let past_the_edge = |header: &str| -> Vec<Parts> {
        let from = |n| request("198.51.100.9", header, &[format!("6.6.6.{n}")]);
        (0..100).map(from).collect()
    };
    assert_eq!(admitted(naive, past_the_edge("cf-connecting-ip")), 100);

    for header in [
        ClientIpHeader::CfConnectingIp,
        ClientIpHeader::XForwardedFor,
        ClientIpHeader::Forwarded,
        ClientIpHeader::XRealIp,
    ] {
        let client_ip = ClientIp::behind(PROXIES).header(header);
        for name in ["cf-connecting-ip", FORWARDED_FOR, "forwarded", "x-real-ip"] {
            let parts = request("198.51.100.9", name, &["6.6.6.6"]);
            assert_eq!(client_ip.extract(&parts), PeerIp.extract(&parts));
        }
    }
    let client_ip = ClientIp::behind(PROXIES).header(ClientIpHeader::CfConnectingIp);
    assert_eq!(admitted(client_ip, past_the_edge("cf-connecting-ip")), 1);
}

/// CVE-2026-30827: the IPv6 prefix taken of mapped addresses put all IPv4 clients into ::/56.
#[test]
fn spellings_of_an_ipv4_address_are_one_client_and_two_addresses_are_two() {
    let spellings = [
        "203.0.113.7",
        "::ffff:203.0.113.7",
        "::ffff:cb00:7107",
        "0:0:0:0:0:FFFF:203.0.113.7",
        "[::ffff:203.0.113.7]:4711",
        "203.0.113.7:4711",
    ];
    let client_ip = ClientIp::behind(PROXIES);
    let key = |text| client_ip.extract(&request("10.0.0.1", FORWARDED_FOR, &[text]));
    let keys: HashSet<_> = spellings.map(|text| key(text).unwrap()).into();
    assert_eq!(keys.len(), 1);
    assert_ne!(key("::ffff:203.0.113.7"), key("::ffff:203.0.113.8"));

    // As the peer too, where a mapped address must also be known as a proxy's.
    let found = |peer| resolve(&client_ip, &request(peer, FORWARDED_FOR, &["192.0.2.1"])).ip();
    assert_eq!(found("::ffff:10.0.0.1"), ip("192.0.2.1"));
    assert_eq!(found("::ffff:203.0.113.7"), ip("203.0.113.7"));
}

/// nextcloud/server 27302: a client has all addresses of its network.
#[test]
fn ten_thousand_addresses_of_one_64_are_one_client() {
    let within = (0..10_000_u32).map(|n| {
        let client = format!("2001:db8:1:2:{n:x}:{}::9", n % 7);
        request("10.0.0.1", FORWARDED_FOR, &[client])
    });
    let within: Vec<Parts> = within.collect();
    assert_eq!(
        admitted(leftmost_whole, within.iter().take(500).cloned()),
        500
    );
    assert_eq!(admitted(ClientIp::behind(PROXIES), within), 1);
}

/// [`leftmost`] without grouping.
fn leftmost_whole(parts: &Parts) -> Option<Key> {
    let line = parts.headers.get(FORWARDED_FOR)?.to_str().ok()?;
    Some(Key::from(line))
}

#[test]
fn a_fault_is_limited_and_leads_no_further_left() {
    let faults = [
        "",
        " ",
        "unknown",
        "_hidden",
        "-",
        "null",
        "6.6.6",
        "6.6.6.6.6",
        "256.6.6.6",
        "06.6.6.6",
        "0x6.6.6.6",
        "101058054",
        "6.6.6.6:",
        "6.6.6.6:x",
        "6.6.6.6:70000",
        "6.6.6.6:+80",
        "6.6.6.6:000080",
        "6.6.6.6 7.7.7.7",
        "6.6.6.6;",
        "\"6.6.6.6\"",
        "[6.6.6.6]",
        "[::6",
        "::6]",
        "[::6]x",
        "[::6]:",
        "[::6]:70000",
        "[::6]]",
        ":::",
        "::6::6",
        "::6:fffff",
        "6.6.6.6/32",
        "http://6.6.6.6",
        "6.6.6.6\u{a0}",
        "\u{ff16}.6.6.6",
        "localhost",
    ];
    for fault in faults {
        let requests = spoofed(|n| vec![format!("6.6.6.{n}, {fault}")]);
        let found = resolve(&ClientIp::behind(PROXIES), &requests[0]);
        assert_eq!(found.ip(), ip("10.0.0.1"), "{fault:?}");
        assert_eq!(found.origin(), AddressOrigin::Malformed, "{fault:?}");
        assert_eq!(
            admitted(ClientIp::behind(PROXIES), requests),
            1,
            "{fault:?}"
        );
    }
    let requests = spoofed(|n| vec![format!("6.6.6.{n}, unknown")]);
    assert_eq!(admitted(rightmost_that_parses, requests), 100);
}

/// The key is the trusted hop next to the fault, not always the peer.
#[test]
fn the_hop_right_of_a_fault_is_the_client() {
    let client_ip = ClientIp::behind(PROXIES);
    assert_eq!(
        forwarded_for(&client_ip, "6.6.6.6, oops, 10.0.0.2"),
        "10.0.0.2"
    );
    let hidden = forwarded("for=6.6.6.6, for=unknown, for=10.0.0.2");
    assert_eq!(hidden.ip(), ip("10.0.0.2"));
    assert_eq!(hidden.origin(), AddressOrigin::Hidden);
}

/// CVE-2026-26310: a scoped IPv6 address crashed the proxy.
#[test]
fn zone_ids_are_faults() {
    for zone in [
        "fe80::1%eth0",
        "[fe80::1%eth0]:80",
        "fe80::1%1",
        "[fe80::1%1]",
        "[fe80::1%1]:1",
    ] {
        let client_ip = ClientIp::behind(PROXIES);
        assert_eq!(forwarded_for(&client_ip, zone), "10.0.0.1");
        assert_eq!(forwarded(&format!("for=\"{zone}\"")).ip(), ip("10.0.0.1"));
        for (name, header) in [
            ("x-real-ip", ClientIpHeader::XRealIp),
            (
                "cloudfront-viewer-address",
                ClientIpHeader::CloudFrontViewerAddress,
            ),
        ] {
            let parts = request("10.0.0.1", name, &[zone]);
            let found = resolve(&client_ip.clone().header(header), &parts);
            assert_eq!(found.origin(), AddressOrigin::Malformed, "{zone}");
            assert_eq!(found.ip(), ip("10.0.0.1"));
        }
    }
}

/// However long the header, only its right end counts.
#[test]
fn huge_headers_are_read_from_their_right_end() {
    let entries = "6.6.6.6, ".repeat(7_000) + "203.0.113.7";
    let lines = vec!["6.6.6.6"; 10_000];
    for lines in [
        vec![entries.as_str()],
        [lines, vec!["203.0.113.7"]].concat(),
    ] {
        let found = resolve(
            &ClientIp::behind(PROXIES),
            &request("10.0.0.1", FORWARDED_FOR, &lines),
        );
        assert_eq!((found.ip(), found.entries()), (ip("203.0.113.7"), 1));
    }

    let line = "for=6.6.6.6, ".repeat(600) + "for=203.0.113.7";
    assert!(line.len() < 8_192);
    assert_eq!(
        (forwarded(&line).ip(), forwarded(&line).entries()),
        (ip("203.0.113.7"), 1)
    );
    // A longer line is a fault.
    let long = "for=6.6.6.6, ".repeat(700) + "for=203.0.113.7";
    assert_eq!(forwarded(&long).ip(), ip("10.0.0.1"));
    assert_eq!(forwarded(&long).origin(), AddressOrigin::Malformed);
    // It does not keep a short one below it from being read.
    let parts = request("10.0.0.1", "forwarded", &[&long, "for=203.0.113.7"]);
    let found = resolve(&ClientIp::behind(PROXIES).forwarded(), &parts);
    assert_eq!(found.ip(), ip("203.0.113.7"));
}

/// More trusted hops than anybody has are not followed without end.
#[test]
fn reading_stops_after_32_entries() {
    for count in [31_usize, 32, 33, 5_000] {
        let hops = |n: usize| format!("10.1.{}.{}", n / 256, n % 256);
        let mut entries: Vec<String> = (1..=count).rev().map(hops).collect();
        entries.insert(0, "203.0.113.7".into());

        let lists = [
            (
                ClientIp::behind(PROXIES),
                FORWARDED_FOR,
                vec![entries.join(",")],
            ),
            (ClientIp::behind(PROXIES), FORWARDED_FOR, entries.clone()),
        ];
        let elements: Vec<String> = entries.iter().map(|ip| format!("for={ip}")).collect();
        let forwarded = ClientIp::behind(PROXIES).forwarded();
        let mut lists = Vec::from(lists);
        lists.push((forwarded.clone(), "forwarded", elements.clone()));
        if count < 500 {
            lists.push((forwarded, "forwarded", vec![elements.join(",")]));
        }
        for (client_ip, header, lines) in lists {
            let found = resolve(&client_ip, &request("10.0.0.1", header, &lines));
            let expected = match count {
                31 => ("203.0.113.7".into(), AddressOrigin::Client, 32),
                _ => (
                    hops(32),
                    AddressOrigin::TooManyEntries,
                    ClientIp::MAX_ENTRIES,
                ),
            };
            let found = (found.ip().to_string(), found.origin(), found.entries());
            assert_eq!(
                found,
                expected,
                "{count} in {} lines of {header}",
                lines.len()
            );
        }
    }
}

#[test]
fn exactly_32_trusted_hops_are_not_too_many() {
    let entries = vec!["10.1.0.1"; 32].join(", ");
    let parts = request("10.0.0.1", FORWARDED_FOR, &[entries]);
    let found = resolve(&ClientIp::behind(PROXIES), &parts);
    assert_eq!(
        (found.origin(), found.entries()),
        (AddressOrigin::AllTrusted, 32)
    );
}

/// A server that was set up wrong must not fall back to the client's own claim.
#[test]
fn without_a_peer_address_nothing_is_believed() {
    let mut parts = request("10.0.0.1", FORWARDED_FOR, &["203.0.113.7"]);
    parts.extensions.clear();
    for client_ip in [ClientIp::behind(PROXIES), ClientIp::hops(1)] {
        let error = client_ip.extract(&parts).expect_err("no peer");
        assert_eq!(error.kind(), KeyErrorKind::Unavailable);
        assert_eq!(Err(error), PeerIp.extract(&parts));
        assert_eq!(admitted(client_ip, [parts.clone()]), 0);
    }
}
