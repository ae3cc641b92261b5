//! Fields of forwarded requests and responses.

use std::net::Ipv4Addr;

use crate::{
    gateway_process::{Gateway, bounded},
    raw_http1::{Head, Wire},
    recording_upstream::Upstream,
};

/// The forwarded head of this request from that address.
async fn handed_on(from: Ipv4Addr, lines: &str) -> Head {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let mut wire = Wire::connect_from(from, gateway.port).await;
        wire.request(lines).await;
        assert_eq!(wire.message().await.unwrap().0.status(), 200);
        upstream.only().0
    })
    .await
}

const SOMEBODY: Ipv4Addr = Ipv4Addr::LOCALHOST;
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);

const TOLD: &str = "GET /a%2Fb/../c?d=%20e HTTP/1.1\nhost: shop.example\nx-forwarded-for: 192.0.2.1\n\
    x-forwarded-for: 192.0.2.2\nx-forwarded-proto: https\nx-forwarded-host: reported.example\n\
    x-forwarded-port: 443\nx-real-ip: 192.0.2.1\nforwarded: for=192.0.2.1\nvia: 1.1 front\n\
    x_forwarded_for: 192.0.2.1\nX-Real_IP: 192.0.2.1\nx-own_field: 1\n\
    X-Original-URL: /admin\nx-rewrite-url: /admin\nx_rewrite_url: /admin\n\
    X-HTTP-Method-Override: PUT\nx-http-method: PUT\nx-method-override: PUT\nx_method.override: PUT\n\
    x-forwarded-prefix: /admin\nx-forwarded-uri: /admin\nx-forwarded-method: PUT\n\
    x-original-uri: /admin\nx-original-method: PUT";

#[tokio::test]
async fn only_trusted_proxies_report_clients() {
    let head = handed_on(SOMEBODY, TOLD).await;
    assert_eq!(head.first_line(), "GET /a%2Fb/../c?d=%20e HTTP/1.1");
    assert_eq!(head.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(head.field("x-forwarded-proto"), Some("http"));
    assert_eq!(head.field("x-forwarded-host"), Some("shop.example"));
    assert_eq!(head.field("host"), Some("shop.example"));
    assert_eq!(head.field("via"), Some("1.1 tower-ratelimit"));
    for gone in [
        "x-forwarded-port",
        "x-real-ip",
        "forwarded",
        "x_forwarded_for",
        "x-real_ip",
        "x-original-url",
        "x-rewrite-url",
        "x_rewrite_url",
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
        "x_method.override",
        "x-forwarded-prefix",
        "x-forwarded-uri",
        "x-forwarded-method",
        "x-original-uri",
        "x-original-method",
    ] {
        assert_eq!(head.field(gone), None, "{gone}");
    }
    assert_eq!(head.field("x-own_field"), Some("1"));
}

#[tokio::test]
async fn trusted_proxies_are_believed_and_added() {
    let head = handed_on(PROXY, TOLD).await;
    let list = head.field("x-forwarded-for");
    assert_eq!(list, Some("192.0.2.1, 192.0.2.2, 127.0.0.7"));
    assert_eq!(head.field("x-forwarded-proto"), Some("https"));
    assert_eq!(head.field("x-forwarded-host"), Some("reported.example"));
    assert_eq!(head.field("forwarded"), Some("for=192.0.2.1"));
    assert_eq!(head.field("x-original-url"), Some("/admin"));
    assert_eq!(head.field("x-http-method-override"), Some("PUT"));
    assert_eq!(head.field("x-forwarded-prefix"), Some("/admin"));
    assert_eq!(head.all("via"), ["1.1 front", "1.1 tower-ratelimit"]);
}

#[tokio::test]
async fn field_of_a_trusted_proxy_that_is_no_address_is_logged_once() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let requests = [
            (SOMEBODY, "nobody's word"),
            (PROXY, "192.0.2.1"),
            (PROXY, "192.0.2.1, a secret"),
            (PROXY, "another secret"),
        ];
        for (number, (from, list)) in requests.into_iter().enumerate() {
            let lines = format!("GET / HTTP/1.1\nx-forwarded-for: {list}");
            let mut wire = Wire::connect_from(from, gateway.port).await;
            assert_eq!(wire.answer(&lines).await.0.status(), 200);
            let is_logged = gateway.process.log().contains("x-forwarded-for");
            assert!(!is_logged || number >= 2, "{list}");
        }
        gateway
            .logs("the trusted proxy 127.0.0.7 wrote no address into x-forwarded-for")
            .await;
        let log = gateway.process.log();
        assert_eq!(log.matches("x-forwarded-for").count(), 1, "{log}");
        assert!(!log.contains("secret"), "{log}");
    })
    .await;
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_limited_each() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let status = async |from, client: &str| {
            let mut wire = Wire::connect_from(from, gateway.port).await;
            let lines = format!("GET /limited HTTP/1.1\nx-forwarded-for: {client}");
            wire.answer(&lines).await.0.status()
        };
        for client in ["192.0.2.1", "192.0.2.2"] {
            let reported = [0; 3].map(|_| status(PROXY, client));
            let [first, second, third] = reported;
            assert_eq!([first.await, second.await, third.await], [200, 200, 429]);
        }
        // Another client that sends the address is not believed.
        assert_eq!(status(SOMEBODY, "192.0.2.1").await, 200);
        assert_eq!(status(SOMEBODY, "192.0.2.3").await, 200);
        assert_eq!(status(SOMEBODY, "192.0.2.4").await, 429);
    })
    .await;
}

#[tokio::test]
async fn fields_of_a_connection_end_with_it() {
    let head = handed_on(
        SOMEBODY,
        "GET / HTTP/1.1\nhost: test\nconnection: x-hop, \u{e9}, host\nconnection: keep-alive, TE\nx-hop: 1\n\
         keep-alive: timeout=5\nproxy-connection: keep-alive\nte: gzip, trailers\nx-end: 1\n\
         upgrade: h2c\nauthorization: Basic eA==",
    )
    .await;
    for gone in ["x-hop", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(head.field(gone), None, "{gone}");
    }
    assert_eq!(head.field("te"), Some("trailers"));
    assert_eq!(head.field("connection"), Some("te"));
    assert_eq!(head.field("host"), Some("test"));
    assert_eq!(head.field("x-end"), Some("1"));
    assert_eq!(head.field("authorization"), Some("Basic eA=="));

    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let (head, _) = gateway.connect().await.answer("GET /hop HTTP/1.1").await;
        for gone in ["x-hop", "keep-alive", "connection"] {
            assert_eq!(head.field(gone), None, "{gone}");
        }
        assert_eq!(head.field("x-end"), Some("1"));
        assert_eq!(head.all("set-cookie"), ["a", "b"]);
    })
    .await;
}

#[tokio::test]
async fn connection_cannot_take_off_what_the_gateway_adds() {
    let head = handed_on(
        SOMEBODY,
        "GET / HTTP/1.1\nhost: test\nconnection: close, x-forwarded-for, via, x-forwarded-proto",
    )
    .await;
    assert_eq!(head.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(head.field("x-forwarded-proto"), Some("http"));
    assert_eq!(head.field("via"), Some("1.1 tower-ratelimit"));
}

#[tokio::test]
async fn connection_cannot_remove_fields_of_a_trusted_proxy() {
    let names = "x-forwarded-for, X-Forwarded-Proto, x-forwarded-host, forwarded, via, x-real-ip";
    let head = handed_on(PROXY, &format!("{TOLD}\nconnection: close, {names}")).await;
    let list = head.field("x-forwarded-for");
    assert_eq!(list, Some("192.0.2.1, 192.0.2.2, 127.0.0.7"));
    assert_eq!(head.field("x-forwarded-proto"), Some("https"));
    assert_eq!(head.field("x-forwarded-host"), Some("reported.example"));
    assert_eq!(head.field("x-real-ip"), Some("192.0.2.1"));
    assert_eq!(head.field("forwarded"), Some("for=192.0.2.1"));
    assert_eq!(head.all("via"), ["1.1 front", "1.1 tower-ratelimit"]);
}

#[tokio::test]
async fn connection_cannot_take_off_the_field_of_the_client() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let rules = "client_ip: {trust: [127.0.0.7], header: cf-connecting-ip}\nrules: [{name: a, key: client_ip, quota: 9/s}]";
        std::fs::write(gateway.folder.path().join("rules.yaml"), rules).unwrap();
        gateway.process.hang_up();
        gateway.logs("read the rules again").await;
        let mut wire = Wire::connect_from(PROXY, gateway.port).await;
        let lines = "GET / HTTP/1.1\nconnection: cf-connecting-ip\ncf-connecting-ip: 192.0.2.1";
        wire.answer(lines).await;
        assert_eq!(upstream.only().0.field("cf-connecting-ip"), Some("192.0.2.1"));
    })
    .await;
}

#[tokio::test]
async fn host_is_that_of_the_target_if_it_has_one() {
    let lines = "GET http://shop.example:81/a HTTP/1.1\nhost: shop.example";
    let head = handed_on(SOMEBODY, lines).await;
    assert_eq!(head.first_line(), "GET /a HTTP/1.1");
    assert_eq!(head.field("host"), Some("shop.example:81"));
    assert_eq!(head.field("x-forwarded-host"), Some("shop.example:81"));
}

/// A proxy that forwards its client's `Connection` also writes fields of its own.
#[tokio::test]
async fn client_cannot_take_off_a_field_of_a_trusted_proxy() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let lines = "GET / HTTP/1.1\nconnection: x-user, keep-alive\nx-user: eve\nkeep-alive: 5";
        for from in [Ipv4Addr::new(127, 0, 0, 7), Ipv4Addr::LOCALHOST] {
            Wire::connect_from(from, gateway.port)
                .await
                .answer(lines)
                .await;
        }
        let requests = upstream.requests();
        assert_eq!(requests[0].0.field("x-user"), Some("eve"));
        assert_eq!(requests[0].0.field("keep-alive"), None);
        // Without a proxy, a client can remove only its own fields.
        assert_eq!(requests[1].0.field("x-user"), None);
    })
    .await;
}

/// A file of rules next to the usual one.
const OVERFLOWING: &str = "rules:
  - {name: pool, match: {path: /pool}, key: global, quota: 1/day, action: overflow}
";

/// Neither by a field of its own, nor by a name in `Connection`, does a client choose its mark.
#[tokio::test]
async fn only_rules_mark_requests_that_overflow() {
    bounded(async {
        let upstream = Upstream::start().await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("overflow.yaml"), OVERFLOWING).unwrap();
        let gateway = Gateway::start_in(folder, upstream.port, &["overflow.yaml"]).await;
        let forged = "x-ratelimit-overflow: mine\nX_RateLimit_Overflow: mine";
        let nominated = "connection: x-ratelimit-overflow\nx-ratelimit-overflow: mine";
        for (from, path, lines) in [
            (SOMEBODY, "/pool", forged),
            (SOMEBODY, "/pool", forged),
            (SOMEBODY, "/pool", nominated),
            (PROXY, "/pool", nominated),
            (SOMEBODY, "/elsewhere", forged),
        ] {
            let mut wire = Wire::connect_from(from, gateway.port).await;
            let lines = format!("GET {path} HTTP/1.1\n{lines}");
            assert_eq!(wire.answer(&lines).await.0.status(), 200);
        }
        let requests = upstream.requests();
        let marks = requests
            .iter()
            .map(|(head, _)| head.all("x-ratelimit-overflow"));
        let marks: Vec<Vec<&str>> = marks.map(|marks| marks.to_vec()).collect();
        assert_eq!(
            marks,
            [vec![], vec!["pool"], vec!["pool"], vec!["pool"], vec![]]
        );
        for (head, _) in &requests {
            assert_eq!(head.field("x_ratelimit_overflow"), None);
        }
    })
    .await;
}

/// The fields that rules read to match, key, price and rank a request.
const BY_FIELDS: &str = "client_ip: {trust: [127.0.0.7]}
rules:
  - {name: own, match: {path: /allow, header: {x-plan: internal}}, action: allow}
  - {name: anybody, match: {path: /allow}, key: global, quota: 5/day}
  - {name: refused, match: {path: /deny, not: {header: {x-token: true}}}, action: deny}
  - {name: keyed, match: {path: /key}, key: {header: x-api-key}, quota: 5/day}
  - {name: host, match: {path: /host}, key: {header: x-forwarded-host}, quota: 5/day}
  - {name: priced, match: {path: /cost}, key: global, quota: 20/day, cost: {default: 1, header: {name: x-cost, max: 4}}}
  - name: ranked
    match: {path: /rank}
    key: global
    quota: 10/day
    priority: {header: x-class, shares: {now: 100}, default: 50}
";

async fn passed(
    gateway: &Gateway,
    from: Ipv4Addr,
    requests: impl Iterator<Item = String>,
) -> usize {
    let mut passed = 0;
    for lines in requests {
        let mut wire = Wire::connect_from(from, gateway.port).await;
        passed += usize::from(wire.answer(&lines).await.0.status() == 200);
    }
    passed
}

#[tokio::test]
async fn rules_see_no_field_that_a_client_takes_off() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(BY_FIELDS, upstream.port, &[]).await;
        for (path, fields, most) in [
            ("/key", "connection: x-api-key\nx-api-key: made-up-N", 5),
            (
                "/key",
                "connection: close, X-API-Key\nx-api-key: again-N",
                0,
            ),
            ("/allow", "connection: x-plan\nx-plan: internal", 5),
            ("/deny", "connection: x-token\nx-token: N", 0),
            ("/cost", "connection: x-cost\nx-cost: 4", 20),
            ("/rank", "connection: x-class\nx-class: now", 5),
            ("/host", "x-forwarded-host: N", 5),
            ("/host", "X_Forwarded_Host: N", 0),
        ] {
            let lines = |number: u32| {
                let fields = fields.replace('N', &number.to_string());
                format!("GET {path} HTTP/1.1\n{fields}")
            };
            let passed = passed(&gateway, SOMEBODY, (0..40).map(lines)).await;
            assert_eq!(passed, most, "{path} {fields}");
        }
        let gone = ["x-api-key", "x-plan", "x-token", "x-cost", "x-class"];
        for (head, _) in upstream.requests() {
            assert!(
                gone.iter().all(|gone| head.field(gone).is_none()),
                "{head:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn rules_see_the_fields_that_a_trusted_proxy_hands_on() {
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(BY_FIELDS, upstream.port, &[]).await;
        for fields in ["connection: x-api-key\nx-api-key: N", "x-forwarded-host: N"] {
            let path = if fields.contains("api") {
                "/key"
            } else {
                "/host"
            };
            let lines = |number: u32| {
                let fields = fields.replace('N', &number.to_string());
                format!("GET {path} HTTP/1.1\n{fields}")
            };
            assert_eq!(
                passed(&gateway, PROXY, (0..10).map(lines)).await,
                10,
                "{fields}"
            );
        }
    })
    .await;
}

/// Rules by a field about the connection apply as the upstream gets it, whatever the client wrote.
#[tokio::test]
async fn rules_see_the_fields_about_the_connection_that_are_handed_on() {
    let rules = "rules:
  - {name: sockets, match: {header: {upgrade: websocket}}, key: global, quota: 2/day}
  - {name: chunks, match: {header: {transfer-encoding: chunked}}, action: deny}
  - {name: trailers, match: {header: {te: trailers}}, action: deny}
  - {name: named, match: {header: {host: '*:81'}}, action: deny}
";
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(rules, upstream.port, &[]).await;
        let status = async |lines: &str| gateway.connect().await.answer(lines).await.0.status();
        let socket = "GET /chat HTTP/1.1\nConnection: UPGRADE, upgrade\nupgrade: WebSocket\n\
            sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\nsec-websocket-version: 13";
        let statuses = [
            status(socket).await,
            status(socket).await,
            status(socket).await,
        ];
        assert_eq!(statuses, [101, 101, 429]);
        // None of these switches to another protocol.
        for lines in [
            "upgrade: websocket",
            "connection: upgrade\nupgrade: websocket, h2c",
        ] {
            assert_eq!(
                status(&format!("GET / HTTP/1.1\n{lines}")).await,
                200,
                "{lines}"
            );
        }
        assert_eq!(status("GET / HTTP/1.1\nte: trailers;q=0").await, 200);
        assert_eq!(status("GET / HTTP/1.1\nte: gzip, Trailers").await, 403);
        assert_eq!(status("GET http://test:81/ HTTP/1.1").await, 403);
        let mut wire = gateway.connect().await;
        wire.request("POST / HTTP/1.1\nhost: test\nTransfer-Encoding: Chunked")
            .await;
        wire.send("0\r\n\r\n").await;
        assert_eq!(wire.message().await.unwrap().0.status(), 403);
    })
    .await;
}

#[tokio::test]
async fn no_case_of_a_method_passes_a_limit() {
    let rules = "rules:
  - {name: login, match: {method: POST, path: /login}, key: global, quota: 2/day}
  - {name: free, match: {method: GET, path: /free}, action: allow}
  - {name: rest, match: {path: /free}, key: global, quota: 1/day}
";
    bounded(async {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start_with(rules, upstream.port, &[]).await;
        for (method, path, status) in [
            ("POST", "/login", 200),
            ("POSt", "/login", 200),
            ("post", "/login", 429),
            ("pOST", "/login", 429),
            ("GET", "/free", 200),
            ("get", "/free", 200),
            ("gET", "/free", 429),
            ("GET", "/free", 200),
            ("Connect", "/", 501),
        ] {
            let lines = format!("{method} {path} HTTP/1.1");
            let mut wire = gateway.connect().await;
            assert_eq!(wire.answer(&lines).await.0.status(), status, "{lines}");
        }
    })
    .await;
}
