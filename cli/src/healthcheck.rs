//! `healthcheck`: asks a service whether it is ready, for images that have no other program.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use clap::Args;

/// How long the service may take for each step of the answer.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct Healthcheck {
    /// Where the service listens for HTTP.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "TOWER_RATELIMIT_HTTP"
    )]
    http: SocketAddr,
}

/// The line to print, and whether the service is ready.
pub(crate) fn healthcheck(healthcheck: &Healthcheck) -> (String, bool) {
    match status(reachable(healthcheck.http)) {
        Ok(status) if status.contains(" 200 ") => ("ready\n".to_owned(), true),
        Ok(status) => (format!("not ready: {status}\n"), false),
        Err(error) => (format!("not ready: {error}\n"), false),
    }
}

/// An address at which this machine can be asked, for one that stands for all of its own.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::from((ip, address.port()))
}

/// The first line of the answer.
fn status(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(4_096).read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
