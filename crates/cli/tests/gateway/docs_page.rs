//! The example of the page works.

use std::{fs, process::Command};

use testkit::child_processes::{Process, eventually, free_port};

use crate::{gateway_process::bounded, raw_http1::Wire, recording_upstream::Upstream};

const PAGE: &str = include_str!("../../../gateway/docs/gateway.md");

#[tokio::test]
async fn page_leads_from_a_server_to_a_limited_one() {
    let block = |kind: &str| {
        let (_, rest) = PAGE.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    let (rules, command) = (block("yaml"), block("sh"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("limits.yaml"), rules).unwrap();
    bounded(async {
        let (upstream, port) = (Upstream::start().await, free_port());
        let mut command = command.trim().to_owned();
        for (reported, free) in [(":9999", upstream.port), (":8000", port)] {
            assert!(command.contains(reported), "{command}");
            command = command.replace(reported, &format!(":{free}"));
        }
        // The default ports may be in use on this machine.
        let beside = ["HTTP", "ADMIN"].map(|name| (format!("TOWER_RATELIMIT_{name}"), "off"));
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("tower-ratelimit"));
        let mut program = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
        program.current_dir(folder.path()).args(words).envs(beside);
        let _gateway = Process::start(&mut program, &folder.path().join("log"));
        eventually("the gateway", async || {
            Wire::try_connect(port).await.map(drop)
        })
        .await;
        for status in [200, 200, 200, 429] {
            let mut wire = Wire::connect(port).await;
            let (head, _) = wire.answer("GET / HTTP/1.1").await;
            assert_eq!(head.status(), status);
            assert!(head.field("ratelimit").is_some());
            assert_eq!(head.field("retry-after").is_some(), status == 429);
        }
        assert_eq!(upstream.requests().len(), 3);
    })
    .await;
}
