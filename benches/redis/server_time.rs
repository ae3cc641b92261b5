//! The server's time for a decision: each script's time beside that of a plain script of the same algorithm.

use redis::{Value, aio::MultiplexedConnection};
use testkit::bench_redis::Server;
use tower_ratelimit_store::redis::script::{GENERAL, LONE_QUOTA, SEVERAL_QUOTAS};

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

/// A token bucket and a fixed window: the time of a unit, that of a full bucket, the window and its limit, and a cost.
const PLAIN_PAIR: &str = "
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local index, full_at, count = math.floor(now / ARGV[3]), now, 0
    local value = redis.call('GET', KEYS[1])
    if value then
        local until_full, before, counted = string.match(value, '^(%d+):(%d+):(%d+)$')
        full_at = tonumber(until_full)
        if tonumber(before) == index then count = tonumber(counted) end
    end
    if full_at < now then full_at = now end
    local missing = full_at - now + ARGV[1] * ARGV[5]
    local left = (index + 1) * ARGV[3] - now
    if missing > tonumber(ARGV[2]) then return { ARGV[2] - missing, count, left } end
    if count + ARGV[5] > tonumber(ARGV[4]) then return { missing, -1, left } end
    count = count + ARGV[5]
    local text = string.format('%.0f:%d:%d', now + missing, index, count)
    redis.call('SET', KEYS[1], text, 'PX', math.ceil(math.max(missing, left) / 1000))
    return { missing, count, left }";

/// A sliding window in slices: a slice, the limit, how many slices, and a cost.
const PLAIN_SLICES: &str = "
    local clock = redis.call('TIME')
    local now = clock[1] * 1000000 + clock[2]
    local slice, limit, slices, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
    local index, counts, newest = math.floor(now / slice), {}, nil
    for number in string.gmatch(redis.call('GET', KEYS[1]) or '', '%d+') do
        if newest then counts[#counts + 1] = tonumber(number) else newest = tonumber(number) end
    end
    local passed, used, all = index - (newest or 0), 0, {}
    for age = 1, slices + 1 do
        all[age] = counts[age - passed] or 0
        if age <= slices then
            used = used + all[age]
        else
            used = used + math.floor(all[age] * (slice - now % slice) / slice)
        end
    end
    if used + cost > limit then return { -1, used } end
    all[1] = all[1] + cost
    local text = index .. ':' .. table.concat(all, ':')
    redis.call('SET', KEYS[1], text, 'PX', math.ceil((slices + 1) * slice / 1000))
    return { used + cost, 0 }";

/// The plain scripts, with their arguments.
const PLAINS: [(&str, &str); 3] = [
    (PLAIN, "60 60000000 1"),
    (PLAIN_PAIR, "60 60000000 3600000000 60000000 1"),
    (PLAIN_SLICES, "12000000 1000000 5 1"),
];

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
    /// The place of the plain script to compare with, and the most times of it that one key should take.
    plain: usize,
    target: f64,
}

const fn kind(
    name: &'static str,
    (script, plan): (&'static str, &'static str),
    (plain, target): (usize, f64),
) -> Kind {
    Kind {
        name,
        script,
        plan,
        plain,
        target,
    }
}

const KINDS: [Kind; 11] = [
    kind(
        "lone token bucket",
        (LONE_QUOTA, "t 60000 60000000000 60000000000"),
        (0, 1.15),
    ),
    kind(
        "lone fixed window",
        (LONE_QUOTA, "f 60000000 1000000 1000000"),
        (0, 1.3),
    ),
    kind(
        "lone sliding window",
        (LONE_QUOTA, "s 60000000 1000000 1000000"),
        (0, 1.4),
    ),
    kind(
        "lone sliding window, 5 slices",
        (SEVERAL_QUOTAS, "1 s 12000000 1000000 1000000 6"),
        (2, 2.0),
    ),
    kind(
        "token bucket, fixed window",
        (
            SEVERAL_QUOTAS,
            "2 t 60000 60000000000 60000000000 1 f 3600000000 60000000 60000000 1",
        ),
        (1, 2.0),
    ),
    kind(
        "token bucket, sliding window",
        (
            SEVERAL_QUOTAS,
            "2 t 60000 60000000000 60000000000 1 s 3600000000 60000000 60000000 2",
        ),
        (1, 2.0),
    ),
    kind(
        "two token buckets",
        (
            SEVERAL_QUOTAS,
            "2 t 60000 60000000000 60000000000 1 t 600000 1200000000000 1200000000000 1",
        ),
        (0, 2.5),
    ),
    kind(
        "general script, sliding log",
        (GENERAL, "_ _ 1 g 1 1000000 0 60 0 60000000 0 _ _"),
        (0, 5.0),
    ),
    kind(
        "general script, bucket and window",
        (
            GENERAL,
            "_ _ 2 t 1 1000000 0 60 0 0 _ _ _ f 1 60000000 0 60 0 3600000000 0 _ _",
        ),
        (1, 4.0),
    ),
    kind(
        "general script, 5 slices",
        (GENERAL, "_ _ 1 s 1 1000000 0 60 0 12000000 5 _ _"),
        (2, 3.0),
    ),
    kind(
        "general script, token bucket",
        (GENERAL, "_ _ 1 t 1 1000000 0 60 0 0 _ _ _"),
        (0, 3.0),
    ),
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
            .all(|reply| matches!(reply, Value::BulkString(reply) if reply.len() >= 104));
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
    let plains = PLAINS.map(|(script, arguments)| {
        let arguments = arguments.split(' ').map(str::to_owned);
        Timed::new(script, arguments.collect(), 1)
    });
    let mut all = Vec::from(plains);
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
    let (plains, ours) = all.split_at(PLAINS.len());
    let micros = |timed: &Timed| median(timed.rounds.clone());
    println!(
        "server time for a decision, and how many times a plain script's of the same algorithm, medians of {ROUNDS} rounds:"
    );
    for (name, plain) in ["plain GCRA", "plain bucket and window", "plain 5 slices"]
        .iter()
        .zip(plains)
    {
        println!("  {name:34}{:>7.2} µs", micros(plain));
    }
    for (kind, timed) in KINDS.iter().zip(ours.chunks(3)) {
        let plain = &plains[kind.plain];
        let ratio = |timed: &Timed| {
            let rounds = timed.rounds.iter().zip(&plain.rounds);
            median(rounds.map(|(ours, plain)| ours / plain).collect())
        };
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
            "  {:34}{} (target {} x)",
            kind.name,
            cells.join(" ").trim_start(),
            kind.target
        );
    }
    Ok(())
}
