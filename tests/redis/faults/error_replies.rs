//! Redis answers, but refuses.

use std::hash::{BuildHasher as _, RandomState};

use redis::Value;
use testkit::{child_processes::free_port, needs};
use tower_ratelimit::store::StoreErrorKind::{
    Busy, Disconnected, Loading, Other, OutOfMemory, ReadOnly, Refused, Timeout,
};

use super::load_through_fault::Trial;
use crate::servers::{Server, Setup};

async fn send_command(server: &Server, words: &[&str]) {
    let answer = server.send::<Value>(words).await;
    answer.unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_is_demoted() {
    needs!(redis);
    let (server, other) = tokio::join!(Server::start(), Server::start());
    let mut trial = Trial::start_well("demoted", &server.url()).await;
    let port = other.port().to_string();
    send_command(&server, &["REPLICAOF", "127.0.0.1", &port]).await;
    // It loads what the other one has.
    trial.fails(&[ReadOnly, Loading]).await;
    send_command(&server, &["REPLICAOF", "NO", "ONE"]).await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_has_lost_its_primary_and_serves_nothing_old() {
    needs!(redis);
    let setup = Setup::redis().config("replica-serve-stale-data", "no");
    let server = setup.start().await;
    let mut trial = Trial::start_well("primary lost", &server.url()).await;
    let nobody = free_port().to_string();
    send_command(&server, &["REPLICAOF", "127.0.0.1", &nobody]).await;
    trial.fails(&[ReadOnly]).await;
    send_command(&server, &["REPLICAOF", "NO", "ONE"]).await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_lacks_the_replicas_that_it_must_have() {
    needs!(redis);
    let server = Server::start().await;
    let mut trial = Trial::start_well("no replicas", &server.url()).await;
    send_command(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    trial.fails(&[Other]).await;
    send_command(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_full_and_nothing_is_evicted() {
    needs!(redis);
    let server = Server::start().await;
    let mut trial = Trial::start_well("out of memory", &server.url()).await;
    send_command(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    trial.fails(&[OutOfMemory]).await;
    send_command(&server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_loads_its_data() {
    needs!(redis);
    // A twentieth of a second for every key, and a check of the clients after each.
    let setup = Setup::redis()
        .config("key-load-delay", "50000")
        .config("loading-process-events-interval-bytes", "1024");
    let mut server = setup.start().await;
    for key in 0..60 {
        send_command(&server, &["SET", &key.to_string(), &unlike(2_000)]).await;
    }
    send_command(&server, &["SAVE"]).await;
    let mut trial = Trial::start_well("loading", &server.url()).await;
    server.restart_loading().await;
    trial.fails(&[Loading]).await;
    server.answered().await;
    trial.recovers().await;
}

/// Text that does not get shorter when it is compressed.
fn unlike(length: u64) -> String {
    let hash = |at| RandomState::new().hash_one(at);
    (0..length)
        .map(|at| char::from(b' ' + (hash(at) % 95) as u8))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_busy_with_somebody_elses_script() {
    needs!(redis);
    let setup = Setup::redis().config("lua-time-limit", "50");
    let server = setup.start().await;
    let mut trial = Trial::start_well("busy", &server.url()).await;
    let endless = server.send::<Value>(["EVAL", "while true do end", "0"]);
    let end = async {
        trial.fails(&[Busy, Timeout]).await;
        send_command(&server, &["SCRIPT", "KILL"]).await;
        trial.recovers().await;
    };
    let (killed, ()) = tokio::join!(endless, end);
    assert!(killed.unwrap_err().to_string().contains("killed"));
}

/// A server with a user whose permissions the test changes, and the user's address.
async fn with_user() -> (Server, String) {
    let setup =
        Setup::redis().user("limiter on >sesame ~rl:* -@all +evalsha +script|load +get +set +time");
    let server = setup.start().await;
    let url = format!("redis://limiter:sesame@127.0.0.1:{}", server.port());
    (server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_is_changed() {
    needs!(redis);
    let (server, url) = with_user().await;
    let mut trial = Trial::start_well("password", &url).await;
    send_command(
        &server,
        &["ACL", "SETUSER", "limiter", "resetpass", ">other"],
    )
    .await;
    send_command(&server, &["CLIENT", "KILL", "USER", "limiter"]).await;
    trial.fails(&[Refused]).await;
    send_command(&server, &["ACL", "SETUSER", "limiter", ">sesame"]).await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_password_is_wrong_from_the_start() {
    needs!(redis);
    let (server, url) = with_user().await;
    let mut trial = Trial::start("wrong password", &url.replace("sesame", "guess"));
    trial.fails(&[Refused, Disconnected]).await;
    send_command(&server, &["ACL", "SETUSER", "limiter", ">guess"]).await;
    trial.recovers().await;
}

async fn without(permission: &str, what: &'static str) {
    let (server, url) = with_user().await;
    let mut trial = Trial::start_well(what, &url).await;
    let taken = format!("-{permission}");
    send_command(&server, &["ACL", "SETUSER", "limiter", &taken]).await;
    trial.fails(&[Refused]).await;
    let given = format!("+{permission}");
    send_command(&server, &["ACL", "SETUSER", "limiter", &given]).await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_may_run_no_scripts() {
    needs!(redis);
    without("evalsha", "no scripts").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_users_scripts_may_not_write() {
    needs!(redis);
    without("set", "no writes").await;
}
