//! Reservations: charges that the response of a request may correct, and the operations that correct them.
//!
//! In: an allowed decision with its charge, and later the head of the response. Out: the response with its fields, and an
//! event for the observer.
//!
//! 1. `final_cost` makes the units that the response costs of its head and of the units charged: `count_if` has all or none
//!    of them, `final_cost` of the layer any number.
//! 2. `correct` makes an operation of the difference: `Op::Settle` with the receipt, or `Op::Hit` for a request that an
//!    elastic layer allowed without a charge. Several limits may have one each.
//! 3. `settle` adds the fields by the decision after the correction. If the limiter does not answer at once, the response
//!    waits (`Correcting`); in shadow mode it does not (`settle_in_background`).
//! 4. Where the body determines the charge, the fields show the first decision, and the bill of the body corrects it
//!    later (`spend_bill.rs`).
//!
//! A reservation that is dropped, as when the client disconnects, leaves the charge as it is and reports that. So does an
//! answer that fails.
//!
//! Example: `count_if` counts 401 only, and a login that succeeds was charged 1. Its final cost is 0, the unit is refunded,
//! and `RateLimit` shows it as left.

use std::{
    any::Any,
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use http::{Response, response};

use self::background::spawn;
use super::{
    admission::Admission,
    request_charges::{ChargeRequest, KeptCharges},
};
use crate::observe::event::Corrected;
use tower_ratelimit_core::{
    decision::{Decision, Op, Receipt},
    error::LimiterError,
    limiter::{
        call::{Call, OpRef},
        limiter::{Limiter, Pending},
    },
};

/// The charge of a request until its response. A reservation that is dropped leaves the charge as it
/// is.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct Reservation<L, R> {
    pub(super) admission: Arc<Admission<L, R>>,
    pub(super) decision: Decision,
    pub(super) charge: KeptCharges,
    /// Whether an elastic layer allowed the request, and charged nothing.
    pub(super) exceeds: bool,
    /// The cost by the response; 0 until it is known.
    cost: u64,
    /// The units that each limit keeps, if the response settles each of several limits by itself.
    kept_by_each: Box<[u64]>,
    /// The units of the response, if its body determines the charge.
    pub(super) spent: Option<Arc<dyn OpenUnits>>,
    /// Whether the final charge was reported.
    pub(super) reported: bool,
}

/// The units of a response while its body passes, as far as the reservation knows them.
pub(super) trait OpenUnits: Any + Send + Sync {
    /// Charges a request's body without a response by what has passed of it. Returns the units that the least limit keeps;
    /// `None` if it is not counted.
    fn break_off(self: Arc<Self>, receipt: Option<&Receipt>) -> Option<u64>;
}

impl<L, R> Reservation<L, R> {
    pub(super) fn new(
        admission: &Arc<Admission<L, R>>,
        decision: Decision,
        charge: ChargeRequest<'_>,
        exceeds: bool,
    ) -> Self {
        Self {
            admission: Arc::clone(admission),
            decision,
            charge: charge.keep(),
            exceeds,
            cost: 0,
            kept_by_each: Box::default(),
            spent: None,
            reported: false,
        }
    }

    /// The units that the request was charged when it arrived.
    pub(super) const fn charged(&self) -> u64 {
        self.decision.charged()
    }

    /// The units that a response keeps or refunds: those charged, or of a request without a charge its cost, of several
    /// limits the highest.
    fn assumed(&self) -> u64 {
        if !self.exceeds {
            return self.charged();
        }
        let charges = self.charge.as_refs();
        self.charge.request(&charges).cost()
    }

    /// The receipt of the first charge, if it charged anything.
    pub(super) fn receipt(&self) -> Option<Receipt> {
        let is_charged = self.decision.charged_by_each().any(|charged| charged > 0);
        is_charged.then(|| self.decision.receipt())
    }

    fn show<B>(&self, response: &mut Response<B>) {
        let responder = &self.admission.responder;
        if responder.decorates() {
            responder.decorate(&self.decision, response);
        }
    }
}

impl<L: Limiter, R> Reservation<L, R> {
    /// Adds the fields to the response if its body determines the charge. Returns whether it does: a cost of 0 by its head
    /// is final.
    pub(super) fn follows_body<B>(&self, response: &mut Response<B>) -> bool {
        let units = self.assumed();
        let follows = self.spent.is_some()
            && (units == 0 || with_head(response, |head| self.final_cost(head, units)) > 0);
        if follows {
            self.show(response);
        }
        follows
    }

    /// Corrects the charge and adds the fields to the response. If the limiter does not answer at once, the response
    /// waits.
    pub(super) fn settle<B>(
        mut self: Box<Self>,
        response: &mut Response<B>,
    ) -> Option<Correcting<L, R>> {
        if let Some(later) = with_head(response, |head| self.correct_now(head)) {
            return Some(Correcting {
                answer: Box::pin(later),
                reservation: self,
            });
        }
        self.show(response);
        None
    }

    /// Corrects the charge at a limit in shadow mode, which does not delay the response.
    pub(super) fn settle_in_background(mut self: Box<Self>, response: &response::Parts)
    where
        R: Send + Sync + 'static,
    {
        if let Some(later) = self.correct_now(response) {
            spawn(async move {
                let answer = later.await;
                self.on_answer(answer);
            });
        }
    }

    /// Corrects the charge, unless the limiter answers later.
    fn correct_now(&mut self, response: &response::Parts) -> Option<L::Future> {
        match self.correct(response) {
            None => self.keep(None),
            Some(Pending::Ready(answer)) => self.on_answer(answer),
            Some(Pending::Later(answer)) => return Some(answer),
        }
        None
    }

    fn correct(&mut self, response: &response::Parts) -> Option<Pending<L::Future>> {
        let settings = &self.admission.settings;
        if let Some(settlement) =
            settings.end_of_each(response, &self.decision, self.charge.limits())
        {
            self.cost = settlement.kept;
            self.kept_by_each = settlement.kept_by_each.into();
            let mut ops = settlement.ops.iter().map(Op::as_ref);
            return Some(self.call(|own| ops.next().unwrap_or(own)));
        }
        let charged = self.charged();
        let cost = self.final_cost(response, self.assumed());
        self.cost = cost;
        // A limiter with blocks counts responses, also those that cost what they were charged.
        let unchanged =
            cost == charged && (cost == 0 || !self.admission.blocks(self.charge.limits()));
        let op = if self.exceeds {
            (cost > 0).then_some(Op::Hit(cost))
        } else {
            (!unchanged).then(|| Op::Settle(cost, self.decision.receipt()))
        }?;
        Some(self.call(|_| op.as_ref()))
    }

    /// Applies other operations to the limits.
    fn call<'a>(&'a self, op: impl FnMut(OpRef<'a>) -> OpRef<'a>) -> Pending<L::Future> {
        call(&self.admission, &self.charge, op)
    }

    /// The cost of the request by its response, if `units` were reserved.
    fn final_cost(&self, response: &response::Parts, units: u64) -> u64 {
        let settings = &self.admission.settings;
        settings.cost_by(response, units, self.charge.limits())
    }

    fn on_answer(&mut self, answer: Result<Decision, LimiterError>) {
        let charged = self.charged();
        let mut decision = match answer {
            Ok(decision) => decision,
            Err(error) => return self.keep(Some(&error)),
        };
        decision.complete_by(&self.decision);
        let cost = self.cost;
        // The fallback has answered, which cannot refund a charge of the store.
        if decision.is_degraded() && !self.decision.is_degraded() && cost < charged {
            let fault = "the store did not respond, so its charge was not refunded";
            return self.keep(Some(&LimiterError::unavailable(fault)));
        }
        // Units beyond the charge are charged as far as there are any.
        let after = cost.min(charged.saturating_add(decision.charged()));
        let error = decision.error().cloned();
        let first = decision.parts().zip(self.decision.charged_by_each());
        for ((part, charged), kept) in first.zip(&mut self.kept_by_each) {
            if part.error().is_some() {
                *kept = charged;
            }
        }
        // The request has passed, even if it cost more than was left: its fields report no wait.
        self.decision = if self.exceeds || decision.is_denied() {
            decision.into_excess()
        } else {
            decision
        };
        self.report((charged, after), error.as_deref());
    }
}

impl<L, R> Reservation<L, R> {
    fn report(&mut self, (before, after): (u64, u64), error: Option<&LimiterError>) {
        self.reported = true;
        let charges = self.charge.as_refs();
        self.admission.report_corrected(Corrected {
            decision: &self.decision,
            charges: charges.as_slice(),
            before,
            after,
            kept_by_each: &self.kept_by_each,
            source: None,
            forgotten_by_each: &[],
            error,
        });
    }

    /// Reports that the charge stays, or could not be corrected.
    fn keep(&mut self, error: Option<&LimiterError>) {
        self.kept_by_each = Box::default();
        let charged = self.charged();
        self.report((charged, charged), error);
    }
}

impl<L, R> Drop for Reservation<L, R> {
    fn drop(&mut self) {
        if !self.reported {
            correct_at_drop(|| {
                let spent = self.spent.take();
                match spent.and_then(|spent| spent.break_off(self.receipt().as_ref())) {
                    Some(after) => self.report((self.charged(), after), None),
                    None => self.keep(None),
                }
            });
        }
    }
}

/// Corrects a charge in a destructor. That calls code of the user, and a panic while another one unwinds would end the
/// process.
pub(super) fn correct_at_drop(correct: impl FnOnce()) {
    if thread::panicking() {
        let _ = catch_unwind(AssertUnwindSafe(correct));
    } else {
        correct();
    }
}

/// The correction of a charge that its response waits for.
#[allow(missing_debug_implementations, reason = "users only name it")]
pub struct Correcting<L: Limiter, R> {
    answer: Pin<Box<L::Future>>,
    reservation: Box<Reservation<L, R>>,
}

impl<L: Limiter, R> Correcting<L, R> {
    /// Adds the fields after the correction, or before it if it fails.
    pub fn poll<B>(&mut self, response: &mut Response<B>, cx: &mut Context<'_>) -> Poll<()> {
        let answer = ready!(self.answer.as_mut().poll(cx));
        self.reservation.on_answer(answer);
        self.reservation.show(response);
        Poll::Ready(())
    }
}

/// Reads the head of a response, which stays in its place.
fn with_head<B, T>(response: &mut Response<B>, read: impl FnOnce(&response::Parts) -> T) -> T {
    let (mut head, ()) = Response::new(()).into_parts();
    let mut swap = |head: &mut response::Parts| {
        mem::swap(&mut head.status, response.status_mut());
        mem::swap(&mut head.version, response.version_mut());
        mem::swap(&mut head.headers, response.headers_mut());
        mem::swap(&mut head.extensions, response.extensions_mut());
    };
    swap(&mut head);
    let read = read(&head);
    swap(&mut head);
    read
}

/// Calls the limiter with other operations on the limits of a charge.
pub(super) fn call<'a, L: Limiter, R>(
    admission: &Admission<L, R>,
    kept: &'a KeptCharges,
    mut op: impl FnMut(OpRef<'a>) -> OpRef<'a>,
) -> Pending<L::Future> {
    let mut charges = kept.as_refs();
    for charge in charges.as_mut_slice() {
        charge.op = op(charge.op);
    }
    admission.limiter.call(&Call::of(charges.as_slice()))
}

/// Corrections of charges that no request waits for.
#[cfg(feature = "tokio")]
pub(super) mod background {
    use std::{
        future::Future,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::sync::Notify;

    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

    /// Notifies those who wait when none is under way.
    static NONE_LEFT: Notify = Notify::const_new();

    /// Counts a correction as under way until it drops.
    struct Correction;

    impl Drop for Correction {
        fn drop(&mut self) {
            if UNDER_WAY.fetch_sub(1, Ordering::AcqRel) == 1 {
                NONE_LEFT.notify_waiters();
            }
        }
    }

    /// Runs a correction on the current runtime. Without one it is dropped.
    pub(in crate::rate_limit) fn spawn(correction: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            UNDER_WAY.fetch_add(1, Ordering::AcqRel);
            let counted = Correction;
            runtime.spawn(async move {
                correction.await;
                drop(counted);
            });
        }
    }

    /// Waits until no correction of a charge is under way in this process.
    ///
    /// A limiter in Redis, or in a store of your own, is charged in the background by what a response used when its body
    /// has ended. A process that ends right after its last response may lose that: await this before, with the runtime
    /// that served the requests. It takes as long as the limiters' deadlines at most, and nothing if limits count in this
    /// process.
    ///
    /// ```no_run
    /// # async fn serve() {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // Until a signal, with a graceful shutdown.
    /// serve().await;
    /// tower_ratelimit::rate_limit::settled().await;
    /// # }
    /// ```
    pub async fn settled() {
        loop {
            // Made before the count is read, so that no end in between is missed.
            let none_left = NONE_LEFT.notified();
            if UNDER_WAY.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }

    #[cfg(test)]
    mod tests {
        use std::{
            future::Future as _,
            pin::pin,
            task::{Context, Waker},
        };

        use tokio::sync::oneshot;

        use super::{settled, spawn};

        #[tokio::test]
        async fn end_of_all_corrections_is_awaited_also_of_a_panic() {
            settled().await;
            let (first, until_first) = oneshot::channel::<()>();
            let (second, until_second) = oneshot::channel::<()>();
            spawn(async { drop(until_first.await) });
            spawn(async {
                until_second
                    .await
                    .expect("it is dropped, and the task panics")
            });
            let mut cx = Context::from_waker(Waker::noop());
            let mut waiting = pin!(settled());
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            drop(first);
            tokio::task::yield_now().await;
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            drop(second);
            waiting.await;
        }
    }
}

#[cfg(not(feature = "tokio"))]
pub(super) mod background {
    /// Drops a correction, since there is no runtime.
    pub(in crate::rate_limit) fn spawn(correction: impl Future<Output = ()> + Send + 'static) {
        drop(correction);
    }
}
