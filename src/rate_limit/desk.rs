//! Desks: admissions for those who find a request's key and cost by themselves.

use std::{sync::Arc, time::Duration};

use http::{StatusCode, request::Parts, response};

#[cfg(feature = "redis")]
use super::reservation::spawn;
use super::{
    admission::{Admission, Unasked, Unsettled},
    demand::{Course, DIRECT, Demand, DemandRef},
    follow_up::{First, FollowUp},
    reservation::Reservation,
    settings::{FinalCost, Settings},
    wait::{LongestOf, NamedLines, WaitingRoom},
};
use crate::{
    decision::{ChargeEnd, Decision},
    error::LimiterError,
    headers::Headers,
    key::{Global, Key},
    limiter::{Limiter, Pending, Tier},
    middleware::key_rules::NotCounted,
    observe::Observer,
    reject::Reject,
};

/// An admission of limits that were chosen for a request.
pub(crate) struct Desk<L, R> {
    admission: Arc<Admission<L, R>>,
    /// Tells the lines of requests that wait here from those of other desks.
    line: Tier,
}

/// A desk's answer to a request, which then [goes its way](super::ResponseFuture::answered).
pub(crate) struct DeskAnswer<L: Limiter, R, B>(pub(super) DeskStep<L, R, B>);

pub(super) enum DeskStep<L: Limiter, R, B> {
    Passes(FollowUp<L, R>),
    Rejected(http::Response<B>),
    Open(Unsettled<L::Future>, Arc<Admission<L, R>>),
    Unasked(Unasked, Arc<Admission<L, R>>),
}

/// The settings of a desk.
pub(crate) struct DeskTerms {
    pub(crate) headers: Headers,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) expose_decision: bool,
    pub(crate) grpc: bool,
    pub(crate) shadow: bool,
    pub(crate) counts: Option<CountedResponses>,
    pub(crate) room: DeskRoom,
    /// Which denied requests wait.
    pub(crate) wait: Option<Wait>,
}

/// Which responses count.
pub(crate) enum CountedResponses {
    OfOne(Arc<dyn Fn(StatusCode) -> bool + Send + Sync>),
    OfEach(Arc<dyn Fn(StatusCode, usize) -> ChargeEnd + Send + Sync>),
}

/// The room in which the denied requests of several desks wait.
#[derive(Clone)]
pub(crate) struct DeskRoom(WaitingRoom);

/// How long a denied request waits.
pub(crate) struct Wait {
    pub(crate) longest: Duration,
    /// By the denial, where that differs.
    pub(crate) of_denial: Option<LongestOf>,
    /// For each limit the name of its lines, and the longest wait in them.
    pub(crate) lines: Vec<(String, Option<Duration>)>,
}

/// A request that only a shadow decides about, until its response is there.
pub(crate) struct Watched<L: Limiter, R>(WatchedCharge<L, R>);

enum WatchedCharge<L: Limiter, R> {
    Here(Box<Reservation<L, R>>),
    #[cfg(feature = "redis")]
    OnItsWay(tokio::sync::oneshot::Sender<StatusCode>),
}

impl DeskRoom {
    pub(crate) fn new() -> Self {
        Self(WaitingRoom::new())
    }
}

impl<L: Limiter, R> Desk<L, R> {
    pub(crate) fn new(limiter: L, rejection: Arc<R>, terms: DeskTerms) -> Self {
        // The key is found elsewhere.
        let mut settings = Settings::new(Global);
        settings.front.headers = terms.headers;
        settings.front.observer = terms.observer;
        settings.front.shadow = terms.shadow;
        settings.front.grpc = terms.grpc;
        settings.expose_decision = terms.expose_decision;
        settings.final_cost = terms.counts.map(FinalCost::from);
        let mut line = Tier::DEFAULT;
        settings.waiting_room = terms.room.0;
        if let Some(wait) = terms.wait {
            let names: Vec<&str> = wait.lines.iter().map(|(name, _)| &**name).collect();
            line = Tier::named_owned(names.join(" "));
            let room = &mut settings.waiting_room;
            room.longest = Some(wait.longest);
            room.longest_of = wait.of_denial;
            let named = wait.lines.into_iter().map(|(name, longest)| NamedLines {
                name: Tier::named_owned(name),
                longest,
            });
            room.named = named.collect();
        }
        Self {
            admission: Arc::new(Admission::new(Arc::new(limiter), rejection, settings)),
            line,
        }
    }

    fn demand<'a>(&'a self, key: &'a Key, cost: u64) -> DemandRef<'a> {
        Demand {
            key,
            tier: &self.line,
            cost,
            asked_at: self.admission.responder().start(),
        }
    }

    /// Asks the limiter about a request.
    #[inline]
    pub(crate) fn ask<B: 'static>(
        &self,
        key: &Key,
        cost: u64,
        parts: &mut Parts,
    ) -> DeskAnswer<L, R, B>
    where
        R: Reject<B>,
    {
        self.ask_about(self.demand(key, cost), parts)
    }

    /// Asks the limiter about a request that costs each of several limits so much.
    pub(crate) fn ask_at_each<B: 'static>(
        &self,
        key: &Key,
        costs: Box<[u64]>,
        parts: &mut Parts,
    ) -> DeskAnswer<L, R, B>
    where
        R: Reject<B>,
    {
        let most = costs.iter().copied().max().unwrap_or(0);
        if costs.iter().all(|cost| *cost == most) {
            return self.ask(key, most, parts);
        }
        let tier = self.line.with_costs(costs);
        let demand = Demand {
            tier: &tier,
            ..self.demand(key, most)
        };
        self.ask_about(demand, parts)
    }

    #[inline]
    fn ask_about<B: 'static>(&self, demand: DemandRef<'_>, parts: &mut Parts) -> DeskAnswer<L, R, B>
    where
        R: Reject<B>,
    {
        if self.admission.may_stand(demand) {
            return self.unasked(Unasked::InLine(demand.keep()));
        }
        DeskAnswer(match First::ask(demand, &self.admission, parts) {
            First::Passes(follow_up) => DeskStep::Passes(follow_up),
            First::Rejected(response) => DeskStep::Rejected(response),
            First::Open(open) => DeskStep::Open(open, Arc::clone(&self.admission)),
        })
    }

    /// The answer to a request that is not counted.
    #[cold]
    pub(crate) fn exempt<B>(&self, why: NotCounted) -> DeskAnswer<L, R, B> {
        self.unasked(self.admission.exempt(why))
    }

    #[cold]
    fn unasked<B>(&self, why: Unasked) -> DeskAnswer<L, R, B> {
        DeskAnswer(DeskStep::Unasked(why, Arc::clone(&self.admission)))
    }

    /// Decides about a request in the shadow, which never holds it up.
    pub(crate) fn watch(&self, key: &Key, cost: u64) -> Option<Watched<L, R>>
    where
        R: Send + Sync + 'static,
    {
        let demand = self.demand(key, cost);
        match self.admission.ask(demand) {
            Pending::Ready(answer) => {
                let reservation = hear(&self.admission, answer, demand)?;
                Some(Watched(WatchedCharge::Here(reservation)))
            }
            Pending::Later(answer) => Self::watch_later(&self.admission, answer, demand.keep()),
        }
    }

    #[cfg(feature = "redis")]
    fn watch_later(
        admission: &Arc<Admission<L, R>>,
        answer: L::Future,
        demand: Demand,
    ) -> Option<Watched<L, R>>
    where
        R: Send + Sync + 'static,
    {
        let admission = Arc::clone(admission);
        let (sender, status) = tokio::sync::oneshot::channel();
        spawn(async move {
            let reservation = hear(&admission, answer.await, demand.as_ref());
            if let (Some(reservation), Ok(status)) = (reservation, status.await) {
                reservation.settle_apart(&parts_of(status));
            }
        });
        Some(Watched(WatchedCharge::OnItsWay(sender)))
    }

    /// Nothing has to be waited for without Redis.
    #[cfg(not(feature = "redis"))]
    #[allow(clippy::needless_pass_by_value, reason = "as its twin")]
    fn watch_later(_: &Arc<Admission<L, R>>, _: L::Future, _: Demand) -> Option<Watched<L, R>> {
        None
    }
}

/// Tells the observer of a shadow's decision; what remains to be corrected by the response.
fn hear<L: Limiter, R>(
    admission: &Arc<Admission<L, R>>,
    answer: Result<Decision, LimiterError>,
    demand: DemandRef<'_>,
) -> Option<Box<Reservation<L, R>>> {
    let course: &Course = &DIRECT;
    let mut decision = admission.judge(answer).ok()?;
    admission.passes(&mut decision, demand, course);
    let corrects = admission.corrects() && decision.is_allowed();
    corrects.then(|| Box::new(Reservation::new(admission, decision, demand, false)))
}

impl<L: Limiter, R: Send + Sync + 'static> Watched<L, R> {
    /// Corrects what was charged, by the response.
    pub(crate) fn settle(self, status: StatusCode) {
        match self.0 {
            WatchedCharge::Here(reservation) => reservation.settle_apart(&parts_of(status)),
            #[cfg(feature = "redis")]
            WatchedCharge::OnItsWay(sender) => drop(sender.send(status)),
        }
    }
}

/// The head of a response of which the status is all that counts.
fn parts_of(status: StatusCode) -> response::Parts {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = status;
    parts
}

impl From<CountedResponses> for FinalCost {
    fn from(counts: CountedResponses) -> Self {
        match counts {
            CountedResponses::OfOne(counts) => {
                Self::Told(Arc::new(
                    move |response, units| if counts(response.status) { units } else { 0 },
                ))
            }
            CountedResponses::OfEach(settled) => {
                Self::OfEach(Arc::new(move |response, at| settled(response.status, at)))
            }
        }
    }
}
