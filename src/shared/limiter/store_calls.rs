//! Calls to the store: attaches the ledger's messages, and applies the answers on this node.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::quotas_in_force::CurrentPlan;
use crate::{
    decision::Op,
    limiter::tier_set::Chosen,
    shared::{
        batching::{BatchCall, CallSender, Row, SubjectAnswer, SubjectOps},
        deny_cache::{self, DenyCache, SentCall},
        hashed_key_names::KeyPlace,
        known::Known,
        ledger::{AttachedMessage, Ledger},
        store_backend::{Client, DecideCall},
        wire::{node_message::NodeMessage, plan::ReplyPlan},
    },
    store::error::StoreError,
};

/// Sends calls by the quotas in force, and updates denials and ledger by their answers.
pub(super) struct StoreCalls<C> {
    pub(super) client: Arc<C>,
    pub(super) denials: Option<Arc<DenyCache>>,
    /// The longest time that a denial without a lease stays cached.
    pub(super) longest_denial: Duration,
    pub(super) ledger: Option<Arc<Ledger<CurrentPlan>>>,
}

impl<C: Client> StoreCalls<C> {
    /// The ledger's message for each subject of a call; an empty list in strict mode.
    fn messages(&self, sent: &BatchCall<CurrentPlan>) -> Vec<AttachedMessage> {
        let Some(ledger) = &self.ledger else {
            return Vec::new();
        };
        let (current, tier) = (&sent.plan, sent.tier);
        let most = current.plan.most_units(tier);
        let message = |ops: &SubjectOps| {
            let place = || KeyPlace {
                key: ops.subject[current.keyspace.len()..].into(),
                plan: Arc::clone(current),
            };
            let takes = ops.most_taken(most);
            let call = sent_call(ops, current, tier, sent.at);
            ledger.message((&call, takes), (place, most))
        };
        sent.subjects.iter().map(message).collect()
    }

    /// Applies the answer about one subject to denials and ledger. `attached` is the message that
    /// the call carried.
    fn apply(
        &self,
        (call, plan): (&SentCall, &Arc<ReplyPlan>),
        attached: &AttachedMessage,
        (rows, answer): (&[(Op, usize)], &mut SubjectAnswer),
        now: Instant,
    ) {
        let ledger = self.ledger.as_deref();
        let returns = rows.iter().any(|(op, _)| deny_cache::may_end_denials(op));
        let mut own = 0;
        match (attached, ledger) {
            (AttachedMessage::Sent(message), Some(ledger)) => {
                own = self.apply_reply((ledger, message), (call, plan), (rows, answer), now);
            }
            (AttachedMessage::UnderWay, Some(ledger)) => {
                own = ledger.held(call.subject);
                self.cache_denials(call, (rows, answer), |_| Duration::ZERO, now);
            }
            _ => {
                let hold = answer.as_ref().ok().and_then(|answer| answer.hold);
                let longest = self.longest_denial;
                let hold = |row: &mut Row| {
                    deny_cache::hold_without_lease(&row.decision, hold).min(longest)
                };
                self.cache_denials(call, (rows, answer), hold, now);
            }
        }
        if let Some(ledger) = ledger.filter(|_| returns) {
            ledger.end_pauses(call.subject.tag);
        }
        let rows = answer.as_mut().map(|answer| &mut answer.rows);
        for row in rows.into_iter().flatten() {
            Known::give_back(plan, row, own);
        }
    }

    /// Applies the reply to a message. Returns the node's own units that the store's decisions
    /// count as used.
    fn apply_reply(
        &self,
        (ledger, message): (&Ledger<CurrentPlan>, &NodeMessage),
        (call, plan): (&SentCall, &Arc<ReplyPlan>),
        (rows, answer): (&[(Op, usize)], &mut SubjectAnswer),
        now: Instant,
    ) -> u64 {
        let answered = answer.as_ref().ok();
        let Some((answered, reply)) =
            answered.and_then(|answered| Some((answered, *answered.lease.as_deref()?)))
        else {
            ledger.lose(call, message, now);
            self.cache_denials(call, (rows, answer), |_| Duration::ZERO, now);
            return 0;
        };
        let last = answered.rows.last().map(|last| (plan, last));
        let own = ledger.receive(call, (message, &reply), last, now);
        let hold = |row: &mut Row| ledger.hold(&reply, (plan, row));
        self.cache_denials(call, (rows, answer), hold, now);
        own
    }

    /// Caches the denials of an answer, each for the time that `hold` returns.
    /// After an error drops the cached denials that the call may have ended.
    fn cache_denials(
        &self,
        call: &SentCall,
        (rows, answer): (&[(Op, usize)], &mut SubjectAnswer),
        hold: impl Fn(&mut Row) -> Duration,
        now: Instant,
    ) {
        let Some(denials) = &self.denials else { return };
        match answer {
            Ok(answer) => {
                let held = with_ops(rows, &mut answer.rows).map(|(op, row)| {
                    let hold = hold(row);
                    (op, &row.decision, hold)
                });
                denials.learn(call, held, now);
            }
            Err(_) if rows.iter().any(|(op, _)| deny_cache::may_end_denials(op)) => {
                denials.forget(call.subject.tag, now);
            }
            Err(_) => {}
        }
    }
}

/// A call about one subject, by these quotas, that leaves after `at`.
fn sent_call(ops: &SubjectOps, current: &CurrentPlan, tier: Chosen, at: Instant) -> SentCall {
    let subject = current.measured(ops.subject.tag(), tier);
    SentCall { subject, at }
}

/// The rows of an answer with their operations. Each lies within one row of the call.
fn with_ops<'a>(
    rows: &'a [(Op, usize)],
    answers: &'a mut [Row],
) -> impl Iterator<Item = (&'a Op, &'a mut Row)> {
    let mut rows = rows.iter();
    let mut current: Option<(&Op, usize)> = None;
    answers.iter_mut().map_while(move |row| {
        let (op, left) = match current {
            Some((op, left)) if left > 0 => (op, left),
            _ => rows.next().map(|(op, count)| (op, *count))?,
        };
        current = Some((op, left.saturating_sub(row.count)));
        Some((op, row))
    })
}

impl<C: Client> CallSender<CurrentPlan> for StoreCalls<C> {
    type Window = C;

    fn window(&self) -> &C {
        &self.client
    }

    async fn send(&self, sent: &BatchCall<CurrentPlan>) -> Vec<SubjectAnswer> {
        let (current, subjects) = (&sent.plan, &*sent.subjects);
        let Some(plan) = current.plan.of(sent.tier) else {
            let error = StoreError::foreign("there is no such tier");
            return subjects.iter().map(|_| Err(error.clone())).collect();
        };
        let messages = self.messages(sent);
        let call = DecideCall {
            plan: &current.plan,
            chosen: sent.tier,
            tier: &plan,
            subjects,
            at: sent.at,
            until: sent.last_deadline(),
            messages: &messages,
        };
        let mut answers = self.client.decide(call).await;
        // Without cached denials there is no ledger either, and nothing to learn from answers.
        if self.denials.is_some() {
            let now = Instant::now();
            for (place, (ops, answer)) in subjects.iter().zip(&mut answers).enumerate() {
                let sent = sent_call(ops, current, sent.tier, sent.at);
                let own = (&*ops.rows, answer);
                self.apply((&sent, &plan.reply), call.message(place), own, now);
            }
        }
        answers
    }
}
