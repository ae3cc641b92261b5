//! Options of listeners, and of the store.

use std::fs;

use testkit::{
    child_processes::{eventually, free_port},
    needs,
    servers::{
        Cluster, Sentinels, Server, Setup, ShardingProxy,
        certificates::{CLIENT, make_client_certificate},
    },
};
use tonic::transport::Endpoint;
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    raw_http::get,
    service_process::{Service, about, call},
};

/// As in the image, whose environment sets the address of gRPC.
#[tokio::test]
async fn socket_of_the_file_system_is_in_place_of_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("grpc");
    let path = path.to_str().unwrap();
    let variables = [("TOWER_RATELIMIT_GRPC", "0.0.0.0:1")];
    let service = Service::launch_with(&["--grpc-uds", path], &variables);
    service.ready().await;
    let channel = Endpoint::from_shared(format!("unix://{path}")).unwrap();
    let channel = channel.connect_lazy();
    let answer = call(channel, about("foo", "bar")).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    assert!(
        service.call(about("foo", "bar")).await.is_err(),
        "nobody listens"
    );
}

#[tokio::test]
async fn readiness_can_depend_on_redis() {
    needs!(redis);
    let mut server = Server::start().await;
    let url = server.url();
    let options = ["--redis", &url, "--ready-needs-store"];
    let service = Service::start(&options).await;
    let is = async |path: &'static str, status: u16| {
        eventually("the readiness", async || {
            (get(service.http, path).await.status == status).then_some(())
        })
        .await;
    };
    server.kill9();
    is("/readyz", 503).await;
    is("/healthcheck", 500).await;
    is("/healthz", 200).await;
    // A service that is not ready gets no calls, and checks the store itself.
    server.restart().await;
    is("/readyz", 200).await;

    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let degraded = Service::start(&["--redis", &nobody]).await;
    assert_eq!(get(degraded.http, "/readyz").await.status, 200);
}

#[tokio::test]
async fn password_of_redis_is_in_a_file() {
    needs!(redis);
    let server = Setup::redis().password("p@ss").start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "p@ss\n").unwrap();
    let file = file.to_str().unwrap();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let options = [
        "--redis",
        &url,
        "--redis-password-file",
        file,
        "--redis-deadline",
        "20s",
    ];
    let service = Service::start(&[&options[..], &["--on-failure", "deny"]].concat()).await;
    let answer = service.call(about("foo", "bar")).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
}

/// A rotation: first the server has both passwords, and at last the new one alone.
#[tokio::test]
async fn replaced_password_of_redis_is_read_again() {
    needs!(redis);
    let user = "limiter on >first ~rl:* -@all +evalsha +script|load +get +set +time";
    let server = Setup::redis().user(user).start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "first\n").unwrap();
    let url = format!("redis://limiter@127.0.0.1:{}", server.port());
    let file_option = ["--redis-password-file", file.to_str().unwrap()];
    let options = ["--redis", &url, "--redis-deadline", "20s", "--on-failure"];
    let service = Service::start(&[&file_option[..], &options, &["deny"]].concat()).await;
    let code = async |value: &'static str| {
        let answer = service.call(about("foo", value)).await.ok()?;
        Some(answer.overall_code())
    };
    assert_eq!(code("one").await, Some(Code::Ok));
    let send = async |words: &[&str]| server.send::<()>(words).await.unwrap();
    let connection = async || {
        let list: String = server.send(["CLIENT", "LIST"]).await.unwrap();
        let line = list.lines().find(|line| line.contains("user=limiter"))?;
        line.split(' ').next().map(str::to_owned)
    };

    let first = connection().await;
    send(&["ACL", "SETUSER", "limiter", ">second"]).await;
    fs::write(&file, "second\n").unwrap();
    service.process.hang_up();
    eventually("a new connection", async || {
        let now = connection().await;
        (now.is_some() && now != first).then_some(())
    })
    .await;
    assert_eq!(code("two").await, Some(Code::Ok));

    send(&["ACL", "SETUSER", "limiter", "resetpass", ">third"]).await;
    send(&["CLIENT", "KILL", "USER", "limiter"]).await;
    fs::write(&file, "third\n").unwrap();
    eventually("a decision", async || {
        (code("three").await == Some(Code::Ok)).then_some(())
    })
    .await;
}

/// The default of Redis with TLS asks each client for a certificate.
#[tokio::test]
async fn redis_may_ask_for_a_certificate() {
    needs!(redis, openssl);
    let server = Setup::redis().tls_clients().start().await;
    let authority = server.authority();
    let folder = authority.parent().unwrap();
    make_client_certificate(folder);
    let [certificate, key] = CLIENT.map(|name| folder.join(name));
    let [authority, certificate, key] =
        [&authority, &certificate, &key].map(|file| file.to_str().unwrap());
    let url = server.url();
    let options = [
        ["--redis", &url],
        ["--redis-tls-ca", authority],
        ["--redis-tls-cert", certificate],
        ["--redis-tls-key", key],
        ["--redis-deadline", "20s"],
        ["--on-failure", "deny"],
    ];
    let service = Service::start(options.as_flattened()).await;
    let answer = service.call(about("foo", "bar")).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
}

/// Denials until there is a primary again, and no permanent errors.
async fn counts_before_and_after(url: &str, fail_over: impl AsyncFnOnce()) {
    let options = ["--redis", url, "--redis-deadline", "20s", "--on-failure"];
    let service = Service::start(&[&options[..], &["deny"]].concat()).await;
    let code = async |value: &'static str| {
        let answer = service.call(about("foo", value)).await.ok()?;
        Some(answer.overall_code())
    };
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(code("bar").await, Some(expected));
    }
    fail_over().await;
    for value in ["one", "two", "three"] {
        eventually("a decision by the new primary", async || {
            (code(value).await == Some(Code::Ok)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn service_counts_in_a_cluster_also_after_a_primary_is_gone() {
    needs!(redis);
    let mut cluster = Cluster::start().await;
    let url = cluster.url();
    counts_before_and_after(&url, async || {
        cluster.kill_primary_of(0).await;
        cluster.primary_of(0).await;
    })
    .await;
}

#[tokio::test]
async fn service_counts_by_sentinels_also_after_a_primary_is_gone() {
    needs!(redis);
    let mut sentinels = Sentinels::start(1).await;
    let url = sentinels.url();
    counts_before_and_after(&url, async || {
        sentinels.kill_primary().await;
        sentinels.primary().await;
    })
    .await;
}

async fn redis_decides_behind(proxy: ShardingProxy) {
    let url = proxy.url();
    let redis = ["--redis", &url, "--redis-sharding-proxy"];
    let failure = ["--redis-deadline", "20s", "--on-failure", "deny"];
    let service = Service::start(&[&redis[..], &failure].concat()).await;
    for key in 0..32 {
        let answer = service.call(about("foo", &key.to_string())).await;
        assert_eq!(answer.unwrap().overall_code(), Code::Ok, "{key}");
    }
}

#[tokio::test]
async fn redis_decides_behind_envoy() {
    needs!(redis, envoy);
    redis_decides_behind(ShardingProxy::envoy().await).await;
}

#[tokio::test]
async fn redis_decides_behind_twemproxy() {
    needs!(redis, twemproxy);
    redis_decides_behind(ShardingProxy::twemproxy().await).await;
}
