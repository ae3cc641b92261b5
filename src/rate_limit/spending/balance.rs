//! The balance of a stream at one limit: what it has used, what it is charged, and the receipts.

use std::mem;

use crate::{
    decision::{Op, Receipt},
    limiter::UnitsOf,
    rate_limit::limit_op::LimitOp,
    spend::Tokens,
};

/// The receipts that a stream keeps: the newest, the reservation's included. Units of older ones are not refunded.
const RECEIPTS: usize = 4;

/// The balance of a stream at one limit. A limit that responses do not charge has used what it was charged.
#[derive(Default)]
pub(super) struct Balance {
    /// `None` if responses do not charge the limit.
    units: Option<UnitsOf>,
    /// The units used so far, and before the last frame.
    used: u64,
    used_before: u64,
    /// The units that were requested, also those beyond the debt.
    requested: u64,
    /// The units that decisions charged.
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

/// Whether a response counts at a limit.
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

    /// Takes the units that the limit keeps by the status of the response, if it depends on it.
    pub(super) const fn keep(&mut self, kept: Option<u64>) {
        self.counted = match kept {
            None => return,
            Some(0) => CountByStatus::Not,
            Some(_) => CountByStatus::Counts,
        };
    }

    pub(super) const fn charged(&self) -> u64 {
        self.charged
    }

    /// The units that are used and not charged; `None` if responses do not charge the limit.
    pub(super) fn forgotten(&self) -> Option<u64> {
        let is_spent = self.units.is_some();
        is_spent.then(|| self.used.saturating_sub(self.charged))
    }

    /// The units of a response that counts.
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

    /// Prepares a charge for what is needed, which is less than a charge that was denied. Returns whether it is.
    pub(super) const fn reduce_step(&mut self) -> bool {
        let needed = self.needed();
        let is_less = needed < self.pending;
        self.pending = needed;
        is_less
    }

    /// The prepared charge, of this operation.
    pub(super) fn step(&self, op: fn(u64) -> Op) -> LimitOp {
        match self.pending {
            0 => LimitOp::default(),
            units => LimitOp::charge(op(units)),
        }
    }

    /// Takes the answer to the prepared charge.
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

    /// Takes a charge that failed. It may have been made: it is not repeated, and counts as made.
    pub(super) fn on_failed_step(&mut self) {
        self.on_step(self.pending, None);
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

    /// Adds the reservation's receipt.
    pub(super) fn add_first(&mut self, receipt: &Receipt) {
        if self.receipts.len() < RECEIPTS && receipt.charged() > 0 {
            self.receipts.insert(0, receipt.clone());
        }
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

    /// Takes the answer to a correction.
    pub(super) const fn on_corrected(&mut self, charged: u64, refunded: u64) {
        self.charged = self.charged.saturating_add(charged) - refunded;
    }

    /// Takes a refund whose answer is lost.
    pub(super) const fn on_unconfirmed_refund(&mut self, refunded: u64) {
        self.pending = self.pending.saturating_add(refunded);
    }

    /// The charge of tokens after the end.
    pub(super) fn late_charge(&self, tokens: &Tokens) -> LimitOp {
        match self.counted_units() {
            Some(units) => LimitOp::charge(Op::Spend(units(tokens))),
            None => LimitOp::default(),
        }
    }
}
