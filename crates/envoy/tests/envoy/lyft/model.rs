//! A small model of the service, and random rules and requests for both.

use std::collections::HashMap;

use serde_json::{Value, json};
use tower_ratelimit_envoy::protobuf_messages::{
    Code, DescriptorStatus, Duration, Entry, HeaderValue, RateLimit, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, RateLimitResponse, Unit,
};

/// Texts that contain each other, so that they often collide.
const KEYS: [&str; 5] = ["a", "b", "a_x", "a*", "c"];
const VALUES: [&str; 8] = ["", "x", "y", "xy", "x*", "*y", "x*y", "x_y"];
const NAMES: [&str; 4] = ["", "one", "two", "three"];

/// A random sequence by seed, and the units of its rules.
pub(crate) struct Dice {
    state: u64,
    units: [Unit; 3],
}

impl Dice {
    pub(crate) const fn new(seed: u64, units: [Unit; 3]) -> Self {
        Self { state: seed, units }
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    fn unit(&mut self) -> Unit {
        let units = self.units;
        self.of(&units)
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// A rule of the model.
#[derive(Default)]
pub(crate) struct Node {
    text: String,
    limit: Option<Limit>,
    shares: bool,
    below: Vec<Self>,
}

#[derive(Clone)]
struct Limit {
    requests: u32,
    /// `None` if unlimited.
    unit: Option<Unit>,
    name: String,
    replaces: Vec<String>,
    shadow: bool,
    quota: bool,
}

/// Random rules, for the model and as a file.
pub(crate) fn nodes(dice: &mut Dice, depth: u32) -> (Vec<Node>, Value) {
    let (mut nodes, mut texts): (Vec<Node>, Vec<Value>) = (Vec::new(), Vec::new());
    for _ in 0..=dice.below(5) {
        let (key, value) = (dice.of(&KEYS), dice.of(&VALUES));
        let text = match value {
            "" => key.to_owned(),
            value => format!("{key}_{value}"),
        };
        if nodes.iter().any(|known| known.text == text) {
            continue;
        }
        let mut json = json!({"key": key, "value": value});
        let shares = text.contains('*') && dice.one_in(2);
        json["share_threshold"] = shares.into();
        let limit = (!dice.one_in(4)).then(|| limit(dice, &mut json));
        let mut below = Vec::new();
        if depth > 1 && dice.one_in(2) {
            (below, json["descriptors"]) = self::nodes(dice, depth - 1);
        }
        nodes.push(Node {
            text,
            limit,
            shares,
            below,
        });
        texts.push(json);
    }
    (nodes, texts.into())
}

fn limit(dice: &mut Dice, json: &mut Value) -> Limit {
    let name = dice.of(&NAMES).to_owned();
    let others = NAMES[1..].iter().filter(|other| **other != name);
    let replaces = others.filter(|_| dice.one_in(8)).map(ToString::to_string);
    let replaces: Vec<String> = replaces.collect();
    let limit = Limit {
        requests: u32::try_from(dice.below(7)).unwrap(),
        unit: (!dice.one_in(8)).then(|| dice.unit()),
        replaces,
        name,
        shadow: dice.one_in(6),
        quota: dice.one_in(4),
    };
    let replaces = limit.replaces.iter().map(|name| json!({"name": name}));
    json["shadow_mode"] = limit.shadow.into();
    json["quota_mode"] = limit.quota.into();
    json["rate_limit"] = json!({
        "requests_per_unit": limit.requests,
        "name": limit.name,
        "replaces": replaces.collect::<Vec<_>>(),
    });
    match limit.unit {
        Some(unit) => json["rate_limit"]["unit"] = unit.name().into(),
        None => json["rate_limit"]["unlimited"] = true.into(),
    }
    limit
}

/// Whether the pattern matches the text, by trying all ways.
fn covers(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|at| covers(rest, &text[at..])),
        (Some((one, pattern)), Some((other, text))) => one == other && covers(pattern, text),
        _ => false,
    }
}

/// The limit of these entries, and the entries of its counter.
fn find(mut nodes: &[Node], entries: &[Entry]) -> Option<(Limit, Vec<Entry>)> {
    let (mut counted, mut found) = (Vec::new(), None);
    for entry in entries {
        let text = format!("{}_{}", entry.key, entry.value);
        let exact = nodes.iter().find(|node| node.text == text);
        let fits =
            |node: &&Node| node.text.contains('*') && covers(node.text.as_bytes(), text.as_bytes());
        let pattern = nodes.iter().find(fits).filter(|_| exact.is_none());
        let node = exact
            .or(pattern)
            .or_else(|| nodes.iter().find(|node| node.text == entry.key))?;
        let mut entry = entry.clone();
        if pattern.is_some() && node.shares {
            let prefix = format!("{}_", entry.key);
            entry.value = node
                .text
                .strip_prefix(&prefix)
                .unwrap_or(&node.text)
                .to_owned();
        }
        counted.push(entry);
        found = node.limit.clone();
        nodes = &node.below;
    }
    Some((found?, counted))
}

/// The seconds of a unit.
pub(crate) fn seconds(unit: Unit) -> u64 {
    match unit {
        Unit::Second => 1,
        Unit::Minute => 60,
        Unit::Hour => 60 * 60,
        Unit::Day => 24 * 60 * 60,
        Unit::Week => 7 * 24 * 60 * 60,
        Unit::Month => 30 * 24 * 60 * 60,
        Unit::Year => 365 * 24 * 60 * 60,
        Unit::Unknown => unreachable!("no rule has it"),
    }
}

/// The expected behaviour of the service.
pub(crate) struct Model {
    nodes: Vec<Node>,
    shadow: bool,
    quota: bool,
    /// By entries and seconds: the window, and its count.
    counts: HashMap<(Vec<Entry>, u64), (u64, u64)>,
}

impl Model {
    pub(crate) fn new(nodes: Vec<Node>, shadow: bool, quota: bool) -> Self {
        Self {
            nodes,
            shadow,
            quota,
            counts: HashMap::new(),
        }
    }

    /// The response to a request in this second.
    pub(crate) fn decide(&mut self, now: u64, request: &RateLimitRequest) -> RateLimitResponse {
        let found: Vec<_> = request
            .descriptors
            .iter()
            .map(|descriptor| self.limit(descriptor))
            .collect();
        let limits = found.iter().flatten().map(|(limit, _)| limit);
        let replaced: Vec<String> = limits.flat_map(|limit| limit.replaces.clone()).collect();
        let mut response = RateLimitResponse::default();
        let (mut quotas, mut over_quotas, mut last_over) = (0, 0, None);
        for (descriptor, found) in request.descriptors.iter().zip(found) {
            let mut status = DescriptorStatus::default();
            status.set_code(Code::Ok);
            let is_free = |limit: &Limit| limit.unit.is_none();
            if found.as_ref().is_some_and(|(limit, _)| is_free(limit)) {
                status.limit_remaining = u32::MAX;
                response.statuses.push(status);
                continue;
            }
            let counts = found.filter(|(limit, _)| !replaced.contains(&limit.name));
            let is_quota = self.quota || counts.as_ref().is_some_and(|(limit, _)| limit.quota);
            if let Some((limit, entries)) = counts {
                let units = descriptor
                    .hits_addend
                    .unwrap_or(u64::from(request.hits_addend.max(1)));
                self.count(
                    now,
                    (&limit, entries),
                    (units, descriptor.is_negative_hits),
                    &mut status,
                );
            }
            quotas += u32::from(is_quota);
            if status.code() == Code::OverLimit {
                over_quotas += u32::from(is_quota);
                if !is_quota {
                    last_over = Some(response.statuses.len());
                }
            }
            response.statuses.push(status);
        }
        let is_over = last_over.is_some() || quotas > 0 && quotas == over_quotas;
        let code = if is_over && !self.shadow {
            Code::OverLimit
        } else {
            Code::Ok
        };
        response.set_overall_code(code);
        self.add_headers(&mut response, last_over);
        response
    }

    fn limit(&self, descriptor: &RateLimitDescriptor) -> Option<(Limit, Vec<Entry>)> {
        let Some(own) = &descriptor.limit else {
            return find(&self.nodes, &descriptor.entries);
        };
        let limit = Limit {
            requests: own.requests_per_unit,
            unit: Some(own.unit()),
            name: String::new(),
            replaces: Vec::new(),
            shadow: false,
            quota: false,
        };
        Some((limit, descriptor.entries.clone()))
    }

    fn count(
        &mut self,
        now: u64,
        (limit, entries): (&Limit, Vec<Entry>),
        (units, is_back): (u64, bool),
        status: &mut DescriptorStatus,
    ) {
        let unit = limit.unit.unwrap();
        let seconds = seconds(unit);
        let (window, count) = self.counts.entry((entries, seconds)).or_default();
        if *window != now / seconds {
            (*window, *count) = (now / seconds, 0);
        }
        *count = if is_back {
            count.saturating_sub(units)
        } else {
            *count + units
        };
        let is_over = *count > u64::from(limit.requests) && !is_back;
        if is_over && !limit.shadow {
            status.set_code(Code::OverLimit);
        }
        status.limit_remaining = if is_over {
            0
        } else {
            u64::from(limit.requests)
                .saturating_sub(*count)
                .try_into()
                .unwrap()
        };
        status.current_limit = Some(RateLimit {
            requests_per_unit: limit.requests,
            unit: unit.into(),
            name: limit.name.clone(),
            unit_multiplier: None,
        });
        status.duration_until_reset = Some(Duration {
            seconds: i64::try_from(seconds - now % seconds).unwrap(),
            nanos: 0,
        });
    }

    fn add_headers(&self, response: &mut RateLimitResponse, last_over: Option<usize>) {
        let mut reported: Option<usize> = None;
        for (at, status) in response.statuses.iter().enumerate() {
            let least = reported.map_or(u32::MAX, |reported: usize| {
                response.statuses[reported].limit_remaining
            });
            if status.current_limit.is_some() && status.limit_remaining < least {
                reported = Some(at);
            }
        }
        let Some(reported) = last_over.or(reported) else {
            return;
        };
        let status = &response.statuses[reported];
        let values = [
            (
                "limit",
                i64::from(status.current_limit.as_ref().unwrap().requests_per_unit),
            ),
            ("remaining", i64::from(status.limit_remaining)),
            ("reset", status.duration_until_reset.unwrap().seconds),
        ];
        response.response_headers_to_add = values
            .map(|(name, value)| HeaderValue {
                key: format!("ratelimit-{name}"),
                value: value.to_string(),
            })
            .to_vec();
    }
}

pub(crate) fn request(dice: &mut Dice) -> RateLimitRequest {
    let descriptor = |dice: &mut Dice| {
        let entries = (0..=dice.of(&[0, 0, 0, 1, 1, 2])).map(|_| Entry {
            key: dice.of(&KEYS).to_owned(),
            value: dice.of(&VALUES).to_owned(),
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            limit: dice.one_in(8).then(|| RateLimitOverride {
                requests_per_unit: u32::try_from(dice.below(6)).unwrap(),
                unit: dice.unit().into(),
                unit_multiplier: None,
            }),
            hits_addend: dice.one_in(3).then(|| dice.below(4)),
            is_negative_hits: dice.one_in(10),
        }
    };
    RateLimitRequest {
        domain: "rl".to_owned(),
        descriptors: (0..=dice.below(3)).map(|_| descriptor(dice)).collect(),
        hits_addend: if dice.one_in(4) { 2 } else { 0 },
    }
}
