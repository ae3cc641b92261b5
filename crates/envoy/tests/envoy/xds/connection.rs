//! A control plane that is gone, silent, half open, or sends too much.

use std::time::Duration;

use testkit::{
    child_processes::{eventually, free_port},
    servers::{Flow, Proxy},
};
use tokio::net::TcpListener;

use super::{
    control_plane::{Plane, config},
    service_harness::{Service, at},
};

const CONNECTED: &str = "ratelimit_config_connected";

#[tokio::test]
async fn limits_outlive_their_control_plane() {
    let mut plane = Plane::start().await;
    plane.set("1", &[config("shop", &[("user", 100)])]);
    let service = Service::start(at(plane.port)).await;
    plane.reply().await;
    service.measures(CONNECTED, 1.0).await;
    assert_eq!(service.decide("shop", "user").await, (true, Some(99)));

    plane.stop().await;
    service.measures(CONNECTED, 0.0).await;
    assert_eq!(service.decide("shop", "user").await, (true, Some(98)));
    assert_eq!(service.rules().await["control_plane"]["connected"], false);

    // The version is in force already, so nothing is sent again.
    plane.listen().await;
    let first = loop {
        let (request, _) = plane.request().await;
        if request.node.is_some() {
            break request;
        }
    };
    assert_eq!(first.version_info, "1");
    service.measures(CONNECTED, 1.0).await;
    plane.set("2", &[config("shop", &[("user", 200)])]);
    assert_eq!(plane.reply().await.version_info, "2");
    assert_eq!(service.decide("shop", "user").await, (true, Some(197)));
}

#[tokio::test]
async fn service_waits_for_a_control_plane_that_starts_later() {
    let port = free_port();
    let service = Service::launch(at(port));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    // One that accepts and sends nothing is not connected, and one that closes at once is tried again.
    let (silent, _) = listener.accept().await.unwrap();
    drop(silent);
    drop(listener);
    let mut plane = Plane::start().await;
    let proxy = forward(port, plane.port).await;
    plane.set("1", &[config("shop", &[("user", 1)])]);
    service.becomes("/readyz", 200).await;
    plane.reply().await;
    drop(proxy);
}

/// Forwards a port to another.
async fn forward(port: u16, to: u16) -> tokio::task::JoinSet<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", to)).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    tasks
}

#[tokio::test]
async fn silent_control_plane_is_not_connected() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut settings = at(listener.local_addr().unwrap().port());
    settings.xds_force_start = true;
    settings.ping_interval = Duration::from_millis(100);
    let service = Service::start(settings).await;
    let (_hung, _) = listener.accept().await.unwrap();
    assert_eq!(service.metric(CONNECTED).await, Some(0.0));
    // The ping ends it, and there is another attempt.
    let (_hung, _) = listener.accept().await.unwrap();
    assert_eq!(service.metric(CONNECTED).await, Some(0.0));
}

#[tokio::test]
async fn half_open_connection_is_replaced() {
    let mut plane = Plane::start().await;
    plane.set("1", &[config("shop", &[("user", 100)])]);
    let proxy = Proxy::before(([127, 0, 0, 1], plane.port).into()).await;
    let mut settings = at(proxy.port());
    settings.ping_interval = Duration::from_millis(300);
    let service = Service::start(settings).await;
    plane.reply().await;
    service.measures(CONNECTED, 1.0).await;

    let before = proxy.connections();
    proxy.set(Flow::BlackHole);
    eventually("another connection", async || {
        (proxy.connections() > before).then_some(())
    })
    .await;
    service.measures(CONNECTED, 0.0).await;
    assert_eq!(service.decide("shop", "user").await, (true, Some(99)));
    proxy.set(Flow::Forward);
    plane.set("2", &[config("shop", &[("user", 200)])]);
    assert_eq!(plane.reply().await.version_info, "2");
    service.measures(CONNECTED, 1.0).await;
    assert_eq!(service.decide("shop", "user").await, (true, Some(198)));
}

#[tokio::test]
async fn response_that_is_too_large_changes_nothing() {
    let mut plane = Plane::start().await;
    plane.set("1", &[config("shop", &[("user", 100)])]);
    let mut settings = at(plane.port);
    settings.xds_max_message_bytes = 1_000;
    let service = Service::start(settings).await;
    plane.reply().await;
    let keys: Vec<String> = (0..200).map(|at| format!("key{at}")).collect();
    let limits: Vec<_> = keys.iter().map(|key| (key.as_str(), 1)).collect();
    plane.set("2", &[config("shop", &limits)]);
    // The stream ends, and another one begins with the version in force.
    let (again, _) = plane.request().await;
    assert_eq!((again.node.is_some(), &*again.version_info), (true, "1"));
    assert_eq!(service.decide("shop", "user").await, (true, Some(99)));
    plane.set("3", &[config("shop", &[("user", 10)])]);
    assert_eq!(plane.reply().await.version_info, "3");
    assert_eq!(service.decide("shop", "user").await, (true, Some(8)));
}
