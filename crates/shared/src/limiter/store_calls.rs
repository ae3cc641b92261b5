//! Calls to the store: attaches the ledger's messages, and applies the answers on this node.

use std::{iter::repeat_n, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    batching::{BatchCall, CallSender, Run, SubjectOps, SubjectResult},
    deny_cache::{self, DenyCache, SentCall},
    last_states::LastStates,
    ledger::{AttachedMessage, Ledger},
    quotas_in_force::{CurrentPlan, KeyPlace},
    store_backend::{Client, DecideCall},
    wire::plan::ReplyPlan,
};
use tower_ratelimit_core::{decision::Op, limiter::tier_set::Chosen};
use tower_ratelimit_store::error::StoreError;

/// Sends calls by the quotas in force, and updates denials and ledger by their answers.
pub(super) struct StoreCalls<C> {
    pub(super) client: Arc<C>,
    pub(super) denials: Option<Arc<DenyCache>>,
    /// The longest time that a denial without a lease stays cached.
    pub(super) longest_denial: Duration,
    pub(super) ledger: Option<Arc<Ledger>>,
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
        denials: &DenyCache,
        (call, plan): (&SentCall, &Arc<ReplyPlan>),
        attached: &AttachedMessage,
        (runs, answer): (&[(Op, usize)], &mut SubjectResult),
        now: Instant,
    ) {
        let answered = answer.as_ref().ok();
        let hold = answered.and_then(|answered| answered.hold);
        let reply = answered.and_then(|answered| answered.lease.as_deref().copied());
        let last = answered.and_then(|answered| answered.runs.last());
        // The node's own units that the store's decisions count as used.
        let own = match (attached, &self.ledger, &reply) {
            (AttachedMessage::Sent(message), Some(ledger), Some(reply)) => {
                ledger.receive(call, (message, reply), last.map(|last| (plan, last)), now)
            }
            (AttachedMessage::Sent(message), Some(ledger), None) => {
                ledger.lose(call, message, now);
                0
            }
            (AttachedMessage::UnderWay, Some(ledger), _) => ledger.held(call.subject),
            _ => 0,
        };
        let hold = |run: &mut Run| match (attached, &self.ledger, &reply) {
            (AttachedMessage::None, ..) | (_, None, _) => {
                deny_cache::hold_without_lease(&run.decision, hold).min(self.longest_denial)
            }
            (_, Some(ledger), Some(reply)) => ledger.hold(reply, (plan, run)),
            _ => Duration::ZERO,
        };
        let returns = runs.iter().any(|(op, _)| op.may_end_denials());
        match answer {
            Ok(answer) => {
                let held = with_ops(runs, &mut answer.runs).map(|(op, run)| {
                    let hold = hold(run);
                    (op, &run.decision, hold)
                });
                denials.learn(call, held, now);
            }
            // The call may have ended them.
            Err(_) if returns => denials.forget(call.subject.tag, now),
            Err(_) => {}
        }
        if let Some(ledger) = self.ledger.as_ref().filter(|_| returns) {
            ledger.end_pauses(call.subject.tag);
        }
        let runs = answer.as_mut().map(|answer| &mut answer.runs);
        for run in runs.into_iter().flatten() {
            LastStates::give_back(plan, run, own);
        }
    }
}

/// A call about one subject, by these quotas, that leaves after `at`.
fn sent_call(ops: &SubjectOps, current: &CurrentPlan, tier: Chosen, at: Instant) -> SentCall {
    let subject = current.measured(ops.subject.tag(), tier);
    SentCall { subject, at }
}

/// The runs of an answer with their operations. Each lies within one run of the call.
fn with_ops<'a>(
    runs: &'a [(Op, usize)],
    answers: &'a mut [Run],
) -> impl Iterator<Item = (&'a Op, &'a mut Run)> {
    let mut ops = runs.iter().flat_map(|(op, count)| repeat_n(op, *count));
    answers.iter_mut().map_while(move |run| {
        let op = ops.next()?;
        ops.by_ref().take(run.count - 1).for_each(drop);
        Some((op, run))
    })
}

impl<C: Client> CallSender<CurrentPlan> for StoreCalls<C> {
    type Window = C;

    fn window(&self) -> &C {
        &self.client
    }

    async fn send(&self, sent: &BatchCall<CurrentPlan>) -> Vec<SubjectResult> {
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
        if let Some(denials) = &self.denials {
            let now = Instant::now();
            for (place, (ops, answer)) in subjects.iter().zip(&mut answers).enumerate() {
                let sent = sent_call(ops, current, sent.tier, sent.at);
                let own = (&*ops.runs, answer);
                self.apply(denials, (&sent, &plan.reply), call.message(place), own, now);
            }
        }
        answers
    }
}
