//! Scalars by the types that YAML 1.1 gives them, as the reference reads them.

use tower_ratelimit::rules::source::{NodeEntry, Scalar};

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Typed {
    Null,
    Truth(bool),
    /// A whole number of 64 bits with a sign.
    Whole(i64),
    /// Any other number.
    Number(f64),
    Text,
}

/// The type of a scalar.
pub(super) fn typed(scalar: &Scalar) -> Typed {
    match scalar.quoted {
        true => Typed::Text,
        false => of_plain(&scalar.text),
    }
}

/// The type of a key.
pub(super) fn typed_key(entry: &NodeEntry) -> Typed {
    match entry.key_quoted {
        true => Typed::Text,
        false => of_plain(&entry.key),
    }
}

/// The text; none of null, whatever that is written as.
pub(super) fn text_or_empty(scalar: &Scalar) -> &str {
    match typed(scalar) {
        Typed::Null => "",
        _ => &scalar.text,
    }
}

fn of_plain(text: &str) -> Typed {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Typed::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Typed::Truth(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Typed::Truth(false)
        }
        ".nan" | ".NaN" | ".NAN" => Typed::Number(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Typed::Number(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Typed::Number(f64::NEG_INFINITY),
        text => number(text),
    }
}

fn number(text: &str) -> Typed {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Typed::Text;
    }
    let plain = text.replace('_', "");
    if let Some(whole) = whole(&plain) {
        return i64::try_from(whole).map_or(Typed::Number(whole as f64), Typed::Whole);
    }
    let is_decimal = plain
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match plain.parse() {
        Ok(number) if is_decimal => Typed::Number(number),
        _ => Typed::Text,
    }
}

/// A whole number: decimal, octal after a 0, or after a letter that tells its base.
fn whole(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if text.starts_with('-') => (-1, digits),
        Some(digits) => (1, digits),
        None => (1, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some(octal) if octal.starts_with('0') && lower.bytes().all(|b| b.is_ascii_digit()) => {
            (8, &lower[1..])
        }
        _ => (10, lower.as_str()),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = i128::from_str_radix(digits, base)
        .ok()
        .filter(|_| is_plain)?;
    Some(sign * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_the_types_of_yaml_1_1() {
        let cases = [
            ("", Typed::Null),
            ("~", Typed::Null),
            ("yes", Typed::Truth(true)),
            ("off", Typed::Truth(false)),
            ("yEs", Typed::Text),
            ("10", Typed::Whole(10)),
            ("-1", Typed::Whole(-1)),
            ("+1_000", Typed::Whole(1_000)),
            ("0x1F", Typed::Whole(31)),
            ("010", Typed::Whole(8)),
            ("0", Typed::Whole(0)),
            ("0b11", Typed::Whole(3)),
            ("09", Typed::Number(9.0)),
            (
                "18446744073709551615",
                Typed::Number(18_446_744_073_709_551_615.0),
            ),
            ("1.5", Typed::Number(1.5)),
            (".5e3", Typed::Number(500.0)),
            ("1e3", Typed::Number(1_000.0)),
            ("10.0.0.1", Typed::Text),
            ("1h", Typed::Text),
            ("-", Typed::Text),
            ("infinity", Typed::Text),
            ("2026-01-01", Typed::Text),
        ];
        for (text, expected) in cases {
            let scalar = |quoted| Scalar {
                text: text.to_owned(),
                quoted,
            };
            assert_eq!(typed(&scalar(false)), expected, "{text:?}");
            assert_eq!(typed(&scalar(true)), Typed::Text, "{text:?}");
        }
    }
}
