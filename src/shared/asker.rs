//! The asker: sends calls by the quotas in force, and caches denials.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    backend::{Client, DecideCall},
    batching::{CallSender, Row, SubjectAnswer, SubjectOps},
    deny_cache::{self, AnsweredCall, DenyCache},
    lease::DenialKind,
    ledger::{LeaseHolder, Ledger, Letter, SentMessage},
    subject::{SubjectName, SubjectPlace},
    wire::{
        arguments::{Plan, ReplyForm, TierPlan},
        call::Call,
        reply,
    },
};
use crate::{
    clock::Timestamp,
    decision::{Decision, Op, Policy},
    limiter::tier_set::{Chosen, TierSet},
    store::{call_size::CallSize, error::StoreError, key_name},
};

/// The quotas in force, and where they are counted.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) plan: Plan,
    /// The beginning of all subjects' keys.
    pub(super) keyspace: String,
    /// How many times the quotas have been changed.
    pub(super) generation: u64,
}

/// Asks the server, and remembers its denials.
pub(super) struct Asker<C> {
    pub(super) client: Arc<C>,
    pub(super) denials: Option<Arc<DenyCache>>,
    /// How long a denial without a lease stays cached at most.
    pub(super) longest_denial: Duration,
    pub(super) ledger: Option<Arc<Ledger<Current>>>,
}

impl Current {
    pub(super) fn new<C: Client>(
        client: &C,
        name: &str,
        limits: &TierSet,
        generation: u64,
    ) -> Self {
        let plan = Plan::new(limits);
        client.prepare(&plan);
        Self {
            keyspace: key_name::keyspace(client.prefix(), name, plan.id()),
            plan,
            generation,
        }
    }

    /// How the quotas stand of a subject that was never seen.
    pub(super) fn fresh(&self, chosen: Chosen, time: Timestamp) -> Option<Decision> {
        self.answer(chosen, &[(Op::Peek(1), 1)], time)
    }

    /// What such a subject is told.
    fn answer(&self, chosen: Chosen, rows: &[(Op, usize)], time: Timestamp) -> Option<Decision> {
        let applied = Call::new(&self.plan, chosen, rows).apply(None, time).ok()?;
        let plan = self.plan.of(chosen)?;
        let answered = reply::of_store(&applied.reply, &plan, (1, false)).ok()?;
        answered.rows.into_iter().next().map(|row| row.first)
    }

    /// How long it takes at most until a subject that was used is as if it had never been.
    pub(super) fn longest_memory(&self) -> Duration {
        let of_tier = |tier| {
            let rows = [(Op::Hit(u64::MAX), 1)];
            let used = self.answer(Chosen::Tier(tier), &rows, Timestamp::default())?;
            used.quotas().filter_map(|quota| quota.reset_after()).max()
        };
        let longest = (0..self.plan.tier_count()).filter_map(of_tier).max();
        // A bucket can owe as much again.
        longest.unwrap_or(Duration::MAX).saturating_mul(2)
    }

    pub(super) fn policies(&self, chosen: Chosen) -> Vec<Policy> {
        let plan = self.plan.of(chosen);
        plan.map(|plan| plan.policies.clone()).unwrap_or_default()
    }
}

impl<C: Client> Asker<C> {
    /// The message about its lease that goes with each question; none at all in strict mode.
    fn letters(
        &self,
        current: &Arc<Current>,
        chosen: Chosen,
        questions: &[SubjectOps],
        now: Instant,
    ) -> Vec<Letter> {
        let Some(ledger) = &self.ledger else {
            return Vec::new();
        };
        let most = current.plan.most_units(chosen);
        let letter = |question: &SubjectOps| {
            let holder = LeaseHolder {
                tag: question.subject.tag(),
                chosen,
                generation: current.generation,
            };
            let place = || SubjectPlace {
                subject: question.subject.clone(),
                plan: Arc::clone(current),
            };
            let takes = question.most_taken(most);
            ledger.message((holder, takes), (place, most), now)
        };
        questions.iter().map(letter).collect()
    }

    /// Applies the answer to a question, which this letter was attached to.
    fn note(
        &self,
        call: &AnsweredCall,
        letter: &Letter,
        plan: &TierPlan,
        rows: &[(Op, usize)],
        answer: &mut SubjectAnswer,
    ) {
        let now = Instant::now();
        let ledger = self.ledger.as_deref();
        let returns = rows.iter().any(|(op, _)| deny_cache::may_end_denials(op));
        let mut own = 0;
        match (letter, ledger) {
            (Letter::Sent(message), Some(ledger)) => {
                own = self.receive((ledger, message), call, (plan, rows), answer, now);
            }
            (Letter::UnderWay, Some(ledger)) => {
                own = ledger.held(LeaseHolder {
                    tag: call.subject,
                    chosen: call.tier,
                    generation: call.generation,
                });
                self.learn(call, (rows, answer), |_| Duration::ZERO, now);
            }
            _ => {
                let hold = answer.as_ref().ok().and_then(|answer| answer.hold);
                let longest = self.longest_denial;
                let hold = |decision: &mut Decision| {
                    deny_cache::hold_without_lease(decision, hold).min(longest)
                };
                self.learn(call, (rows, answer), hold, now);
            }
        }
        if let Some(ledger) = ledger.filter(|_| returns) {
            ledger.end_pauses(call.subject);
        }
        raise(answer, own);
    }

    /// Applies the reply to a message. Returns the units held that its decisions count as used.
    fn receive(
        &self,
        (ledger, message): (&Ledger<Current>, &SentMessage),
        call: &AnsweredCall,
        (plan, rows): (&TierPlan, &[(Op, usize)]),
        answer: &mut SubjectAnswer,
        now: Instant,
    ) -> u64 {
        let answered = answer.as_ref().ok();
        let Some((answered, reply)) =
            answered.and_then(|answered| Some((answered, *answered.lease.as_deref()?)))
        else {
            ledger.lose(message, now);
            self.learn(call, (rows, answer), |_| Duration::ZERO, now);
            return 0;
        };
        let last = answered.rows.last();
        let last = last.map(|row| row.first.nth_alike(row.count as u64 - 1));
        let own = ledger.receive(message, &reply, last.as_ref(), now);
        let hold = |decision: &mut Decision| {
            let (place, _) = decision.binding_place();
            let kind = match plan.measures.get(place).map(|quota| quota.form) {
                Some(ReplyForm::Level(_) | ReplyForm::Stepped(_)) => DenialKind::Bucket,
                Some(ReplyForm::Window | ReplyForm::Numbers) | None => DenialKind::Window,
            };
            ledger.hold(&reply, decision, kind)
        };
        self.learn(call, (rows, answer), hold, now);
        own
    }

    /// Caches the denials of an answer, each for the time that `hold` returns. Without an answer drops
    /// those that the call may have ended.
    fn learn(
        &self,
        call: &AnsweredCall,
        (rows, answer): (&[(Op, usize)], &mut SubjectAnswer),
        hold: impl Fn(&mut Decision) -> Duration,
        now: Instant,
    ) {
        let Some(denials) = &self.denials else { return };
        match answer {
            Ok(answer) => {
                let decisions = decisions(rows, &mut answer.rows);
                let held = decisions.map(|(op, decision)| {
                    let hold = hold(decision);
                    (op, &*decision, hold)
                });
                denials.learn(call, held, now);
            }
            Err(_) if rows.iter().any(|(op, _)| deny_cache::may_end_denials(op)) => {
                denials.forget(call.subject, now);
            }
            Err(_) => {}
        }
    }
}

/// Reports units that this node holds as left.
fn raise(answer: &mut SubjectAnswer, units: u64) {
    let rows = answer.as_mut().map(|answer| &mut answer.rows);
    for row in rows.into_iter().flatten() {
        row.first.raise(units);
    }
}

/// The decisions of an answer, one for each row, with their operations. A row of the answer lies within
/// one row of the question.
fn decisions<'a>(
    rows: &'a [(Op, usize)],
    answers: &'a mut [Row],
) -> impl Iterator<Item = (&'a Op, &'a mut Decision)> {
    let mut rows = rows.iter();
    let mut current: Option<(&Op, usize)> = None;
    answers.iter_mut().map_while(move |row| {
        let (op, left) = match current {
            Some((op, left)) if left > 0 => (op, left),
            _ => rows.next().map(|(op, count)| (op, *count))?,
        };
        current = Some((op, left.saturating_sub(row.count)));
        Some((op, &mut row.first))
    })
}

impl<C: Client> CallSender<Current> for Asker<C> {
    type Place = C::Place;

    fn most_subjects(&self) -> usize {
        self.client.most_subjects()
    }

    fn expect(&self, subject: &SubjectName, waiting: usize) -> Result<(), StoreError> {
        self.client.expect(subject, waiting)
    }

    fn enter(
        &self,
        first: &SubjectName,
        size: CallSize,
        within: Duration,
    ) -> Result<Self::Place, StoreError> {
        self.client.enter(first, size, within)
    }

    async fn send(
        &self,
        place: C::Place,
        current: &Arc<Current>,
        tier: Chosen,
        questions: &[SubjectOps],
    ) -> Vec<SubjectAnswer> {
        let Some(plan) = current.plan.of(tier) else {
            let error = StoreError::foreign("there is no such tier");
            return questions.iter().map(|_| Err(error.clone())).collect();
        };
        let asked_at = Instant::now();
        let letters = self.letters(current, tier, questions, asked_at);
        let call = DecideCall {
            plan: &current.plan,
            chosen: tier,
            tier: &plan,
            questions,
            letters: &letters,
        };
        let mut answers = self.client.decide(place, call).await;
        for (at, (question, answer)) in questions.iter().zip(&mut answers).enumerate() {
            let call = AnsweredCall {
                subject: question.subject.tag(),
                tier,
                at: asked_at,
                generation: current.generation,
            };
            let letter = letters.get(at).unwrap_or(&Letter::None);
            self.note(&call, letter, &plan, &question.rows, answer);
        }
        answers
    }

    fn is_simple(
        &self,
        current: &Current,
        tier: Chosen,
        subject: &SubjectName,
        op: &Op,
        now: Instant,
    ) -> bool {
        self.client.is_simple(&current.plan, tier, subject, op, now)
    }

    fn expected(&self) -> Option<Duration> {
        self.client.expected()
    }

    fn deadline(&self) -> Duration {
        self.client.deadline()
    }
}
