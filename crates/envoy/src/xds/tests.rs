//! Tests of messages and of one connection.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use h2::{Reason, SendStream, server::Connection};
use hyper::body::Bytes;
use prost::Message as _;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tower_ratelimit::LocalStore;

use super::{
    ControlPlane,
    client::{Accept, Client, End},
    connection::Connected,
    resources::TYPE_URL,
    rules,
};
use crate::{
    decide::{Modes, RateLimits},
    limit_source::DescriptorSource,
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_descriptor_reader::Described,
    protobuf_messages::{
        Any, ClientNode, DescriptorConfig, DiscoveryRequest, DiscoveryResponse, Entry, ErrorDetail,
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, Struct, Unit,
        Value,
    },
    settings::Settings,
};
use tower_ratelimit_service::{
    rules_source::{Parts, Source},
    store::Store,
};

/// `proto/` as protoc compiles it:
/// `protoc -I proto --include_imports --descriptor_set_out=proto/xds.binpb envoy/service/discovery/v3/ads.proto
/// ratelimit/config/ratelimit/v3/rls_conf.proto`, in `crates/envoy/`.
const DESCRIPTORS: &[u8] = include_bytes!("../../proto/xds.binpb");

fn text() -> String {
    "x".to_owned()
}

fn metadata() -> Option<Struct> {
    Some(Struct {
        fields: [(text(), Value::from("y"))].into(),
    })
}

fn config() -> RateLimitConfig {
    let descriptor = DescriptorConfig {
        key: text(),
        value: text(),
        rate_limit: Some(RateLimitPolicy {
            unit: Unit::Week.into(),
            requests_per_unit: 1,
            unlimited: true,
            name: text(),
            replaces: vec![RateLimitReplace { name: text() }],
        }),
        descriptors: vec![DescriptorConfig::default()],
        shadow_mode: true,
        detailed_metric: true,
        quota_mode: true,
        metadata: metadata(),
    };
    RateLimitConfig {
        name: text(),
        domain: text(),
        descriptors: vec![descriptor],
    }
}

#[test]
fn messages_are_as_described() {
    let described = Described::read(DESCRIPTORS);
    let request = DiscoveryRequest {
        version_info: text(),
        node: Some(ClientNode {
            id: text(),
            metadata: metadata(),
        }),
        type_url: text(),
        response_nonce: text(),
        error_detail: Some(ErrorDetail {
            code: 3,
            message: text(),
        }),
    };
    let response = DiscoveryResponse {
        version_info: text(),
        resources: vec![Any {
            type_url: text(),
            value: vec![1],
        }],
        type_url: text(),
        nonce: text(),
    };
    let discovery = ".envoy.service.discovery.v3.Discovery";
    let mut fields = BTreeSet::new();
    for (name, bytes) in [
        (format!("{discovery}Request"), request.encode_to_vec()),
        (format!("{discovery}Response"), response.encode_to_vec()),
        (
            ".ratelimit.config.ratelimit.v3.RateLimitConfig".to_owned(),
            config().encode_to_vec(),
        ),
    ] {
        fields.extend(described.fields(&name, &bytes));
    }
    for prefix in [
        ".envoy.",
        ".ratelimit.",
        ".google.rpc.",
        ".google.protobuf.Any",
    ] {
        let of_prefix = fields.iter().filter(|field| field.starts_with(prefix));
        let of_prefix: BTreeSet<_> = of_prefix.cloned().collect();
        assert_eq!(of_prefix, described.all_fields(prefix));
    }
    let units = Unit::UNITS.map(|(_, unit, _)| unit);
    let units = units.into_iter().chain([Unit::Unknown]);
    let units = units.map(|unit| (unit.name(), i32::from(unit)));
    let described = described.values(".ratelimit.config.ratelimit.v3.RateLimitUnit");
    assert_eq!(described, units.collect());
}

/// All fields of a message have the meaning of those of a file.
#[test]
fn messages_mean_what_files_mean() {
    let mut config = config();
    let limit = config.descriptors[0].rate_limit.as_mut().expect("a limit");
    limit.unlimited = false;
    limit.replaces[0].name = "other".to_owned();
    config.descriptors[0].descriptors[0].key = text();
    let set = DiscoveryResponse {
        resources: vec![Any {
            type_url: TYPE_URL.to_owned(),
            value: config.encode_to_vec(),
        }],
        type_url: TYPE_URL.to_owned(),
        ..DiscoveryResponse::default()
    };
    let by_plane = rules(set, &Rules::builder()).expect("rules");
    let file = "
domain: x
descriptors:
  - {key: x, value: x, shadow_mode: true, detailed_metric: true, quota_mode: true, metadata: {x: 'y'}, descriptors: [{key: x}],
     rate_limit: {unit: week, requests_per_unit: 1, name: x, replaces: [{name: other}]}}
";
    let by_file = Rules::builder().parse([("file", file)]).expect("rules");
    let meaning = |rules: &Rules| {
        let limits = rules.limits().map(|(name, limit)| {
            let modes = [limit.shadow, limit.quota];
            let replaces = limit.replaces.clone();
            (
                name,
                limit.requests,
                limit.unit,
                limit.name.clone(),
                replaces,
                modes,
            )
        });
        let limits: Vec<_> = limits.collect();
        let descriptor = RateLimitDescriptor {
            entries: vec![Entry {
                key: text(),
                value: text(),
            }],
            ..RateLimitDescriptor::default()
        };
        let found = rules.find("x", &descriptor.entries).expect("a limit");
        let name = rules.stats_name("x", &descriptor);
        (limits, name, found.metadata().cloned())
    };
    assert_eq!(meaning(&by_plane), meaning(&by_file));
    let (limits, name, found) = meaning(&by_plane);
    assert_eq!(
        (limits.len(), name.as_deref(), found),
        (1, Some("x.x_x"), metadata())
    );
}

#[test]
fn response_of_another_type_is_rejected() {
    let response = DiscoveryResponse {
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        ..DiscoveryResponse::default()
    };
    let fault = rules(response, &Rules::builder()).expect_err("another type");
    let line = fault.to_line();
    assert!(line.starts_with("the response: R01 the type is"), "{line}");
}

fn plane(address: &str) -> ControlPlane {
    ControlPlane::new(&format!("http://{address}")).expect("a URL")
}

fn client(address: &str) -> Client {
    Client::new(plane(address), Connected::default()).expect("a client")
}

#[test]
fn fields_are_checked_at_the_start() {
    let mut plane = plane("gateway:18001");
    plane.headers = vec![("no name".to_owned(), String::new())];
    assert!(Client::new(plane, Connected::default()).is_err());
}

/// A client of a control plane, which behaves as `end` does with the first call.
async fn ended<F: Future<Output = ()> + Send + 'static>(
    end: impl FnOnce(Connection<TcpStream, Bytes>, SendStream<Bytes>) -> F + Send + 'static,
) -> (End, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        let (_request, mut respond) = connection.accept().await.expect("a call").expect("a call");
        let response = http::Response::builder().header("content-type", "application/grpc");
        let body = respond.send_response(response.body(()).expect("a response"), false);
        end(connection, body.expect("a body")).await;
    });
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let accept: Accept = Arc::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let mut client = client(&address.to_string());
    let end = client.connect_once(&accept).await;
    (end, accepted.load(Ordering::SeqCst))
}

/// Servers of gRPC in Go and in C++ end connections with more than a ping in 5 minutes, by default.
#[tokio::test]
async fn too_many_pings_are_recognized() {
    let (end, _) = ended(async |mut connection, _body| {
        connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        while connection.accept().await.is_some() {}
    })
    .await;
    assert!(matches!(end, End::TooManyPings), "{end:?}");
    let (end, _) = ended(async |mut connection, _body| {
        connection.abrupt_shutdown(Reason::INTERNAL_ERROR);
        while connection.accept().await.is_some() {}
    })
    .await;
    assert!(matches!(end, End::Ended(_)), "{end:?}");
}

#[tokio::test]
async fn half_a_set_changes_nothing() {
    let (end, accepted) = ended(async |mut connection, mut body| {
        let set = DiscoveryResponse {
            resources: vec![Any {
                type_url: TYPE_URL.to_owned(),
                value: config().encode_to_vec(),
            }],
            ..DiscoveryResponse::default()
        };
        let message = set.encode_to_vec();
        let length = u32::try_from(message.len())
            .expect("a length")
            .to_be_bytes();
        let half = [&[0], &length[..], &message[..message.len() / 2]].concat();
        body.send_data(half.into(), true).expect("data");
        while connection.accept().await.is_some() {}
    })
    .await;
    assert!(matches!(end, End::Ended(_)), "{end:?}");
    assert_eq!(accepted, 0);
}

/// A reader that fails replies with a fault.
#[tokio::test]
async fn panic_is_a_fault() {
    let mut client = client("127.0.0.1:1");
    let accept: Accept = Arc::new(|_| panic!("by the test"));
    let reply = client.reply(DiscoveryResponse::default(), &accept);
    let reply = tokio::time::timeout(Duration::from_secs(60), reply).await;
    let detail = reply.expect("a reply").error_detail.expect("a fault");
    assert_eq!(detail.message, "the limits could not be read");
}

/// A control plane on channels: the responses to a client, and its requests.
struct Plane {
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    requests: mpsc::Receiver<DiscoveryRequest>,
}

impl Plane {
    /// The control plane of a client that runs until the returned one is dropped.
    fn start(
        accept: impl Fn(DiscoveryResponse) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let accept: Accept = Arc::new(accept);
        let (responses, incoming) = mpsc::channel(1);
        let (outgoing, requests) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut client = client("127.0.0.1:1");
            let incoming = ReceiverStream::new(incoming);
            client.answer(incoming, &outgoing, &accept).await
        });
        Self {
            responses,
            requests,
        }
    }

    async fn send(&self, version: &str) {
        let set = DiscoveryResponse {
            version_info: version.to_owned(),
            nonce: version.to_owned(),
            ..DiscoveryResponse::default()
        };
        self.responses.send(Ok(set)).await.expect("a client");
    }

    /// The nonce of the next reply, whether it is a rejection, and the seconds until then.
    async fn reply(&mut self) -> (String, bool, u64) {
        let asked_at = Instant::now();
        let reply = self.requests.recv().await.expect("a reply");
        let time = asked_at.elapsed().as_secs();
        (reply.response_nonce, reply.error_detail.is_some(), time)
    }
}

/// A source of limits from a control plane.
fn source() -> (DescriptorSource, Source) {
    let mut settings = Settings::new(Vec::new());
    settings.xds = plane("gateway:18001");
    let store = LocalStore::new();
    let limits = RateLimits::new(Counters::local(&store), Modes::default());
    let descriptors = DescriptorSource::new(settings, limits.clone());
    let source = Source::new(Parts {
        store: Store::Local(store),
        requests: None,
        requests_name: "the rules",
        follows_responses: false,
        descriptors: Some(Arc::new(descriptors.clone())),
        top: Arc::clone(limits.top()),
        reload_others: None,
    });
    (descriptors, source)
}

#[tokio::test(start_paused = true)]
async fn a_faulty_set_that_comes_again_is_rejected_with_pauses_and_logged_once() {
    let ((descriptors, source), lines) = (source(), testkit::Lines::default());
    let logged = lines.clone();
    // Without a type each set has the same fault.
    let mut plane = Plane::start(move |set| {
        let mut accepted = Ok(());
        let new = testkit::logged(|| accepted = descriptors.accept_set(&source, set));
        new.into_iter().for_each(|line| logged.push(line));
        accepted
    });
    let mut rejections = 0;
    let rejected = async {
        while rejections < 1_000 {
            plane.send(&rejections.to_string()).await;
            assert!(plane.reply().await.1);
            rejections += 1;
        }
    };
    drop(timeout(Duration::from_secs(3_600), rejected).await);
    // Two at once, some until a pause has 30 to 60 seconds.
    assert!((60..=123).contains(&rejections), "{rejections}");
    assert_eq!(lines.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_newest_set_is_answered_after_a_pause_and_a_good_one_at_once() {
    let mut plane = Plane::start(|set| match set.version_info.as_str() {
        "good" => Ok(()),
        _ => Err("a fault".to_owned()),
    });
    for _ in 0..2 {
        for bad in ["first", "second"] {
            plane.send(bad).await;
            assert_eq!(plane.reply().await, (bad.to_owned(), true, 0));
        }
        plane.send("third").await;
        sleep(Duration::from_secs(1)).await;
        plane.send("fourth").await;
        let (nonce, is_rejected, pause) = plane.reply().await;
        assert_eq!((nonce.as_str(), is_rejected), ("fourth", true));
        assert!((3..10).contains(&pause), "{pause}");
        plane.send("fifth").await;
        plane.send("good").await;
        assert_eq!(plane.reply().await, ("good".to_owned(), false, 0));
    }
}
