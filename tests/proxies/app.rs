//! The application behind the proxy.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    extract::{ConnectInfo, Request},
    http::request::Parts,
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tower_ratelimit::{
    ClientAddress, ClientAddressLayer, ClientIp, Key, PeerIp, Quota, RateLimitLayer,
    key::{ClientIpHeader, key_fn},
};

/// How many requests of a client pass. So few that none comes back while a test runs.
pub(crate) const LIMIT: u64 = 10;

/// The header in which the proxy names the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardingHeader {
    XForwardedFor,
    Forwarded,
    XRealIp,
}

impl ForwardingHeader {
    pub(crate) const ALL: [Self; 3] = [Self::XForwardedFor, Self::Forwarded, Self::XRealIp];

    pub(crate) const fn header(self) -> &'static str {
        match self {
            Self::XForwardedFor => "X-Forwarded-For",
            Self::Forwarded => "Forwarded",
            Self::XRealIp => "X-Real-IP",
        }
    }

    /// The header's value with an address, as a client may forge it.
    pub(crate) fn value(self, address: impl std::fmt::Display) -> String {
        match self {
            Self::Forwarded => format!("for={address}"),
            Self::XForwardedFor | Self::XRealIp => address.to_string(),
        }
    }

    fn client_ip(self) -> ClientIp {
        let client_ip = ClientIp::behind(["127.0.0.1/32"]);
        match self {
            Self::XForwardedFor => client_ip,
            Self::Forwarded => client_ip.forwarded(),
            Self::XRealIp => client_ip.header(ClientIpHeader::XRealIp),
        }
    }
}

/// A server of an application on a free port, until it is dropped.
#[derive(Debug)]
pub(crate) struct App {
    port: u16,
    task: JoinHandle<()>,
}

impl App {
    /// One that limits by the client's address, and answers with it.
    pub(crate) async fn start(header: ForwardingHeader) -> Self {
        let whoami = get(async |client: ClientAddress| format!("{}\n", client.ip()));
        let app = Router::new()
            .route("/", whoami)
            .layer(RateLimitLayer::new(quota(), header.client_ip()))
            .layer(ClientAddressLayer::new(header.client_ip()));
        Self::serve(app).await
    }

    /// One that limits by the other end of the connection.
    pub(crate) async fn by_peer() -> Self {
        Self::serve(plain().layer(RateLimitLayer::new(quota(), PeerIp))).await
    }

    /// One that believes the leftmost address of `X-Forwarded-For`, as many do.
    pub(crate) async fn by_leftmost() -> Self {
        let leftmost = key_fn(|parts: &Parts| {
            let line = parts.headers.get("x-forwarded-for")?.to_str().ok()?;
            line.split(',')
                .next()
                .map(|address| Key::from(address.trim()))
        });
        Self::serve(plain().layer(RateLimitLayer::new(quota(), leftmost))).await
    }

    async fn serve(app: Router) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = app
            .layer(from_fn(report_peer))
            .into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn quota() -> Quota {
    Quota::per_day(LIMIT)
}

fn plain() -> Router {
    Router::new().route("/", get(async || "hello\n"))
}

/// Responds with which address and port the request reached the application.
async fn report_peer(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let peer = peer.to_string().parse().unwrap();
    response.headers_mut().insert("x-peer", peer);
    response
}
