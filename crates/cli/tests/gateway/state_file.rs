//! `--state`: counts that the next process continues.

use std::fs;

use testkit::child_processes::eventually;

use crate::{
    gateway_process::{Gateway, bounded},
    recording_upstream::Upstream,
};

/// The statuses of requests to the path that has a limit of two a day.
async fn statuses(gateway: &Gateway, requests: usize) -> Vec<u16> {
    let mut wire = gateway.connect().await;
    let mut statuses = Vec::new();
    for _ in 0..requests {
        statuses.push(wire.answer("GET /limited HTTP/1.1").await.0.status());
    }
    statuses
}

async fn ended(gateway: &mut Gateway) {
    let process = &mut gateway.process;
    eventually("the end", async || process.has_ended().then_some(())).await;
}

#[tokio::test]
async fn counts_continue_after_a_shutdown() {
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let options = ["--state", state.to_str().unwrap(), "--drain", "0s"];
        let upstream = Upstream::start().await;
        let mut first = Gateway::start(upstream.port, &options).await;
        assert_eq!(statuses(&first, 1).await, [200]);
        first.process.terminate();
        first.logs("the counts are saved to ").await;
        ended(&mut first).await;
        let second = Gateway::start(upstream.port, &options).await;
        assert_eq!(statuses(&second, 2).await, [200, 429]);
        second.process.logs("1 count restored from ").await;
    })
    .await;
}

#[tokio::test]
async fn damaged_state_starts_afresh_and_is_in_the_log() {
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::write(&state, "no counts").unwrap();
        let options = ["--state", state.to_str().unwrap(), "--drain", "0s"];
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &options).await;
        gateway.logs("state-refused").await;
        assert_eq!(statuses(&gateway, 3).await, [200, 200, 429]);
        assert_eq!(fs::read(&state).unwrap(), b"no counts");
        gateway.process.terminate();
        ended(&mut gateway).await;
        assert_ne!(fs::read(&state).unwrap(), b"no counts");
    })
    .await;
}

#[tokio::test]
async fn state_that_cannot_be_written_loses_no_request() {
    bounded(async {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("missing").join("state");
        let options = ["--state", state.to_str().unwrap(), "--drain", "0s"];
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &options).await;
        assert_eq!(statuses(&gateway, 3).await, [200, 200, 429]);
        gateway.process.terminate();
        let log = gateway.process.logs("the counts are not saved: ").await;
        assert!(log.contains(state.to_str().unwrap()), "{log}");
        ended(&mut gateway).await;
    })
    .await;
}
