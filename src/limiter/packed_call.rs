//! Goes with the step "callers pass lists of charges": makes the charges of a tier that carries terms, costs and a class,
//! and of a key that carries several.

use std::{iter, time::Duration};

use super::{
    call::{Call, Charge, OpRef},
    tier::Tier,
};
use crate::{
    decision::{LimitReceipt, Op, Receipt, of_other_limits},
    error::LimiterError,
    key::{joint::JointParts, value::Key},
    small_list::SmallList,
};

/// The number of limits in most calls.
const FEW_LIMITS: usize = 4;

/// Applies `ops`, one or one for each key in `key`, for a request whose wait has ended `late` ago.
#[inline]
pub(super) fn apply<T>(
    tier: &Tier,
    key: &Key,
    ops: &[Op],
    late: Duration,
    call: impl FnOnce(&Call<'_>) -> T,
) -> Result<T, LimiterError> {
    match ops {
        [op] if !key.is_joint() && !tier.has_terms_or_costs() => {
            let charge = Charge::new(key, op.as_ref());
            let charge = charge.tier(tier.of_all_classes()).class(tier.priority());
            Ok(call(&Call::of(&[charge]).late(late)))
        }
        _ => apply_unpacked(tier, key, ops, late, call),
    }
}

#[inline(never)]
fn apply_unpacked<T>(
    tier: &Tier,
    key: &Key,
    ops: &[Op],
    late: Duration,
    call: impl FnOnce(&Call<'_>) -> T,
) -> Result<T, LimiterError> {
    let keys: SmallList<Option<(usize, Key)>, FEW_LIMITS> = match key.joint_parts() {
        Some(parts) => present(parts).map(Some).collect(),
        None => iter::once(Some((0, key.clone()))).collect(),
    };
    let keys = keys.as_slice();
    let own = ops_of_each(tier, ops, keys, key.is_joint())?;
    let [Some((_, first)), ..] = keys else {
        return Ok(call(&Call::of(&[])));
    };
    let terms = tier.terms();
    let all = Charge::new(first, ops[0].as_ref()).tier(tier.of_all_classes());
    let mut charges = SmallList::<_, FEW_LIMITS>::filled(keys.len(), all.class(tier.priority()));
    let keys = keys.iter().flatten().enumerate();
    for (charge, (at, (place, key))) in charges.as_mut_slice().iter_mut().zip(keys) {
        (charge.limit, charge.key) = (*place, key);
        if let Some(terms) = terms {
            let tier = &terms.tiers[*place];
            (charge.tier, charge.class) = (tier.of_all_classes(), tier.priority());
        }
        if let Some(own) = &own {
            charge.op = own[at].as_ref();
        }
    }
    Ok(call(&Call::of(charges.as_slice()).late(late)))
}

fn present(parts: JointParts<'_>) -> impl Iterator<Item = (usize, Key)> {
    let parts = parts.enumerate();
    parts.filter_map(|(place, bytes)| Some((place, Key::from_bytes(bytes?))))
}

/// The operation on each limit that has a key, if it is not the same for all.
fn ops_of_each(
    tier: &Tier,
    ops: &[Op],
    keys: &[Option<(usize, Key)>],
    is_joint: bool,
) -> Result<Option<Vec<Op>>, LimiterError> {
    let places = keys.iter().flatten().map(|(place, _)| *place);
    if let [op] = ops {
        return Ok(match receipts_of_each(op.as_ref(), keys.len(), is_joint)? {
            Some(receipts) => {
                let own = receipts.iter();
                Some(own.map(|of| op.with_receipt(of.receipt.clone())).collect())
            }
            None if !tier.divides(op) => None,
            None => Some(places.map(|place| tier.op_of_member(place, op)).collect()),
        });
    }
    if ops.len() != keys.len() {
        return Err(wrong_count(ops.len(), keys.len()));
    }
    let own = places.zip(ops);
    Ok(Some(
        own.map(|(place, op)| tier.own_op_of_member(place, op))
            .collect(),
    ))
}

fn receipts_of_each(
    op: OpRef<'_>,
    count: usize,
    is_joint: bool,
) -> Result<Option<&[LimitReceipt]>, LimiterError> {
    match op.receipt().map(Receipt::of_each) {
        Some(Some(receipts)) if receipts.len() == count && is_joint => Ok(Some(receipts)),
        Some(Some(_)) if !is_joint => Ok(None),
        Some(None) if count == 1 => Ok(None),
        None => Ok(None),
        _ => Err(of_other_limits()),
    }
}

#[cold]
fn wrong_count(ops: usize, limits: usize) -> LimiterError {
    LimiterError::unsupported(match limits {
        1 => format!("{ops} operations for 1 limit: pass one"),
        _ => format!(
            "{ops} operations for a key of {limits} limits: pass one for each; `Op::Refund(0, None)` \
             does nothing"
        ),
    })
}
