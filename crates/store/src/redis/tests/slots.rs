//! Tests of slots of a cluster, and of responses of its servers about them.

use std::{
    iter::once,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use redis::{IntoConnectionInfo as _, Value, parse_redis_value};

use crate::{
    error::{Redirect, ServerAddress, StoreError},
    health::{Owner, StoreWatch},
    redis::{
        cluster::{Cluster, SlotRange, parse_slot_ranges, slot_of},
        connection::StoreCommon,
        pipeline::Siblings as _,
    },
    runtime_thread::Home,
};

fn address(host: &str, port: u16) -> ServerAddress {
    let host = host.to_owned();
    ServerAddress { host, port }
}

/// Compares with results of `CLUSTER KEYSLOT` in Redis 7.0.
#[test]
fn keys_have_the_slots_that_servers_compute() {
    for (key, slot) in [
        ("", 0),
        ("123456789", 12_739),
        ("foo", 12_182),
        ("bar", 5_061),
        ("{foo}bar", 12_182),
        ("bar{foo}{bar}", 12_182),
        ("foo{}{bar}", 8_363),
        ("foo{{bar}}zap", 4_015),
        ("foo{bar", 15_278),
    ] {
        assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
    }
}

fn redirect(text: &str) -> Option<Redirect> {
    let value = parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
    let error = StoreError::replied(&value.extract_error().unwrap_err());
    error.redirect().cloned()
}

#[test]
fn redirections_name_a_server() {
    let moved = |to| Some(Redirect::Moved { slot: 3999, to });
    assert_eq!(
        redirect("MOVED 3999 127.0.0.1:6381"),
        moved(address("127.0.0.1", 6381))
    );
    assert_eq!(
        redirect("MOVED 3999 [::1]:6381"),
        moved(address("::1", 6381))
    );
    assert_eq!(redirect("MOVED 3999 :6381"), moved(address("", 6381)));
    assert_eq!(redirect("MOVED 3999 ?:6381"), moved(address("", 6381)));
    let to = address("redis-2", 7000);
    assert_eq!(redirect("ASK 7 redis-2:7000"), Some(Redirect::Ask { to }));
    for text in [
        "MOVED",
        "MOVED 3999",
        "MOVED 3999 nowhere",
        "MOVED 3999 a:70000",
        "CLUSTERDOWN The cluster is down",
        "ERR 3999 127.0.0.1:6381",
    ] {
        assert_eq!(redirect(text), None, "{text}");
    }
    assert_eq!(address("", 1).seen_from("a"), address("a", 1));
    assert_eq!(address("0.0.0.0", 1).seen_from("a"), address("a", 1));
    assert_eq!(address("b", 1).seen_from("a"), address("b", 1));
}

#[test]
fn invalid_entries_of_a_slot_map_are_skipped() {
    let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
    let range = |first, last, host, port| {
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(vec![host, Value::Int(port), text("an id")]),
            Value::Array(vec![text("a-replica"), Value::Int(1)]),
        ])
    };
    let answer = Value::Array(vec![
        range(0, 99, text("10.0.0.1"), 7000),
        range(100, 199, text(""), 7001),
        range(200, 299, Value::Nil, 7002),
        range(300, 399, text("?"), 7003),
        range(400, 16_384, text("b"), 7004),
        range(-1, 5, text("b"), 7005),
        range(5, 3, text("b"), 7005),
        range(0, 5, text("b"), 70_000),
        Value::Array(vec![Value::Int(0)]),
        Value::Nil,
    ]);
    let of = |first, last, host, port| SlotRange {
        first,
        last,
        owner: address(host, port),
    };
    assert_eq!(
        parse_slot_ranges(&answer, "a").unwrap(),
        [
            of(0, 99, "10.0.0.1", 7000),
            of(100, 199, "a", 7001),
            of(200, 299, "a", 7002),
        ]
    );
    assert_eq!(parse_slot_ranges(&Value::Array(Vec::new()), "a"), None);
    assert_eq!(parse_slot_ranges(&Value::Okay, "a"), None);
}

/// A cluster without a connection: its map has the redirections only.
fn cluster() -> Arc<Cluster> {
    let seeds = vec!["redis://127.0.0.1:1".into_connection_info().unwrap()];
    let common = StoreCommon {
        address: String::new(),
        prefix: "rl".to_owned(),
        deadline: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(1),
        credentials: Arc::default(),
        has_sharding_proxy: false,
        is_split: AtomicBool::new(false),
        home: Home::of_callers(),
        scripts: Mutex::default(),
        watch: StoreWatch::new(Owner::Redis, None),
    };
    Cluster::new(seeds, Arc::new(common))
}

/// Each name costs the thread that drives all connections the time to compute its slot.
#[test]
fn no_names_are_tried_for_a_server_that_has_no_slot() {
    let cluster = cluster();
    let (first, second) = (address("127.0.0.1", 7001), address("127.0.0.1", 7002));
    let own_slot = slot_of(b"own");
    let moves = |to: &ServerAddress| {
        let (slot, to) = (own_slot, to.clone());
        cluster.record_redirect(None, b"own", &Redirect::Moved { slot, to });
    };
    let names = || ["other", "own"].map(str::to_owned).into_iter();
    moves(&first);
    assert_eq!(
        cluster.first_of(&first, &mut names()).as_deref(),
        Some("own")
    );
    moves(&second);
    assert_eq!(
        cluster.first_of(&second, &mut names()).as_deref(),
        Some("own")
    );
    let mut never = once(()).map(|()| panic!("a name is computed"));
    assert_eq!(cluster.first_of(&first, &mut never), None);
}
