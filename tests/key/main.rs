//! Keys are injective and reveal nothing; extractors find them, or report whose fault it is.

mod client_ip;
mod extractors;
mod identity;
mod security_page;

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use testkit::vector_files;
use tower_ratelimit::{Key, KeyExtractor, PeerIp, key::IpPrefix};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn encoding_vectors() {
    let all = vector_files::group("http.json", "key_encoding");
    assert_eq!(all.len(), 6);
    for vector in all {
        let keys = ["parts_a", "parts_b"].map(|side| {
            let parts = vector[side].as_array().expect("a list");
            let keys = parts
                .iter()
                .map(|part| Key::from(part.as_str().expect("a text")));
            keys.collect::<Vec<_>>()
        });
        assert_eq!(vector["must_differ"], true);
        let [a, b] = &keys;
        assert_ne!(
            Key::tuple(a.clone()),
            Key::tuple(b.clone()),
            "{}",
            vector["id"]
        );
        if let ([a], [b]) = (a.as_slice(), b.as_slice()) {
            assert_ne!(a, b, "{}", vector["id"]);
        }
    }
}

#[test]
fn ip_grouping_vectors() {
    let all = vector_files::group("http.json", "ip_grouping");
    assert_eq!(all.len(), 11);
    for vector in all {
        let bits = vector["ipv6_prefix"].as_u64().expect("a number");
        let prefix = IpPrefix::new().v6(u8::try_from(bits).expect("at most 128"));
        let address = ip(vector["ip"].as_str().expect("a text"));
        let expected = vector["expect_key"].as_str().expect("a text");

        let (network, bits) = prefix.network(address);
        let full = if network.is_ipv4() { 32 } else { 128 };
        let found = if bits == full {
            network.to_string()
        } else {
            format!("{network}/{bits}")
        };
        assert_eq!(found, expected);
        assert_eq!(prefix.key(address), prefix.key(network), "{expected}");
        let alone = IpPrefix::new().v6(128).key(network);
        assert_eq!(prefix.key(address) == alone, bits == full, "{expected}");
    }
}

#[test]
fn prefixes_beyond_the_address_count_as_the_address() {
    let beyond = IpPrefix::new().v4(33).v6(255);
    let whole = IpPrefix::new().v4(32).v6(128);
    for address in ["192.0.2.1", "2001:db8::1"].map(ip) {
        assert_eq!(beyond.key(address), whole.key(address));
        assert_eq!(beyond.network(address).0, address);
    }
}

/// A handler that looks with `Key::from(peer.ip())` finds the bucket that the layer charges.
#[test]
fn key_of_an_address_is_the_one_that_peer_ip_makes() {
    for address in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"].map(ip) {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.extensions.insert(SocketAddr::new(address, 4000));
        assert_eq!(PeerIp.extract(&parts), Ok(Key::from(address)));
    }
    assert_eq!(Key::from(ip("2001:db8::1")), Key::from(ip("2001:db8::2")));
    assert_ne!(
        Key::from(ip("2001:db8::1")),
        Key::from(ip("2001:db8:0:1::1"))
    );
}

#[test]
fn prefix_of_0_bits_is_one_group_for_each_family() {
    let all = IpPrefix::new().v4(0).v6(0);
    assert_eq!(all.key(ip("192.0.2.1")), all.key(ip("203.0.113.7")));
    assert_eq!(all.key(ip("2001:db8::1")), all.key(ip("::")));
    assert_ne!(all.key(ip("192.0.2.1")), all.key(ip("::")));
}

/// Equal content under another kind, split or length is another key.
#[test]
fn keys_of_different_values_differ() {
    let mut keys = vec![
        Key::global(),
        Key::anonymous(),
        Key::from(""),
        Key::bytes(b""),
        Key::tuple([]),
        Key::from(7),
        Key::from("7"),
        Key::bytes(b"7"),
        Key::bytes(&7_u64.to_be_bytes()),
        Key::digest(b"7"),
        Key::from(ip("192.0.2.1")),
        Key::from("192.0.2.1"),
        IpPrefix::new().v4(31).key(ip("192.0.2.0")),
        Key::from(ip("192.0.2.0")),
        Key::tuple([Key::from("7")]),
        Key::tuple([Key::tuple([Key::from("7")])]),
        Key::tuple([Key::from("7"), Key::from("")]),
        Key::tuple([Key::from("")]),
        // A part's content that looks like the start of the next part.
        Key::tuple([Key::from("a\u{3}b")]),
        Key::tuple([Key::from("a"), Key::from("b")]),
    ];
    // Around the lengths at which a key moves to the heap and is replaced by its digest.
    keys.extend(
        (30..45)
            .chain(250..260)
            .map(|len| Key::from("a".repeat(len))),
    );
    keys.extend(
        (30..45)
            .chain(250..260)
            .map(|len| Key::bytes("a".repeat(len).as_bytes())),
    );
    let encoded: HashSet<_> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    assert_eq!(encoded.len(), keys.len());
    let distinct: HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
}

#[test]
fn keys_of_equal_values_are_equal() {
    for len in [0, 1, 36, 37, 38, 254, 255, 256, 10_000] {
        let text = "a".repeat(len);
        assert_eq!(Key::from(text.as_str()), Key::from(text.clone()), "{len}");
        assert_eq!(Key::from(text.clone()), Key::from(text).clone(), "{len}");
    }
    assert_eq!(
        Key::from(ip("::ffff:192.0.2.1")),
        Key::from(ip("192.0.2.1"))
    );
}

/// A node that computed another digest would count the same client apart.
#[test]
fn long_key_is_its_sha_256() {
    let longest = Key::from("a".repeat(255));
    assert_eq!(longest.as_bytes().len(), 256);
    let digest = Key::from("a".repeat(300));
    let hex: String = digest
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        hex,
        "07905faa315cb4cfef03a09d0634ea782bd2870e1300f5c6654837e485acea513e"
    );
}

#[test]
fn debug_has_kind_and_length_only() {
    let secret = "s3cr3t";
    let long = secret.repeat(100);
    let cases = [
        (Key::global(), "Key(global, 0 bytes)"),
        (Key::anonymous(), "Key(anonymous, 0 bytes)"),
        (Key::from(secret), "Key(str, 6 bytes)"),
        (Key::bytes(secret.as_bytes()), "Key(bytes, 6 bytes)"),
        (Key::from(42), "Key(u64, 8 bytes)"),
        (Key::from(ip("192.0.2.1")), "Key(ip, 5 bytes)"),
        (Key::from(ip("2001:db8::1")), "Key(ip, 17 bytes)"),
        (Key::tuple([Key::from(secret)]), "Key(tuple, 9 bytes)"),
        (Key::from(long), "Key(digest, 32 bytes)"),
    ];
    for (key, expected) in cases {
        assert_eq!(format!("{key:?}"), expected);
    }
}
