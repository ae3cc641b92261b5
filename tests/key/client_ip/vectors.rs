//! The vectors in `http.json`.

use serde_json::Value;
use testkit::vector_files::group;
use tower_ratelimit::{
    ClientIp, Key, KeyExtractor,
    key::{AddressOrigin, ClientIpHeader, IpPrefix},
};

use super::{PROXIES, ip, request, resolve};

fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().expect("a list").iter();
    list.map(|item| item.as_str().expect("a text")).collect()
}

/// The vectors' name. The header's absence is one of those that they call all-trusted.
fn reason(origin: AddressOrigin) -> &'static str {
    match origin {
        AddressOrigin::Peer => "peer-untrusted",
        AddressOrigin::Client => "client",
        AddressOrigin::AllTrusted => "all-trusted",
        AddressOrigin::Malformed => "malformed-stop",
        AddressOrigin::Hidden => "obfuscated-stop",
        other => panic!("no vector ends with {other:?}"),
    }
}

#[test]
fn lists() {
    let all = group("http.json", "client_ip");
    assert_eq!(all.len(), 27);
    for vector in all {
        let client_ip = ClientIp::behind(texts(&vector["trusted"]));
        let client_ip = match vector["header"].as_str() {
            Some("forwarded") => client_ip.forwarded(),
            Some("x-forwarded-for") => client_ip,
            other => panic!("{other:?}"),
        };
        let header = vector["header"].as_str().unwrap();
        let peer = vector["peer"].as_str().unwrap();
        let parts = request(peer, header, &texts(&vector["lines"]));

        let found = resolve(&client_ip, &parts);
        let expected = ip(vector["expect_ip"].as_str().unwrap());
        assert_eq!(found.ip(), expected, "{}", vector["id"]);
        assert_eq!(
            reason(found.origin()),
            vector["expect_reason"],
            "{}",
            vector["id"]
        );
        assert_eq!(
            client_ip.extract(&parts),
            Ok(Key::from(expected)),
            "{}",
            vector["id"]
        );
    }
}

#[test]
fn single_values() {
    let all = group("http.json", "client_ip_single_header");
    assert_eq!(all.len(), 7);
    for vector in all {
        let name = vector["header"].as_str().unwrap();
        let header = match name {
            "cf-connecting-ip" => ClientIpHeader::CfConnectingIp,
            "true-client-ip" => ClientIpHeader::TrueClientIp,
            "x-real-ip" => ClientIpHeader::XRealIp,
            "cloudfront-viewer-address" => ClientIpHeader::CloudFrontViewerAddress,
            other => panic!("{other}"),
        };
        let client_ip = ClientIp::behind(PROXIES).header(header);
        let parts = request("10.0.0.1", name, &texts(&vector["lines"]));

        let found = resolve(&client_ip, &parts);
        match vector["expect"].as_str() {
            Some(expected) => {
                assert_eq!(found.ip(), ip(expected), "{}", vector["id"]);
                assert_eq!(found.origin(), AddressOrigin::Client);
            }
            None => {
                assert_eq!(found.ip(), ip("10.0.0.1"), "{}", vector["id"]);
                assert_eq!(found.origin(), AddressOrigin::Malformed);
            }
        }
    }
}

#[test]
fn groups() {
    let all = group("http.json", "ip_grouping");
    assert_eq!(all.len(), 11);
    for vector in all {
        let bits = u8::try_from(vector["ipv6_prefix"].as_u64().unwrap()).unwrap();
        let prefix = IpPrefix::new().v6(bits);
        let client_ip = ClientIp::behind(PROXIES).grouped_by(prefix);
        let client = vector["ip"].as_str().unwrap();
        let parts = request("10.0.0.1", "x-forwarded-for", &[client]);

        let expected = vector["expect_key"].as_str().unwrap();
        let (network, length) = expected.split_once('/').unwrap_or((expected, ""));
        let (found, found_bits) = prefix.network(resolve(&client_ip, &parts).ip());
        assert_eq!(found, ip(network), "{client}");
        if !length.is_empty() {
            assert_eq!(found_bits.to_string(), length, "{client}");
        }
        assert_eq!(
            client_ip.extract(&parts),
            Ok(prefix.key(ip(network))),
            "{client}"
        );
    }
}
