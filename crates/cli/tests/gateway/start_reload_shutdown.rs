//! Start, reload and shutdown.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use testkit::child_processes::{eventually, free_port};
use tokio::time::timeout;

use crate::{
    gateway_process::{Gateway, RULES, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
};

/// The error of the process, which exits with 2.
fn fails(arguments: &[&str]) -> String {
    fails_as("gateway", arguments)
}

fn fails_as(name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    let output = command.arg(name).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn faults_are_reported_before_anything_listens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yaml");
    let path = file.to_str().unwrap();
    let upstream = ["--upstream", "http://127.0.0.1:1"];
    assert!(fails(&[&[path], &upstream[..]].concat()).contains("rules.yaml"));
    fs::write(&file, "rules: [{name: a, qouta: 1/day}]").unwrap();
    assert!(fails(&[&[path], &upstream[..]].concat()).contains("qouta"));
    fs::write(&file, "domain: shop\ndescriptors: []").unwrap();
    let error = fails(&[&[path], &upstream[..]].concat());
    assert!(error.contains("`tower-ratelimit serve`"), "{error}");
    fs::write(&file, RULES).unwrap();
    let error = fails_as("serve", &[path]);
    assert!(error.contains("`tower-ratelimit gateway`"), "{error}");
    for (wrong, reported) in [
        ("ftp://127.0.0.1", "an upstream is http://"),
        ("http://127.0.0.1/path", "without a path"),
        ("http://user@127.0.0.1", "an upstream is http://"),
        ("http://127.0.0.1:99999", "no number from 1 to 65535"),
        ("http://127.0.0.1:0", "no number from 1 to 65535"),
        ("http://127.0.0.1:", "no number from 1 to 65535"),
        ("http://[::1]:70000", "no number from 1 to 65535"),
        ("127.0.0.1:1", "--upstream"),
    ] {
        let error = fails(&[path, "--upstream", wrong]);
        assert!(error.contains(reported), "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = fails(&[&[path, "--listen", &address], &upstream[..]].concat());
    assert!(error.contains(&address), "{error}");
    assert!(fails(&[&[path, "--max-body", "10mb"], &upstream[..]].concat()).contains("k, m or g"));
    // An error of a port in use names its option, and how to switch it off.
    let free = ["--listen", "127.0.0.1:0"];
    for (wanted, other) in [("--http", "--admin"), ("--admin", "--http")] {
        let options = [wanted, &address, other, "off"];
        let error = fails(&[&[path], &upstream[..], &free, &options].concat());
        let reported = format!("{wanted}: {address}: ");
        assert!(
            error.contains(&reported) && error.contains("off"),
            "{error}"
        );
    }
    let open = ["--admin", "0.0.0.0:0", "--http", "off"];
    let error = fails(&[&[path], &upstream[..], &free, &open].concat());
    assert!(error.contains("--admin-token-file"), "{error}");
}

#[tokio::test]
async fn watched_files_are_read_when_they_change() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &["--watch"]).await;
        let rules = gateway.folder.path().join("rules.yaml");
        let mut wire = gateway.connect().await;
        let closed = "rules: [{name: closed, action: deny, match: {path: /free}}]";
        fs::write(&rules, closed).unwrap();
        eventually("the new rules", async || {
            let answer = wire.answer("GET /free HTTP/1.1").await;
            (answer.0.status() == 403).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn hang_up_reads_the_rules_again_and_keeps_the_counts() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let rules = gateway.folder.path().join("rules.yaml");
        let mut wire = gateway.connect().await;
        let mut status = async |path: &str| {
            let lines = format!("GET {path} HTTP/1.1");
            wire.answer(&lines).await.0.status()
        };
        for expected in [200, 200, 429] {
            assert_eq!(status("/limited").await, expected);
        }
        fs::write(&rules, "rules: {").unwrap();
        gateway.process.hang_up();
        gateway.logs("stay as they were").await;
        let log = gateway.process.log();
        let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
        assert_eq!(errors.len(), 1, "{log}");
        assert!(errors[0].contains("rules.yaml:1:"), "{log}");
        assert!(
            log.ends_with(&format!("{}\n", errors[0])),
            "one line: {log}"
        );
        assert_eq!(status("/limited").await, 429);
        let more = "  - {name: new, match: {path: /new}, key: client_ip, quota: 1/day}\n";
        fs::write(&rules, format!("{RULES}{more}")).unwrap();
        gateway.process.hang_up();
        gateway.logs("read the rules again").await;
        assert_eq!(status("/limited").await, 429);
        assert_eq!([status("/new").await, status("/new").await], [200, 429]);
    })
    .await;
}

#[tokio::test]
async fn end_answers_those_that_are_there() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &["--drain", "0s"]).await;
        let mut idle = gateway.connect().await;
        assert_eq!(idle.answer("GET / HTTP/1.1").await.1, "ok");
        let mut waits = gateway.connect().await;
        waits.request("GET /wait HTTP/1.1\nhost: test").await;
        let mut streams = gateway.connect().await;
        streams.request("GET /events HTTP/1.1\nhost: test").await;
        streams.head().await.unwrap();
        eventually("the requests", async || {
            (upstream.requests().len() == 3).then_some(())
        })
        .await;
        gateway.process.terminate();
        // A connection without a request closes, and no new one is accepted.
        assert_eq!(idle.rest().await, b"");
        upstream.steps.add_permits(3);
        assert_eq!(waits.message().await.unwrap().1, "waited");
        let mut events = 0;
        while streams.chunk().await.unwrap().is_ok() {
            events += 1;
        }
        assert_eq!(events, 2);
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
        gateway.logs("all requests are answered").await;
    })
    .await;
}

#[tokio::test]
async fn web_sockets_end_with_a_close_frame_after_a_whole_frame() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &["--drain", "0s"]).await;
        let mut wire = gateway.connect().await;
        let lines = "GET /chat HTTP/1.1\nconnection: upgrade\nupgrade: websocket";
        assert_eq!(wire.answer(lines).await.0.status(), 101);
        wire.send(b"\x81\x05he").await;
        assert_eq!(wire.read(4).await.unwrap(), b"\x81\x05HE");
        gateway.process.terminate();
        gateway.logs("not ready any more").await;
        wire.send("llo").await;
        assert_eq!(wire.read(3).await.unwrap(), b"LLO");
        // 1001: the server goes away.
        assert_eq!(wire.read(4).await.unwrap(), b"\x88\x02\x03\xe9");
        drop(wire);
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
        gateway.logs("all requests are answered").await;
    })
    .await;
}

#[tokio::test]
async fn no_request_is_lost_while_the_gateway_ends() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &["--drain", "50ms"]).await;
        let port = gateway.port;
        let clients = (0..8).map(|_| {
            tokio::spawn(async move {
                let mut answers = 0;
                // Until its connection is refused, or closed before it is accepted.
                while let Some(mut wire) = Wire::try_connect(port).await {
                    wire.request("GET / HTTP/1.1\nhost: test").await;
                    let Some((head, body)) = wire.message().await else {
                        break;
                    };
                    assert_eq!(body, "ok");
                    answers += 1;
                    // A closing connection announces it, so that no request is lost.
                    if head.field("connection") == Some("close") {
                        assert_eq!(wire.rest().await, b"");
                    }
                }
                answers
            })
        });
        let clients: Vec<_> = clients.collect();
        eventually("requests", async || {
            (upstream.requests().len() > 50).then_some(())
        })
        .await;
        gateway.process.terminate();
        let mut answers = 0;
        for client in clients {
            answers += client.await.unwrap();
        }
        assert_eq!(answers, upstream.requests().len());
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn second_word_ends_it_at_once() {
    bounded(async {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(upstream.port, &["--drain", "300s"]).await;
        let mut wire = gateway.connect().await;
        let (head, _) = wire.answer("GET / HTTP/1.1").await;
        assert_eq!(head.field("connection"), None);
        gateway.process.terminate();
        gateway.logs("not ready any more").await;
        // Requests are still served, and connections announce that they close.
        let (head, body) = wire.answer("GET / HTTP/1.1").await;
        assert_eq!(body, "ok");
        assert_eq!(head.field("connection"), Some("close"));
        let (_, body) = gateway.connect().await.answer("GET / HTTP/1.1").await;
        assert_eq!(body, "ok");
        gateway.process.terminate();
        eventually("the end", async || {
            gateway.process.has_ended().then_some(())
        })
        .await;
        gateway.logs("a second signal").await;
    })
    .await;
}

#[test]
fn faults_of_certificates_are_reported_before_anything_listens() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [rules, cert, key] = [file("rules.yaml"), file("cert.pem"), file("key.pem")];
    fs::write(&rules, RULES).unwrap();
    let fails = |more: &[&str]| {
        let upstream = ["--upstream", "http://127.0.0.1:1"];
        fails(&[&[&*rules], &upstream[..], more].concat())
    };
    assert!(fails(&["--tls-cert", &cert]).contains("--tls-key"));
    assert!(fails(&["--tls-client-ca", &cert]).contains("--tls-cert"));
    let both = ["--tls-cert", &*cert, "--tls-key", &*key];
    assert!(fails(&both).contains("cert.pem"));
    fs::write(&cert, "").unwrap();
    let error = fails(&both);
    assert!(error.contains("--tls-key"), "{error}");
    fs::write(&key, "").unwrap();
    let error = fails(&both);
    assert!(error.contains("no certificate in PEM"), "{error}");
}

#[tokio::test]
async fn file_that_became_a_directory_leaves_its_rules_in_force() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let file = gateway.folder.path().join("rules.yaml");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        gateway.process.hang_up();
        gateway.logs("stay as they were").await;
        gateway
            .logs("rules.yaml: a directory, where a file was")
            .await;
        for status in [200, 200, 429] {
            let (head, _) = gateway
                .connect()
                .await
                .answer("GET /limited HTTP/1.1")
                .await;
            assert_eq!(head.status(), status);
        }
    })
    .await;
}

/// As if the program that reads the log hangs.
#[tokio::test]
async fn unread_log_blocks_neither_requests_nor_shutdown() {
    bounded(async {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
        let port = free_port();
        let mut process = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"))
            .current_dir(folder.path())
            .args(["gateway", "rules.yaml", "--http", "off"])
            .args([
                "--admin",
                "off",
                "--drain",
                "0s",
                "--log-level",
                "trace,hyper=trace",
            ])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--upstream", &format!("http://127.0.0.1:{}", upstream.port)])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        eventually("a gateway", async || {
            Wire::try_connect(port).await.map(drop)
        })
        .await;
        let requests = async {
            for _ in 0..200 {
                let (head, _) = Wire::connect(port).await.answer("GET / HTTP/1.1").await;
                assert_eq!(head.status(), 200);
            }
        };
        let answered = timeout(Duration::from_secs(30), requests).await;
        if answered.is_err() {
            process.kill().unwrap();
        }
        assert!(answered.is_ok(), "requests wait for the log");
        let terminate = format!("kill -TERM {}", process.id());
        let reported = Command::new("sh").args(["-c", &terminate]).status();
        assert!(reported.unwrap().success());
        eventually("the end", async || process.try_wait().unwrap()).await;
    })
    .await;
}
