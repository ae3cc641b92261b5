//! The JSON of an event.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use tower_ratelimit::{RedisStore, observe::TopKey, store::StoreStats};

use super::{
    history::{Histories, History, Second},
    state::Sampled,
};
use crate::{admin::Admin, store::Store};

/// The most limits of an event.
const MAX_LIMITS: usize = 50;

/// The most denied keys of an event.
const MAX_KEYS: usize = 20;

/// The longest name of a limit or key in an event, in bytes.
const MAX_NAME: usize = 200;

impl Admin {
    /// The state now. With `has_history`, each limit has its last five minutes.
    pub(super) fn snapshot(&self, has_history: bool) -> Value {
        let live = self.live();
        let sampled = live.sampled();
        let Sampled {
            histories,
            degraded_now,
            store: [earlier, _],
            ..
        } = &*sampled;
        let limits: Vec<Value> = { histories.ranked(MAX_LIMITS).into_iter() }
            .map(|(name, history)| limit(name, histories, history, has_history))
            .collect();
        let store = store(self.store(), *degraded_now, earlier);
        drop(sampled);
        let rooms = (live.sources.rooms)().into_iter();
        let rooms =
            rooms.map(|room| json!({"name": room.name, "used": room.used, "most": room.most}));
        json!({
            "at": seconds(SystemTime::now()),
            "version": env!("CARGO_PKG_VERSION"),
            "uptime": live.started_at.elapsed().as_secs(),
            "rules": self.rules_state(),
            "store": store,
            "rooms": rooms.collect::<Vec<_>>(),
            "limits": limits,
            "keys": self.top_keys(),
            "keys_are_shown": self.reveals_keys(),
        })
    }

    fn rules_state(&self) -> Value {
        let source = self.source();
        let loads = source.loads();
        let (all_on, off) = source.switches();
        json!({
            "number": source.rules(),
            "loaded_at": Some(seconds(loads.loaded_at)).filter(|seconds| *seconds > 0),
            "fault": loads.fault,
            "enabled": all_on,
            "switched_off": off,
        })
    }

    fn top_keys(&self) -> Vec<Value> {
        let top = self.source().limits().top().report(MAX_KEYS);
        let one = |key: &TopKey| {
            json!({
                "limit": shortened(key.policy()),
                "key": shortened(&self.named(key.key(), &key.key().to_text())),
                "denied": key.count(),
                "error": key.error(),
                "passed_anyway": key.passed_anyway(),
            })
        };
        top.keys().iter().map(one).collect()
    }
}

fn limit(name: &str, histories: &Histories, history: &History, has_history: bool) -> Value {
    let minute = histories.minute(history);
    let now = histories.seconds(history).next_back().unwrap_or_default();
    let mut limit = json!({
        "name": shortened(name),
        "now": counts(now),
        "minute": counts(minute),
        "least_left": history.least_left().map(|thousandths| f64::from(thousandths) / 1_000.0),
    });
    if has_history {
        let of = |count: fn(Second) -> u32| -> Vec<u32> {
            histories.seconds(history).map(count).collect()
        };
        limit["history"] = json!({
            "requests": of(|second| second.requests),
            "denied": of(|second| second.denied),
            "passed_anyway": of(|second| second.passed_anyway),
        });
    }
    limit
}

fn counts(second: Second) -> Value {
    json!({
        "requests": second.requests,
        "denied": second.denied,
        "passed_anyway": second.passed_anyway,
        "near": second.near,
    })
}

fn store(store: &Store, degraded_now: u64, earlier: &StoreStats) -> Value {
    let mut state = Map::new();
    state.insert("backend".to_owned(), store.backend().into());
    state.insert("up".to_owned(), store.is_up().into());
    if let Store::Redis(redis) = store {
        state.insert("breaker_open".to_owned(), is_open(redis).into());
        state.insert("decisions_without_it".to_owned(), degraded_now.into());
        let stats = redis.stats();
        let time = |percent| Some(stats.call_time(percent, earlier)?.as_secs_f64());
        state.insert(
            "call_seconds".to_owned(),
            json!({"p50": time(50), "p99": time(99)}),
        );
    }
    state.into()
}

fn is_open(redis: &RedisStore) -> bool {
    redis.health().is_down()
}

/// A name that keeps an event short. Names come from files, and from clients.
fn shortened(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let mut end = MAX_NAME;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &name[..end])
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
