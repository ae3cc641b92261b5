//! Units of a turn other than requests, and the receipt of their charge.

use std::sync::{Arc, Mutex, PoisonError};

use tower_ratelimit::{AnyLimiter, Decision, clock::Timestamp, decision::Receipt};

use crate::{
    learned_limits::LearnedLimits,
    open_units::{DeclaredCharge, OpenUnits},
    units::{OtherUnits, Units},
};

/// The units of a turn other than requests.
pub(crate) struct TurnUnits {
    units: Arc<[Units]>,
    /// The receipt of the newest charge, if one of the units is settled.
    receipt: Mutex<Option<Receipt>>,
}

impl TurnUnits {
    /// `None` without units.
    pub(crate) fn new(units: OtherUnits) -> Option<Box<Self>> {
        let units = units?;
        Some(Box::new(Self {
            units,
            receipt: Mutex::new(None),
        }))
    }

    pub(crate) fn units(&self) -> &[Units] {
        &self.units
    }

    /// Keeps the receipt of a charge, if it is to be settled.
    pub(crate) fn keep_receipt(&self, decision: &Decision) {
        if self.units.iter().any(Units::is_settled) {
            let mut receipt = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
            *receipt = Some(decision.receipt());
        }
    }

    /// Counts the units, which are sent now.
    pub(crate) fn send(
        &self,
        learned: &mut LearnedLimits,
        now: Timestamp,
        number: u64,
        limiter: Option<&AnyLimiter>,
    ) -> Box<OpenUnits> {
        let mut receipt = self.receipt.lock().unwrap_or_else(PoisonError::into_inner);
        let charge = receipt.take().zip(limiter);
        let declared = charge.map(|(receipt, limiter)| DeclaredCharge {
            limiter: limiter.clone(),
            receipt,
        });
        OpenUnits::send(learned, now, number, &self.units, declared)
    }
}
