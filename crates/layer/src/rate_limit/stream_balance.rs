//! The balance of a stream at each limit, and the account of a request's body.

use std::{mem, sync::Arc};

use super::spend_settings::Spending;
use tower_ratelimit_core::{
    decision::{Op, Receipt},
    small_list::SmallList,
    token_usage::{Tokens, UnitsOf},
};

/// The operations on the limits that a request has a key for, in their order.
pub(super) type OpsOfEach = SmallList<LimitOp, 1>;

/// An operation on one limit that follows a charge. The default does nothing.
pub(super) struct LimitOp {
    pub(super) op: Op,
    pub(super) refunded: u64,
}

impl LimitOp {
    /// An operation that refunds nothing.
    pub(super) const fn charge(op: Op) -> Self {
        Self { op, refunded: 0 }
    }

    /// Whether it refunds units that the limiter's store has charged.
    pub(super) fn refunds_store(&self) -> bool {
        let receipt = self.op.receipt();
        self.refunded > 0 && receipt.is_some_and(|receipt| !receipt.is_degraded())
    }

    pub(super) const fn is_none(&self) -> bool {
        matches!(self.op, Op::Refund(0, None))
    }
}

impl Default for LimitOp {
    fn default() -> Self {
        Self::charge(Op::Refund(0, None))
    }
}

/// The receipts that a stream keeps: the newest, the reservation's included. Units of older ones are not refunded.
pub(super) const RECEIPTS: usize = 4;

/// The balance of a stream at one limit. A limit that responses do not charge has used what it was charged.
#[derive(Default)]
pub(super) struct Balance {
    /// `None` if responses do not charge the limit.
    pub(super) units: Option<UnitsOf>,
    /// The units used so far, and before the last frame.
    pub(super) used: u64,
    used_before: u64,
    /// The units that were requested, also those beyond the debt.
    pub(super) requested: u64,
    pub(super) charged: u64,
    /// The units whose answer is open: of the question under way, and after the end of refunds whose answers are lost,
    /// which may have been made and are not repeated. One field, since a stream takes little memory.
    pub(super) pending: u64,
    /// The newest receipts of steps, the oldest first. Empty for most streams, which a reservation covers.
    pub(super) receipts: Vec<Receipt>,
    /// Whether what is missing at the end was requested.
    is_completed: bool,
    /// The part of `count_if`, by the head of the response.
    pub(super) counted: CountByStatus,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CountByStatus {
    #[default]
    Always,
    /// It counts, and a limiter with blocks gets it.
    Counts,
    Not,
}

/// The charge of a response that has ended, by what is known about it.
#[derive(Clone, Copy)]
pub(super) enum Ending {
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
    pub(super) fn new(units: Option<UnitsOf>, charged: u64, uncharged: u64) -> Self {
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
    pub(super) fn forgotten(&self) -> Option<u64> {
        let is_spent = self.units.is_some();
        is_spent.then(|| self.used.saturating_sub(self.charged))
    }

    fn counted_units(&self) -> Option<&UnitsOf> {
        self.units
            .as_ref()
            .filter(|_| self.counted != CountByStatus::Not)
    }

    /// Takes the tokens that the response has used so far.
    pub(super) fn advance(&mut self, tokens: &Tokens) {
        if let Some(units) = self.counted_units() {
            let used = units(tokens);
            self.used_before = mem::replace(&mut self.used, used);
        }
    }

    /// The units that are used and not requested.
    pub(super) const fn needed(&self) -> u64 {
        match self.units {
            Some(_) => self.used.saturating_sub(self.requested),
            None => 0,
        }
    }

    /// Prepares a charge for what is used beyond all requests so far and for half a step more, in steps of so many
    /// tokens. Returns whether it charges anything.
    pub(super) fn prepare_step(&mut self, tokens: u64, so_far: &Tokens) -> bool {
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
    pub(super) fn prepare_whole(&mut self, whole: &Tokens) -> bool {
        let units = self.counted_units().map_or(0, |units| units(whole));
        self.pending = units.saturating_sub(self.requested);
        self.pending > 0
    }

    /// Prepares a charge for what is needed, which is less than a charge that was denied. Returns whether it is.
    pub(super) const fn reduce_step(&mut self) -> bool {
        let needed = self.needed();
        let is_less = needed < self.pending;
        self.pending = needed;
        is_less
    }

    pub(super) fn step(&self, op: fn(u64) -> Op) -> LimitOp {
        match self.pending {
            0 => LimitOp::default(),
            units => LimitOp::charge(op(units)),
        }
    }

    pub(super) fn on_step(&mut self, charged: u64, receipt: Option<Receipt>) {
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
    pub(super) fn end(&mut self, ending: Ending, tokens: &Tokens) {
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
    pub(super) fn correction(&mut self, charge: fn(u64) -> Op) -> LimitOp {
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
    pub(super) const fn on_unconfirmed_refund(&mut self, refunded: u64) {
        self.pending = self.pending.saturating_add(refunded);
    }

    pub(super) fn late_charge(&self, tokens: &Tokens) -> LimitOp {
        match self.counted_units() {
            Some(units) => LimitOp::charge(Op::Spend(units(tokens))),
            None => LimitOp::default(),
        }
    }
}

/// The account of a request's body until the head of its response: what has passed beyond the reservation is charged in
/// whole steps, and owed.
pub(super) struct Upload {
    pub(super) balances: SmallList<Balance, 1>,
    step: u64,
    charge: Box<dyn Fn(&OpsOfEach) + Send + Sync>,
    /// Whether a layer counts the body.
    pub(super) has_begun: bool,
}

impl Upload {
    /// The account after a reservation that charged each limit so many units.
    pub(super) fn new(
        spending: &Spending,
        charges: impl Iterator<Item = (usize, u64)>,
        charge: impl Fn(&OpsOfEach) + Send + Sync + 'static,
    ) -> Self {
        let balances = charges.map(|(place, charged)| {
            let limit = spending.limits[place].as_ref();
            Balance::new(limit.map(|limit| Arc::clone(&limit.units)), charged, 0)
        });
        Self {
            balances: balances.collect(),
            step: spending.numbers.step,
            charge: Box::new(charge),
            has_begun: false,
        }
    }

    pub(super) fn charge_passed(&mut self, tokens: &Tokens) {
        for balance in self.balances.as_mut_slice() {
            balance.advance(tokens);
            let step = balance.units.as_ref();
            let step = step.map_or(0, |units| units(&Tokens::input(self.step)));
            balance.pending = Some(balance.needed())
                .filter(|units| *units >= step)
                .unwrap_or(0);
        }
        let balances = self.balances.as_mut_slice();
        if balances.iter().any(|balance| balance.pending > 0) {
            (self.charge)(&OpsOfEach::from_iter(
                balances.iter().map(|limit| limit.step(Op::Spend)),
            ));
            for balance in balances {
                balance.on_step(balance.pending, None);
            }
        }
    }

    /// Charges what has passed of a body without a response. Returns the units that the least limit keeps, and the charge
    /// for what passes later.
    pub(super) fn settle(
        mut self,
        tokens: &Tokens,
        receipt: Option<&Receipt>,
    ) -> (u64, impl Fn(&Tokens) + Send + Sync + use<>) {
        let balances = self.balances.as_mut_slice();
        for (balance, receipt) in balances
            .iter_mut()
            .zip(receipt.iter().flat_map(|receipt| receipt.each()))
        {
            balance.receipts.push(receipt.clone());
        }
        let corrections = balances.iter_mut().map(|balance| {
            balance.end(Ending::Used, tokens);
            balance.correction(Op::Spend)
        });
        (self.charge)(&OpsOfEach::from_iter(corrections));
        let least = self
            .balances
            .as_slice()
            .iter()
            .map(|balance| balance.used)
            .min();
        let late = move |tokens: &Tokens| {
            let limits = self.balances.as_slice().iter();
            (self.charge)(&OpsOfEach::from_iter(
                limits.map(|limit| limit.late_charge(tokens)),
            ));
        };
        (least.unwrap_or(0), late)
    }
}
