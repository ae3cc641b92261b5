//! Trust of proxies, and its configuration.

use std::{net::IpAddr, panic::catch_unwind};

use ipnet::IpNet;
use tower_ratelimit::{
    ClientIp, ConfigErrorKind, Key, KeyExtractor,
    key::{AddressOrigin, ClientIpHeader, IpPrefix},
};

use super::{FORWARDED_FOR, PROXIES, forwarded_for, ip, request, resolve};

fn trusts(client_ip: &ClientIp, peer: &str) -> bool {
    let found = resolve(client_ip, &request(peer, FORWARDED_FOR, &["203.0.113.7"]));
    found.origin() != AddressOrigin::Peer
}

#[test]
fn networks_are_texts_addresses_or_parsed() {
    let network: IpNet = "10.0.0.0/8".parse().unwrap();
    let address: IpAddr = ip("2001:db8::5");
    let texts = vec!["10.0.0.0/8".to_owned(), "2001:db8::5".to_owned()];
    for client_ip in [
        ClientIp::behind(["10.0.0.0/8", "2001:db8::5"]),
        ClientIp::behind(" 10.0.0.0/8 , 2001:db8::5 ".split(',')),
        ClientIp::behind(&texts),
        ClientIp::behind(texts),
        ClientIp::behind([network, address.into()]),
        ClientIp::behind([network, address.into()].iter()),
    ] {
        for (peer, trusted) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("9.255.255.255", false),
            ("11.0.0.0", false),
            ("2001:db8::5", true),
            ("2001:db8::4", false),
            ("2001:db8::6", false),
        ] {
            assert_eq!(trusts(&client_ip, peer), trusted, "{peer}");
        }
    }
    assert!(trusts(&ClientIp::behind([ip("192.0.2.1")]), "192.0.2.1"));
}

/// Whatever their order and overlaps, the networks are the union of all.
#[test]
fn networks_may_overlap() {
    let client_ip = ClientIp::behind([
        "192.168.7.0/24",
        "10.1.2.3",
        "10.0.0.0/8",
        "fd00::/8",
        "192.168.6.0/24",
        "10.0.0.0/16",
        "172.16.0.9/12",
        "fd00:1::/32",
    ]);
    for peer in [
        "10.200.0.1",
        "192.168.6.1",
        "192.168.7.255",
        "172.31.0.1",
        "fdff::1",
    ] {
        assert!(trusts(&client_ip, peer), "{peer}");
    }
    for peer in [
        "192.168.5.255",
        "192.168.8.0",
        "172.32.0.0",
        "fe00::",
        "0.0.0.0",
        "::",
    ] {
        assert!(!trusts(&client_ip, peer), "{peer}");
    }
}

#[test]
fn mapped_networks_are_ipv4_ones() {
    for text in ["::ffff:10.0.0.0/104", "::ffff:a00:0/104"] {
        let client_ip = ClientIp::behind([text]);
        assert!(trusts(&client_ip, "10.9.9.9"));
        assert!(trusts(&client_ip, "::ffff:10.9.9.9"));
        assert!(!trusts(&client_ip, "11.0.0.1"));
    }
    assert!(trusts(&ClientIp::behind(["::ffff:10.0.0.1"]), "10.0.0.1"));
}

#[test]
fn nobody_is_trusted_by_an_empty_list() {
    assert!(!trusts(&ClientIp::behind([""; 0]), "127.0.0.1"));
}

#[test]
fn nonsense_is_a_named_error_that_quotes_the_text() {
    for text in [
        "",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.0/",
        "/8",
        "::/129",
        "proxy",
        "10.0.0.1:80",
    ] {
        let error = ClientIp::try_behind(["127.0.0.1", text]).expect_err("accepted");
        assert_eq!(error.kind(), ConfigErrorKind::Proxy);
        let message = error.to_string();
        assert!(message.contains(&format!("{text:?}")), "{message}");
        assert!(message.contains("10.0.0.0/8"), "{message}");
    }
    let panic = catch_unwind(|| ClientIp::behind(["10.0.0.0/33"])).expect_err("accepted");
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.contains("\"10.0.0.0/33\" is neither"), "{text}");
}

#[test]
fn everybody_is_no_trusted_proxy() {
    for texts in [
        &["0.0.0.0/0"][..],
        &["::/0"],
        &["10.0.0.0/0"],
        &["::ffff:0:0/96"],
        // In two halves.
        &["0.0.0.0/1", "128.0.0.0/1"],
        &["::/1", "10.0.0.1", "8000::/1"],
    ] {
        let error = ClientIp::try_behind(texts.iter().copied()).expect_err("accepted");
        assert_eq!(error.kind(), ConfigErrorKind::Proxy);
        assert!(error.to_string().contains("`ClientIp::hops`"), "{error}");
    }
}

#[test]
fn private_networks() {
    let client_ip = ClientIp::behind(ClientIp::PRIVATE_NETWORKS);
    for peer in [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.1.1",
        "::1",
        "fd12::1",
        "fe80::1",
    ] {
        assert!(trusts(&client_ip, peer), "{peer}");
    }
    for peer in [
        "126.255.255.255",
        "128.0.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.169.0.1",
        "100.64.0.1",
        "203.0.113.7",
        "0.0.0.0",
        "::",
        "::2",
        "fec0::1",
        "2001:db8::1",
    ] {
        assert!(!trusts(&client_ip, peer), "{peer}");
    }
}

#[test]
fn hops_count_from_the_right() {
    let line = "6.6.6.6, 203.0.113.1, 203.0.113.2, 203.0.113.3";
    for (hops, expected, origin) in [
        (0, "10.0.0.1", AddressOrigin::Peer),
        (1, "203.0.113.3", AddressOrigin::Client),
        (2, "203.0.113.2", AddressOrigin::Client),
        (3, "203.0.113.1", AddressOrigin::Client),
        (5, "6.6.6.6", AddressOrigin::AllTrusted),
    ] {
        let found = resolve(
            &ClientIp::hops(hops),
            &request("10.0.0.1", FORWARDED_FOR, &[line]),
        );
        assert_eq!(
            (found.ip(), found.origin()),
            (ip(expected), origin),
            "{hops}"
        );
    }
    assert_eq!(
        forwarded_for(&ClientIp::hops(2), "203.0.113.1, oops"),
        "10.0.0.1"
    );
    assert_eq!(
        forwarded_for(&ClientIp::hops(3), "203.0.113.1, oops, 192.0.2.1"),
        "192.0.2.1"
    );
}

#[test]
fn hops_beyond_what_is_read_count_as_that() {
    let entries: Vec<_> = (0..200).map(|n| format!("203.0.113.{n}")).collect();
    for hops in [32, 33, 255] {
        let found = forwarded_for(&ClientIp::hops(hops), &entries.join(","));
        assert_eq!(found, "203.0.113.168", "{hops}");
    }
}

#[test]
fn hops_go_with_every_header() {
    for (name, header, value) in [
        (
            "forwarded",
            ClientIpHeader::Forwarded,
            "for=6.6.6.6, for=203.0.113.7",
        ),
        ("fly-client-ip", ClientIpHeader::FlyClientIp, "203.0.113.7"),
    ] {
        let parts = request("192.0.2.1", name, &[value]);
        let client_ip = ClientIp::hops(1).header(header.clone());
        assert_eq!(resolve(&client_ip, &parts).ip(), ip("203.0.113.7"));
        let client_ip = ClientIp::hops(0).header(header);
        assert_eq!(resolve(&client_ip, &parts).ip(), ip("192.0.2.1"));
    }
}

#[test]
fn keys_are_grouped_and_addresses_are_whole() {
    let client_ip = ClientIp::behind(PROXIES);
    let client = "2001:db8:1:2:3:4:5:6";
    let parts = request("10.0.0.1", FORWARDED_FOR, &[client]);
    assert_eq!(resolve(&client_ip, &parts).ip(), ip(client));
    assert_eq!(
        client_ip.extract(&parts),
        Ok(Key::from(ip("2001:db8:1:2::")))
    );

    let prefix = IpPrefix::new().v6(48);
    let by_site = client_ip.grouped_by(prefix);
    assert_eq!(by_site.extract(&parts), Ok(prefix.key(ip("2001:db8:1::"))));
}

/// All clients of a translator are in 64:ff9b::/96.
#[test]
fn nat64_is_unwrapped_on_request() {
    let [one, other] = ["64:ff9b::203.0.113.7", "64:ff9b::203.0.113.8"]
        .map(|client| request("10.0.0.1", FORWARDED_FOR, &[client]));
    let client_ip = ClientIp::behind(PROXIES);
    assert_eq!(client_ip.extract(&one), client_ip.extract(&other));

    let unwrapping = client_ip.grouped_by(IpPrefix::new().unwrap_nat64(true));
    assert_eq!(unwrapping.extract(&one), Ok(Key::from(ip("203.0.113.7"))));
    assert_ne!(unwrapping.extract(&one), unwrapping.extract(&other));
    // Only that network, and whole.
    for client in [
        "64:ff9b:0:0:0:1:203.0.113.7",
        "64:ff9a::203.0.113.7",
        "65:ff9b::1",
        "::1",
    ] {
        let prefix = IpPrefix::new().unwrap_nat64(true);
        assert_eq!(prefix.key(ip(client)), Key::from(ip(client)), "{client}");
    }
    // Translators of one's own: a /96 in the local network of RFC 8215.
    for client in ["64:ff9b:1::203.0.113.7", "64:ff9b:1:fffe::203.0.113.7"] {
        let prefix = IpPrefix::new().unwrap_nat64(true);
        assert_eq!(prefix.key(ip(client)), Key::from(ip("203.0.113.7")));
        assert_eq!(IpPrefix::new().key(ip(client)), Key::from(ip(client)));
    }
    // 203.0.113.7 behind prefixes of 48, 56 and 64 bits, and the next network.
    for client in [
        "64:ff9b:1:cb00:71:700::",
        "64:ff9b:1:cb:0:7107::",
        "64:ff9b:1::cb:71:700:0",
        "64:ff9b:2::203.0.113.7",
    ] {
        let prefix = IpPrefix::new().unwrap_nat64(true);
        assert_eq!(prefix.key(ip(client)), Key::from(ip(client)), "{client}");
    }
    // An address of ours inside of it is no proxy of ours.
    let parts = request("64:ff9b::10.0.0.1", FORWARDED_FOR, &["203.0.113.7"]);
    assert_eq!(resolve(&unwrapping, &parts).origin(), AddressOrigin::Peer);
}
