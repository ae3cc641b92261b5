//! Tests of the parsers of response fields.

mod other_servers;
mod vectors;

use http::{HeaderMap, HeaderName, HeaderValue};

/// A map of these lines.
fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let lines = lines.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    // Collecting would keep the last line only.
    lines.fold(HeaderMap::new(), |mut map, (name, value)| {
        map.append(name, value);
        map
    })
}
