//! Connections in the backlog when the server stops.

use std::io::Write as _;

use tokio::net::{TcpListener, TcpStream};

use super::*;

/// The preface of HTTP/2, settings, and `GET http://test/`.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
    \0\0\x09\x01\x05\0\0\0\x01\x82\x84\x86\x01\x04test";

#[tokio::test]
async fn request_in_the_backlog_gets_a_response() {
    let grpc = ConnectionLimits::grpc(Duration::from_secs(60));
    for (limits, request) in [
        (ConnectionLimits::http(1), REQUEST.as_bytes()),
        (ConnectionLimits::http(1), HTTP2),
        (grpc, HTTP2),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // The kernel accepts them; the server does not run yet.
        let clients = (0..10).map(|_| {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(request).unwrap();
            client.set_nonblocking(true).unwrap();
            TcpStream::from_std(client).unwrap()
        });
        let clients: Vec<_> = clients.collect();
        let (stop, stopped) = shutdown::stop();
        stop.now();
        let answer = async |_, _| Response::new(Body::from("ok"));
        let server = tokio::spawn(serve(listener, None, (limits, None), answer, stopped));
        for mut client in clients {
            let mut answer = Vec::new();
            while !answer.ends_with(b"ok") {
                let read = client.read_buf(&mut answer).await.unwrap();
                assert!(read > 0, "{answer:?}");
            }
        }
        server.await.unwrap();
    }
}
