//! A limit that processes share, at the speed of this process: each leases units of it in Redis, and
//! spends them without a call.
//!
//! ```sh
//! redis-server --port 6379 &
//! cargo run --release -p example-redis --bin leased
//! ```
//!
//! starts two processes that take all they can of 100,000 a day, and prints how many each of them
//! got, how fast, and for how many calls. Together it is exactly 100,000, unless units ended unspent
//! because a process was held up for longer than a lease; these are printed, too. `REDIS_URL` leads
//! to another server, `PROCESSES` sets how many there are.

use std::{
    env,
    error::Error,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tower_ratelimit::{Key, OnFailure, Quota, RedisLimiter, RedisStore, shared::Mode};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const LIMIT: u64 = 100_000;
const LENGTH: Duration = Duration::from_secs(2);

fn main() -> Outcome {
    if env::var_os("WORKER").is_some() {
        return worker();
    }
    let processes = env::var("PROCESSES").map_or(Ok(2), |text| text.parse())?;
    // Another limit in each run.
    let name = format!("leased-{}", std::process::id());
    let start = |_: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.env("WORKER", &name).stdout(Stdio::piped()).spawn()
    };
    let running = (0..processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let (mut admitted, mut ended) = (0, 0);
    for process in running {
        let printed = String::from_utf8(process.wait_with_output()?.stdout)?;
        let (line, counts) = printed.trim_end().rsplit_once('\n').ok_or("no counts")?;
        println!("{line}");
        let mut counts = counts.split(' ').map(str::parse::<u64>);
        admitted += counts.next().ok_or("no count")??;
        ended += counts.next().ok_or("no count")??;
    }
    println!("together {admitted} of {LIMIT}, and {ended} ended unspent");
    Ok(())
}

/// Takes units until for longer than a lease nobody has had any to give back.
#[tokio::main]
async fn worker() -> Outcome {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let store = RedisStore::builder()
        .deadline(Duration::from_secs(1))
        .connect(&url)?;
    let limiter = RedisLimiter::builder(Quota::per_day(LIMIT).fixed_window())
        .name(env::var("WORKER")?)
        .mode(Mode::leased().length(LENGTH))
        .on_failure(OnFailure::deny())
        .build(&store)?;
    let (key, begin) = (Key::global(), Instant::now());
    let (mut admitted, mut last, mut quiet_since) = (0_u64, begin, begin);
    while quiet_since.elapsed() < 2 * LENGTH {
        if limiter.acquire(&key, 1).await?.is_allowed() {
            admitted += 1;
            last = Instant::now();
            quiet_since = last;
        } else {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let stats = limiter.mode_stats();
    let seconds = (last - begin).as_secs_f64().max(0.001);
    println!(
        "{admitted} admitted in {seconds:.2} s, {:.0} a second; {:.4} calls for each decision",
        admitted as f64 / seconds,
        store.stats().answered() as f64 / (stats.local + stats.asked).max(1) as f64
    );
    println!("{admitted} {}", stats.ended);
    Ok(())
}
