//! An inquiry: the calls that it takes to answer some questions.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    arguments::{Asking, TierPlan},
    coalesce::{SubjectAnswer, SubjectOps},
    ledger::Letter,
    rare_values::RareValues,
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
    pub(super) rare_values: &'a RareValues,
}

/// A question, and what goes with it about a lease.
#[derive(Clone, Copy)]
struct Lettered<'a> {
    question: &'a SubjectOps,
    letter: &'a Letter,
}

impl Inquiry<'_> {
    /// The answer to each question. Those that are simple are asked of the script that knows few
    /// operations, and of the general one if it cannot tell.
    pub(super) async fn answers(
        &self,
        place: CallPlace,
        questions: &[SubjectOps],
        letters: &[Letter],
    ) -> Vec<SubjectAnswer> {
        let asked_at = Instant::now();
        let questions = questions.iter().enumerate().map(|(at, question)| Lettered {
            question,
            letter: letters.get(at).unwrap_or(&Letter::None),
        });
        let questions: Vec<_> = questions.collect();
        // The scripts for few operations do not know values with leases.
        let is_simple = |asked: &Lettered<'_>| {
            asked.question.are_simple && matches!(asked.letter, Letter::None)
        };
        let are_simple = questions.iter().all(is_simple);
        let script = self.plan.lone_script().filter(|_| are_simple);
        let script = script.unwrap_or(&DECIDE);
        let replies = self.run(place, script, &questions).await;
        let replies = replies.into_iter().map(Result::transpose);
        let mut replies: Vec<Option<SubjectAnswer>> = replies.collect();
        let told = replies.iter().zip(&questions);
        let unknown = told.filter(|(reply, _)| reply.is_none());
        let unknown: Vec<_> = unknown.map(|(_, asked)| *asked).collect();
        if !unknown.is_empty() {
            let places = replies.iter_mut().filter(|reply| reply.is_none());
            for (place, reply) in places.zip(self.again(asked_at, &unknown).await) {
                *place = reply.transpose();
            }
        }
        let answers = replies.into_iter();
        answers
            .map(|reply| reply.unwrap_or_else(|| Err(reply::strange())))
            .collect()
    }

    /// Asks the general script what another did not know, and has it asked at once from now on.
    async fn again(&self, asked_at: Instant, questions: &[Lettered<'_>]) -> Vec<SubjectReply> {
        let now = Instant::now().into_std();
        for asked in questions {
            self.rare_values.note(&asked.question.subject, now);
        }
        let deadline = self.store.deadline();
        // Somebody else may have decided before the next answer.
        if asked_at.elapsed() > deadline / 2 {
            return fail(questions, &StoreError::timeout(deadline));
        }
        match self.place_for(questions) {
            Ok(place) => self.run(place, &DECIDE, questions).await,
            Err(error) => fail(questions, &error),
        }
    }

    fn place_for(&self, questions: &[Lettered<'_>]) -> Result<CallPlace, StoreError> {
        let rows = questions.iter().map(|asked| asked.question.rows.len());
        let size = CallSize {
            subjects: questions.len(),
            rows: rows.sum(),
        };
        let first = questions.first().map(|asked| &*asked.question.subject);
        let first = first.unwrap_or_default().as_bytes();
        self.store.enter(first, size, self.store.deadline())
    }

    async fn run(
        &self,
        place: CallPlace,
        script: &Script,
        questions: &[Lettered<'_>],
    ) -> Vec<SubjectReply> {
        match self.call(place, script, questions).await {
            Ok(replies) => replies,
            // Behind this address there is more than one server, and nothing was done.
            Err(error) if error.names_many_servers() && questions.len() > 1 => {
                self.store.travel_alone();
                let each = questions.chunks(1).map(async |one| {
                    let replies = self.call(self.place_for(one)?, script, one).await;
                    replies?.pop().unwrap_or_else(|| Err(reply::strange()))
                });
                join_all(each).await
            }
            Err(error) => fail(questions, &error),
        }
    }

    async fn call(
        &self,
        place: CallPlace,
        script: &Script,
        questions: &[Lettered<'_>],
    ) -> Result<Vec<SubjectReply>, StoreError> {
        let keys = questions
            .iter()
            .map(|asked| asked.question.subject.as_bytes());
        let keys: Vec<_> = keys.collect();
        let asking = questions.iter().map(|asked| Asking {
            rows: asked.question.rows.as_slice(),
            lease: asked.letter.message().map(|message| &message.clause),
        });
        let asking: Vec<_> = asking.collect();
        let arguments = self.plan.arguments_of(script, self.now, &asking);
        let call = self.store.call_in(place, script, &keys, &arguments);
        let reply = call.await?;
        let ops = questions.iter();
        let ops = ops.map(|asked| (asked.question.ops(), asked.letter.message().is_some()));
        let ops: Vec<_> = ops.collect();
        Ok(reply::subjects(&reply, self.plan, &ops))
    }
}

fn fail(questions: &[Lettered<'_>], error: &StoreError) -> Vec<SubjectReply> {
    questions.iter().map(|_| Err(error.clone())).collect()
}
