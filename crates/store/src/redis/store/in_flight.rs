//! The calls in flight to a server: a bound on them, and what their responses have shown.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use tower_ratelimit_core::lock::unpoisoned;

/// The most calls in flight, each with up to 32 subjects. Others wait for a place.
const MOST: usize = 64;

/// With so many others in flight a late response may only be waiting behind theirs.
const CROWD: usize = 8;

pub(super) struct InFlight {
    places: Arc<Semaphore>,
    state: Mutex<State>,
    /// The longest wait for a call's response; twice that for a call behind others.
    deadline: Duration,
}

#[derive(Default)]
struct State {
    /// The places that are taken, each with the time from which it is free in any case: nobody
    /// drives its caller's task any more.
    taken: BTreeMap<(Instant, u64), OwnedSemaphorePermit>,
    last: u64,
    /// How long responses take: rises at once and falls soon.
    recent: Duration,
    last_answer: Option<Instant>,
}

/// A call's place among those in flight, until it is dropped.
pub(super) struct CallPlace {
    calls: Arc<InFlight>,
    taken: (Instant, u64),
    /// Whether it may be behind others at the server.
    pub(super) is_queued: bool,
}

impl InFlight {
    pub(super) fn new(deadline: Duration) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(MOST)),
            state: Mutex::default(),
            deadline,
        })
    }

    /// Waits for a place from `now`, within the runtime of the store. `None` if none is free until then, or too
    /// late for a response: a call that waited is behind others at the server, too, so its response
    /// takes as long as theirs.
    pub(super) async fn enter(self: &Arc<Self>, now: Instant, until: Instant) -> Option<CallPlace> {
        // They free their places outside the lock.
        let lost = self.lock().take_expired(now);
        drop(lost);
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            let is_queued = self.places.available_permits() + CROWD < MOST;
            return Some(self.place(permit, now, is_queued));
        }
        // A task, as a caller that nobody drives any more would keep the place that it is given.
        let calls = Arc::clone(self);
        let waiting = tokio::spawn(async move {
            let permit = timeout_at(until, Arc::clone(&calls.places).acquire_owned()).await;
            let permit = permit.ok()?.ok()?;
            let now = Instant::now();
            let is_in_time = now + calls.expected() <= until;
            is_in_time.then(|| calls.place(permit, now, true))
        });
        waiting.await.ok().flatten()
    }

    fn place(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        now: Instant,
        is_queued: bool,
    ) -> CallPlace {
        let most = self.deadline.saturating_mul(if is_queued { 2 } else { 1 });
        let mut state = self.lock();
        state.last += 1;
        let taken = (now + most + self.deadline / 4, state.last);
        state.taken.insert(taken, permit);
        CallPlace {
            calls: Arc::clone(self),
            taken,
            is_queued,
        }
    }

    /// Records the response to a call that was sent at this time.
    pub(super) fn answered(&self, sent_at: Instant) {
        let now = Instant::now();
        let took = now - sent_at;
        let mut state = self.lock();
        state.recent = took.max(state.recent - state.recent.saturating_sub(took) / 8);
        state.last_answer = Some(now);
    }

    /// Whether any response has arrived since `time`, or at most `before` earlier.
    pub(super) fn answered_since(&self, time: Instant, before: Duration) -> bool {
        let answered = self.lock().last_answer;
        answered.is_some_and(|at| at + before > time)
    }

    /// How long a response takes, by the recent ones.
    pub(super) fn expected(&self) -> Duration {
        self.lock().recent
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl State {
    fn take_expired(&mut self, now: Instant) -> Vec<OwnedSemaphorePermit> {
        let mut expired = Vec::new();
        while let Some(first) = self.taken.first_entry()
            && first.key().0 <= now
        {
            expired.push(first.remove());
        }
        expired
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let permit = self.calls.lock().taken.remove(&self.taken);
        drop(permit);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, future::join_all};
    use tokio::time::{advance, sleep};

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(50);

    async fn full() -> (Arc<InFlight>, Vec<CallPlace>) {
        let calls = InFlight::new(DEADLINE);
        let until = Instant::now() + DEADLINE;
        let places = join_all((0..MOST).map(|_| calls.enter(Instant::now(), until))).await;
        (calls, places.into_iter().flatten().collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_beyond_the_bound_waits_for_a_place_until_its_deadline() {
        let (calls, mut places) = full().await;
        assert_eq!(places.len(), MOST);
        assert!(!places[0].is_queued && places[MOST - 1].is_queued);
        let until = Instant::now() + DEADLINE;
        assert!(calls.enter(Instant::now(), until).await.is_none());
        assert_eq!(Instant::now(), until);

        let waiting = tokio::spawn({
            let calls = Arc::clone(&calls);
            async move {
                calls
                    .enter(Instant::now(), Instant::now() + DEADLINE)
                    .await
                    .is_some()
            }
        });
        sleep(DEADLINE / 2).await;
        places.pop();
        assert!(waiting.await.unwrap());
    }

    /// The responses to those in flight take longer than its callers still wait.
    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_free_too_late_for_a_response_is_given_to_the_next() {
        let (calls, mut places) = full().await;
        let sent_at = Instant::now();
        let (first, next) = (sent_at + DEADLINE, sent_at + 2 * DEADLINE);
        let waiting = [first, next].map(|until| {
            let calls = Arc::clone(&calls);
            tokio::spawn(async move { calls.enter(Instant::now(), until).await.is_some() })
        });
        sleep(DEADLINE * 3 / 4).await;
        calls.answered(sent_at);
        places.pop();
        let [first, next] = waiting.map(|one| async { one.await.unwrap() });
        assert_eq!((first.await, next.await), (false, true));
    }

    /// The runtime of the waiting callers is not driven any more.
    #[tokio::test(start_paused = true)]
    async fn a_place_whose_task_is_not_driven_is_free_soon_after_its_deadline() {
        let (calls, lost) = full().await;
        advance(DEADLINE).await;
        assert!(calls.enter(Instant::now(), Instant::now()).await.is_none());
        advance(DEADLINE / 4).await;
        let place = calls
            .enter(Instant::now(), Instant::now())
            .now_or_never()
            .flatten();
        assert!(place.is_some());
        drop(lost);
        drop(place);
        advance(2 * DEADLINE).await;
        assert_eq!(calls.places.available_permits(), MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn the_expected_time_rises_at_once_and_falls_soon() {
        let calls = InFlight::new(DEADLINE);
        let answered = async |after| {
            let sent_at = Instant::now();
            sleep(after).await;
            calls.answered(sent_at);
            calls.expected()
        };
        let (short, long) = (DEADLINE / 50, DEADLINE / 2);
        assert_eq!(answered(short).await, short);
        assert_eq!(answered(long).await, long);
        let mut times = 0;
        while answered(short).await > 2 * short {
            times += 1;
            assert!(times < 32);
        }
    }
}
