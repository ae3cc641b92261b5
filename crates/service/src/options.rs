//! Values of options that several services share, and the settings that are their defaults.

use std::{net::SocketAddr, time::Duration};

use clap::{Args, Command};
use tower_ratelimit::Quota;

/// The address of a service, unless it is off.
pub type OrOff = Option<SocketAddr>;

/// [`address`], or `off`.
pub fn address_or_off(text: &str) -> Result<OrOff, String> {
    match text {
        "off" => Ok(None),
        text => address(text).map(Some),
    }
}

/// An address and a port. `:8000` and `8000` are the port on all addresses, as in nginx.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    let local = text.strip_prefix("localhost:");
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = match local {
        Some(port) if is_port(port) => port.parse().ok().map(|port| ([127, 0, 0, 1], port).into()),
        _ if is_port(port) => port.parse().ok().map(|port| ([0, 0, 0, 0], port).into()),
        _ => text.parse().ok(),
    };
    parsed.ok_or_else(|| {
        "an address is such as 127.0.0.1:8000, [::1]:8000, localhost:8000, or :8000 for all addresses"
            .to_owned()
    })
}
/// A time such as 15ms or 5s; 0 is 0s.
pub fn time(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") {
        return Ok(Duration::ZERO);
    }
    // The periods of quotas have the same syntax.
    let quota: Result<Quota, _> = format!("1/{text}").parse();
    quota
        .map(|quota| quota.period())
        .map_err(|error| error.to_string())
}

/// The settings of a command line that has only these arguments, which are valid.
pub fn defaults<S: Args>(arguments: &[&str]) -> S {
    let command = S::augment_args(Command::new("settings").no_binary_name(true));
    let settings = command
        .try_get_matches_from(arguments)
        .and_then(|matches| S::from_arg_matches(&matches));
    settings.unwrap_or_else(|error| unreachable!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_are_written_as_for_other_servers() {
        for (text, expected) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("[::1]:8000", "[::1]:8000"),
            (":8000", "0.0.0.0:8000"),
            ("8000", "0.0.0.0:8000"),
            ("localhost:8000", "127.0.0.1:8000"),
        ] {
            assert_eq!(
                address(text).map(|address| address.to_string()),
                Ok(expected.to_owned())
            );
        }
        for wrong in [
            "",
            ":",
            "localhost",
            "localhost:",
            "localhost:x",
            "65536",
            "shop:80",
            "::1:80",
            "127.0.0.1",
        ] {
            assert!(
                address(wrong).is_err_and(|error| error.contains(":8000")),
                "{wrong}"
            );
        }
    }
}
