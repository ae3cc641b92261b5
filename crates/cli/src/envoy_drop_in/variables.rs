//! Environment variables, parsed as by the reference.

use std::{collections::BTreeMap, env, path::PathBuf, str::FromStr, time::Duration};

/// The variables with a value; empty ones are absent.
#[derive(Debug)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(super) fn of_process() -> Self {
        let variables = env::vars_os().filter_map(|(name, value)| {
            let texts = (name.into_string().ok()?, value.into_string().ok()?);
            Some(texts).filter(|(_, value)| !value.is_empty())
        });
        Self(variables.collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// The files of a client's certificate and its key: both, or neither.
    pub(super) fn certificate(
        &self,
        cert: &str,
        key: &str,
    ) -> Result<(Option<PathBuf>, Option<PathBuf>), String> {
        match (self.path(cert), self.path(key)) {
            (Some(_), None) => Err(format!("{cert} needs {key}")),
            (None, Some(_)) => Err(format!("{key} needs {cert}")),
            both => Ok(both),
        }
    }

    /// The variables with this prefix.
    pub(super) fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = &str> {
        let names = self.0.keys().map(String::as_str);
        names.filter(move |name| name.starts_with(prefix))
    }

    pub(super) fn parsed<T: FromStr>(&self, name: &str, kind: &str) -> Result<Option<T>, String> {
        let parsed = self.text(name).map(|text| {
            text.parse()
                .map_err(|_| format!("{name}={text} is not {kind}"))
        });
        parsed.transpose()
    }

    /// False if absent.
    pub(super) fn truth(&self, name: &str) -> Result<bool, String> {
        match self.text(name) {
            None | Some("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
            Some(other) => Err(format!("{name}={other} is neither true nor false")),
        }
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Duration>, String> {
        let read = self.text(name).map(|text| {
            duration(text)
                .ok_or_else(|| format!("{name}={text} is no time such as 150ms, 1.5s, 1h30m or 0"))
        });
        read.transpose()
    }
}

/// The units of durations, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration of Go: a sum of numbers, each with a unit and maybe a fraction. Only `0` needs no unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let is_number = |sign: char| sign.is_ascii_digit() || sign == '.';
    let (mut rest, mut total) = (text, 0_u64);
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|sign| !is_number(sign))?);
        let (unit, behind) = behind.split_at(behind.find(is_number).unwrap_or(behind.len()));
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(product(number, *nanos)?)?;
        rest = behind;
    }
    let fits = !text.is_empty() && i64::try_from(total).is_ok();
    fits.then_some(Duration::from_nanos(total))
}

/// The nanoseconds of a decimal number of units. Digits beyond nanoseconds are cut off.
fn product(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = format!("0{whole}").parse().ok()?;
    let mut nanos = whole.checked_mul(unit)?;
    let mut tenth = unit / 10;
    for digit in fraction.bytes() {
        nanos = nanos.checked_add(u64::from(digit - b'0') * tenth)?;
        tenth /= 10;
    }
    Some(nanos)
}

#[cfg(test)]
impl From<&[(&str, &str)]> for Variables {
    fn from(pairs: &[(&str, &str)]) -> Self {
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        let owned = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self(owned.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("10s", 10_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+150ms", 150_000_000),
            ("1m0.25s", 60_250_000_000),
            ("0.1h", 360_000_000_000),
            ("1.5us", 1_500),
            ("2\u{b5}s3\u{3bc}s4ns", 5_004),
            ("2562047h47m16.854775807s", i64::MAX.unsigned_abs()),
        ] {
            assert_eq!(duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "+",
            "1",
            "s",
            ".s",
            "1..5s",
            "1.5.5s",
            "1d",
            "1 s",
            "soon",
            "-1s",
            "1h30",
            "2562047h47m16.854775808s",
            "99999999999999999999h",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
