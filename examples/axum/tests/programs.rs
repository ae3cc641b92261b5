//! Examples, started as programs and called over HTTP.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use testkit::child_processes::{Process, eventually, free_port};

struct Running {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Running {
    /// Starts the example and waits until it takes connections.
    async fn start(program: &str) -> Self {
        let port = free_port();
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.env("PORT", port.to_string());
        let running = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            _process: Process::start(&mut command, &folder.path().join("log")),
            _folder: folder,
        };
        eventually("a process that takes connections", async || {
            TcpStream::connect(running.address).await.ok()
        })
        .await;
        running
    }
}

/// The answer to one request: the status, the fields in lower case, the body.
async fn post(to: SocketAddr, path: &str, json: String) -> (u16, String, String) {
    let length = json.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{json}"
    );
    answer(to, &request).await
}

async fn get(to: SocketAddr, path: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    answer(to, &request).await
}

async fn answer(to: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (
        status,
        format!("{head}\r\n").to_lowercase(),
        body.to_owned(),
    )
}

async fn log_in(to: SocketAddr, user: &str, password: &str) -> (u16, String, String) {
    let json = format!(r#"{{"user":"{user}","password":"{password}"}}"#);
    post(to, "/login", json).await
}

#[tokio::test]
async fn five_failed_logins_of_a_name_and_no_more() {
    let app = Running::start(env!("CARGO_BIN_EXE_login_json")).await;
    let at = app.address;
    // More than five: those that succeed cost nothing.
    for _ in 0..7 {
        assert_eq!(log_in(at, "ann", "correct horse").await.0, 200);
    }
    // Side by side, so that none of them knows what becomes of the others.
    let mut attempts = JoinSet::new();
    for guess in 0..40 {
        attempts.spawn(async move { log_in(at, "ann", &format!("guess {guess}")).await });
    }
    let answers = attempts.join_all().await;
    let failed = answers.iter().filter(|answer| answer.0 == 401).count();
    let denied: Vec<_> = answers.iter().filter(|answer| answer.0 == 429).collect();
    assert_eq!((failed, denied.len()), (5, 35));
    for (_, head, body) in denied {
        for field in [
            "content-type: application/problem+json",
            r#"ratelimit-policy: "failed-logins";q=5;w=900"#,
            r#"ratelimit: "failed-logins";r=0;t="#,
            "x-ratelimit-remaining: 0",
            "retry-after: ",
        ] {
            assert!(head.contains(&format!("\r\n{field}")), "{field}: {head}");
        }
        assert!(
            body.contains(r#""violated-policies":["failed-logins"]"#),
            "{body}"
        );
    }
    assert_eq!(log_in(at, "ann", "correct horse").await.0, 429);
    assert_eq!(log_in(at, "bob", "correct horse").await.0, 200);
}

#[tokio::test]
async fn a_cost_that_only_the_body_has() {
    let app = Running::start(env!("CARGO_BIN_EXE_in_handler")).await;
    let render =
        async |pages: u64| post(app.address, "/render", format!(r#"{{"pages":{pages}}}"#)).await;
    assert_eq!(render(80).await.0, 200);
    // Refunded, or the next one would not fit.
    assert_eq!(render(13).await.0, 500);
    assert_eq!(render(18).await.0, 200);
    let (status, head, body) = render(100).await;
    assert_eq!(status, 429);
    assert!(head.contains(r#"ratelimit: "pages";r="#), "{head}");
    assert!(head.contains("\r\nretry-after: "), "{head}");
    assert!(body.contains(r#""violated-policies":["pages"]"#), "{body}");
}

/// Five are made afresh, and a second server answers the others and counts its answers.
#[tokio::test]
async fn a_second_server_takes_what_the_limit_denies() {
    let app = Running::start(env!("CARGO_BIN_EXE_overflow_to_backup")).await;
    for number in 1..=8 {
        let (status, head, body) = get(app.address, "/report").await;
        let left = 5_u32.saturating_sub(number);
        let field = format!("\r\nx-ratelimit-remaining: {left}\r\n");
        assert!(head.contains(&field), "{head}");
        assert!(!head.contains("\r\nretry-after:"), "{head}");
        let expected = match number {
            ..=5 => "a fresh report\n".to_owned(),
            _ => {
                let answers = number - 5;
                format!("the report of yesterday, answer {answers} of the second server\n")
            }
        };
        assert_eq!((status, body), (200, expected));
    }
}

/// The model reports its tokens in the last event of a stream; more than the limit has are owed.
#[tokio::test]
async fn tokens_of_a_stream_are_charged_and_owed() {
    let app = Running::start(env!("CARGO_BIN_EXE_budgets")).await;
    let complete = async |words: u64| {
        let json = format!(r#"{{"words":{words}}}"#);
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: a\r\n\
             content-length: {}\r\n\r\n{json}",
            json.len()
        );
        answer(app.address, &request).await
    };
    let (status, head, body) = complete(20).await;
    assert_eq!(status, 200);
    assert!(head.contains(r#"ratelimit: "tokens";r=9"#), "{head}");
    assert!(
        body.contains("word19 ") && body.contains("[DONE]"),
        "{body}"
    );
    let request = "GET /left HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-api-key: a\r\n\r\n";
    let (_, _, left) = answer(app.address, request).await;
    let left: u64 = left.split(' ').next().unwrap().parse().unwrap();
    // A few may have come back meanwhile.
    assert!((970..1_000).contains(&left), "{left}");
    assert_eq!(complete(1_500).await.0, 200);
    let (status, head, _) = complete(1).await;
    assert_eq!(status, 429);
    assert!(head.contains("\r\nretry-after: "), "{head}");
}

/// The clock is the program's own, set by requests.
#[tokio::test]
async fn months_of_berlin_and_of_apia_end_at_their_own_midnight() {
    let app = Running::start(env!("CARGO_BIN_EXE_calendar")).await;
    let set = async |second: u64| set_clock(&app, second).await;
    let seen = async |path: &str| {
        let (status, head, _) = get(app.address, path).await;
        (status, retry_after(&head))
    };
    // 2026-03-31T21:59:59Z, and 2026-01-31T10:59:59Z.
    for (path, limit, last) in [("/month", 3, 1_774_994_399), ("/apia", 2, 1_769_857_199)] {
        set(last).await;
        for _ in 0..limit {
            assert_eq!(seen(path).await, (200, None), "{path}");
        }
        assert_eq!(seen(path).await, (429, Some(1)), "{path}");
        set(last + 1).await;
        assert_eq!(seen(path).await, (200, None), "{path}");
    }
    // 2026-03-28T23:00:00Z, a day of 23 hours in Berlin.
    set(1_774_738_800).await;
    let answers = [seen("/day").await, seen("/day").await, seen("/day").await];
    assert_eq!(answers, [(200, None), (200, None), (429, Some(82_800))]);
}

/// The clock is the program's own, set by requests.
#[tokio::test]
async fn a_limit_that_varies_passes_no_burst_where_it_changes() {
    let app = Running::start(env!("CARGO_BIN_EXE_time_of_day")).await;
    // 2026-01-01T07:55Z, 08:00Z, 08:05Z and 08:30Z; the limit, the requests that pass, and the wait of the next.
    for (second, limit, passes, wait) in [
        (1_767_254_100, 10, 5, None),
        (1_767_254_400, 10, 5, Some(1)),
        (1_767_254_700, 15, 8, Some(21)),
        (1_767_256_200, 20, 20, Some(601)),
    ] {
        set_clock(&app, second).await;
        for _ in 0..passes {
            let (status, head, _) = get(app.address, "/report").await;
            assert_eq!(status, 200, "{second}");
            let policy = format!("\r\nratelimit-policy: \"default\";q={limit};w=600\r\n");
            assert!(head.contains(&policy), "{head}");
        }
        if wait.is_some() {
            let (status, head, _) = get(app.address, "/report").await;
            assert_eq!((status, retry_after(&head)), (429, wait), "{second}");
        }
    }
}

/// Sets the clock of a program that has one.
async fn set_clock(app: &Running, second: u64) {
    let request = format!("PUT /clock/{second} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert_eq!(answer(app.address, &request).await.0, 200);
}

/// The seconds of the field.
fn retry_after(head: &str) -> Option<u64> {
    let rest = head.split("retry-after: ").nth(1)?;
    let seconds = rest.split("\r\n").next().unwrap();
    Some(seconds.parse().unwrap())
}

#[test]
fn per_client_and_global_shows_that_a_denial_outside_costs_nobody_else() {
    let run = Command::new(env!("CARGO_BIN_EXE_per_client_and_global")).output();
    let message = String::from_utf8(run.unwrap().stdout).unwrap();
    assert_eq!(message, "alice: 3 of 20 allowed\nbob: 3 of 3 allowed\n");
}
