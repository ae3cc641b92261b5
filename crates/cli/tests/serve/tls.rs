//! TLS connections.

use std::{fs, path::PathBuf, process::Command};

use hyper_util::rt::TokioIo;
use testkit::{
    child_processes::eventually,
    needs,
    servers::certificates::{
        AUTHORITY, CERTIFICATE, CLIENT, KEY, make_certificates, make_client_certificate,
    },
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;
use tower_ratelimit_envoy::protobuf_messages::Code;

use crate::{
    service_process::{Service, about, call},
    tls_client::connect,
};

/// A channel that trusts the authority of this folder, and presents its client certificate.
fn channel(port: u16, folder: PathBuf, own: Option<PathBuf>) -> Channel {
    let connector = service_fn(move |_: Uri| {
        let (folder, own) = (folder.clone(), own.clone());
        async move {
            let stream = connect(port, &folder, own.as_deref(), "h2").await;
            stream.map(TokioIo::new)
        }
    });
    Endpoint::from_static("http://127.0.0.1").connect_with_connector_lazy(connector)
}

#[tokio::test]
async fn grpc_and_http_use_tls_by_option() {
    needs!(openssl);
    let certificates = tempfile::tempdir().unwrap();
    let folder = certificates.path();
    make_certificates(folder);
    make_client_certificate(folder);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let [cert, key, ca] = [CERTIFICATE, KEY, AUTHORITY].map(file);
    let options = ["--tls-cert", &*cert, "--tls-key", &*key];

    let service = Service::start(&options).await;
    let channel_of = |own: Option<PathBuf>| channel(service.grpc, folder.to_owned(), own);
    let answer = call(channel_of(None), about("foo", "bar")).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    assert!(
        service.call(about("foo", "bar")).await.is_err(),
        "without TLS"
    );

    let all = [&options[..], &["--tls-client-ca", &ca, "--http-tls"]].concat();
    let service = Service::launch(&all);
    service.process.logs("serving").await;
    let channel_of = |own: Option<PathBuf>| channel(service.grpc, folder.to_owned(), own);
    assert!(call(channel_of(None), about("foo", "bar")).await.is_err());
    let own = Some(folder.to_owned());
    call(channel_of(own), about("foo", "bar")).await.unwrap();
    let stream = connect(service.http, folder, Some(folder), "http/1.1").await;
    let mut stream = stream.unwrap();
    let request = b"GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    // The file with a further line counts as changed.
    let text = fs::read_to_string(&cert).unwrap();
    fs::write(&cert, text + "\n").unwrap();
    service.process.hang_up();
    service.process.logs("read the certificates again").await;
}

/// Whether `healthcheck` reports ready, with these options and variables.
fn is_ready(service: &Service, options: &[&str], variables: &[(&str, &str)]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tower-ratelimit"));
    let address = format!("127.0.0.1:{}", service.http);
    command
        .args(["healthcheck", "--http", &address])
        .args(options);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let reported = String::from_utf8(output.stdout).unwrap();
    assert_eq!(reported == "ready\n", output.status.success(), "{reported}");
    assert!(reported.contains("ready"), "{reported}");
    output.status.success()
}

#[tokio::test]
async fn healthcheck_uses_tls() {
    needs!(openssl);
    let certificates = tempfile::tempdir().unwrap();
    let folder = certificates.path();
    make_certificates(folder);
    make_client_certificate(folder);
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let [cert, key, ca] = [CERTIFICATE, KEY, AUTHORITY].map(file);
    let options = ["--tls-cert", &*cert, "--tls-key", &*key, "--http-tls"];
    let service = Service::launch(&options);
    eventually("a ready service", async || {
        is_ready(&service, &["--http-tls"], &[]).then_some(())
    })
    .await;
    assert!(!is_ready(&service, &[], &[]), "without TLS");

    // A certificate without a name, valid for clients as well.
    let [cert, key] = CLIENT.map(file);
    let variables = [
        ("TOWER_RATELIMIT_TLS_CERT", &*cert),
        ("TOWER_RATELIMIT_TLS_KEY", &*key),
        ("TOWER_RATELIMIT_HTTP_TLS", "true"),
    ];
    let service = Service::launch_with(&["--tls-client-ca", &ca], &variables);
    eventually("a ready service", async || {
        is_ready(&service, &[], &variables).then_some(())
    })
    .await;
    assert!(
        !is_ready(&service, &["--http-tls"], &[]),
        "without a certificate"
    );
    let missing = ["--http-tls", "--tls-cert", "/nowhere", "--tls-key", &*key];
    assert!(!is_ready(&service, &missing, &[]));
}
