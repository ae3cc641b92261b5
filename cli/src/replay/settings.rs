//! The parsed arguments of a replay.

use std::{path::PathBuf, time::Duration};

use tower_ratelimit::{ClientIp, Quota, rules::Rules};

use super::{
    arguments::Replay, key::KeySpec, left_out::LeftOut, matching::RequestPattern,
    reordering::Spread, required_request_parts::Needs,
};

/// Each quota has a bit, and so have the limits of `--what-if`.
const MOST_QUOTAS: usize = 16;

/// The settings for reading and counting lines.
pub(super) struct Settings {
    pub(super) quotas: Vec<Quota>,
    pub(super) rules: Vec<PathBuf>,
    /// The parts of requests that the rules read.
    pub(super) needs: Needs,
    pub(super) key: KeySpec,
    pub(super) pattern: Option<RequestPattern>,
    pub(super) count_if: Option<StatusSet>,
    pub(super) left_out: LeftOut,
    pub(super) trust: Option<ClientIp>,
    pub(super) reorder: Duration,
    pub(super) spread: Spread,
    pub(super) top: usize,
    pub(super) suggest: bool,
    pub(super) what_if: bool,
    pub(super) hash_keys: bool,
    /// A share of all attempts.
    pub(super) fail_above: Option<f64>,
    pub(super) max_keys: usize,
}

impl Settings {
    pub(super) fn new(arguments: &Replay) -> Result<Self, String> {
        check(arguments)?;
        let trust = arguments.trust_proxies.clone();
        let trust = if trust.is_empty() {
            None
        } else {
            Some(ClientIp::try_behind(trust).map_err(|error| error.to_string())?)
        };
        let pattern = arguments.matching.as_deref().map(str::parse);
        let statuses = match arguments.count_if.as_slice() {
            [] => None,
            list => Some(StatusSet::new(list)?),
        };
        Ok(Self {
            quotas: arguments.quota.clone(),
            rules: arguments.rules.clone(),
            needs: needs(&arguments.rules)?,
            key: arguments.key.parse()?,
            pattern: pattern.transpose()?,
            count_if: statuses,
            left_out: LeftOut::new(arguments)?,
            trust,
            reorder: duration(&arguments.reorder)?,
            spread: arguments.spread,
            top: arguments.top,
            suggest: arguments.suggest,
            what_if: arguments.what_if,
            hash_keys: arguments.hash_keys,
            fail_above: arguments.fail_above.as_deref().map(share).transpose()?,
            max_keys: arguments.max_keys,
        })
    }
}

/// Checks that the arguments fit together.
fn check(arguments: &Replay) -> Result<(), String> {
    if arguments.quota.is_empty() && arguments.rules.is_empty() && !arguments.suggest {
        return Err("nothing to replay against; give a --quota, --rules, or --suggest".into());
    }
    if arguments.what_if && arguments.quota.is_empty() {
        return Err("--what-if needs a --quota".into());
    }
    if arguments.fail_above.is_some() && arguments.quota.is_empty() && arguments.rules.is_empty() {
        return Err("--fail-above needs a --quota or --rules".into());
    }
    if arguments.quota.len() > MOST_QUOTAS {
        return Err(format!(
            "more than {MOST_QUOTAS} quotas at once are not tried"
        ));
    }
    Ok(())
}

/// The parts of requests that the rules of these files read.
fn needs(files: &[PathBuf]) -> Result<Needs, String> {
    if files.is_empty() {
        return Ok(Needs::default());
    }
    let builder = Rules::builder()
        .outside_of_application(true)
        .requests_only(true);
    let rules = builder.read_all(files);
    Ok(Needs::of(&rules.map_err(|error| error.to_string())?))
}

/// Statuses, such as `401` and `4xx`.
#[derive(Debug, Clone)]
pub(super) struct StatusSet(Vec<(u16, u16)>);

impl StatusSet {
    fn new(list: &[String]) -> Result<Self, String> {
        let range = |text: &String| {
            let known = match text.as_bytes() {
                [class @ b'1'..=b'5', b'x', b'x'] => {
                    let first = u16::from(class - b'0') * 100;
                    Some((first, first + 99))
                }
                _ => text
                    .parse()
                    .ok()
                    .filter(|status| (100..=999).contains(status))
                    .map(|one: u16| (one, one)),
            };
            known.ok_or_else(|| {
                format!("{text:?} is no status; accepted are, for example, 401 and 4xx")
            })
        };
        list.iter().map(range).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn has(&self, status: u16) -> bool {
        let mut ranges = self.0.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&status))
    }
}

/// `10s`, `500ms`: the syntax of a quota's period, and zero.
fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let unit = text.trim_start_matches('0').trim_start();
    let is_none = unit.len() < text.len() && !unit.starts_with(|sign: char| sign.is_ascii_digit());
    let period = match (is_none, unit) {
        (true, "") => return Ok(Duration::ZERO),
        (true, unit) => format!("1{unit}"),
        (false, _) => text.to_owned(),
    };
    let quota: Result<Quota, _> = format!("1/{period}").parse();
    match quota {
        Ok(_) if is_none => Ok(Duration::ZERO),
        Ok(quota) => Ok(quota.period()),
        Err(_) => Err(format!(
            "{text:?} is no time; accepted are, for example, 10s and 2min"
        )),
    }
}

/// `0.1%` as 0.001.
fn share(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().trim_end_matches('%').trim().parse().ok();
    let known = number.filter(|percent| (0.0..=100.0).contains(percent));
    known
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("{text:?} is no share; accepted is, for example, 0.1%"))
}
