//! `spend`: quotas of the units that responses use.

use std::{
    fs,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use testkit::now;
use tower::{Layer, ServiceExt, service_fn};
use tower_ratelimit::{
    clock::ManualClock,
    rate_limit::{DeclaredBody, DeclaredLayer},
    rules::{Format, HoldingRulesLayer, Rules, RulesBuilder, RulesLayer},
    spend::Declared,
};

use crate::layer::store;

/// The rules of the page, with windows, so that nothing returns while a test runs.
const PAGE: &str = r#"
version: 1
prices: {"gpt-4.1*": {input: 2, cached: 0.5, output: 8}, "*": {input: 10, output: 30}}
rules:
  - name: llm
    match: {method: POST, path: "/v1/**"}
    key: bearer_token
    spend: {read: auto, reserve: 100}
    quota:
      - {name: tokens, rate: 10000/day, counts: tokens, algorithm: fixed_window}
      - {name: requests, rate: 60/day, algorithm: fixed_window}
      - {name: usd, rate: 5000000/day, counts: micro_usd, algorithm: fixed_window}
      - {name: output, rate: 2000/day, counts: output_tokens, algorithm: fixed_window}
"#;

fn builder(clock: &ManualClock) -> RulesBuilder {
    Rules::builder()
        .store(store(clock))
        .clock(clock.clone())
        .accept_spend(true)
        .accept_in_flight(true)
}

fn layer(text: &str) -> HoldingRulesLayer {
    let rules = builder(&ManualClock::new()).parse(text, Format::Yaml);
    RulesLayer::new(rules.expect("rules")).holding()
}

/// A rule for all requests with this `spend` and these quotas.
fn rule(spend: &str, quota: &str) -> String {
    format!("rules: [{{name: r, key: global, spend: {spend}, quota: {quota}}}]")
}

/// A response with this usage.
fn chat(model: &str, input: u64, cached: u64, output: u64) -> Response<Full<bytes::Bytes>> {
    let body = format!(
        r#"{{"model":"{model}","usage":{{"prompt_tokens":{input},"completion_tokens":{output},
        "prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#
    );
    let response = Response::builder().header("content-type", "application/json");
    response.body(Full::from(body)).expect("a response")
}

/// Sends a request and reads its response to the end. Returns the status and what is left of each policy, by its
/// reservation included.
async fn send(
    layer: &HoldingRulesLayer,
    path: &str,
    response: Response<Full<bytes::Bytes>>,
) -> (u16, Vec<(String, u64)>) {
    let (head, body) = response.into_parts();
    let inner = service_fn(move |_: Request<()>| {
        let response = Response::from_parts(head.clone(), body.clone());
        async { Ok::<_, std::convert::Infallible>(response) }
    });
    let request = Request::post(path).header("authorization", "Bearer a");
    let request = request.body(()).expect("a request");
    let answer = layer.layer(inner).oneshot(request).await;
    let answer = answer.expect("it never fails");
    let (head, body) = answer.into_parts();
    body.collect().await.expect("the body passes");
    (head.status.as_u16(), left(&head.headers))
}

/// The units that are left of each policy.
fn left(headers: &http::HeaderMap) -> Vec<(String, u64)> {
    let field = headers
        .get("ratelimit")
        .map_or("", |field| field.to_str().expect("printable characters"));
    let items = field.split(", ").filter_map(|item| {
        let (name, parameters) = item.split_once(';')?;
        let left = parameters
            .split(';')
            .find_map(|part| part.strip_prefix("r="))?;
        Some((name.trim_matches('"').to_owned(), left.parse().ok()?))
    });
    items.collect()
}

fn of(left: &[(String, u64)], name: &str) -> u64 {
    let found = left.iter().find(|(policy, _)| policy == name);
    found.unwrap_or_else(|| panic!("{name} in {left:?}")).1
}

/// The fields of a further request.
async fn look(layer: &HoldingRulesLayer) -> Vec<(String, u64)> {
    send(layer, "/v1/chat", chat("gpt-4.1", 0, 0, 0)).await.1
}

#[tokio::test]
async fn response_is_charged_in_requests_tokens_and_money() {
    let layer = layer(PAGE);
    let (status, first) = send(&layer, "/v1/chat", chat("gpt-4.1-mini", 1_000, 600, 500)).await;
    assert_eq!(status, 200);
    // The reservation of 100 tokens of output: for an unknown model they cost 3,000 micro-dollars.
    assert_eq!(of(&first, "llm.requests"), 59);
    assert_eq!(of(&first, "llm.tokens"), 9_900);
    assert_eq!(of(&first, "llm.output"), 1_900);
    assert_eq!(of(&first, "llm.usd"), 4_997_000);
    let (_, second) = send(&layer, "/v1/chat", chat("other", 0, 0, 10)).await;
    assert_eq!(of(&second, "llm.requests"), 58);
    assert_eq!(of(&second, "llm.tokens"), 8_500 - 100);
    assert_eq!(of(&second, "llm.output"), 1_500 - 100);
    // 400 tokens at 2 dollars a million, 600 at half a dollar, 500 at 8.
    let used = 400 * 2 + 300 + 500 * 8;
    assert_eq!(of(&second, "llm.usd"), 5_000_000 - used - 3_000);
    let third = look(&layer).await;
    assert_eq!(of(&third, "llm.usd"), 5_000_000 - used - 300 - 3_000);
    assert_eq!(of(&third, "llm.output"), 1_490 - 100);
}

#[tokio::test]
async fn debt_in_the_rate_is_the_most_that_a_key_owes() {
    let text = rule(
        "{read: auto, reserve: 1}",
        "{rate: 1000/minute debt 100, counts: tokens}",
    );
    let clock = ManualClock::new();
    let rules = builder(&clock).parse(text, Format::Yaml).expect("rules");
    let layer = RulesLayer::new(rules).holding();
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 5_000)).await.0, 200);
    clock.advance(std::time::Duration::from_secs(6));
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 1)).await.0, 429);
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 1)).await.0, 200);
}

#[tokio::test]
async fn key_that_used_more_than_its_quota_owes_the_rest() {
    let text = rule(
        "{read: auto, reserve: 1}",
        "{rate: 1000/minute, counts: tokens, burst: 1000}",
    );
    let clock = ManualClock::new();
    let rules = builder(&clock).parse(text, Format::Yaml).expect("rules");
    let layer = RulesLayer::new(rules).holding();
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 5_000)).await.0, 200);
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 1)).await.0, 429);
    // A full bucket and a debt of one more: both come back in two minutes, and 3,000 are forgotten.
    clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 1)).await.0, 429);
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(send(&layer, "/", chat("m", 0, 0, 1)).await.0, 200);
}

#[tokio::test]
async fn weights_count_kinds_of_tokens_and_models() {
    let weights = "{input: 1, cached: 0, output: 4, model: {\"o3*\": 10}}";
    let quota = format!("{{rate: 100000/day, algorithm: fixed_window, counts: {weights}}}");
    let layer = layer(&rule("{read: openai, reserve: 0}", &quota));
    send(&layer, "/", chat("gpt", 100, 50, 10)).await;
    // A reservation is 1 unit at least, and is refunded.
    assert_eq!(look(&layer).await, [("r".to_owned(), 100_000 - 90 - 1)]);
    send(&layer, "/", chat("o3-mini", 100, 50, 10)).await;
    assert_eq!(of(&look(&layer).await, "r"), 100_000 - 90 - 900 - 1);
}

#[tokio::test]
async fn response_that_does_not_count_is_refunded() {
    let text = PAGE.replace("    key:", "    count_if: {status: 2xx}\n    key:");
    let layer = layer(&text);
    let mut failed = chat("gpt-4.1", 1_000, 0, 500);
    *failed.status_mut() = StatusCode::BAD_GATEWAY;
    assert_eq!(send(&layer, "/v1/chat", failed).await.0, 502);
    let after = look(&layer).await;
    assert_eq!(of(&after, "llm.requests"), 59);
    assert_eq!(of(&after, "llm.tokens"), 9_900);
    // A report of a failed response counts without `count_if`.
    let all = self::layer(PAGE);
    let mut failed = chat("gpt-4.1", 1_000, 0, 500);
    *failed.status_mut() = StatusCode::BAD_GATEWAY;
    send(&all, "/v1/chat", failed).await;
    assert_eq!(of(&look(&all).await, "llm.tokens"), 8_400);
}

#[tokio::test]
async fn rules_without_spend_are_charged_beside_it_all_or_none() {
    let text = format!(
        "{PAGE}  - {{name: all, key: global, cost: 2, quota: {{rate: 6/day, algorithm: fixed_window}}}}\n"
    );
    let layer = layer(&text);
    for left in [4, 2, 0] {
        let (status, fields) = send(&layer, "/v1/chat", chat("gpt-4.1", 0, 0, 10)).await;
        assert_eq!((status, of(&fields, "all")), (200, left));
    }
    let (status, fields) = send(&layer, "/v1/chat", chat("gpt-4.1", 0, 0, 10)).await;
    // Nothing of the others is charged: 30 tokens of three responses are.
    assert_eq!((status, of(&fields, "llm.tokens")), (429, 9_970));
    assert_eq!(of(&fields, "llm.requests"), 57);
    // A request that only the other rule matches is decided as ever.
    assert_eq!(
        send(&layer, "/other", chat("gpt-4.1", 0, 0, 10)).await.0,
        429
    );
}

#[tokio::test]
async fn block_of_another_rule_gets_the_responses_that_count() {
    let login = "  - {name: login, key: global, count_if: {status: 401}, block_for: 1h, quota: \
                 {rate: 2/day, algorithm: fixed_window}}\n";
    let layer = layer(&format!("{PAGE}{login}"));
    let refused = || {
        let mut response = chat("gpt-4.1", 0, 0, 1);
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        response
    };
    assert_eq!(send(&layer, "/v1/chat", refused()).await.0, 401);
    assert_eq!(
        send(&layer, "/v1/chat", chat("gpt-4.1", 0, 0, 1)).await.0,
        200
    );
    assert_eq!(send(&layer, "/v1/chat", refused()).await.0, 401);
    assert_eq!(
        send(&layer, "/v1/chat", chat("gpt-4.1", 0, 0, 1)).await.0,
        429
    );
}

#[tokio::test]
async fn tiers_may_count_other_units() {
    let text = r#"
rules:
  - name: plan
    key: global
    spend: {read: auto, reserve: 5000}
    tier:
      header: x-plan
      default: free
      quotas:
        free: {rate: 100/day, counts: tokens, algorithm: fixed_window}
        paid: [{rate: 9000/day, name: day, counts: output_tokens, algorithm: fixed_window},
               {rate: 10/day, name: n, algorithm: fixed_window}]
"#;
    let layer = layer(text);
    let (_, first) = send(&layer, "/", chat("m", 10, 0, 20)).await;
    // A reservation is no more than the tier holds.
    assert_eq!(first, [("plan".to_owned(), 0)]);
    let (status, second) = send(&layer, "/", chat("m", 0, 0, 0)).await;
    assert_eq!((status, second), (429, vec![("plan".to_owned(), 70)]));
    let paid = async |output| {
        let inner = service_fn(move |_: Request<()>| async move {
            Ok::<_, std::convert::Infallible>(chat("m", 0, 0, output))
        });
        let request = Request::post("/").header("x-plan", "paid");
        let request = request.body(()).expect("a request");
        let answer = layer
            .layer(inner)
            .oneshot(request)
            .await
            .expect("it never fails");
        let (head, body) = answer.into_parts();
        body.collect().await.expect("the body passes");
        left(&head.headers)
    };
    let reserved = 1_024;
    assert_eq!(of(&paid(1_000).await, "plan.day"), 9_000 - reserved);
    let next = paid(0).await;
    assert_eq!(of(&next, "plan.day"), 8_000 - reserved);
    assert_eq!(of(&next, "plan.n"), 8);
}

#[tokio::test]
async fn usage_stands_where_the_rule_says() {
    let quota = "{rate: 1000/day, counts: units, algorithm: fixed_window}";
    let json = layer(&rule("{read: {json: /cost/units}, reserve: 0}", quota));
    let body = r#"{"cost":{"units":7},"usage":{"total_tokens":500}}"#;
    let response = Response::builder().header("content-type", "application/json");
    let response = response.body(Full::from(body)).expect("a response");
    send(&json, "/", response).await;
    assert_eq!(of(&look(&json).await, "r"), 992);
    let header = layer(&rule("{read: {header: X-Cost}, reserve: 0}", quota));
    let response = Response::builder().header("x-cost", "9");
    let response = response.body(Full::from("text")).expect("a response");
    send(&header, "/", response).await;
    assert_eq!(of(&look(&header).await, "r"), 990);
}

#[tokio::test]
async fn checks_of_other_processes_charge_no_units() {
    let layer = layer(PAGE);
    let handle = layer.handle();
    let request = || {
        let request = Request::post("/v1/chat").header("authorization", "Bearer a");
        request.body(()).expect("a request").into_parts().0
    };
    for _ in 0..3 {
        let checked = handle.check(&request(), None, false).await;
        let (_, decision) = checked.expect("a table of this process");
        assert!(decision.expect("a limit applies").is_allowed());
    }
    let after = look(&layer).await;
    assert_eq!(of(&after, "llm.requests"), 56);
    assert_eq!(of(&after, "llm.tokens"), 9_900);
}

#[tokio::test]
async fn counts_survive_a_reload_and_other_units_begin_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    fs::write(&path, PAGE).expect("a file");
    let rules = builder(&ManualClock::new()).read(&path).expect("rules");
    let layer = RulesLayer::new(rules).holding();
    send(&layer, "/v1/chat", chat("gpt-4.1", 1_000, 0, 500)).await;
    let more = PAGE
        .replace("60/day", "70/day")
        .replace("10000/day", "20000/day");
    fs::write(&path, &more).expect("a file");
    layer.handle().reload().expect("good rules");
    let after = look(&layer).await;
    assert_eq!(of(&after, "llm.requests"), 68);
    assert_eq!(of(&after, "llm.tokens"), 18_400);
    let other = more.replace("counts: tokens", "counts: input_tokens");
    fs::write(&path, &other).expect("a file");
    layer.handle().reload().expect("good rules");
    let after = look(&layer).await;
    assert_eq!(of(&after, "llm.requests"), 67);
    assert_eq!(of(&after, "llm.tokens"), 19_999);
}

/// The problems of a text.
fn problems(text: &str) -> String {
    let builder = builder(&ManualClock::new()).accept_in_flight(true);
    match builder.parse(text, Format::Yaml) {
        Ok(rules) => rules
            .warnings()
            .iter()
            .map(|problem| format!("{problem}\n"))
            .collect(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn faults_name_what_is_accepted() {
    let auto = |quota: &str| rule("{read: auto}", quota);
    let read = |place: &str| {
        rule(
            &format!("{{read: {place}}}"),
            "{rate: 9/day, counts: units}",
        )
    };
    let prices = |prices: &str| {
        format!(
            "prices: {prices}\n{}",
            auto("{rate: 9/day, counts: micro_usd}")
        )
    };
    for (text, message) in [
        (
            auto("5/day"),
            "R12 `spend` in a rule without a quota that counts units: give one `counts`",
        ),
        (
            "rules: [{name: r, key: global, quota: {rate: 9/day, counts: tokens}}]".to_owned(),
            "R12 a quota with `counts` in a rule without `spend`, such as `spend: {read: auto}`",
        ),
        (
            auto("{rate: 9/day, counts: {input: 0}}"),
            "R12 weights of 0 count nothing; accepted is a table",
        ),
        (
            auto("{rate: 9/day, counts: tokns}"),
            "not \"tokns\"; did you mean \"tokens\"?",
        ),
        (
            read("{json: usage}"),
            "R13 \"usage\" is no JSON pointer of up to 8 segments",
        ),
        (read("{header: \"x cost\"}"), "R13"),
        (read("{json: /a, header: b}"), "R02"),
        (read("autos"), "R01"),
        (
            rule(
                "{read: auto, reserve: 100, reserve_least: 300}",
                "{rate: 9/day, counts: tokens}",
            ),
            "R01 `reserve_least` of 300 is more than the `reserve` of 100; accepted is at most that",
        ),
        (
            auto("{rate: 9/day, counts: micro_usd}"),
            "R14 `counts: micro_usd` needs `prices`",
        ),
        (prices("{gpt: {input: 1}}"), "R14 `prices` without `\"*\"`"),
        (
            prices("{\"*\": {input: 1}, \"a*b*\": {input: 1}}"),
            "R14 \"a*b*\" is no model",
        ),
        (
            prices("{\"*\": {input: 0.0005}}"),
            "R01 `input` is a number with at most three decimals",
        ),
        (prices("{\"*\": {input: -1}}"), "R01"),
        (
            auto("{rate: 9/day, counts: tokens, algorithm: leaky_bucket, queue: 9}"),
            "R15 `counts` in a leaky bucket",
        ),
        (
            rule(
                "{read: auto}, block_for: 1h",
                "{rate: 9/day, counts: tokens}",
            ),
            "R15 `block_for` beside `spend`",
        ),
        (
            rule(
                "{read: auto}, mode: shadow",
                "{rate: 9/day, counts: tokens}",
            ),
            "R15 `mode: shadow` beside `spend`",
        ),
        (
            rule(
                "{read: auto}, action: overflow",
                "{rate: 9/day, counts: tokens}",
            ),
            "`spend` is of no use in a rule of the action `overflow`",
        ),
        (
            auto("{rate: 1000001/s, counts: tokens}"),
            "R04 1000001 in 1s is more than a million a second, the most that is accepted",
        ),
        (
            auto("{rate: 9/day, counts: tokens}"),
            "W24 a request may reserve 2048 units",
        ),
        (
            rule(
                "{read: auto, reserve: 1, exhausted: end}",
                "{rate: 9/day, counts: tokens}",
            ),
            "W25 `exhausted: end` ends responses with an error",
        ),
    ] {
        let problems = problems(&text);
        assert!(problems.contains(message), "{text}\n{problems}");
    }
    assert_eq!(problems(PAGE), "");
}

#[test]
fn file_of_the_page_is_read() {
    let page = include_str!("../../docs/budgets.md");
    let (_, text) = page.split_once("```yaml\n").expect("a file");
    let (text, _) = text.split_once("```").expect("its end");
    assert_eq!(problems(text), "");
}

/// Not also that the default of 256 is more than the reserve.
#[test]
fn a_field_of_a_wrong_kind_is_one_fault() {
    let text = rule(
        "{read: auto, reserve: 100, reserve_least: x}",
        "{rate: 9/day, counts: tokens}",
    );
    let refused = builder(&ManualClock::new()).parse(&text, Format::Yaml);
    let refused = refused.expect_err("x is no number").to_string();
    assert_eq!(refused.matches("R01").count(), 1, "{refused}");
}

#[test]
fn program_that_follows_no_bodies_refuses_the_field() {
    let refused = Rules::builder().parse(PAGE, Format::Yaml);
    let refused = refused
        .expect_err("no program follows the bodies")
        .to_string();
    assert!(
        refused.contains("R02 `spend` needs a program that follows"),
        "{refused}"
    );
}

#[test]
#[should_panic(expected = "a rule has `spend`, which needs a layer that follows the bodies")]
fn layer_that_follows_no_bodies_refuses_the_rules() {
    let rules = builder(&ManualClock::new()).parse(PAGE, Format::Yaml);
    let _ = RulesLayer::new(rules.expect("rules")).handle();
}

#[tokio::test]
async fn rules_set_how_much_of_a_request_is_read_for_its_reservation() {
    let spend = |body: &str| {
        rule(
            &format!("{{read: auto, reserve: 900, {body}}}"),
            "{name: tokens, rate: 1000/day, counts: tokens, algorithm: fixed_window}",
        )
        .replace("key: global", "key: {header: x-key}, match: {method: POST}")
    };
    let left_after = async |text: &str, method: &str| {
        let limit = layer(text);
        let handle = limit.handle();
        let layers = (
            DeclaredLayer::by(move |parts| handle.spend_body(parts)),
            limit,
        );
        let declared = Arc::new(Mutex::new(None));
        let found = Arc::clone(&declared);
        let inner = service_fn(move |request: Request<DeclaredBody<Full<bytes::Bytes>>>| {
            *found.lock().expect("no panic") = request.extensions().get::<Declared>().cloned();
            async { Ok::<_, std::convert::Infallible>(chat("m", 1, 0, 1)) }
        });
        let request = Request::builder().method(method).header("x-key", "a");
        let request = request.header("content-type", "application/json");
        let body = Full::from(r#"{"model":"m","max_tokens":300,"messages":[]}"#);
        let request = request.body(body).expect("a request");
        let answer = layers.layer(inner).oneshot(request).await;
        let left = left(answer.expect("it never fails").headers());
        let declared = declared.lock().expect("no panic").take();
        (left.first().map(|(_, left)| *left), declared.is_some())
    };
    // 44 bytes are 11 tokens, and 300 are declared.
    assert_eq!(
        left_after(&spend(""), "POST").await,
        (Some(1_000 - 11 - 300), true)
    );
    assert_eq!(
        left_after(&spend("body: 1000"), "POST").await,
        (Some(1_000 - 11 - 300), true)
    );
    // The document does not end within so many bytes, but the number stands in them.
    assert_eq!(
        left_after(&spend("body: 1"), "POST").await,
        (Some(1_000 - 11 - 300), true)
    );
    assert_eq!(
        left_after(&spend("body: 0"), "POST").await,
        (Some(100), false)
    );
    assert_eq!(left_after(&spend(""), "GET").await, (None, false));
    let error = builder(&ManualClock::new())
        .parse(spend("body: 2000000"), Format::Yaml)
        .expect_err("too much");
    assert!(error.to_string().contains("1048576"), "{error}");
}

#[tokio::test]
async fn a_table_sets_the_unit_that_clients_see() {
    let quota = "{rate: 1000/day, counts: tokens, algorithm: fixed_window, unit: tokens}";
    let layer = layer(&rule("{read: auto}", quota));
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(chat("m", 1, 0, 1))
    });
    let answer = layer.layer(inner).oneshot(Request::new(())).await;
    let answer = answer.expect("it never fails");
    let policy = answer.headers()["ratelimit-policy"].to_str().expect("text");
    assert_eq!(policy, r#""r";q=1000;w=86400;qu="tokens""#);
    let text = rule(
        "{read: auto}",
        &quota.replace("unit: tokens", "unit: two words"),
    );
    let error = builder(&ManualClock::new()).parse(text, Format::Yaml);
    let error = error.expect_err("two words").to_string();
    assert!(error.contains("R04"), "{error}");
}

fn ends(future: Pin<&mut impl Future>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    future.poll(&mut cx).is_ready()
}

#[test]
fn request_that_no_body_could_save_waits_for_none() {
    let text = r"
rules:
  - name: llm
    key: bearer_token
    spend: {read: auto, reserve: 100}
    in_flight: 2
    quota:
      - {name: requests, rate: 2/day, algorithm: fixed_window}
      - {name: tokens, rate: 1000/day, counts: tokens, algorithm: fixed_window}
  - {name: shadow, key: global, mode: shadow, quota: 1/day fixed_window}
  - {name: marked, key: global, action: overflow, quota: 1/day fixed_window}
";
    let layer = layer(text);
    let handle = layer.handle();
    let request = |key: &str| {
        let request = Request::post("/").header("authorization", format!("Bearer {key}"));
        request.body(()).expect("a request").into_parts().0
    };
    let denied = |key: &str| {
        let mut denied = Box::pin(handle.denied_without_body(&request(key)));
        let ended = ends(denied.as_mut());
        (ended, denied)
    };
    let in_flight = || handle.in_flight()[0].1;
    // Requests that wait are in flight, and are charged nothing.
    let waiting: Vec<_> = (0..2).map(|_| denied("a")).collect();
    assert!(waiting.iter().all(|(ended, _)| !ended));
    assert_eq!(in_flight(), 2);
    assert!(denied("a").0 && !denied("b").0);
    drop(waiting);
    assert_eq!(in_flight(), 0);
    for _ in 0..2 {
        let limits = now(handle.check(&request("a"), None, false));
        assert!(limits.expect("a decision").1.expect("limits").is_allowed());
    }
    assert!(denied("a").0 && !denied("b").0);
    // A request that may wait for a quota is not denied yet.
    let waits = text.replace("in_flight: 2", "wait: 10s");
    let handle = self::layer(&waits).handle();
    let limits = now(handle.check(&request("a"), Some(2), false));
    assert!(limits.expect("a decision").1.expect("limits").is_allowed());
    let mut denied = Box::pin(handle.denied_without_body(&request("a")));
    assert!(!ends(denied.as_mut()));
}

#[tokio::test]
async fn upgraded_connection_keeps_its_reservation() {
    for spend in [
        "{read: auto, reserve: 100}",
        "{read: {header: x-cost}, reserve: 100}",
        "{read: {json: /units}, reserve: 100, missing: give_back}",
    ] {
        let quota = "{name: tokens, rate: 1000/day, counts: tokens, algorithm: fixed_window}";
        let layer = layer(&rule(spend, quota));
        let open = || {
            let response = Response::builder()
                .status(101)
                .header("content-type", "application/json");
            response.body(Full::default()).expect("a response")
        };
        assert_eq!(send(&layer, "/", open()).await.0, 101);
        let (_, left) = send(&layer, "/", open()).await;
        assert_eq!(left[0].1, 1_000 - 200, "{spend}");
    }
}

#[tokio::test]
async fn quotas_of_bytes_count_either_side_or_both() {
    let quota = |name: &str, counts: &str| {
        format!("{{name: {name}, rate: 100000/day, algorithm: fixed_window, counts: {counts}}}")
    };
    let quotas = [
        quota("in", "request_bytes"),
        quota("out", "response_bytes"),
        quota("all", "bytes"),
    ];
    let layer = layer(&rule(
        "{read: bytes, reserve: 400}",
        &format!("[{}]", quotas.join(", ")),
    ));
    let send = async |response: Response<Full<bytes::Bytes>>| {
        let (head, body) = response.into_parts();
        let inner = service_fn(move |_: Request<()>| {
            let response = Response::from_parts(head.clone(), body.clone());
            async { Ok::<_, std::convert::Infallible>(response) }
        });
        let request = Request::post("/").header("content-length", "3000");
        let request = request.body(()).expect("a request");
        let answer = layer.layer(inner).oneshot(request).await;
        let (head, body) = answer.expect("it never fails").into_parts();
        body.collect().await.expect("the body passes");
        left(&head.headers)
    };
    let mut file = Response::new(Full::from(vec![0; 2_000]));
    *file.status_mut() = StatusCode::NOT_FOUND;
    let first = send(file.clone()).await;
    // The length of a request is known when it arrives; that of a response counts `reserve` until its head comes.
    assert_eq!(of(&first, "r.in"), 97_000);
    assert_eq!(of(&first, "r.out"), 99_600);
    assert_eq!(of(&first, "r.all"), 96_600);
    let second = send(file).await;
    assert_eq!(of(&second, "r.in"), 94_000);
    assert_eq!(of(&second, "r.out"), 98_000 - 400);
    assert_eq!(of(&second, "r.all"), 95_000 - 3_400);
}
