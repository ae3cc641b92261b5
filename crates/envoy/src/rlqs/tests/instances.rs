//! Instances that divide limits together.

use tower_ratelimit::OnFailure;

use super::{fake_values::FakeValues, *};
use crate::rlqs::{
    ShareOfClient,
    shares::{PoolsInRedis, Shares},
};

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
    let seen = clients
        .into_iter()
        .map(|client| (client.name, client.share));
    let mut seen: Vec<_> = seen.collect();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let half = |share| matches!(share, Some(ShareOfClient::Rate { rate: 45.0, .. }));
    assert_eq!(
        (seen[0].0.as_deref(), seen[1].0.as_deref()),
        (None, Some("b"))
    );
    assert!(seen.iter().all(|(_, share)| half(*share)), "{seen:?}");
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
