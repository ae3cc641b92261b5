//! Units, lent by the service to clients that spend them as Envoy does, in paused time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{needs, servers::Server};
use tokio::time::{Instant, sleep, sleep_until};
use tower_ratelimit::{
    AnyLimiter, Limiter, LimiterError, LocalLimiter, OnFailure, RedisStore,
    decision::Policy,
    limiter::{Call, Pending},
};

use crate::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{
        Action, BlanketRule, BucketAction, Code, Entry, RateLimitDescriptor, RateLimitRequest,
        Strategy,
    },
    rlqs::{
        RateLimitQuotaService, RlqsSettings, service,
        tests::{Client, SECOND, id, limits},
    },
};

const RULES: &str = "domain: shop
descriptors:
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: log, rate_limit: {unit: minute, requests_per_unit: 100, algorithm: sliding_log}}
  - {key: slow, rate_limit: {unit: minute, requests_per_unit: 20, algorithm: token_bucket, burst: 40}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 20}}
  - {key: dark, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
";

/// A client of one bucket, which applies assignments and counts as Envoy does.
struct Envoy {
    client: Client,
    key: &'static str,
    /// Tokens, and the size of their bucket; `None` while all or no requests pass.
    tokens: Option<(u64, u32)>,
    passes_all: bool,
    ends_at: Instant,
    passed: u64,
    denied: u64,
}

impl Envoy {
    async fn open(service: &RateLimitQuotaService, key: &'static str) -> Self {
        Self {
            client: Client::open(service).await,
            key,
            tokens: None,
            passes_all: false,
            ends_at: Instant::now(),
            passed: 0,
            denied: 0,
        }
    }

    /// Reports the requests since the report before.
    fn report(&mut self) {
        let requests = (self.passed, self.denied);
        let bucket = id(&[(self.key, "x")]);
        self.client.report_all("shop", &[(bucket, requests)]);
        (self.passed, self.denied) = (0, 0);
    }

    /// Applies the messages of this time.
    async fn read_for(&mut self, time: Duration) {
        self.client.read_for(time).await.expect("open");
        for action in std::mem::take(&mut self.client.actions) {
            self.apply(action);
        }
    }

    fn apply(&mut self, action: BucketAction) {
        let Some(Action::Assign(assignment)) = action.action else {
            panic!("no assignment");
        };
        let ttl = assignment.assignment_time_to_live.expect("a time to live");
        let is_over = Instant::now() >= self.ends_at;
        self.ends_at = Instant::now() + SECOND * u32::try_from(ttl.seconds).expect("short");
        let strategy = assignment.rate_limit_strategy.expect("a strategy");
        match strategy.strategy.expect("a strategy") {
            Strategy::Blanket(rule) => {
                self.tokens = None;
                self.passes_all = rule == BlanketRule::AllowAll as i32;
            }
            Strategy::TokenBucket(bucket) => {
                assert_eq!(bucket.tokens_per_fill, Some(1));
                let size = bucket.max_tokens;
                let known = self.tokens.filter(|_| !is_over);
                let level = known.map_or(u64::from(size), |(level, before)| {
                    level * u64::from(size) / u64::from(before)
                });
                self.tokens = Some((level, size));
            }
        }
    }

    /// Sends requests at once. Returns the number that passes.
    fn send(&mut self, requests: u64) -> u64 {
        let is_over = Instant::now() >= self.ends_at;
        let passed = match &mut self.tokens {
            _ if is_over => 0,
            None if self.passes_all => requests,
            None => 0,
            Some((level, _)) => {
                let passed = requests.min(*level);
                *level -= passed;
                passed
            }
        };
        self.passed += passed;
        self.denied += requests - passed;
        passed
    }

    /// Sends this many requests each second for a time, and reports each 5 seconds. Returns the number that passes.
    async fn run(&mut self, seconds: u64, requests: u64) -> u64 {
        let mut passed = 0;
        for second in 0..seconds {
            passed += self.send(requests);
            if second % 5 == 0 {
                self.report();
            }
            self.read_for(SECOND).await;
        }
        passed
    }
}

fn started() -> (RateLimits, RateLimitQuotaService) {
    let limits = limits(RULES);
    let service = service(limits.clone(), RlqsSettings::default());
    (limits, service)
}

fn request(key: &str) -> RateLimitRequest {
    let entry = Entry {
        key: key.to_owned(),
        value: "x".to_owned(),
    };
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// Calls `ShouldRateLimit` this many times. Returns the number that passes.
async fn call(limits: &RateLimits, key: &str, calls: u64) -> u64 {
    let mut passed = 0;
    for _ in 0..calls {
        let answer = limits.decide(&request(key)).await.expect("an answer");
        passed += u64::from(answer.overall_code() == Code::Ok);
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn a_greedy_client_gets_all_of_a_window_and_no_more() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    assert_eq!(envoy.run(60, 50).await, 100);
    assert_eq!(envoy.run(60, 50).await, 100, "the next window");
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_is_a_twentieth_and_the_next_ones_follow_the_demand() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    envoy.send(1);
    envoy.report();
    envoy.read_for(SECOND).await;
    assert_eq!(envoy.tokens, Some((5, 5)));
    assert_eq!(envoy.run(40, 1).await, 40, "a client below the limit");
    // A request a second is 7 in a lease.
    assert_eq!(envoy.tokens.map(|(_, size)| size), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_client_within_the_limit_is_never_denied() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    envoy.send(1);
    envoy.report();
    envoy.read_for(SECOND).await;
    // Across five windows.
    assert_eq!(envoy.run(300, 1).await, 300);
}

#[tokio::test(start_paused = true)]
async fn calls_and_shares_count_together() {
    for key in ["minute", "log"] {
        let (limits, service) = started();
        assert_eq!(call(&limits, key, 30).await, 30);
        let mut envoy = Envoy::open(&service, key).await;
        let passed = envoy.run(20, 50).await;
        assert!((30..70).contains(&passed), "{key}: {passed}");
        let called = call(&limits, key, 100).await;
        assert!(called >= 1, "{key}");
        let passed = passed + envoy.run(20, 50).await;
        assert!(passed + called <= 70, "{key}: {passed} and {called}");
        assert!(passed + called >= 65, "{key}: {passed} and {called}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_one_limit_share_it() {
    let (_, service) = started();
    let mut one = Envoy::open(&service, "minute").await;
    let mut other = Envoy::open(&service, "minute").await;
    let (mut first, mut second) = (0, 0);
    for _ in 0..12 {
        first += one.run(1, 50).await;
        second += other.run(1, 50).await;
        one.read_for(SECOND * 2).await;
        other.read_for(SECOND).await;
    }
    assert!(first + second <= 100, "{first} and {second}");
    assert!(first >= 30 && second >= 30, "{first} and {second}");
}

/// A lease counts up to its end, also in a window that begins after the stream has ended.
#[tokio::test(start_paused = true)]
async fn a_lease_counts_after_its_stream_and_in_the_next_window() {
    let (limits, service) = started();
    let began_at = Instant::now();
    let mut envoy = Envoy::open(&service, "minute").await;
    sleep_until(began_at + 55 * SECOND).await;
    envoy.send(1);
    envoy.report();
    envoy.read_for(SECOND).await;
    assert_eq!(envoy.tokens, Some((5, 5)));
    let Envoy { client, .. } = envoy;
    drop(client);
    sleep_until(began_at + 61 * SECOND).await;
    assert_eq!(call(&limits, "minute", 200).await, 95);
    sleep_until(began_at + 121 * SECOND).await;
    assert_eq!(call(&limits, "minute", 200).await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_full_limit_denies_up_to_the_next_window() {
    let (limits, service) = started();
    let began_at = Instant::now();
    assert_eq!(call(&limits, "minute", 200).await, 100);
    sleep_until(began_at + 56 * SECOND).await;
    let mut envoy = Envoy::open(&service, "minute").await;
    envoy.send(1);
    envoy.report();
    envoy.read_for(SECOND).await;
    // Four seconds to the window's end, and two for the message that follows.
    assert_eq!(envoy.client.blanket("minute"), (BlanketRule::DenyAll, 6));
    envoy.read_for(4 * SECOND).await;
    assert!(envoy.tokens.is_some(), "without a further report");
}

#[tokio::test(start_paused = true)]
async fn a_slow_bucket_is_lent_as_it_refills() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "slow").await;
    let passed = envoy.run(300, 50).await;
    // 40 at first, and 100 in 5 minutes.
    assert!((110..=140).contains(&passed), "{passed}");
}

/// Each keeps one request, so that its next one passes.
#[tokio::test(start_paused = true)]
async fn idle_clients_leave_a_window_to_others() {
    let (_, service) = started();
    let mut idle = Vec::new();
    for _ in 0..10 {
        let mut envoy = Envoy::open(&service, "minute").await;
        envoy.run(1, 1).await;
        idle.push(envoy);
    }
    for _ in 0..22 {
        for envoy in &mut idle {
            envoy.report();
            envoy.read_for(SECOND / 2).await;
        }
    }
    let mut greedy = Envoy::open(&service, "minute").await;
    let mut passed = 0;
    for _ in 0..12 {
        passed += greedy.run(5, 50).await;
        for envoy in &mut idle {
            envoy.report();
        }
    }
    assert_eq!(passed, 90);
    for envoy in &mut idle {
        envoy.read_for(SECOND / 10).await;
        assert_eq!(envoy.tokens, Some((1, 1)));
    }
}

/// The client spends all that it gets, and reports nothing.
#[tokio::test(start_paused = true)]
async fn a_client_that_reports_nothing_gets_no_more() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    let mut passed = 0;
    for _ in 0..12 {
        passed += envoy.send(50);
        (envoy.passed, envoy.denied) = (0, 1);
        envoy.report();
        envoy.read_for(5 * SECOND - SECOND / 10).await;
    }
    assert!(passed <= 100, "{passed}");
}

#[tokio::test(start_paused = true)]
async fn reports_in_shadow_mode_are_counted() {
    let (limits, service) = started();
    let mut envoy = Envoy::open(&service, "dark").await;
    envoy.passed = 25;
    envoy.report();
    envoy.read_for(SECOND).await;
    assert!(envoy.passes_all);
    let counts = limits.statistics().all();
    let [(name, counts)] = counts.as_slice() else {
        panic!("{counts:?}");
    };
    assert_eq!(name.to_string(), "shop.dark");
    // Total, over, near, within, shadow, negative.
    assert_eq!(*counts, [25, 15, 2, 0, 15, 0]);
}

#[tokio::test(start_paused = true)]
async fn reports_count_in_the_statistics() {
    let (limits, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    (envoy.passed, envoy.denied) = (30, 4);
    envoy.report();
    envoy.read_for(SECOND).await;
    call(&limits, "minute", 1).await;
    let counts = limits.statistics().all();
    let [(name, counts)] = counts.as_slice() else {
        panic!("{counts:?}");
    };
    assert_eq!(name.to_string(), "shop.minute");
    assert_eq!(*counts, [35, 4, 0, 31, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn operators_see_the_clients_of_a_bucket() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    envoy.run(31, 1).await;
    let pairs = [("minute".to_owned(), "x".to_owned())].into();
    let found = clients(&service, &pairs).await;
    let seen = json!({"client": "stream 1", "age": 31, "last_report": 1, "demand": 1.0, "share": {"units": 7}});
    assert_eq!(found, Some(vec![seen]));
    drop(envoy);
    sleep(SECOND).await;
    let ended = clients(&service, &pairs).await;
    assert_eq!(ended, Some(Vec::new()), "its stream has ended");
    let pairs = [("dark".to_owned(), "x".to_owned())].into();
    assert_eq!(clients(&service, &pairs).await, None);
}

async fn clients(
    service: &RateLimitQuotaService,
    pairs: &BTreeMap<String, String>,
) -> Option<Vec<Value>> {
    let clients = service.0.clients_of_bucket("shop", pairs).await;
    clients.expect("no store fails")
}

fn service_with(counters: Counters) -> RateLimitQuotaService {
    let limits = RateLimits::new(counters, Modes::default());
    let rules = Rules::builder().parse([("rules.yaml", RULES)]);
    limits.set_rules(rules.expect("rules"));
    service(limits, RlqsSettings::default())
}

#[tokio::test]
async fn without_redis_the_fallback_of_the_service_decides() {
    for (on_failure, bucket, passes_all) in [
        (OnFailure::local(), Some((5, 5)), false),
        (OnFailure::allow(), None, true),
    ] {
        // Nobody listens there.
        let store = RedisStore::builder().connect("redis://127.0.0.1:1");
        let counters = Counters::redis(&store.expect("a store"), on_failure);
        let mut envoy = Envoy::open(&service_with(counters), "minute").await;
        envoy.report();
        while (envoy.tokens, envoy.passes_all) != (bucket, passes_all) {
            envoy.read_for(Duration::from_millis(20)).await;
        }
    }
}

/// Two processes with one Redis, each with an Envoy, and calls of both.
#[tokio::test]
async fn processes_with_one_redis_pass_the_requests_of_a_window_together() {
    needs!(redis);
    let server = Server::start().await;
    let mut envoys = Vec::new();
    let mut all = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::builder().deadline(20 * SECOND);
        let store = store.connect(&server.url()).expect("a store");
        let limits = RateLimits::new(Counters::redis(&store, OnFailure::deny()), Modes::default());
        let rules = Rules::builder().parse([("rules.yaml", RULES)]);
        limits.set_rules(rules.expect("rules"));
        let service = service(limits.clone(), RlqsSettings::default());
        envoys.push(Envoy::open(&service, "day").await);
        all.push(limits);
    }
    let mut passed = call(&all[0], "day", 3).await + call(&all[1], "day", 2).await;
    assert_eq!(passed, 5);
    while passed < 20 {
        for envoy in &mut envoys {
            passed += envoy.send(50);
            envoy.report();
            envoy.read_for(SECOND / 10).await;
        }
    }
    for envoy in &mut envoys {
        envoy.report();
        while envoy.tokens.is_some() {
            envoy.read_for(SECOND / 10).await;
        }
        assert_eq!(envoy.send(50), 0);
    }
    assert_eq!(passed, 20);
    assert_eq!(
        call(&all[0], "day", 1).await + call(&all[1], "day", 1).await,
        0
    );
}

/// A limiter that fails on demand.
struct Faulty(LocalLimiter, Arc<AtomicBool>);

impl Limiter for Faulty {
    type Future = <LocalLimiter as Limiter>::Future;

    fn call(&self, call: &Call<'_>) -> Pending<Self::Future> {
        if self.1.load(Relaxed) {
            return Pending::Ready(Err(LimiterError::unavailable("down")));
        }
        self.0.call(call)
    }

    fn policies(&self) -> &[Policy] {
        self.0.policies()
    }
}

/// Then clients do what their own settings contain.
#[tokio::test(start_paused = true)]
async fn nothing_is_lent_while_charges_fail() {
    let fails = Arc::new(AtomicBool::new(true));
    let of_limiters = Arc::clone(&fails);
    let counters = Counters::new(move |quota, _| {
        let limiter = LocalLimiter::builder(quota).build()?;
        Ok(AnyLimiter::new(Faulty(limiter, Arc::clone(&of_limiters))))
    });
    let mut envoy = Envoy::open(&service_with(counters), "log").await;
    envoy.run(9, 1).await;
    assert_eq!((envoy.tokens, envoy.passes_all), (None, false));
    fails.store(false, Relaxed);
    envoy.run(1, 1).await;
    assert!(envoy.tokens.is_some(), "with the next report");
    fails.store(true, Relaxed);
    let lent = envoy.tokens;
    envoy.run(11, 0).await;
    assert_eq!(envoy.tokens, lent, "a further time to live needs no charge");
    assert!(Instant::now() < envoy.ends_at);
}

#[tokio::test(start_paused = true)]
async fn little_of_a_limit_is_lost() {
    let (_, service) = started();
    let mut envoy = Envoy::open(&service, "minute").await;
    let mut passed = 0;
    for second in 0..600 {
        passed += envoy.send(1 + second % 2);
        if second % 5 == 0 {
            envoy.report();
        }
        envoy.read_for(SECOND).await;
    }
    println!("{passed} of 900 requests");
    assert!(passed >= 750, "{passed}");
}

/// The bytes that remain for each of 10,000 keys.
fn bytes_of_each<T>(make: impl AsyncFnOnce(RateLimits, RateLimitQuotaService) -> T) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let mut kept = None;
    let memory = allocation_counter::measure(|| {
        kept = Some(runtime.block_on(async {
            let (limits, service) = started();
            make(limits, service).await
        }));
    });
    assert!(kept.is_some());
    u64::try_from(memory.bytes_current).expect("bytes") / 10_000
}

/// With the buffers of both ends of the stream, and without the counts, which calls would take, too.
#[test]
fn a_bucket_takes_few_bytes() {
    let name = |at: u32| format!("eve-{at:05}");
    let counts = bytes_of_each(async |limits, service| {
        for at in 0..10_000 {
            let mut request = request("minute");
            request.descriptors[0].entries[0].value = name(at);
            limits.decide(&request).await.expect("an answer");
        }
        (limits, service)
    });
    let all = bytes_of_each(async |limits, service| {
        let usages = (0..10_000).map(|at| (id(&[("minute", &name(at))]), (1, 0)));
        let mut client = Client::open(&service).await;
        client.report_all("shop", &usages.collect::<Vec<_>>());
        client.read_for(7 * SECOND).await.expect("open");
        client.actions = Vec::new();
        (limits, service, client)
    });
    println!("{all} bytes, {counts} of them for the counts");
    let bytes = all - counts;
    assert!((200..1_400).contains(&bytes), "{bytes}");
}
