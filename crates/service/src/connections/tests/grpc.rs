//! Connections of gRPC and the requirements of HTTP/2: pings, and a bound on concurrent requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{task::JoinHandle, time::timeout};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Longer than all timeouts of a peer.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The first bytes of a client: the preface, and a frame of settings.
const FIRST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A client that answers settings and pings.
async fn client(io: DuplexStream) -> (SendRequest<Body>, JoinHandle<()>) {
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io))
        .await
        .unwrap();
    (sender, tokio::spawn(async { drop(connection.await) }))
}

fn get() -> Request {
    Request::get("http://test/").body(Body::empty()).unwrap()
}

/// The time until the connection closes, and the bytes received before.
async fn end(client: &mut DuplexStream) -> (Duration, Vec<u8>) {
    let start = Instant::now();
    let mut rest = Vec::new();
    let read = timeout(5 * MINUTE, client.read_to_end(&mut rest)).await;
    read.expect("an end").unwrap();
    (start.elapsed(), rest)
}

#[tokio::test(start_paused = true)]
async fn peer_that_sends_nothing_is_disconnected() {
    for first in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let mut served = served_by(ConnectionLimits::grpc(DAY));
        served.client.write_all(first).await.unwrap();
        let (time, rest) = end(&mut served.client).await;
        assert!((10..13).contains(&time.as_secs()), "{time:?}: {first:?}");
        assert_eq!(rest, b"");
    }
}

#[tokio::test(start_paused = true)]
async fn grpc_does_not_speak_http1() {
    let mut served = served_by(ConnectionLimits::grpc(DAY));
    served.answers.add_permits(1);
    served.client.write_all(REQUEST.as_bytes()).await.unwrap();
    let (time, rest) = end(&mut served.client).await;
    assert_eq!((time.as_secs(), rest.as_slice()), (0, &b""[..]));
}

#[tokio::test(start_paused = true)]
async fn peer_that_answers_no_ping_is_disconnected() {
    let grpc = ConnectionLimits::grpc(DAY);
    for (limits, after) in [
        (grpc, 40),
        (ConnectionLimits::http(1), 40),
        (grpc.with_shares(false), 40),
        (grpc.with_shares(true), 10),
    ] {
        let mut served = served_by(limits);
        served.client.write_all(FIRST).await.unwrap();
        let (time, rest) = end(&mut served.client).await;
        assert!((after..after + 3).contains(&time.as_secs()), "{time:?}");
        // A ping of eight bytes, on no stream.
        let ping = b"\0\0\x08\x06\0\0\0\0\0";
        assert!(
            rest.windows(ping.len()).any(|frame| frame == ping),
            "{rest:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn proxy_that_answers_pings_is_kept_until_it_is_old() {
    for _ in 0..3 {
        let served = served_by(ConnectionLimits::grpc(10 * MINUTE));
        let (mut sender, mut connection) = client(served.client).await;
        let kept = timeout(8 * MINUTE, &mut connection).await;
        assert!(kept.is_err(), "eight minutes without a request");
        // A request active at the end gets its response.
        let answer = tokio::spawn(sender.send_request(get()));
        let late = timeout(5 * MINUTE, &mut connection).await;
        assert!(late.is_err(), "the answer is waited for");
        served.answers.add_permits(1);
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
        timeout(Duration::from_secs(1), connection)
            .await
            .unwrap()
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn connections_of_one_age_end_at_times_of_their_own() {
    let start = Instant::now();
    let mut ends = Vec::new();
    for _ in 0..50 {
        let served = served_by(ConnectionLimits::grpc(10 * MINUTE));
        let (sender, connection) = client(served.client).await;
        ends.push(tokio::spawn(async move {
            timeout(20 * MINUTE, connection)
                .await
                .expect("an end")
                .unwrap();
            drop((sender, served.answers, served.stop));
            start.elapsed()
        }));
    }
    let mut times = Vec::new();
    for end in ends {
        let time = end.await.unwrap();
        assert!(
            (9 * MINUTE..=11 * MINUTE + Duration::from_secs(1)).contains(&time),
            "{time:?}"
        );
        times.push(time.as_secs());
    }
    times.sort_unstable();
    times.dedup();
    assert!(times.len() > 10, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_at_a_time_are_bounded() {
    for (limits, most) in [
        (ConnectionLimits::grpc(DAY), 200),
        (ConnectionLimits::http(1), 100),
    ] {
        let (io, server) = duplex(1 << 20);
        let (_stop, stopped) = watch::channel(false);
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let answer = move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            std::future::pending()
        };
        tokio::spawn(connection((server, slot()), limits, answer, stopped));
        let (sender, _connection) = client(io).await;
        // The peer's settings have arrived by then.
        sleep(Duration::from_secs(1)).await;
        for _ in 0..2 * most {
            tokio::spawn(sender.clone().send_request(get()));
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(begun.load(Ordering::Relaxed), most);
    }
}
