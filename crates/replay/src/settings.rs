//! The settings of a replay: the logs, the limits to try, and the lines that count.

use std::{path::PathBuf, time::Duration};

use tower_ratelimit::{ClientIp, Quota, rules::Rules};

use crate::{
    filters::{LeftOut, RequestPattern, StatusSet},
    log_entry::KeySpec,
    missing_request_parts::Needs,
};

/// The logs, the limits to try, and the lines that count. The defaults are those of the command `tower-ratelimit replay`.
#[derive(Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The logs, in any order; `-` is the standard input.
    pub files: Vec<PathBuf>,
    /// The quotas to try, each by itself; at most 16.
    pub quotas: Vec<Quota>,
    pub(crate) rules: Vec<PathBuf>,
    /// The parts of requests that the rules read.
    pub(crate) needs: Needs,
    /// The key that quotas count by.
    pub key: KeySpec,
    /// Whether lines are JSON. By default each line decides: JSON begins with a brace.
    pub is_json: Option<bool>,
    /// The JSON field with the time; a dot is an object in an object.
    pub time_field: Option<String>,
    /// The JSON field with the client's address.
    pub ip_field: Option<String>,
    /// The JSON field with the status of the response.
    pub status_field: Option<String>,
    /// The requests that count. Default: all.
    pub pattern: Option<RequestPattern>,
    /// The responses that count: all others are refunded. Default: all.
    pub count_if: Option<StatusSet>,
    /// The lines that do not count.
    pub left_out: LeftOut,
    /// The proxies whose `X-Forwarded-For` has the client.
    pub trust: Option<ClientIp>,
    /// How late a line may be written, compared with later requests.
    pub reorder: Duration,
    /// Whether requests of logs with whole seconds only are spread evenly over their second.
    pub spreads_seconds: bool,
    /// The number of keys to list that were limited most.
    pub top: usize,
    /// Whether to report what keys request, and a quota that nearly all of them would have stayed under.
    pub suggest: bool,
    /// Whether to try up to twelve limits around the first quota.
    pub what_if: bool,
    /// Whether keys are shown as hashes, different in each run.
    pub hash_keys: bool,
    /// The number of keys to track; beyond it, peaks are those of a sample.
    pub max_keys: usize,
}

impl Settings {
    /// Tries the rules of these files on the logs.
    ///
    /// # Errors
    ///
    /// Rules that cannot be read or have faults.
    pub fn new(files: Vec<PathBuf>, rules: Vec<PathBuf>, key: KeySpec) -> Result<Self, String> {
        let mut needs = Needs::default();
        if !rules.is_empty() {
            let builder = Rules::builder()
                .outside_of_application(true)
                .requests_only(true);
            let rules = builder.read_all(&rules);
            needs = Needs::of(&rules.map_err(|error| error.to_string())?);
        }
        Ok(Self {
            files,
            quotas: Vec::new(),
            rules,
            needs,
            key,
            is_json: None,
            time_field: None,
            ip_field: None,
            status_field: None,
            pattern: None,
            count_if: None,
            left_out: LeftOut::default(),
            trust: None,
            reorder: Duration::from_secs(10),
            spreads_seconds: true,
            top: 20,
            suggest: false,
            what_if: false,
            hash_keys: false,
            max_keys: 1_000_000,
        })
    }
}
