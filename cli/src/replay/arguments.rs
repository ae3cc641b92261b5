//! The arguments of `replay`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tower_ratelimit::Quota;

use super::order::Spread;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Logs in any order, also compressed by gzip, of one server or of several; their lines are put in
    /// order by time. - is the standard input.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// A quota to try, such as "100/minute burst 200"; may be repeated, each counts for itself.
    #[arg(long, value_name = "QUOTA")]
    pub(crate) quota: Vec<Quota>,
    /// Rule files to try, as `check` takes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// The key that quotas count by: ip (IPv6 by /64), ip/48, user, path, field:NAME, or several with +.
    #[arg(long, value_name = "KEY", default_value = "ip")]
    pub(crate) key: String,
    /// The format of the lines. Told by each line itself: JSON begins with a brace.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) format: LogFormat,
    /// The field of JSON lines that has the time; a dot is an object in an object.
    #[arg(long, value_name = "NAME")]
    pub(crate) time_field: Option<String>,
    /// The field of JSON lines that has the client's address.
    #[arg(long, value_name = "NAME")]
    pub(crate) ip_field: Option<String>,
    /// The requests that count, such as 'POST /login' or '/api/**'.
    #[arg(long = "match", value_name = "METHOD PATH")]
    pub(crate) matching: Option<String>,
    /// The responses that count, such as 401 or 4xx: the others are refunded.
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) count_if: Vec<String>,
    /// The first time that counts, such as 2026-11-21T03:00Z, or a date, which begins at 00:00 UTC.
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// The time from which on nothing counts any more, written as for --from.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Leaves out clients by address or network, as if they had sent nothing; several with a comma between.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) exclude: Vec<String>,
    /// Leaves out the key that --key counts by, written as it is shown; may be repeated.
    #[arg(long, value_name = "KEY")]
    pub(crate) exclude_key: Vec<String>,
    /// Addresses and networks of your proxies: the client is then the one in X-Forwarded-For.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(crate) trust_proxies: Vec<String>,
    /// How much later than others a line may be written that came earlier.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) reorder: String,
    /// When requests came of which the log has whole seconds only.
    #[arg(long, value_name = "HOW", default_value = "even")]
    pub(crate) spread: Spread,
    /// How many keys to name that were limited most.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    /// Says what keys ask for, and a quota that nearly all of them would have stayed under.
    #[arg(long)]
    pub(crate) suggest: bool,
    /// Tries up to twelve limits around the first quota.
    #[arg(long)]
    pub(crate) what_if: bool,
    /// Writes a page with pictures.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Writes JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Names keys by a hash, another one in each run.
    #[arg(long)]
    pub(crate) hash_keys: bool,
    /// Exits with 3 if a larger share of requests is limited, such as 0.1%.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) fail_above: Option<String>,
    /// How many keys are remembered; beyond, peaks are those of a sample.
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
