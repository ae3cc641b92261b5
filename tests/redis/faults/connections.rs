//! Redis cannot be reached, or is silent.

use std::time::Duration;

use redis::Value;
use testkit::{
    needs,
    servers::{Flow, Proxy, Server},
};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};
use tower_ratelimit::store::StoreErrorKind::{Disconnected, Timeout};

use super::load_through_fault::{DEADLINE, Trial};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_there_at_the_start() {
    needs!(redis);
    let mut server = Server::start().await;
    server.kill9();
    let mut trial = Trial::start("not there", &server.url());
    trial.fails(&[Disconnected]).await;
    server.restart().await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_refused() {
    needs!(redis);
    let server = Server::start().await;
    let mut proxy = Proxy::before(server.address()).await;
    let mut trial = Trial::start_well("refused", &server.url_through(proxy.port())).await;
    proxy.refuse().await;
    trial.fails(&[Disconnected]).await;
    proxy.accept().await;
    trial.recovers().await;
}

async fn lost_in(flow: Flow, what: &'static str) {
    let server = Server::start().await;
    let proxy = Proxy::before(server.address()).await;
    let mut trial = Trial::start_well(what, &server.url_through(proxy.port())).await;
    proxy.set(flow);
    // New connections are taken, and answer nothing.
    trial.fails(&[Timeout, Disconnected]).await;
    proxy.set(Flow::Forward);
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_are_dropped() {
    needs!(redis);
    lost_in(Flow::BlackHole, "black hole").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_are_dropped() {
    needs!(redis);
    lost_in(Flow::BlackHoleResponses, "black hole for responses").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_takes_longer_than_the_deadline() {
    needs!(redis);
    lost_in(Flow::Delay(DEADLINE), "slow").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_killed_and_restarted() {
    needs!(redis);
    let mut server = Server::start().await;
    let mut trial = Trial::start_well("killed", &server.url()).await;
    server.kill9();
    trial.fails(&[Disconnected]).await;
    server.restart().await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_hangs_for_two_seconds() {
    needs!(redis);
    let server = Server::start().await;
    let mut trial = Trial::start_well("hung", &server.url()).await;
    server.pause();
    trial.fails(&[Timeout, Disconnected]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.resume();
    server.answered().await;
    trial.recovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_break_again_and_again() {
    needs!(redis);
    let server = Server::start().await;
    let trial = Trial::start_patient("killed connections", &server.url()).await;
    for _ in 0..5 {
        server
            .send::<Value>(["CLIENT", "KILL", "TYPE", "normal"])
            .await
            .unwrap();
        trial.works().await;
    }
    trial.continues().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_answers() {
    needs!(redis);
    let mut server = Server::start().await;
    server.kill9();
    let listener = TcpListener::bind(server.address()).await.unwrap();
    let web = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
            // A client that hung up does not get it.
            let _ = stream.write_all(answer).await;
        }
    });
    let mut trial = Trial::start("something else", &server.url());
    trial.fails(&[Disconnected]).await;
    web.abort();
    assert!(web.await.unwrap_err().is_cancelled());
    server.restart().await;
    trial.recovers().await;
}
