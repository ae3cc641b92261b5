//! Listeners that fail to accept.

use std::sync::atomic::{AtomicU32, Ordering};

use testkit::logged;
use tokio::{io::DuplexStream, runtime::Builder};

use super::*;

/// Fails a few times, then has one connection, and then none.
struct Exhausted(AtomicU32);

impl Listener for Exhausted {
    type Io = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 | 5 => Err(io::ErrorKind::ConnectionAborted.into()),
            1..=4 => Err(io::Error::other("too many open files")),
            6 => Ok((duplex(1).0, address)),
            _ => std::future::pending().await,
        }
    }

    fn waiting(self) -> Vec<(DuplexStream, SocketAddr)> {
        Vec::new()
    }

    fn shown(&self) -> String {
        "the socket".to_owned()
    }
}

#[test]
fn failing_listener_is_logged_once_and_continues() {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let mut lines = logged(|| {
        runtime.block_on(async {
            let (stop, stopped) = shutdown::stop();
            let answer = async |_, _| Response::new(Body::empty());
            let listener = Exhausted(AtomicU32::new(0));
            let server = serve(
                listener,
                None,
                (ConnectionLimits::http(1), None),
                answer,
                stopped,
            );
            let start = Instant::now();
            let end = async {
                sleep(Duration::from_secs(1)).await;
                stop.now();
            };
            tokio::join!(server, end);
            assert_eq!(start.elapsed(), Duration::from_secs(1));
        });
    });
    lines.retain(|line| line.contains("tower_ratelimit_service"));
    let [failing, again] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(failing.starts_with("ERROR"), "{failing}");
    assert!(failing.contains("the socket accepts no connections: too many open files"));
    assert!(
        again.starts_with(" INFO") && again.contains("again"),
        "{again}"
    );
}
