//! Tests of addresses and their parts.

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion};

use crate::redis::address::{Address, Sentinels};
use tower_ratelimit_core::error::ConfigErrorKind;

fn shown(text: &str) -> String {
    match Address::parse(text) {
        Ok(address) => address.shown(),
        Err(error) => panic!("{text}: {error}"),
    }
}

fn refused(text: &str) -> String {
    match Address::parse(text) {
        Ok(address) => panic!("{text} is {}", address.shown()),
        Err(error) => {
            assert_eq!(error.kind(), ConfigErrorKind::Address);
            error.to_string()
        }
    }
}

fn server(text: &str) -> ConnectionInfo {
    match Address::parse(text) {
        Ok(Address::Server(server)) => server,
        _ => panic!("{text} is no server's"),
    }
}

fn sentinels(text: &str) -> Sentinels {
    match Address::parse(text) {
        Ok(Address::Sentinel(sentinels)) => sentinels,
        _ => panic!("{text} is not sentinels'"),
    }
}

#[test]
fn addresses_of_all_kinds_are_parsed() {
    let addresses = [
        ("redis://localhost", "localhost:6379"),
        ("redis://localhost:7000/3", "localhost:7000"),
        ("valkey://localhost", "localhost:6379"),
        ("redis://[::1]:7000", "::1:7000"),
        ("unix:///run/redis.sock", "/run/redis.sock"),
        ("redis+unix:///run/redis.sock?db=2", "/run/redis.sock"),
        (
            "redis-cluster://a:7000,b:7001,c",
            "cluster a:7000,b:7001,c:6379",
        ),
        ("valkey-cluster://[::1]:7000", "cluster ::1:7000"),
        (
            "redis-sentinel://a:26379,b:26380/mymaster",
            "sentinels a:26379,b:26380/mymaster",
        ),
        (
            "redis-sentinel://a:26379/mymaster/4",
            "sentinels a:26379/mymaster",
        ),
    ];
    for (text, address) in addresses {
        assert_eq!(shown(text), address);
    }
}

#[test]
fn the_address_sets_login_database_and_protocol() {
    let server = server("redis://us%40er:p%2Fw%23@localhost:7000/3?protocol=resp3");
    let settings = server.redis_settings();
    assert_eq!(settings.username(), Some("us@er"));
    assert_eq!(settings.password(), Some("p/w#"));
    assert_eq!(settings.db(), 3);
    assert_eq!(settings.protocol(), ProtocolVersion::RESP3);
}

#[test]
fn every_server_of_a_cluster_has_the_login() {
    let Ok(Address::Cluster(servers)) = Address::parse("redis-cluster://u:p%2C@a:7000,b/0") else {
        panic!("no cluster");
    };
    assert_eq!(servers.len(), 2);
    for server in servers {
        assert_eq!(server.redis_settings().username(), Some("u"));
        assert_eq!(server.redis_settings().password(), Some("p,"));
    }
}

#[test]
fn sentinels_and_servers_have_logins_of_their_own() {
    let sentinels = sentinels(
        "redis-sentinel://u:p@a:26379,b/mymaster/2?sentinel_user=su&sentinel_password=s%26p",
    );
    assert_eq!(sentinels.master, "mymaster");
    assert_eq!(sentinels.user.as_deref(), Some("su"));
    assert_eq!(sentinels.password.as_deref(), Some("s&p"));
    let servers = sentinels.servers();
    assert_eq!(servers.username(), Some("u"));
    assert_eq!(servers.password(), Some("p"));
    assert_eq!(servers.db(), 2);
}

#[test]
fn each_address_of_a_list_is_parsed_like_a_single_one() {
    let texts = ["redis://u:p@a:7000", "redis://u:p@b:7001"];
    let cluster = Address::cluster(texts).map(|address| address.shown());
    assert_eq!(cluster.unwrap(), "cluster a:7000,b:7001");
    let sentinels = Address::sentinel(texts, "mymaster").map(|address| address.shown());
    assert_eq!(sentinels.unwrap(), "sentinels a:7000,b:7001/mymaster");
    assert!(Address::cluster([""; 0]).is_err());
    assert!(Address::sentinel([""; 0], "mymaster").is_err());
    assert!(Address::sentinel(texts, "").is_err());
    assert!(Address::cluster(["unix:///run/redis.sock"]).is_err());
}

#[test]
fn invalid_addresses_are_named_in_the_error() {
    let texts = [
        ("", "not a URL"),
        ("localhost:6379", "not a URL"),
        ("http://localhost", "unknown scheme"),
        ("redis://", "Missing hostname"),
        ("redis://localhost:port", "not a URL"),
        ("redis://localhost:99999", "not a URL"),
        ("redis://localhost/first", "Invalid database number"),
        ("redis://localhost?protocol=9", "Invalid protocol version"),
        ("redis://0.0.0.0", "wildcard"),
        ("redis://localhost#insecure", "fragment"),
        ("redis-cluster://", "Missing hostname"),
        ("redis-cluster://a,,b", "Missing hostname"),
        ("redis-sentinel://a:26379", "master's name"),
        (
            "redis-sentinel://a:26379/mymaster/x",
            "Invalid database number",
        ),
    ];
    for (text, reason) in texts {
        let error = refused(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_parameter_that_would_be_ignored_is_named_in_the_error() {
    let texts = [
        ("redis://localhost?db=1", "`db`"),
        ("redis://localhost?db=1", "redis://host:6379/1"),
        ("redis://localhost?protocl=resp3", "`protocl`"),
        ("redis://localhost?protocl=resp3", "accepted are protocol"),
        ("redis://localhost?protocol=2&protocol=3", "twice"),
        ("redis://localhost?sentinel_user=u", "`sentinel_user`"),
        (
            "unix:///run/redis.sock?password=x",
            "db, pass, protocol, user",
        ),
        ("redis-cluster://a,b?timeout=1s", "`timeout`"),
        (
            "redis-sentinel://a/main?sentinel_pasword=x",
            "`sentinel_pasword`",
        ),
    ];
    for (text, reason) in texts {
        let error = refused(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
    let list = Address::cluster(["redis://a", "redis://b?db=1"]);
    assert!(list.is_err());
    assert_eq!(
        server("unix:///run/r?db=2&user=u&pass=p&protocol=3")
            .redis_settings()
            .db(),
        2
    );
}

#[test]
fn a_password_is_never_repeated() {
    let texts = [
        "redis://u:hunter2@localhost/hunter2",
        "redis://u:hun/ter2@localhost",
        "redis://u:hunter2@:6379",
        "redis://:hunter2?x@localhost#hunter2",
        "hunter2",
        "hunter2://localhost",
        "redis://localhost?protocol=hunter2",
        "redis-cluster://u:hunter2/x@a,b",
        "redis-sentinel://u:hunter2@a:x/mymaster",
        "redis://localhost?hunter2",
        "redis://u:12?hunter=2&ter2@localhost",
        "redis://localhost?sentinel_password=hunter2",
    ];
    for text in texts {
        let error = refused(text);
        assert!(
            !error.contains("hunter2") && !error.contains("ter2"),
            "{error}"
        );
    }
}

#[cfg(feature = "redis-tls")]
#[test]
fn encrypted_addresses() {
    for scheme in ["rediss", "valkeys"] {
        let server = server(&format!("{scheme}://localhost"));
        assert!(matches!(
            server.addr(),
            ConnectionAddr::TcpTls {
                insecure: false,
                ..
            }
        ));
        let sentinels = sentinels(&format!("{scheme}-sentinel://a/mymaster"));
        assert!(matches!(
            sentinels.addresses[0].addr(),
            ConnectionAddr::TcpTls { .. }
        ));
        assert_eq!(shown(&format!("{scheme}-cluster://a")), "cluster a:6379");
    }
}

#[cfg(not(feature = "redis-tls"))]
#[test]
fn encrypted_addresses_need_a_feature() {
    for text in [
        "rediss://localhost",
        "rediss-cluster://a",
        "valkeys-sentinel://a/mymaster",
    ] {
        assert!(refused(text).contains("`redis-tls`"));
    }
    assert!(matches!(
        server("redis://localhost").addr(),
        ConnectionAddr::Tcp(..)
    ));
}
