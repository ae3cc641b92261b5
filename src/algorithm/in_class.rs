//! A quota, and the share of it that a class of requests may use.

use std::borrow::Borrow;

use super::{Counts, Refund, Verdict};
use crate::{
    clock::ClockReading,
    decision::{Charge, Usage},
    quota::{Kind, Priority},
};

/// A quota whose capacity can be that of a class.
pub(crate) trait Divisible: Sized {
    /// The quota with the capacity that a class below critical may use. Its state is the whole quota's:
    /// only [`Counts::clamp`] and refunds, which do not depend on classes, are the whole quota's too.
    fn part(&self, class: Priority) -> Self;

    /// The quota for requests of a class, without a copy of it.
    #[inline]
    fn in_class(&self, class: Priority) -> InClass<Self, &Self> {
        InClass {
            part: self.part(class),
            whole: self,
            class,
        }
    }
}

/// A quota for requests of a class below critical.
///
/// A cost fits while all that was used, by whatever class, fits in the class's part. The state stays
/// that of the whole quota, which refunds, settlements and clamps use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InClass<M, W = M> {
    pub(crate) part: M,
    /// The whole quota, or a reference to it.
    pub(crate) whole: W,
    pub(crate) class: Priority,
}

impl<M: Divisible> InClass<M> {
    pub(crate) fn new(whole: M, class: Priority) -> Self {
        Self {
            part: whole.part(class),
            whole,
            class,
        }
    }
}

impl<M: Counts, W: Borrow<M>> Counts for InClass<M, W> {
    type State = M::State;

    #[inline]
    fn instant(&self, time: ClockReading) -> u64 {
        self.part.instant(time)
    }

    #[inline]
    fn class(&self) -> Priority {
        self.class
    }

    #[inline]
    fn verdict(&self, state: &M::State, now: u64, cost: u64) -> Verdict {
        self.part.verdict(state, now, cost)
    }

    #[inline]
    fn whole_verdict(&self, state: &M::State, now: u64, cost: u64) -> Verdict {
        self.whole.borrow().verdict(state, now, cost)
    }

    fn available(&self, state: &M::State, now: u64) -> u64 {
        self.part.available(state, now)
    }

    fn spendable(&self, state: &M::State, now: u64) -> u64 {
        self.whole.borrow().spendable(state, now)
    }

    #[inline]
    fn charge(&self, state: &mut M::State, now: u64, cost: u64) {
        self.part.charge(state, now, cost);
    }

    #[inline]
    fn charge_late(&self, state: &mut M::State, now: u64, late: u64, cost: u64) {
        self.part.charge_late(state, now, late, cost);
    }

    fn spend(&self, state: &mut M::State, now: u64, cost: u64) {
        self.whole.borrow().spend(state, now, cost);
    }

    fn count(&self, state: &mut M::State, now: u64, cost: u64) {
        self.whole.borrow().count(state, now, cost);
    }

    fn over(&self, state: &M::State, now: u64, cost: u64) -> Verdict {
        self.whole.borrow().over(state, now, cost)
    }

    fn made(&self, charged_at: u64, charge: &Charge) -> bool {
        self.whole.borrow().made(charged_at, charge)
    }

    fn refund(&self, state: &mut M::State, now: u64, refund: Refund) {
        self.whole.borrow().refund(state, now, refund);
    }

    #[inline]
    fn clamp(&self, state: &mut M::State, now: u64) {
        self.whole.borrow().clamp(state, now);
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.whole.borrow().kind()
    }

    #[inline]
    fn standing(&self, state: &M::State, now: u64) -> (Usage, bool) {
        self.part.standing(state, now)
    }
}
