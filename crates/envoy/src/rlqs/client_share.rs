//! The row of one client: who it is, its demand, its share, and what it may still use of earlier ones.

use std::{net::SocketAddr, num::NonZeroU64, time::Duration};

use axum::extract::ConnectInfo;
use http::HeaderName;
use sha2::{Digest as _, Sha256};
use tonic::Request;
use tower_ratelimit::{Quota, quota::Algorithm};

/// Until this delay a cut does not count: a message arrives earlier, unless its connection is disturbed.
pub(super) const CUT_DELAY: Duration = Duration::from_secs(2);

/// The time between two changes of a share: requests that Envoy's threads admit by the old bucket are missing in the new one.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

/// A client reports every 5 seconds. Its stream has ended if one report is missing: the instance that had the stream may
/// be gone, so its word is not needed.
const MISSED: Duration = Duration::from_secs(7);

/// A token bucket of one client, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    /// Tokens in each interval.
    pub(super) tokens: u64,
    /// The most tokens that the bucket holds.
    pub(super) size: u64,
}

impl Share {
    /// The larger one of each number.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.max(other.tokens),
            size: self.size.max(other.size),
        }
    }

    /// Whether a number differs from another share's by a twentieth or more.
    pub(super) fn differs_from(self, other: Self) -> bool {
        differs(self.tokens, other.tokens) || differs(self.size, other.size)
    }

    /// Whether another share has a larger rate, by a twentieth or more.
    pub(super) fn is_short_of(self, other: Self) -> bool {
        self.tokens < other.tokens && differs(self.tokens, other.tokens)
    }
}

fn differs(a: u64, b: u64) -> bool {
    a != b && a.abs_diff(b).saturating_mul(20) >= a
}

/// A client of a pool.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) client: Option<ClientId>,
    pub(super) demand: Demand,
    /// The share that was sent last, until the end of the row.
    pub(super) share: Option<Share>,
    /// Shares that the client may still use, each until an instant.
    pub(super) older: Vec<(Duration, Share)>,
    pub(super) sent_at: Duration,
    pub(super) changed_at: Duration,
    /// The number of messages so far.
    pub(super) messages: u32,
    /// Whether the client has sent a report that no message has answered.
    pub(super) awaits_answer: bool,
    /// Whether the client's stream is open, as far as is known.
    pub(super) is_live: bool,
    /// Whether the client may have no bucket, so that the next message makes a full one: the share is that of an earlier
    /// stream, maybe of another process.
    pub(super) may_lack_bucket: bool,
}

impl Row {
    pub(super) const fn new(now: Duration, client: Option<ClientId>) -> Self {
        Self {
            client,
            demand: Demand::new(now),
            share: None,
            older: Vec::new(),
            sent_at: now,
            changed_at: now,
            messages: 0,
            awaits_answer: true,
            is_live: true,
            may_lack_bucket: false,
        }
    }

    /// Whether the row of this client's new stream may replace it: its own stream has ended, and its share has not.
    pub(super) fn may_pass_to(&self, client: ClientId, now: Duration) -> bool {
        self.client == Some(client) && self.share.is_some() && self.has_ended(now)
    }

    /// The row of the client's next stream.
    pub(super) fn inherited(self) -> Self {
        Self {
            is_live: true,
            may_lack_bucket: true,
            ..self
        }
    }

    pub(super) fn has_ended(&self, now: Duration) -> bool {
        !self.is_live || now > self.demand.reported_at + MISSED
    }

    /// The share that the client may have at most.
    pub(super) fn held(&self) -> Share {
        let older = self.older.iter().map(|(_, share)| *share);
        older.fold(self.share.unwrap_or_default(), Share::max)
    }

    /// Whether the client may have no bucket when a message arrives, so that it makes a full one.
    pub(super) fn makes_full_bucket(&self, now: Duration, ttl: Duration) -> bool {
        self.share.is_none() || now.saturating_sub(self.sent_at) > ttl.saturating_sub(CUT_DELAY)
    }

    /// Whether the share may change.
    pub(super) fn may_change(&self, now: Duration) -> bool {
        now.saturating_sub(self.changed_at) >= CHANGE_INTERVAL
    }

    /// Records a share that is sent now.
    pub(super) fn send(&mut self, now: Duration, share: Share) {
        if let Some(before) = self.share.filter(|before| *before != share) {
            self.older.push((now + CUT_DELAY, before));
            self.changed_at = now;
        }
        self.share = Some(share);
        self.sent_at = now;
        self.messages = self.messages.wrapping_add(1);
        self.awaits_answer = false;
        self.may_lack_bucket = false;
    }

    /// When the next one of the shares ends that the client may use.
    pub(super) fn next_end(&self, ttl: Duration) -> Option<Duration> {
        let last = self.share.map(|_| self.sent_at + ttl + CUT_DELAY);
        let older = self.older.iter().map(|(until, _)| *until);
        older.chain(last).min()
    }

    /// Ends the shares that the client can no longer use. Whether there were any.
    pub(super) fn end_shares(&mut self, now: Duration, ttl: Duration) -> bool {
        let before = (self.older.len(), self.share.is_some());
        self.older.retain(|(until, _)| *until > now);
        if self.sent_at + ttl + CUT_DELAY <= now {
            self.share = None;
        }
        before != (self.older.len(), self.share.is_some())
    }

    /// Whether the client is gone, with all that it could use.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.has_ended(now) && self.has_nothing()
    }

    /// Whether the client can use nothing.
    pub(super) fn has_nothing(&self) -> bool {
        self.share.is_none() && self.older.is_empty()
    }
}

/// The shortest time of a measurement.
const SHORTEST: Duration = Duration::from_secs(1);

/// The demand of one client. Times are of the service's clock: reports contain whole seconds, and may be false.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// When the measured time began.
    pub(super) since: Duration,
    /// The requests reported since then.
    pub(super) requests: u64,
    /// Requests in an interval, an average that each measurement halves. `None` before the first.
    pub(super) measured: Option<u64>,
    pub(super) reported_at: Duration,
}

impl Demand {
    /// The demand of a client that sends its first report.
    pub(super) const fn new(now: Duration) -> Self {
        Self {
            since: now,
            requests: 0,
            measured: None,
            reported_at: now,
        }
    }

    /// Counts the requests of a further report.
    pub(super) fn report(&mut self, now: Duration, requests: u64, rate: DivisibleRate) {
        self.reported_at = now;
        self.requests = self.requests.saturating_add(requests);
        let time = now.saturating_sub(self.since);
        if time < SHORTEST {
            return;
        }
        let latest = rate.in_interval(self.requests, time);
        let average = |before: u64| before / 2 + latest / 2 + (before % 2 + latest % 2) / 2;
        self.measured = Some(self.measured.map_or(latest, average));
        (self.since, self.requests) = (now, 0);
    }

    /// Requests in an interval. The largest number before the first measurement, so that a new client gets an equal
    /// part.
    pub(super) fn in_interval(&self) -> u64 {
        self.measured.unwrap_or(u64::MAX)
    }
}

/// Tokens a second. From this rate on, the interval of buckets is a second. Buckets of smaller rates have a
/// minute, so that shares are exact to a fraction of a token a second.
const FAST: u128 = 1_000;

/// The period from which on a window or log is lent as units: Envoy reports every 5 seconds, so units of shorter ones
/// would be used up, or over, before it gets others.
const LONG: Duration = Duration::from_secs(60);

/// A rate and a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DivisibleRate {
    /// Tokens in each interval.
    pub(super) tokens: u64,
    /// Seconds: Envoy ignores fractions of them.
    pub(super) interval: u64,
    /// The tokens that may pass at once.
    pub(super) burst: u64,
}

impl DivisibleRate {
    /// The rate of a window or log: no period has more than its requests. `None` for a minute or longer, whose requests
    /// are lent as units, and for less than a request a second beside the burst.
    pub(super) fn of_window(requests: u64, period: Duration) -> Option<Self> {
        let burst = (requests / 10).max(1);
        let rate = requests.checked_sub(burst)?;
        (period < LONG).then(|| Self::new(rate, period, burst))?
    }

    /// The rate of a quota. `None` for rates below a token a second, long periods, and limits by the time of day.
    pub(super) fn of_quota(quota: &Quota) -> Option<Self> {
        if quota.varying_limits().is_some() {
            return None;
        }
        let (limit, period) = (quota.limit(), quota.period());
        match quota.algorithm() {
            // Stepwise refills pass no less in any time.
            Algorithm::TokenBucket => Self::new(limit, period, quota.capacity()),
            // Without a queue at this service.
            Algorithm::LeakyBucket { .. } => Self::new(limit, period, 1),
            _ => Self::of_window(limit, period),
        }
    }

    #[cfg(test)]
    pub(super) fn of_second(requests: u64) -> Option<Self> {
        Self::of_window(requests, Duration::from_secs(1))
    }

    fn new(limit: u64, period: Duration, burst: u64) -> Option<Self> {
        let in_seconds =
            |seconds: u128| u128::from(limit) * seconds * 1_000_000_000 / period.as_nanos().max(1);
        if in_seconds(1) == 0 || burst == 0 {
            return None;
        }
        let interval = if in_seconds(1) >= FAST { 1 } else { 60 };
        let most = u64::from(u32::MAX);
        Some(Self {
            tokens: u64::try_from(in_seconds(interval)).map_or(most, |tokens| tokens.min(most)),
            interval: interval as u64,
            burst: burst.min(most),
        })
    }

    /// This rate with the interval of another one.
    pub(super) fn with_interval(self, interval: u64) -> Self {
        let tokens = self.tokens * interval / self.interval;
        Self {
            tokens: tokens.min(u64::from(u32::MAX)),
            interval,
            ..self
        }
    }

    /// The tokens of an interval that make this many in a time.
    pub(super) fn in_interval(&self, tokens: u64, time: Duration) -> u64 {
        let nanos = u128::from(self.interval) * 1_000_000_000;
        let tokens = u128::from(tokens) * nanos / time.as_nanos().max(1);
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }
}

/// The bytes of a name that operators see. The digest is of all.
const MAX_NAME: usize = 128;

/// The digest of a client's name. It is the same in all instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientId(pub(super) NonZeroU64);

impl ClientId {
    /// The client that opens a stream, and its name for operators: the value of this header, else the address of the
    /// connection's other end, whose port is another one after a reconnect. `None` without either: the server has no
    /// addresses.
    pub(super) fn of<T>(
        request: &Request<T>,
        header: Option<&HeaderName>,
    ) -> Option<(Self, String)> {
        let named = header.and_then(|header| request.metadata().get(header.as_str()));
        let named = named.map(|name| name.as_encoded_bytes());
        if let Some(name) = named.filter(|name| !name.is_empty()) {
            let shown = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]);
            return Some((Self::named(b"header", name)?, shown.into_owned()));
        }
        let ConnectInfo(address) = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
        let address = address.ip().to_canonical().to_string();
        Some((Self::named(b"address", address.as_bytes())?, address))
    }

    fn named(kind: &[u8], name: &[u8]) -> Option<Self> {
        let digest = Sha256::new().chain_update(kind).chain_update(name);
        let digest = digest.finalize();
        let (first, _) = digest.split_first_chunk()?;
        NonZeroU64::new(u64::from_be_bytes(*first)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_the_average_of_measurements_of_a_second_or_more() {
        let rate = DivisibleRate::of_second(100).expect("a rate of a minute");
        let at = Duration::from_millis;
        let mut demand = Demand::new(at(0));
        assert_eq!(demand.in_interval(), u64::MAX);
        demand.report(at(400), 3, rate);
        assert_eq!(demand.in_interval(), u64::MAX, "too short");
        demand.report(at(5_000), 7, rate);
        assert_eq!(demand.in_interval(), 120, "10 in 5 seconds");
        demand.report(at(10_000), 0, rate);
        assert_eq!(demand.in_interval(), 60);
        demand.report(at(20_000), u64::MAX, rate);
        assert_eq!(demand.in_interval(), u64::MAX / 2 + 30);
    }

    fn rate(tokens: u64, interval: u64, burst: u64) -> Option<DivisibleRate> {
        Some(DivisibleRate {
            tokens,
            interval,
            burst,
        })
    }

    #[test]
    fn a_short_window_has_a_tenth_as_burst() {
        let of_second = DivisibleRate::of_second;
        assert_eq!(of_second(100), rate(90 * 60, 60, 10));
        assert_eq!(of_second(10_000), rate(9_000, 1, 1_000));
        assert_eq!(of_second(2), rate(60, 60, 1));
        assert_eq!(of_second(1), None);
        assert_eq!(of_second(0), None);
        let of_ten = |requests| DivisibleRate::of_window(requests, Duration::from_secs(10));
        assert_eq!(of_ten(1_000), rate(90 * 60, 60, 100));
        assert_eq!(of_ten(10), None);
    }

    #[test]
    fn quotas_of_a_token_a_second_and_short_periods_are_rates() {
        let of = |quota: &str| DivisibleRate::of_quota(&quota.parse().expect("a quota"));
        assert_eq!(of("600/minute burst 50"), rate(600, 60, 50));
        assert_eq!(of("600/minute refill_every 10s"), rate(600, 60, 600));
        assert_eq!(of("1000/second"), rate(1_000, 1, 1_000));
        assert_eq!(of("600/minute leaky_bucket queue 20"), rate(600, 60, 1));
        assert_eq!(of("100/second sliding_log"), rate(90 * 60, 60, 10));
        assert_eq!(of("100/second sliding_window"), rate(90 * 60, 60, 10));
        assert_eq!(of("59/minute"), None);
        assert_eq!(of("600/minute fixed_window"), None);
        assert_eq!(of("600/minute sliding_log"), None);
    }

    #[test]
    fn the_interval_can_be_that_of_another_rate() {
        let fast = DivisibleRate::of_second(10_000).expect("a rate");
        assert_eq!(Some(fast.with_interval(60)), rate(540_000, 60, 1_000));
        let slow = DivisibleRate::of_second(100).expect("a rate");
        assert_eq!(Some(slow.with_interval(1)), rate(90, 1, 10));
    }

    fn client(name: Option<&'static str>, address: Option<&str>) -> Option<ClientId> {
        let mut request = Request::new(());
        if let Some(name) = name {
            let name = name.parse().expect("a value");
            request.metadata_mut().insert("x-envoy", name);
        }
        if let Some(address) = address {
            let address: SocketAddr = address.parse().expect("an address");
            request.extensions_mut().insert(ConnectInfo(address));
        }
        let client = ClientId::of(&request, Some(&HeaderName::from_static("x-envoy")));
        client.map(|(id, _)| id)
    }

    #[test]
    fn a_client_is_its_header_or_its_address_without_the_port() {
        let here = client(None, Some("127.0.0.1:1"));
        assert!(here.is_some());
        assert_eq!(here, client(None, Some("127.0.0.1:2")));
        assert_eq!(here, client(None, Some("[::ffff:127.0.0.1]:2")));
        assert_eq!(here, client(Some(""), Some("127.0.0.1:2")));
        assert_ne!(here, client(None, Some("127.0.0.2:1")));
        let named = client(Some("a"), Some("127.0.0.1:1"));
        assert_eq!(named, client(Some("a"), None));
        assert_ne!(named, client(Some("b"), None));
        assert_ne!(here, client(Some("127.0.0.1"), None), "a made up address");
        assert_eq!(client(None, None), None);
    }
}
