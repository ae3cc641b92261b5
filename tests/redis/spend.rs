//! Charges of limits of all nodes that follow the bodies of responses.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use testkit::{
    AGE,
    child_processes::eventually,
    llm::{StreamingBody, bodies},
    needs,
    servers::Server,
};
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    Global, Key, OnFailure, Quota, RateLimitLayer, RedisLimiter, RedisStore, SpendLayer,
    limiter::JointLimiter,
    rate_limit::{Exhausted, SpendBody},
    spend::{Tokens, llm::Llm},
};

type Layers = SpendLayer<JointLimiter<RedisLimiter>>;

fn limiter(limit: u64, name: &'static str, store: &RedisStore) -> RedisLimiter {
    let quota = Quota::per(limit, AGE / 4).fixed_window().named(name);
    let quota = match name {
        "requests" => quota,
        _ => quota.debt(limit),
    };
    let builder = RedisLimiter::builder(quota).on_failure(OnFailure::deny());
    builder.build(store).unwrap()
}

/// A layer of a node: limits of requests, of tokens and of money.
async fn layer(server: &Server) -> Layers {
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connect(&server.url()).unwrap();
    let limit = |limit, name| limiter(limit, name, &store).by(Global);
    RateLimitLayer::all([
        limit(2, "requests"),
        limit(10_000, "tokens").spends(Tokens::total),
        limit(20_000, "usd").spends(|tokens| 2 * tokens.input + 8 * tokens.output),
    ])
    .spending(Llm::any())
}

async fn stream(
    layer: &Layers,
    words: usize,
    usage: (u64, u64),
) -> Response<SpendBody<StreamingBody>> {
    let text = bodies::chat_stream(&bodies::words(words), Some(usage));
    let service = layer.layer(service_fn(move |_: Request<String>| {
        let head = Response::builder().header("content-type", "text/event-stream");
        let response = head.body(StreamingBody::events(&text)).unwrap();
        async move { Ok::<_, std::io::Error>(response) }
    }));
    service.oneshot(Request::new(String::new())).await.unwrap()
}

/// The units that are taken of each limit.
async fn taken(layer: &Layers) -> Vec<u64> {
    let mut taken = Vec::new();
    for limiter in layer.limiter().limiters() {
        let limit = limiter.peek(&Key::global(), 1).await.unwrap();
        let quota = limit.binding();
        taken.push(quota.limit() - quota.remaining().unwrap());
    }
    taken
}

/// Waits until these units are taken: the end of a body is charged when no request waits for it.
async fn settled(layer: &Layers, units: &[u64]) {
    eventually("the settlement", async || {
        (taken(layer).await == units).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_limit_is_charged_its_own_units_on_every_node() {
    needs!(redis);
    let server = Server::start().await;
    let (first, second) = (layer(&server).await, layer(&server).await);
    let response = stream(&first, 40, (11, 80)).await;
    assert_eq!(taken(&second).await, [1, 1_024, 8_192], "the reservation");
    response.into_body().collect().await.unwrap();
    settled(&second, &[1, 91, 662]).await;
    // More than is reserved.
    let response = stream(&second, 40, (1_000, 2_000)).await;
    response.into_body().collect().await.unwrap();
    settled(&first, &[2, 3_091, 18_662]).await;
    // Denied by the limit of requests, at no cost to the others.
    assert_eq!(stream(&first, 1, (1, 1)).await.status(), 429);
    assert_eq!(taken(&first).await, [2, 3_091, 18_662]);
}

#[tokio::test]
async fn a_stream_ends_when_nothing_is_left_of_one_limit() {
    needs!(redis);
    let server = Server::start().await;
    let layer = layer(&server)
        .await
        .reserve(100)
        .step(50)
        .exhausted(Exhausted::End);
    let usd = &layer.limiter().limiters()[2];
    assert!(
        usd.acquire(&Key::global(), 18_800)
            .await
            .unwrap()
            .is_allowed()
    );
    // 150 tokens are left.
    let mut body = stream(&layer, 200, (11, 400)).await.into_body();
    let mut frames = 0;
    let error = loop {
        match body.frame().await.unwrap() {
            Ok(_) => frames += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("limit"), "{error}");
    assert_eq!(frames, 1 + 75, "the first event has no text");
    settled(&layer, &[1, 150, 20_000]).await;
}

#[tokio::test]
async fn a_store_that_is_gone_ends_no_stream() {
    needs!(redis);
    let mut server = Server::start().await;
    let layer = layer(&server).await.reserve(100).step(50);
    let body = stream(&layer, 200, (11, 400)).await.into_body();
    server.kill9();
    let text = body.collect().await.unwrap().to_bytes();
    assert_eq!(
        text,
        bodies::chat_stream(&bodies::words(200), Some((11, 400)))
    );
}

/// A layer of limits of tokens and of money, each with a server of its own.
fn layer_of_servers(servers: [&Server; 2], on_failure: OnFailure) -> Layers {
    let limiter = |at: usize, limit, name| {
        let store = RedisStore::builder().deadline(Duration::from_secs(2));
        let store = store.connect(&servers[at].url()).unwrap();
        let quota = Quota::per(limit, AGE / 4).fixed_window().named(name);
        let builder = RedisLimiter::builder(quota.debt(limit)).on_failure(on_failure);
        builder.build(&store).unwrap().by(Global)
    };
    RateLimitLayer::all([
        limiter(0, 10_000, "tokens").spends(Tokens::total),
        limiter(1, 20_000, "usd").spends(|tokens| 2 * tokens.total()),
    ])
    .spending(Llm::any())
    .reserve(100)
    .step(50)
    .exhausted(Exhausted::End)
}

#[tokio::test]
async fn a_refund_is_made_once_if_the_server_of_another_limit_is_gone() {
    needs!(redis);
    for on_failure in [OnFailure::deny(), OnFailure::local(), OnFailure::allow()] {
        let (server, mut other) = (Server::start().await, Server::start().await);
        let layer = layer_of_servers([&server, &other], on_failure);
        let mut body = stream(&layer, 130, (11, 254)).await.into_body();
        let tokens = layer.limiter().limiters()[0].clone();
        let taken = async || {
            let peeked = tokens.peek(&Key::global(), 1).await.unwrap();
            10_000 - peeked.remaining().unwrap()
        };
        // Each frame waits until its tokens are charged. The last ones have the usage, and nothing to charge.
        for _ in 0..130 {
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(taken().await, 300);
        other.kill9();
        drop(body.collect().await.unwrap());
        tower_ratelimit::rate_limit::settled().await;
        assert_eq!(taken().await, 265, "{on_failure:?}");
    }
}
