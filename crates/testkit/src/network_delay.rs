//! A proxy that lets a server be far away.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// The time of a round trip, which may be changed while connections are open.
#[derive(Debug, Clone)]
pub struct RoundTrip(Arc<AtomicU64>);

impl RoundTrip {
    pub fn new(time: Duration) -> Self {
        let round_trip = Self(Arc::default());
        round_trip.set(time);
        round_trip
    }

    pub fn set(&self, time: Duration) {
        self.0.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn half(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed)) / 2
    }
}

/// Forwards connections to `port` of this machine, so that a round trip takes so long, and returns
/// the port that it listens on. Runs on threads, so that it is as far away when a runtime is busy.
pub fn distant(port: u16, round_trip: &RoundTrip) -> std::io::Result<u16> {
    let round_trip = round_trip.clone();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let own = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
                return;
            };
            let both = (client.try_clone(), server.try_clone());
            let (Ok(from_client), Ok(from_server)) = both else {
                return;
            };
            forward(from_client, server, round_trip.clone());
            forward(from_server, client, round_trip.clone());
        }
    });
    Ok(own)
}

fn forward(mut from: TcpStream, mut to: TcpStream, round_trip: RoundTrip) {
    let (line, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
    let _ = to.set_nodelay(true);
    thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let due = Instant::now() + round_trip.half();
            if line.send((due, piece[..length].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
