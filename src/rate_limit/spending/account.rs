//! The account of a stream: what it has used, what it is charged, and the receipts.

use std::{
    future::{Future as _, IntoFuture as _},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    thread,
};

use http::{HeaderMap, header::CONTENT_ENCODING, response};

use super::{
    body::{Meter, SpendExhausted, StreamEnd},
    handle::Spent,
    settings::{Exhausted, Missing, Spending},
};
use crate::{
    decision::{Decision, Op, Receipt},
    error::LimiterError,
    limiter::{Limiter, Pending, PendingFuture},
    observe::SpendSource,
    rate_limit::charge_reservation::{Reservation, SpentCharge, spawn},
    spend::SpendReader,
};

/// The receipts that a stream keeps: the newest, the reservation's included. Units of older ones are not refunded.
const RECEIPTS: usize = 4;

/// The account of a stream.
pub(super) struct Account<L: Limiter, R> {
    reservation: Box<Reservation<L, R>>,
    spending: Arc<Spending>,
    spent: Spent,
    /// `None` if nothing in the response can be read.
    reader: Option<Box<dyn SpendReader>>,
    has_reader: bool,
    is_error: bool,
    exhausted: Exhausted,
    /// The units used so far, and before the last frame.
    used: u64,
    used_before: u64,
    /// The units that were requested, also those beyond the debt.
    requested: u64,
    /// The units that decisions charged.
    charged: u64,
    /// The newest receipts of steps, the oldest first. Empty for most streams, which a reservation covers.
    receipts: Vec<Receipt>,
    question: Option<Question<L>>,
    /// The last error.
    error: Option<LimiterError>,
    is_denied: bool,
}

/// A charge that the limiter decides about.
struct Question<L: Limiter> {
    units: u64,
    answer: Pin<Box<PendingFuture<L::Future>>>,
}

impl<L: Limiter, R: Send + Sync + 'static> Account<L, R> {
    /// The account of the response with this head; `None` if the reservation follows no body.
    pub(super) fn open(
        mut reservation: Box<Reservation<L, R>>,
        head: &response::Parts,
    ) -> Option<Self> {
        let (spending, spent) = reservation.spending()?;
        let mut reader = None;
        spent.read(|tokens| reader = (spending.reader_of)(head, tokens), |_| ());
        let is_encoded = head.headers.contains_key(CONTENT_ENCODING);
        if reader.is_none() && is_encoded && !spent.so_far().is_reported() {
            reservation.report_unreadable();
        }
        let charged = reservation.charged();
        let exhausted = if reservation.is_shadow() || reservation.exceeds() {
            Exhausted::Finish
        } else {
            spending.exhausted
        };
        Some(Self {
            has_reader: reader.is_some(),
            reader,
            is_error: head.status.is_client_error() || head.status.is_server_error(),
            exhausted,
            used: 0,
            used_before: 0,
            requested: charged,
            charged,
            receipts: Vec::new(),
            question: None,
            error: None,
            is_denied: false,
            reservation,
            spending,
            spent,
        })
    }

    /// Requests a charge for what is used beyond all requests so far, and for half a step more.
    fn ask(&mut self) {
        let step = self.spending.step;
        let wanted = self.used.saturating_add(step.div_ceil(2));
        if self.question.is_some() || self.reservation.exceeds() || wanted <= self.requested {
            return;
        }
        let missing = wanted - self.requested;
        self.request(missing.div_ceil(step).saturating_mul(step));
    }

    fn request(&mut self, units: u64) {
        let op = match self.exhausted {
            Exhausted::End => Op::Reserve(units),
            Exhausted::Finish => Op::Spend(units),
        };
        match self.reservation.apply(op) {
            Pending::Ready(answer) => self.on_answer(units, answer),
            later @ Pending::Later(_) => {
                self.question = Some(Question {
                    units,
                    answer: Box::pin(later.into_future()),
                });
            }
        }
    }

    /// Takes the answer about a charge. One that failed may have been made: it is not repeated, and counts as made.
    fn on_answer(&mut self, units: u64, answer: Result<Decision, LimiterError>) {
        match answer {
            Ok(decision) if self.exhausted == Exhausted::End && decision.is_denied() => {
                // A part of the units may be enough for the frame that waits.
                let needed = self.used.saturating_sub(self.requested);
                if (1..units).contains(&needed) {
                    return self.request(needed);
                }
                self.is_denied = needed > 0;
            }
            Ok(decision) => {
                self.requested = self.requested.saturating_add(units);
                self.charged = self.charged.saturating_add(decision.charged());
                if decision.charged() > 0 {
                    self.keep(decision.receipt());
                }
            }
            Err(error) => {
                self.requested = self.requested.saturating_add(units);
                self.charged = self.charged.saturating_add(units);
                self.error = Some(error);
            }
        }
    }

    fn keep(&mut self, receipt: Receipt) {
        if self.receipts.len() == RECEIPTS {
            self.receipts.remove(0);
        }
        self.receipts.push(receipt);
    }

    /// Continues the question that is under way.
    fn poll_question(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(question) = &mut self.question {
            let answer = ready!(question.answer.as_mut().poll(cx));
            let units = question.units;
            self.question = None;
            self.on_answer(units, answer);
        }
        Poll::Ready(())
    }

    /// The units that the response has used, and how they are known.
    fn final_units(&mut self, end: StreamEnd) -> (u64, SpendSource) {
        let mut reader = self.reader.take();
        // A reader that panicked is in no state to be called, and a second panic would end the process.
        if thread::panicking() {
            return (self.used, SpendSource::Estimated);
        }
        let read = |tokens: &mut _| {
            if let Some(reader) = &mut reader {
                reader.end(tokens);
            }
        };
        let units = &self.spending.units;
        let ((units, is_reported), by_handler) = self
            .spent
            .read(read, |tokens| (units(tokens), tokens.is_reported()));
        if end == StreamEnd::Exhausted {
            return (self.used_before.min(units), SpendSource::Estimated);
        }
        match self.spending.missing {
            _ if by_handler => (units, SpendSource::Handler),
            _ if is_reported => (units, SpendSource::Reported),
            _ if self.is_error => (0, SpendSource::Missing),
            Missing::GiveBack if end == StreamEnd::Complete => (0, SpendSource::Missing),
            Missing::Estimate | Missing::GiveBack if self.has_reader => {
                (units, SpendSource::Estimated)
            }
            _ => (self.charged.max(units), SpendSource::Missing),
        }
    }

    /// Settles the account: charges what is missing, or refunds what is left over, of the newest receipts first.
    async fn settle(mut self: Box<Self>, end: StreamEnd) {
        if let Some(Question { units, answer }) = self.question.take() {
            let answer = answer.await;
            // Nothing waits for its units any more.
            self.exhausted = Exhausted::Finish;
            self.on_answer(units, answer);
        }
        let (units, source) = self.final_units(end);
        let mut last = None;
        if units > self.charged {
            let missing = units - self.charged;
            let op = if self.reservation.exceeds() {
                Op::Hit(missing)
            } else {
                Op::Spend(missing)
            };
            match self.reservation.apply(op).await {
                Ok(decision) => {
                    self.charged = self.charged.saturating_add(decision.charged());
                    last = Some(decision);
                }
                Err(error) => self.error = Some(error),
            }
        }
        let mut receipts = mem::take(&mut self.receipts);
        if receipts.len() < RECEIPTS {
            receipts.splice(..0, self.reservation.receipt());
        }
        while units < self.charged
            && let Some(receipt) = receipts.pop()
        {
            last = self.refund(self.charged - units, receipt).await.or(last);
        }
        self.end(units, source, last);
    }

    /// Refunds at most the charge of this receipt.
    async fn refund(&mut self, surplus: u64, receipt: Receipt) -> Option<Decision> {
        let charged = receipt.charged();
        let refunded = surplus.min(charged);
        let was_degraded = self.reservation.is_degraded();
        let settle = Op::Settle(charged - refunded, receipt);
        match self.reservation.apply(settle).await {
            // The fallback has answered, which cannot refund a charge of the store.
            Ok(decision) if decision.is_degraded() && !was_degraded => {
                let fault = "the store did not answer, so its charge was not refunded";
                self.error = Some(LimiterError::unavailable(fault));
            }
            Ok(decision) => {
                self.charged -= refunded;
                return Some(decision);
            }
            Err(error) => self.error = Some(error),
        }
        None
    }

    /// Reports the account, and charges what a handler adds from now on.
    fn end(self, units: u64, source: SpendSource, decision: Option<Decision>) {
        let Self {
            reservation,
            spending,
            spent,
            charged,
            error,
            ..
        } = self;
        let late = spent.is_shared().then(|| reservation.late_charge());
        // The response has passed, even if it used more than was left.
        let passed = decision.map(|decision| {
            if decision.is_denied() {
                decision.into_excess()
            } else {
                decision
            }
        });
        reservation.close(&SpentCharge {
            decision: passed,
            after: charged,
            source,
            forgotten: units.saturating_sub(charged),
            error,
        });
        if let Some(late) = late {
            spent.end(Arc::new(move |tokens| late((spending.units)(tokens))));
        }
    }
}

impl<L: Limiter, R: Send + Sync + 'static> Meter for Account<L, R> {
    fn data(&mut self, data: &[u8]) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        self.spent.read(|tokens| reader.data(data, tokens), |_| ());
    }

    fn charge(&mut self) {
        let units = &self.spending.units;
        let (used, _) = self.spent.read(|_| {}, |tokens| units(tokens));
        self.used_before = mem::replace(&mut self.used, used);
        // Without a reader, and without a report of the handler, no step is charged.
        self.ask();
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        if let Some(reader) = &mut self.reader {
            self.spent
                .read(|tokens| reader.trailers(trailers, tokens), |_| ());
        }
    }

    fn poll_charged(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SpendExhausted>> {
        loop {
            let polled = self.poll_question(cx);
            let is_charged = self.exhausted == Exhausted::Finish || self.used <= self.requested;
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

    fn close(self: Box<Self>, end: StreamEnd) {
        let mut settling = Box::pin(self.settle(end));
        let mut cx = Context::from_waker(Waker::noop());
        if settling.as_mut().poll(&mut cx).is_pending() {
            spawn(settling);
        }
    }
}
