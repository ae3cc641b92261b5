//! A server that is none: what it answers, and when, is a function of the command.

use std::{fmt, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use redis::{Arg, Cmd, Pipeline, RedisFuture, RedisResult, Value, aio::ConnectionLike};

/// A connection to it, for [`RedisStoreBuilder::connection`](tower_ratelimit::redis::RedisStoreBuilder::connection).
#[derive(Clone)]
pub(crate) struct FakeServer(Arc<Decide>);

type Decide = dyn Fn(&[String]) -> BoxFuture<'static, RedisResult<Value>> + Send + Sync;

impl FakeServer {
    /// `decide` gets the words of each `EVALSHA`.
    pub(crate) fn new(
        decide: impl Fn(&[String]) -> BoxFuture<'static, RedisResult<Value>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(decide))
    }
}

/// How many keys there are in a call.
pub(crate) fn keys(words: &[String]) -> usize {
    words[2].parse().unwrap()
}

/// The reply of a script to one acquire of each key.
pub(crate) fn of_buckets(keys: usize) -> Value {
    match keys {
        1 => of_bucket(false, 7),
        _ => Value::Array(vec![of_bucket(false, 7); keys]),
    }
}

/// The answer to alike operations on one token bucket, all of them allowed.
pub(crate) fn of_alike(words: &[String]) -> Value {
    let count: i64 = words[words.len() - 1].parse().unwrap();
    answer(count, false, 7)
}

/// The reply of a script to one acquire on a token bucket that is `used` microseconds from full.
pub(crate) fn of_bucket(is_denied: bool, used: i64) -> Value {
    answer(1, is_denied, used)
}

fn answer(count: i64, is_denied: bool, used: i64) -> Value {
    let (denied, charged) = (i64::from(is_denied), i64::from(!is_denied));
    // The time, how many, whether denied, the wait, the charge, the block; of the quota whether it denied, when to
    // retry, and how far it is from full.
    let numbers = [9, count, denied, 0, charged, 0, denied, -1, used];
    let reply = numbers.iter().flat_map(|number| number.to_be_bytes());
    Value::BulkString(reply.collect())
}

fn text(word: &Arg<&[u8]>) -> String {
    match word {
        Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
        _ => String::new(),
    }
}

impl ConnectionLike for FakeServer {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let words: Vec<_> = command.args_iter().map(|word| text(&word)).collect();
        match words[0].as_str() {
            "EVALSHA" => (self.0)(&words),
            _ => async { Ok(Value::Okay) }.boxed(),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unreachable!("there is one command a call")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeServer").finish_non_exhaustive()
    }
}
