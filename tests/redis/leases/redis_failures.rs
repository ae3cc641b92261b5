//! Permits when Redis does not decide.

use testkit::{
    needs,
    servers::{Flow, Proxy},
};
use tower_ratelimit::{OnFailure, store::StoreErrorKind};

use super::*;

/// A node, and its observer's events.
fn observed(shared: SharedConcurrency) -> (Layered, Node, Lines) {
    let lines = Lines::default();
    let seen = lines.clone();
    let layer = layered(shared).observer(move |event: &Event<'_>| {
        seen.push(match event {
            Event::Decided(decided) => {
                let decision = decided.decision();
                format!("{:?} {}", decision.outcome(), decision.is_degraded())
            }
            Event::Failed { error, .. } => format!("{error}"),
            _ => panic!("{event:?}"),
        });
    });
    let node = layer.layer(Probe::default());
    (layer, node, lines)
}

#[tokio::test]
async fn without_redis_each_node_continues_with_its_share_and_reports_afterwards() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    proxy.refuse().await;
    let shared = at_most(5, &server.url_through(proxy.port()), LONG);
    let shared = shared.on_failure(OnFailure::nodes(2));
    let (layer, node, lines) = observed(shared);
    let mut responses = Vec::new();
    for left in [2, 1, 0] {
        let response = held(&node).await;
        let expected = format!(r#""concurrency";r={left}"#);
        assert_eq!(field(&response, "ratelimit"), Some(&*expected));
        responses.push(response);
    }
    assert_eq!(send(&node).await.status(), 429);
    let expected = [
        "Allowed true",
        "Allowed true",
        "Allowed true",
        "Denied true",
    ];
    assert_eq!(lines.take(), expected);
    assert_eq!(layer.in_flight(&Key::global()), 3);

    responses.truncate(2);
    proxy.accept().await;
    has_leases(&server, 2).await;
    responses.push(held(&node).await);
    assert_eq!(lines.take(), ["Allowed false"]);
    drop(responses);
    has_leases(&server, 0).await;
}

#[tokio::test]
async fn what_redis_gave_counts_when_it_is_gone_and_is_given_back_when_it_is_back() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    let store = store(&server.url_through(proxy.port()));
    let shared = SharedConcurrency::new(&store, Concurrency::max(3)).lease(LONG);
    let (_, node, lines) = observed(shared);
    let mut responses = vec![held(&node).await, held(&node).await];
    proxy.refuse().await;
    responses.push(held(&node).await);
    assert_eq!(send(&node).await.status(), 429);
    let failures = || -> u64 { store.stats().failures_by_kind().map(|(_, n)| n).sum() };
    let before = failures();
    responses.truncate(1);
    eventually("a release that fails", async || {
        (failures() > before).then_some(())
    })
    .await;
    let expected = ["Allowed false", "Allowed false", "Allowed true"];
    assert_eq!(lines.take()[..3], expected);

    proxy.accept().await;
    has_leases(&server, 1).await;
    drop(responses);
    has_leases(&server, 0).await;
}

#[tokio::test]
async fn without_redis_all_pass_uncounted_if_they_may() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    proxy.refuse().await;
    let shared = at_most(1, &server.url_through(proxy.port()), LONG);
    let (layer, node, lines) = observed(shared.on_failure(OnFailure::allow()));
    let mut responses = Vec::new();
    for _ in 0..10 {
        responses.push(held(&node).await);
    }
    assert_eq!(lines.take(), ["Allowed true"; 10]);
    assert_eq!(field(&responses[0], "ratelimit"), None);
    assert_eq!(layer.tracked_keys(), 0);

    proxy.accept().await;
    eventually("a lease", async || {
        drop(send(&node).await);
        lines
            .take()
            .contains(&"Allowed false".to_owned())
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_redis_all_are_answered_503_if_they_must_not_pass() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    proxy.refuse().await;
    let shared = at_most(1, &server.url_through(proxy.port()), LONG);
    let (layer, node, lines) = observed(shared.on_failure(OnFailure::deny()));
    for _ in 0..10 {
        let response = send(&node).await;
        assert_eq!(response.status(), 503);
        let kind = field(&response, "content-type");
        assert_eq!(kind, Some("application/problem+json"));
    }
    let message = lines.take();
    assert_eq!(message.len(), 10);
    assert!(
        message.iter().all(|line| line.contains("did not respond")),
        "{message:?}"
    );
    assert_eq!(layer.tracked_keys(), 0);
}

#[tokio::test]
async fn a_lease_that_came_too_late_is_given_back() {
    needs!(redis);
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let store = RedisStore::builder().deadline(Duration::from_millis(200));
    let store = store.connect(&server.url_through(proxy.port())).unwrap();
    let shared = SharedConcurrency::new(&store, Concurrency::max(1)).lease(LONG);
    let (_, node, _) = observed(shared.on_failure(OnFailure::deny()));
    let first = eventually("an answer in time", async || {
        let response = send(&node).await;
        (response.status() == 200).then_some(response)
    });
    drop(first.await);
    has_leases(&server, 0).await;

    // Neither the request nor the release that follows it reaches the server before the flow resumes.
    let requested = server.command_count("evalsha").await;
    proxy.set(Flow::BlackHole);
    assert_eq!(send(&node).await.status(), 503);
    assert_eq!(server.command_count("evalsha").await, requested);
    proxy.set(Flow::Forward);
    eventually("a request and a release", async || {
        (server.command_count("evalsha").await >= requested + 2).then_some(())
    })
    .await;
    has_leases(&server, 0).await;
}

#[tokio::test]
async fn a_value_of_somebody_else_is_a_failure_of_its_subject_and_stays() {
    needs!(redis);
    let server = Server::start().await;
    let by_path = key_fn(|parts| Key::from(parts.uri.path()));
    let store = store(&server.url());
    let shared = SharedConcurrency::new(&store, Concurrency::max(1)).lease(LONG);
    let shared = shared.on_failure(OnFailure::deny());
    let node = ConcurrencyLayer::new(shared, by_path).layer(Probe::default());
    let to = async |path: &str| {
        let request = get(path).body(String::new()).unwrap();
        node.clone().oneshot(request).await.unwrap()
    };
    let held = to("/mine").await;
    let keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    assert_eq!(keys.len(), 1);
    let theirs = |path: &str| keys[0].replace("/mine", path);
    let mut cut: Vec<u8> = server.send(["GET", &keys[0]]).await.unwrap();
    cut.pop();
    let set = [b"SET".to_vec(), theirs("/cut").into_bytes(), cut];
    server.send::<()>(set).await.unwrap();
    for words in [
        ["SET", &theirs("/text"), "their own words"],
        ["SET", &theirs("/empty"), ""],
        ["LPUSH", &theirs("/list"), "item"],
    ] {
        server.send::<()>(words).await.unwrap();
    }
    for _ in 0..5 {
        for path in ["/cut", "/text", "/empty", "/list"] {
            assert_eq!(to(path).await.status(), 503);
        }
        assert_eq!(to("/others").await.status(), 200);
    }
    let foreign = store.stats().failures(StoreErrorKind::ForeignData);
    assert_eq!(foreign, 20);
    let text: String = server.send(["GET", &theirs("/text")]).await.unwrap();
    assert_eq!(text, "their own words");
    drop(held);
}
