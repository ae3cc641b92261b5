//! Another implementation of the protocol: grpcio for Python, with the messages of `xds-protos`.

use std::{
    fs::{self, File},
    ops::RangeInclusive,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::needs;
use tower_ratelimit_envoy::protobuf_messages::{Code, RateLimitRequest, RateLimitResponse, Unit};

use crate::{
    model::{Dice, Model, nodes, request, seconds},
    service_process::Service,
};

/// Units whose windows seldom end during a test.
const UNITS: [Unit; 3] = [Unit::Day, Unit::Month, Unit::Year];

/// The number of compared requests for the rules of a domain.
const REQUESTS: usize = 200;

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// Fields that Envoy has and the packages do not have yet.
const NEWER: [&str; 3] = [
    "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.unit_multiplier",
    "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.is_negative_hits",
    "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.unit_multiplier",
];

/// The lines that the client prints for this input file.
fn client(port: u16, arguments: &[&str], input: &Path) -> Vec<Value> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/client.py");
    let mut command = Command::new("python3");
    command
        .arg(program)
        .arg(port.to_string())
        .args(arguments)
        .env("PYTHONPATH", std::env::var_os("GRPCIO").unwrap())
        .stdin(File::open(input).unwrap());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

fn call(service: &Service, arguments: &[&str]) -> Value {
    client(service.grpc, arguments, Path::new("/dev/null")).remove(0)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs()
}

fn request_json(request: &RateLimitRequest) -> Value {
    let descriptors = request.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| json!({"key": entry.key, "value": entry.value}));
        let mut json = json!({
            "entries": entries.collect::<Vec<_>>(),
            "is_negative_hits": descriptor.is_negative_hits,
        });
        if let Some(limit) = &descriptor.limit {
            let unit = limit.unit().name();
            json["limit"] = json!({"requests_per_unit": limit.requests_per_unit, "unit": unit});
        }
        if let Some(units) = descriptor.hits_addend {
            json["hits_addend"] = units.into();
        }
        json
    });
    json!({
        "domain": request.domain,
        "descriptors": descriptors.collect::<Vec<_>>(),
        "hits_addend": request.hits_addend,
    })
}

/// The response with all its fields, also those of `xds-protos` that the service lacks.
fn response_json(response: &RateLimitResponse) -> Value {
    let statuses = response.statuses.iter().map(|status| {
        let mut json = json!({
            "code": status.code().name(),
            "limit_remaining": status.limit_remaining,
        });
        if let Some(limit) = &status.current_limit {
            json["current_limit"] = json!({
                "requests_per_unit": limit.requests_per_unit,
                "unit": limit.unit().name(),
                "name": limit.name,
            });
        }
        if let Some(duration) = &status.duration_until_reset {
            json["duration_until_reset"] = format!("{}s", duration.seconds).into();
        }
        json
    });
    let fields = response.response_headers_to_add.iter();
    let fields =
        fields.map(|field| json!({"key": field.key, "value": field.value, "raw_value": ""}));
    json!({
        "overall_code": response.overall_code().name(),
        "statuses": statuses.collect::<Vec<_>>(),
        "response_headers_to_add": fields.collect::<Vec<_>>(),
        "request_headers_to_add": [],
        "raw_body": "",
    })
}

/// Replaces times that were reported later by those of `expected`.
fn turn_back(reported: &mut Value, expected: &Value, later: &RangeInclusive<i64>) {
    let seconds =
        |value: &Value| -> Option<i64> { value.as_str()?.trim_end_matches('s').parse().ok() };
    for list in ["statuses", "response_headers_to_add"] {
        let all = reported[list].as_array_mut().unwrap();
        for (reported, expected) in all.iter_mut().zip(expected[list].as_array().unwrap()) {
            let field = match expected["key"].as_str() {
                None => "duration_until_reset",
                Some("ratelimit-reset") => "value",
                Some(_) => continue,
            };
            let there = expected.get(field).and_then(seconds);
            let here = reported.get(field).and_then(seconds);
            if here
                .zip(there)
                .is_some_and(|(here, there)| later.contains(&(there - here)))
            {
                reported[field] = expected[field].clone();
            }
        }
    }
}

/// Files `rules/` and `requests` in a folder, with the model of each: a domain for each, and
/// `REQUESTS` of each.
struct Trial {
    folder: TempDir,
    models: Vec<Model>,
    requests: Vec<RateLimitRequest>,
}

impl Trial {
    fn new(domains: u64, option: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (mut models, mut requests) = (Vec::new(), Vec::new());
        let rules = folder.path().join("rules");
        fs::create_dir(&rules).unwrap();
        for seed in 0..domains {
            let mut dice = Dice::new(seed, UNITS);
            let (nodes, descriptors) = nodes(&mut dice, 3);
            models.push(Model::new(nodes, option == "--shadow", option == "--quota"));
            let domain = format!("domain-{seed}");
            let text = json!({"domain": domain, "descriptors": descriptors}).to_string();
            fs::write(rules.join(format!("{domain}.yaml")), text).unwrap();
            requests.extend((0..REQUESTS).map(|_| RateLimitRequest {
                domain: domain.clone(),
                ..request(&mut dice)
            }));
        }
        let lines = requests
            .iter()
            .map(|request| format!("{}\n", request_json(request)));
        let lines: String = lines.collect();
        fs::write(folder.path().join("requests"), lines).unwrap();
        Self {
            folder,
            models,
            requests,
        }
    }

    /// The responses of the service, and their times. `None` if a window ended in between.
    async fn run(&self, option: &str) -> Option<(Vec<Value>, RangeInclusive<u64>)> {
        let [rules, requests] = ["rules", "requests"].map(|name| self.folder.path().join(name));
        let options = [rules.to_str().unwrap(), "--rls-headers", "envoy", option];
        let service = Service::launch_bare(&options, &[]);
        service.ready().await;
        let start = now();
        let answers = client(service.grpc, &["call"], &requests);
        let end = now();
        // Clocks of two processes may differ slightly.
        let window = |time: u64, unit| time / seconds(unit);
        let same = |unit: &Unit| window(start - 2, *unit) == window(end + 2, *unit);
        UNITS.iter().all(same).then_some((answers, start..=end))
    }

    /// The number of descriptors over a limit in these responses, which must equal those of the
    /// model.
    fn compare(mut self, answers: Vec<Value>, time: &RangeInclusive<u64>) -> usize {
        assert_eq!(answers.len(), self.requests.len());
        let later = -1..=i64::try_from(time.end() - time.start()).unwrap() + 1;
        let mut over = 0;
        for (at, (request, mut reported)) in self.requests.iter().zip(answers).enumerate() {
            let response = self.models[at / REQUESTS].decide(*time.start(), request);
            let expected = response_json(&response);
            turn_back(&mut reported, &expected, &later);
            assert_eq!(reported, expected, "request {at}: {request:?}");
            let statuses = response.statuses.iter();
            over += statuses
                .filter(|status| status.code() == Code::OverLimit)
                .count();
        }
        over
    }
}

/// 4,000 requests in all.
#[tokio::test]
async fn random_requests_are_answered_as_by_the_model() {
    needs!(grpcio);
    for (option, domains) in [("--charge=always", 10), ("--quota", 5), ("--shadow", 5)] {
        let trial = Trial::new(domains, option);
        let (answers, time) = loop {
            if let Some(reported) = trial.run(option).await {
                break reported;
            }
        };
        let requests = trial.requests.len();
        let over = trial.compare(answers, &time);
        assert!(
            (requests / 40..requests).contains(&over),
            "{option}: {over}"
        );
    }
}

#[tokio::test]
async fn health_is_served_by_name() {
    needs!(grpcio);
    let service = Service::start(&[]).await;
    let reported = call(&service, &["health", "", "ratelimit", SERVICE, "other"]);
    let mut expected = json!({"": "SERVING", "ratelimit": "SERVING", "other": "NOT_FOUND"});
    expected[SERVICE] = "SERVING".into();
    assert_eq!(reported, expected);
}

#[tokio::test]
async fn reflection_describes_the_protocol() {
    needs!(grpcio);
    let service = Service::start(&[]).await;
    let shapes = call(&service, &["describe"]);
    let services = shapes["services"].as_array().unwrap();
    let reservations = "kuadrant.service.ratelimit.v1.RateLimitService";
    for name in [SERVICE, reservations, "grpc.health.v1.Health"] {
        assert!(services.contains(&name.into()), "{name} of {services:?}");
    }
    let [reported, known] = ["reported", "known"].map(|shape| shapes[shape].as_object().unwrap());
    let method = &reported[&format!("{SERVICE}/ShouldRateLimit")];
    assert_eq!(
        method.as_array().unwrap()[2..],
        [false, false],
        "no streams"
    );
    let newer = reported.keys().filter(|name| !known.contains_key(*name));
    let mut newer: Vec<&str> = newer.map(String::as_str).collect();
    newer.sort_unstable();
    assert_eq!(newer, NEWER);
    for (name, shape) in reported {
        assert!(
            NEWER.contains(&name.as_str()) || *shape == known[name],
            "{name}: {shape}"
        );
    }
}
