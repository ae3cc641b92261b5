//! The settings of quotas: one row for each, which texts, tables of configuration files and rule files read.

use std::{borrow::Cow, fmt, str::FromStr};

use super::{
    Algorithm, Quota, UnitName, calendar,
    calendar::Calendar,
    parse::{Fault, PeriodText, Shortened, Token, period},
    validate::refuse,
    value::ALGORITHMS,
    varying,
};
use crate::error::{ConfigError, ConfigErrorKind as Kind};

/// The largest number that all formats, and the JavaScript of editors, represent exactly.
pub const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A setting of a quota other than its rate and its name.
#[derive(Debug)]
pub struct Setting {
    /// Its field in tables.
    pub field: &'static str,
    /// Its word in texts. The algorithms have none: their names are words.
    pub(super) word: &'static str,
    pub accepts: Accepts,
    pub example: &'static str,
    pub about: &'static str,
    /// The kind of errors about it.
    pub fault: Kind,
    /// `None` for what a quota is without the setting.
    pub(super) get: fn(&Quota) -> Option<String>,
    pub(super) set: fn(Quota, &str) -> Result<Quota, ConfigError>,
}

/// The values of a setting.
#[derive(Debug)]
pub enum Accepts {
    /// Numbers from the first to the second.
    Number(u64, u64),
    Period,
    Text,
    /// The name of an algorithm.
    Algorithm,
}

/// All settings, in the order of tables.
pub static SETTINGS: [Setting; 11] = [
    Setting {
        field: "algorithm",
        word: "",
        accepts: Accepts::Algorithm,
        example: "token_bucket",
        about: "How it counts. Default: token_bucket.",
        fault: Kind::Calendar,
        get: |quota| match quota.algorithm() {
            Algorithm::TokenBucket => None,
            // The only algorithm of calendar quotas.
            Algorithm::FixedWindow if quota.calendar().is_some() => None,
            _ => Some(quota.algorithm_name().to_owned()),
        },
        set: |quota, name| quota.counted_by(name),
    },
    Setting {
        field: "burst",
        word: "burst",
        accepts: Accepts::Number(1, MAX_NUMBER),
        example: "20",
        about: "How much an idle key can take at once. Default: the limit.",
        fault: Kind::Burst,
        get: |quota| text(quota.burst_set()),
        set: |quota, units| Ok(quota.burst(number(units)?)),
    },
    Setting {
        field: "refill_every",
        word: "refill_every",
        accepts: Accepts::Period,
        example: "30s",
        about: "The step in which tokens come. Default: evenly.",
        fault: Kind::RefillStep,
        get: |quota| text(quota.refill_step().map(PeriodText)),
        set: |quota, step| {
            let step = period(step);
            let named =
                |error| ConfigError::new(Kind::RefillStep, format!("refill_every: {error}"));
            Ok(quota.refill_every(step.map_err(named)?))
        },
    },
    Setting {
        field: "queue",
        word: "queue",
        accepts: Accepts::Number(0, MAX_NUMBER),
        example: "20",
        about: "How many may wait in a leaky bucket.",
        fault: Kind::Queue,
        get: |quota| match quota.algorithm() {
            Algorithm::LeakyBucket { queue } => text(Some(queue)),
            _ => None,
        },
        set: |quota, units| match quota.algorithm() {
            Algorithm::LeakyBucket { .. } => Ok(quota.leaky_bucket(number(units)?)),
            _ => refuse(Kind::Queue, "queue: only a leaky bucket has one"),
        },
    },
    Setting {
        field: "slices",
        word: "slices",
        accepts: Accepts::Number(1, 1_000),
        example: "6",
        about: "Into how many slices a sliding window is cut. Default: 1.",
        fault: Kind::Slices,
        get: |quota| text(quota.slices_set()),
        set: |quota, slices| Ok(quota.slices(number(slices)?)),
    },
    Setting {
        field: "soft",
        word: "soft",
        accepts: Accepts::Number(0, 1_000),
        example: "10%",
        about: "How many percent more pass than the limit says. Default: 0.",
        fault: Kind::Soft,
        get: |quota| text(Some(quota.soft_percent()).filter(|percent| *percent > 0)),
        set: |quota, percent| Ok(quota.soft(number(percent)?)),
    },
    Setting {
        field: "debt",
        word: "debt",
        accepts: Accepts::Number(0, MAX_NUMBER),
        example: "100",
        about: "How many units beyond its capacity a key may owe, for units that were used before they were charged. Default: 0, and with `counts` as many as it holds at once.",
        fault: Kind::Debt,
        get: |quota| text(Some(quota.debt_units()).filter(|units| *units > 0)),
        set: |quota, units| Ok(quota.debt(number(units)?)),
    },
    Setting {
        field: "unit",
        word: "unit",
        accepts: Accepts::Text,
        example: "tokens",
        about: "The unit that clients see, as `qu` of `RateLimit-Policy`. Default: none, which clients read as requests.",
        fault: Kind::Unit,
        get: |quota| text(quota.unit_set()),
        set: |quota, unit| Ok(quota.unit(UnitName::of(unit)?.as_str())),
    },
    Setting {
        field: "zone",
        word: "in",
        accepts: Accepts::Text,
        example: "Europe/Berlin",
        about: "The time zone of a quota per day, week, month or year, or of the times in `varying`. Default: UTC.",
        fault: Kind::Zone,
        get: |quota| text(quota.calendar.and_then(Calendar::zone_set)),
        set: |quota, zone| quota.in_civil_time(Some(zone), None),
    },
    Setting {
        field: "starting_on",
        word: "starting_on",
        accepts: Accepts::Number(1, 28),
        example: "15",
        about: "The day on which months of a quota per month begin. Default: 1.",
        fault: Kind::Calendar,
        get: |quota| text(quota.calendar.and_then(Calendar::starting_on)),
        set: |quota, day| quota.in_civil_time(None, Some(number(day)?)),
    },
    Setting {
        field: "varying",
        word: "varying",
        accepts: Accepts::Text,
        example: "00:00=10/08:00=20",
        about: "Limits of a window by the time of day, in UTC or in `zone`; the largest is the limit of the rate. Default: one limit.",
        fault: Kind::Varying,
        get: |quota| quota.varying_limits().map(varying::text),
        set: |quota, limits| varying::of_text(quota, limits),
    },
];

/// The places of all settings in the order in which a text has them and a quota takes them: the algorithm before its
/// numbers, and limits vary before they do so in a zone.
const IN_TEXTS: [usize; SETTINGS.len()] = [0, 1, 3, 4, 2, 9, 5, 6, 7, 10, 8];

pub(super) fn in_texts() -> impl Iterator<Item = &'static Setting> {
    IN_TEXTS.iter().map(|at| &SETTINGS[*at])
}

impl Setting {
    #[cfg(feature = "serde")]
    pub(super) const fn is_number(&self) -> bool {
        matches!(self.accepts, Accepts::Number(..))
    }

    /// The sign after a number in texts.
    pub(super) fn sign(&self) -> &'static str {
        if self.example.ends_with('%') { "%" } else { "" }
    }

    /// The accepted values in words.
    /// The fault of its word without a value.
    pub(super) fn alone<'a>(&self, word: Token<'a>) -> Fault<'a> {
        Fault::Alone(word, format!("{} {}", self.word, self.example))
    }

    pub(super) fn accepted(&self) -> Cow<'static, str> {
        match self.accepts {
            Accepts::Number(least, most) if most < MAX_NUMBER => {
                let sign = self.sign();
                format!("{least}{sign} to {most}{sign}").into()
            }
            // The largest depends on the rate.
            Accepts::Number(..) => "as many as come back within 18 years".into(),
            _ => "steps of up to 18 years".into(),
        }
    }
}

impl Quota {
    /// The quota with the algorithm of this name; a leaky bucket has no queue yet.
    fn counted_by(mut self, name: &str) -> Result<Self, ConfigError> {
        let Some((_, algorithm)) = algorithm(name) else {
            let known = ALGORITHMS.map(|(known, _)| known).join(", ");
            let message = format!(
                "unknown algorithm {}; accepted are {known}",
                Shortened(name)
            );
            return refuse(Kind::Syntax, message);
        };
        self.algorithm = *algorithm;
        Ok(self)
    }

    /// The quota in this zone and from this day on, if they are set.
    #[doc(hidden)]
    pub fn in_civil_time(
        self,
        zone: Option<&str>,
        starting_on: Option<u32>,
    ) -> Result<Self, ConfigError> {
        #[cfg(feature = "calendar")]
        {
            let quota = zone.map_or(Ok(self), |zone| self.try_in_zone(zone))?;
            // A larger number is no day of a month either.
            let day = starting_on.map(|day| u8::try_from(day).unwrap_or(u8::MAX));
            Ok(day.map_or(quota, |day| quota.starting_on(day)))
        }
        #[cfg(not(feature = "calendar"))]
        match (zone, starting_on) {
            (None, None) => Ok(self),
            _ => refuse(
                Kind::Calendar,
                "this build follows no calendar; a zone or a first day needs the feature `calendar`",
            ),
        }
    }
}

pub(super) fn algorithm(name: &str) -> Option<&'static (&'static str, Algorithm)> {
    let name = name.replace('-', "_");
    ALGORITHMS.iter().find(|(known, _)| *known == name)
}

fn text(value: Option<impl fmt::Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn number<N: FromStr>(text: &str) -> Result<N, ConfigError> {
    let number = calendar::number(text);
    number.map_or_else(
        || refuse(Kind::Overflow, format!("{} is too large", Shortened(text))),
        Ok,
    )
}
