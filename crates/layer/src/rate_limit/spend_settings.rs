//! The settings of charges that follow the bodies of responses, and what they reserve for a request.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{request, response};

use super::settings::{BodyCharges, UnitLimit};
use crate::spend::{Bytes, Declared, SpendReader, SpendReaders, content_length};
use tower_ratelimit_core::{
    limiter::call::{Charge, OpRef},
    log::{self, Code},
    token_usage::Tokens,
};

/// The output that is reserved for a choice of a request that declares none.
const OUTPUT: u64 = 1_024;

/// The bytes that are reserved for a body of unknown length, and those of a further charge.
const BYTES: u64 = 64 << 10;

/// The treatment of a stream when no units are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Exhausted {
    /// The stream continues. Its units are owed, up to the quota's [debt](tower_ratelimit_core::Quota::debt).
    #[default]
    Finish,
    /// The stream ends with an error in place of the first frame that finds nothing left. Frames wait until they are
    /// charged. Clients take the end for a fault of the server.
    End,
}

/// The charge for a response that ends without a report of its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missing {
    /// The estimate of its text. If nothing in the response can be read, all units stay charged.
    #[default]
    Estimate,
    /// All units stay charged.
    Keep,
    /// All units are refunded. A body that breaks off is charged by the estimate, since a client could break it off.
    GiveBack,
}

/// [`SpendReaders`], without the type of their readers.
pub(super) trait BoxedReaders: Send + Sync {
    /// The reader of a response; `None` if nothing in it can be read.
    fn reader(&self, head: &response::Parts, tokens: &mut Tokens) -> Option<Box<dyn SpendReader>>;

    fn max_output(&self, declared: &Declared, request: &request::Parts) -> Option<u64>;
}

impl<T: SpendReaders> BoxedReaders for T {
    fn reader(&self, head: &response::Parts, tokens: &mut Tokens) -> Option<Box<dyn SpendReader>> {
        Some(Box::new(SpendReaders::reader(self, head, tokens)?))
    }

    fn max_output(&self, declared: &Declared, request: &request::Parts) -> Option<u64> {
        SpendReaders::max_output(self, declared, request)
    }
}

/// The sizes of reservations and steps, and the treatment of responses that use up their units or report none.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::exhaustive_structs, reason = "hidden")]
#[doc(hidden)]
pub struct SpendNumbers {
    /// The most tokens that a request reserves.
    pub reserve: u64,
    /// The fewest tokens that a request reserves, whatever it declares; at most `reserve`.
    pub reserve_least: u64,
    /// The tokens of a further charge.
    pub step: u64,
    pub exhausted: Exhausted,
    pub missing: Missing,
}

impl SpendNumbers {
    /// Those without settings, of the tokens of responses or of `bytes`.
    pub fn new(bytes: bool) -> Self {
        let (reserve, step) = if bytes { (BYTES, BYTES) } else { (2_048, 256) };
        Self {
            reserve,
            reserve_least: 256,
            step,
            exhausted: Exhausted::default(),
            missing: Missing::default(),
        }
    }
}

/// The settings of a layer whose charges follow the response's body.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "hidden")]
#[doc(hidden)]
pub struct Spending {
    pub(super) readers: Arc<dyn BoxedReaders>,
    /// The bodies whose bytes are charged, if nothing else is.
    pub(super) bytes: Option<Bytes>,
    /// The limits in their order; `None` for one that responses do not charge.
    pub(super) limits: Arc<[Option<UnitLimit>]>,
    pub numbers: SpendNumbers,
    /// Whether [`report_large`](Self::report_large) has logged, of all copies of the layer.
    has_reported: Arc<AtomicBool>,
}

impl Spending {
    #[doc(hidden)]
    pub fn new(readers: impl SpendReaders, limits: Arc<[Option<UnitLimit>]>) -> Self {
        let bytes = readers.bytes();
        Self {
            readers: Arc::new(readers),
            bytes,
            limits,
            numbers: SpendNumbers::new(bytes.is_some()),
            has_reported: Arc::default(),
        }
    }

    /// Logs a limit that holds less than two reservations: requests are denied at it while units are left.
    pub(super) fn report_large(&self) {
        if self.has_reported.load(Ordering::Relaxed) {
            return;
        }
        let large = self.limits.iter().flatten().find_map(|limit| {
            let units = (limit.units)(&Tokens::output(self.numbers.reserve));
            (units > limit.capacity / 2).then_some((units, limit.capacity))
        });
        let Some((units, holds)) = large else {
            return;
        };
        if !self.has_reported.swap(true, Ordering::Relaxed) {
            let text = format!(
                "a request may reserve {units} units, more than half of the {holds} that the limit holds, so that others are \
                 denied while units are left; set `.reserve(..)` to what a response usually takes"
            );
            log::report(Code::SPEND_RESERVATION, &text);
        }
    }

    /// The tokens of a request before its response: its body, whose length counts, for the model that it declares.
    pub(super) fn declared(&self, parts: &request::Parts) -> Tokens {
        if let Some(bytes) = self.bytes {
            return bytes.declared(parts, self.numbers.reserve);
        }
        let declared = parts.extensions.get::<Declared>();
        let length = content_length(&parts.headers);
        let length = length.or_else(|| Some(declared?.bytes));
        let mut tokens = Tokens::default();
        tokens.estimate_input(length.unwrap_or(0));
        if let Some(model) = declared.and_then(Declared::model) {
            tokens.set_model(model);
        }
        tokens
    }

    fn reserved(&self, parts: &request::Parts) -> Tokens {
        let mut tokens = self.declared(parts);
        let SpendNumbers {
            reserve,
            reserve_least,
            ..
        } = self.numbers;
        if let Some(bytes) = self.bytes {
            let output = if bytes.of_response { reserve } else { 0 };
            tokens.add(&Tokens::output(output));
            return tokens;
        }
        tokens.input = tokens.input.min(reserve);
        let declared = parts.extensions.get::<Declared>();
        let output = declared.map_or(OUTPUT, |declared| {
            declared.output_of(self.readers.max_output(declared, parts), OUTPUT)
        });
        // Clients choose what they declare.
        let least = reserve_least.min(reserve);
        let output = output.max(least.saturating_sub(tokens.input));
        tokens.add(&Tokens::output(output.min(reserve - tokens.input)));
        tokens
    }

    /// # Panics
    ///
    /// When the charges are of another type, which no layer makes.
    pub(super) fn of(charges: &Arc<dyn BodyCharges>) -> Arc<Self> {
        let charges: Arc<dyn Any + Send + Sync> = Arc::clone(charges) as _;
        charges.downcast().expect("the one type of such charges")
    }
}

impl BodyCharges for Spending {
    fn reserve(&self, charges: &mut [Charge<'_>], capacities: &[u64], request: &request::Parts) {
        let tokens = self.reserved(request);
        for (at, charge) in charges.iter_mut().enumerate() {
            let Some(limit) = &self.limits[charge.index()] else {
                continue;
            };
            let capacity = capacities.get(at).copied().unwrap_or(u64::MAX);
            let units = limit.reservation(&tokens).min(capacity).max(1);
            charge.op = match charge.op {
                OpRef::Reserve(_) => OpRef::Reserve(units),
                _ => OpRef::Acquire(units),
            };
        }
    }
}
