//! The server's time for a decision: each script's time beside a plain GCRA script's.

#[path = "../../src/redis/script/specialized.rs"]
mod texts;

use redis::{Value, aio::MultiplexedConnection};
use testkit::bench_server::Server;

use self::texts::{
    BUCKET_FIXED_WINDOW, BUCKET_SLIDING_WINDOW, BUCKETS, LONE_BUCKET, LONE_FIXED_WINDOW,
    LONE_SEVERAL_SLICES, LONE_SLIDING_LOG, LONE_SLIDING_WINDOW,
};
use crate::{Result, median};

/// GCRA in microseconds, as short as it gets: nothing is remembered of it but when the bucket is full again.
/// It takes the time of a unit, that of a full bucket, and a cost, and returns how far the bucket is from full,
/// or how long to wait, as a number below 0.
pub(crate) const PLAIN: &str = "
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
    if full_at < now then full_at = now end
    local missing = full_at - now + ARGV[1] * ARGV[3]
    if missing > tonumber(ARGV[2]) then return ARGV[2] - missing end
    redis.call('SET', KEYS[1], string.format('%.0f', now + missing), 'PX', math.ceil(missing / 1000))
    return missing";

/// A million a minute, one unit.
pub(crate) const PLAIN_ARGUMENTS: [&str; 3] = ["60", "60000000", "1"];

const GENERAL: &str = include!("../../src/redis/script/general_script_text.rs");

const ROUNDS: usize = 7;
const CALLS: usize = 20_000;
const KEYS: usize = 5_000;
const IN_A_PIPE: usize = 64;
const LEASED_CALLS: usize = 2_048;

/// A kind of limit, and the arguments that the limiter gives its script. `_` stands for an empty argument.
struct Kind {
    name: &'static str,
    script: &'static str,
    plan: &'static str,
    /// The most times of the plain script that one key should take.
    target: f64,
}

const KINDS: [Kind; 9] = [
    Kind {
        name: "lone token bucket",
        script: LONE_BUCKET,
        plan: "60000 60000000000 60000000000",
        target: 1.15,
    },
    Kind {
        name: "lone fixed window",
        script: LONE_FIXED_WINDOW,
        plan: "60000000 1000000 0 1000000",
        target: 1.8,
    },
    Kind {
        name: "lone sliding window",
        script: LONE_SLIDING_WINDOW,
        plan: "60000000 1000000 0 1000000 60000",
        target: 1.8,
    },
    Kind {
        name: "lone sliding window, 6 slices",
        script: LONE_SEVERAL_SLICES,
        plan: "10000000 1000000 0 1000000 60000 6",
        target: 1.8,
    },
    Kind {
        name: "token bucket, fixed window",
        script: BUCKET_FIXED_WINDOW,
        plan: "b 60000 60000000000 60000000000 3600000000 60000000 0 60000000",
        target: 1.6,
    },
    Kind {
        name: "token bucket, sliding window",
        script: BUCKET_SLIDING_WINDOW,
        plan: "b 60000 60000000000 60000000000 3600000000 60000000 0 60000000 60000",
        target: 1.6,
    },
    Kind {
        name: "two token buckets",
        script: BUCKETS,
        plan: "2 60000 60000000000 60000000000 600000 1200000000000 1200000000000",
        target: 2.5,
    },
    Kind {
        name: "lone sliding log",
        script: LONE_SLIDING_LOG,
        plan: "60000000 1000000 0 60000",
        target: 3.0,
    },
    Kind {
        name: "token bucket, general script",
        script: GENERAL,
        plan: "_ _ 1 t 1 1000000 0 60 0 0 _ _ _",
        target: 2.5,
    },
];

impl Kind {
    /// One unit of each of so many keys.
    fn arguments(&self, keys: usize) -> Vec<String> {
        let plan = self.plan.split(' ').map(|word| word.replace('_', ""));
        let first = ["3", "a", "1", "1"].map(str::to_owned);
        let others = vec!["=".to_owned(); keys - 1];
        let all = [String::new()].into_iter().chain(plan);
        all.chain(first).chain(others).collect()
    }
}

/// Calls of one script, and the microseconds of a decision in the server, round by round.
struct Timed {
    script: redis::Script,
    arguments: Vec<String>,
    keys: usize,
    rounds: Vec<f64>,
}

impl Timed {
    fn new(script: &str, arguments: Vec<String>, keys: usize) -> Self {
        Self {
            script: redis::Script::new(script),
            arguments,
            keys,
            rounds: Vec::new(),
        }
    }

    async fn round(
        &mut self,
        server: &Server,
        connection: &mut MultiplexedConnection,
    ) -> Result<()> {
        self.script.prepare_invoke().load_async(connection).await?;
        let before = server.script_micros().await?;
        let calls = CALLS / self.keys;
        for start in (0..calls).step_by(IN_A_PIPE) {
            let mut pipe = redis::pipe();
            for call in start..(start + IN_A_PIPE).min(calls) {
                let command = pipe.cmd("EVALSHA");
                command.arg(self.script.get_hash()).arg(self.keys);
                for key in call * self.keys..(call + 1) * self.keys {
                    // The keys are not in order, as those of clients are not.
                    command.arg(format!("rl:cost:{}", key * 7_919 % KEYS));
                }
                command.arg(&self.arguments);
            }
            let replies: Vec<Value> = pipe.query_async(connection).await?;
            assert!(
                !replies
                    .iter()
                    .any(|reply| matches!(reply, Value::ServerError(_)))
            );
        }
        let micros = server.script_micros().await? - before;
        self.rounds.push(micros as f64 / (calls * self.keys) as f64);
        Ok(())
    }
}

/// A number that differs in all its bytes from those of its neighbours.
const fn spread(number: u32) -> u32 {
    number.wrapping_mul(2_654_435_761)
}

/// Messages of holders of one subject, by the general script.
struct Leased {
    script: redis::Script,
    holders: usize,
    rounds: Vec<f64>,
}

impl Leased {
    fn new(holders: usize) -> Self {
        Self {
            script: redis::Script::new(GENERAL),
            holders,
            rounds: Vec::new(),
        }
    }

    /// The arguments of a holder's message of this number, with one unit to take.
    fn arguments(&self, message: usize) -> Vec<String> {
        let (name, seq) = (message % self.holders, 1 + message / self.holders);
        let plan = KINDS[KINDS.len() - 1].plan;
        // The name is a hash: of two whole numbers of any size.
        let (high, low) = ([name, name + 1])
            .map(|half| half as u32)
            .map(spread)
            .into();
        let clause = format!("c {high} {low} {seq} 1 0 2 8 60000000 _ 3 a 1 1");
        let words = format!("_ {plan} {clause}");
        words.split(' ').map(|word| word.replace('_', "")).collect()
    }

    async fn call(
        &self,
        messages: std::ops::Range<usize>,
        connection: &mut MultiplexedConnection,
    ) -> Result<()> {
        let mut pipe = redis::pipe();
        for message in messages {
            let command = pipe.cmd("EVALSHA");
            command.arg(self.script.get_hash()).arg(1).arg("rl:leased");
            command.arg(self.arguments(message));
        }
        let replies: Vec<Value> = pipe.query_async(connection).await?;
        let are_answers = replies
            .iter()
            .all(|reply| matches!(reply, Value::BulkString(reply) if reply.len() == 120));
        assert!(are_answers, "{:?}", replies.first());
        Ok(())
    }

    async fn round(
        &mut self,
        server: &Server,
        connection: &mut MultiplexedConnection,
    ) -> Result<()> {
        self.script.prepare_invoke().load_async(connection).await?;
        self.call(0..self.holders, connection).await?;
        let before = server.script_micros().await?;
        for start in (0..LEASED_CALLS).step_by(IN_A_PIPE) {
            let first = self.holders + start;
            self.call(first..first + IN_A_PIPE, connection).await?;
        }
        let micros = server.script_micros().await? - before;
        self.rounds.push(micros as f64 / LEASED_CALLS as f64);
        Ok(())
    }
}

/// Prints the server's time for a message of a holder, beside that for a decision without leases.
pub(crate) async fn print_leased(server: &Server) -> Result<()> {
    let kind = &KINDS[KINDS.len() - 1];
    let mut strict = Timed::new(kind.script, kind.arguments(1), 1);
    let mut all = [1, 100, 1_000].map(Leased::new);
    let mut connection = server.connection().await?;
    for _ in 0..ROUNDS {
        redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
        strict.round(server, &mut connection).await?;
        for leased in &mut all {
            redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
            leased.round(server, &mut connection).await?;
        }
    }
    println!("server time for a decision with a lease message, and how many times one without:");
    println!("  no lease     {:>7.2} µs", median(strict.rounds.clone()));
    for leased in &all {
        let rounds = leased.rounds.iter().zip(&strict.rounds);
        let ratio = median(rounds.map(|(leased, strict)| leased / strict).collect());
        let micros = median(leased.rounds.clone());
        println!(
            "  {:>5} rows   {micros:>7.2} µs {ratio:>5.2} x",
            leased.holders
        );
    }
    Ok(())
}

/// Prints the server's time for a decision, with one key and many in a call.
pub(crate) async fn print(server: &Server) -> Result<()> {
    let plain = PLAIN_ARGUMENTS.map(str::to_owned).to_vec();
    let mut all = vec![Timed::new(PLAIN, plain, 1)];
    for kind in &KINDS {
        let timed = [1, 8, 32].map(|keys| Timed::new(kind.script, kind.arguments(keys), keys));
        all.extend(timed);
    }
    let mut connection = server.connection().await?;
    for _ in 0..ROUNDS {
        for timed in &mut all {
            redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
            timed.round(server, &mut connection).await?;
        }
    }
    let (plain, ours) = all.split_first().expect("the plain script");
    let micros = |timed: &Timed| median(timed.rounds.clone());
    let ratio = |timed: &Timed| {
        let rounds = timed.rounds.iter().zip(&plain.rounds);
        median(rounds.map(|(ours, plain)| ours / plain).collect())
    };
    println!(
        "server time for a decision, and how many times a plain GCRA script's, medians of {ROUNDS} rounds:"
    );
    println!("  {:30}{:>7.2} µs", "plain GCRA script", micros(plain));
    for (kind, timed) in KINDS.iter().zip(ours.chunks(3)) {
        let cells = timed.iter().map(|timed| {
            let many = if timed.keys > 1 {
                format!("{} keys ", timed.keys)
            } else {
                String::new()
            };
            format!("{many:>8}{:>7.2} µs {:>5.2} x", micros(timed), ratio(timed))
        });
        let cells: Vec<_> = cells.collect();
        println!(
            "  {:30}{} (target {} x)",
            kind.name,
            cells.join(" ").trim_start(),
            kind.target
        );
    }
    Ok(())
}
