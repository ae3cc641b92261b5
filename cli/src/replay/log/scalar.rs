//! Values of fields.

use std::borrow::Cow;

use super::super::{
    date::{Dates, Instant, from_integer, from_number, is_small},
    entry::LoggedPart,
};

/// Caddy's replacement for credentials; before 2.7 it logged an empty list.
const REDACTED: &str = "REDACTED";

/// The value of a field with several names.
#[derive(Default)]
pub(super) struct Best<'a>(Option<(usize, Scalar<'a>)>);

#[derive(Clone)]
pub(super) enum Scalar<'a> {
    Text(Cow<'a, str>),
    /// Exact: clients may have 64-bit numbers as names.
    Integer(i128),
    Number(f64),
}

impl<'a> Best<'a> {
    /// Keeps the value if its name ranks above that of the current one.
    pub(super) fn offer(&mut self, place: usize, value: &Scalar<'a>) {
        if self.0.as_ref().is_none_or(|(best, _)| place < *best) {
            self.0 = Some((place, value.clone()));
        }
    }

    pub(super) const fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn value(self) -> Option<Scalar<'a>> {
        self.0.map(|(_, value)| value)
    }

    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        self.0
            .map(|(_, value)| value.text())
            .filter(|text| !text.is_empty() && text != "-")
    }
}

impl<'a> Scalar<'a> {
    pub(super) fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text,
            Self::Integer(number) => number.to_string().into(),
            Self::Number(number) => number.to_string().into(),
        }
    }

    /// The status of a response.
    pub(super) fn status(&self) -> Option<u16> {
        let status = match self {
            Self::Text(text) => text.parse().ok(),
            Self::Integer(number) => u16::try_from(*number).ok(),
            Self::Number(number) => {
                let is_one = (0.0..1e3).contains(number) && number.fract() == 0.0;
                is_one.then_some(*number as u16)
            }
        };
        status.filter(|status| *status < 1_000)
    }

    /// Whether this is a number that is too small for a time.
    pub(super) fn is_small(&self) -> bool {
        match self {
            Self::Text(text) => text.parse().is_ok_and(is_small),
            Self::Integer(number) => is_small(*number as f64),
            Self::Number(number) => is_small(*number),
        }
    }

    pub(super) fn time(&self, dates: &mut Dates) -> Option<Instant> {
        match self {
            Self::Text(text) => dates.read(text),
            Self::Integer(number) => from_integer(*number),
            Self::Number(number) => from_number(*number),
        }
    }
}

/// A part of a request, which Caddy may hide.
pub(super) fn logged_part(text: Cow<'_, str>) -> LoggedPart<'_> {
    match &*text {
        REDACTED => LoggedPart::Unknown,
        _ => LoggedPart::field(text),
    }
}
