//! `cost`: the units that a request takes.

use http::{HeaderName, Method, request::Parts};
use tower_ratelimit_rulefile::{
    ProblemCode,
    document::Node,
    fields::{
        Field, Number, Parsed,
        Shape::{Either, Map, Number as AsNumber, Table as InTable, Text as AsText},
        Table, Tree,
    },
};

use super::compile::context::{Context, header_name, method};
pub(crate) use tower_ratelimit_layer::key::request_value::lines_in_any_spelling;

/// The parts of a cost. The largest that applies counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CostRule {
    default: u32,
    methods: Box<[(Method, u32)]>,
    pub(super) header: Option<(HeaderName, u32)>,
}

impl CostRule {
    fn one() -> Self {
        Self {
            default: 1,
            methods: Box::default(),
            header: None,
        }
    }

    /// The cost in units. `method` is GET for HEAD.
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

const MAX_COST: u64 = 1_000_000;

pub(super) static COST: Field<Tree> = Field::tree(
    "cost",
    Either(&[AsNumber(0, MAX_COST), InTable(&COST_TABLE)]),
    "How many units a request takes. Default: 1.",
);

static COST_TABLE: Table = Table::new(
    "cost",
    "The largest of the parts that apply.",
    &[&DEFAULT, &METHOD, &HEADER],
);

pub(super) static DEFAULT: Field<Number> = Field::number(
    "default",
    0..=MAX_COST,
    "What a request takes at least. Default: 1.",
);

pub(super) static METHOD: Field<Tree> = Field::tree(
    "method",
    Map(&AsNumber(0, MAX_COST)),
    "What a method takes.",
);

pub(super) static HEADER: Field<Tree> = Field::table("header", &COST_HEADER, "What a header says.");

static COST_HEADER: Table = Table::new(
    "cost.header",
    "A cost that the request brings.",
    &[&HEADER_NAME, &HEADER_MAX],
);

static HEADER_NAME: Field<Parsed<HeaderName>> = Field::parsed(
    "name",
    AsText("x-cost"),
    ProblemCode::R01,
    header_name,
    "The header. One that is no number, or above `max`, counts as `max`.",
)
.required();

pub(super) static HEADER_MAX: Field<Number> =
    Field::number("max", 1..=MAX_COST, "The most that it can say.").required();

impl Context<'_> {
    pub(super) fn cost(&mut self, node: Option<&Node>) -> CostRule {
        let Some(node) = node else {
            return CostRule::one();
        };
        if let Some(default) = node.number().and_then(units) {
            return CostRule {
                default,
                ..CostRule::one()
            };
        }
        let mut methods = Vec::new();
        for entry in METHOD.entries(node) {
            let method = method(&entry.key);
            if let Some(method) = self.value(ProblemCode::R01, &entry.key_span, method) {
                self.check_method(&method, &entry.key_span);
                let cost = entry.value.number().and_then(units);
                methods.extend(cost.map(|cost| (method, cost)));
            }
        }
        let header = HEADER.of(node).and_then(|header| {
            let name = HEADER_NAME.of(header, &mut self.report)?;
            Some((name, units(HEADER_MAX.of(header)?)?))
        });
        CostRule {
            default: DEFAULT.of(node).and_then(units).unwrap_or(1),
            methods: methods.into(),
            header,
        }
    }
}

fn units(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}
