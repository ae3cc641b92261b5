//! Responses that begin before the request's body has ended. The connection either takes another
//! request or announces that it closes, and no response is lost to a reset.

use testkit::child_processes::free_port;

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
    server_processes::{Program, is_missing},
};

/// Bytes that the gateway reads after its response, to keep the connection.
const SHORT: usize = 100_000;

/// More bytes than the gateway reads.
const LONG: usize = 900_000;

/// A request to the limited path or another one.
fn post(path: &str, length: usize) -> String {
    let body = "x".repeat(length);
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// A gateway with an exhausted limit of `/limited`.
async fn exhausted(upstream: &Upstream, options: &[&str]) -> Gateway {
    let gateway = Gateway::start(upstream.port, options).await;
    for _ in 0..2 {
        let (head, _) = gateway
            .connect()
            .await
            .answer("GET /limited HTTP/1.1")
            .await;
        assert_eq!(head.status(), 200);
    }
    gateway
}

/// The response to a request, and the connection after it.
async fn exchange(mut wire: Wire, request: String) -> (Option<Head>, Wire) {
    wire.send(request).await;
    let head = wire.message().await.map(|(head, _)| head);
    (head, wire)
}

#[tokio::test]
async fn connection_of_a_denied_upload_takes_the_next_request() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = exhausted(&upstream, &["--max-body", "1m"]).await;
        let mut kept = 0;
        for _ in 0..100 {
            let wire = gateway.connect().await;
            let (head, mut wire) = exchange(wire, post("/limited", SHORT)).await;
            let head = head.expect("a response");
            assert_eq!((head.status(), head.field("connection")), (429, None));
            wire.send(post("/next", 3)).await;
            let next = wire.message().await;
            kept += usize::from(next.is_some_and(|(head, _)| head.status() == 200));
        }
        assert_eq!(kept, 100);
    })
    .await;
}

/// With each status that the gateway itself responds with.
#[tokio::test]
async fn response_before_a_long_body_announces_the_close() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = exhausted(&upstream, &["--max-body", "1m"]).await;
        let nobody = Gateway::start(free_port(), &[]).await;
        let twice = "POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\n";
        let requests = [
            (429, &gateway, post("/limited", LONG)),
            (413, &gateway, post("/", 2 << 20)),
            (
                400,
                &gateway,
                post("/", LONG).replacen("host: test", "host: a\r\nhost: b", 1),
            ),
            (502, &nobody, post("/", LONG)),
            (
                429,
                &gateway,
                "POST /limited HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"
                    .to_owned(),
            ),
            (
                400,
                &gateway,
                format!("{twice}content-length: 9\r\nexpect: 100-continue\r\n\r\n"),
            ),
        ];
        for (status, gateway, request) in requests {
            let begin = &request[..request.len().min(60)];
            let (head, mut wire) = exchange(gateway.connect().await, request.clone()).await;
            let head = head.expect(begin);
            assert_eq!(head.status(), status, "{begin:?}");
            assert_eq!(head.field("connection"), Some("close"), "{begin:?}");
            assert_eq!(wire.rest().await, b"", "{begin:?}");
        }
    })
    .await;
}

/// A proxy in front of the gateway that keeps connections to it.
struct Proxied {
    _gateway: Gateway,
    _upstream: Upstream,
    proxy: Program,
}

impl Proxied {
    async fn start(program: &str, arguments: &[&str], config: impl Fn(u16, u16) -> String) -> Self {
        let upstream = Upstream::start().await;
        let gateway = exhausted(&upstream, &[]).await;
        let proxy = Program::start(program, arguments, |port| config(port, gateway.port)).await;
        Self {
            _gateway: gateway,
            _upstream: upstream,
            proxy,
        }
    }

    /// The statuses of requests of these lengths, one after another, each on its own connection; 0
    /// without a response.
    async fn statuses(port: u16, path: &str, lengths: impl Iterator<Item = usize>) -> Vec<u16> {
        let mut statuses = Vec::new();
        for length in lengths {
            let wire = Wire::connect(port).await;
            let (head, _) = exchange(wire, post(path, length)).await;
            statuses.push(head.map_or(0, |head| head.status()));
        }
        statuses
    }

    /// Denied uploads of one client, and concurrent allowed ones of others.
    async fn loses_nothing(&self) {
        let lengths = (0..40).map(|n| 60_000 + n % 8 * 120_000);
        let denied = tokio::spawn(Self::statuses(self.proxy.port, "/limited", lengths));
        let others = [(); 4].map(|()| {
            let lengths = (0..50).map(|_| 2_000);
            tokio::spawn(Self::statuses(self.proxy.port, "/next", lengths))
        });
        let denied = denied.await.unwrap();
        let lost = denied.iter().filter(|status| **status != 429).count();
        let mut of_others = 0;
        for other in others {
            let statuses = other.await.unwrap();
            of_others += statuses.iter().filter(|status| **status != 200).count();
        }
        assert_eq!((lost, of_others), (0, 0), "of 40 and 200");
    }
}

#[tokio::test]
async fn nginx_hands_on_each_denial_of_an_upload() {
    if is_missing("nginx", "nginx") {
        return;
    }
    bounded(async {
        let arguments = ["-p", ".", "-c", "config", "-e", "error.log"];
        let proxied = Proxied::start("nginx", &arguments, |port, gateway| {
            format!(
                "daemon off; master_process off; pid nginx.pid;
                 events {{ worker_connections 512; }}
                 http {{
                     access_log off; client_body_temp_path body; proxy_temp_path proxy;
                     fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                     upstream gateway {{ server 127.0.0.1:{gateway}; keepalive 8; }}
                     server {{
                         listen 127.0.0.1:{port}; client_max_body_size 10m;
                         location / {{
                             proxy_pass http://gateway; proxy_http_version 1.1;
                             proxy_set_header Connection \"\"; proxy_next_upstream off;
                         }}
                     }}
                 }}"
            )
        })
        .await;
        proxied.loses_nothing().await;
    })
    .await;
}

#[tokio::test]
async fn haproxy_hands_on_each_denial_of_an_upload() {
    if is_missing("haproxy", "haproxy") {
        return;
    }
    bounded(async {
        let arguments = ["-db", "-f", "config"];
        let proxied = Proxied::start("haproxy", &arguments, |port, gateway| {
            format!(
                "global
                     nbthread 1
                 defaults
                     mode http
                     timeout connect 60s
                     timeout client 60s
                     timeout server 60s
                     retries 0
                 frontend clients
                     bind 127.0.0.1:{port}
                     default_backend gateway
                 backend gateway
                     http-reuse always
                     server gateway 127.0.0.1:{gateway}\n"
            )
        })
        .await;
        proxied.loses_nothing().await;
    })
    .await;
}
