//! Processes that share an account of a provider, and learn its limits of requests and tokens.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::{Instant, sleep};
use tower_ratelimit::clock::TokioClock;
use tower_ratelimit_client::{Advice, Pacer, Units};

use super::{api, millis, seconds};

/// A bucket of a provider: a limit a minute, which comes back evenly.
#[derive(Debug)]
struct Bucket {
    unit: &'static str,
    limit: f64,
    used: f64,
    at: Instant,
}

impl Bucket {
    fn new(unit: &'static str, limit: f64) -> Self {
        Self {
            unit,
            limit,
            used: 0.0,
            at: Instant::now(),
        }
    }

    fn now(&mut self) {
        let now = Instant::now();
        let refilled = (now - self.at).as_secs_f64() * self.limit / 60.0;
        self.used = (self.used - refilled).max(0.0);
        self.at = now;
    }

    fn fields(&self, headers: &mut HeaderMap) {
        let millis = (self.used / self.limit * 60_000.0).round() as u64;
        let reset = match millis {
            0..1_000 => format!("{millis}ms"),
            _ => format!("{}s", millis as f64 / 1_000.0),
        };
        for (name, value) in [
            ("limit", self.limit.to_string()),
            ("remaining", (self.limit - self.used).floor().to_string()),
            ("reset", reset),
        ] {
            let name = format!("x-ratelimit-{name}-{}", self.unit);
            let name: http::HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
        }
    }
}

/// A provider that charges input and the declared maximum as a request arrives, as OpenAI does.
struct Provider {
    buckets: [Bucket; 2],
    /// The time, and the tokens of each request that was taken; `None` for a refused one.
    answers: Vec<(Instant, Option<f64>)>,
}

impl Provider {
    fn new(requests: f64, tokens: f64) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            buckets: [
                Bucket::new("requests", requests),
                Bucket::new("tokens", tokens),
            ],
            answers: Vec::new(),
        }))
    }

    fn answer(&mut self, tokens: u64) -> (StatusCode, HeaderMap) {
        let costs = [1.0, tokens as f64];
        let mut wait: f64 = 0.0;
        for (bucket, cost) in self.buckets.iter_mut().zip(costs) {
            bucket.now();
            let missing = bucket.used + cost - bucket.limit;
            wait = wait.max(missing * 60_000.0 / bucket.limit);
        }
        let is_taken = wait <= 0.0;
        let mut headers = HeaderMap::new();
        for (bucket, cost) in self.buckets.iter_mut().zip(costs) {
            if is_taken {
                bucket.used += cost;
            }
            bucket.fields(&mut headers);
        }
        let charged = is_taken.then_some(tokens as f64);
        self.answers.push((Instant::now(), charged));
        if is_taken {
            return (StatusCode::OK, headers);
        }
        let wait = HeaderValue::from(wait.ceil() as u64);
        headers.insert("retry-after-ms", wait);
        (StatusCode::TOO_MANY_REQUESTS, headers)
    }
}

/// Numbers that look random (SplitMix64).
struct Dice(u64);

impl Dice {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        least + (mixed ^ (mixed >> 31)) % (most - least)
    }
}

/// A task that sends one request after another.
async fn worker(pacer: Pacer, provider: Arc<Mutex<Provider>>, mut dice: Dice, end: Instant) {
    while Instant::now() < end {
        let tokens = dice.between(500, 2_500);
        let units = [Units::requests(1), Units::tokens(tokens)];
        let mut turn = pacer.turn_of(&api(), units).await.unwrap();
        sleep(millis(dice.between(10, 40))).await;
        let (status, headers) = provider.lock().unwrap().answer(tokens);
        if status == StatusCode::OK {
            sleep(millis(dice.between(100, 3_000))).await;
        }
        let _: Advice = turn.learn(status, &headers);
    }
}

/// The refusals, and the part of the tokens that were used, after two minutes.
async fn run(processes: u64, tasks: u64, tokens: f64, seed: u64) -> (usize, f64) {
    let provider = Provider::new(500.0, tokens);
    let began = Instant::now();
    let (learned, end) = (began + seconds(120), began + seconds(720));
    let mut workers = Vec::new();
    for process in 0..processes {
        let pacer = Pacer::learning_builder()
            .clock(TokioClock::new())
            .seed(seed * 100 + process)
            .max_wait(seconds(3_600))
            .build()
            .unwrap();
        for task in 0..tasks {
            let dice = Dice(seed << 32 | process << 8 | task);
            let task = worker(pacer.clone(), Arc::clone(&provider), dice, end);
            workers.push(tokio::spawn(task));
        }
    }
    for worker in workers {
        worker.await.unwrap();
    }
    let provider = provider.lock().unwrap();
    let late = provider.answers.iter();
    let late = late.filter(|(at, _)| (learned..end).contains(at));
    let (taken, refused): (Vec<_>, Vec<_>) = late.partition(|(_, taken)| taken.is_some());
    let used: f64 = taken.iter().filter_map(|(_, taken)| *taken).sum();
    (refused.len(), used / (tokens * 10.0))
}

#[tokio::test(start_paused = true)]
async fn eight_processes_use_all_tokens_without_a_refusal_once_they_have_learned() {
    // From 0.97 to 1.01. A minute has some 67 requests of 100,000 tokens, and 27 of 40,000.
    for (tasks, tokens) in [(4, 100_000.0), (16, 100_000.0), (16, 40_000.0)] {
        for seed in 1..=3 {
            let (refused, used) = run(8, tasks, tokens, seed).await;
            println!(
                "{tasks} tasks each, {tokens} tokens a minute: {used:.3} used, {refused} refused"
            );
            assert_eq!(refused, 0, "{tasks} tasks, {tokens} tokens, seed {seed}");
            assert!(
                used >= 0.95,
                "{used}: {tasks} tasks, {tokens} tokens, seed {seed}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_alone_uses_all_tokens_without_a_refusal() {
    for seed in 1..=3 {
        let (refused, used) = run(1, 64, 100_000.0, seed).await;
        assert_eq!(refused, 0, "seed {seed}");
        assert!(used >= 0.95, "{used}: seed {seed}");
    }
}
