//! The bill of a stream: its balance at each limit, the charges while it passes, and the settlement at its end.

use std::{
    future::{Future as _, IntoFuture as _},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use http::{HeaderMap, StatusCode, header::CONTENT_ENCODING, response};

use super::{
    body::{BillEnd, SpendExhausted, StreamBill, StreamEnd},
    handle::Spent,
    settings::{Exhausted, Missing, Spending},
};
use crate::{
    observe::SpendSource,
    rate_limit::{
        admission::Unreadable,
        reservation::{LimitOp, OpsOfEach, Reservation, SpentCharge},
    },
    spend::SpendReader,
};
use tower_ratelimit_core::{
    decision::{Decision, Op, Receipt, receipts_of_each},
    error::LimiterError,
    limiter::{Limiter, Pending, PendingFuture, UnitsOf},
    small_list::SmallList,
    tokens::Tokens,
};

pub(super) struct Bill<L: Limiter, R> {
    reservation: Box<Reservation<L, R>>,
    spending: Arc<Spending>,
    spent: Spent,
    /// `None` if nothing in the response can be read.
    reader: Option<Box<dyn SpendReader>>,
    /// Whether it was logged that the response is encoded.
    is_encoded: bool,
    is_error: bool,
    /// Whether the connection was upgraded: what it uses passes outside of the body.
    is_upgrade: bool,
    exhausted: Exhausted,
    balances: SmallList<Balance, 1>,
    question: Option<Pin<Box<PendingFuture<L::Future>>>>,
    error: Option<Arc<LimiterError>>,
    is_denied: bool,
}

impl<L: Limiter, R: Send + Sync + 'static> Bill<L, R> {
    /// The bill of the response with this head, whose body declares its `length`; `None` if the reservation follows no
    /// body.
    pub(super) fn open(
        mut reservation: Box<Reservation<L, R>>,
        head: &response::Parts,
        length: Option<u64>,
    ) -> Option<Self> {
        let (spending, spent) = reservation.spending()?;
        let mut reader = None;
        spent.read(|tokens| reader = spending.readers.reader(head, tokens));
        let is_encoded = reader.is_none() && head.headers.contains_key(CONTENT_ENCODING);
        if is_encoded && !spent.so_far().is_reported() {
            reservation.report_unreadable(Unreadable::Encoded);
        }
        let exhausted = if reservation.is_shadow() || reservation.exceeds() {
            Exhausted::Finish
        } else {
            spending.exhausted
        };
        let mut balances = SmallList::default();
        for (at, (place, charged)) in reservation.charges().enumerate() {
            let limit = spending.limits[place].as_ref().map(|limit| &limit.units);
            let mut balance = Balance::new(limit.cloned(), charged, reservation.excess(at));
            balance.counted = match reservation.counts(place, head.status) {
                None => CountByStatus::Always,
                // Nothing was charged that could be kept.
                Some(counts) if !counts || charged == 0 => CountByStatus::Not,
                Some(_) => CountByStatus::Counts,
            };
            balances.push(balance);
        }
        let mut bill = Self {
            reader,
            is_encoded,
            is_upgrade: head.status == StatusCode::SWITCHING_PROTOCOLS,
            is_error: head.status.as_u16() >= 400,
            exhausted,
            balances,
            question: None,
            error: None,
            is_denied: false,
            reservation,
            spending,
            spent,
        };
        if let Some(length) = length {
            bill.reserve_length(length);
        }
        Some(bill)
    }

    /// Requests a charge of the whole body, where its bytes are charged.
    fn reserve_length(&mut self, length: u64) {
        let counts = self.spending.bytes.is_some_and(|bytes| bytes.of_response);
        if !counts || self.reservation.exceeds() {
            return;
        }
        let mut whole = self.spent.so_far();
        whole.add(&Tokens::output(length));
        let balances = self.balances.as_mut_slice().iter_mut();
        if balances.fold(false, |any, limit| limit.prepare_whole(&whole) | any) {
            self.request();
        }
    }

    /// Requests a charge of the limits whose requested units the response comes near.
    fn ask(&mut self) {
        if self.question.is_some() || self.reservation.exceeds() {
            return;
        }
        let (step, balances) = (self.spending.step, self.balances.as_mut_slice());
        let tokens = self.spent.so_far();
        let prepared = balances.iter_mut();
        let is_near = prepared.fold(false, |any, limit| limit.prepare_step(step, &tokens) | any);
        if is_near {
            self.request();
        }
    }

    fn request(&mut self) {
        let op = match self.exhausted {
            Exhausted::End => Op::Reserve,
            Exhausted::Finish => Op::Spend,
        };
        let balances = self.balances.as_slice().iter();
        let ops = OpsOfEach::from_iter(balances.map(|limit| limit.step(op)));
        match self.reservation.apply(&ops) {
            Pending::Ready(answer) => self.on_answer(answer),
            later @ Pending::Later(_) => self.question = Some(Box::pin(later.into_future())),
        }
    }

    /// Takes the answer about the charges that were prepared.
    fn on_answer(&mut self, answer: Result<Decision, LimiterError>) {
        let balances = self.balances.as_mut_slice();
        match answer {
            Ok(decision) if self.exhausted == Exhausted::End && decision.is_denied() => {
                // A part of the units may be enough for the frame that waits.
                let reduced = balances.iter_mut();
                let is_less = reduced.fold(false, |any, limit| limit.reduce_step() | any);
                let is_needed = balances.iter().any(|limit| limit.needed() > 0);
                if is_less && is_needed {
                    return self.request();
                }
                self.is_denied = is_needed;
            }
            answer => {
                let mut receipts = receipts_of_each(&answer, balances.len());
                for (balance, receipt) in balances.iter_mut().zip(receipts.as_mut_slice()) {
                    match receipt.take() {
                        Some(receipt) => balance.on_step(receipt.charged(), Some(receipt)),
                        // The charge may have been made: it is not repeated, and counts as made.
                        None => balance.on_step(balance.pending, None),
                    }
                }
                self.note(answer);
            }
        }
    }

    fn poll_question(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Taken, so that the end does not poll one again that panicked.
        while let Some(mut question) = self.question.take() {
            let Poll::Ready(answer) = question.as_mut().poll(cx) else {
                self.question = Some(question);
                return Poll::Pending;
            };
            self.on_answer(answer);
        }
        Poll::Ready(())
    }

    /// Ends the balances by what the response has used. Returns how it is known.
    fn end_balances(&mut self, end: StreamEnd) -> SpendSource {
        let mut reader = self.reader.take();
        // A reader that panicked is in no state to be called, and a second panic would end the process.
        let is_panicking = thread::panicking();
        if let Some(reader) = reader.as_mut().filter(|_| !is_panicking) {
            self.spent.read(|tokens| reader.end(tokens));
        }
        let (tokens, by_handler) = self.spent.settle();
        if is_panicking {
            return SpendSource::Estimated;
        }
        let is_reported = tokens.is_reported();
        let is_recognised = reader.is_some_and(|reader| reader.has_recognised());
        let is_complete = end == StreamEnd::Complete;
        let is_known = is_recognised || is_reported || by_handler || self.is_error;
        if is_complete && !is_known && !self.is_encoded && !self.is_upgrade {
            self.reservation.report_unreadable(Unreadable::Unrecognised);
        }
        let (ending, source) = match self.spending.missing {
            _ if end == StreamEnd::Exhausted => (Ending::UsedBefore, SpendSource::Estimated),
            _ if by_handler => (Ending::Used, SpendSource::Handler),
            _ if is_reported => (Ending::Used, SpendSource::Reported),
            _ if self.is_upgrade => (Ending::Kept, SpendSource::Missing),
            _ if self.is_error => (Ending::Nothing, SpendSource::Missing),
            Missing::GiveBack if is_complete => (Ending::Nothing, SpendSource::Missing),
            Missing::Estimate | Missing::GiveBack if is_recognised => {
                (Ending::Used, SpendSource::Estimated)
            }
            _ => (Ending::Kept, SpendSource::Missing),
        };
        for balance in self.balances.as_mut_slice() {
            balance.end(ending, &tokens);
        }
        source
    }

    /// Settles the bill: charges what is missing, and refunds what is left over, of the newest receipts first.
    async fn settle_bill(mut self: Box<Self>, end: StreamEnd) {
        if let Some(question) = self.question.take() {
            let answer = question.await;
            // Nothing waits for its units any more.
            self.exhausted = Exhausted::Finish;
            self.on_answer(answer);
        }
        let source = self.end_balances(end);
        if let Some(receipt) = self.reservation.receipt() {
            let balances = self.balances.as_mut_slice().iter_mut();
            for (balance, receipt) in balances.zip(receipt.each()) {
                if balance.receipts.len() < RECEIPTS && receipt.charged() > 0 {
                    balance.receipts.insert(0, receipt.clone());
                }
            }
        }
        let mut last = None;
        while let Some(corrections) = self.corrections() {
            last = self.correct(&corrections).await.or(last);
        }
        self.end(source, last);
    }

    /// The next operations that correct the charges; `None` if nothing is left to correct.
    fn corrections(&mut self) -> Option<OpsOfEach> {
        let charge = if self.reservation.exceeds() {
            Op::Hit
        } else {
            Op::Spend
        };
        let balances = self.balances.as_mut_slice().iter_mut();
        let next = OpsOfEach::from_iter(balances.map(|limit| limit.correction(charge)));
        let is_done = next.as_slice().iter().all(LimitOp::is_none);
        (!is_done).then_some(next)
    }

    async fn correct(&mut self, corrections: &OpsOfEach) -> Option<Decision> {
        let answer = self.reservation.apply(corrections).await;
        let balances = self.balances.as_mut_slice();
        let receipts = receipts_of_each(&answer, balances.len());
        let answers = balances.iter_mut().zip(corrections.as_slice());
        for ((balance, correction), receipt) in answers.zip(receipts.as_slice()) {
            match receipt {
                // The fallback has answered, which cannot refund a charge of the store.
                Some(receipt) if receipt.is_degraded() && correction.refunds_store() => {
                    balance.on_unconfirmed_refund(correction.refunded);
                    let fault = "the store did not respond, so its charge was not refunded";
                    self.error = Some(LimiterError::unavailable(fault).into());
                }
                Some(receipt) => {
                    let charged = balance.charged.saturating_add(receipt.charged());
                    balance.charged = charged - correction.refunded;
                }
                None => balance.on_unconfirmed_refund(correction.refunded),
            }
        }
        self.note(answer)
    }

    /// Keeps the error of an answer, also that of one of several limits.
    fn note(&mut self, answer: Result<Decision, LimiterError>) -> Option<Decision> {
        let error = match &answer {
            Ok(decision) => decision.error().cloned(),
            Err(_) => None,
        };
        self.error = error.or(self.error.take());
        answer.map_err(|error| self.error = Some(error.into())).ok()
    }

    /// Reports the bill, and charges what a handler adds from now on.
    fn end(mut self, source: SpendSource, decision: Option<Decision>) {
        // The response has passed, even if it used more than was left.
        let passed = decision.map(|decision| {
            if decision.is_denied() {
                decision.into_excess()
            } else {
                decision
            }
        });
        let limits = self.balances.as_slice().iter();
        let late = self
            .spent
            .has_late_tokens()
            .then(|| self.reservation.late_charge());
        self.reservation.close(&SpentCharge {
            decision: passed,
            after: limits.clone().map(|limit| limit.charged).collect(),
            source,
            forgotten: limits.map(Balance::forgotten).collect(),
            error: self.error,
        });
        if let Some(late) = late {
            let balances = self.balances;
            self.spent.end(move |tokens| {
                let limits = balances.as_slice().iter();
                late(&OpsOfEach::from_iter(
                    limits.map(|limit| limit.late_charge(tokens)),
                ));
            });
        }
    }
}

impl<L: Limiter, R: Send + Sync + 'static> StreamBill for Bill<L, R> {
    fn data(&mut self, data: &[u8]) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        self.spent.read(|tokens| reader.data(data, tokens));
    }

    fn lose(&mut self, bytes: usize) {
        match self.spending.bytes {
            Some(counted) if counted.of_response => {
                let lost = Tokens::output(bytes as u64);
                self.spent.read(|tokens| tokens.add(&lost));
            }
            _ => self.reader = None,
        }
    }

    fn charge(&mut self) {
        let tokens = self.spent.so_far();
        let balances = self.balances.as_mut_slice().iter_mut();
        balances.for_each(|limit| limit.advance(&tokens));
        // Without a reader, and without a report of the handler, no step is charged.
        self.ask();
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        if let Some(reader) = &mut self.reader {
            self.spent.read(|tokens| reader.trailers(trailers, tokens));
        }
    }

    fn poll_charged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SpendExhausted>> {
        loop {
            let polled = self.poll_question(cx);
            let needed = self.balances.as_slice().iter().map(Balance::needed);
            let is_charged = self.exhausted == Exhausted::Finish || needed.max() == Some(0);
            if self.is_denied && !is_charged {
                return Poll::Ready(Err(SpendExhausted::new()));
            }
            if is_charged {
                return Poll::Ready(Ok(()));
            }
            ready!(polled);
            self.ask();
        }
    }

    fn settle(self: Box<Self>, end: StreamEnd) -> BillEnd {
        Box::pin(self.settle_bill(end))
    }
}

/// The receipts that a stream keeps: the newest, the reservation's included. Units of older ones are not refunded.
const RECEIPTS: usize = 4;

/// The balance of a stream at one limit. A limit that responses do not charge has used what it was charged.
#[derive(Default)]
struct Balance {
    /// `None` if responses do not charge the limit.
    units: Option<UnitsOf>,
    /// The units used so far, and before the last frame.
    used: u64,
    used_before: u64,
    /// The units that were requested, also those beyond the debt.
    requested: u64,
    charged: u64,
    /// The units whose answer is open: of the question under way, and after the end of refunds whose answers are lost,
    /// which may have been made and are not repeated. One field, since a stream takes little memory.
    pending: u64,
    /// The newest receipts of steps, the oldest first. Empty for most streams, which a reservation covers.
    receipts: Vec<Receipt>,
    /// Whether what is missing at the end was requested.
    is_completed: bool,
    /// The part of `count_if`, by the head of the response.
    counted: CountByStatus,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum CountByStatus {
    #[default]
    Always,
    /// It counts, and a limiter with blocks gets it.
    Counts,
    Not,
}

/// The charge of a response that has ended, by what is known about it.
#[derive(Clone, Copy)]
enum Ending {
    /// The units of its tokens.
    Used,
    /// The units without its last frame.
    UsedBefore,
    Nothing,
    /// The units that are charged, or those of its tokens if they are more.
    Kept,
}

impl Balance {
    /// The balance after a reservation that charged so many units. `uncharged` are the units that a limit was not
    /// charged which responses do not charge.
    fn new(units: Option<UnitsOf>, charged: u64, uncharged: u64) -> Self {
        let is_spent = units.is_some();
        let used = if is_spent {
            0
        } else {
            charged.saturating_add(uncharged)
        };
        Self {
            units,
            used,
            requested: charged,
            charged,
            ..Self::default()
        }
    }

    /// The units that are used and not charged; `None` if responses do not charge the limit.
    fn forgotten(&self) -> Option<u64> {
        let is_spent = self.units.is_some();
        is_spent.then(|| self.used.saturating_sub(self.charged))
    }

    fn counted_units(&self) -> Option<&UnitsOf> {
        self.units
            .as_ref()
            .filter(|_| self.counted != CountByStatus::Not)
    }

    /// Takes the tokens that the response has used so far.
    fn advance(&mut self, tokens: &Tokens) {
        if let Some(units) = self.counted_units() {
            let used = units(tokens);
            self.used_before = mem::replace(&mut self.used, used);
        }
    }

    /// The units that are used and not requested.
    const fn needed(&self) -> u64 {
        match self.units {
            Some(_) => self.used.saturating_sub(self.requested),
            None => 0,
        }
    }

    /// Prepares a charge for what is used beyond all requests so far and for half a step more, in steps of so many
    /// tokens. Returns whether it charges anything.
    fn prepare_step(&mut self, tokens: u64, so_far: &Tokens) -> bool {
        self.pending = 0;
        if let Some(units) = self.counted_units() {
            let step = units(&so_far.output_of_model(tokens)).max(1);
            let wanted = self.used.saturating_add(step.div_ceil(2));
            let missing = wanted.saturating_sub(self.requested);
            self.pending = missing.div_ceil(step).saturating_mul(step);
        }
        self.pending > 0
    }

    /// Prepares a charge for a response that will have used these tokens. Returns whether it charges anything.
    fn prepare_whole(&mut self, whole: &Tokens) -> bool {
        let units = self.counted_units().map_or(0, |units| units(whole));
        self.pending = units.saturating_sub(self.requested);
        self.pending > 0
    }

    /// Prepares a charge for what is needed, which is less than a charge that was denied. Returns whether it is.
    const fn reduce_step(&mut self) -> bool {
        let needed = self.needed();
        let is_less = needed < self.pending;
        self.pending = needed;
        is_less
    }

    fn step(&self, op: fn(u64) -> Op) -> LimitOp {
        match self.pending {
            0 => LimitOp::default(),
            units => LimitOp::charge(op(units)),
        }
    }

    fn on_step(&mut self, charged: u64, receipt: Option<Receipt>) {
        self.requested = self.requested.saturating_add(self.pending);
        self.pending = 0;
        self.charged = self.charged.saturating_add(charged);
        if let Some(receipt) = receipt.filter(|_| charged > 0) {
            if self.receipts.len() == RECEIPTS {
                self.receipts.remove(0);
            }
            self.receipts.push(receipt);
        }
    }

    /// Takes the final units of a response with these tokens.
    fn end(&mut self, ending: Ending, tokens: &Tokens) {
        self.pending = 0;
        if self.counted == CountByStatus::Not {
            self.used = 0;
            return;
        }
        let Some(units) = &self.units else {
            return;
        };
        let units = units(tokens);
        self.used = match ending {
            Ending::Used => units,
            Ending::UsedBefore => self.used_before.min(units),
            Ending::Nothing => 0,
            Ending::Kept => self.charged.max(units),
        };
    }

    /// The next correction of the charge: of the missing units by `charge`, once, or a refund of the newest charge.
    fn correction(&mut self, charge: fn(u64) -> Op) -> LimitOp {
        let missing = self.used.saturating_sub(self.charged);
        if missing > 0 && !mem::replace(&mut self.is_completed, true) {
            return LimitOp::charge(charge(missing));
        }
        let refunded = self.used.saturating_add(self.pending);
        let surplus = self.charged.saturating_sub(refunded);
        let confirms = self.units.is_none() && self.counted == CountByStatus::Counts;
        match self.receipts.pop() {
            Some(receipt) if surplus > 0 || confirms => {
                let refunded = surplus.min(receipt.charged());
                LimitOp {
                    op: Op::Settle(receipt.charged() - refunded, receipt),
                    refunded,
                }
            }
            _ => LimitOp::default(),
        }
    }

    /// Takes a refund whose answer is lost.
    const fn on_unconfirmed_refund(&mut self, refunded: u64) {
        self.pending = self.pending.saturating_add(refunded);
    }

    fn late_charge(&self, tokens: &Tokens) -> LimitOp {
        match self.counted_units() {
            Some(units) => LimitOp::charge(Op::Spend(units(tokens))),
            None => LimitOp::default(),
        }
    }
}
