//! TLS to the control plane: wrong, missing and exchanged certificates.

use std::{fs, path::Path};

use testkit::{
    child_processes::eventually,
    needs,
    servers::certificates::{AUTHORITY, CLIENT, make_certificates, make_client_certificate},
};
use tower_ratelimit_envoy::xds::ControlPlane;

use super::{
    control_plane::{Plane, config},
    service_harness::{Service, at},
};

/// Makes the files of both ends.
fn certificates(folder: &Path) {
    make_certificates(folder);
    make_client_certificate(folder);
}

fn with_tls(port: u16, folder: &Path) -> ControlPlane {
    let mut plane = at(port);
    plane.xds = Some(format!("https://127.0.0.1:{port}").parse().unwrap());
    plane.xds_ca = Some(folder.join(AUTHORITY));
    plane.xds_cert = Some(folder.join(CLIENT[0]));
    plane.xds_key = Some(folder.join(CLIENT[1]));
    plane.xds_force_start = true;
    plane
}

/// Replaces all files of `folder` by others.
fn exchange(folder: &Path) {
    for file in fs::read_dir(folder).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    certificates(folder);
}

#[tokio::test]
async fn files_are_read_for_each_connection() {
    needs!(openssl);
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let mut plane = Plane::with_tls(folder.path().to_owned()).await;
    plane.set("1", &[config("shop", &[("user", 100)])]);
    let service = Service::start(with_tls(plane.port, folder.path())).await;
    assert_eq!(plane.reply().await.version_info, "1");
    assert_eq!(service.decide("shop", "user").await, (true, Some(99)));

    // Another authority, another certificate at each end.
    plane.stop().await;
    exchange(folder.path());
    plane.listen().await;
    plane.set("2", &[config("shop", &[("user", 200)])]);
    assert_eq!(plane.reply().await.version_info, "2");
    assert_eq!(service.decide("shop", "user").await, (true, Some(198)));
}

#[tokio::test]
async fn wrong_certificates_are_refused_until_they_are_replaced() {
    needs!(openssl);
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(own.path());
    certificates(other.path());
    let mut plane = Plane::with_tls(own.path().to_owned()).await;
    plane.set("1", &[config("shop", &[("user", 100)])]);
    let service = Service::start(with_tls(plane.port, other.path())).await;
    let stays_unconnected = async || {
        for _ in 0..20 {
            assert_eq!(
                service.metric("ratelimit_config_connected").await,
                Some(0.0)
            );
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    stays_unconnected().await;
    // The right authority, and a certificate of the wrong one.
    fs::copy(own.path().join(AUTHORITY), other.path().join(AUTHORITY)).unwrap();
    stays_unconnected().await;
    // A certificate, and another one's key.
    fs::copy(own.path().join(CLIENT[0]), other.path().join(CLIENT[0])).unwrap();
    stays_unconnected().await;
    // No file.
    fs::remove_file(other.path().join(CLIENT[1])).unwrap();
    stays_unconnected().await;
    assert!(service.call("shop", "user", 1).await.is_err());
    fs::copy(own.path().join(CLIENT[1]), other.path().join(CLIENT[1])).unwrap();
    assert_eq!(plane.reply().await.version_info, "1");
    assert_eq!(service.decide("shop", "user").await, (true, Some(99)));
}

#[tokio::test]
async fn name_of_the_control_plane_is_checked() {
    needs!(openssl);
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let mut plane = Plane::with_tls(folder.path().to_owned()).await;
    plane.set("1", &[config("shop", &[("user", 100)])]);
    let named = |name: &str| {
        let mut settings = with_tls(plane.port, folder.path());
        settings.xds_server_name = Some(name.to_owned());
        settings
    };
    let (wrong, right) = (named("envoy-gateway"), named("localhost"));
    let wrong = Service::start(wrong).await;
    let right = Service::start(right).await;
    assert_eq!(plane.reply().await.version_info, "1");
    eventually("a decision", async || {
        right.call("shop", "user", 1).await.ok()
    })
    .await;
    assert!(wrong.call("shop", "user", 1).await.is_err());
}
