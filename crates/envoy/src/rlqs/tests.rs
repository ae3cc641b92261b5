//! The service, called through tonic in paused time.

use std::{collections::BTreeMap, time::Duration};

use http::HeaderName;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Status, Streaming, codegen::http::uri::PathAndQuery};
use tonic_prost::ProstCodec;
use tower_ratelimit::{
    LocalStore,
    clock::{Clock, Timestamp},
};

use super::{Excess, RateLimitQuotaService, RlqsSettings, STREAM, service};
use crate::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{
        Action, BlanketRule, BucketAction, BucketId, BucketQuotaUsage, RateLimitQuotaResponse,
        RateLimitQuotaUsageReports, RateLimitStrategy, Strategy, TokenBucket,
    },
};

const RULES: &str = "domain: shop
descriptors:
  - {key: user, rate_limit: {unit: second, requests_per_unit: 100}}
  - key: fast
    rate_limit: {unit: second, requests_per_unit: 2000, algorithm: token_bucket, burst: 500}
  - {key: off, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: hourly, rate_limit: {unit: hour, requests_per_unit: 100}}
";

/// A clock that begins with a minute, in the runtime's time.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_200_000_000).saturating_add(self.0.elapsed())
    }
}

pub(super) fn limits(rules: &str) -> RateLimits {
    let clock = PausedClock(Instant::now());
    let store = LocalStore::builder().clock(clock).build();
    let counters = Counters::local(&store.expect("a store"));
    let limits = RateLimits::new(counters, Modes::default());
    let rules = Rules::builder().parse([("rules.yaml", rules)]);
    limits.set_rules(rules.expect("rules"));
    limits
}

pub(super) fn started() -> RateLimitQuotaService {
    service(limits(RULES), RlqsSettings::default())
}

pub(super) fn id(pairs: &[(&str, &str)]) -> BucketId {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    BucketId {
        bucket: pairs.iter().map(pair).collect(),
    }
}

fn reports(domain: &str, usages: &[(BucketId, (u64, u64))]) -> RateLimitQuotaUsageReports {
    let usages = usages
        .iter()
        .map(|(id, (allowed, denied))| BucketQuotaUsage {
            bucket_id: Some(id.clone()),
            num_requests_allowed: *allowed,
            num_requests_denied: *denied,
            ..BucketQuotaUsage::default()
        });
    RateLimitQuotaUsageReports {
        domain: domain.to_owned(),
        bucket_quota_usages: usages.collect(),
    }
}

/// A stream of a client.
pub(super) struct Client {
    reports: UnboundedSender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
    /// The last strategy of each bucket, and its time to live; `None` for an abandoned one.
    buckets: BTreeMap<String, Option<(RateLimitStrategy, i64)>>,
    /// All actions so far that the test has not taken.
    pub(super) actions: Vec<BucketAction>,
}

impl Client {
    pub(super) async fn open(service: &RateLimitQuotaService) -> Self {
        Self::open_as("", service).await
    }

    /// A stream with this name in a header.
    async fn open_as(name: &'static str, service: &RateLimitQuotaService) -> Self {
        let (reports, sent) = unbounded_channel();
        let mut client = tonic::client::Grpc::new(service.clone());
        let path = PathAndQuery::from_static(STREAM);
        let mut request = Request::new(UnboundedReceiverStream::new(sent));
        let name = name.parse().expect("a value");
        request.metadata_mut().insert("x-envoy", name);
        let codec = ProstCodec::default();
        let answers = client.streaming(request, path, codec).await;
        Self {
            reports,
            answers: answers.expect("a stream").into_inner(),
            buckets: BTreeMap::new(),
            actions: Vec::new(),
        }
    }

    fn report(&self, domain: &str, usages: &[(BucketId, u64)]) {
        let usages = usages
            .iter()
            .map(|(id, allowed)| (id.clone(), (*allowed, 0)));
        let usages: Vec<_> = usages.collect();
        self.report_all(domain, &usages);
    }

    /// Reports requests that passed and that were denied.
    pub(super) fn report_all(&self, domain: &str, usages: &[(BucketId, (u64, u64))]) {
        let reports = reports(domain, usages);
        self.reports.send(reports).expect("a stream");
    }

    /// Reads the messages of this time.
    pub(super) async fn read_for(&mut self, time: Duration) -> Result<(), Status> {
        let read = async {
            while let Some(answer) = self.answers.message().await? {
                for action in answer.bucket_action {
                    self.actions.push(action.clone());
                    note(&mut self.buckets, action);
                }
            }
            Err(Status::ok("the stream has ended"))
        };
        timeout(time, read).await.unwrap_or(Ok(()))
    }

    pub(super) fn blanket(&self, key: &str) -> (BlanketRule, i64) {
        match self.buckets.get(key) {
            Some(Some((strategy, ttl))) => match strategy.strategy {
                Some(Strategy::Blanket(rule)) => (rule.try_into().expect("a rule"), *ttl),
                _ => panic!("{key} has {strategy:?}"),
            },
            other => panic!("{key} has {other:?}"),
        }
    }

    pub(super) fn share(&self, key: &str) -> TokenBucket {
        match self.buckets.get(key) {
            Some(Some((strategy, 15))) => match &strategy.strategy {
                Some(Strategy::TokenBucket(bucket)) => bucket.clone(),
                _ => panic!("{key} has {strategy:?}"),
            },
            other => panic!("{key} has {other:?}"),
        }
    }
}

fn note(
    buckets: &mut BTreeMap<String, Option<(RateLimitStrategy, i64)>>,
    BucketAction { bucket_id, action }: BucketAction,
) {
    let pairs = bucket_id.expect("an id").bucket;
    let key = pairs.into_keys().next().expect("a pair");
    let strategy = match action.expect("an action") {
        Action::Abandon(_) => None,
        Action::Assign(assignment) => {
            let ttl = assignment.assignment_time_to_live.expect("a time to live");
            Some((assignment.rate_limit_strategy.expect("one"), ttl.seconds))
        }
    };
    buckets.insert(key, strategy);
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_report_is_answered_by_a_share() {
    let service = started();
    let mut client = Client::open(&service).await;
    client.report(
        "shop",
        &[(id(&[("user", "eve")]), 1), (id(&[("fast", "x")]), 1)],
    );
    client.read_for(5 * SECOND).await.expect("open");
    assert!(client.buckets.is_empty(), "reports of others may come");
    client.read_for(2 * SECOND).await.expect("open");
    let user = client.share("user");
    assert_eq!((user.max_tokens, user.tokens_per_fill), (8, Some(5_400)));
    assert_eq!(user.fill_interval.expect("an interval").seconds, 60);
    let fast = client.share("fast");
    assert_eq!((fast.max_tokens, fast.tokens_per_fill), (400, Some(2_000)));
    assert_eq!(fast.fill_interval.expect("an interval").seconds, 1);
}

#[tokio::test(start_paused = true)]
async fn clients_share_a_limit_by_their_demand() {
    let service = started();
    let mut clients = [Client::open(&service).await, Client::open(&service).await];
    let user = || id(&[("user", "eve")]);
    for _ in 0..16 {
        clients[0].report("shop", &[(user(), 500)]);
        clients[1].report("shop", &[(user(), 50)]);
        for client in &mut clients {
            client.read_for(SECOND / 2).await.expect("open");
        }
        sleep(4 * SECOND).await;
    }
    for client in &mut clients {
        client.read_for(SECOND).await.expect("open");
    }
    let [large, small] = clients.map(|client| client.share("user"));
    let tokens = [&large, &small].map(|share| share.tokens_per_fill.expect("tokens"));
    // 50 in 5 seconds are 600 a minute, and a quarter more.
    assert!((700..=800).contains(&tokens[1]), "{tokens:?}");
    assert!((4_300..=4_700).contains(&tokens[0]), "{tokens:?}");
    assert!(large.max_tokens + small.max_tokens <= 10);
}

#[tokio::test(start_paused = true)]
async fn buckets_without_a_share_get_an_answer_at_once() {
    let service = started();
    let mut client = Client::open(&service).await;
    let long = "x".repeat(1_100);
    let mut many = id(&[]);
    for at in 0..17 {
        many.bucket.insert(format!("many{at:02}"), String::new());
    }
    let usages: Vec<_> = ["off", "free", "shadow", "hourly", "unknown"]
        .into_iter()
        .map(|key| (id(&[(key, "x")]), 1))
        .chain([(id(&[("long", &long)]), 1), (many, 1)])
        .chain([(id(&[("unused", &long)]), 0)])
        .collect();
    client.report("shop", &usages);
    client.read_for(SECOND).await.expect("open");
    assert_eq!(client.blanket("off"), (BlanketRule::DenyAll, 15));
    for key in ["free", "shadow", "unknown"] {
        assert_eq!(client.blanket(key), (BlanketRule::AllowAll, 300), "{key}");
    }
    let hourly = client.share("hourly");
    assert_eq!((hourly.max_tokens, hourly.tokens_per_fill), (5, Some(1)));
    for key in ["long", "many00"] {
        assert_eq!(client.blanket(key), (BlanketRule::DenyAll, 60), "{key}");
    }
    assert_eq!(client.buckets["unused"], None);
}

#[tokio::test(start_paused = true)]
async fn excess_passes_if_so_set() {
    let settings = RlqsSettings {
        excess: Excess::Allow,
        ..RlqsSettings::default()
    };
    let service = service(limits(RULES), settings);
    let mut client = Client::open(&service).await;
    let long = "x".repeat(1_100);
    client.report("shop", &[(id(&[("user", &long)]), 1)]);
    client.read_for(SECOND).await.expect("open");
    assert_eq!(client.blanket("user"), (BlanketRule::AllowAll, 60));
}

#[tokio::test(start_paused = true)]
async fn buckets_of_a_stream_are_bounded() {
    let service = started();
    let mut client = Client::open(&service).await;
    let usages: Vec<_> = (0..10_000)
        .map(|at| (id(&[("user", &at.to_string())]), 1))
        .chain([(id(&[("last", "x")]), 1)])
        .collect();
    client.report("shop", &usages);
    client.read_for(7 * SECOND).await.expect("open");
    assert_eq!(client.blanket("last"), (BlanketRule::DenyAll, 60));
    assert_eq!(client.share("user").tokens_per_fill, Some(5_400));
}

/// As with Redis.
#[tokio::test(start_paused = true)]
async fn clients_of_a_bucket_are_bounded() {
    let service = started();
    let mut clients = Vec::new();
    for _ in 0..1_024 {
        let client = Client::open(&service).await;
        client.report("shop", &[(id(&[("user", "eve")]), 1)]);
        clients.push(client);
    }
    sleep(SECOND).await;
    let mut last = Client::open(&service).await;
    last.report("shop", &[(id(&[("user", "eve")]), 1)]);
    last.read_for(SECOND).await.expect("open");
    assert_eq!(last.blanket("user"), (BlanketRule::DenyAll, 60));
}

/// Buckets without a share count, too: clients choose the ids.
#[tokio::test(start_paused = true)]
async fn buckets_of_all_streams_are_bounded() {
    let service = started();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let client = Client::open(&service).await;
        let usages: Vec<_> = (0..10_000)
            .map(|at| (id(&[("free", &at.to_string())]), 1))
            .collect();
        client.report("shop", &usages);
        clients.push(client);
    }
    sleep(SECOND).await;
    let mut last = Client::open(&service).await;
    last.report("shop", &[(id(&[("free", "x")]), 1)]);
    last.read_for(SECOND).await.expect("open");
    assert_eq!(last.blanket("free"), (BlanketRule::DenyAll, 60));
    drop(clients);
    sleep(SECOND).await;
    last.report("shop", &[(id(&[("free", "x")]), 1)]);
    last.read_for(SECOND).await.expect("open");
    assert_eq!(last.blanket("free"), (BlanketRule::AllowAll, 300));
}

/// With the buffers of both ends of the stream.
#[test]
fn a_bucket_takes_few_bytes() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let usages: Vec<_> = (0..10_000)
        .map(|at| (id(&[("user", &format!("eve-{at:05}"))]), 1))
        .collect();
    let mut kept = None;
    let memory = allocation_counter::measure(|| {
        kept = Some(runtime.block_on(async {
            let service = started();
            let mut client = Client::open(&service).await;
            client.report("shop", &usages);
            client.read_for(7 * SECOND).await.expect("open");
            client.actions = Vec::new();
            (service, client)
        }));
    });
    let bytes = memory.bytes_current / 10_000;
    assert!((200..950).contains(&bytes), "{bytes}");
    assert!(kept.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_one_domain() {
    let service = started();
    let mut client = Client::open(&service).await;
    client.report("shop", &[]);
    client.report("", &[(id(&[("free", "x")]), 1)]);
    client.read_for(SECOND).await.expect("open");
    assert_eq!(client.blanket("free").0, BlanketRule::AllowAll);
    client.report("other", &[]);
    let error = client.read_for(SECOND).await.expect_err("another domain");
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    let mut nameless = Client::open(&service).await;
    nameless.report("", &[]);
    let error = nameless.read_for(SECOND).await.expect_err("no domain");
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
}

#[test]
fn requests_are_counted_by_known_domains() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build();
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        runtime.expect("a runtime").block_on(async {
            let service = started();
            for domain in ["shop", "made-up", "invented"] {
                let mut client = Client::open(&service).await;
                client.report_all(domain, &[(id(&[("user", "eve")]), (3, 2))]);
                client.read_for(SECOND).await.expect("open");
            }
        });
    });
    let text = recorder.handle().render();
    for line in [
        r#"ratelimit_rlqs_requests_total{domain="shop",result="allowed"} 3"#,
        r#"ratelimit_rlqs_requests_total{domain="shop",result="denied"} 2"#,
        r#"ratelimit_rlqs_requests_total{domain="unknown",result="allowed"} 6"#,
        r#"ratelimit_rlqs_requests_total{domain="unknown",result="denied"} 4"#,
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_bucket_is_abandoned() {
    let service = started();
    let mut client = Client::open(&service).await;
    let user = id(&[("user", "eve")]);
    client.report("shop", &[(user.clone(), 1)]);
    for _ in 0..59 {
        client.read_for(5 * SECOND).await.expect("open");
        client.report("shop", &[(user.clone(), 0)]);
    }
    assert!(client.buckets["user"].is_some());
    client.read_for(5 * SECOND).await.expect("open");
    client.report("shop", &[(user, 0)]);
    client.read_for(SECOND).await.expect("open");
    assert_eq!(client.buckets["user"], None);
}

/// A share in use counts up to its end, also after its stream.
#[tokio::test(start_paused = true)]
async fn a_share_outlasts_its_stream() {
    let service = started();
    let mut first = Client::open(&service).await;
    let usage = [(id(&[("user", "eve")]), 1)];
    first.report("shop", &usage);
    first.read_for(7 * SECOND).await.expect("open");
    assert_eq!(first.share("user").tokens_per_fill, Some(5_400));
    drop(first);
    let mut second = Client::open(&service).await;
    for _ in 0..3 {
        second.report("shop", &usage);
        second.read_for(5 * SECOND).await.expect("open");
    }
    assert!(second.buckets.is_empty(), "nothing is free for 17 seconds");
    second.report("shop", &usage);
    second.read_for(3 * SECOND).await.expect("open");
    assert!(second.share("user").tokens_per_fill > Some(2_000));
}

#[tokio::test(start_paused = true)]
async fn a_share_survives_a_reconnect() {
    let settings = RlqsSettings {
        client_header: Some(HeaderName::from_static("x-envoy")),
        ..RlqsSettings::default()
    };
    let service = service(limits(RULES), settings);
    let mut first = Client::open_as("a", &service).await;
    let usage = [(id(&[("user", "eve")]), 10_000)];
    first.report("shop", &usage);
    first.read_for(7 * SECOND).await.expect("open");
    drop(first);
    let mut other = Client::open_as("b", &service).await;
    other.report("shop", &usage);
    other.read_for(SECOND).await.expect("open");
    assert!(other.buckets.is_empty(), "nothing is free");
    drop(other);
    let mut again = Client::open_as("a", &service).await;
    again.report("shop", &usage);
    again.read_for(SECOND).await.expect("open");
    assert_eq!(again.share("user").tokens_per_fill, Some(5_400));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_ends() {
    let service = started();
    let client = Client::open(&service).await;
    for _ in 0..200 {
        client.report("shop", &[(id(&[("unused", &"x".repeat(1_100))]), 0)]);
        sleep(SECOND).await;
        if client.reports.is_closed() {
            return;
        }
    }
    panic!("the stream is open");
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_the_service() {
    let service = started();
    let mut client = Client::open(&service).await;
    client.report("shop", &[]);
    client.read_for(SECOND).await.expect("open");
    service.0.end_streams();
    client.read_for(SECOND).await.expect_err("the stream ends");
    let mut late = Client::open(&service).await;
    late.read_for(SECOND).await.expect_err("the stream ends");
}

/// Field numbers of Envoy's files: domain 1, usages 2 of id 1, elapsed 2, allowed 3, denied 4; actions 1 of id 1,
/// assignment 2, abandon 3; time to live 2, strategy 3; blanket 1, bucket 3; size 1, tokens 2, interval 3.
#[test]
fn messages_have_the_numbers_of_envoy() {
    use prost::Message as _;
    let usage = [
        0x0a, 2, b'd', b'm', 0x12, 16, 0x0a, 8, 0x0a, 6, 0x0a, 1, b'k', 0x12, 1, b'v', 0x12, 0,
        0x18, 7, 0x20, 9,
    ];
    let mut usage = usage.to_vec();
    usage[5] = u8::try_from(usage.len() - 6).expect("short");
    let read = RateLimitQuotaUsageReports::decode(usage.as_slice()).expect("a message");
    assert_eq!(read.domain, "dm");
    let [read] = read.bucket_quota_usages.as_slice() else {
        panic!("one bucket");
    };
    assert_eq!(read.bucket_id, Some(id(&[("k", "v")])));
    assert_eq!(
        (read.num_requests_allowed, read.num_requests_denied),
        (7, 9)
    );

    let share = super::client_share::Share { tokens: 5, size: 3 };
    let action = super::actions::share(&id(&[("k", "v")]), share, 60, 15 * SECOND);
    let bytes = [
        0x0a, 8, 0x0a, 6, 0x0a, 1, b'k', 0x12, 1, b'v', 0x12, 18, 0x12, 2, 0x08, 15, 0x1a, 12,
        0x1a, 10, 0x08, 3, 0x12, 2, 0x08, 5, 0x1a, 2, 0x08, 60,
    ];
    assert_eq!(action.encode_to_vec(), bytes);
    let abandon = super::actions::abandon(&id(&[]));
    assert_eq!(abandon.encode_to_vec(), [0x0a, 0, 0x1a, 0]);
    let deny = super::actions::blanket(&id(&[]), BlanketRule::DenyAll, 60 * SECOND);
    let bytes = [0x0a, 0, 0x12, 8, 0x12, 2, 0x08, 60, 0x1a, 2, 0x08, 1];
    assert_eq!(deny.encode_to_vec(), bytes);
}

mod instances {
    //! Instances that divide limits together.

    use tower_ratelimit::OnFailure;

    use super::*;
    use crate::rlqs::assignments::{PoolsInRedis, Shares};
    use crate::rlqs::redis_stand_in::FakeValues;

    fn instance(values: &FakeValues, on_failure: OnFailure) -> RateLimitQuotaService {
        let settings = RlqsSettings {
            client_header: Some(HeaderName::from_static("x-envoy")),
            ..RlqsSettings::default()
        };
        let redis = PoolsInRedis::fake(values.clone(), on_failure);
        RateLimitQuotaService(Shares::new(limits(RULES), settings, Some(redis)))
    }

    fn two() -> (FakeValues, [RateLimitQuotaService; 2]) {
        let values = FakeValues::new();
        let other = values.of_another();
        let instances = [&values, &other].map(|values| instance(values, OnFailure::local()));
        (values, instances)
    }

    fn usage(requests: u64) -> [(BucketId, u64); 1] {
        [(id(&[("user", "eve")]), requests)]
    }

    /// Reports this number each 5 seconds.
    async fn report_for(client: &mut Client, rounds: u32, requests: u64) {
        for _ in 0..rounds {
            client.report("shop", &usage(requests));
            client.read_for(5 * SECOND).await.expect("open");
        }
    }

    fn tokens(client: &Client) -> u32 {
        let share = client.share("user");
        share.tokens_per_fill.expect("tokens")
    }

    #[tokio::test(start_paused = true)]
    async fn instances_divide_a_limit_together() {
        let (values, instances) = two();
        let mut first = Client::open_as("a", &instances[0]).await;
        report_for(&mut first, 1, 1_000).await;
        assert_eq!(tokens(&first), 5_400);
        let mut second = Client::open_as("b", &instances[1]).await;
        second.report("shop", &usage(1_000));
        second.read_for(SECOND).await.expect("open");
        assert!(second.buckets.is_empty(), "nothing is free");
        for _ in 0..8 {
            report_for(&mut first, 1, 1_000).await;
            second.report("shop", &usage(1_000));
            second.read_for(SECOND).await.expect("open");
        }
        assert_eq!([&first, &second].map(tokens), [2_700; 2]);
        // Operators see both at each instance, and the names of its own.
        let pairs = [("user".to_owned(), "eve".to_owned())].into();
        let clients = instances[1].0.clients_of_bucket("shop", &pairs).await;
        let clients = clients.expect("Redis responds").expect("a limit");
        let seen =
            { clients.iter() }.map(|client| (client["client"].as_str(), &client["share"]["rate"]));
        let mut seen: Vec<_> = seen.collect();
        seen.sort_by_key(|(client, _)| *client);
        assert_eq!(seen, [(None, &45.0.into()), (Some("b"), &45.0.into())]);
        // A report costs an exchange, and no report nothing.
        values.calls();
        for _ in 0..4 {
            second.report("shop", &usage(1_000));
            second.read_for(SECOND).await.expect("open");
            report_for(&mut first, 1, 1_000).await;
        }
        assert_eq!(values.calls(), 16);
        first.read_for(10 * SECOND).await.expect("open");
        assert_eq!(values.calls(), 0);
    }

    /// A report of each other client within 5 seconds, half a second, the delay of a cut, and a second.
    #[tokio::test(start_paused = true)]
    async fn a_newcomer_has_its_part_within_nine_seconds() {
        let (_, instances) = two();
        let mut first = Client::open_as("a", &instances[0]).await;
        report_for(&mut first, 3, 10_000).await;
        let mut late = Client::open_as("b", &instances[1]).await;
        late.report("shop", &usage(10_000));
        late.read_for(4_900 * SECOND / 1_000).await.expect("open");
        first.report("shop", &usage(10_000));
        late.read_for(SECOND / 10).await.expect("open");
        late.report("shop", &usage(10_000));
        late.read_for(4 * SECOND).await.expect("open");
        assert_eq!(tokens(&late), 2_700);
    }

    #[tokio::test(start_paused = true)]
    async fn a_share_passes_to_another_instance() {
        let (_, instances) = two();
        let mut first = Client::open_as("a", &instances[0]).await;
        report_for(&mut first, 1, 10_000).await;
        drop(first);
        sleep(2 * SECOND).await;
        let mut other = Client::open_as("b", &instances[1]).await;
        other.report("shop", &usage(1));
        other.read_for(SECOND).await.expect("open");
        assert!(other.buckets.is_empty(), "nothing is free");
        drop(other);
        let mut again = Client::open_as("a", &instances[1]).await;
        again.report("shop", &usage(10_000));
        again.read_for(SECOND).await.expect("open");
        assert_eq!(tokens(&again), 5_400);
    }

    /// Its clients come within 5 seconds, and before the next report they get nothing.
    #[tokio::test(start_paused = true)]
    async fn a_share_passes_on_from_an_instance_that_is_killed() {
        let (values, instances) = two();
        let mut first = Client::open_as("a", &instances[0]).await;
        report_for(&mut first, 1, 10_000).await;
        values.cut(true);
        drop(first);
        let mut again = Client::open_as("a", &instances[1]).await;
        again.report("shop", &usage(10_000));
        again.read_for(5 * SECOND).await.expect("open");
        again.report("shop", &usage(10_000));
        again.read_for(SECOND).await.expect("open");
        assert_eq!(tokens(&again), 5_400);
    }

    #[tokio::test(start_paused = true)]
    async fn without_redis_each_instance_renews_its_shares_and_makes_none() {
        let (values, [service, _]) = two();
        let mut client = Client::open_as("a", &service).await;
        report_for(&mut client, 1, 10_000).await;
        values.cut(true);
        let mut late = Client::open_as("b", &service).await;
        for _ in 0..12 {
            client.buckets.clear();
            late.report("shop", &usage(1));
            report_for(&mut client, 2, 10_000).await;
            assert_eq!(tokens(&client), 5_400, "renewed within ten seconds");
        }
        late.read_for(SECOND).await.expect("open");
        assert!(late.buckets.is_empty());
        // It counts again when Redis is back.
        values.cut(false);
        let mut new = Client::open_as("c", &service).await;
        client.report("shop", &usage(10_000));
        client.read_for(SECOND).await.expect("open");
        new.report("shop", &usage(10_000));
        new.read_for(SECOND).await.expect("open");
        assert!(new.buckets.is_empty(), "nothing is free");
        assert!(tokens(&client) > 2_000);
    }

    #[tokio::test(start_paused = true)]
    async fn without_redis_the_policy_may_let_shares_end() {
        let values = FakeValues::new();
        let service = instance(&values, OnFailure::deny());
        let mut client = Client::open_as("a", &service).await;
        report_for(&mut client, 1, 10_000).await;
        client.buckets.clear();
        values.cut(true);
        report_for(&mut client, 12, 10_000).await;
        assert!(client.buckets.is_empty());
        values.cut(false);
        client.read_for(SECOND).await.expect("open");
        assert_eq!(tokens(&client), 5_400, "what has happened is not lost");
    }

    #[tokio::test(start_paused = true)]
    async fn without_redis_the_policy_may_let_all_pass() {
        let values = FakeValues::new();
        let service = instance(&values, OnFailure::allow());
        let mut client = Client::open_as("a", &service).await;
        report_for(&mut client, 1, 10_000).await;
        values.cut(true);
        let mut late = Client::open_as("b", &service).await;
        for _ in 0..4 {
            late.report("shop", &usage(1));
            report_for(&mut client, 2, 10_000).await;
            late.read_for(SECOND).await.expect("open");
            assert_eq!(client.blanket("user"), (BlanketRule::AllowAll, 15));
        }
        assert_eq!(late.blanket("user"), (BlanketRule::AllowAll, 15));
        values.cut(false);
        client.read_for(10 * SECOND).await.expect("open");
        assert!(tokens(&client) > 0);
    }

    /// It counts after the delay of a cut, so it is sent although nobody knows whether it was written.
    #[tokio::test(start_paused = true)]
    async fn a_cut_is_sent_within_its_delay_though_redis_does_not_answer_to_its_write() {
        let (values, instances) = two();
        let mut first = Client::open_as("a", &instances[0]).await;
        report_for(&mut first, 1, 1_000).await;
        let mut second = Client::open_as("b", &instances[1]).await;
        second.report("shop", &usage(1_000));
        second.read_for(SECOND).await.expect("open");
        values.delay(100 * SECOND);
        first.report("shop", &usage(1_000));
        first.read_for(2 * SECOND).await.expect("open");
        let cut = match &first.buckets["user"] {
            Some((strategy, 7)) => strategy.strategy.clone(),
            other => panic!("{other:?}"),
        };
        assert!(
            matches!(cut, Some(Strategy::TokenBucket(bucket)) if bucket.tokens_per_fill == Some(2_700)),
            "until the end of the larger share"
        );
        // It is renewed before its end, however long Redis hangs.
        for _ in 0..4 {
            report_for(&mut first, 1, 1_000).await;
        }
        assert_eq!(tokens(&first), 2_700);
    }

    /// The shares of other instances are unknown.
    #[tokio::test(start_paused = true)]
    async fn a_lost_pool_keeps_its_shares_and_frees_nothing_until_unknown_ones_have_ended() {
        for bytes in [None, Some(&b"rlqs2: of another version"[..])] {
            let (values, [service, other]) = two();
            let mut client = Client::open_as("a", &service).await;
            // Half of what is unclaimed is free.
            report_for(&mut client, 3, 1).await;
            let before = tokens(&client);
            assert!(before < 3_000, "{before:?}");
            values.replace(bytes);
            let mut late = Client::open_as("b", &other).await;
            for _ in 0..3 {
                client.buckets.clear();
                report_for(&mut client, 1, 1).await;
                assert!(tokens(&client) <= before, "{bytes:?}");
                late.report("shop", &usage(10_000));
                late.read_for(SECOND / 2).await.expect("open");
                assert!(late.buckets.is_empty(), "{bytes:?}");
            }
            report_for(&mut client, 1, 1).await;
            late.read_for(2 * SECOND).await.expect("open");
            assert!(tokens(&late) > 2_000);
        }
    }

    /// An instance that has no row of a pool cannot know that Redis has lost it, but for other pools.
    #[tokio::test(start_paused = true)]
    async fn after_a_loss_a_pool_that_is_missing_is_not_new() {
        let (values, [service, _]) = two();
        let mut client = Client::open_as("a", &service).await;
        report_for(&mut client, 1, 1).await;
        values.replace(None);
        report_for(&mut client, 1, 1).await;
        client.report("shop", &[(id(&[("fast", "x")]), 1)]);
        client.read_for(SECOND).await.expect("open");
        assert!(!client.buckets.contains_key("fast"));
        for _ in 0..4 {
            client.report("shop", &[(id(&[("fast", "x")]), 1)]);
            client.read_for(5 * SECOND).await.expect("open");
        }
        assert!(client.share("fast").tokens_per_fill > Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_has_a_maximum_of_rows() {
        let (_, [service, _]) = two();
        let mut clients = Vec::new();
        for _ in 0..1_025 {
            let client = Client::open(&service).await;
            client.report("shop", &[(id(&[("fast", "x")]), 1)]);
            clients.push(client);
        }
        // The names of rows are random: each of them may be the one beyond the maximum.
        sleep(SECOND).await;
        let mut refused = 0;
        for client in &mut clients {
            client.read_for(SECOND / 100).await.expect("open");
            if matches!(client.buckets.get("fast"), Some(Some((_, 60)))) {
                assert_eq!(client.blanket("fast"), (BlanketRule::DenyAll, 60));
                refused += 1;
            }
        }
        assert_eq!(refused, 1);
    }
}
