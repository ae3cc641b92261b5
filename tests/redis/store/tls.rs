use std::{fs, path::Path};

use testkit::{
    needs,
    servers::certificates::{
        AUTHORITY, CLIENT, make_certificates, make_client_certificate,
        make_expired_client_certificate,
    },
};
use tower_ratelimit::store::StoreErrorKind;

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

/// A rotation replaces the files, and the next connection has to know.
#[tokio::test]
async fn certificates_are_read_again_for_each_connection() {
    needs!(redis, openssl);
    let server = Setup::redis().tls_clients().start().await;
    let authority = server.authority();
    let folder = authority.parent().unwrap_or(Path::new(""));
    let elsewhere = tempfile::tempdir().unwrap();
    make_certificates(elsewhere.path());
    make_expired_client_certificate(folder);
    let trusted = elsewhere.path().join("trusted.pem");
    fs::copy(elsewhere.path().join(AUTHORITY), &trusted).unwrap();
    let [certificate, key] = CLIENT.map(|name| folder.join(name));

    let store = patient().tls_authorities_file(&trusted);
    let store = store.tls_client_certificate_files(certificate, key);
    let store = store.connect(&server.url()).unwrap();
    assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    fs::copy(&authority, &trusted).unwrap();
    assert_eq!(fault(&store).await, StoreErrorKind::Disconnected);
    make_client_certificate(folder);
    store.check().await.unwrap();
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
