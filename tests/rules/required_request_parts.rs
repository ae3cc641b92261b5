//! The parts of requests that rules match.

use std::net::SocketAddr;

use tower_ratelimit::rules::{Format, RequestPart, Rules};

#[test]
fn rules_list_the_parts_of_requests_that_they_need() {
    let text = r#"
defaults: {key: {first_of: [bearer_token, client_ip]}}
quotas: {free: 1/s, pro: 5/s}
rules:
  - {name: plain, match: {method: GET, path: "/{id}", query: {q: true}, client: 10.0.0.0/8, time: {days: sat}}, key: [client_ip, {path_param: id}], quota: 1/s}
  - {name: bots, match: {header: {User-Agent: "*bot*"}, not: {host: a.example, header: {user-agent: x}}}, action: allow}
  - name: plans
    match: {authenticated: true, route: /x}
    key: {first_of: [{secret_header: X-Key}, {cookie: session}, [basic_user, host], {custom: account}]}
    tier: {header: x-plan, default: free, quotas: {free: free, pro: pro}}
    cost: {header: {name: x-cost, max: 5}}
  - {name: default, quota: 1/s}
"#;
    let rules = Rules::builder().outside_of_application(true);
    let rules = rules.parse(text, Format::Yaml).expect("rules");
    let reported: Vec<_> = rules.needs().collect();
    let header = |name: &'static str| RequestPart::Header(name.parse().expect("a name"));
    let expected = [
        ("bots", header("user-agent"), false),
        ("bots", RequestPart::Host, false),
        ("plans", RequestPart::Authenticated, false),
        ("plans", RequestPart::Route, false),
        ("plans", header("x-plan"), false),
        ("plans", header("x-cost"), false),
        ("plans", header("x-key"), true),
        ("plans", RequestPart::Cookie("session".into()), true),
        ("plans", RequestPart::BasicUser, true),
        ("plans", RequestPart::Host, true),
        ("plans", RequestPart::CustomKey("account".into()), true),
        ("default", RequestPart::BearerToken, true),
    ];
    let reported: Vec<_> = reported
        .into_iter()
        .map(|need| (need.rule, need.part.clone(), need.is_key))
        .collect();
    assert_eq!(reported, expected);
}

/// The alternative is that of the request at hand, and as the file names it.
#[test]
fn the_alternative_of_a_first_of_is_named() {
    let text = r#"
rules:
  - {name: one, key: {first_of: [{secret_header: X-Key}, {cookie: session}, [basic_user, method], client_ip]}, quota: 1/s}
  - {name: two, key: [method, {first_of: [{query: a}, global]}, {first_of: [{first_of: [bearer_token, host]}]}], quota: 1/s}
  - {name: none, key: client_ip, quota: 1/s}
  - {name: nobody, key: {first_of: [bearer_token]}, quota: 1/s}
"#;
    let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
    let reported = |rule: &str, uri: &str, fields: &[(&str, &str)]| {
        let request = http::Request::get(uri).extension(SocketAddr::from(([203, 0, 113, 7], 9)));
        let request = fields.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        rules.key_alternative(rule, &parts)
    };
    let basic = ("authorization", "Basic dTpw");
    for (rule, uri, fields, expected) in [
        ("one", "/", &[("x-key", "k")][..], Some("header x-key")),
        (
            "one",
            "/",
            &[("cookie", "session=s")],
            Some("cookie session"),
        ),
        ("one", "/", &[basic], Some("basic_user + method")),
        ("one", "/", &[], Some("client_ip")),
        ("two", "/?a=1", &[("host", "h")], Some("query a + host")),
        ("two", "/", &[("host", "h")], Some("global + host")),
        ("none", "/", &[], None),
        ("nobody", "/", &[], None),
        ("unknown", "/", &[], None),
    ] {
        assert_eq!(
            reported(rule, uri, fields).as_deref(),
            expected,
            "{rule} {fields:?}"
        );
    }
}
