//! Terms: what a listener's connections may do, and for how long.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// How many connections are taken by default.
pub(crate) const MAX_CONNECTIONS: usize = 4096;

/// How long a connection is kept between requests. More than the 60 seconds for which load balancers keep theirs:
/// they would send a request into one that is just closed.
const IDLE_TIME: Duration = Duration::from_secs(75);

/// The terms of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How many there may be; one more waits until another ends.
    pub(super) most: usize,
    /// How many requests there may be at a time on one by HTTP/2; RFC 9113 (6.5.2) wants no fewer than 100 allowed.
    pub(super) streams: u32,
    /// How long one is kept between requests.
    pub(super) idle: Duration,
    /// How old one may become, a tenth more or less, before it takes no more requests.
    pub(super) age: Option<Duration>,
    /// Whether HTTP/1 is spoken, too.
    pub(super) http1: bool,
}

impl Terms {
    /// The terms of HTTP, for anybody.
    pub(crate) const fn http(most: usize) -> Self {
        Self {
            most,
            streams: 100,
            idle: IDLE_TIME,
            age: None,
            http1: true,
        }
    }

    /// The terms of gRPC: a proxy keeps its connections, so that the next request need not wait for one. They end when
    /// they are old, or the proxy does not answer pings.
    pub(crate) const fn grpc(age: Duration) -> Self {
        Self {
            most: usize::MAX,
            streams: 200,
            idle: Duration::MAX,
            age: Some(age),
            http1: false,
        }
    }

    /// How old the next connection may become.
    pub(super) fn next_age(&self) -> Option<Duration> {
        self.age.map(jittered)
    }
}

/// The time, a tenth more or less: so that connections do not end together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    let tenths = (random % 2_001) as f64 / 10_000.0;
    time.mul_f64(0.9 + tenths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_differ_by_a_tenth_at_most() {
        let day = Duration::from_secs(86_400);
        let ages: Vec<Duration> = (0..1_000).map(|_| jittered(day)).collect();
        let around = day.mul_f64(0.899)..day.mul_f64(1.101);
        assert!(ages.iter().all(|age| around.contains(age)));
        assert!(ages.iter().any(|age| *age != ages[0]), "they differ");
    }
}
