//! Clocks that are wrong.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::{
    needs,
    servers::{Server, Setup},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter};

use super::load_through_fault::patient_store;

const LIMIT: u64 = 10;
const PERIOD: Duration = Duration::from_secs(60);

/// A quota of each algorithm.
const QUOTAS: [(&str, Quota); 6] = [
    ("token", Quota::per(LIMIT, PERIOD)),
    ("steps", Quota::per(LIMIT, PERIOD).refill_every(PERIOD)),
    ("leaky", Quota::per(LIMIT, PERIOD).leaky_bucket(LIMIT - 1)),
    ("fixed", Quota::per(LIMIT, PERIOD).fixed_window()),
    ("sliding", Quota::per(LIMIT, PERIOD).sliding_window()),
    ("log", Quota::per(LIMIT, PERIOD).sliding_log()),
];

fn limiters(server: &Server) -> Vec<(&'static str, RedisLimiter)> {
    let store = patient_store(&server.url());
    let limiter = |(name, quota): (&'static str, Quota)| {
        let builder = RedisLimiter::builder(quota).name(name);
        // Denials cached on a node expire by its own monotonic clock; here only the server's clock counts.
        let builder = builder
            .remember_denials(false)
            .on_failure(OnFailure::deny());
        (name, builder.build(&store).unwrap())
    };
    QUOTAS.map(limiter).into()
}

/// Takes one unit after another until it is denied: how many, and how long to wait for the next.
async fn exhaust(limiter: &RedisLimiter) -> (u64, Duration) {
    let mut taken = 0;
    loop {
        let decision = limiter.acquire(&Key::from("alice"), 1).await.unwrap();
        if decision.is_denied() {
            return (taken, decision.retry_after().unwrap());
        }
        taken += 1;
        assert!(taken < 100, "there is no limit any more");
    }
}

/// The longest time until an exhausted quota is full again.
fn longest(name: &str) -> Duration {
    // Units counted in one window weigh until the end of the next.
    if name == "sliding" {
        2 * PERIOD
    } else {
        PERIOD
    }
}

/// Units that are refilled or cross an edge while the test runs.
const MEANWHILE: u64 = LIMIT;

/// A server on which alice has used up every quota.
async fn exhausted() -> Server {
    let server = Setup::valkey().fake_clock().start().await;
    for (name, limiter) in limiters(&server) {
        let (taken, _) = exhaust(&limiter).await;
        assert!(
            (LIMIT..=LIMIT + MEANWHILE).contains(&taken),
            "{name}: {taken}"
        );
    }
    server
}

#[tokio::test]
async fn the_servers_clock_is_put_back() {
    needs!(fake_clock);
    let server = exhausted().await;
    server.shift_clock(-3_600).await;
    for (name, limiter) in limiters(&server) {
        let (taken, wait) = exhaust(&limiter).await;
        println!("{name}: {taken} more after an hour back, then a wait of {wait:?}");
        assert!(taken <= LIMIT, "{name}: {taken}");
        assert!(wait <= longest(name), "{name}: {wait:?}");
        let decision = limiter.peek(&Key::from("alice"), LIMIT).await.unwrap();
        let full = decision.retry_after().unwrap();
        assert!(
            full <= longest(name),
            "{name}: nobody waits longer than a quota takes, {full:?}"
        );
    }
}

#[tokio::test]
async fn the_servers_clock_is_put_forward() {
    needs!(fake_clock);
    let server = exhausted().await;
    server.shift_clock(3_600).await;
    for (name, limiter) in limiters(&server) {
        let (taken, wait) = exhaust(&limiter).await;
        println!("{name}: {taken} more after an hour forward, then a wait of {wait:?}");
        assert!(
            (LIMIT..=LIMIT + MEANWHILE).contains(&taken),
            "{name}: one more burst, {taken}"
        );
        assert!(wait <= longest(name), "{name}: {wait:?}");
    }
}

/// The arguments of the next call that the server gets, as `MONITOR` prints them.
async fn monitored(server: &Server, limiter: &RedisLimiter) -> String {
    let mut monitor = TcpStream::connect(server.address()).await.unwrap();
    monitor.write_all(b"MONITOR\r\n").await.unwrap();
    let mut lines = BufReader::new(monitor).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "+OK");
    limiter.acquire(&Key::from("alice"), 1).await.unwrap();
    loop {
        let line = lines.next_line().await.unwrap().unwrap();
        // Redis prints the script's own commands, too, with `lua` for the address.
        if line.contains("EVALSHA") {
            return line;
        }
    }
}

/// Whether it is the time, or one within a year of it, in any unit that somebody may count in.
fn is_about_now(number: f64) -> bool {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let year = 365.0 * 86_400.0;
    let units = [1.0, 1e3, 1e6, 1e9];
    units
        .iter()
        .any(|unit| (number / unit - since_1970.as_secs_f64()).abs() < year)
}

#[tokio::test]
async fn no_node_sends_its_clock_to_the_server() {
    needs!(redis);
    let server = Server::start().await;
    for (name, limiter) in limiters(&server) {
        limiter.acquire(&Key::from("bob"), 1).await.unwrap();
        let line = monitored(&server, &limiter).await;
        let (_, arguments) = line.split_once("EVALSHA").unwrap();
        let arguments: Vec<_> = arguments.split('"').skip(2).step_by(2).collect();
        for number in arguments.iter().filter_map(|text| text.parse::<f64>().ok()) {
            assert!(!is_about_now(number), "{name}: {arguments:?}");
        }
        println!("{name}: {arguments:?}");
    }
}
