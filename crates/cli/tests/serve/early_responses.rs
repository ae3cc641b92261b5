//! Responses that begin before the request's body has ended.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::service_process::Service;

/// A POST with a body of this length.
fn post(path: &str, length: usize) -> String {
    let body = "x".repeat(length);
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}")
}

async fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    stream.unwrap()
}

/// The head of the next response, if any. Its body is empty.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn connection_outlives_a_body_that_no_route_reads() {
    let service = Service::start(&[]).await;
    let mut kept = 0;
    for _ in 0..20 {
        let mut stream = connect(service.http).await;
        // The server may not read all of it.
        let _ = stream.write_all(post("/healthz", 100_000).as_bytes()).await;
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 405"));
        let _ = stream.write_all(post("/healthz", 1).as_bytes()).await;
        kept += usize::from(head(&mut stream).await.starts_with("HTTP/1.1 405"));
    }
    assert_eq!(kept, 20);
}

#[tokio::test]
async fn response_to_a_too_long_body_announces_the_close() {
    let service = Service::start(&[]).await;
    let mut stream = connect(service.http).await;
    let _ = stream.write_all(post("/json", 2 << 20).as_bytes()).await;
    let head = head(&mut stream).await.to_lowercase();
    assert!(head.starts_with("http/1.1 413"), "{head}");
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
}
