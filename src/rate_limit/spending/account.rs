//! The account of a stream: the charges while it passes, and the settlement at its end.

use std::{
    future::{Future as _, IntoFuture as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use http::{HeaderMap, StatusCode, header::CONTENT_ENCODING, response};

use super::{
    balance::{Balance, Ending},
    body::{AccountEnd, Meter, SpendExhausted, StreamEnd},
    handle::Spent,
    settings::{Exhausted, Missing, Spending},
};
use crate::{
    decision::{Decision, Op, receipts_of_each},
    error::LimiterError,
    limiter::{Limiter, Pending, PendingFuture},
    observe::SpendSource,
    rate_limit::{
        charge_reservation::{Reservation, SpentCharge},
        limit_op::{LimitOp, OpsOfEach},
        warnings::Unreadable,
    },
    small_list::SmallList,
    spend::SpendReader,
};

/// The account of a stream.
pub(super) struct Account<L: Limiter, R> {
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
    /// The balances at the limits that the request has a key for.
    balances: SmallList<Balance, 1>,
    question: Option<Pin<Box<PendingFuture<L::Future>>>>,
    /// The last error.
    error: Option<Box<LimiterError>>,
    is_denied: bool,
}

impl<L: Limiter, R: Send + Sync + 'static> Account<L, R> {
    /// The account of the response with this head; `None` if the reservation follows no body.
    pub(super) fn open(
        mut reservation: Box<Reservation<L, R>>,
        head: &response::Parts,
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
        let mut balances = SmallList::new();
        for (place, charged) in reservation.charges() {
            let limit = spending.limits[place].as_ref().map(|limit| &limit.units);
            let mut balance = Balance::new(limit.cloned(), charged, reservation.excess());
            balance.keep(spending.kept(head.status, (place, charged)));
            balances.push(balance);
        }
        Some(Self {
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
        })
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

    /// Requests the charges that are prepared.
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
                        None => balance.on_failed_step(),
                    }
                }
                if let Err(error) = answer {
                    self.error = Some(error.into());
                }
            }
        }
    }

    /// Continues the question that is under way.
    fn poll_question(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(question) = &mut self.question {
            let answer = ready!(question.as_mut().poll(cx));
            self.question = None;
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

    /// Settles the account: charges what is missing, and refunds what is left over, of the newest receipts first.
    async fn settle_account(mut self: Box<Self>, end: StreamEnd) {
        if let Some(question) = self.question.take() {
            let answer = question.await;
            // Nothing waits for its units any more.
            self.exhausted = Exhausted::Finish;
            self.on_answer(answer);
        }
        let source = self.end_balances(end);
        if let Some(receipt) = self.reservation.receipt() {
            let balances = self.balances.as_mut_slice().iter_mut();
            let first = balances.zip(receipt.each());
            first.for_each(|(limit, receipt)| limit.add_first(receipt));
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
                    let fault = "the store did not answer, so its charge was not refunded";
                    self.error = Some(LimiterError::unavailable(fault).into());
                }
                Some(receipt) => balance.on_corrected(receipt.charged(), correction.refunded),
                None => balance.on_unconfirmed_refund(correction.refunded),
            }
        }
        answer.map_err(|error| self.error = Some(error.into())).ok()
    }

    /// Reports the account, and charges what a handler adds from now on.
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
            after: limits.clone().map(Balance::charged).collect(),
            source,
            forgotten: limits.map(Balance::forgotten).collect(),
            error: self.error.map(|error| *error),
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

impl<L: Limiter, R: Send + Sync + 'static> Meter for Account<L, R> {
    fn data(&mut self, data: &[u8]) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        self.spent.read(|tokens| reader.data(data, tokens));
    }

    fn lose(&mut self) {
        self.reader = None;
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

    fn settle(self: Box<Self>, end: StreamEnd) -> AccountEnd {
        Box::pin(self.settle_account(end))
    }
}
