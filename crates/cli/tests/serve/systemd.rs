//! The unit for systemd, and the notifications to systemd.

use std::{fs, process::Command};

use testkit::child_processes::find;
use tokio::net::UnixDatagram;

use crate::{auth::is_missing, service_process::Service};

const UNIT: &str = include_str!("../../../../deploy/tower-ratelimit.service");

/// The next messages to systemd, by name.
async fn reported(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let length = socket.recv(&mut buffer).await.unwrap();
    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
    text.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn systemd_is_notified_of_start_reload_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let service = Service::launch_with(&["--drain", "0s"], &variables);
    assert_eq!(reported(&socket).await, "READY=1");
    // Ready services respond.
    assert_eq!(
        crate::raw_http::get(service.http, "/readyz").await.status,
        200
    );
    service.process.hang_up();
    assert_eq!(reported(&socket).await, "RELOADING=1");
    assert_eq!(reported(&socket).await, "READY=1");
    service.process.terminate();
    assert_eq!(reported(&socket).await, "STOPPING=1");
}

#[test]
fn unit_is_one_that_systemd_takes_and_that_may_do_little() {
    if is_missing("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tower-ratelimit.service");
    let program = env!("CARGO_BIN_EXE_tower-ratelimit");
    fs::write(
        &file,
        UNIT.replace("/usr/local/bin/tower-ratelimit", program),
    )
    .unwrap();
    for options in [
        &["verify"][..],
        &["security", "--offline=true", "--threshold=15"],
    ] {
        let mut command = Command::new(find("systemd-analyze", None).unwrap());
        let output = command.args(options).arg(&file).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {text}");
        assert!(!text.contains("Unknown"), "{text}");
    }
}
