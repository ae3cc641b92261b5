//! Sets with faults: all are reported, and nothing changes.

use tower_ratelimit_envoy::protobuf_messages::{
    Any, DescriptorConfig, DiscoveryRequest, RateLimitConfig, RateLimitReplace,
};

use super::{
    control_plane::{Plane, config, resource},
    service_harness::{Service, at},
};

/// A service with the limit `shop.user` of 3 units, one used.
async fn service() -> (Plane, Service) {
    let mut plane = Plane::start().await;
    plane.set("good", &[config("shop", &[("user", 3)])]);
    let service = Service::start(at(plane.port)).await;
    plane.reply().await;
    assert_eq!(service.decide("shop", "user").await, (true, Some(2)));
    (plane, service)
}

/// The faults in the reply to a set.
async fn rejected(plane: &mut Plane, version: &str, resources: Vec<Any>) -> String {
    plane.set_resources(version, resources);
    let reply = plane.reply().await;
    let DiscoveryRequest {
        version_info,
        response_nonce,
        error_detail,
        ..
    } = reply;
    assert_eq!(version_info, "good", "the version in force");
    assert_eq!(response_nonce, format!("nonce of {version}"));
    let detail = error_detail.expect("faults");
    assert_eq!(detail.code, 3);
    assert!(detail.message.len() <= 4_096, "{}", detail.message.len());
    detail.message
}

#[tokio::test]
async fn rejected_set_changes_nothing_until_a_good_one() {
    let (mut plane, service) = service().await;
    let mut wrong = config("shop", &[("user", 9)]);
    wrong.descriptors[0].rate_limit.as_mut().unwrap().unit = 99;
    let faults = rejected(&mut plane, "bad", vec![resource(&wrong)]).await;
    let unit = "shop: descriptors[0].rate_limit.unit: R04 invalid rate limit unit \"99\"";
    assert!(faults.starts_with(unit), "{faults}");

    assert_eq!(service.decide("shop", "user").await, (true, Some(1)));
    let rules = service.rules().await;
    assert_eq!(rules["control_plane"]["version"], "good");
    let fault = rules["fault"].as_str().unwrap();
    assert!(fault.starts_with(unit), "{fault}");
    let successful = "ratelimit_config_last_load_successful";
    assert_eq!(service.metric(successful).await, Some(0.0));
    let refused = "ratelimit_config_loads_total{result=\"failure\"}";
    assert_eq!(service.metric(refused).await, Some(1.0));

    plane.set("better", &[config("shop", &[("user", 4)])]);
    let reply = plane.reply().await;
    assert_eq!((&*reply.version_info, reply.error_detail), ("better", None));
    assert_eq!(
        service.decide("shop", "user").await,
        (true, Some(1)),
        "counts stay"
    );
    assert_eq!(service.rules().await["fault"], serde_json::Value::Null);
    assert_eq!(service.metric(successful).await, Some(1.0));
}

#[tokio::test]
async fn all_faults_of_a_set_are_reported() {
    let (mut plane, service) = service().await;
    let mut shop = config("shop", &[("user", 1), ("user", 2), ("", 3)]);
    let nested = &mut shop.descriptors[0];
    nested.descriptors = config("", &[("path", 1)]).descriptors;
    let limit = nested.descriptors[0].rate_limit.as_mut().unwrap();
    limit.unlimited = true;
    limit.replaces = vec![RateLimitReplace::default()];
    let other = Any {
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        value: Vec::new(),
    };
    // Half a resource.
    let mut half = resource(&config("blog", &[("user", 1)]));
    half.value.truncate(half.value.len() / 2);
    let nameless = RateLimitConfig {
        descriptors: vec![DescriptorConfig::default()],
        ..RateLimitConfig::default()
    };
    let resources = vec![
        resource(&shop),
        other,
        half,
        resource(&config("shop", &[])),
        resource(&nameless),
    ];
    let faults = rejected(&mut plane, "bad", resources).await;
    for expected in [
        "shop: descriptors[1].key: R03 duplicate descriptor composite key \"shop.user\"",
        "shop: descriptors[2]: R02 the key of the descriptor is empty",
        "shop: descriptors[0].descriptors[0].rate_limit.unit: R04 should not specify rate limit unit when unlimited",
        "shop: descriptors[0].descriptors[0].rate_limit.replaces[0]: R04 should not have an empty replaces entry",
        "resources[1]: R01 the type is \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"",
        "resources[2]: R01 the bytes are no RateLimitConfig",
        "shop: R03 the name is taken by resources[0]",
        "shop: domain: R03 duplicate domain \"shop\", which is that of shop: domain",
        "resources[4]: R02 the domain of the file is empty",
    ] {
        assert!(faults.contains(expected), "{expected}: {faults}");
    }
    assert_eq!(service.decide("shop", "user").await, (true, Some(1)));
    assert_eq!(service.decide("blog", "user").await, (true, None));
}

#[tokio::test]
async fn many_faults_are_cut() {
    let (mut plane, _service) = service().await;
    let name = "ü".repeat(300);
    let limits = vec![("", 1); 300];
    let mut wrong = config("shop", &limits);
    wrong.name = name.clone();
    let faults = rejected(&mut plane, "bad", vec![resource(&wrong)]).await;
    assert!(faults.ends_with('…') && faults.len() > 4_000, "{faults}");
}
