//! Logs of real servers with known requests have the right counts.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use testkit::child_processes::{Process, eventually, find, free_port, missing};
use tokio::task::spawn_blocking;

/// A server that responds 200 to `/` and 401 to `/login`, and its log files.
struct Server {
    program: &'static str,
    package: &'static str,
    arguments: &'static [&'static str],
    config: fn(port: u16, folder: &str) -> String,
}

const NGINX: Server = Server {
    program: "nginx",
    package: "nginx",
    arguments: &["-e", "stderr", "-p", ".", "-c", "config"],
    config: |port, _| {
        format!(
            "daemon off; master_process off; pid nginx.pid; events {{}}
             http {{
                 log_format j escape=json '{{\"msec\":\"$msec\",\"remote_addr\":\"$remote_addr\",'
                     '\"request\":\"$request\",\"status\":\"$status\"}}';
                 access_log access.log combined;
                 access_log access.json j;
                 client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp;
                 uwsgi_temp_path temp; scgi_temp_path temp;
                 server {{
                     listen 127.0.0.1:{port};
                     location / {{ return 200 \"ok\"; }}
                     location /login {{ return 401; }}
                 }}
             }}"
        )
    },
};

const APACHE: Server = Server {
    program: "apache2",
    package: "apache2-bin",
    arguments: &["-X", "-f", "config"],
    config: |port, folder| {
        let modules = ["mpm_event", "authz_core", "alias", "dir"];
        let modules = modules.map(|name| {
            format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
        });
        format!(
            "{}ServerRoot {folder}\nServerName localhost\nListen 127.0.0.1:{port}\n\
             PidFile {folder}/pid\nErrorLog {folder}/error.log\nDocumentRoot {folder}/files\n\
             DefaultRuntimeDir {folder}\n\
             LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\n\
             CustomLog {folder}/access.log combined\n\
             CustomLog {folder}/common.log \"%h %l %u %t \\\"%r\\\" %>s %b\"\n\
             RedirectMatch 401 ^/login\n<Directory {folder}/files>\nRequire all granted\n</Directory>\n",
            modules.concat()
        )
    },
};

const CADDY: Server = Server {
    program: "caddy",
    package: "caddy",
    arguments: &["run", "--config", "config", "--adapter", "caddyfile"],
    config: |port, folder| {
        format!(
            "{{\n admin off\n auto_https off\n}}\nhttp://127.0.0.1:{port} {{\n log {{\n  output file {folder}/access.json\n }}\n \
             respond /login 401\n respond / 200\n}}\n"
        )
    },
};

impl Server {
    fn is_missing(&self) -> bool {
        let there = find(self.program, None).is_some();
        missing(
            there,
            self.program,
            &format!("apt-get install {}", self.package),
        )
    }

    fn start(&self, folder: &Path, port: u16) -> Process {
        let text = folder.display().to_string();
        fs::create_dir_all(folder.join("files")).expect("a folder");
        fs::write(folder.join("files/index.html"), "ok").expect("a file");
        let mut command = Command::new(find(self.program, None).expect("the server"));
        fs::write(folder.join("config"), (self.config)(port, &text)).expect("a file");
        let arguments = self.arguments.iter().map(|argument| match *argument {
            // Apache's own path for it.
            "config" => format!("{text}/config"),
            other => other.to_owned(),
        });
        command.current_dir(folder).args(arguments);
        command.env("HOME", folder).env("XDG_DATA_HOME", folder);
        Process::start(&mut command, &folder.join("printed"))
    }
}

/// Sends a request with credentials, and reads the whole response.
fn fetch(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let head = format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer t\r\n\
         Cookie: session=s\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 203.0.113.7\r\n\
         X-Tenant: a\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn replayed(log: &Path, more: &[&str]) -> Value {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let log = log.display().to_string();
    let arguments = ["tower-ratelimit", "replay", &log, "--json"]
        .into_iter()
        .chain(more.iter().copied());
    let exit = tower_ratelimit_cli::run(arguments, false, &mut out, &mut errors);
    assert!(exit < 2, "{}", String::from_utf8_lossy(&errors));
    serde_json::from_slice(&out).expect("JSON")
}

/// Sends 30 requests and 12 logins, and replays each log of the server, which stays in the folder.
async fn counts(server: &Server, logs: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let mut process = server.start(folder.path(), port);
    eventually("a server that listens", async || {
        assert!(!process.has_ended(), "{}", process.log());
        TcpStream::connect(("127.0.0.1", port)).ok()
    })
    .await;
    for number in 0..42 {
        let (request, status) = match number % 7 {
            0 | 3 => ("POST /login?next=%22%2F\\", " 401 "),
            _ => ("GET /", " 200 "),
        };
        let answer = fetch(port, request).expect("an answer");
        assert!(
            answer
                .lines()
                .next()
                .is_some_and(|line| line.contains(status)),
            "{answer}"
        );
    }
    for log in logs {
        let log = folder.path().join(log);
        let reported = eventually("a log with all requests", async || {
            let reported = replayed(&log, &["--quota", "1/day"]);
            (reported["attempts"].as_u64() >= Some(42)).then_some(reported)
        })
        .await;
        assert_eq!(reported["skipped"], 0, "{reported}");
        assert_eq!(
            (&reported["attempts"], &reported["keys"]),
            (&42.into(), &1.into())
        );
        assert_eq!(reported["quotas"][0]["limited"]["requests"], 41);
        assert_eq!(reported["top"][0]["key"], "127.0.0.1");
        let logins = replayed(
            &log,
            &[
                "--match",
                "POST /login",
                "--count-if",
                "401",
                "--quota",
                "5/day fixed_window",
            ],
        );
        assert_eq!(
            (&logins["attempts"], &logins["other_requests"]),
            (&12.into(), &30.into())
        );
        assert_eq!(logins["quotas"][0]["limited"]["requests"], 7);
    }
    folder
}

#[tokio::test]
async fn logs_of_nginx() {
    if !NGINX.is_missing() {
        drop(counts(&NGINX, &["access.log", "access.json"]).await);
    }
}

#[tokio::test]
async fn logs_of_apache() {
    if !APACHE.is_missing() {
        drop(counts(&APACHE, &["access.log", "common.log"]).await);
    }
}

#[tokio::test]
async fn logs_of_caddy() {
    if !CADDY.is_missing() {
        let folder = counts(&CADDY, &["access.json"]).await;
        // Rules have a runtime of their own.
        let headers = move || headers_of_caddy(&folder.path().join("access.json"), folder.path());
        spawn_blocking(headers).await.expect("an end");
    }
}

/// Caddy writes all headers, but no credentials.
fn headers_of_caddy(log: &Path, folder: &Path) {
    let rules = folder.join("rules.yaml");
    let reported = |rule: &str| {
        let text = format!("rules: [{{name: a, quota: 40/day, {rule}}}]");
        fs::write(&rules, text).expect("a file");
        replayed(log, &["--rules", rules.to_str().expect("a path")])["rules"].take()
    };
    for hidden in ["key: bearer_token", "key: {cookie: session}"] {
        let reported = reported(hidden);
        assert_eq!(reported["limited"]["requests"], 2, "{reported}");
        assert_eq!(reported["not_in_log"][0]["attempts"], 42, "{reported}");
        assert_eq!(reported["not_in_log"][0]["instead"], "ip", "{reported}");
    }
    let shown = reported("key: {header: x-tenant}");
    assert_eq!(shown["limited"]["requests"], 2, "{shown}");
    assert_eq!(shown["not_in_log"], serde_json::json!([]), "{shown}");
    let behind = ["--trust-proxies", "127.0.0.0/8", "--quota", "40/day"];
    assert_eq!(replayed(log, &behind)["top"][0]["key"], "203.0.113.7");
}
