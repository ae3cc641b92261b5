//! HAProxy in front of the gateway: clients are told apart as far as it is trusted, and choose no address themselves.

use std::{fs, net::Ipv4Addr, process::Command};

use tempfile::TempDir;
use testkit::programs::{Process, eventually, find, free_port, missing};

use crate::{
    gateway::{Gateway, bounded},
    upstream::Upstream,
    wire::Wire,
};

/// From where HAProxy asks.
const PROXY: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ALICE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const BOB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

fn is_missing() -> bool {
    let there = find("haproxy", None).is_some();
    missing(there, "haproxy", "apt-get install haproxy")
}

/// A gateway that trusts these networks, with HAProxy in front of it.
struct Chain {
    upstream: Upstream,
    _gateway: Gateway,
    _haproxy: Process,
    _folder: TempDir,
    port: u16,
}

impl Chain {
    async fn start(trust: &str, option: &str) -> Self {
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(upstream.port, &[]).await;
        let rules = format!(
            "client_ip: {{trust: [{trust}]}}\nrules: [{{name: each, key: client_ip, quota: 2/day}}]\n"
        );
        fs::write(gateway.folder.path().join("rules.yaml"), rules).unwrap();
        gateway.process.hang_up();
        gateway.says("read the rules again").await;
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let config = format!(
            "global
                 nbthread 1
             defaults
                 mode http
                 timeout connect 60s
                 timeout client 60s
                 timeout server 60s
             frontend clients
                 bind 127.0.0.1:{port}
                 {option}
                 default_backend gateway
             backend gateway
                 http-reuse always
                 server gateway 127.0.0.1:{} source {PROXY}\n",
            gateway.port
        );
        fs::write(folder.path().join("config"), config).unwrap();
        let mut command = Command::new(find("haproxy", None).unwrap());
        command
            .current_dir(folder.path())
            .args(["-db", "-f", "config"]);
        let mut haproxy = Process::start(&mut command, &folder.path().join("log"));
        eventually("a proxy that listens", async || {
            assert!(!haproxy.has_ended(), "{}", haproxy.log());
            Wire::try_connect(port).await.map(drop)
        })
        .await;
        Self {
            upstream,
            _gateway: gateway,
            _haproxy: haproxy,
            _folder: folder,
            port,
        }
    }

    /// The status for a client that asks from there, and says this of where it is.
    async fn status(&self, from: Ipv4Addr, said: &str) -> u16 {
        let mut wire = Wire::connect_from(from, self.port).await;
        let said = match said {
            "" => String::new(),
            addresses => format!("\nx-forwarded-for: {addresses}"),
        };
        let lines = format!("GET / HTTP/1.1\nconnection: close{said}");
        wire.answer(&lines).await.0.status()
    }
}

#[tokio::test]
async fn clients_behind_haproxy_are_limited_each_whatever_they_say() {
    if is_missing() {
        return;
    }
    bounded(async {
        let chain = Chain::start("127.0.0.1", "option forwardfor").await;
        for client in [ALICE, BOB] {
            assert_eq!(chain.status(client, "").await, 200);
            // HAProxy adds a line, and what stands before it is nobody's word.
            assert_eq!(chain.status(client, "192.0.2.1, 127.0.0.1").await, 200);
            for said in ["", "192.0.2.2", "127.0.0.1", "unknown"] {
                assert_eq!(chain.status(client, said).await, 429, "{client} {said}");
            }
        }
        let (first, _) = chain.upstream.asked().remove(0);
        let list = first.field("x-forwarded-for");
        assert_eq!(list, Some("127.0.0.2, 127.0.0.1"));
    })
    .await;
}

#[tokio::test]
async fn without_trust_haproxy_is_the_client() {
    if is_missing() {
        return;
    }
    bounded(async {
        let chain = Chain::start("192.0.2.0/24", "option forwardfor").await;
        for (client, status) in [(ALICE, 200), (BOB, 200), (ALICE, 429), (BOB, 429)] {
            assert_eq!(chain.status(client, "").await, status, "{client}");
        }
        let (first, _) = chain.upstream.asked().remove(0);
        assert_eq!(first.field("x-forwarded-for"), Some("127.0.0.1"));
    })
    .await;
}

/// The trap that the page on the service tells of.
#[tokio::test]
async fn haproxy_that_lets_clients_say_who_they_are_is_no_proxy_to_trust() {
    if is_missing() {
        return;
    }
    bounded(async {
        let chain = Chain::start("127.0.0.1", "option forwardfor if-none").await;
        for said in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
            assert_eq!(chain.status(ALICE, said).await, 200, "{said}");
        }
    })
    .await;
}
