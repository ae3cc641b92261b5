//! A schedule of windows as one window whose limit varies by the time of day.

use crate::rule_quotas::{QuotaSet, RuleQuota, Scheduled};
use tower_ratelimit_core::{
    clock::Timestamp,
    quota::{Quota, TimeOfDay},
};

const MINUTE_MICROS: u64 = 60_000_000;
const MINUTES_A_DAY: usize = 24 * 60;

/// The quotas of a rule with the limits of its schedule, whose times are those of `zone` if it is named; a message
/// if they cannot be one window each.
pub(super) fn weighted(
    zone: Option<&str>,
    times: &[Scheduled],
    otherwise: Option<&QuotaSet>,
) -> Result<QuotaSet, String> {
    let sets = times.iter().map(|time| time.quotas.as_ref());
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
        times.iter().position(|time| time.is_in_force(now))
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
