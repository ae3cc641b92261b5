//! The bill of a stream: its balance at each limit, the charges while it passes, and the settlement at its end.

use std::{
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use http::{HeaderMap, StatusCode, header::CONTENT_ENCODING, request::Parts, response};

use super::{
    admission::Admission,
    request_charges::KeptCharges,
    reservation::{Reservation, background::spawn, call},
    spend_body::{BillEnd, SpendExhausted, StreamBill, StreamEnd},
    spend_settings::{Exhausted, Missing, Spending},
    spent::Spent,
    stream_balance::{Balance, CountByStatus, Ending, LimitOp, OpsOfEach, RECEIPTS, Upload},
};
use crate::{
    middleware::setup_diagnostics::Unreadable,
    observe::event::{Corrected, SpendSource},
    spend::SpendReader,
};
use tower_ratelimit_core::{
    decision::{Decision, Op, receipts_of_each},
    error::LimiterError,
    limiter::{
        call::OpRef,
        limiter::{Limiter, Pending},
    },
    small_list::SmallList,
    token_usage::Tokens,
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
    question: Option<Pin<Box<L::Future>>>,
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
        let exhausted = if reservation.admission.responder.is_shadow() || reservation.exceeds {
            Exhausted::Finish
        } else {
            spending.numbers.exhausted
        };
        let upload = spent.take_upload();
        let mut balances = SmallList::default();
        for (at, (place, charged)) in reservation.charges().enumerate() {
            let limit = spending.limits[place].as_ref().map(|limit| &limit.units);
            let mut balance = Balance::new(limit.cloned(), charged, reservation.excess(at));
            balance.counted = match reservation.admission.settings.counts(place, head.status) {
                None => CountByStatus::Always,
                // Nothing was charged that could be kept.
                Some(counts) if !counts || charged == 0 => CountByStatus::Not,
                Some(_) => CountByStatus::Counts,
            };
            if let Some(upload) = &upload {
                let own = &upload.balances.as_slice()[at];
                (balance.requested, balance.charged) = (own.requested, own.charged);
            }
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
        if !counts || self.reservation.exceeds {
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
        if self.question.is_some() || self.reservation.exceeds {
            return;
        }
        let (step, balances) = (self.spending.numbers.step, self.balances.as_mut_slice());
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
            Pending::Later(answer) => self.question = Some(Box::pin(answer)),
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
        let (ending, source) = match self.spending.numbers.missing {
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
        let charge = if self.reservation.exceeds {
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
        let kept: SmallList<_, 1> = limits.clone().map(|limit| limit.charged).collect();
        let forgotten: SmallList<_, 1> = limits.map(Balance::forgotten).collect();
        let reservation = &mut self.reservation;
        reservation.reported = true;
        let charges = reservation.charge.as_refs();
        reservation.admission.report_corrected(Corrected {
            decision: passed.as_ref().unwrap_or(&reservation.decision),
            charges: charges.as_slice(),
            before: reservation.charged(),
            after: kept.as_slice().iter().copied().min().unwrap_or(0),
            kept_by_each: kept.as_slice(),
            source: Some(source),
            forgotten_by_each: forgotten.as_slice(),
            error: self.error.as_deref(),
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

/// The part of a reservation that its bill settles.
impl<L, R> Reservation<L, R> {
    /// The settings of the charge by the response's body, and the response's units.
    fn spending(&mut self) -> Option<(Arc<Spending>, Spent)> {
        let spending = self.admission.settings.spending(self.charge.limits())?;
        Some((Spending::of(spending), Spent::of(self.spent.take()?)))
    }

    /// The places of the limits that the request has a key for, and the units that each was charged.
    fn charges(&self) -> impl Iterator<Item = (usize, u64)> {
        self.charge.limits().zip(self.decision.charged_by_each())
    }

    /// The units of a request that an elastic layer allowed, at a limit that responses do not charge: the one `at` this
    /// index among those that were charged.
    fn excess(&self, at: usize) -> u64 {
        let charges = self.charge.as_slice();
        let own = charges.get(at).filter(|_| self.exceeds);
        own.map_or(0, |charge| charge.as_ref().op.units())
    }

    /// Logs why the units of the response are not known.
    fn report_unreadable(&self, cause: Unreadable) {
        (self.admission.responder.diagnostics()).report_unreadable(cause);
    }
}

impl<L: Limiter, R: Send + Sync + 'static> Reservation<L, R> {
    /// Follows the units of the response, if its body determines the charge. Handlers find them in the extensions.
    pub(super) fn follow_body(&mut self, parts: &mut Parts) {
        let spending = self.admission.settings.spending(self.charge.limits());
        if let Some(spending) = spending.map(Spending::of) {
            let mut spent = Spent::new(spending.declared(parts));
            if spending.bytes.is_some_and(|bytes| bytes.of_request) && !self.exceeds {
                let upload = Upload::new(&spending, self.charges(), self.late_charge());
                spent = spent.with_upload(upload);
            }
            self.spent = Some(spent.followed());
            parts.extensions.insert(spent);
        }
    }

    /// Applies operations that follow the first charge, one to each limit.
    fn apply(&self, ops: &OpsOfEach) -> Pending<L::Future> {
        apply(&self.admission, &self.charge, ops)
    }

    /// Charges units that were used after the end of the body.
    fn late_charge(&self) -> impl Fn(&OpsOfEach) + Send + Sync + 'static + use<L, R> {
        let (admission, charge) = (Arc::clone(&self.admission), self.charge.clone());
        move |ops| {
            if let Pending::Later(answer) = apply(&admission, &charge, ops) {
                spawn(async move { drop(answer.await) });
            }
        }
    }
}

/// Applies an operation to each limit of a charge.
fn apply<L: Limiter, R>(
    admission: &Admission<L, R>,
    kept: &KeptCharges,
    ops: &OpsOfEach,
) -> Pending<L::Future> {
    let mut ops = ops.as_slice().iter().map(|limit| limit.op.as_ref());
    call(admission, kept, |own| match (ops.next(), own) {
        // A denial starts the limit's block at once, as that of the request does.
        (Some(OpRef::Reserve(units)), OpRef::Acquire(_)) => OpRef::Acquire(units),
        (op, own) => op.unwrap_or(own),
    })
}
