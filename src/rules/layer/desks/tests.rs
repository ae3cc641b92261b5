//! Which desks are kept.

use std::{fmt::Write as _, sync::Arc};

use http::Request;

use super::{Desks, LayerSettings, RuleDesk};
use crate::{
    rate_limit::DeskRoom,
    reject::ProblemJson,
    rules::{Format, Rules, select::RulesVerdict},
};

fn desks(text: &str) -> Desks<ProblemJson> {
    let rules = Rules::builder().parse(text, Format::Yaml).expect("rules");
    let settings = LayerSettings {
        rejection: Arc::new(ProblemJson),
        observer: None,
        expose_decision: false,
        grpc: true,
        room: DeskRoom::new(),
    };
    Desks::new(rules, Arc::new(settings))
}

/// The desk of a request with these fields, whose rules meet.
fn desk(desks: &Desks<ProblemJson>, fields: &[(String, String)]) -> Arc<RuleDesk<ProblemJson>> {
    let mut request = Request::get("/");
    for (name, value) in fields {
        request = request.header(name, value);
    }
    let (parts, ()) = request.body(()).expect("a request").into_parts();
    let RulesVerdict::Limited(charges) = desks.rules.select(&parts, desks.rules.now()) else {
        panic!("limits");
    };
    let charges: Vec<_> = charges.iter().collect();
    desks.together(&charges)
}

fn field(name: impl Into<String>, value: u32) -> (String, String) {
    (name.into(), value.to_string())
}

#[test]
fn requests_of_all_costs_share_the_desk_of_their_rules() {
    let desks = desks(
        "rules:
  - {name: units, key: global, quota: 100000/day, cost: {header: {name: x-cost, max: 5000}}}
  - {name: calls, key: global, quota: 100000/day}",
    );
    for cost in 1..=2_000 {
        desk(&desks, &[field("x-cost", cost)]);
    }
    assert_eq!(desks.kept(), 1);
}

/// Clients that have all combinations of rules make others build no desk.
#[test]
fn desk_that_is_in_use_outlives_a_flood_of_others() {
    let mut text = String::from("rules:\n  - {name: all, key: global, quota: 5/day}\n");
    for rule in 0..12 {
        let _ = writeln!(
            text,
            "  - {{name: r{rule}, match: {{header: {{x-{rule}: '1'}}}}, key: global, quota: 5/day}}"
        );
    }
    let desks = desks(&text);
    let desk_of = |met: u32| {
        let rules = (0..12).filter(|rule| met & (1 << rule) != 0);
        let fields: Vec<_> = rules.map(|rule| field(format!("x-{rule}"), 1)).collect();
        desk(&desks, &fields)
    };
    for met in 1..2_000 {
        desk_of(met);
    }
    let usual = (1 << 12) - 1;
    let first = desk_of(usual);
    let mut built_again = 0;
    for met in 2_000..usual {
        built_again += usize::from(!Arc::ptr_eq(&first, &desk_of(usual)));
        desk_of(met);
    }
    assert_eq!(built_again, 0);
    assert!(desks.kept() <= 1_024);
}
