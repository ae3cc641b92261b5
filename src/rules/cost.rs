//! The cost of a request, in units.

use http::{HeaderName, Method, request::Parts};

use crate::key::sent_value::lines_in_any_spelling;

/// The parts of a cost. The largest that applies counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CostRule {
    pub(super) default: u32,
    pub(super) methods: Box<[(Method, u32)]>,
    pub(super) header: Option<(HeaderName, u32)>,
}

impl CostRule {
    /// One unit for each request.
    pub(super) fn one() -> Self {
        Self {
            default: 1,
            methods: Box::default(),
            header: None,
        }
    }

    /// The cost in units. `method` is GET for HEAD.
    #[inline]
    pub(super) fn of(&self, method: &Method, parts: &Parts) -> u32 {
        if self.methods.is_empty() && self.header.is_none() {
            return self.default;
        }
        self.of_parts(method, parts)
    }

    #[inline(never)]
    fn of_parts(&self, method: &Method, parts: &Parts) -> u32 {
        let of_method = self.methods.iter().find(|(known, _)| known == method);
        let of_method = of_method.map_or(0, |(_, cost)| *cost);
        let of_header = self.header.as_ref().map_or(0, |(name, max)| {
            let lines = lines_in_any_spelling(&parts.headers, name);
            let costs = lines.map(|line| header_cost(line.trim_ascii(), *max));
            costs.max().unwrap_or(0)
        });
        self.default.max(of_method).max(of_header)
    }
}

/// The number of a header, at most `max`; `max` if it is no number.
fn header_cost(value: &[u8], max: u32) -> u32 {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(value)
        .ok()
        .filter(|_| digits)
        .and_then(|text| text.parse().ok());
    number.unwrap_or(max).min(max)
}
