//! Raw HTTP.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let field = fields.find(|(key, _)| key.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value)
    }
}

/// Sends a request with these lines on its own connection; `None` without a response.
pub(crate) async fn try_send(port: u16, lines: &str, body: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let length = body.len();
    let host = if lines.contains("\nhost: ") {
        ""
    } else {
        "host: test\r\n"
    };
    let head = format!("{lines}\r\n{host}connection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let mut answer = Answer {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_owned(),
        body: body.to_owned(),
    };
    if answer.header("transfer-encoding") == Some("chunked") {
        answer.body = joined(body)?;
    }
    Some(answer)
}

/// The chunks of a body as one; `None` without the last one. A proxy divides a body where it likes.
fn joined(mut chunks: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let (chunk, rest) = rest.split_at_checked(usize::from_str_radix(size, 16).ok()?)?;
        if chunk.is_empty() {
            return Some(body);
        }
        body += chunk;
        chunks = rest.strip_prefix("\r\n")?;
    }
}

#[tokio::test]
async fn body_is_the_same_however_it_is_divided_into_chunks() {
    for chunks in ["4\r\n6000\r\n", "2\r\n60\r\n2\r\n00\r\n"] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer =
                format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(get(port, "/"), server);
        assert_eq!(answer.body, "6000");
    }
}

pub(crate) async fn send(port: u16, lines: &str, body: &str) -> Answer {
    let answer = try_send(port, lines, body).await;
    answer.unwrap_or_else(|| panic!("no answer to {lines}"))
}

pub(crate) async fn get(port: u16, path: &str) -> Answer {
    send(port, &format!("GET {path} HTTP/1.1"), "").await
}

/// Serves `up` to all requests, with the mark of overflow that they have as `x-seen`; returns the port.
pub(crate) async fn upstream() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await?);
                }
                // An unread body would end in a reset.
                let head = String::from_utf8_lossy(&head).to_lowercase();
                let length = head.split_once("content-length: ");
                let length = length.and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                stream.read_exact(&mut body).await?;
                let marks = head
                    .lines()
                    .filter_map(|line| line.strip_prefix("x-ratelimit-overflow:"));
                let seen: String = marks.map(|mark| format!("x-seen:{mark}\r\n")).collect();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n{seen}\r\nup"
                );
                stream.write_all(answer.as_bytes()).await
            });
        }
    });
    port
}
