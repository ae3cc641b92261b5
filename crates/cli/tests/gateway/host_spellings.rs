//! Invalid hosts: two upstreams that route by the host, each in its way, behind rules of a host.

use std::fs;

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::Wire,
    recording_upstream::Upstream,
    server_processes::{Program, is_missing},
};

/// Spellings of the limited host that an upstream may accept and rules once did not match.
const SPELLINGS: [&str; 18] = [
    "shop.example:80:80",
    "u@shop.example",
    "u:p@shop.example",
    "shop.example/",
    "shop.example/x",
    "shop.example#",
    "shop.example#x",
    "shop.example?",
    "shop.example?x",
    "shop.example\\x",
    "%73hop.example",
    "shop.ex%61mple",
    "shop.example,x",
    "shop.example x",
    "shop.example:80a",
    "shop..example",
    "sh\u{f6}p.example",
    "\u{ff53}hop.example",
];

const RULES: &str = "rules:
  - {name: shop, match: {host: shop.example}, key: global, quota: 2/day}
";

/// nginx, which counts the requests of the shop.
const NGINX: &str = "daemon off;
error_log log;
pid pid;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server { listen 127.0.0.1:PORT default_server; return 200 other; }
    server { listen 127.0.0.1:PORT; server_name shop.example; return 200 shop; }
}
";

/// A server that makes a URL of the field, as many frameworks do.
const PYTHON: &str = "
import http.server, urllib.parse

class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        host = self.headers['Host'] or ''
        try:
            url = urllib.parse.urlsplit('http://' + host + self.path)
            name = urllib.parse.unquote((url.hostname or '').removesuffix('.'))
        except ValueError:
            name = ''
        body = b'shop' if name == 'shop.example' else b'other'
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(('127.0.0.1', PORT), Server).serve_forever()
";

async fn gateway(upstream: u16) -> Gateway {
    let gateway = Gateway::start(upstream, &[]).await;
    fs::write(gateway.folder.path().join("rules.yaml"), RULES).unwrap();
    gateway.process.hang_up();
    gateway.logs("read the rules again").await;
    gateway
}

/// The status of a request with this host, and the site that responded.
async fn request(port: u16, host: &str) -> (u16, String) {
    let mut wire = Wire::connect(port).await;
    wire.request(&format!("GET / HTTP/1.1\nhost: {host}")).await;
    let (head, body) = wire.message().await.expect("an answer");
    (head.status(), body)
}

/// No spelling of the host reaches the site, whose limit is exhausted.
async fn holds(program: &str, arguments: &[&str], config: &str) {
    let config = |port: u16| config.replace("PORT", &port.to_string());
    let server = Program::start(program, arguments, config).await;
    let gateway = gateway(server.port).await;
    let spelled = ["shop.example", "SHOP.example.:80"];
    for host in spelled {
        assert_eq!(request(gateway.port, host).await, (200, "shop".into()));
    }
    let other = request(gateway.port, "other.example").await;
    assert_eq!(other, (200, "other".into()));
    for host in spelled {
        assert_eq!(request(gateway.port, host).await.0, 429, "{host}");
    }
    let mut evaded = Vec::new();
    for host in SPELLINGS {
        let (status, site) = request(gateway.port, host).await;
        if status != 400 {
            evaded.push((host, status, site));
        }
    }
    assert!(evaded.is_empty(), "{evaded:?}");
}

#[tokio::test]
async fn spellings_of_a_host_do_not_pass_to_nginx() {
    if is_missing("nginx", "nginx-light") {
        return;
    }
    bounded(async {
        let arguments = ["-p", ".", "-c", "config", "-e", "log"];
        holds("nginx", &arguments, NGINX).await;
    })
    .await;
}

#[tokio::test]
async fn spellings_of_a_host_do_not_pass_to_a_server_that_parses_urls() {
    if is_missing("python3", "python3") {
        return;
    }
    bounded(async {
        holds("python3", &["config"], PYTHON).await;
    })
    .await;
}

#[tokio::test]
async fn hosts_that_disagree_are_refused() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = gateway(upstream.port).await;
        for (lines, status) in [
            (
                "GET http://shop.example:81/ HTTP/1.1\nhost: shop.example",
                200,
            ),
            (
                "GET http://shop.example/ HTTP/1.1\nhost: other.example",
                400,
            ),
            (
                "GET http://other.example/ HTTP/1.1\nhost: shop.example",
                400,
            ),
            (
                "GET http://other.example/ HTTP/1.1\nhost: other.example/",
                400,
            ),
            ("GET http://other.example/ HTTP/1.1\nhost:", 400),
            (
                "GET http://u@other.example/ HTTP/1.1\nhost: other.example",
                400,
            ),
            (
                "GET http://%6fther.example/ HTTP/1.1\nhost: other.example",
                400,
            ),
            ("GET / HTTP/1.1\nhost:", 400),
            ("GET / HTTP/1.0\nhost:", 400),
            ("GET / HTTP/1.0\nhost: shop.example/", 400),
            ("GET / HTTP/1.0", 200),
            ("GET / HTTP/1.1\nhost: [::1]:80", 200),
            ("GET / HTTP/1.1\nhost: [::1", 400),
            ("GET / HTTP/1.1\nhost: [fe80::1%25lo]", 400),
            ("GET / HTTP/1.1\nhost: ::1", 400),
            ("GET / HTTP/1.1\nhost: 127.0.0.1", 200),
            ("GET / HTTP/1.1\nhost: 127.1", 400),
            ("GET / HTTP/1.1\nhost: 0x7f000001", 400),
            ("GET / HTTP/1.1\nhost: under_score", 200),
        ] {
            let mut wire = gateway.connect().await;
            wire.request(&format!("{lines}\nconnection: close")).await;
            let answer = wire.message().await.expect("an answer").0;
            assert_eq!(answer.status(), status, "{lines:?}");
        }
    })
    .await;
}
