//! HTTP/1.1 byte by byte.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// A connection.
pub(crate) struct Wire(BufReader<TcpStream>);

/// The head of a message.
#[derive(Debug, Clone)]
pub(crate) struct Head(pub(crate) String);

impl Head {
    pub(crate) fn first_line(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        let status = self.first_line().split(' ').nth(1).unwrap();
        status.parse().unwrap()
    }

    /// All values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let fields = self
            .0
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        let fields = fields.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value.trim()).collect()
    }

    /// The value of a field, at most one.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} twice in {}", self.0);
        all.first().copied()
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.field("transfer-encoding") == Some("chunked")
    }
}

impl Wire {
    pub(crate) async fn connect(port: u16) -> Self {
        Self::connect_from(Ipv4Addr::LOCALHOST, port).await
    }

    pub(crate) async fn connect_from(local: Ipv4Addr, port: u16) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((local, 0))).unwrap();
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::new(socket.connect(there).await.unwrap())
    }

    /// `None` if the port has no listener.
    pub(crate) async fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        Some(Self::new(stream))
    }

    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A peer that stops reading is visible in its response.
        let _ = self.0.get_mut().write_all(bytes.as_ref()).await;
    }

    /// Sends these lines as a head.
    pub(crate) async fn request(&mut self, lines: &str) {
        self.send(
            format!("{lines}\r\n\r\n")
                .replace("\r\n", "\n")
                .replace('\n', "\r\n"),
        )
        .await;
    }

    /// The next head; `None` at the end of the connection.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.ok()?);
        }
        head.truncate(head.len() - 4);
        Some(Head(String::from_utf8(head).unwrap()))
    }

    pub(crate) async fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).await.ok()?;
        Some(bytes)
    }

    /// A chunk of a body, or its last line with the trailers as `Err`.
    pub(crate) async fn chunk(&mut self) -> Option<Result<Vec<u8>, String>> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(self.0.read_u8().await.ok()?);
        }
        let size = std::str::from_utf8(&line).ok()?.trim_end();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size > 0 {
            let mut chunk = self.read(size + 2).await?;
            assert_eq!(chunk.split_off(size), b"\r\n");
            return Some(Ok(chunk));
        }
        let mut trailers = b"\r\n".to_vec();
        while !trailers.ends_with(b"\r\n\r\n") {
            trailers.push(self.0.read_u8().await.ok()?);
        }
        Some(Err(String::from_utf8(trailers).ok()?.trim().to_owned()))
    }

    /// A message with a body that has an end. Trailers of a chunked body are appended.
    pub(crate) async fn message(&mut self) -> Option<(Head, String)> {
        let head = self.head().await?;
        let mut body = Vec::new();
        if head.is_chunked() {
            loop {
                match self.chunk().await? {
                    Ok(chunk) => body.extend(chunk),
                    Err(trailers) => {
                        body.extend(trailers.into_bytes());
                        break;
                    }
                }
            }
        } else if let Some(length) = head.field("content-length") {
            body = self.read(length.parse().unwrap()).await?;
        }
        Some((head, String::from_utf8(body).unwrap()))
    }

    /// The response to a request with these lines and without a body.
    pub(crate) async fn answer(&mut self, lines: &str) -> (Head, String) {
        self.request(&format!("{lines}\nhost: test")).await;
        self.message().await.expect("an answer")
    }

    /// A frame of HTTP/2: its stream, its type, and its payload.
    pub(crate) async fn frame(&mut self) -> Option<(u32, u8, Vec<u8>)> {
        let head = self.read(9).await?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte));
        let load = self.read(number(&head[..3]) as usize).await?;
        Some((number(&head[5..]), head[3], load))
    }

    /// The reading and the writing half.
    pub(crate) fn split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        self.0.into_inner().into_split()
    }

    /// All bytes until the end.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest).await;
        rest
    }
}
