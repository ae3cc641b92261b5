//! Extensions of `rate_limit`: algorithms that the reference lacks.

use std::time::Duration;

use tower_ratelimit::Quota;
use tower_ratelimit_rulefile::{ProblemCode, document::Node};

use super::parser_state::RulesParser;
use crate::protobuf_messages::Unit;

/// The keys of a limit that the reference does not know.
pub(super) const EXTENSIONS: [&str; 5] =
    ["unit_multiplier", "algorithm", "burst", "slices", "soft"];

impl RulesParser<'_> {
    /// The number of units in a period, if the limit has one.
    pub(super) fn unit_multiplier(&mut self, limit: &Node, unit: Option<Unit>) -> Option<u32> {
        let times = self.number(limit, "unit_multiplier")?;
        let period = Duration::from_secs(unit.map_or(1, Unit::seconds) * u64::from(times));
        let window = Quota::per(1, period).fixed_window().uncapped();
        let fault = match (times, window.check()) {
            (0, _) => "unit_multiplier is at least 1".to_owned(),
            (_, Err(fault)) => fault.to_string(),
            (_, Ok(())) => return Some(times),
        };
        let span = &limit.get("unit_multiplier").unwrap_or(limit).span;
        self.fault(ProblemCode::R04, span, fault);
        None
    }

    /// The quota of a limit that is no fixed window; also `None` after a fault.
    pub(super) fn quota(&mut self, limit: &Node, requests: u32, seconds: u64) -> Option<Quota> {
        let [burst, slices, soft] = ["burst", "slices", "soft"].map(|key| self.number(limit, key));
        let quota = Quota::per(u64::from(requests), Duration::from_secs(seconds));
        let algorithm = self.text(limit, "algorithm");
        let mut quota = match algorithm.as_str() {
            "" | "fixed_window" if (burst, slices, soft) == (None, None, None) => return None,
            "" | "fixed_window" => quota.fixed_window(),
            "token_bucket" => quota.token_bucket(),
            "sliding_window" => quota.sliding_window(),
            "sliding_log" => quota.sliding_log(),
            _ => {
                let message = format!(
                    "unknown algorithm {algorithm:?}; there are fixed_window, token_bucket, \
                     sliding_window and sliding_log"
                );
                let span = &limit.get("algorithm").unwrap_or(limit).span;
                self.fault(ProblemCode::R04, span, message);
                return None;
            }
        };
        if let Some(burst) = burst {
            quota = quota.burst(u64::from(burst));
        }
        if let Some(slices) = slices {
            quota = quota.slices(slices);
        }
        if let Some(percent) = soft {
            quota = quota.soft(percent);
        }
        // Without a unit there is another fault, or no limit.
        let fault = quota.check().err().filter(|_| seconds > 0);
        if let Some(fault) = fault {
            self.fault(ProblemCode::R04, &limit.span, fault.to_string());
            return None;
        }
        Some(quota).filter(|_| seconds > 0)
    }
}
