//! An inquiry: the calls that it takes to answer some questions.

use std::{borrow::Cow, iter};

use futures_util::future::{join, join_all};
use tokio::time::Instant;

use super::{
    arguments::{Asking, TierPlan},
    coalesce::{SubjectAnswer, SubjectOps},
    elsewhere::LeasedElsewhere,
    lease::LeaseClause,
    ledger::Letter,
    reply::{self, SubjectReply},
};
use crate::redis::{
    script::DECIDE,
    store::{
        error::StoreError,
        handle::RedisStore,
        pace::{CallPlace, CallSize},
        script::Script,
    },
};

/// How questions are answered by the quotas of one tier.
pub(super) struct Inquiry<'a> {
    pub(super) store: &'a RedisStore,
    pub(super) plan: &'a TierPlan,
    /// The time in microseconds, if it is not the server's.
    pub(super) now: Option<u64>,
    pub(super) elsewhere: &'a LeasedElsewhere,
}

/// A question, its place among those that were asked, and what is said about a lease.
#[derive(Clone, Copy)]
struct Numbered<'a> {
    at: usize,
    question: &'a SubjectOps,
    letter: &'a Letter,
}

impl<'a> Numbered<'a> {
    fn lease(&self) -> Option<&'a LeaseClause> {
        self.letter.message().map(|message| &message.clause)
    }
}

impl Inquiry<'_> {
    /// The answer to each question. Those that a script for few operations knows are asked of it,
    /// and of the general one if it cannot tell.
    pub(super) async fn answers(
        &self,
        place: CallPlace,
        questions: &[SubjectOps],
        letters: &[Letter],
    ) -> Vec<SubjectAnswer> {
        let asked_at = Instant::now();
        let numbered = questions.iter().enumerate().map(|(at, question)| Numbered {
            at,
            question,
            letter: letters.get(at).unwrap_or(&Letter::None),
        });
        let (simple, others): (Vec<_>, Vec<_>) =
            numbered.partition(|asked| self.is_simple(asked, asked_at));
        let mut again = Vec::new();
        let mut answers: Vec<_> = iter::repeat_with(|| Err(reply::strange()))
            .take(questions.len())
            .collect();
        let replies = self.both(place, &simple, &others).await;
        for (asked, reply) in simple.iter().chain(&others).zip(replies) {
            match reply.transpose() {
                Some(reply) => answers[asked.at] = reply,
                None => again.push(*asked),
            }
        }
        if again.is_empty() {
            return answers;
        }
        for (asked, reply) in again.iter().zip(self.again(asked_at, &again).await) {
            self.elsewhere.note(&asked.question.subject, asked_at);
            answers[asked.at] = reply.and_then(|reply| reply.ok_or_else(reply::strange));
        }
        answers
    }

    /// Whether a script for few operations is to be asked. They know no values with leases.
    fn is_simple(&self, asked: &Numbered<'_>, now: Instant) -> bool {
        let question = asked.question;
        matches!(asked.letter, Letter::None)
            && self.plan.is_simple(&question.rows)
            && !self.elsewhere.knows(&question.subject, now)
    }

    /// The replies to the questions for a script for few operations, then those to the others.
    async fn both(
        &self,
        place: CallPlace,
        simple: &[Numbered<'_>],
        others: &[Numbered<'_>],
    ) -> Vec<SubjectReply> {
        if others.is_empty() {
            return self.simple(place, simple).await;
        }
        if simple.is_empty() {
            return self.general(Ok(place), others).await;
        }
        let general = self.general(self.place_for(others), others);
        let (mut replies, others) = join(self.simple(place, simple), general).await;
        replies.extend(others);
        replies
    }

    /// Asks the general script what another did not know.
    async fn again(&self, asked_at: Instant, questions: &[Numbered<'_>]) -> Vec<SubjectReply> {
        let deadline = self.store.deadline();
        // Somebody else may have decided before the next answer.
        if asked_at.elapsed() > deadline / 2 {
            return fail(questions, &StoreError::timeout(deadline));
        }
        self.general(self.place_for(questions), questions).await
    }

    fn place_for(&self, questions: &[Numbered<'_>]) -> Result<CallPlace, StoreError> {
        let rows = questions.iter().map(|asked| asked.question.rows.len());
        let size = CallSize {
            subjects: questions.len(),
            rows: rows.sum(),
        };
        self.store.enter(size, self.store.deadline())
    }

    async fn simple(&self, place: CallPlace, questions: &[Numbered<'_>]) -> Vec<SubjectReply> {
        let Some(script) = self.plan.lone_script() else {
            return fail(questions, &reply::strange());
        };
        let arguments = |questions: &[Numbered<'_>]| {
            let arguments = self.plan.lone_arguments(self.now, &asking(questions));
            arguments.unwrap_or_default()
        };
        self.run(Ok(place), script, arguments, questions).await
    }

    async fn general(
        &self,
        place: Result<CallPlace, StoreError>,
        questions: &[Numbered<'_>],
    ) -> Vec<SubjectReply> {
        let arguments =
            |questions: &[Numbered<'_>]| self.plan.arguments(self.now, &asking(questions));
        self.run(place, &DECIDE, arguments, questions).await
    }

    async fn run<'p>(
        &'p self,
        place: Result<CallPlace, StoreError>,
        script: &Script,
        arguments: impl Fn(&[Numbered<'_>]) -> Vec<Cow<'p, str>>,
        questions: &[Numbered<'_>],
    ) -> Vec<SubjectReply> {
        match self.call(place, script, &arguments, questions).await {
            Ok(replies) => replies,
            // Behind this address there is more than one server, and nothing was done.
            Err(error) if error.names_many_servers() && questions.len() > 1 => {
                self.store.travel_alone();
                let each = questions.iter().map(async |question| {
                    let one = [*question];
                    let call = self.call(self.place_for(&one), script, &arguments, &one);
                    call.await.and_then(|mut replies| {
                        replies.pop().unwrap_or_else(|| Err(reply::strange()))
                    })
                });
                join_all(each).await
            }
            Err(error) => fail(questions, &error),
        }
    }

    async fn call<'p>(
        &'p self,
        place: Result<CallPlace, StoreError>,
        script: &Script,
        arguments: impl Fn(&[Numbered<'_>]) -> Vec<Cow<'p, str>>,
        questions: &[Numbered<'_>],
    ) -> Result<Vec<SubjectReply>, StoreError> {
        let keys = questions
            .iter()
            .map(|asked| asked.question.subject.as_bytes());
        let keys: Vec<_> = keys.collect();
        let arguments = arguments(questions);
        let reply = self
            .store
            .call_in(place?, script, &keys, &arguments)
            .await?;
        let ops: Vec<_> = questions
            .iter()
            .map(|asked| (asked.question.ops(), asked.lease().is_some()))
            .collect();
        Ok(reply::subjects(&reply, self.plan, &ops))
    }
}

fn asking<'a>(questions: &[Numbered<'a>]) -> Vec<Asking<'a>> {
    let asking = questions.iter().map(|asked| Asking {
        rows: asked.question.rows.as_slice(),
        lease: asked.lease(),
    });
    asking.collect()
}

fn fail(questions: &[Numbered<'_>], error: &StoreError) -> Vec<SubjectReply> {
    questions.iter().map(|_| Err(error.clone())).collect()
}
