//! Replies of scripts, for the stand-in for Redis.

use redis::Value;
pub(crate) use testkit::fake_redis::FakeServer;

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

/// The reply of a script to one acquire on a token bucket that was `used` microseconds from full.
pub(crate) fn of_bucket(is_denied: bool, used: i64) -> Value {
    answer(1, is_denied, used)
}

fn answer(count: i64, is_denied: bool, used: i64) -> Value {
    let (denied, charged) = (i64::from(is_denied), i64::from(!is_denied));
    // The time, how many, whether denied, the charge, the block, and how far the bucket was from full.
    let numbers = [9, count, denied, charged, 0, used, 0];
    let reply = numbers.iter().flat_map(|number| number.to_be_bytes());
    Value::BulkString(reply.collect())
}
