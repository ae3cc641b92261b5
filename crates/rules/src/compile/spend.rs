//! `spend`, `counts` and `prices`, the units that responses use: their fields, and what reads them.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode, Span,
    document::Node,
    fields::{
        Field, Number, OneOf,
        Shape::{self, Decimal, Either, Map, Number as AsNumber, Table as InTable, Words},
        Table, Text, Tree,
    },
};

use super::context::{Context, header_name};
use crate::{
    rule::{Rule, SpendRule, UsagePlace},
    rule_quotas::{Allowance, CountedUnits},
};
use tower_ratelimit_budgets::{
    llm::{Llm, Pointer},
    prices::{ModelPattern, TokenRates},
};
use tower_ratelimit_core::{quota::text::MAX_NUMBER, token_usage::Tokens};
use tower_ratelimit_layer::rate_limit::{Exhausted, Missing, SpendNumbers};

pub(super) static SPEND: Field<Tree> = Field::table(
    "spend",
    &SPEND_TABLE,
    "How the units that responses use are read and charged, for the quotas with `counts`.",
);

const MAX_WEIGHT: u64 = 1_000_000;

/// The most bytes of a request that may be read before it is decided.
const MAX_BODY: u64 = 1 << 20;

static SPEND_TABLE: Table = Table::new(
    "spend",
    "How the units that responses use are read and charged.",
    &[
        &READ,
        &RESERVE,
        &RESERVE_LEAST,
        &STEP,
        &EXHAUSTED,
        &MISSING,
        &BODY,
    ],
);

static READ: Field<Tree> = Field::tree(
    "read",
    Either(&[Words(&READ_WORDS), InTable(&PLACE)]),
    "Where a response reports its usage: the format of a provider, `auto` for any of them, or a table; `bytes` for those of the bodies.",
)
.required();

static READ_WORDS: [(&str, UsagePlace); 6] = [
    ("auto", UsagePlace::Format(Llm::any())),
    ("bytes", UsagePlace::Bytes),
    ("openai", UsagePlace::Format(Llm::openai())),
    ("responses", UsagePlace::Format(Llm::responses())),
    ("anthropic", UsagePlace::Format(Llm::anthropic())),
    ("gemini", UsagePlace::Format(Llm::gemini())),
];

static PLACE: Table = Table::new(
    "spend.read",
    "A place of a response where one number stands: the units that it used.",
    &[&JSON, &HEADER, &TRAILER],
)
.one_field();

static JSON: Field<Text> = Field::text(
    "json",
    "/usage/total_tokens",
    "A JSON pointer into the body, or into each event of a stream: the largest number counts.",
);

static HEADER: Field<Text> = Field::text("header", "x-cost", "A header of the response.");

static TRAILER: Field<Text> = Field::text("trailer", "x-cost", "A trailer of the response.");

static RESERVE: Field<Number> = Field::number(
    "reserve",
    0..=MAX_NUMBER,
    "The most tokens that a request reserves when it arrives; for `read: bytes` those of a body of unknown length. Default: 2048; for bytes 65536.",
);

static RESERVE_LEAST: Field<Number> = Field::number(
    "reserve_least",
    0..=MAX_NUMBER,
    "The fewest tokens that a request reserves, whatever it declares; at most `reserve`. Default: 256.",
);

static STEP: Field<Number> = Field::number(
    "step",
    1..=MAX_NUMBER,
    "The tokens of a further charge while the response passes. Default: 256; for bytes 65536.",
);

static EXHAUSTIONS: [(&str, Exhausted); 2] =
    [("finish", Exhausted::Finish), ("end", Exhausted::End)];

static EXHAUSTED: Field<OneOf<Exhausted>> = Field::one_of(
    "exhausted",
    &EXHAUSTIONS,
    "A response for which nothing is left: `finish` continues it, and the key owes; `end` ends it with an error. Default: finish.",
);

static TREATMENTS: [(&str, Missing); 3] = [
    ("estimate", Missing::Estimate),
    ("keep", Missing::Keep),
    ("give_back", Missing::GiveBack),
];

static MISSING: Field<OneOf<Missing>> = Field::one_of(
    "missing",
    &TREATMENTS,
    "The charge for a response without a report: the estimate of its text, all that is charged, or nothing. Default: estimate.",
);

static BODY: Field<Number> = Field::number(
    "body",
    0..=MAX_BODY,
    "The most bytes of a JSON request that are read for its reservation; 0 reads none. Default: 65536.",
);

/// The units that a quota counts: a word, or weights.
pub(super) static COUNTED: Shape = Either(&[Words(&COUNTS_WORDS), InTable(&WEIGHTS)]);

/// The words, with what each counts of a token; `None` for those that count something else.
static COUNTS_WORDS: [(&str, Option<TokenRates>); 10] = [
    ("requests", None),
    ("tokens", Some(TokenRates::of(1, 1))),
    ("uncached_tokens", Some(UNCACHED)),
    ("input_tokens", Some(TokenRates::of(1, 0))),
    ("output_tokens", Some(TokenRates::of(0, 1))),
    ("micro_usd", None),
    // The number at a place of the response that the rule names.
    ("units", Some(TokenRates::of(1, 1))),
    ("bytes", Some(TokenRates::of(1, 1))),
    ("request_bytes", Some(TokenRates::of(1, 0))),
    ("response_bytes", Some(TokenRates::of(0, 1))),
];

const UNCACHED: TokenRates = TokenRates {
    cached_input: 0,
    ..TokenRates::of(1, 1)
};

static WEIGHTS: Table = Table::new(
    "counts",
    "The units of a token by its kind.",
    &[&INPUT, &CACHED, &CACHE_WRITE, &OUTPUT, &MODEL],
);

static INPUT: Field<Number> = Field::number(
    "input",
    0..=MAX_WEIGHT,
    "The units of a token of input. Default: 0.",
);

static CACHED: Field<Number> = Field::number(
    "cached",
    0..=MAX_WEIGHT,
    "The units of a token of input that was read from a cache. Default: those of input.",
);

static CACHE_WRITE: Field<Number> = Field::number(
    "cache_write",
    0..=MAX_WEIGHT,
    "The units of a token of input that was written to a cache. Default: those of input.",
);

static OUTPUT: Field<Number> = Field::number(
    "output",
    0..=MAX_WEIGHT,
    "The units of a token of output. Default: 0.",
);

static MODEL: Field<Tree> = Field::tree(
    "model",
    Map(&AsNumber(0, MAX_WEIGHT)),
    "Factors of models, by a name with at most one `*`. The first that fits counts. Default: 1.",
);

/// The prices of a model, in dollars for a million tokens.
pub(super) static PRICE: Table = Table::new(
    "the price",
    "The prices of a model, in dollars for a million tokens.",
    &[
        &INPUT_PRICE,
        &CACHED_PRICE,
        &CACHE_WRITE_PRICE,
        &OUTPUT_PRICE,
    ],
);

static INPUT_PRICE: Field<Tree> = Field::tree("input", Decimal, "The price of input.").required();

static CACHED_PRICE: Field<Tree> = Field::tree(
    "cached",
    Decimal,
    "The price of input that was read from a cache. Default: that of input.",
);

static CACHE_WRITE_PRICE: Field<Tree> = Field::tree(
    "cache_write",
    Decimal,
    "The price of input that was written to a cache. Default: that of input.",
);

static OUTPUT_PRICE: Field<Tree> = Field::tree(
    "output",
    Decimal,
    "The price of output. Default: 0, as for embeddings.",
);

/// The bytes of a request that are read at most, by default.
const BODY_BYTES: u64 = 64 << 10;

impl<'c> Context<'c> {
    pub(super) fn prices(&mut self, node: &'c Node) -> Option<CountedUnits> {
        let mut prices = Vec::new();
        for entry in node.entries() {
            let pattern = self.model_pattern(entry.key.as_str(), &entry.key_span);
            let price = |field: &Field<Tree>| field.of(&entry.value).and_then(Node::thousandths);
            let (Some(pattern), Some(input)) = (pattern, price(&INPUT_PRICE)) else {
                continue;
            };
            // Dollars for a million tokens, in thousandths, are whole nano-dollars a token.
            let others = [&CACHED_PRICE, &CACHE_WRITE_PRICE, &OUTPUT_PRICE];
            let rates = rates(input, others.map(price));
            prices.push((pattern, rates));
        }
        if !prices.iter().any(|(pattern, _)| pattern.fits_all()) {
            let message = "`prices` without `\"*\"`, the price of all other models";
            self.report(ProblemCode::R14, &node.span, message);
            return None;
        }
        Some(CountedUnits::new("micro_usd", prices, 1_000))
    }

    fn model_pattern(&mut self, text: &str, span: &Span) -> Option<ModelPattern> {
        let pattern = ModelPattern::new(text);
        if pattern.is_none() {
            let message = format!("{text:?} is no model; accepted is a name with at most one `*`");
            self.report(ProblemCode::R14, span, message);
        }
        pattern
    }

    /// The units that a quota counts; `None` for requests, and after a fault.
    pub(super) fn counts(&mut self, node: &'c Node) -> Option<CountedUnits> {
        let Some(text) = node.text() else {
            return self.weights(node);
        };
        let (label, rates) = COUNTS_WORDS.iter().find(|(word, _)| *word == text)?;
        match (*label, rates) {
            ("micro_usd", _) => {
                if self.money.is_none() {
                    let message = "`counts: micro_usd` needs `prices` in the file";
                    self.report(ProblemCode::R14, &node.span, message);
                }
                self.money.clone()
            }
            (label, rates) => {
                let every = ModelPattern::new("*")?;
                Some(CountedUnits::new(label, [(every, (*rates)?)], 1))
            }
        }
    }

    /// Weights of the kinds of tokens, with factors of models.
    fn weights(&mut self, node: &'c Node) -> Option<CountedUnits> {
        let weight = |field: &Field<Number>| field.of(node);
        let others = [&CACHED, &CACHE_WRITE, &OUTPUT].map(weight);
        let rates = rates(weight(&INPUT).unwrap_or(0), others);
        let mut of_models = Vec::new();
        for entry in MODEL.entries(node) {
            let pattern = self.model_pattern(&entry.key, &entry.key_span);
            let factor = entry.value.number();
            of_models.extend(
                pattern
                    .zip(factor)
                    .map(|(of, factor)| (of, rates.times(factor))),
            );
        }
        if rates == TokenRates::of(0, 0) {
            let message =
                "weights of 0 count nothing; accepted is a table such as `{input: 1, output: 4}`";
            self.report(ProblemCode::R12, &node.span, message);
        }
        of_models.extend(ModelPattern::new("*").map(|every| (every, rates)));
        let mut digest = DefaultHasher::new();
        node.canonical().hash(&mut digest);
        let label = format!("weights-{:016x}", digest.finish());
        Some(CountedUnits::new(&label, of_models, 1))
    }

    /// The charges of a rule that follow the bodies of responses.
    pub(super) fn spend(
        &mut self,
        rule: &'c Node,
        allowance: &Allowance,
    ) -> Option<Box<SpendRule>> {
        let counts = allowance
            .sets()
            .iter()
            .any(|set| set.counted().any(|(_, units)| units.is_some()));
        let Some(node) = SPEND.of(rule) else {
            if counts {
                let message = "a quota with `counts` in a rule without `spend`, such as `spend: {read: auto}`";
                self.report(ProblemCode::R12, &rule.span, message);
            }
            return None;
        };
        if let Some(entry) = SPEND.entry(rule) {
            if !(self.setup.follows_bodies || self.setup.requests_only) {
                let message = "`spend` needs a program that follows the bodies of responses: \
                               `RulesBuilder::accept_spend` with `RulesLayer::holding`";
                self.report(ProblemCode::R02, &entry.key_span, message);
            }
            // A fault elsewhere may be why there is none.
            if !counts && self.report.faults() == 0 {
                let message = "`spend` in a rule without a quota that counts units: give one `counts`, such as \
                               `{rate: 100000/minute, counts: tokens}`";
                self.report(ProblemCode::R12, &entry.key_span, message);
            }
        }
        let read = self.usage_place(READ.of(node)?)?;
        let is_of_bytes = matches!(read, UsagePlace::Bytes);
        let default = SpendNumbers::new(is_of_bytes);
        let numbers = SpendNumbers {
            reserve: RESERVE.of(node).unwrap_or(default.reserve),
            reserve_least: RESERVE_LEAST.of(node).unwrap_or(default.reserve_least),
            step: STEP.of(node).unwrap_or(default.step),
            exhausted: EXHAUSTED.of(node).unwrap_or_default(),
            missing: MISSING.of(node).unwrap_or_default(),
        };
        let (least, reserve) = (numbers.reserve_least, numbers.reserve);
        if let (Some(_), Some(at)) = (RESERVE_LEAST.of(node), RESERVE_LEAST.node(node))
            && least > reserve
        {
            let message = format!(
                "`reserve_least` of {least} is more than the `reserve` of {reserve}; accepted is at most that"
            );
            self.report(ProblemCode::R01, &at.span, message);
        }
        let body = BODY.of(node);
        Some(Box::new(SpendRule {
            read,
            numbers,
            body: body.unwrap_or(if is_of_bytes { 0 } else { BODY_BYTES }),
        }))
    }

    fn usage_place(&mut self, node: &'c Node) -> Option<UsagePlace> {
        if let Some(text) = node.text() {
            let (_, place) = READ_WORDS.iter().find(|(word, _)| *word == text)?;
            return Some(place.clone());
        }
        if let Some(pointer) = JSON.of(node) {
            let read = Pointer::output(pointer).map_err(|error| error.to_string());
            let span = &JSON.node(node).unwrap_or(node).span;
            return self
                .value(ProblemCode::R13, span, read)
                .map(UsagePlace::Json);
        }
        let (field, of): (_, fn(HeaderName) -> UsagePlace) = match HEADER.of(node) {
            Some(_) => (&HEADER, UsagePlace::Header),
            None => (&TRAILER, UsagePlace::Trailer),
        };
        let name = header_name(field.of(node)?);
        let span = &field.node(node).unwrap_or(node).span;
        self.value(ProblemCode::R13, span, name).map(of)
    }
}

/// The units or the price of tokens by their kind. Without numbers of their own, those of a cache are those of input.
fn rates(input: u64, [cached, cache_write, output]: [Option<u64>; 3]) -> TokenRates {
    TokenRates {
        input,
        cached_input: cached.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
        output: output.unwrap_or(0),
    }
}

/// Warns about reservations that leave little to others, and about responses that end early.
pub(super) fn warn(rule: &Rule, node: &Node, context: &mut Context<'_>) {
    let Some(spend) = &rule.spend else {
        return;
    };
    let span = SPEND
        .entry(node)
        .map_or(&rule.span, |entry| &entry.key_span);
    let sets = rule.allowance.sets();
    let counted = sets.iter().flat_map(|set| set.counted());
    let reserved = |units: &CountedUnits| units.of(&Tokens::output(spend.numbers.reserve));
    let large = counted
        .filter_map(|(quota, units)| Some((quota, reserved(units?))))
        .find(|(quota, units)| *units > quota.quota().capacity() / 2);
    if let Some((quota, units)) = large {
        let message = format!(
            "a request may reserve {units} units, more than half of the {} that {:?} holds; set `reserve`",
            quota.quota().capacity(),
            quota.name().unwrap_or_default(),
        );
        context.report(ProblemCode::W24, span, message);
    }
    if spend.numbers.exhausted == Exhausted::End {
        let message = "`exhausted: end` ends responses with an error in the middle, which users take for a fault";
        context.report(ProblemCode::W25, span, message);
    }
}
