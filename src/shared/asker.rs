//! The asker: asks by the quotas in force, and remembers denials.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    arguments::{Plan, TierPlan, Told},
    call::Call,
    coalesce::{AnsweredOps, Ask, Row, SubjectAnswer, SubjectOps},
    deny_cache::{self, AnsweredCall, DenyCache},
    inquiry::Inquiry,
    ledger::{DenialKind, LeaseHolder, LeasePlace, Ledger, Letter, SentMessage},
    nodes_store::NodesStore,
    rare_values::RareValues,
    reply,
    subject::SubjectName,
};
use crate::{
    clock::{Clock, ManualClock, Timestamp},
    decision::{Decision, Op, Policy},
    limiter::limits::{Chosen, Limits},
    redis::{
        key_name,
        store::{
            error::StoreError,
            handle::RedisStore,
            pace::{CallPlace, CallSize},
        },
    },
};

/// The most subjects of one call: more make a decision hardly cheaper, and hold the server up for
/// longer.
const MAX_SUBJECTS: usize = 32;

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
pub(super) struct Asker {
    pub(super) store: NodesStore,
    pub(super) denials: Option<Arc<DenyCache>>,
    pub(super) test_clock: Option<ManualClock>,
    pub(super) ledger: Option<Arc<Ledger<Current>>>,
    pub(super) rare_values: RareValues,
}

impl Current {
    pub(super) fn new(store: &NodesStore, name: &str, limits: &Limits, generation: u64) -> Self {
        let plan = Plan::new(limits);
        if let Some(store) = store.redis() {
            for script in plan.scripts() {
                store.use_script(script);
            }
        }
        Self {
            keyspace: key_name::keyspace(store.prefix(), name, plan.id()),
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

impl Asker {
    fn inquiry<'a>(&'a self, store: &'a RedisStore, plan: &'a TierPlan) -> Inquiry<'a> {
        let clock = self.test_clock.as_ref();
        Inquiry {
            store,
            plan,
            now: clock.map(|clock| clock.now().as_micros()),
            rare_values: &self.rare_values,
        }
    }

    /// Asks a store about each subject in a call of its own.
    async fn ask_each(
        &self,
        current: &Current,
        (tier, plan): (Chosen, &TierPlan),
        questions: &[SubjectOps],
        letters: &[Letter],
    ) -> Vec<SubjectAnswer> {
        let NodesStore::Other(store) = &self.store else {
            return Vec::new();
        };
        let each = questions.iter().enumerate().map(async |(at, question)| {
            let mut call = Call::new(&current.plan, tier, &question.rows);
            let message = letters.get(at).and_then(Letter::message);
            if let Some(message) = message {
                call = call.with_lease(&message.clause);
            }
            let reply = store.call(&question.subject, &call).await?;
            reply::of_store(&reply, plan, (question.ops(), message.is_some()))
        });
        join_all(each).await
    }

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
            let place = || LeasePlace {
                subject: question.subject.clone(),
                plan: Arc::clone(current),
            };
            let takes = question.most_taken(most);
            ledger.message((holder, takes), (place, most), now)
        };
        questions.iter().map(letter).collect()
    }

    /// Learns the answer to a question that this letter went with.
    fn note(
        &self,
        asked: &AnsweredCall<'_>,
        letter: &Letter,
        plan: &TierPlan,
        rows: &[(Op, usize)],
        answer: &mut SubjectAnswer,
    ) {
        let learned = answer.as_mut().ok();
        // The ledger remembers the denials of answers that tell of a lease.
        let learned = learned.filter(|_| matches!(letter, Letter::None));
        self.learn(asked, rows, learned);
        let gives_back = rows.iter().any(|(op, _)| deny_cache::may_end_denials(op));
        if let Some(ledger) = self.ledger.as_ref().filter(|_| gives_back) {
            // Answers to what was asked meanwhile are no longer true either.
            ledger.forget(asked.subject.tag());
        }
        match (letter, &self.ledger) {
            (Letter::UnderWay, Some(ledger)) => {
                let holder = LeaseHolder {
                    tag: asked.subject.tag(),
                    chosen: asked.tier,
                    generation: asked.generation,
                };
                raise(answer, ledger.held(holder));
            }
            (Letter::Sent(message), Some(ledger)) => hear(ledger, message, plan, rows, answer),
            _ => {}
        }
    }

    /// Remembers what was answered, or forgets what a call may have given back about which there is
    /// nothing to be remembered.
    fn learn(
        &self,
        asked: &AnsweredCall<'_>,
        rows: &[(Op, usize)],
        answer: Option<&mut AnsweredOps>,
    ) {
        let Some(denials) = &self.denials else { return };
        let Some(answer) = answer else {
            if rows.iter().any(|(op, _)| deny_cache::may_end_denials(op)) {
                denials.forget(asked.subject, Instant::now().into_std());
            }
            return;
        };
        let hold = answer.hold;
        let asked = AnsweredCall { hold, ..*asked };
        for_each_row(rows, &mut answer.rows, |op, decision| {
            denials.learn(&asked, op, decision);
        });
    }
}

/// Learns the answer to a message about a lease, and holds to the denials that came with it.
fn hear(
    ledger: &Ledger<Current>,
    message: &SentMessage,
    plan: &TierPlan,
    rows: &[(Op, usize)],
    answer: &mut SubjectAnswer,
) {
    let now = Instant::now();
    let answer = answer.as_mut().ok();
    let Some((answered, reply)) =
        answer.and_then(|answer| Some((&mut answer.rows, answer.lease.as_deref()?)))
    else {
        return ledger.lose(message, now);
    };
    let last = answered.last();
    let last = last.map(|row| row.first.nth_alike(row.count as u64 - 1));
    let own = ledger.hear(message, reply, last.as_ref(), now);
    for_each_row(rows, answered, |op, decision| {
        let (place, _) = decision.binding_place();
        let kind = match plan.measures.get(place).map(|quota| quota.told) {
            Some(Told::Level(_) | Told::Stepped(_)) => DenialKind::Bucket,
            Some(Told::Window | Told::Numbers) | None => DenialKind::Window,
        };
        ledger.hold(message, reply, (op, decision), kind);
        decision.raise(own);
    });
}

/// Tells units as left that are leased here.
fn raise(answer: &mut SubjectAnswer, units: u64) {
    let rows = answer.as_mut().map(|answer| &mut answer.rows);
    for row in rows.into_iter().flatten() {
        row.first.raise(units);
    }
}

/// Shows each row of an answer with its operation: it lies within one row of the question.
fn for_each_row(
    rows: &[(Op, usize)],
    answers: &mut [Row],
    mut show: impl FnMut(&Op, &mut Decision),
) {
    let mut answers = answers.iter_mut();
    for (op, count) in rows {
        let mut left = *count;
        while left > 0
            && let Some(row) = answers.next()
        {
            left = left.saturating_sub(row.count);
            show(op, &mut row.first);
        }
    }
}

impl Ask<Current> for Asker {
    type Place = Option<CallPlace>;

    fn most_subjects(&self) -> usize {
        match self.store.may_travel_together() {
            true => MAX_SUBJECTS,
            false => 1,
        }
    }

    fn expect(&self, subject: &SubjectName, waiting: usize) -> Result<(), StoreError> {
        self.store.expect(subject, waiting)
    }

    fn enter(
        &self,
        first: &SubjectName,
        size: CallSize,
        within: Duration,
    ) -> Result<Self::Place, StoreError> {
        self.store.enter(first, size, within)
    }

    async fn ask(
        &self,
        place: Option<CallPlace>,
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
        let mut answers = match (&self.store, place) {
            (NodesStore::Redis(store), Some(place)) => {
                let inquiry = self.inquiry(store, &plan);
                inquiry.answers(place, questions, &letters).await
            }
            _ => {
                self.ask_each(current, (tier, &plan), questions, &letters)
                    .await
            }
        };
        for (at, (question, answer)) in questions.iter().zip(&mut answers).enumerate() {
            let asked = AnsweredCall {
                subject: &question.subject,
                tier,
                at: asked_at.into_std(),
                generation: current.generation,
                hold: None,
            };
            let letter = letters.get(at).unwrap_or(&Letter::None);
            self.note(&asked, letter, &plan, &question.rows, answer);
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
        current.plan.is_simple(tier, op) && !self.rare_values.have(subject, now.into_std())
    }

    fn expected(&self) -> Option<Duration> {
        self.store.expected()
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }
}
