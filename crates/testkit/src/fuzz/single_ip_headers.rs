//! Client IP headers of a single value.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue};
use tower_ratelimit::{ClientIp, key::ClientIpHeader};

use super::client_ip_oracle::{PEER, behind_proxies, host, ip, lines, request, resolve, with_port};

/// The first byte chooses the header, the rest are its lines.
pub fn check(data: &[u8]) {
    let (choice, rest) = data.split_first().unwrap_or((&0, &[]));
    let (name, header) = header(*choice);
    let lines = lines(rest);

    let expected = match lines.as_slice() {
        [line] if name == "cloudfront-viewer-address" => viewer(line),
        [line] => host(line.as_bytes()),
        _ => None,
    };
    let parts = request(PEER, name, &lines);
    for client_ip in [behind_proxies(), ClientIp::hops(1)] {
        let found = resolve(&client_ip.header(header.clone()), &parts);
        assert_eq!(found.ip(), expected.unwrap_or(ip(PEER)));
        assert!(found.entries() <= 1);
    }
    // Past the proxy nothing is read at all.
    let client_ip = behind_proxies().header(header);
    let direct = resolve(&client_ip, &request("203.0.113.7", name, &lines));
    assert_eq!((direct.ip(), direct.entries()), (ip("203.0.113.7"), 0));
}

fn header(choice: u8) -> (&'static str, ClientIpHeader) {
    match choice % 7 {
        0 => ("cf-connecting-ip", ClientIpHeader::CfConnectingIp),
        1 => ("true-client-ip", ClientIpHeader::TrueClientIp),
        2 => ("fly-client-ip", ClientIpHeader::FlyClientIp),
        3 => ("x-real-ip", ClientIpHeader::XRealIp),
        4 => (
            "x-envoy-external-address",
            ClientIpHeader::XEnvoyExternalAddress,
        ),
        5 => (
            "x-ip",
            ClientIpHeader::Single(HeaderName::from_static("x-ip")),
        ),
        _ => (
            "cloudfront-viewer-address",
            ClientIpHeader::CloudFrontViewerAddress,
        ),
    }
}

/// An address and a port after the last colon.
fn viewer(line: &HeaderValue) -> Option<IpAddr> {
    let text = str::from_utf8(line.as_bytes()).ok()?;
    let (address, port) = text.trim_matches([' ', '\t']).rsplit_once(':')?;
    with_port(&format!("192.0.2.1:{port}"))?;
    let address: IpAddr = address.parse().ok()?;
    Some(address.to_canonical())
}
