//! A service with a method of every kind, written by hand, and a client that calls them.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    client,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::MetadataMap,
    server::{self, NamedService},
    transport::{Channel, Server},
};
use tower::{Service, service_fn};
use tower_ratelimit::{Key, LocalLimiter, Quota, RateLimitLayer, clock::ManualClock};

/// Messages as they are, without protobuf.
#[derive(Default)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The four kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Unary,
    ServerStreaming,
    ClientStreaming,
    Bidirectional,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self::Unary,
        Self::ServerStreaming,
        Self::ClientStreaming,
        Self::Bidirectional,
    ];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Unary => "/test.Echo/Unary",
            Self::ServerStreaming => "/test.Echo/ServerStreaming",
            Self::ClientStreaming => "/test.Echo/ClientStreaming",
            Self::Bidirectional => "/test.Echo/Bidirectional",
        }
    }
}

/// Answers with what it was sent: a single message in one, a stream in as many as came, several to
/// one in one, and one to several in one for each byte. `fail` is answered by a status, `limited` by the
/// denial of a limiter of its own.
#[derive(Debug, Clone)]
pub(crate) struct Echo;

type Replies = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

async fn unary(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    if request.get_ref() == "fail" {
        return Err(Status::not_found("as you wish"));
    }
    if request.get_ref() == "limited" {
        let limiter = LocalLimiter::builder(Quota::per_hour(60).burst(1))
            .clock(ManualClock::new())
            .build();
        let limiter = limiter.unwrap();
        for _ in 0..2 {
            limiter.acquire(&Key::global(), 1).into_result()?;
        }
    }
    Ok(Response::new(request.into_inner()))
}

async fn server_streaming(request: Request<Bytes>) -> Result<Response<Replies>, Status> {
    let bytes = request.into_inner();
    let replies = tokio_stream::iter(bytes).map(|byte| Ok(Bytes::from(vec![byte])));
    Ok(Response::new(Box::pin(replies)))
}

async fn client_streaming(request: Request<Streaming<Bytes>>) -> Result<Response<Bytes>, Status> {
    let joined = join(request.into_inner()).await?;
    Ok(Response::new(joined.into()))
}

async fn bidirectional(
    request: Request<Streaming<Bytes>>,
) -> Result<Response<Streaming<Bytes>>, Status> {
    Ok(Response::new(request.into_inner()))
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async {
            let mut grpc = server::Grpc::new(Raw);
            let path = request.uri().path();
            let kind = Kind::ALL.into_iter().find(|kind| kind.path() == path);
            Ok(match kind.expect("a method of ours") {
                Kind::Unary => grpc.unary(service_fn(unary), request).await,
                Kind::ServerStreaming => {
                    let method = service_fn(server_streaming);
                    grpc.server_streaming(method, request).await
                }
                Kind::ClientStreaming => {
                    let method = service_fn(client_streaming);
                    grpc.client_streaming(method, request).await
                }
                Kind::Bidirectional => grpc.streaming(service_fn(bidirectional), request).await,
            })
        })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

/// A server on a free port, stopped when it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn new(layer: RateLimitLayer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let incoming = TcpListenerStream::new(listener).map(move |connection| {
            counter.fetch_add(1, Ordering::SeqCst);
            connection
        });
        let server = Server::builder().layer(layer).add_service(Echo);
        let task = tokio::spawn(async {
            server.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            address,
            connections,
            task,
        }
    }

    /// How many connections were ever made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) async fn client(&self) -> Client {
        let channel = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        Client(client::Grpc::new(channel.connect().await.unwrap()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
pub(crate) struct Client(client::Grpc<Channel>);

impl Client {
    /// Sends `abc`, in three messages where there may be several; what came back, joined, and the
    /// metadata before it.
    pub(crate) async fn call(&mut self, kind: Kind) -> Result<(MetadataMap, String), Status> {
        match kind {
            Kind::Unary => self.unary("abc").await,
            Kind::ServerStreaming => self.server_streaming("abc").await,
            _ => {
                self.streaming(kind, tokio_stream::iter(["a", "b", "c"]))
                    .await
            }
        }
    }

    pub(crate) async fn unary(
        &mut self,
        message: &'static str,
    ) -> Result<(MetadataMap, String), Status> {
        self.0.ready().await.unwrap();
        let request = Request::new(Bytes::from_static(message.as_bytes()));
        let path = http::uri::PathAndQuery::from_static(Kind::Unary.path());
        let response = self.0.unary(request, path, Raw).await?;
        let (metadata, message, _) = response.into_parts();
        Ok((metadata, text(message.to_vec())))
    }

    async fn server_streaming(
        &mut self,
        message: &'static str,
    ) -> Result<(MetadataMap, String), Status> {
        self.0.ready().await.unwrap();
        let request = Request::new(Bytes::from_static(message.as_bytes()));
        let path = http::uri::PathAndQuery::from_static(Kind::ServerStreaming.path());
        let response = self.0.server_streaming(request, path, Raw).await?;
        let (metadata, replies, _) = response.into_parts();
        Ok((metadata, text(join(replies).await?)))
    }

    /// A call of a kind whose requests are streams.
    pub(crate) async fn streaming<M: Into<Bytes> + 'static>(
        &mut self,
        kind: Kind,
        messages: impl Stream<Item = M> + Send + 'static,
    ) -> Result<(MetadataMap, String), Status> {
        let response = self.open(kind, messages).await?;
        let (metadata, replies, _) = response.into_parts();
        Ok((metadata, text(join(replies).await?)))
    }

    pub(crate) async fn open<M: Into<Bytes> + 'static>(
        &mut self,
        kind: Kind,
        messages: impl Stream<Item = M> + Send + 'static,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.0.ready().await.unwrap();
        let request = Request::new(messages.map(Into::into));
        let path = http::uri::PathAndQuery::from_static(kind.path());
        // To the client a single reply is a stream of one.
        self.0.streaming(request, path, Raw).await
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

async fn join(mut messages: Streaming<Bytes>) -> Result<Vec<u8>, Status> {
    let mut joined = Vec::new();
    while let Some(message) = messages.message().await? {
        joined.extend_from_slice(&message);
    }
    Ok(joined)
}
