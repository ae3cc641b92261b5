//! Files and messages with equal rules decide alike.

use serde_json::{Value, json};
use tower_ratelimit::{
    LocalStore,
    clock::{ManualClock, Timestamp},
};
use tower_ratelimit_envoy::{
    decide::{Modes, RateLimits},
    limiters_by_period::Counters,
    lyft::Rules,
    protobuf_messages::{
        Code, DescriptorConfig, DiscoveryResponse, RateLimitConfig, RateLimitPolicy,
        RateLimitReplace, Unit,
    },
    xds,
};

use super::control_plane::{TYPE_URL, resource};
use crate::lyft::model::{Dice, nodes, request};

/// Twelve seconds after the start of a minute, an hour, a day and a week.
const START: u64 = 1_767_225_600 + 12;

const REQUESTS: u64 = 50_000;

/// The descriptors of a file as messages.
fn descriptors(list: &Value) -> Vec<DescriptorConfig> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let truth = |value: &Value| value.as_bool().unwrap_or_default();
    let all = list.as_array().into_iter().flatten();
    let all = all.map(|json| DescriptorConfig {
        key: text(&json["key"]),
        value: text(&json["value"]),
        rate_limit: json.get("rate_limit").map(|limit| RateLimitPolicy {
            unit: Unit::named(&text(&limit["unit"]))
                .unwrap_or(Unit::Unknown)
                .into(),
            requests_per_unit: limit["requests_per_unit"].as_u64().unwrap() as u32,
            unlimited: truth(&limit["unlimited"]),
            name: text(&limit["name"]),
            replaces: limit["replaces"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|replaced| RateLimitReplace {
                    name: text(&replaced["name"]),
                })
                .collect(),
        }),
        descriptors: descriptors(&json["descriptors"]),
        shadow_mode: truth(&json["shadow_mode"]),
        quota_mode: truth(&json["quota_mode"]),
        detailed_metric: false,
        metadata: None,
    });
    all.collect()
}

/// Removes a field that messages do not have.
fn without_shares(list: &mut Value) {
    for descriptor in list.as_array_mut().into_iter().flatten() {
        descriptor
            .as_object_mut()
            .unwrap()
            .remove("share_threshold");
        without_shares(&mut descriptor["descriptors"]);
        if descriptor["descriptors"].is_null() {
            descriptor.as_object_mut().unwrap().remove("descriptors");
        }
    }
}

fn limits(rules: Rules) -> (RateLimits, ManualClock) {
    let clock = ManualClock::new();
    let store = LocalStore::builder().max_keys(4_096).clock(clock.clone());
    let counters = Counters::local(&store.build().unwrap());
    let limits = RateLimits::new(counters, Modes::default());
    limits.set_rules(rules);
    (limits, clock)
}

#[tokio::test]
async fn rules_by_file_and_by_control_plane_decide_alike() {
    let (mut done, mut over) = (0, 0);
    for seed in 0.. {
        let mut dice = Dice::new(seed, [Unit::Second, Unit::Minute, Unit::Hour]);
        let (_, mut list) = nodes(&mut dice, 3);
        without_shares(&mut list);
        let text = json!({"domain": "rl", "descriptors": list}).to_string();
        let by_file = Rules::builder().parse([("rules.json", &*text)]).unwrap();
        let config = RateLimitConfig {
            name: "rl".to_owned(),
            domain: "rl".to_owned(),
            descriptors: descriptors(&list),
        };
        let set = DiscoveryResponse {
            resources: vec![resource(&config)],
            type_url: TYPE_URL.to_owned(),
            ..DiscoveryResponse::default()
        };
        let by_plane = xds::rules(set, &Rules::builder()).unwrap();
        assert_eq!(by_file.len(), by_plane.len());
        let ((by_file, clock), (by_plane, other_clock)) = (limits(by_file), limits(by_plane));
        let mut now = START * 1_000_000;
        for at in 0..1_000 {
            now += dice.of(&[0, 0, 0, 100_000, 1_000_000, 30_000_000]);
            for clock in [&clock, &other_clock] {
                clock.set(Timestamp::from_micros(now));
            }
            let request = request(&mut dice);
            let [one, other] = [&by_file, &by_plane].map(|limits| limits.decide(&request));
            let (one, other) = (one.await.unwrap(), other.await.unwrap());
            assert_eq!(one, other, "seed {seed}, request {at}: {request:?}\n{text}");
            over += u64::from(one.overall_code() == Code::OverLimit);
            done += 1;
        }
        let names = |limits: &RateLimits| {
            let all = limits.statistics().all().into_iter();
            let mut names: Vec<_> = all
                .map(|(name, counts)| (name.to_string(), counts))
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(&by_file), names(&by_plane));
        if done >= REQUESTS {
            break;
        }
    }
    eprintln!("{done} requests agreed, {over} of them over a limit");
    assert!((done / 40..done / 2).contains(&over), "{over} of {done}");
}
