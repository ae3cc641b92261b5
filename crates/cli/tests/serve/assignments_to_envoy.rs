//! Facts about Envoy 1.40 on which the quota service relies, seen with a real one: when it reports, what assignments
//! do to its buckets, and when they end.

use std::time::Duration;

use testkit::{child_processes::eventually, needs};
use tower_ratelimit_envoy::protobuf_messages::{
    BlanketRule::{AllowAll, DenyAll},
    BucketQuotaUsage,
};

use crate::{
    envoy_quota_shares::envoy_has_crashed,
    raw_http::try_send,
    scripted_quota_server::{
        LONG, ScriptedEnvoy, abandon, assign, assign_requests_per_second, blanket, tokens, user_of,
    },
};

/// An interval between tokens that no test lasts for.
const YEAR: Duration = Duration::from_secs(31_536_000);
const SECOND: Duration = Duration::from_secs(1);

/// Everything passes for 10 minutes after the end of an assignment, and nothing without one.
const ALLOW_AFTER_END: (&str, &str) = (
    "token_bucket: {max_tokens: 5, tokens_per_fill: 45, fill_interval: 1s}",
    "blanket_rule: ALLOW_ALL",
);

#[tokio::test]
async fn envoy_reports_a_new_bucket_by_itself_and_then_all_every_few_seconds() {
    needs!(envoy);
    let interval = ("reporting_interval: 5s", "reporting_interval: 600s");
    let mut envoy = ScriptedEnvoy::start(&[interval]).await;
    envoy.create(&["eve", "bob"]).await;
    for user in ["eve", "bob"] {
        let is_alone = |message: &Vec<_>| matches!(&message[..], [one] if user_of(one) == user);
        assert!(envoy.messages().iter().any(is_alone), "{user}");
    }
    // No request is between these.
    let reports = envoy.reports_of("eve", 3).await;
    assert_eq!(requests(&reports), (0, 1));
    assert_eq!(requests(&reports[1..]), (0, 0));
    let is_of_both = |message: &Vec<_>| message.len() == 2;
    assert!(envoy.messages().iter().any(is_of_both));

    // Requests that a bucket denies are in its reports.
    envoy
        .apply(vec![assign("eve", tokens(3, YEAR), LONG)])
        .await;
    for status in [200, 200, 200, 429, 429] {
        assert_eq!(envoy.status("eve").await, status);
    }
    envoy
        .apply(vec![assign("eve", blanket(DenyAll), LONG)])
        .await;
    assert_eq!(envoy.status("eve").await, 429);
    eventually("all requests in reports", async || {
        (requests(&envoy.reports("eve")) == (3, 4)).then_some(())
    })
    .await;

    // An abandoned bucket has no reports, and its next request is that of a new one.
    envoy.apply(vec![abandon("eve")]).await;
    envoy.two_intervals().await;
    let of_eve = |message: &&Vec<_>| message.iter().any(|report| user_of(report) == "eve");
    let before = envoy.messages();
    assert!(before.last().filter(of_eve).is_none());
    let number = envoy.reports("eve").len();
    assert_eq!(envoy.status("eve").await, 429);
    envoy.reports_of("eve", number + 1).await;
    let messages = envoy.messages();
    let first = messages[before.len()..].iter().find(of_eve).unwrap();
    assert_eq!(first.len(), 1);

    let reports = messages.iter().flatten();
    for elapsed in reports.filter_map(|report| report.time_elapsed.as_ref()) {
        assert_eq!(elapsed.nanos, 0);
    }
    assert_eq!(envoy.streams(), 1);
}

/// The allowed and the denied requests.
fn requests(reports: &[BucketQuotaUsage]) -> (u64, u64) {
    let allowed = reports.iter().map(|report| report.num_requests_allowed);
    let denied = reports.iter().map(|report| report.num_requests_denied);
    (allowed.sum(), denied.sum())
}

#[tokio::test]
async fn level_of_an_envoys_bucket_after_another_assignment() {
    needs!(envoy);
    let mut envoy = ScriptedEnvoy::start(&[]).await;
    let bucket = |size| tokens(size, YEAR);
    let after_four = [
        ("same", vec![bucket(10)], 6),
        ("larger", vec![bucket(25)], 15),
        ("smaller", vec![bucket(7)], 4),
        ("faster", vec![tokens(10, SECOND)], 6),
        ("blanket", vec![blanket(AllowAll), bucket(10)], 10),
        ("renewal", vec![blanket(DenyAll), bucket(10)], 10),
    ];
    for (user, next, level) in after_four {
        envoy.create(&[user]).await;
        envoy.apply(vec![assign(user, bucket(10), LONG)]).await;
        for _ in 0..4 {
            assert_eq!(envoy.status(user).await, 200, "{user}");
        }
        let actions = next.into_iter().map(|next| assign(user, next, LONG));
        envoy.apply(actions.collect()).await;
        assert_eq!(envoy.passes(user).await, level, "{user}");
    }
    // Envoy compares no more of the interval than its nanoseconds, so the bucket gets a token a year still.
    envoy.two_intervals().await;
    assert_eq!(envoy.status("faster").await, 429);
    let another = SECOND + Duration::from_nanos(1);
    envoy
        .apply(vec![assign("faster", tokens(10, another), LONG)])
        .await;
    envoy.becomes("faster", 200).await;
    // Below a second the rate is without a bound.
    let half = SECOND / 2;
    envoy
        .apply(vec![assign("faster", tokens(10, half), LONG)])
        .await;
    envoy.becomes("faster", 200).await;
    assert_eq!(envoy.passes("faster").await, 100);
}

#[tokio::test]
async fn requests_per_time_unit_change_nothing_in_envoy() {
    needs!(envoy);
    let mut envoy = ScriptedEnvoy::start(&[]).await;
    envoy.create(&["new", "eve"]).await;
    envoy
        .apply(vec![assign("eve", tokens(10, YEAR), LONG)])
        .await;
    for _ in 0..4 {
        assert_eq!(envoy.status("eve").await, 200);
    }
    let actions = ["eve", "new"].map(assign_requests_per_second);
    envoy.apply(actions.into()).await;
    assert_eq!(envoy.passes("eve").await, 6);
    assert_eq!(envoy.passes("new").await, 0);
    let error = "RequestsPerTimeUnit rate limit strategies are not yet supported";
    envoy.process.logs_times(error, 2).await;
}

#[tokio::test]
async fn assignments_end_after_their_time_in_envoy() {
    needs!(envoy);
    let mut envoy = ScriptedEnvoy::start(&[ALLOW_AFTER_END]).await;
    envoy.create(&["arrival", "none", "again"]).await;
    envoy
        .apply(vec![
            assign("arrival", blanket(DenyAll), Some(SECOND)),
            assign("none", blanket(DenyAll), None),
        ])
        .await;
    envoy.becomes("none", 200).await;
    // Time passes without a request.
    envoy.two_intervals().await;
    assert_eq!(envoy.status("arrival").await, 200);
    // An assignment during the fallback is in force at once.
    envoy
        .apply(vec![assign("arrival", blanket(DenyAll), LONG)])
        .await;
    assert_eq!(envoy.status("arrival").await, 429);
    // Time begins anew with an equal assignment.
    let bucket = |time| assign("again", tokens(1, YEAR), time);
    envoy.apply(vec![bucket(Some(SECOND)), bucket(LONG)]).await;
    assert_eq!(envoy.passes("again").await, 1);
    envoy.two_intervals().await;
    assert_eq!(envoy.status("again").await, 429);
}

#[tokio::test]
async fn envoys_fallback_has_an_end_and_then_it_is_without_an_assignment() {
    needs!(envoy);
    let timeout = (
        "expired_assignment_behavior_timeout: 600s",
        "expired_assignment_behavior_timeout: 10s",
    );
    let envoy = ScriptedEnvoy::start(&[ALLOW_AFTER_END, timeout]).await;
    envoy.create(&["eve"]).await;
    envoy.send(vec![assign("eve", blanket(DenyAll), Some(SECOND))]);
    envoy.becomes("eve", 200).await;
    envoy.becomes("eve", 429).await;
}

#[tokio::test]
async fn envoys_bucket_is_full_after_an_end_without_a_fallback() {
    needs!(envoy);
    let reuse = (
        concat!(
            "fallback_rate_limit:\n                                  ",
            "token_bucket: {max_tokens: 5, tokens_per_fill: 45, fill_interval: 1s}",
        ),
        "reuse_last_assignment: {}",
    );
    let mut envoy = ScriptedEnvoy::start(&[reuse]).await;
    envoy.create(&["eve"]).await;
    let bucket = |time| vec![assign("eve", tokens(10, YEAR), time)];
    envoy.apply(bucket(LONG)).await;
    for _ in 0..4 {
        assert_eq!(envoy.status("eve").await, 200);
    }
    // It ends at once, and is not used again.
    envoy.apply(bucket(None)).await;
    envoy.two_intervals().await;
    assert_eq!(envoy.status("eve").await, 429);
    envoy.apply(bucket(LONG)).await;
    assert_eq!(envoy.passes("eve").await, 10);
}

#[tokio::test]
async fn a_token_bucket_without_an_assignment_ends_envoy() {
    needs!(envoy);
    let bucket = "token_bucket: {max_tokens: 5, tokens_per_fill: 5, fill_interval: 1s}";
    let envoy = ScriptedEnvoy::start(&[("blanket_rule: DENY_ALL", bucket)]).await;
    assert_eq!(envoy.status("eve").await, 200);
    eventually("the end of Envoy", async || {
        let answer = try_send(envoy.listener, "GET / HTTP/1.1\r\nx-user: eve", "").await;
        answer.is_none().then_some(())
    })
    .await;
    eventually("the reason", async || {
        envoy_has_crashed(&envoy.process.log()).then_some(())
    })
    .await;
}
