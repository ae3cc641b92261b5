//! The fields `spend`, `counts` and `prices`.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroU64,
};

use http::HeaderName;
use tower_ratelimit_rulefile::{
    ProblemCode, Span,
    document::Node,
    fields::{Field, Number, Tree},
};

use super::context::Context;
use crate::{
    fields::{
        parsers,
        quota::COUNTS,
        rule::{BLOCK_FOR, MODE, SPEND},
        spend::{
            BODY, CACHE_WRITE, CACHE_WRITE_PRICE, CACHED, CACHED_PRICE, COUNTS_WORDS, EXHAUSTED,
            HEADER, INPUT, INPUT_PRICE, JSON, MISSING, MODEL, OUTPUT, OUTPUT_PRICE, READ,
            READ_WORDS, RESERVE, RESERVE_LEAST, STEP, TRAILER,
        },
    },
    rule::Rule,
    rule_quotas::Allowance,
    spend::{CountedUnits, SpendRule, UsagePlace},
};
use tower_ratelimit_budgets::{
    llm::Pointer,
    prices::{ModelPattern, TokenRates},
};
use tower_ratelimit_core::tokens::Tokens;
use tower_ratelimit_layer::rate_limit::{Exhausted, Missing};

/// The tokens that a request reserves at most, and those of a step, by default.
const RESERVE_TOKENS: u64 = 2_048;
const STEP_TOKENS: u64 = 256;

/// The bytes that a body of unknown length reserves, and those of a step, by default.
const BYTES: u64 = 64 << 10;

/// The tokens that a request reserves at least, by default.
const RESERVE_LEAST_TOKENS: u64 = 256;

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
    pub(super) fn counts(&mut self, quota: &'c Node) -> Option<CountedUnits> {
        let node = COUNTS.of(quota)?;
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
            let sets = allowance.sets();
            let mut quotas = sets.iter().flat_map(|set| set.quotas());
            let debt = quotas.find_map(|quota| NonZeroU64::new(quota.quota().debt_units()));
            if let (Some(debt), Some(entry)) = (debt, BLOCK_FOR.entry(rule)) {
                let message = format!(
                    "`block_for` with a quota of `debt` {debt}: a rule that blocks denies keys and lets none \
                     owe units; leave one of both out"
                );
                self.report(ProblemCode::R04, &entry.key_span, message);
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
        if let Some(entry) = BLOCK_FOR.entry(rule) {
            let message = "`block_for` beside `spend`: a rule that blocks denies keys and lets none owe units; \
                           leave one of both out";
            self.report(ProblemCode::R15, &entry.key_span, message);
        }
        if let Some(entry) = MODE.entry(rule).filter(|_| MODE.of(rule) == Some(true)) {
            let message = "`mode: shadow` beside `spend`: a shadow follows no body; try the limits with a rate that \
                           denies nobody";
            self.report(ProblemCode::R15, &entry.key_span, message);
        }
        let read = self.usage_place(READ.of(node)?)?;
        let (reserve, step, body) = match read {
            UsagePlace::Bytes => (BYTES, BYTES, 0),
            _ => (RESERVE_TOKENS, STEP_TOKENS, BODY_BYTES),
        };
        let reserve = RESERVE.of(node).unwrap_or(reserve);
        Some(Box::new(SpendRule {
            read,
            reserve,
            reserve_least: self.reserve_least(node, reserve),
            step: STEP.of(node).unwrap_or(step),
            exhausted: EXHAUSTED.of(node).unwrap_or(Exhausted::Finish),
            missing: MISSING.of(node).unwrap_or(Missing::Estimate),
            body: BODY.of(node).unwrap_or(body),
        }))
    }

    /// The fewest tokens that a request reserves, of at most so many.
    fn reserve_least(&mut self, spend: &Node, reserve: u64) -> u64 {
        let Some(least) = RESERVE_LEAST.of(spend) else {
            return RESERVE_LEAST_TOKENS.min(reserve);
        };
        if least > reserve {
            let span = &RESERVE_LEAST.node(spend).unwrap_or(spend).span;
            let message = format!(
                "`reserve_least` of {least} is more than the `reserve` of {reserve}; accepted is at most that"
            );
            self.report(ProblemCode::R01, span, message);
        }
        least
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
        let name = parsers::header_name(field.of(node)?);
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
    let reserved = |units: &CountedUnits| units.of(&Tokens::output(spend.reserve));
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
    if spend.exhausted == Exhausted::End {
        let message = "`exhausted: end` ends responses with an error in the middle, which users take for a fault";
        context.report(ProblemCode::W25, span, message);
    }
}
