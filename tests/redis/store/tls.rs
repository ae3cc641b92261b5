use std::{fs, path::Path};

use testkit::{
    needs,
    servers::certificates::{CLIENT, make_client_certificate},
};
use tower_ratelimit::StoreErrorKind;

use super::{fault, patient};
use crate::servers::Setup;

#[tokio::test]
async fn certificates_of_the_builder_encrypt() {
    needs!(redis, openssl);
    let server = Setup::redis().tls_clients().start().await;
    let authority = server.authority();
    let folder = authority.parent().unwrap_or(Path::new(""));
    make_client_certificate(folder);
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let authority = fs::read(&authority).unwrap();
    let [certificate, key] = CLIENT.map(read);

    let trusting = || patient().tls_authorities(authority.clone());
    let presenting = || trusting().tls_client_certificate(certificate.clone(), key.clone());
    presenting()
        .connect(&server.url())
        .unwrap()
        .check()
        .await
        .unwrap();
    let untrusting = patient().tls_client_certificate(certificate.clone(), key.clone());
    for store in [trusting(), untrusting, patient()] {
        let store = store.connect(&server.url()).unwrap();
        assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    }
}

#[tokio::test]
async fn unusable_certificates_are_refused_at_the_start() {
    let plain = patient().tls_authorities("").connect("redis://127.0.0.1");
    let error = plain.unwrap_err().to_string();
    assert!(error.contains("rediss"), "{error}");
    for address in [
        "rediss://a",
        "rediss-cluster://a,b",
        "rediss-sentinel://a/main",
    ] {
        let wrong = patient().tls_client_certificate("no certificate", "no key");
        let error = wrong.connect(address).unwrap_err().to_string();
        assert!(error.contains("certificates"), "{error}");
    }
}
