//! The upstream: rejects ambiguous requests, and records all others.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use tokio::{net::TcpListener, sync::Semaphore};

use crate::{
    fake_llm_server,
    raw_http1::{Head, Wire},
};

/// The size of the bodies of `/download` and `/count`.
pub(crate) const LARGE: usize = 100 << 20;

/// The size of its chunks.
pub(crate) const CHUNK: usize = 1 << 16;

#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<(Head, String)>>>,
    /// Each permit releases one step of a waiting response.
    pub(crate) steps: Arc<Semaphore>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let upstream = Self {
            port: listener.local_addr().unwrap().port(),
            requests: Arc::default(),
            steps: Arc::new(Semaphore::new(0)),
        };
        let server = upstream.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(Wire::new(stream)));
            }
        });
        upstream
    }

    /// The recorded requests.
    pub(crate) fn requests(&self) -> Vec<(Head, String)> {
        self.requests.lock().unwrap().clone()
    }

    /// The only recorded request.
    pub(crate) fn only(&self) -> (Head, String) {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().unwrap()
    }

    async fn serve(self, mut wire: Wire) -> Option<()> {
        loop {
            let head = wire.head().await?;
            let path = head.first_line().split(' ').nth(1)?.to_owned();
            check(&head);
            if ["/begun", "/done"].contains(&&*path) {
                return early(&mut wire, &path).await;
            }
            if head.all("expect") == ["100-continue"] {
                wire.request("HTTP/1.1 100 Continue").await;
            }
            let body = match &*path {
                "/count" => count(&mut wire).await?.to_string(),
                _ => body(&mut wire, &head).await?,
            };
            self.requests
                .lock()
                .unwrap()
                .push((head.clone(), body.clone()));
            match &*path {
                "/count" => ok(&mut wire, &body).await,
                "/download" => download(&mut wire).await,
                "/break" => {
                    wire.request("HTTP/1.1 200 OK\ntransfer-encoding: chunked")
                        .await;
                    wire.send("3\r\nabc\r\n").await;
                    self.step().await;
                    return None;
                }
                "/cut" => return None,
                "/silent" => std::future::pending().await,
                "/events" => self.events(&mut wire).await,
                "/wait" => {
                    self.step().await;
                    ok(&mut wire, "waited").await;
                }
                "/trailers" => {
                    wire.request("HTTP/1.1 200 OK\ntransfer-encoding: chunked\ntrailer: x-sum")
                        .await;
                    wire.send("4\r\nbody\r\n0\r\nx-sum: 7\r\n\r\n").await;
                }
                "/cost" => {
                    let (announced, trailer) = match head.field("te") {
                        Some("trailers") => ("trailer: x-cost\n", "x-cost: 300\r\n"),
                        _ => ("", ""),
                    };
                    let lines = format!("HTTP/1.1 200 OK\n{announced}transfer-encoding: chunked");
                    wire.request(&lines).await;
                    wire.send(format!("4\r\nbody\r\n0\r\n{trailer}\r\n")).await;
                }
                "/hop" => {
                    wire.request(
                        "HTTP/1.1 200 OK\nconnection: x-hop\nx-hop: 1\nkeep-alive: timeout=5\n\
                         x-end: 1\nset-cookie: a\nset-cookie: b\ncontent-length: 0",
                    )
                    .await;
                }
                "/429" => {
                    wire.request("HTTP/1.1 429 Too Many Requests\ncontent-length: 7")
                        .await;
                    wire.send("its own").await;
                }
                // Of an application that scripts of any origin may call.
                "/shared" => {
                    wire.request(
                        "HTTP/1.1 200 OK\naccess-control-allow-origin: *\naccess-control-allow-headers: *\n\
                         content-length: 0",
                    )
                    .await;
                }
                "/usage" => usage(&mut wire, &body).await,
                "/chat" | "/other" => return chat(&mut wire, &path).await,
                _ if path.starts_with("/format/") => fake_llm_server::serve(&mut wire, &path).await,
                _ if fake_llm_server::responds_to(&path) => {
                    fake_llm_server::respond(&mut wire, &path, &body).await
                }
                _ if head.first_line().starts_with("HEAD ") => {
                    wire.request("HTTP/1.1 200 OK\ncontent-length: 1234").await;
                }
                _ => ok(&mut wire, "ok").await,
            }
        }
    }

    async fn step(&self) {
        self.steps.acquire().await.unwrap().forget();
    }

    async fn events(&self, wire: &mut Wire) {
        wire.request(
            "HTTP/1.1 200 OK\ncontent-type: text/event-stream\ntransfer-encoding: chunked",
        )
        .await;
        for event in ["one", "two"] {
            let event = format!("data: {event}\n\n");
            wire.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            self.step().await;
        }
        wire.send("0\r\n\r\n").await;
    }
}

/// Fails for a head that another server might read differently.
fn check(head: &Head) {
    let text = &head.0;
    let framing = head.all("content-length").len() + head.all("transfer-encoding").len();
    let is_plain = text.matches('\n').count() == text.matches("\r\n").count()
        && text.matches('\r').count() == text.matches("\r\n").count();
    assert!(framing <= 1 && is_plain, "{text:?}");
    assert!(!text.contains("\n ") && !text.contains("\n\t"), "{text:?}");
    assert_eq!(head.all("host").len(), 1, "{text:?}");
}

async fn body(wire: &mut Wire, head: &Head) -> Option<String> {
    let mut body = Vec::new();
    if head.is_chunked() {
        loop {
            match wire.chunk().await? {
                Ok(chunk) => body.extend(chunk),
                Err(trailers) => {
                    body.extend(trailers.into_bytes());
                    break;
                }
            }
        }
    } else if let Some(length) = head.field("content-length") {
        body = wire.read(length.parse().ok()?).await?;
    }
    String::from_utf8(body).ok()
}

async fn count(wire: &mut Wire) -> Option<usize> {
    let mut length = 0;
    while let Ok(chunk) = wire.chunk().await? {
        length += chunk.len();
    }
    Some(length)
}

async fn ok(wire: &mut Wire, body: &str) {
    let length = body.len();
    wire.send(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}"
    ))
    .await;
}

/// Reports the tokens that the request's body names as the output, in events.
async fn usage(wire: &mut Wire, output: &str) {
    wire.request("HTTP/1.1 200 OK\ncontent-type: text/event-stream\ntransfer-encoding: chunked")
        .await;
    let usage = format!(r#"{{"prompt_tokens":10,"completion_tokens":{output}}}"#);
    for event in [
        r#"{"choices":[{"delta":{"content":"hello"}}]}"#.to_owned(),
        format!(r#"{{"model":"m","choices":[],"usage":{usage}}}"#),
        "[DONE]".to_owned(),
    ] {
        let event = format!("data: {event}\n\n");
        wire.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
    }
    wire.send("0\r\n\r\n").await;
}

/// Responds before the body has arrived, with or without an end, and continues reading.
async fn early(wire: &mut Wire, path: &str) -> Option<()> {
    match path {
        "/done" => ok(wire, "ok").await,
        _ => {
            wire.request("HTTP/1.1 200 OK\ntransfer-encoding: chunked")
                .await;
            wire.send("2\r\nok\r\n").await;
        }
    }
    loop {
        wire.read(1).await?;
    }
}

async fn download(wire: &mut Wire) {
    wire.request("HTTP/1.1 200 OK\ntransfer-encoding: chunked")
        .await;
    let chunk = [format!("{CHUNK:x}\r\n").as_bytes(), &[b'x'; CHUNK], b"\r\n"].concat();
    for _ in 0..LARGE / CHUNK {
        wire.send(&chunk).await;
    }
    wire.send("0\r\n\r\n").await;
}

/// Echoes in upper case.
async fn chat(wire: &mut Wire, path: &str) -> Option<()> {
    let protocol = if path == "/chat" {
        "websocket"
    } else {
        "other"
    };
    wire.request(&format!(
        "HTTP/1.1 101 Switching Protocols\nconnection: upgrade\nupgrade: {protocol}\nx-agreed: 1"
    ))
    .await;
    loop {
        let byte = wire.read(1).await?;
        wire.send(byte.to_ascii_uppercase()).await;
    }
}
