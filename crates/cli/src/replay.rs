//! `replay`: tries limits on access logs.

use std::{fs, io::Write, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use tower_ratelimit::{ClientIp, Quota};
use tower_ratelimit_replay::{LeftOut, RequestPattern, Settings, StatusSet, html, replay, text};

use crate::findings_report::{FAULTS, OK};

/// More was limited than `--fail-above` allows.
const ABOVE: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Logs in any order, also compressed by gzip, of one server or of several; their lines are
    /// sorted by time. - is the standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A quota to try, such as "100/minute burst 200"; may be repeated, each counts separately.
    #[arg(long, value_name = "QUOTA")]
    quota: Vec<Quota>,
    /// Rule files to try, as for `check`.
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// The key that quotas count by: ip (IPv6 by /64), ip/48, user, path, field:NAME, or several with +.
    #[arg(long, value_name = "KEY", default_value = "ip")]
    key: String,
    /// The format of the lines. By default each line decides: JSON begins with a brace.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    format: LogFormat,
    /// The JSON field with the time; a dot is an object in an object.
    #[arg(long, value_name = "NAME")]
    time_field: Option<String>,
    /// The JSON field with the client's address.
    #[arg(long, value_name = "NAME")]
    ip_field: Option<String>,
    /// The JSON field with the status of the response.
    #[arg(long, value_name = "NAME")]
    status_field: Option<String>,
    /// The requests that count, such as 'POST /login' or '/api/**', compared as rules compare them.
    #[arg(long = "match", value_name = "METHOD PATH")]
    matching: Option<String>,
    /// The responses that count, such as 401 or 4xx: all others are refunded.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    count_if: Vec<String>,
    /// The first time that counts, such as 2026-11-21T03:00Z, or a date, which begins at 00:00 UTC.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// The end of the time that counts, in the format of --from.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Ignores clients by address or network; several with a comma between.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    exclude: Vec<String>,
    /// Ignores the key that --key counts by, in the format of the report; may be repeated.
    #[arg(long, value_name = "KEY")]
    exclude_key: Vec<String>,
    /// Addresses and networks of your proxies: the client is then the one in X-Forwarded-For.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    trust_proxies: Vec<String>,
    /// How late a line may be written, compared with later requests.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    reorder: String,
    /// How to place requests of logs with whole seconds only.
    #[arg(long, value_name = "HOW", default_value = "even")]
    spread: Spread,
    /// The number of keys to list that were limited most.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    /// Reports what keys request, and a quota that nearly all of them would have stayed under.
    #[arg(long)]
    suggest: bool,
    /// Tries up to twelve limits around the first quota.
    #[arg(long)]
    what_if: bool,
    /// Writes a page with charts.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Writes JSON.
    #[arg(long)]
    json: bool,
    /// Shows keys as hashes, different in each run.
    #[arg(long)]
    hash_keys: bool,
    /// Exits with 3 if a larger share of requests is limited, such as 0.1%. With a key of addresses, requests without
    /// one count as limited.
    #[arg(long, value_name = "PERCENT")]
    fail_above: Option<String>,
    /// The number of keys to track; beyond it, peaks are those of a sample.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    max_keys: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Auto,
    Combined,
    Common,
    NginxJson,
    Caddy,
    Json,
}

/// The placement of attempts with whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Spread {
    /// Spread evenly over their second, in the order of their lines.
    Even,
    /// All of a second at its first instant.
    None,
}

impl Replay {
    /// Replays the logs, and writes the report. Warnings go to `errors`: the report may be JSON.
    ///
    /// # Errors
    ///
    /// Wrong arguments, and unreadable files.
    pub(crate) fn run(mut self, out: &mut dyn Write, errors: &mut dyn Write) -> Result<u8, String> {
        self.check()?;
        let fail_above = self.fail_above.take();
        let fail_above = fail_above.as_deref().map(share).transpose()?;
        let (json, page) = (self.json, self.report.take());
        let settings = self.settings()?;
        if let Some(warning) = settings.pattern.as_ref().and_then(RequestPattern::warning) {
            let _ = writeln!(errors, "warning[W29]: --match: {warning}");
        }
        let tally = replay(&settings)?;
        let written = if json {
            format!("{:#}\n", tally.json())
        } else {
            text(&tally)
        };
        // The reader closed the pipe: no error.
        let _ = out.write_all(written.as_bytes());
        if let Some(path) = page {
            let written = fs::write(&path, html(&tally));
            written.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(match fail_above {
            _ if tally.readable() == 0 => FAULTS,
            Some(share) if tally.worst_share() > share => ABOVE,
            _ => OK,
        })
    }

    /// Checks that the arguments fit together.
    fn check(&self) -> Result<(), String> {
        let has_limit = !self.quota.is_empty() || !self.rules.is_empty();
        if !has_limit && !self.suggest {
            return Err("nothing to replay against; give a --quota, --rules, or --suggest".into());
        }
        if self.what_if && self.quota.is_empty() {
            return Err("--what-if needs a --quota".into());
        }
        if self.fail_above.is_some() && !has_limit {
            return Err("--fail-above needs a --quota or --rules".into());
        }
        Ok(())
    }

    fn settings(self) -> Result<Settings, String> {
        let mut settings = Settings::new(self.files, self.rules, self.key.parse()?)?;
        settings.quotas = self.quota;
        settings.is_json = match self.format {
            LogFormat::Auto => None,
            LogFormat::Combined | LogFormat::Common => Some(false),
            LogFormat::NginxJson | LogFormat::Caddy | LogFormat::Json => Some(true),
        };
        settings.time_field = self.time_field;
        settings.ip_field = self.ip_field;
        settings.status_field = self.status_field;
        settings.pattern = self.matching.map(|text| text.parse()).transpose()?;
        if !self.count_if.is_empty() {
            settings.count_if = Some(StatusSet::new(&self.count_if)?);
        }
        settings.left_out = LeftOut::new(
            self.from.as_deref(),
            self.until.as_deref(),
            &self.exclude,
            &self.exclude_key,
            self.hash_keys,
        )?;
        if !self.trust_proxies.is_empty() {
            let trust = ClientIp::try_behind(self.trust_proxies);
            settings.trust = Some(trust.map_err(|error| error.to_string())?);
        }
        settings.reorder = duration(&self.reorder)?;
        settings.spreads_seconds = self.spread == Spread::Even;
        settings.top = self.top;
        settings.suggest = self.suggest;
        settings.what_if = self.what_if;
        settings.hash_keys = self.hash_keys;
        settings.max_keys = self.max_keys;
        Ok(settings)
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
