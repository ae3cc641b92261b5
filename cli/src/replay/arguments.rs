//! The arguments of `replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tower_ratelimit::Quota;

use super::reordering::Spread;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Logs in any order, also compressed by gzip, of one server or of several; their lines are
    /// sorted by time. - is the standard input.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A quota to try, such as "100/minute burst 200"; may be repeated, each counts separately.
    #[arg(long, value_name = "QUOTA")]
    pub(crate) quota: Vec<Quota>,
    /// Rule files to try, as for `check`.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// The key that quotas count by: ip (IPv6 by /64), ip/48, user, path, field:NAME, or several with +.
    #[arg(long, value_name = "KEY", default_value = "ip")]
    pub(crate) key: String,
    /// The format of the lines. By default each line decides: JSON begins with a brace.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) format: LogFormat,
    /// The JSON field with the time; a dot is an object in an object.
    #[arg(long, value_name = "NAME")]
    pub(crate) time_field: Option<String>,
    /// The JSON field with the client's address.
    #[arg(long, value_name = "NAME")]
    pub(crate) ip_field: Option<String>,
    /// The JSON field with the status of the response.
    #[arg(long, value_name = "NAME")]
    pub(crate) status_field: Option<String>,
    /// The requests that count, such as 'POST /login' or '/api/**', compared as rules compare them.
    #[arg(long = "match", value_name = "METHOD PATH")]
    pub(crate) matching: Option<String>,
    /// The responses that count, such as 401 or 4xx: all others are refunded.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) count_if: Vec<String>,
    /// The first time that counts, such as 2026-11-21T03:00Z, or a date, which begins at 00:00 UTC.
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// The end of the time that counts, in the format of --from.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Ignores clients by address or network; several with a comma between.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) exclude: Vec<String>,
    /// Ignores the key that --key counts by, in the format of the report; may be repeated.
    #[arg(long, value_name = "KEY")]
    pub(crate) exclude_key: Vec<String>,
    /// Addresses and networks of your proxies: the client is then the one in X-Forwarded-For.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) trust_proxies: Vec<String>,
    /// How late a line may be written, compared with later requests.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) reorder: String,
    /// How to place requests of logs with whole seconds only.
    #[arg(long, value_name = "HOW", default_value = "even")]
    pub(crate) spread: Spread,
    /// The number of keys to list that were limited most.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    /// Reports what keys request, and a quota that nearly all of them would have stayed under.
    #[arg(long)]
    pub(crate) suggest: bool,
    /// Tries up to twelve limits around the first quota.
    #[arg(long)]
    pub(crate) what_if: bool,
    /// Writes a page with charts.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Writes JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Shows keys as hashes, different in each run.
    #[arg(long)]
    pub(crate) hash_keys: bool,
    /// Exits with 3 if a larger share of requests is limited, such as 0.1%. With a key of addresses, requests without
    /// one count as limited.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) fail_above: Option<String>,
    /// The number of keys to track; beyond it, peaks are those of a sample.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub(crate) max_keys: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Auto,
    Combined,
    Common,
    NginxJson,
    Caddy,
    Json,
}
