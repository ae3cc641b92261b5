//! A control plane that sends sets of limits and records the requests of its clients.

use std::{
    convert::Infallible,
    future::Future,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use testkit::{
    child_processes::{eventually, free_port},
    servers::certificates::{AUTHORITY, CERTIFICATE, KEY},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    metadata::MetadataMap,
    server::{Grpc, StreamingService},
};
use tonic_prost::ProstCodec;
use tower_ratelimit_envoy::protobuf_messages::{
    Any, DescriptorConfig, DiscoveryRequest, DiscoveryResponse, RateLimitConfig, RateLimitPolicy,
    Unit,
};

pub(crate) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// A control plane on a port of 127.0.0.1.
pub(crate) struct Plane {
    pub(crate) port: u16,
    state: State,
    requests: mpsc::UnboundedReceiver<(DiscoveryRequest, MetadataMap)>,
    connections: JoinSet<()>,
}

#[derive(Clone)]
struct State {
    /// The folder of the certificates, if there is TLS. Clients present a certificate.
    tls: Option<PathBuf>,
    sets: watch::Sender<Option<DiscoveryResponse>>,
    requests: mpsc::UnboundedSender<(DiscoveryRequest, MetadataMap)>,
}

impl Plane {
    /// A control plane without limits yet.
    pub(crate) async fn start() -> Self {
        Self::listening(None).await
    }

    /// With TLS by the files of a folder, which are read for each connection.
    pub(crate) async fn with_tls(folder: PathBuf) -> Self {
        Self::listening(Some(folder)).await
    }

    async fn listening(tls: Option<PathBuf>) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let state = State {
            tls,
            sets: watch::Sender::new(None),
            requests: sender,
        };
        let mut plane = Self {
            port: free_port(),
            state,
            requests,
            connections: JoinSet::new(),
        };
        plane.listen().await;
        plane
    }

    /// Listens again, with the last set.
    pub(crate) async fn listen(&mut self) {
        let address = (Ipv4Addr::LOCALHOST, self.port);
        let listener = eventually("the port", async || TcpListener::bind(address).await.ok()).await;
        let state = self.state.clone();
        self.connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(connection(state.clone(), stream));
            }
        });
    }

    /// Closes the port and all connections.
    pub(crate) async fn stop(&mut self) {
        self.connections.shutdown().await;
    }

    /// Makes this the set of limits.
    pub(crate) fn set(&self, version: &str, configs: &[RateLimitConfig]) {
        self.set_resources(version, configs.iter().map(resource).collect());
    }

    pub(crate) fn set_resources(&self, version: &str, resources: Vec<Any>) {
        self.state.sets.send_replace(Some(DiscoveryResponse {
            version_info: version.to_owned(),
            resources,
            type_url: TYPE_URL.to_owned(),
            nonce: String::new(),
        }));
    }

    /// The next request of a client, and the fields of its call.
    pub(crate) async fn request(&mut self) -> (DiscoveryRequest, MetadataMap) {
        self.requests.recv().await.expect("a request")
    }

    /// The next request that replies to a response.
    pub(crate) async fn reply(&mut self) -> DiscoveryRequest {
        loop {
            let (request, _) = self.request().await;
            if !request.response_nonce.is_empty() {
                return request;
            }
        }
    }
}

/// A resource of the right type.
pub(crate) fn resource(config: &RateLimitConfig) -> Any {
    Any {
        type_url: TYPE_URL.to_owned(),
        value: config.encode_to_vec(),
    }
}

/// The limits of a domain: each descriptor has a key and a number of requests in a year.
pub(crate) fn config(domain: &str, limits: &[(&str, u32)]) -> RateLimitConfig {
    let descriptors = limits.iter().map(|(key, requests)| DescriptorConfig {
        key: (*key).to_owned(),
        rate_limit: Some(RateLimitPolicy {
            unit: Unit::Year.into(),
            requests_per_unit: *requests,
            ..RateLimitPolicy::default()
        }),
        ..DescriptorConfig::default()
    });
    RateLimitConfig {
        name: domain.to_owned(),
        domain: domain.to_owned(),
        descriptors: descriptors.collect(),
    }
}

async fn connection(state: State, stream: tokio::net::TcpStream) {
    match state.tls.clone() {
        None => serve(state, stream).await,
        Some(folder) => {
            if let Ok(stream) = acceptor(&folder).accept(stream).await {
                serve(state, stream).await;
            }
        }
    }
}

async fn serve(state: State, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let ads = Ads(state.clone());
        async move { Ok::<http::Response<Body>, Infallible>(ads.answer(request).await) }
    });
    let http = http2::Builder::new(TokioExecutor::new());
    // Clients that are gone are no failure.
    let _ = http.serve_connection(TokioIo::new(io), service).await;
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(folder.join(AUTHORITY)).expect("an authority");
    roots.add(authority).expect("an authority");
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let chain = vec![CertificateDer::from_pem_file(folder.join(CERTIFICATE)).expect("a file")];
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).expect("a key");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(chain, key)
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// The discovery service.
struct Ads(State);

impl Ads {
    async fn answer(self, request: http::Request<Incoming>) -> http::Response<Body> {
        let method =
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
        if request.uri().path() != method {
            return Status::unimplemented("another method").into_http();
        }
        let mut grpc = Grpc::new(ProstCodec::<DiscoveryResponse, DiscoveryRequest>::default());
        grpc.streaming(self, request).await
    }
}

type Responses = Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

impl StreamingService<DiscoveryRequest> for Ads {
    type Response = DiscoveryResponse;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Responses>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let (sender, mut responses) = mpsc::channel(16);
        tokio::spawn(follow(self.0.clone(), request, sender));
        Box::pin(async move {
            // As servers in Go: no header before the first message.
            let first = responses.recv().await;
            let first = tokio_stream::iter(first);
            let stream: Responses = Box::pin(first.chain(ReceiverStream::new(responses)));
            Ok(Response::new(stream))
        })
    }
}

/// Sends each set that the client does not have.
async fn follow(
    state: State,
    request: Request<Streaming<DiscoveryRequest>>,
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let metadata = request.metadata().clone();
    let mut requests = request.into_inner();
    let mut sets = state.sets.subscribe();
    sets.mark_changed();
    let mut known = None;
    loop {
        tokio::select! {
            biased;
            request = requests.message() => {
                let Ok(Some(request)) = request else { return };
                known.get_or_insert_with(|| request.version_info.clone());
                // The test may have ended.
                let _ = state.requests.send((request, metadata.clone()));
            }
            changed = sets.changed(), if known.is_some() => {
                let set = sets.borrow_and_update().clone();
                let is_new = |set: &DiscoveryResponse| Some(&set.version_info) != known.as_ref();
                let Some(mut set) = set.filter(is_new) else { continue };
                known = Some(set.version_info.clone());
                set.nonce = format!("nonce of {}", set.version_info);
                if changed.is_err() || responses.send(Ok(set)).await.is_err() {
                    return;
                }
            }
        }
    }
}
