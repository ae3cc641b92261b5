//! Timeouts of connections, in tokio's paused time.

mod accepting;
mod backlog_at_shutdown;
mod early_responses;
mod grpc;
mod http2;
mod slots;

use std::{net::Ipv4Addr, sync::Arc};

use axum::body::Body;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::{Semaphore, watch},
    time::Instant,
};

use super::*;

struct Served {
    client: DuplexStream,
    /// Each permit releases one response.
    answers: Arc<Semaphore>,
    stop: watch::Sender<bool>,
}

fn served() -> Served {
    served_by(ConnectionLimits::http(1))
}

fn served_by(limits: ConnectionLimits) -> Served {
    let (client, server) = duplex(1 << 20);
    let (stop, stopped) = watch::channel(false);
    let answers = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&answers);
    let answer = move |_| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire_owned().await.unwrap().forget();
            Response::new(Body::from("ok"))
        }
    };
    tokio::spawn(connection((server, slot()), limits, answer, stopped));
    Served {
        client,
        answers,
        stop,
    }
}

/// A slot of a listener without a limit.
fn slot() -> Slot {
    let slots = ConnectionSlots::new(usize::MAX, None);
    slots.enter(Ipv4Addr::LOCALHOST.into()).unwrap()
}

/// The seconds until the connection closes, and the bytes received before.
async fn end(client: &mut DuplexStream) -> (u64, String) {
    let start = Instant::now();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    (start.elapsed().as_secs(), rest)
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: test\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn header_that_comes_slowly_ends_the_connection() {
    for first in ["", "G", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nhost: te"] {
        let mut served = served();
        served.client.write_all(first.as_bytes()).await.unwrap();
        let (seconds, answer) = end(&mut served.client).await;
        assert!((10..13).contains(&seconds), "{seconds}: {first:?}");
        assert_eq!(answer, "");
    }
    // Single bytes do not extend the time.
    let mut served = served();
    let start = Instant::now();
    while served.client.write_all(b"a").await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(start.elapsed().as_secs() <= 13);
}

#[tokio::test(start_paused = true)]
async fn connection_between_requests_is_kept_longer() {
    let mut served = served();
    served.answers.add_permits(10);
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(70)).await;
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    let (seconds, answers) = end(&mut served.client).await;
    assert!((75..78).contains(&seconds), "{seconds}");
    assert_eq!(answers.matches("200 OK").count(), 2);

    let mut served = self::served();
    served.answers.add_permits(10);
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    served
        .client
        .write_all(&REQUEST.as_bytes()[..9])
        .await
        .unwrap();
    let (seconds, answers) = end(&mut served.client).await;
    assert!((10..13).contains(&seconds), "{seconds}");
    assert_eq!(answers.matches("200 OK").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn answer_may_take_as_long_as_it_likes() {
    let mut served = served();
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(3600)).await;
    served.answers.add_permits(1);
    let (seconds, answer) = end(&mut served.client).await;
    assert!((75..78).contains(&seconds), "{seconds}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn end_waits_for_the_answer_and_no_longer() {
    let mut served = served();
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    served.stop.send_replace(true);
    sleep(Duration::from_secs(1)).await;
    served.answers.add_permits(1);
    let (seconds, answer) = end(&mut served.client).await;
    assert_eq!(seconds, 0);
    assert!(answer.contains("connection: close"), "{answer}");

    let mut served = self::served();
    served.answers.add_permits(1);
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    served.stop.send_replace(true);
    assert_eq!(end(&mut served.client).await.0, 0);
}

#[tokio::test(start_paused = true)]
async fn tunnel_may_be_silent_for_as_long_as_it_likes() {
    let (mut client, server) = duplex(1 << 20);
    let (_stop, stopped) = watch::channel(false);
    let answer = |request: Request<RequestBody>| async {
        tokio::spawn(async {
            let mut io = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            let byte = io.read_u8().await.unwrap();
            io.write_u8(byte + 1).await.unwrap();
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        response
    };
    tokio::spawn(connection(
        (server, slot()),
        ConnectionLimits::http(1),
        answer,
        stopped,
    ));
    let request = REQUEST.replace("host", "connection: upgrade\r\nupgrade: websocket\r\nhost");
    client.write_all(request.as_bytes()).await.unwrap();
    sleep(Duration::from_secs(3600)).await;
    client.write_u8(b'a').await.unwrap();
    let (_, answer) = end(&mut client).await;
    assert!(answer.ends_with("\r\n\r\nb"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn request_that_is_just_there_at_the_end_is_answered() {
    // `GET /` in HTTP/2, after a frame of settings.
    const FRAMES: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x09\x01\x05\0\0\0\x01\x82\x84\x86\x01\x04test";
    let http2 = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], FRAMES].concat();
    // The select was once unbiased, and failed at random.
    for _ in 0..50 {
        for request in [REQUEST.as_bytes(), &http2] {
            let mut served = served();
            served.answers.add_permits(1);
            served.stop.send_replace(true);
            served.client.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            served.client.read_to_end(&mut answer).await.unwrap();
            assert!(answer.windows(2).any(|two| two == b"ok"));
            assert_eq!(served.answers.available_permits(), 0);
        }
    }
}

/// BusyBox's wget and many probes end their side after the request.
#[tokio::test(start_paused = true)]
async fn client_that_has_ended_its_side_gets_its_response() {
    let mut served = served();
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    served.client.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    served.answers.add_permits(1);
    let (seconds, answer) = end(&mut served.client).await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer:?}");
    assert_eq!(seconds, 0);
}

#[tokio::test(start_paused = true)]
async fn client_that_has_gone_ends_its_request_within_ten_seconds() {
    let mut served = served();
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    served.client.shutdown().await.unwrap();
    assert_eq!(end(&mut served.client).await, (10, String::new()));
    // An idle connection ends at once.
    let mut served = served_by(ConnectionLimits::http(1));
    served.answers.add_permits(1);
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    let mut response = [0; 512];
    assert!(served.client.read(&mut response).await.unwrap() > 0);
    served.client.shutdown().await.unwrap();
    assert_eq!(end(&mut served.client).await.0, 0);
}
