//! Limits of a listener's connections: number, streams, idle time, age.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// The default number of connections.
pub(crate) const MAX_CONNECTIONS: usize = 4096;

/// How long a connection may be idle between requests. Load balancers close theirs after 60 seconds; if the server
/// closed first, they would send requests into closed connections.
const IDLE_TIME: Duration = Duration::from_secs(75);

/// The interval of HTTP/2 pings, and how long the peer may take to answer one.
const PING_TIME: Duration = Duration::from_secs(20);

/// [`PING_TIME`] of a listener whose streams are shares of limits: a dead client's share can pass to its next stream.
const SHARES_PING_TIME: Duration = Duration::from_secs(5);

/// The limits of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// The most connections; one more waits until another closes.
    pub(super) most: usize,
    /// The most concurrent requests of an HTTP/2 connection; RFC 9113 (6.5.2) recommends at least 100.
    pub(super) streams: u32,
    /// The longest idle time between requests.
    pub(super) idle: Duration,
    /// The age at which a connection shuts down, plus or minus a tenth.
    pub(super) age: Option<Duration>,
    /// Whether HTTP/1 is accepted as well.
    pub(super) http1: bool,
    /// The interval of HTTP/2 pings, and how long the peer may take to answer one.
    pub(super) ping: Duration,
}

impl ConnectionLimits {
    /// The limits of HTTP for any client.
    pub(crate) const fn http(most: usize) -> Self {
        Self {
            most,
            streams: 100,
            idle: IDLE_TIME,
            age: None,
            http1: true,
            ping: PING_TIME,
        }
    }

    /// The limits of gRPC. Proxies keep their connections, so an idle one stays open until it is old or does not
    /// answer pings.
    pub(crate) const fn grpc(age: Duration) -> Self {
        Self {
            most: usize::MAX,
            streams: 200,
            idle: Duration::MAX,
            age: if age.is_zero() { None } else { Some(age) },
            http1: false,
            ping: PING_TIME,
        }
    }

    /// These limits for a listener of the quota service, if it has that service.
    pub(crate) const fn with_shares(mut self, has_shares: bool) -> Self {
        if has_shares {
            self.ping = SHARES_PING_TIME;
        }
        self
    }

    /// The maximum age of the next connection.
    pub(super) fn next_age(&self) -> Option<Duration> {
        self.age.map(jittered)
    }
}

/// The time plus or minus a tenth, so that connections do not close together.
fn jittered(time: Duration) -> Duration {
    let random = RandomState::new().hash_one(0);
    let tenths = (random % 2_001) as f64 / 10_000.0;
    time.mul_f64(0.9 + tenths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_of_zero_is_none() {
        assert_eq!(ConnectionLimits::grpc(Duration::ZERO).next_age(), None);
        let day = Duration::from_secs(86_400);
        assert!(ConnectionLimits::grpc(day).next_age().is_some());
    }

    #[test]
    fn ages_differ_by_a_tenth_at_most() {
        let day = Duration::from_secs(86_400);
        let ages: Vec<Duration> = (0..1_000).map(|_| jittered(day)).collect();
        let around = day.mul_f64(0.899)..day.mul_f64(1.101);
        assert!(ages.iter().all(|age| around.contains(age)));
        assert!(ages.iter().any(|age| *age != ages[0]), "they differ");
    }
}
