//! The quotas of a rule, by tier or by time: their fields, and what reads texts, tables, lists and templates.

use std::borrow::Cow;

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode, Span,
    document::Node,
    fields::{
        Boolean, Field, Parsed,
        Shape::{self, Either, List, Map, Named, Table as InTable, Text as AsText},
        Table, Text, Tree,
    },
    weekly_time_window::zone as distance_from_utc,
};

use super::{
    context::{Context, header_name},
    match_conditions::{TIMES, ZONE as ZONE_OF_TIME},
    spend::COUNTED,
};
use crate::{
    request_matcher::contains,
    rule_quotas::{Allowance, QuotaSet, RuleQuota, Scheduled},
};
use tower_ratelimit_core::{
    clock::Timestamp,
    error::{ConfigError, ConfigErrorKind},
    quota::{
        OwnedQuota, Quota, TimeOfDay,
        quota::ALGORITHMS,
        text::{Accepts, SETTINGS, Setting},
    },
};

pub(super) static QUOTA: Field<Tree> = Field::tree(
    "quota",
    QUOTAS,
    "What is allowed: a quota, several as a list or with semicolons between them, a name of `quotas`, or `unlimited`.",
);

pub(super) static TIER: Field<Tree> = Field::table(
    "tier",
    &TIER_TABLE,
    "Quotas by the value of a header, instead of `quota`.",
);

pub(super) static SCHEDULE: Field<Tree> = Field::tree(
    "schedule",
    List(&InTable(&SCHEDULED)),
    "Quotas by the time of day; the first that fits is used instead of `quota`, and counts go on.",
);

pub(super) static WEIGHTED: Field<Boolean> = Field::boolean(
    "weighted",
    "Whether `schedule` makes one window whose limit varies by the time of day, weighted across each change. Default: false.",
);

/// Quotas by the value of a header.
static TIER_TABLE: Table = Table::new(
    "tier",
    "Quotas by the value of a header. Counts belong to the key, whichever tier it is in.",
    &[&TIER_HEADER, &DEFAULT_TIER, &TIER_QUOTAS],
);

pub(super) static TIER_HEADER: Field<Parsed<HeaderName>> = Field::parsed(
    "header",
    AsText("x-plan"),
    ProblemCode::R01,
    header_name,
    "The header. Let a proxy or an outer layer write it: a client would choose the best plan.",
)
.required();

static DEFAULT_TIER: Field<Text> = Field::text(
    "default",
    "free",
    "The tier of requests without the header, or with a value that is none of `quotas`.",
)
.required();

static TIER_QUOTAS: Field<Tree> =
    Field::tree("quotas", Map(&QUOTAS), "The quotas of each tier.").required();

static SCHEDULED: Table = Table::new(
    "schedule",
    "A quota at a time of day.",
    &[&SCHEDULED_TIME, &SCHEDULED_QUOTA],
);

static SCHEDULED_TIME: Field<Tree> = Field::tree("time", TIMES, "When it is used.").required();

static SCHEDULED_QUOTA: Field<Tree> =
    Field::tree("quota", QUOTAS, "What is allowed then.").required();

/// One quota or several: a text, a list or a table.
pub(super) static QUOTAS: Shape = Named("quotas", &QUOTAS_CHOICES);

static QUOTAS_CHOICES: Shape = Either(&[
    AsText("100/minute"),
    List(&ONE_QUOTA),
    InTable(&QUOTA_TABLE),
]);

static ONE_QUOTA: Shape = Either(&[AsText("100/minute"), InTable(&QUOTA_TABLE)]);

static QUOTA_TABLE: Table = Table::new(
    "the quota",
    "A quota in fields; the text says the same in words.",
    &[
        &RATE, &NAME, &OF[0], &OF[1], &OF[2], &OF[3], &OF[4], &OF[5], &OF[6], &OF[7], &COUNTS,
        &OF[8], &OF[9], &OF[10],
    ],
);

/// The fields of the settings, in the order of their table.
static OF: [Field<Tree>; SETTINGS.len()] = {
    let mut fields = [COUNTS; SETTINGS.len()];
    let mut at = 0;
    while at < fields.len() {
        let setting = &SETTINGS[at];
        let shape = match setting.accepts {
            Accepts::Number(least, most) => Shape::Number(least, most),
            Accepts::Period | Accepts::Text => AsText(setting.example),
            Accepts::Algorithm => Shape::Words(&ALGORITHMS),
        };
        fields[at] = Field::tree(setting.field, shape, setting.about);
        at += 1;
    }
    fields
};

static RATE: Field<Text> =
    Field::text("rate", "100/minute", "The limit and its period.").required();

static NAME: Field<Text> = Field::text(
    "name",
    "day",
    "Its name among several. Default: made of its rate.",
);

static COUNTS: Field<Tree> = Field::tree(
    "counts",
    COUNTED,
    "The units that it counts: requests, or those that responses use, as the rule's `spend` reads them. Default: requests.",
);

const MINUTE_MICROS: u64 = 60_000_000;
const MINUTES_A_DAY: usize = 24 * 60;

const MAX_QUOTAS: usize = 16;

/// The most quotas of all rules that a process should hold, with each use of a template.
pub(super) const MAX_ALL_QUOTAS: usize = 100_000;

/// The word in place of a quota for a rule without a limit.
const UNLIMITED: &str = "unlimited";

impl<'c> Context<'c> {
    pub(super) fn allowance(&mut self, rule: &'c Node, name: &str) -> Option<Allowance> {
        if let Some(tier) = TIER.of(rule) {
            let others = [QUOTA.name(), SCHEDULE.name(), WEIGHTED.name()];
            self.no_use(rule, others, "beside `tier`");
            return self.tiers(tier, name);
        }
        let quota = QUOTA.of(rule)?;
        let otherwise = self.quota_set(quota, name);
        let is_weighted = WEIGHTED.of(rule).unwrap_or(false);
        let Some(schedule) = SCHEDULE.of(rule) else {
            if let Some(entry) = WEIGHTED.entry(rule).filter(|_| is_weighted) {
                let message = "`weighted` is of no use without `schedule`";
                self.report(ProblemCode::R02, &entry.key_span, message);
            }
            return otherwise.map(Allowance::always);
        };
        if is_weighted {
            return self.weighted_schedule(schedule, name, otherwise);
        }
        let times = self.scheduled(schedule, name, None);
        Some(Allowance::by_time(times, otherwise?))
    }

    fn weighted_schedule(
        &mut self,
        schedule: &'c Node,
        name: &str,
        otherwise: Option<Option<QuotaSet>>,
    ) -> Option<Allowance> {
        let zone = times_of(schedule).find_map(name_of_zone);
        let is_one_zone = zone.is_none_or(|zone| self.is_one_zone(schedule, zone));
        let times = self.scheduled(schedule, name, zone);
        if !is_one_zone {
            return None;
        }
        match weighted(zone, &times, otherwise?.as_ref()) {
            Ok(set) => Some(Allowance::always(Some(set))),
            Err(message) => {
                self.report(ProblemCode::R04, &schedule.span, message);
                None
            }
        }
    }

    /// Whether the system knows a zone that a weighted schedule names, and all of its times are in it. Reports the
    /// times that are not.
    fn is_one_zone(&mut self, schedule: &Node, name: &str) -> bool {
        let unknown = Quota::per_day(1).in_civil_time(Some(name), None).err();
        let unknown = unknown.map(|error| error.to_string());
        let mut is_one = true;
        for time in times_of(schedule) {
            let message = match name_of_zone(time) {
                Some(same) if same == name => unknown.clone(),
                _ => Some(format!(
                    "`weighted` with times in {name:?} and in another zone; accepted is one name for all \
                     times, or distances from UTC"
                )),
            };
            if let Some(message) = message {
                let span = &ZONE_OF_TIME.node(time).unwrap_or(time).span;
                self.report(ProblemCode::R08, span, message);
                is_one = false;
            }
        }
        is_one
    }

    /// The quotas of a schedule without fault, whose times are those of a zone if it is named.
    fn scheduled(&mut self, schedule: &'c Node, name: &str, zone: Option<&str>) -> Vec<Scheduled> {
        let mut times = Vec::new();
        for item in schedule.items() {
            let time = SCHEDULED_TIME.of(item);
            let windows = time.map(|time| self.times(time, zone.is_some()));
            let quota = SCHEDULED_QUOTA.of(item);
            let quotas = quota.and_then(|quota| self.quota_set(quota, name));
            if let (Some(windows), Some(quotas)) = (windows, quotas) {
                times.push((windows, quotas));
            }
        }
        times
    }

    fn tiers(&mut self, node: &'c Node, name: &str) -> Option<Allowance> {
        let mut tiers = Vec::new();
        let entries = TIER_QUOTAS.of(node)?.entries();
        self.check_null_keys(entries);
        for entry in entries {
            let set = self.quota_set(&entry.value, name);
            tiers.push((Box::from(entry.key.as_str()), set.unwrap_or(None)));
        }
        let header = TIER_HEADER.of(node, &mut self.report);
        let default = DEFAULT_TIER.of(node)?;
        let position = entries.iter().position(|entry| entry.key == default);
        if let (None, Some(default_node)) = (position, DEFAULT_TIER.node(node)) {
            let known = entries.iter().map(|entry| entry.key.as_str());
            self.unknown("tier", default, &default_node.span, known);
        }
        Some(Allowance::by_tier(header?, position?, tiers))
    }

    /// The quotas of a value: `Some(None)` is unlimited, `None` a fault, which is reported.
    pub(super) fn quota_set(&mut self, node: &'c Node, rule: &str) -> Option<Option<QuotaSet>> {
        let Some(text) = node.text() else {
            return self.quotas_of(node, rule).map(Some);
        };
        if text == UNLIMITED {
            return Some(None);
        }
        let template = self.templates.iter().find(|(name, _)| *name == text);
        if let Some((_, template)) = template {
            // The faults of a template are reported once, at its own place.
            let template = (*template)?;
            return match template.text() {
                Some(UNLIMITED) => Some(None),
                _ => self.quotas_of(template, rule).map(Some),
            };
        }
        if !text.contains('/') && !text.starts_with(|c: char| c.is_ascii_digit()) {
            let templates = self.templates.clone();
            let known = templates.iter().map(|(name, _)| *name).chain([UNLIMITED]);
            self.unknown("quota", text, &node.span, known);
            return None;
        }
        self.quotas_of(node, rule).map(Some)
    }

    fn quotas_of(&mut self, node: &'c Node, rule: &str) -> Option<QuotaSet> {
        let items = split(node);
        if items.is_empty() || items.len() > MAX_QUOTAS {
            let message = format!("{} quotas; accepted are 1 to {MAX_QUOTAS}", items.len());
            self.report(ProblemCode::R04, &node.span, message);
            return None;
        }
        self.quotas += items.len();
        if self.quotas > MAX_ALL_QUOTAS {
            return None;
        }
        let quotas: Vec<Option<OwnedQuota>> = items
            .iter()
            .map(|(item, text)| self.quota(item, *text))
            .collect();
        let quotas: Vec<OwnedQuota> = quotas.into_iter().collect::<Option<_>>()?;
        let mut names: Vec<Cow<'static, str>> = Vec::new();
        let mut set = Vec::new();
        for (at, (quota, (item, _))) in quotas.iter().zip(&items).enumerate() {
            let name = quota.name_in(quotas.len());
            if names.contains(&name) {
                let message = format!("two quotas are named {name:?}; names have to be unique");
                self.report(ProblemCode::R04, &item.span, message);
            }
            let policy = match quotas.len() {
                1 => rule.to_owned(),
                _ => format!("{rule}.{name}"),
            };
            names.push(name);
            set.push(self.counted_quota(quota, item, at, policy));
        }
        Some(QuotaSet::new(set))
    }

    /// A quota with the units that it counts, and the name of its counter at this index of the rule.
    fn counted_quota(
        &mut self,
        quota: &OwnedQuota,
        item: &'c Node,
        at: usize,
        policy: String,
    ) -> RuleQuota {
        let counts = COUNTS.of(item).and_then(|node| self.counts(node));
        let name = quota.name().map(|name| format!("={name}"));
        let mut counter = name.unwrap_or_else(|| format!("#{at}"));
        if let Some(units) = &counts {
            counter = format!("{counter}\n{}", units.label());
        }
        let mut shape = quota.quota();
        if counts.is_some() {
            if !shape.can_spend() {
                let span = &COUNTS.node(item).unwrap_or(item).span;
                let message = "`counts` in a leaky bucket, whose queue has no place for units that were used \
                               already; accepted are the other algorithms";
                self.report(ProblemCode::R15, span, message);
            } else if item.get("debt").is_none() && shape.debt_units() == 0 {
                shape = shape.debt(shape.capacity());
            }
        }
        let quota = shape.named_owned(policy);
        if let Err(error) = quota.check() {
            self.report(ProblemCode::R04, &item.span, error.to_string());
        }
        RuleQuota {
            quota,
            counter: counter.into(),
            counts,
        }
    }

    fn quota(&mut self, node: &Node, text: Option<&str>) -> Option<OwnedQuota> {
        if let Some(name) = NAME.node(node)
            && let Some(text) = name.unquoted_text()
        {
            self.check_null(text, false, &name.span);
        }
        let read = match text {
            Some(text) => text.trim().parse::<Quota>().map(OwnedQuota::from),
            None => table_quota(node)?,
        };
        match read {
            Ok(quota) => Some(quota),
            Err(error) => {
                let span = span_of(node, &error);
                self.report(ProblemCode::R04, span, error.to_string());
                None
            }
        }
    }
}

fn times_of(schedule: &Node) -> impl Iterator<Item = &Node> {
    let items = schedule.items().iter();
    items
        .filter_map(|item| SCHEDULED_TIME.of(item))
        .flat_map(Node::items)
}

/// The name of a time's zone; `None` for a distance from UTC.
fn name_of_zone(time: &Node) -> Option<&str> {
    let text = ZONE_OF_TIME.node(time)?.text()?;
    let is_name = text.starts_with(|first: char| first.is_ascii_alphabetic());
    (is_name && distance_from_utc(text).is_err()).then_some(text)
}

/// The quotas of a value: each table as a whole, and each part of a text between semicolons.
fn split(node: &Node) -> Vec<(&Node, Option<&str>)> {
    let split = |item| {
        let parts: Vec<Option<&str>> = match Node::text(item) {
            Some(text) => text.split(';').map(Some).collect(),
            None => vec![None],
        };
        parts.into_iter().map(move |part| (item, part))
    };
    node.items().iter().flat_map(split).collect()
}

/// The quota of a table. `None` if it has no rate, which the check of its fields reports.
fn table_quota(node: &Node) -> Option<Result<OwnedQuota, ConfigError>> {
    let value = |setting: &'static Setting| {
        let value = node.get(setting.field)?;
        let value = match setting.accepts {
            Accepts::Number(least, most) => {
                let number = value.number();
                number
                    .filter(|number| (least..=most).contains(number))?
                    .to_string()
            }
            _ if setting.field == "varying" => value.text()?.replace(' ', ""),
            _ => value.text()?.trim().to_owned(),
        };
        Some((setting.field, value))
    };
    let values = SETTINGS.iter().filter_map(value).collect();
    let name = NAME.of(node).map(str::to_owned);
    Some(OwnedQuota::of_table(RATE.of(node)?, name, values))
}

fn span_of<'n>(node: &'n Node, error: &ConfigError) -> &'n Span {
    let value = match error.kind() {
        ConfigErrorKind::Name => NAME.node(node),
        ConfigErrorKind::Calendar => node
            .get("algorithm")
            .filter(|word| word.text() != Some("fixed_window"))
            .or_else(|| node.get("starting_on"))
            .or_else(|| node.get("zone")),
        kind => {
            let setting = SETTINGS.iter().find(|setting| setting.fault == kind);
            setting.and_then(|setting| node.get(setting.field))
        }
    };
    let value = value.or_else(|| RATE.node(node));
    &value.unwrap_or(node).span
}

/// The quotas of a rule with the limits of its schedule, whose times are those of `zone` if it is named; a message
/// if they cannot be one window each.
fn weighted(
    zone: Option<&str>,
    times: &[Scheduled],
    otherwise: Option<&QuotaSet>,
) -> Result<QuotaSet, String> {
    let sets = times.iter().map(|(_, quotas)| quotas.as_ref());
    let (Some(base), Some(sets)) = (otherwise, sets.collect::<Option<Vec<_>>>()) else {
        return Err("`weighted` with `unlimited`; accepted are windows".to_owned());
    };
    let begins = begins(times)?;
    let set = base.0.iter().enumerate().map(|(at, quota)| {
        let own = quota.quota.quota();
        let others = sets.iter().map(|set| limit_like(&own, set.0.get(at)));
        let others: Vec<u64> = others.collect::<Result<_, _>>()?;
        let limit = |hit: Option<usize>| hit.map_or(own.limit(), |hit| others[hit]);
        let limits = begins.iter().map(|(time, hit)| (*time, limit(*hit)));
        let limits: Vec<_> = limits.collect();
        quota
            .varying(zone, &limits)
            .map_err(|error| error.to_string())
    });
    Ok(QuotaSet::new(set.collect::<Result<_, String>>()?))
}

/// The limit of a scheduled quota, if it counts like the rule's own.
fn limit_like(own: &Quota, other: Option<&RuleQuota>) -> Result<u64, String> {
    let beyond = |quota: &Quota| (quota.soft_percent(), quota.debt_units());
    match other.map(|other| other.quota.quota()) {
        Some(other) if own.counts_like(&other) && beyond(own) == beyond(&other) => {
            Ok(other.limit())
        }
        Some(other) => Err(format!(
            "`weighted` with {own} and {other}; accepted are windows of one algorithm, period, number of \
             slices, soft share and debt"
        )),
        None => Err(format!(
            "`weighted`: a time has no quota in the place of {own}; accepted are as many as `quota` has"
        )),
    }
}

/// The times of day at which another entry of the schedule, or none, is in force from then on.
fn begins(times: &[Scheduled]) -> Result<Vec<(TimeOfDay, Option<usize>)>, String> {
    let in_force = |minute: usize| {
        let now = Timestamp::from_micros(minute as u64 * MINUTE_MICROS);
        times.iter().position(|(windows, _)| contains(windows, now))
    };
    let week: Vec<_> = (0..7 * MINUTES_A_DAY).map(in_force).collect();
    let day = &week[..MINUTES_A_DAY];
    if week.chunks(MINUTES_A_DAY).any(|other| other != day) {
        return Err(
            "`weighted` with `days`; accepted are times of every day, since a limit varies by the time of \
             day"
                .to_owned(),
        );
    }
    let mut minute = 0;
    let begins = day.chunk_by(|before, hit| before == hit).map(|alike| {
        let begin = TimeOfDay::at((minute / 60) as u8, (minute % 60) as u8);
        minute += alike.len();
        (begin, alike[0])
    });
    Ok(begins.collect())
}
