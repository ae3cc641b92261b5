//! reqwest 0.13 by the layer, by the middleware and by hand, and hyper-util: one contract.
//!
//! Over real sockets, so nothing here is about time.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, http::StatusCode, response::IntoResponse, routing::any};
use http_body_util::BodyExt;
use hyper_util::rt::TokioExecutor;
use reqwest::{Client, Method, Request};
use tokio::io::AsyncReadExt;
use tower::{Layer, ServiceExt};
use tower_ratelimit_client::{
    Advice, Destination, Pacer, PacerError, PacerErrorKind, PacerLayer, PacerMiddleware,
};

use super::seconds;

/// Refuses each path once with the number of seconds in it, then accepts it. Counts requests.
async fn serve() -> (String, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let answer = move |uri: axum::http::Uri, body: String| async move {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        let wait = uri.path().trim_start_matches('/').to_owned();
        match n {
            0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", wait)]).into_response(),
            _ => body.into_response(),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(any(answer));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, requests)
}

fn request(method: Method, url: &str) -> Request {
    let mut request = Request::new(method, url.parse().unwrap());
    *request.body_mut() = Some("content".into());
    request
}

/// The result of a call: the status and the body, or the kind of a refusal.
type Seen = Result<(u16, String), PacerErrorKind>;

async fn seen(response: reqwest::Response) -> Seen {
    let status = response.status().as_u16();
    Ok((status, response.text().await.unwrap()))
}

async fn by_layer(pacer: Pacer, request: Request) -> Seen {
    let client = PacerLayer::new(pacer).layer(Client::new());
    match client.oneshot(request).await {
        Ok(response) => seen(response).await,
        Err(error) => Err(error.downcast_ref::<PacerError>().unwrap().kind()),
    }
}

async fn by_middleware(pacer: Pacer, request: Request) -> Seen {
    let client = reqwest_middleware::ClientBuilder::new(Client::new())
        .with(PacerMiddleware::new(pacer))
        .build();
    match client.execute(request).await {
        Ok(response) => seen(response).await,
        Err(reqwest_middleware::Error::Middleware(error)) => {
            Err(error.downcast_ref::<PacerError>().unwrap().kind())
        }
        Err(error) => panic!("{error}"),
    }
}

async fn by_hyper(pacer: Pacer, request: Request) -> Seen {
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
    let body = request.body().and_then(|body| body.as_bytes());
    let body = String::from_utf8(body.unwrap_or_default().to_vec()).unwrap();
    let request = axum::http::Request::builder()
        .method(request.method())
        .uri(request.url().as_str())
        .body(body)
        .unwrap();
    match PacerLayer::new(pacer).layer(client).oneshot(request).await {
        Ok(response) => {
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap();
            Ok((status, String::from_utf8(body.to_bytes().to_vec()).unwrap()))
        }
        Err(error) => Err(error.downcast_ref::<PacerError>().unwrap().kind()),
    }
}

/// As the cookbook has it for other clients.
async fn by_hand(pacer: Pacer, request: Request) -> Seen {
    let destination: Destination = request.url().as_str().parse().unwrap();
    loop {
        let mut turn = pacer
            .turn(&destination, 1)
            .await
            .map_err(|error| error.kind())?;
        let response = Client::new()
            .execute(request.try_clone().unwrap())
            .await
            .unwrap();
        match turn.learn(response.status(), response.headers()) {
            Advice::RetryAfter(wait)
                if wait.as_secs() < 30 && *request.method() != Method::POST => {}
            _ => return seen(response).await,
        }
    }
}

async fn contract<F: Future<Output = Seen>>(call: impl Fn(Pacer, Request) -> F) {
    // Refused once, and sent again with the same body.
    let (url, requests) = serve().await;
    let answer = call(Pacer::learning(), request(Method::PUT, &format!("{url}/0"))).await;
    assert_eq!(answer, Ok((200, "content".into())));
    assert_eq!(requests.load(Ordering::SeqCst), 2);

    // A POST is sent once.
    let (url, requests) = serve().await;
    let answer = call(
        Pacer::learning(),
        request(Method::POST, &format!("{url}/0")),
    )
    .await;
    assert_eq!(
        (answer.unwrap().0, requests.load(Ordering::SeqCst)),
        (429, 1)
    );

    // A pause that is too long: the caller gets the response, and the next one is not sent.
    let (url, requests) = serve().await;
    let pacer = Pacer::learning();
    let answer = call(pacer.clone(), request(Method::GET, &format!("{url}/120"))).await;
    assert_eq!(answer.unwrap().0, 429);
    let answer = call(pacer, request(Method::GET, &url)).await;
    assert_eq!(answer, Err(PacerErrorKind::Paused));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_layer_around_reqwest_waits_and_retries() {
    contract(by_layer).await;
}

#[tokio::test]
async fn a_middleware_waits_and_retries() {
    contract(by_middleware).await;
}

#[tokio::test]
async fn a_layer_around_hyper_waits_and_retries() {
    contract(by_hyper).await;
}

#[tokio::test]
async fn a_turn_by_hand_waits_and_learns() {
    contract(by_hand).await;
}

/// Attempts of a request whose client fails.
async fn attempts(client: Client, request: Request, attempts: &AtomicUsize) -> [usize; 2] {
    let layer = || PacerLayer::new(Pacer::learning()).replay_fn(copy);
    let copied = || copy(&request).unwrap();
    let by_layer = layer().layer(client.clone()).oneshot(copied()).await;
    assert!(!by_layer.unwrap_err().is::<PacerError>());
    let by_layer = attempts.swap(0, Ordering::SeqCst);
    let client = reqwest_middleware::ClientBuilder::new(client)
        .with(PacerMiddleware::from(layer()))
        .build();
    let error = client.execute(copied()).await.unwrap_err();
    assert!(matches!(error, reqwest_middleware::Error::Reqwest(_)));
    [by_layer, attempts.swap(0, Ordering::SeqCst)]
}

/// With a body that breaks, if there is one.
fn copy(request: &Request) -> Option<Request> {
    let mut copy = Request::new(request.method().clone(), request.url().clone());
    if request.body().is_some() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let frames = tokio_stream::once(Err::<hyper::body::Frame<bytes::Bytes>, _>(broken));
        let body = http_body_util::StreamBody::new(frames);
        *copy.body_mut() = Some(reqwest::Body::wrap(body));
    }
    Some(copy)
}

#[tokio::test]
async fn a_connection_that_ends_before_a_response_is_retried() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let mut bytes = [0; 4_096];
            let _ = connection.read(&mut bytes).await.unwrap();
        }
    });
    for (method, expected) in [(Method::GET, 3), (Method::POST, 1)] {
        let request = Request::new(method, url.parse().unwrap());
        let attempts = attempts(Client::new(), request, &connections).await;
        assert_eq!(attempts, [expected; 2]);
    }
    // A body that breaks is no connection error.
    let put = request(Method::PUT, &url);
    assert_eq!(attempts(Client::new(), put, &connections).await, [1; 2]);
}

/// Resolves no address, and counts the requests for one.
struct Nowhere(Arc<AtomicUsize>);

impl reqwest::dns::Resolve for Nowhere {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_connect_timeout_is_retried() {
    let requested = Arc::new(AtomicUsize::new(0));
    let client = || Client::builder().dns_resolver(Arc::new(Nowhere(Arc::clone(&requested))));
    let get = || Request::new(Method::GET, "http://api.example.com/".parse().unwrap());
    let slow = client().connect_timeout(seconds(5)).build().unwrap();
    assert_eq!(attempts(slow, get(), &requested).await, [3; 2]);
    // The caller chooses the time of a whole request.
    let slow = client().timeout(seconds(5)).build().unwrap();
    assert_eq!(attempts(slow, get(), &requested).await, [1; 2]);
}

/// Redirects to this address.
async fn redirect_to(url: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(any(async move || axum::response::Redirect::to(&url)));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    here
}

#[tokio::test]
async fn fields_of_another_origin_are_ignored() {
    let calls: [fn(Pacer, Request) -> _; 2] = [
        |pacer, request| -> Pin<Box<dyn Future<Output = Seen>>> {
            Box::pin(by_layer(pacer, request))
        },
        |pacer, request| Box::pin(by_middleware(pacer, request)),
    ];
    for call in calls {
        let (elsewhere, requests) = serve().await;
        let url = redirect_to(format!("{elsewhere}/3600")).await;
        let pacer = Pacer::learning();
        let get = Request::new(Method::GET, url.parse().unwrap());
        // It is a refusal without a wait, and retried.
        assert_eq!(call(pacer.clone(), get).await.unwrap().0, 200);
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        // A response of the same origin counts.
        let (url, _) = serve().await;
        let get = Request::new(Method::GET, format!("{url}/3600").parse().unwrap());
        assert_eq!(call(pacer.clone(), get).await.unwrap().0, 429);
        let paused = pacer.stats(&url.parse().unwrap()).paused_for;
        assert!(paused > Some(seconds(3_000)), "{paused:?}");
    }
}

#[tokio::test]
async fn fields_of_a_response_without_a_url_count() {
    // A response without a URL, as from a cache or made by a test.
    let client = tower::service_fn(async |_: Request| {
        let refusal = axum::http::Response::builder().status(429);
        let refusal = refusal.header("retry-after", "3600").body("").unwrap();
        Ok::<_, std::convert::Infallible>(reqwest::Response::from(refusal))
    });
    let pacer = Pacer::learning();
    let client = PacerLayer::new(pacer.clone()).layer(client);
    let url = "http://api.example.com/";
    let get = Request::new(Method::GET, url.parse().unwrap());
    assert_eq!(client.oneshot(get).await.unwrap().status(), 429);
    assert!(pacer.stats(&url.parse().unwrap()).paused_for.is_some());
}

#[tokio::test]
async fn a_stream_is_sent_once() {
    let (url, requests) = serve().await;
    let mut put = request(Method::PUT, &format!("{url}/0"));
    // A body that reqwest cannot copy.
    *put.body_mut() = Some(reqwest::Body::wrap(http_body_util::Full::new(
        bytes::Bytes::from("x"),
    )));
    let answer = by_layer(Pacer::learning(), put).await;
    assert_eq!(
        (answer.unwrap().0, requests.load(Ordering::SeqCst)),
        (429, 1)
    );
}

#[tokio::test]
async fn without_replay_sends_each_request_once() {
    let (url, requests) = serve().await;
    let layer = || PacerLayer::new(Pacer::learning()).without_replay();
    let put = || request(Method::PUT, &format!("{url}/0"));
    let response = layer().layer(Client::new()).oneshot(put()).await.unwrap();
    assert_eq!(
        (
            seen(response).await.unwrap().0,
            requests.load(Ordering::SeqCst)
        ),
        (429, 1)
    );

    let (url, requests) = serve().await;
    let client = reqwest_middleware::ClientBuilder::new(Client::new())
        .with(PacerMiddleware::from(layer()))
        .build();
    let put = request(Method::PUT, &format!("{url}/0"));
    let response = client.execute(put).await.unwrap();
    assert_eq!(
        (
            seen(response).await.unwrap().0,
            requests.load(Ordering::SeqCst)
        ),
        (429, 1)
    );
}

#[tokio::test]
async fn a_closure_selects_the_requests_of_reqwest_to_copy() {
    for (path, expected) in [("0", (200, 2)), ("0?once", (429, 1))] {
        let (url, requests) = serve().await;
        let layer = PacerLayer::new(Pacer::learning()).replay_fn(|request: &Request| {
            let is_copied = request.url().query().is_none();
            is_copied.then(|| request.try_clone()).flatten()
        });
        let put = request(Method::PUT, &format!("{url}/{path}"));
        let response = layer.layer(Client::new()).oneshot(put).await.unwrap();
        let status = seen(response).await.unwrap().0;
        assert_eq!(
            (status, requests.load(Ordering::SeqCst)),
            expected,
            "{path}"
        );
    }
}
