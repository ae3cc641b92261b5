//! The bound on concurrent HTTP/2 streams of each listener.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::service_process::Service;

/// The first bytes of a client: the preface, and a frame of settings.
const FIRST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The setting of RFC 9113 (6.5.2) for the most concurrent requests.
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// The most concurrent requests of a connection to this port.
async fn allowed(port: u16) -> Option<u32> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap();
    stream.write_all(FIRST).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "settings come first: {head:?}");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut settings = vec![0; length as usize];
    stream.read_exact(&mut settings).await.unwrap();
    let mut settings = settings.chunks(6).map(|setting| {
        let (name, value) = setting.split_at(2);
        let name = u16::from_be_bytes(name.try_into().unwrap());
        (name, u32::from_be_bytes(value.try_into().unwrap()))
    });
    settings.find_map(|(name, value)| (name == MAX_CONCURRENT_STREAMS).then_some(value))
}

#[tokio::test]
async fn requests_at_a_time_are_bounded_on_each_listener() {
    let service = Service::start(&[]).await;
    for (port, most) in [
        (service.grpc, 200),
        (service.http, 100),
        (service.admin, 100),
    ] {
        assert_eq!(allowed(port).await, Some(most));
    }
}
