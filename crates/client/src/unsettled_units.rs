//! Units of a turn other than requests: until it is granted, and until the response has ended.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tower_ratelimit::{
    AnyLimiter, Decision, Key, Limiter,
    clock::Timestamp,
    decision::Receipt,
    limiter::{Call, Charge, OpRef, Pending},
    spend::Tokens,
};

use crate::{
    learned_limits::LearnedLimits,
    learned_limits::{SentUnits, UnitCharge},
    pacer_state::{LimitUnit, PacerState},
    request_cost::{OtherUnits, Units},
    response_headers::ReportedQuota,
    response_signals,
};

/// The units of a request that was sent, other than requests.
pub(crate) struct OpenUnits {
    units: Arc<[Units]>,
    /// The charge of each.
    sent: Vec<SentUnits>,
    /// The declared limits and the receipt of their charge, to be settled.
    declared: Option<(AnyLimiter, Receipt)>,
}

type Settlement = Pending<<AnyLimiter as Limiter>::Future>;

impl OpenUnits {
    /// The units of a turn that is not sent yet; `None` without units.
    pub(crate) fn new(units: OtherUnits) -> Option<Box<Self>> {
        Some(Box::new(Self {
            units: units?,
            sent: Vec::new(),
            declared: None,
        }))
    }

    /// Keeps the receipt of a charge, if it is to be settled.
    pub(crate) fn keep_receipt(&mut self, limiter: Option<&AnyLimiter>, decision: &Decision) {
        if self.units.iter().any(Units::is_settled) {
            self.declared = limiter.map(|limiter| (limiter.clone(), decision.receipt()));
        }
    }

    /// Counts the units, which are sent now.
    pub(crate) fn send(&mut self, learned: &mut LearnedLimits, now: Timestamp, number: u64) {
        let units = self.units.iter();
        let sent = units.map(|units| learned.send_units(now, number, units));
        self.sent = sent.collect();
    }

    pub(crate) fn units(&self) -> &[Units] {
        &self.units
    }

    fn charges(&self) -> impl Iterator<Item = (&Units, &SentUnits)> {
        self.units.iter().zip(&self.sent)
    }

    /// The quotas of each unit in the response.
    pub(crate) fn reported(
        &self,
        pacer: &PacerState,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Vec<Vec<ReportedQuota>> {
        let now = pacer.clock.wall(pacer.clock.now());
        let units = self.units.iter();
        let quotas = units
            .map(|units| response_signals::quotas_of(pacer.learn, status, headers, now, units));
        quotas.collect()
    }

    /// Learns from the response. Charges that are not open end here; a refused request used nothing.
    pub(crate) fn on_response(
        &self,
        learned: &mut LearnedLimits,
        now: Timestamp,
        reported: &[Vec<ReportedQuota>],
        is_refused: bool,
    ) {
        for ((units, sent), quotas) in self.charges().zip(reported) {
            if is_refused {
                learned.end_units(sent.number, units, Some(0));
            } else if !units.is_open() {
                learned.end_units(sent.number, units, None);
            }
            let charge = UnitCharge {
                sent: *sent,
                is_open: units.is_open(),
            };
            learned.learn_units(now, units.unit(), charge, quotas);
        }
    }

    /// Ends all charges, at what they are.
    pub(crate) fn end(&self, learned: &mut LearnedLimits) {
        for (units, sent) in self.charges() {
            learned.end_units(sent.number, units, None);
        }
    }

    /// Ends the open charges at what the response has used. The others were reported by its head.
    pub(crate) fn settle(&self, learned: &mut LearnedLimits, tokens: &Tokens) {
        for (units, sent) in self.charges().filter(|(units, _)| units.is_open()) {
            learned.end_units(sent.number, units, Some(units.used_by(tokens)));
        }
    }

    /// Settles the declared limits, if any was charged. `limits` has the unit of each.
    pub(crate) fn settle_declared(
        &self,
        key: &Key,
        limits: &[LimitUnit],
        tokens: &Tokens,
    ) -> Option<Settlement> {
        let (limiter, receipt) = self.declared.as_ref()?;
        let charges = limits.iter().enumerate().filter_map(|(at, limit)| {
            let units = self.units.iter().find(|units| units.unit() == limit.unit)?;
            let used = units.is_settled().then(|| units.used_by(tokens))?;
            Some(Charge::new(key, OpRef::Settle(used, receipt)).limit(at))
        });
        let charges: Vec<_> = charges.collect();
        (!charges.is_empty()).then(|| limiter.call(&Call::of(&charges)))
    }
}
