//! Values that are texts in a file: durations, methods, networks, header names, status codes.

use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

use http::{HeaderName, Method};
use ipnet::IpNet;

pub(crate) use tower_ratelimit_client_ip::client_ip::{IntoNetwork as _, unmapped};
use tower_ratelimit_core::quota::text::period;

/// A duration that is not zero, such as `15m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match period(text) {
        Ok(Duration::ZERO) => {
            Err("a duration of zero has no effect; leave the field out".to_owned())
        }
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

/// The time of a lease. Renewals come three times in it, so a shorter one would be lost to the first delay.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    let accepted = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
    if accepted.contains(&lease) {
        Ok(lease)
    } else {
        Err(format!("a lease of {text:?}; accepted are 1s to 24h"))
    }
}

pub(crate) fn method(text: &str) -> Result<Method, String> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(upper.as_bytes()) {
        Ok(Method::HEAD) => Err("HEAD counts as GET: say GET".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{text:?} is no method")),
    }
}

pub(crate) fn route(text: &str) -> Result<Box<str>, String> {
    if text.starts_with('/') {
        Ok(text.into())
    } else {
        Err(format!("the route {text:?} does not begin with a slash"))
    }
}

pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = text.parse();
    name.map_err(|_| format!("{text:?} is no header's name"))
}

pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    let address = text.parse::<IpAddr>();
    let network = address.map(|ip| IpNet::from(ip.to_canonical()));
    let network = network.or_else(|_| text.parse().map(unmapped));
    network.map_err(|_| {
        format!(
            "{text:?} is neither an address such as \"203.0.113.7\" nor a network such as \
             \"203.0.113.0/24\""
        )
    })
}

pub(crate) fn trusted_network(text: &str) -> Result<IpNet, String> {
    text.into_network().map_err(|error| error.to_string())
}

/// A status code such as `401`, or all codes of a class such as `4xx`.
pub(crate) fn status_codes(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |digits: &str| digits.parse::<u16>().ok();
    let codes = match text.strip_suffix("xx") {
        Some(class) => number(class)
            .filter(|class| (1..=5).contains(class))
            .map(|class| class * 100..=class * 100 + 99),
        None => number(text)
            .filter(|code| (100..600).contains(code))
            .map(|code| code..=code),
    };
    codes.ok_or_else(|| match text.strip_suffix("XX") {
        Some(class) => format!("{text:?} is no status; did you mean \"{class}xx\"?"),
        None => format!("{text:?} is no status; accepted are 100 to 599, and classes such as 4xx"),
    })
}
