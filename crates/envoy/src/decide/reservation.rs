//! Reservations: an estimate is charged first, and settled by the actual units later.

use ring::digest::{SHA256, digest};
use tokio::time::Instant;
use tower_ratelimit::{
    Decision,
    decision::{Op, Receipt},
};

use super::{
    RateLimits,
    charges::Decisions,
    lookup::{DecideError, Limited, Lookup, look_up},
    outcome, to_its_end,
};
use crate::{
    limiters_by_period::Measure,
    protobuf_messages::{Code, RateLimitRequest, RateLimitResponse},
};
use tower_ratelimit_service::otel_spans::Span;

/// The units that one descriptor of a request reserved. A message, since clients keep it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ReservedUnits {
    /// The place of the descriptor.
    #[prost(uint32, tag = "1")]
    place: u32,
    /// The counter, as by [`counter`].
    #[prost(fixed64, tag = "2")]
    counter: u64,
    #[prost(uint64, tag = "3")]
    charged: u64,
    /// The receipt; empty if the store did not make the charge, so that nothing can be refunded.
    #[prost(bytes = "vec", tag = "4")]
    receipt: Vec<u8>,
}

impl ReservedUnits {
    pub(crate) const fn can_be_refunded(&self) -> bool {
        !self.receipt.is_empty()
    }
}

impl RateLimits {
    /// Charges each descriptor this many units, at most what its limit holds, or denies the request and charges
    /// nothing. The store decides until `until`, as in [`decide_until`](Self::decide_until).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub(crate) async fn reserve(
        &self,
        until: Option<Instant>,
        request: &RateLimitRequest,
        amount: u64,
    ) -> Result<(Code, Vec<ReservedUnits>), DecideError> {
        let span = Span::begin();
        let (limits, owned) = (self.clone(), request.clone());
        let reserved = async move { limits.charge_estimate(&owned, amount, until).await };
        let (answer, units) = match to_its_end(reserved).await {
            Ok((answer, units)) => (Ok(answer), units),
            Err(error) => (Err(error), Vec::new()),
        };
        let backend = self.0.counters.backend();
        span.end(backend, || outcome(&request.domain, &answer));
        answer.map(|answer| (answer.overall_code(), units))
    }

    async fn charge_estimate(
        &self,
        request: &RateLimitRequest,
        amount: u64,
        until: Option<Instant>,
    ) -> Result<(RateLimitResponse, Vec<ReservedUnits>), DecideError> {
        let rules = self.rules_for(request)?;
        let mut lookups = look_up(&rules, &self.overrides(), request)?;
        for limited in lookups.iter_mut().filter_map(Lookup::limited_mut) {
            // A limit that allows nothing denies any amount.
            let capacity = limited.charge.measure.capacity(limited.charge.requests);
            limited.charge.units = amount.min(if capacity > 0 { capacity } else { amount });
        }
        let decisions = self.round(&lookups, until).charge_all_or_none().await?;
        self.observe(&rules, request, &lookups, &decisions);
        let answer = self.answer(request, &lookups, &decisions);
        let units = if answer.overall_code() == Code::Ok {
            reserved_units(&lookups, &decisions)
        } else {
            Vec::new()
        };
        Ok((answer, units))
    }

    /// Charges each descriptor `actual` units minus those that it reserved, also beyond its limit. If it reserved
    /// more, the surplus is refunded, unless `refunds` is false.
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub(crate) async fn commit(
        &self,
        until: Option<Instant>,
        request: &RateLimitRequest,
        actual: u64,
        (reserved, refunds): (Vec<ReservedUnits>, bool),
    ) -> Result<(), DecideError> {
        let span = Span::begin();
        let (limits, owned) = (self.clone(), request.clone());
        let settled = async move {
            let settled = limits.settle(&owned, actual, (&reserved, refunds), until);
            settled.await
        };
        let answer = to_its_end(settled).await;
        let backend = self.0.counters.backend();
        span.end(backend, || outcome(&request.domain, &answer));
        answer.map(drop)
    }

    async fn settle(
        &self,
        request: &RateLimitRequest,
        actual: u64,
        (reserved, refunds): (&[ReservedUnits], bool),
        until: Option<Instant>,
    ) -> Result<RateLimitResponse, DecideError> {
        let rules = self.rules_for(request)?;
        let mut lookups = look_up(&rules, &self.overrides(), request)?;
        let mut ops = vec![None; lookups.len()];
        for (place, (lookup, op)) in lookups.iter_mut().zip(&mut ops).enumerate() {
            let Some(limited) = lookup.limited_mut() else {
                continue;
            };
            let own = own_units(reserved, place, limited);
            let charged = own.map_or(0, |own| own.charged);
            limited.charge.units = actual.saturating_sub(charged);
            *op = match own.and_then(|own| Receipt::from_bytes(&own.receipt)) {
                _ if actual > charged => Some(limited.charge.count()),
                Some(receipt) if refunds && actual < charged => {
                    Some(Op::Refund(charged - actual, Some(receipt)))
                }
                _ => None,
            };
        }
        let decisions = self.round(&lookups, until).settle(&ops).await?;
        self.observe(&rules, request, &lookups, &decisions);
        Ok(self.answer(request, &lookups, &decisions))
    }
}

fn reserved_units(lookups: &[Lookup<'_>], decisions: &Decisions) -> Vec<ReservedUnits> {
    let charged = lookups.iter().zip(decisions).enumerate();
    let charged = charged.filter_map(|(place, (lookup, decision))| match lookup {
        Lookup::Limited(limited) => Some((place, limited, decision.as_ref()?)),
        _ => None,
    });
    let charged = charged.filter(|(_, _, decision)| decision.charged() > 0);
    charged
        .map(|(place, limited, decision)| units(place, limited, decision))
        .collect()
}

fn units(place: usize, limited: &Limited<'_>, decision: &Decision) -> ReservedUnits {
    ReservedUnits {
        // A request has few descriptors.
        place: u32::try_from(place).unwrap_or(u32::MAX),
        counter: counter(limited),
        charged: decision.charged(),
        receipt: decision.receipt().to_bytes().unwrap_or_default(),
    }
}

/// The units that the descriptor at `place` reserved, if its limit still counts by the same counter.
fn own_units<'a>(
    reserved: &'a [ReservedUnits],
    place: usize,
    limited: &Limited<'_>,
) -> Option<&'a ReservedUnits> {
    let mut reserved = reserved.iter();
    let own = reserved.find(|own| usize::try_from(own.place) == Ok(place))?;
    Some(own).filter(|own| own.counter == counter(limited))
}

/// A hash of the counter's key and measure, the same in all processes.
fn counter(limited: &Limited<'_>) -> u64 {
    let measure = match limited.charge.measure {
        Measure::Window(seconds) => format!("window of {seconds}"),
        Measure::Quota(quota) => quota.to_string(),
    };
    let counter = format!("{measure} {}", limited.key.to_text());
    let digest = digest(&SHA256, counter.as_bytes());
    let first = digest.as_ref().first_chunk().copied();
    u64::from_le_bytes(first.unwrap_or_default())
}
