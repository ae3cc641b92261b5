//! Clients with addresses of their own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;

/// A client that sends all its requests over one connection.
#[derive(Debug)]
pub(crate) struct Client {
    address: IpAddr,
    connection: SendRequest<Empty<Bytes>>,
}

/// A response as the client received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// From where the request reached the application.
    pub(crate) peer: SocketAddr,
}

impl Client {
    /// The client with the address 127.0.0.`number`, connected to a port of 127.0.0.1.
    pub(crate) async fn connect(number: u8, port: u16) -> Self {
        let address = IpAddr::from(Ipv4Addr::new(127, 0, 0, number));
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((address, 0).into()).unwrap();
        let stream = socket
            .connect((Ipv4Addr::LOCALHOST, port).into())
            .await
            .unwrap();
        let (connection, driver) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        Self {
            address,
            connection,
        }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Sends a request with these lines of one header.
    pub(crate) async fn get(&mut self, header: &str, lines: &[impl AsRef<[u8]>]) -> Answer {
        let mut request = Request::get("/").header("host", "app.example");
        for line in lines {
            request = request.header(header, HeaderValue::from_bytes(line.as_ref()).unwrap());
        }
        self.connection.ready().await.unwrap();
        let sent = self
            .connection
            .send_request(request.body(Empty::new()).unwrap());
        let (parts, body) = sent.await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            text: String::from_utf8(body.into()).unwrap(),
            peer: peer(&Response::from_parts(parts, ())),
        }
    }
}

fn peer(response: &Response<()>) -> SocketAddr {
    let peer = response
        .headers()
        .get("x-peer")
        .expect("an answer of the application");
    peer.to_str().unwrap().parse().unwrap()
}
