//! Sets of limits: the first, changes, whole sets, large ones.

use std::{sync::Arc, time::Instant};

use testkit::child_processes::eventually;
use tokio::sync::watch;
use tonic_health::pb::health_check_response::ServingStatus;
use tower_ratelimit_envoy::protobuf_messages::ValueKind;

use super::{
    control_plane::{Plane, TYPE_URL, config},
    service_harness::{Service, at, send},
};

#[tokio::test]
async fn first_set_decides() {
    let mut plane = Plane::start().await;
    let mut settings = at(plane.port);
    settings.xds_node = "test".to_owned();
    settings
        .node_metadata
        .insert("zone".to_owned(), "a".to_owned());
    settings.headers = vec![("X-Tenant".to_owned(), "shop".to_owned())];
    let service = Service::launch(settings);
    let (first, metadata) = plane.request().await;
    assert_eq!((&*first.type_url, &*first.version_info), (TYPE_URL, ""));
    let node = first.node.unwrap();
    assert_eq!(node.id, "test");
    let zone = node.metadata.unwrap().fields["zone"].kind.clone();
    assert_eq!(zone, Some(ValueKind::StringValue("a".to_owned())));
    assert_eq!(metadata.get("x-tenant").unwrap(), "shop");
    assert!(
        send(service.http, "GET /healthz").await.is_none(),
        "nothing listens"
    );

    plane.set("1", &[config("shop", &[("user", 2)])]);
    let reply = plane.reply().await;
    assert_eq!(
        (&*reply.version_info, &*reply.response_nonce),
        ("1", "nonce of 1")
    );
    assert_eq!((reply.error_detail, reply.node), (None, None));
    service.becomes("/readyz", 200).await;
    let mut decisions = Vec::new();
    for _ in 0..3 {
        decisions.push(service.decide("shop", "user").await);
    }
    let expected = [(true, Some(1)), (true, Some(0)), (false, Some(0))];
    assert_eq!(decisions, expected);

    let rules = service.rules().await;
    assert_eq!(rules["rules"][0]["name"], "shop.user");
    assert_eq!(
        rules["rules"][0]["place"],
        "shop: descriptors[0].rate_limit"
    );
    assert_eq!(rules["files"][0]["file"], "shop");
    assert_eq!(rules["control_plane"]["version"], "1");
    assert_eq!(rules["control_plane"]["connected"], true);
    assert!(rules["loaded_at"].as_u64().unwrap() > 1_700_000_000);
    let (status, reported) = service.operate("POST /v1/rules/reload", "").await;
    assert_eq!(status, 409, "{reported}");
    let hits = "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user\"}";
    assert_eq!(service.metric(hits).await, Some(3.0), "as by files");
}

/// Calls run meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_fails_no_call_and_keeps_counts() {
    const CHANGES: u32 = 20;
    let mut plane = Plane::start().await;
    plane.set("0", &[config("shop", &[("user", 1_000), ("other", 1)])]);
    let service = Arc::new(Service::start(at(plane.port)).await);
    plane.reply().await;
    service.call("shop", "user", 10).await.unwrap();

    let (stop, stopped) = watch::channel(false);
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (service, stopped) = (Arc::clone(&service), stopped.clone());
            tokio::spawn(async move {
                let mut calls = 0_u32;
                while !*stopped.borrow() {
                    service.call("shop", "other", 1).await.unwrap();
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut slowest = std::time::Duration::ZERO;
    for change in 1..=CHANGES {
        let begun = Instant::now();
        plane.set(
            &change.to_string(),
            &[config("shop", &[("user", 1_000 + change), ("other", 1)])],
        );
        let reply = plane.reply().await;
        assert_eq!(reply.version_info, change.to_string());
        slowest = slowest.max(begun.elapsed());
        // In force before it is acknowledged.
        let (_, remaining) = service.decide("shop", "user").await;
        assert_eq!(remaining, Some(1_000 + change - 10 - change), "counts stay");
    }
    stop.send_replace(true);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    eprintln!("{CHANGES} changes, the slowest within {slowest:?}; {calls} calls, none failed");
}

#[tokio::test]
async fn set_is_whole() {
    let mut plane = Plane::start().await;
    let (shop, blog) = (
        config("shop", &[("user", 1)]),
        config("blog", &[("user", 1)]),
    );
    plane.set("1", &[shop.clone(), blog]);
    let service = Service::start(at(plane.port)).await;
    plane.reply().await;
    assert_eq!(service.decide("blog", "user").await, (true, Some(0)));
    assert_eq!(service.decide("blog", "user").await, (false, Some(0)));

    plane.set("2", &[shop]);
    plane.reply().await;
    assert_eq!(service.decide("blog", "user").await, (true, None));
    assert_eq!(service.decide("shop", "user").await, (true, Some(0)));

    plane.set("3", &[]);
    let reply = plane.reply().await;
    assert_eq!((&*reply.version_info, reply.error_detail), ("3", None));
    assert_eq!(service.decide("shop", "user").await, (true, None));
    assert_eq!(service.metric("ratelimit_rules").await, Some(0.0));
}

#[tokio::test]
async fn service_may_start_without_limits() {
    let mut plane = Plane::start().await;
    let mut settings = at(plane.port);
    settings.xds_force_start = true;
    let service = Service::start(settings).await;
    // Envoy Gateway's liveness probe.
    service.becomes("/healthcheck", 200).await;
    let status = service.call("shop", "user", 1).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    service.measures("ratelimit_config_connected", 1.0).await;
    assert_eq!(service.rules().await["loaded_at"], serde_json::Value::Null);

    plane.set("1", &[config("shop", &[("user", 1)])]);
    plane.reply().await;
    assert_eq!(service.decide("shop", "user").await, (true, Some(0)));
}

#[tokio::test]
async fn readiness_may_need_a_domain() {
    let mut plane = Plane::start().await;
    let mut settings = at(plane.port);
    settings.xds_force_start = true;
    settings.ready_needs_domain = true;
    let service = Service::launch(settings);
    service.becomes("/healthcheck", 500).await;
    service.serves(ServingStatus::NotServing).await;
    plane.set("1", &[config("shop", &[("user", 1)])]);
    service.becomes("/healthcheck", 200).await;
    service.serves(ServingStatus::Serving).await;
    plane.set("2", &[]);
    service.becomes("/healthcheck", 500).await;
    service.serves(ServingStatus::NotServing).await;
    plane.set("3", &[config("shop", &[("user", 1)])]);
    service.becomes("/healthcheck", 200).await;
    plane.reply().await;
}

#[tokio::test]
async fn ten_thousand_descriptors_are_accepted() {
    let mut plane = Plane::start().await;
    plane.set("1", &[config("shop", &[("user", 1)])]);
    let service = Service::start(at(plane.port)).await;
    plane.reply().await;
    // Keys with underscores could be a key and a value of another descriptor.
    let keys: Vec<String> = (0..10_000).map(|at| format!("route_{at}_user")).collect();
    let limits: Vec<_> = keys.iter().map(|key| (key.as_str(), 1)).collect();
    let set = config("shop", &limits);
    let begun = Instant::now();
    plane.set("2", &[set]);
    let reply = plane.reply().await;
    eprintln!("10,000 descriptors within {:?}", begun.elapsed());
    assert_eq!(reply.error_detail, None);
    assert_eq!(
        service.decide("shop", "route_9999_user").await,
        (true, Some(0))
    );
    assert_eq!(service.metric("ratelimit_rules").await, Some(10_000.0));
}

/// A control plane sends its set again to each new stream, for example after its own restart.
#[tokio::test]
async fn repeated_set_keeps_the_changes_of_operators() {
    let mut plane = Plane::start().await;
    let mut set = [
        config("shop", &[("user", 1)]),
        config("blog", &[("user", 1)]),
    ];
    plane.set("1", &set);
    let service = Service::start(at(plane.port)).await;
    plane.reply().await;
    let loaded_at = service.rules().await["loaded_at"].clone();
    let loads = "ratelimit_config_loads_total{result=\"success\"}";
    assert_eq!(service.metric(loads).await, Some(1.0));
    let quota = "{\"requests_per_unit\": 5}";
    let (status, reported) = service
        .operate("PUT /v1/rules/shop.user/quota", quota)
        .await;
    assert_eq!(status, 200, "{reported}");
    set.reverse();
    plane.set("2", &set);
    plane.reply().await;
    eventually("the version", async || {
        let rules = service.rules().await;
        assert_eq!(rules["loaded_at"], loaded_at);
        (rules["control_plane"]["version"] == "2").then_some(())
    })
    .await;
    assert_eq!(service.metric(loads).await, Some(2.0));
    assert_eq!(service.decide("shop", "user").await, (true, Some(4)));
    plane.set("3", &set[..1]);
    plane.reply().await;
    plane.set("4", &set);
    plane.reply().await;
    assert_eq!(service.decide("shop", "user").await, (false, Some(0)));
}
