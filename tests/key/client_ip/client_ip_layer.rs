//! The layer that hands the address on, around any tower service.

use std::convert::Infallible;

use http::{Request, Response, request::Parts};
use testkit::{Probe, now};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{ClientAddress, ClientAddressLayer, ClientIp};

use super::{FORWARDED_FOR, PROXIES, ip, request};

fn seen(parts: Parts) -> Option<ClientAddress> {
    let service = service_fn(async |request: Request<String>| {
        let address = request.extensions().get::<ClientAddress>().copied();
        Ok::<_, Infallible>(Response::new(address))
    });
    let service = ClientAddressLayer::new(ClientIp::behind(PROXIES)).layer(service);
    let request = Request::from_parts(parts, String::new());
    now(service.oneshot(request)).unwrap().into_body()
}

#[test]
fn the_address_is_in_the_extensions() {
    let found = seen(request(
        "10.0.0.1",
        FORWARDED_FOR,
        &["6.6.6.6, 203.0.113.7"],
    ));
    assert_eq!(found.unwrap().ip(), ip("203.0.113.7"));

    let mut alone = request("10.0.0.1", FORWARDED_FOR, &["203.0.113.7"]);
    alone.extensions.clear();
    assert_eq!(seen(alone), None);
}

#[test]
fn the_instance_that_was_ready_is_called() {
    let probe = Probe::default();
    let service = ClientAddressLayer::new(ClientIp::behind(PROXIES)).layer(probe.clone());
    for _ in 0..2 {
        now(service.clone().oneshot(Request::new(()))).unwrap();
    }
    assert_eq!(probe.count(), 2);
}
