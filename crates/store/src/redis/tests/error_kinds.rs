//! Tests of the kinds of errors: from the client and from servers.

use std::io;

use redis::{ErrorKind, RedisError, parse_redis_value};

use crate::error::{StoreError, StoreErrorKind};

fn reply(text: &str) -> RedisError {
    let value = parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
    value.extract_error().unwrap_err()
}

#[test]
fn error_replies_are_classified_by_their_code() {
    use StoreErrorKind::{
        Busy, ClockApart, Cluster, ForeignData, Loading, Other, OutOfMemory, ReadOnly, Refused,
    };
    let answers = [
        ("NOAUTH Authentication required.", Refused),
        ("NOPERM this user has no permissions", Refused),
        ("WRONGPASS invalid username-password pair", Refused),
        (
            "READONLY You can't write against a read only replica.",
            ReadOnly,
        ),
        ("MASTERDOWN Connection with MASTER is down", ReadOnly),
        ("LOADING Redis is loading the dataset in memory", Loading),
        ("BUSY Redis is busy running a script.", Busy),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            OutOfMemory,
        ),
        ("CLUSTERDOWN The cluster is down", Cluster),
        (
            "TRYAGAIN Multiple keys request during rehashing of slot",
            Cluster,
        ),
        ("MOVED 3999 127.0.0.1:6381", Cluster),
        ("ASK 3999 127.0.0.1:6381", Cluster),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            Cluster,
        ),
        ("WRONGTYPE Operation against a key", ForeignData),
        ("RATELIMIT the value is no state", ForeignData),
        ("RATELIMIT_CLOCK the clock is far away", ClockApart),
        ("NOSCRIPT No matching script.", Other),
        ("MISCONF Redis is configured to save RDB snapshots", Other),
        ("ERR LOADING OOM READONLY", Other),
    ];
    for (text, kind) in answers {
        assert_eq!(StoreError::replied(&reply(text)).kind(), kind, "{text}");
    }
}

/// It was loaded just before, into another server.
#[test]
fn a_proxy_that_was_not_declared_is_named_in_the_error() {
    let error = StoreError::replied(&reply("NOSCRIPT No matching script."));
    assert!(error.to_string().contains("sharding_proxy"), "{error}");
}

#[test]
fn connections_fail_in_four_ways() {
    let io = |kind: io::ErrorKind| RedisError::from(io::Error::from(kind));
    let kind = |error| StoreError::unconnected(&error).kind();
    assert_eq!(
        kind(io(io::ErrorKind::ConnectionRefused)),
        StoreErrorKind::Disconnected
    );
    assert_eq!(
        kind(io(io::ErrorKind::TimedOut)),
        StoreErrorKind::Disconnected
    );
    assert_eq!(
        kind((ErrorKind::AuthenticationFailed, "no").into()),
        StoreErrorKind::Refused
    );
    assert_eq!(
        kind((ErrorKind::MasterNameNotFoundBySentinel, "no").into()),
        StoreErrorKind::Cluster
    );
    assert_eq!(kind(reply("LOADING")), StoreErrorKind::Loading);
    assert_eq!(
        kind((ErrorKind::InvalidClientConfig, "No address found for host").into()),
        StoreErrorKind::Disconnected
    );
}

#[test]
fn arguments_are_not_repeated() {
    let error = reply("ERR unknown command 'AUTH', with args beginning with: 'secret' ");
    let error = StoreError::replied(&error);
    assert_eq!(
        error.to_string(),
        "Redis failed (other): ERR unknown command 'AUTH'"
    );
    assert!(!format!("{error:?}").contains("secret"));
    let detail = "unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `secret`";
    let error = RedisError::from((ErrorKind::Io, "Failed", detail.to_owned()));
    assert!(
        !StoreError::unconnected(&error)
            .to_string()
            .contains("secret")
    );
}

#[test]
fn a_server_address_that_leads_to_a_cluster_is_named_in_the_error() {
    let error = StoreError::replied(&reply("MOVED 3999 10.0.0.1:6381"));
    assert!(error.to_string().contains("redis-cluster://"), "{error}");
}

#[test]
fn every_kind_has_its_own_name_and_index() {
    let names: std::collections::HashSet<_> = StoreErrorKind::ALL
        .iter()
        .map(|(kind, _)| kind.as_str())
        .collect();
    assert_eq!(names.len(), StoreErrorKind::ALL.len());
    for (place, (kind, _)) in StoreErrorKind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, place);
    }
}
