//! Rules in this process, with short helpers for requests.

use tower_ratelimit::{
    LocalStore,
    clock::{ManualClock, Timestamp},
};
use tower_ratelimit_envoy::{
    decide::{ChargedRequests, DecideError, Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{
        Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
        Unit,
    },
};

/// Twelve seconds after the start of a minute, an hour, a day and a week.
pub(crate) const START: u64 = 1_767_225_600 + 12;

/// Units whose windows end while a test moves its clock.
pub(crate) const SHORT_UNITS: [Unit; 3] = [Unit::Second, Unit::Minute, Unit::Hour];

pub(crate) struct Bench {
    pub(crate) limits: RateLimits,
    pub(crate) clock: ManualClock,
}

impl Bench {
    pub(crate) fn new(text: &str) -> Self {
        Self::with(text, Modes::default())
    }

    pub(crate) fn with(text: &str, modes: Modes) -> Self {
        let clock = ManualClock::new();
        clock.set(Timestamp::from_micros(START * 1_000_000));
        let store = LocalStore::builder().max_keys(4_096).clock(clock.clone());
        let counters = Counters::local(&store.build().unwrap());
        let limits = RateLimits::new(counters, modes);
        limits.set_rules(rules(text));
        Self { limits, clock }
    }

    pub(crate) async fn call(&self, descriptors: &[&str]) -> RateLimitResponse {
        self.decide(&request(descriptors)).await.unwrap()
    }

    pub(crate) async fn decide(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, DecideError> {
        self.limits.decide(request).await
    }

    /// The one status of a descriptor.
    pub(crate) async fn status(&self, descriptor: &str) -> DescriptorStatus {
        let mut statuses = self.call(&[descriptor]).await.statuses;
        assert_eq!(statuses.len(), 1);
        statuses.remove(0)
    }

    /// The limit of a descriptor: its number of requests.
    pub(crate) async fn limit(&self, descriptor: &str) -> Option<u32> {
        let status = self.status(descriptor).await;
        status.current_limit.map(|limit| limit.requests_per_unit)
    }
}

pub(crate) fn rules(text: &str) -> Rules {
    let rules = Rules::builder().parse([("rules.yaml", text)]);
    rules.unwrap_or_else(|error| panic!("{error}"))
}

/// A request in the domain `rl`.
pub(crate) fn request(descriptors: &[&str]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: descriptors.iter().map(|text| descriptor(text)).collect(),
        hits_addend: 0,
    }
}

/// A descriptor such as `foo=bar,baz`, and `foo=bar +3` with its units.
pub(crate) fn descriptor(text: &str) -> RateLimitDescriptor {
    let (text, units) = match text.split_once(" +") {
        Some((text, units)) => (text, Some(units.parse().unwrap())),
        None => (text, None),
    };
    let entries = text.split(',').map(|entry| {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        let [key, value] = [key, value].map(str::to_owned);
        Entry { key, value }
    });
    RateLimitDescriptor {
        entries: entries.collect(),
        hits_addend: units,
        ..RateLimitDescriptor::default()
    }
}

/// For each descriptor, whether it passes, and the remaining units.
pub(crate) fn reported(response: &RateLimitResponse) -> Vec<(bool, u32)> {
    let statuses = response.statuses.iter();
    let reported = statuses.map(|status| (status.code() == Code::Ok, status.limit_remaining));
    reported.collect()
}

pub(crate) fn passes(response: &RateLimitResponse) -> bool {
    response.overall_code() == Code::Ok
}

/// The default modes, changed.
pub(crate) fn modes(change: impl FnOnce(&mut Modes)) -> Modes {
    let mut modes = Modes::default();
    change(&mut modes);
    modes
}

/// Only requests that pass are charged.
pub(crate) fn charge_admitted() -> Modes {
    modes(|modes| modes.charge = ChargedRequests::Admitted)
}
