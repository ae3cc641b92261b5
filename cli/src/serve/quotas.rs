//! The options of the quota service.

use std::time::Duration;

use clap::{Args, ValueEnum};
use http::HeaderName;
use tower_ratelimit_server::rlqs::RlqsSettings;

use crate::common_options::time;

#[derive(Debug, Args)]
#[command(next_help_heading = "Shares for Envoy")]
pub(super) struct Rlqs {
    /// Assigns shares of limits to Envoys with the filter rate_limit_quota, which then decide by
    /// themselves. With --redis, instances divide limits together.
    #[arg(long, env = "TOWER_RATELIMIT_RLQS")]
    rlqs: bool,
    /// How long a share lasts without a further message: whole seconds, at least 10. Envoy reports
    /// every 5 seconds. Instances with one Redis need the same.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = ttl, env = "TOWER_RATELIMIT_RLQS_TTL")]
    rlqs_ttl: Duration,
    /// How long a bucket without requests is kept.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time, env = "TOWER_RATELIMIT_RLQS_IDLE")]
    rlqs_idle: Duration,
    /// Requests in buckets that get no share: beyond a maximum, or with pairs that fit too many
    /// orders.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "deny",
        env = "TOWER_RATELIMIT_RLQS_EXCESS"
    )]
    rlqs_excess: Excess,
    /// The header of streams with the Envoy's name, so that each keeps its shares when it
    /// reconnects: initial_metadata of Envoy's rlqs_server. Otherwise an Envoy is the address of its
    /// connection.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = header,
        env = "TOWER_RATELIMIT_RLQS_CLIENT_HEADER"
    )]
    rlqs_client_header: Option<HeaderName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Excess {
    /// All pass.
    Allow,
    /// None pass.
    Deny,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = time(text)?;
    let is_whole = ttl.subsec_nanos() == 0 && (10..=3_600).contains(&ttl.as_secs());
    is_whole
        .then_some(ttl)
        .ok_or_else(|| "a share lasts for whole seconds, from 10s to 1h".to_owned())
}

/// Accepts what gRPC sends as text metadata.
fn header(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    let is_text = |name: &HeaderName| {
        let name = name.as_str();
        !name.ends_with("-bin") && !name.starts_with("grpc-")
    };
    name.filter(is_text).ok_or_else(|| {
        "a header's name is letters, digits and -, begins not with grpc- and ends not with -bin"
            .to_owned()
    })
}

impl Rlqs {
    pub(super) fn settings(self) -> Option<RlqsSettings> {
        let mut settings = RlqsSettings::default();
        (settings.ttl, settings.idle) = (self.rlqs_ttl, self.rlqs_idle);
        settings.excess_passes = self.rlqs_excess == Excess::Allow;
        settings.client_header = self.rlqs_client_header;
        self.rlqs.then_some(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_last_for_whole_seconds() {
        assert_eq!(ttl("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(ttl("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["9s", "10500ms", "2h", "x"] {
            assert!(ttl(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_are_named_by_a_header_of_text() {
        assert_eq!(header("X-Envoy"), Ok(HeaderName::from_static("x-envoy")));
        for wrong in ["", "a b", "ä", "x:", "x-bin", "grpc-x"] {
            let error = header(wrong).expect_err(wrong);
            assert!(error.contains("letters, digits"), "{error}");
        }
    }
}
