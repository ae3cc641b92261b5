//! Requests that the recipes' tests send, and the fields of their responses.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Method, Request},
    response::Response,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower::ServiceExt;

/// A request of 192.0.2.1, unless a test sets another address.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    peer: [u8; 4],
    fields: Vec<(&'static str, String)>,
    body: String,
}

impl Ask {
    pub(crate) fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            peer: [192, 0, 2, 1],
            fields: Vec::new(),
            body: String::new(),
        }
    }

    pub(crate) fn post(path: &str, json: &serde_json::Value) -> Self {
        let mut ask = Self::get(path).method(Method::POST);
        ask.body = json.to_string();
        ask.field("content-type", "application/json")
    }

    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn from(mut self, peer: [u8; 4]) -> Self {
        self.peer = peer;
        self
    }

    pub(crate) fn field(mut self, name: &'static str, value: &str) -> Self {
        self.fields.push((name, value.to_owned()));
        self
    }

    /// The answer of this application.
    pub(crate) async fn of(&self, app: &Router) -> Response {
        let peer = SocketAddr::from((self.peer, 4_711));
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .extension(ConnectInfo(peer));
        for (name, value) in &self.fields {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(self.body.clone())).unwrap();
        app.clone().oneshot(request).await.unwrap()
    }
}

/// A field's lines as one list.
pub(crate) fn field(response: &Response, name: &str) -> String {
    let lines = response.headers().get_all(name).iter();
    let lines: Vec<_> = lines.map(|line| line.to_str().unwrap()).collect();
    assert!(!lines.is_empty(), "no `{name}`: {response:?}");
    lines.join(", ")
}

/// The units that are left of the binding quota.
pub(crate) fn remaining(response: &Response) -> u64 {
    field(response, "x-ratelimit-remaining").parse().unwrap()
}

pub(crate) async fn text(response: Response) -> String {
    let bytes = to_bytes(response.into_body(), 100_000).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A listener on a free port of this machine.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The whole answer to a GET over a connection of its own.
pub(crate) async fn exchange(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
