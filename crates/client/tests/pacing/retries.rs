//! Retries: the requests that are sent again, and those that are not.

use std::{
    io::{Error, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, Response};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_ratelimit::Quota;
use tower_ratelimit_client::{Failure, PacerError, PacerErrorKind, PacerLayer, Retry};

use super::{
    Server, URL, builder, millis, response, seconds,
    simulated_network::{Http, client_over, connect_to_nobody},
};

fn layer() -> PacerLayer {
    PacerLayer::new(builder(Quota::per_second(1_000)).build().unwrap())
}

fn request(method: Method) -> Request<String> {
    let request = Request::builder().method(method).uri(URL);
    request.body("content".to_owned()).unwrap()
}

async fn status(layer: &PacerLayer, server: &Server, request: Request<String>) -> u16 {
    let client = layer.layer(server.clone());
    let response = client.oneshot(request).await.unwrap();
    response.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn methods() {
    for (answer, again) in [
        ((429, &[("retry-after", "1")][..]), true),
        ((429, &[]), true),
        ((503, &[("retry-after", "1")]), true),
        ((403, &[("retry-after", "1")]), true),
        ((430, &[("retry-after", "1")]), true),
        ((408, &[]), true),
        ((502, &[]), true),
        ((503, &[]), true),
        ((504, &[]), true),
        ((400, &[]), false),
        ((403, &[]), false),
        ((404, &[]), false),
        ((500, &[]), false),
        ((501, &[]), false),
        ((302, &[("retry-after", "1")]), false),
    ] {
        for method in [
            "GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "PUT", "DELETE", "POST", "PATCH", "X",
        ] {
            let server = Server::new(move |n, _| {
                Ok(match n {
                    0 => response(answer.0, answer.1),
                    _ => response(200, &[]),
                })
            });
            let method: Method = method.parse().unwrap();
            let comes_twice = !["POST", "PATCH", "X"].contains(&method.as_str());
            let status = status(&layer(), &server, request(method.clone())).await;
            let expected = if again && comes_twice {
                (200, 2)
            } else {
                (answer.0, 1)
            };
            assert_eq!((status, server.requests()), expected, "{method} {answer:?}");
            assert!(server.bodies().iter().all(|body| body == "content"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_post_is_sent_again_only_with_throttled_always() {
    const REFUSED: &[(u16, &[(&str, &str)])] = &[(429, &[("retry-after", "1")])];
    let cases = [
        (Retry::new(), false, 1),
        (Retry::new(), true, 2),
        (Retry::new().throttled_always(), false, 2),
        (
            Retry::new().when(|_, failure| *failure == Failure::Throttled),
            false,
            2,
        ),
        (
            Retry::new().when(|_, failure| *failure == Failure::Connection),
            false,
            1,
        ),
        (Retry::none(), true, 1),
    ];
    for (retry, key, requests) in cases {
        let server = Server::scripted(REFUSED);
        let mut post = request(Method::POST);
        if key {
            post.headers_mut()
                .insert("idempotency-key", "\"7\"".parse().unwrap());
        }
        status(&layer().retry(retry.clone()), &server, post).await;
        assert_eq!(server.requests(), requests, "{retry:?} {key}");
    }
    // Permission after a refusal is none after a failure.
    let server = Server::scripted(&[(503, &[])]);
    let layer = layer().retry(Retry::new().throttled_always());
    assert_eq!(status(&layer, &server, request(Method::POST)).await, 503);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_server_permits_a_retry_itself() {
    const GRPC: (&str, &str) = ("content-type", "application/grpc+proto");
    const WAIT: &[(&str, &str)] = &[
        GRPC,
        ("grpc-status", "8"),
        ("grpc-retry-pushback-ms", "200"),
    ];
    const NEVER: &[(&str, &str)] = &[GRPC, ("grpc-status", "8"), ("grpc-retry-pushback-ms", "-1")];
    const SILENT: &[(&str, &str)] = &[GRPC, ("grpc-status", "8")];
    let usual = Retry::new;
    for (lines, retry, requests) in [
        (WAIT, usual(), 2),
        (NEVER, usual(), 1),
        // Anybody can write the fields; they only count on gRPC responses.
        (&WAIT[1..], usual(), 1),
        // Without a wait the server permits no retry.
        (SILENT, usual(), 1),
        (SILENT, usual().throttled_always(), 2),
        // The caller decides, unless the server forbids the retry.
        (WAIT, usual().when(|_, _| false), 1),
        (WAIT, usual().throttled_always().when(|_, _| false), 1),
        (SILENT, usual().when(|_, _| true), 2),
        (NEVER, usual().when(|_, _| true), 1),
        (WAIT, Retry::none(), 1),
    ] {
        let server = Server::new(move |n, _| {
            Ok(match n {
                0 => response(200, lines),
                _ => response(200, &[("grpc-status", "0")]),
            })
        });
        let layer = layer().retry(retry.clone());
        let mut call = request(Method::POST);
        call.headers_mut()
            .insert("content-type", "application/grpc".parse().unwrap());
        status(&layer, &server, call).await;
        assert_eq!(server.requests(), requests, "{lines:?} {retry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_the_requested_time_and_a_random_share() {
    let server = Server::scripted(&[
        (429, &[("retry-after", "3")]),
        (429, &[("retry-after", "3")]),
    ]);
    status(&layer(), &server, request(Method::GET)).await;
    let times = server.times();
    let waits = [times[1] - times[0], times[2] - times[1]];
    assert!(
        (seconds(3)..=millis(3_502)).contains(&waits[0]),
        "{waits:?}"
    );
    assert!(
        (seconds(3)..=millis(4_002)).contains(&waits[1]),
        "{waits:?}"
    );
    assert!(
        waits[0] != seconds(3) && waits[1] != seconds(3),
        "{waits:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_with_a_wait_that_is_too_long_goes_to_the_caller() {
    // The requested wait alone fits; with the random share it is too long.
    let began = Instant::now();
    let server = Server::scripted(&[(429, &[("retry-after", "30")])]);
    assert_eq!(status(&layer(), &server, request(Method::GET)).await, 429);
    assert_eq!(began.elapsed(), seconds(0));
    let server = Server::scripted(&[(429, &[("retry-after", "60")])]);
    let layer = layer();
    assert_eq!(status(&layer, &server, request(Method::GET)).await, 429);
    assert_eq!(began.elapsed(), seconds(0));
    // Later calls are not sent at all.
    let client = layer.layer(server.clone());
    let error = client.oneshot(request(Method::GET)).await.unwrap_err();
    let error = error.downcast_ref::<PacerError>().unwrap();
    assert_eq!(
        (error.kind(), server.requests()),
        (PacerErrorKind::Paused, 1)
    );
    assert_eq!(began.elapsed(), seconds(0));
}

#[tokio::test(start_paused = true)]
async fn the_last_response_is_returned() {
    // Each has its number in a field.
    let server = Server::new(|n, _| {
        let mut answer = response(503, &[]);
        answer.headers_mut().insert("x-n", n.into());
        Ok(answer)
    });
    let client = layer().layer(server.clone());
    let response = client.clone().oneshot(request(Method::GET)).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-n"]),
        (503, &2.into())
    );

    // An error after it is worth less.
    let server = Server::new(|n, _| match n {
        0 => Ok(response_503()),
        _ => Err(Error::from(ErrorKind::ConnectionReset)),
    });
    let client = layer().layer(server.clone());
    let response = client.oneshot(request(Method::GET)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.requests()), (503, 3));
}

/// A client with one connection, released with the body. The first response is a refusal; after it,
/// sending takes `delay`.
async fn call_on_one_connection(
    delay: Duration,
    then: Result<u16, ErrorKind>,
) -> Result<u16, BoxError> {
    let connection = Arc::new(Semaphore::new(1));
    let requests = Arc::new(AtomicUsize::new(0));
    let client = service_fn(move |_: Request<String>| {
        let connection = Arc::clone(&connection).acquire_owned();
        let n = requests.fetch_add(1, Ordering::SeqCst);
        async move {
            let body = connection.await.unwrap();
            let status = match n {
                0 => 503,
                _ => {
                    sleep(delay).await;
                    then?
                }
            };
            let response = Response::builder().status(status);
            Ok::<_, Error>(response.body(body).unwrap())
        }
    });
    let client = layer().layer(client);
    let response = client.oneshot(request(Method::GET)).await?;
    Ok(response.status().as_u16())
}

#[tokio::test(start_paused = true)]
async fn a_held_response_releases_the_only_connection_after_a_second() {
    let began = Instant::now();
    let call = timeout(seconds(60), call_on_one_connection(seconds(0), Ok(200)));
    assert_eq!(call.await.expect("it hangs").unwrap(), 200);
    // A second, and the random share of the retry.
    assert!(began.elapsed() <= millis(1_102), "{:?}", began.elapsed());
    // Only the error is left to return by then.
    let error = call_on_one_connection(seconds(9), Err(ErrorKind::InvalidData)).await;
    assert!(error.unwrap_err().is::<Error>());
}

fn response_503() -> Response<String> {
    response(503, &[])
}

#[tokio::test(start_paused = true)]
async fn refusals_end_the_call_after_ten() {
    let server = Server::new(|_, _| Ok(response(429, &[("retry-after", "1")])));
    assert_eq!(status(&layer(), &server, request(Method::GET)).await, 429);
    assert!(server.requests() <= 11, "{}", server.requests());

    let server = Server::new(|_, _| Ok(response(429, &[("retry-after", "0")])));
    assert_eq!(status(&layer(), &server, request(Method::GET)).await, 429);
    assert!(server.requests() <= 11, "{}", server.requests());
}

#[tokio::test(start_paused = true)]
async fn failed_connections_are_retried() {
    for (kind, requests) in [
        (ErrorKind::ConnectionRefused, 3),
        (ErrorKind::ConnectionReset, 3),
        (ErrorKind::BrokenPipe, 3),
        (ErrorKind::TimedOut, 3),
        (ErrorKind::InvalidData, 1),
        (ErrorKind::Other, 1),
    ] {
        let server = Server::new(move |_, _| Err(Error::from(kind)));
        let client = layer().layer(server.clone());
        let error = client.oneshot(request(Method::GET)).await.unwrap_err();
        assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), kind);
        assert_eq!(server.requests(), requests, "{kind:?}");

        let server = Server::new(move |_, _| Err(Error::from(kind)));
        let client = layer().layer(server.clone());
        let _ = client.oneshot(request(Method::POST)).await.unwrap_err();
        assert_eq!(server.requests(), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_end_before_a_response_are_retried() {
    for http in [Http::One, Http::Two] {
        for (method, expected) in [(Method::GET, 3), (Method::POST, 1)] {
            let connections = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&connections);
            let client = client_over(move || connect_to_nobody(&counted), http);
            let answer = layer().layer(client).oneshot(request(method.clone())).await;
            let error = answer.unwrap_err();
            let connections = connections.load(Ordering::SeqCst);
            assert_eq!(connections, expected, "{http:?} {method} {error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_not_flooded() {
    let server = Server::new(|_, _| Ok(response_503()));
    let client = layer().layer(server.clone());
    let calls: Vec<_> = (0..500)
        .map(|_| tokio::spawn(client.clone().oneshot(request(Method::GET))))
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 503);
    }
    // The reserve, and one for each five requests, including retries.
    let requests = server.requests();
    assert!((550..=640).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_is_not_flooded_by_keys_either() {
    let server = Server::new(|_, _| Ok(response_503()));
    let pacer = builder(Quota::per_second(1_000));
    let layer = PacerLayer::new(pacer.max_destinations(50).build().unwrap())
        .key(|parts| parts.headers["user"].to_str().unwrap().into());
    let client = layer.layer(server.clone());
    for user in 0..500 {
        let mut request = request(Method::GET);
        request.headers_mut().insert("user", user.into());
        assert_eq!(client.clone().oneshot(request).await.unwrap().status(), 503);
    }
    let requests = server.requests();
    assert!((550..=640).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn each_attempt_counts() {
    let server = Server::scripted(&[(503, &[]), (503, &[])]);
    let pacer = builder(Quota::per_second(1)).build().unwrap();
    let began = Instant::now();
    let layer = PacerLayer::new(pacer);
    assert_eq!(status(&layer, &server, request(Method::GET)).await, 200);
    assert_eq!((server.requests(), began.elapsed()), (3, seconds(2)));
}

#[tokio::test(start_paused = true)]
async fn bodies_are_copied_by_their_type() {
    // Without a copy there is no retry.
    let server = Server::scripted(&[(503, &[])]);
    let client = layer().without_replay().layer(server.clone());
    let answer = client.oneshot(request(Method::PUT)).await.unwrap();
    assert_eq!((answer.status().as_u16(), server.requests()), (503, 1));

    // A closure may copy some.
    let copies = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&copies);
    let by_closure = layer().replay_fn(move |body: &String| {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(body.clone())
    });
    let server = Server::scripted(&[(503, &[]), (503, &[])]);
    let client = by_closure.layer(server.clone());
    let answer = client.oneshot(request(Method::PUT)).await.unwrap();
    assert_eq!((answer.status().as_u16(), server.requests()), (200, 3));
    assert_eq!(server.bodies(), ["content"; 3]);
    assert_eq!(copies.load(Ordering::SeqCst), 3);

    // Bodies that cannot be copied are collected.
    let server = Server::scripted(&[(503, &[])]);
    let client = layer().buffer_bodies(7).layer(server.clone());
    let answer = client.oneshot(request(Method::PUT)).await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), server.bodies()),
        (200, vec!["content".to_owned(); 2])
    );

    let client = layer().buffer_bodies(6).layer(server.clone());
    let error = client.oneshot(request(Method::PUT)).await.unwrap_err();
    let error = error.downcast_ref::<PacerError>().unwrap();
    assert_eq!((error.kind(), server.requests()), (PacerErrorKind::Body, 2));
}

#[tokio::test(start_paused = true)]
async fn a_body_is_copied_only_if_it_may_be_sent_again() {
    const GRPC: &str = "application/grpc";
    for (method, content_type, retry, copied) in [
        (Method::PUT, "", Retry::new(), true),
        (Method::PUT, GRPC, Retry::none(), false),
        (Method::POST, "", Retry::new(), false),
        (Method::POST, GRPC, Retry::new(), true),
        (Method::POST, "", Retry::new().throttled_always(), true),
        (Method::POST, "", Retry::new().when(|_, _| true), true),
    ] {
        let copies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&copies);
        let layer = layer()
            .retry(retry.clone())
            .replay_fn(move |body: &String| {
                counted.fetch_add(1, Ordering::SeqCst);
                Some(body.clone())
            });
        let mut request = request(method.clone());
        request
            .headers_mut()
            .insert("content-type", content_type.parse().unwrap());
        let client = layer.layer(Server::scripted(&[]));
        client.oneshot(request).await.unwrap();
        let copies = copies.load(Ordering::SeqCst);
        assert_eq!(
            copies,
            usize::from(copied),
            "{method} {content_type} {retry:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_host_needs_a_destination() {
    let server = Server::scripted(&[]);
    let relative = || Request::get("/path").body(String::new()).unwrap();
    let error = layer()
        .layer(server.clone())
        .oneshot(relative())
        .await
        .unwrap_err();
    let error = error.downcast_ref::<PacerError>().unwrap();
    assert_eq!(
        (error.kind(), server.requests()),
        (PacerErrorKind::NoHost, 0)
    );
    let layer = layer().destination(super::api());
    assert_eq!(status(&layer, &server, relative()).await, 200);
}

#[tokio::test(start_paused = true)]
async fn costs_and_keys_are_those_of_the_request() {
    let server = Server::scripted(&[]);
    let pacer = builder(Quota::per_minute(10)).build().unwrap();
    let layer = PacerLayer::new(pacer)
        .cost(|parts| if parts.uri.path() == "/export" { 10 } else { 1 })
        .key(|parts| parts.method.as_str().into());
    let get = |path: &str| {
        Request::get(format!("https://a.example{path}"))
            .body(String::new())
            .unwrap()
    };
    let began = Instant::now();
    status(&layer, &server, get("/export")).await;
    let mut put = get("/export");
    *put.method_mut() = Method::PUT;
    status(&layer, &server, put).await;
    assert_eq!(began.elapsed(), seconds(0));
    status(&layer, &server, get("/one")).await;
    assert_eq!(began.elapsed(), seconds(6));
}

#[test]
fn without_a_timer_nothing_is_sent_again() {
    let refusing = service_fn(async |_: Request<String>| {
        Ok::<_, Error>(response(429, &[("retry-after", "1")]))
    });
    let client = layer().layer(refusing);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let answer = client.oneshot(request(Method::GET));
    let response = runtime.unwrap().block_on(answer).unwrap();
    assert_eq!(response.status(), 429);
}
