//! Tests: admissions in the cache.

use std::{fmt::Write as _, sync::Arc};

use http::Request;

use super::{Admissions, InFlightTables, LayerSettings, RuleAdmission};
use crate::{
    rate_limit::SharedQueues,
    reject::ProblemJson,
    rules::{Format, Rules, select::RulesVerdict},
};

fn admissions(text: &str) -> Admissions<ProblemJson> {
    let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
    let settings = LayerSettings {
        rejection: Arc::new(ProblemJson),
        observer: None,
        expose_decision: false,
        grpc: true,
        queues: SharedQueues::new(),
        in_flight: InFlightTables::default(),
        holds_permits: false,
        follows_bodies: false,
    };
    Admissions::new(rules, Arc::new(settings))
}

/// The admission of the rules that apply to a request with these fields.
fn admission(
    admissions: &Admissions<ProblemJson>,
    fields: &[(String, String)],
) -> Arc<RuleAdmission<ProblemJson>> {
    let mut request = Request::get("/");
    for (name, value) in fields {
        request = request.header(name, value);
    }
    let (parts, ()) = request.body(()).expect("a request").into_parts();
    let RulesVerdict::Limited(charges) = admissions.rules.select(&parts, admissions.rules.now())
    else {
        panic!("limits");
    };
    admissions.together(charges.iter())
}

fn field(name: impl Into<String>, value: u32) -> (String, String) {
    (name.into(), value.to_string())
}

#[test]
fn requests_of_all_costs_share_the_admission_of_their_rules() {
    let admissions = admissions(
        "rules:
  - {name: units, key: global, quota: 100000/day, cost: {header: {name: x-cost, max: 5000}}}
  - {name: calls, key: global, quota: 100000/day}",
    );
    for cost in 1..=2_000 {
        admission(&admissions, &[field("x-cost", cost)]);
    }
    assert_eq!(admissions.cached(), 1);
}

/// Clients that request all combinations of rules evict no admission in use.
#[test]
fn admission_in_use_survives_a_flood_of_others() {
    let mut text = String::from("rules:\n  - {name: all, key: global, quota: 5/day}\n");
    for rule in 0..12 {
        let _ = writeln!(
            text,
            "  - {{name: r{rule}, match: {{header: {{x-{rule}: '1'}}}}, key: global, quota: 5/day}}"
        );
    }
    let admissions = admissions(&text);
    let admission_of = |combination: u32| {
        let rules = (0..12).filter(|rule| combination & (1 << rule) != 0);
        let fields: Vec<_> = rules.map(|rule| field(format!("x-{rule}"), 1)).collect();
        admission(&admissions, &fields)
    };
    for combination in 1..2_000 {
        admission_of(combination);
    }
    let usual = (1 << 12) - 1;
    let first = admission_of(usual);
    let mut built_again = 0;
    for combination in 2_000..usual {
        built_again += usize::from(!Arc::ptr_eq(&first, &admission_of(usual)));
        admission_of(combination);
    }
    assert_eq!(built_again, 0);
    assert!(admissions.cached() <= 1_024);
}
