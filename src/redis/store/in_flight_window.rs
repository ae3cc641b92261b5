//! The window of calls in flight: predicts whether a response arrives in time.

mod base_response_time;
#[cfg(test)]
mod tests;

use self::base_response_time::Distance;
use crate::{
    lock::unpoisoned,
    store::call_size::{CALL, CallSize},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// The assumed cost of a call for the server before any response, in nanoseconds.
const USUAL_COST: f64 = 20_000.0;

/// The bounds of the estimated cost of a call, in nanoseconds.
const COSTS: (f64, f64) = (2_000.0, 20_000_000.0);

/// Roughly the number of responses that the estimate of the cost averages.
const MEMORY: f64 = 256.0;

/// `MOST_AT_ONCE`: how many times its estimated cost one response adds to the busy time at most.
/// `MOST_UNBOOKED`: nanoseconds of the rest that wait for later responses at most.
const MOST_AT_ONCE: f64 = 4.0;
const MOST_UNBOOKED: f64 = 100_000_000.0;

/// A shorter queue cannot be distinguished from noise.
const NOISE: Duration = Duration::from_micros(500);

/// The calls in flight on a connection, and the times of recent responses. Rejects a call before it
/// is sent if its response is expected too late.
///
/// The model is a server at some distance that runs one call after another. The distance is the
/// response time without a queue. The cost of a call is the time between two responses while a
/// queue exists. Every response updates both. Has no clock: each method gets the time as an
/// argument.
#[derive(Debug)]
pub(super) struct InFlightWindow {
    state: Mutex<State>,
    /// The longest wait for a call's response; twice that for a call behind others.
    deadline: Duration,
}

#[derive(Debug)]
struct State {
    /// The number of the connection that the state describes.
    connection: u64,
    calls: VecDeque<InFlightCall>,
    /// The number of the first call in `calls`.
    first: u64,
    /// Number of calls that a caller waits for.
    awaited: usize,
    /// Weight of all calls without a response yet.
    weight: u64,
    distance: Distance,
    /// Recent response time including the queue: rises at once and falls soon.
    recent: Duration,
    /// Nanoseconds in which the server was busy, and the weight that it completed in them.
    busy: f64,
    done: f64,
    /// Nanoseconds of busy time that later responses will add.
    unbooked: f64,
    /// When the server will have completed the calls in flight, by the times at which they were
    /// sent.
    busy_until: Option<Instant>,
    last_answer: Option<Instant>,
}

#[derive(Debug)]
struct InFlightCall {
    state: CallState,
    weight: u32,
    sent_at: Option<Instant>,
    /// From then on the call counts as abandoned: nobody drives its caller's task any more.
    expires_at: Option<Instant>,
    /// The queue expected when the call was sent.
    queue: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    Awaited,
    /// The caller does not wait any more; the response is still to come.
    Abandoned,
    Done,
}

/// A call's place in the window, until it is dropped.
#[derive(Debug)]
pub(crate) struct CallPlace {
    window: Arc<InFlightWindow>,
    connection: u64,
    number: u64,
    weight: u32,
    is_queued: bool,
    /// When the last caller stops waiting for the response, if that is known.
    pub(super) needed_until: Option<Instant>,
}

/// The response would be too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Default for State {
    fn default() -> Self {
        const PRIOR: f64 = 32.0;
        Self {
            connection: 0,
            calls: VecDeque::new(),
            first: 0,
            awaited: 0,
            weight: 0,
            distance: Distance::Guessed(Duration::ZERO),
            recent: Duration::ZERO,
            busy: PRIOR * USUAL_COST,
            done: PRIOR * f64::from(CALL),
            unbooked: 0.0,
            busy_until: None,
            last_answer: None,
        }
    }
}

impl InFlightWindow {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            state: Mutex::default(),
            deadline,
        }
    }

    /// Reserves a place for a call of this size, unless its response is expected later than
    /// `within`. With no call in flight the place is always granted: otherwise the window would
    /// never learn that the server has become faster.
    pub(super) fn enter(
        self: &Arc<Self>,
        size: CallSize,
        now: Instant,
        within: Duration,
    ) -> Result<CallPlace, Full> {
        let weight = size.weight();
        let mut state = self.lock();
        if !state.has_room(weight, now, within) {
            return Err(Full);
        }
        Ok(self.place(&mut state, weight, now))
    }

    /// Reserves a place even if no response is expected in time.
    pub(super) fn enter_unchecked(self: &Arc<Self>, size: CallSize, now: Instant) -> CallPlace {
        let mut state = self.lock();
        self.place(&mut state, size.weight(), now)
    }

    /// Whether a call of this size would get a place.
    pub(super) fn has_room(&self, size: CallSize, now: Instant, within: Duration) -> bool {
        self.lock().has_room(size.weight(), now, within)
    }

    fn place(self: &Arc<Self>, state: &mut State, weight: u32, now: Instant) -> CallPlace {
        let is_queued = state.backlog(now) >= NOISE;
        let most = self.deadline.saturating_mul(if is_queued { 2 } else { 1 });
        let expires_at = now.checked_add(most + self.deadline / 4);
        CallPlace {
            is_queued,
            needed_until: None,
            number: state.begin(weight, now, expires_at),
            connection: state.connection,
            window: Arc::clone(self),
            weight,
        }
    }

    /// Whether any response has arrived since `time`, or at most `before` earlier.
    pub(super) fn answered_since(&self, time: Instant, before: Duration) -> bool {
        let counts = |at: Instant| at.checked_add(before).is_none_or(|at| at > time);
        self.lock().last_answer.is_some_and(counts)
    }

    /// The expected response time of a call that is sent now: the distance and the server's queue,
    /// but no less than recent response times.
    pub(super) fn expected(&self, now: Instant) -> Duration {
        let mut state = self.lock();
        state.expire(now);
        state.expected(CALL, now).max(state.recent)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl CallPlace {
    /// Records that the call is sent now over this connection, which took `opening` to open. Fails
    /// if the response is expected later than `within`: the call may have waited long for the
    /// connection.
    pub(super) fn send(
        &mut self,
        connection: u64,
        opening: Duration,
        now: Instant,
        within: Option<Duration>,
    ) -> Result<(), Full> {
        let window = Arc::clone(&self.window);
        let mut state = window.lock();
        if connection > state.connection {
            *state = State {
                connection,
                distance: Distance::Guessed(opening / 2),
                ..State::default()
            };
        }
        if self.connection != state.connection {
            if within.is_some_and(|within| !state.has_room(self.weight, now, within)) {
                return Err(Full);
            }
            self.connection = state.connection;
            let expires_at = now.checked_add(window.deadline + window.deadline / 4);
            self.number = state.begin(self.weight, now, expires_at);
        }
        if let Some(call) = state.call(self.number) {
            call.sent_at = Some(now);
        }
        Ok(())
    }

    /// Whether the place is in this window.
    pub(super) fn is_in(&self, window: &Arc<InFlightWindow>) -> bool {
        Arc::ptr_eq(&self.window, window)
    }

    /// Whether other calls were in flight when the place was reserved.
    pub(super) const fn is_queued(&self) -> bool {
        self.is_queued
    }

    /// Records the response.
    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.window.lock();
        if state.connection == self.connection {
            state.answered(self.number, now);
        }
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let mut state = self.window.lock();
        if state.connection == self.connection {
            state.abandon(self.number);
        }
    }
}

impl State {
    fn call(&mut self, number: u64) -> Option<&mut InFlightCall> {
        let at = number.checked_sub(self.first)?;
        self.calls.get_mut(usize::try_from(at).ok()?)
    }

    fn begin(&mut self, weight: u32, now: Instant, expires_at: Option<Instant>) -> u64 {
        let queue = self.backlog(now) + self.time_of(u64::from(weight));
        self.busy_until = now.checked_add(queue);
        self.weight += u64::from(weight);
        self.awaited += 1;
        self.calls.push_back(InFlightCall {
            state: CallState::Awaited,
            weight,
            sent_at: None,
            expires_at,
            queue,
        });
        self.first + self.calls.len() as u64 - 1
    }

    fn has_room(&mut self, weight: u32, now: Instant, within: Duration) -> bool {
        self.expire(now);
        let queue = self.backlog(now) + self.late_by(now);
        let is_idle = self.awaited == 0 && queue.is_zero();
        // Without a queue the distance alone shows no more than that the response may just be in
        // time.
        let may_be_close = queue < NOISE && self.distance.get() <= within + within / 8;
        is_idle || may_be_close || self.expected(weight, now) <= within
    }

    fn expected(&self, weight: u32, now: Instant) -> Duration {
        let work = self.time_of(u64::from(weight));
        self.distance.get() + self.backlog(now) + work + self.late_by(now)
    }

    fn time_of(&self, weight: u64) -> Duration {
        let (least, most) = COSTS;
        let unit = f64::from(CALL);
        let cost = (self.busy / self.done * unit).clamp(least, most);
        Duration::from_nanos((weight as f64 * cost / unit) as u64)
    }

    /// The work queued before a call that is sent now.
    fn backlog(&self, now: Instant) -> Duration {
        self.busy_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// How long the response to the oldest call is overdue.
    fn late_by(&self, now: Instant) -> Duration {
        let oldest = self.calls.front();
        let oldest = oldest.filter(|call| call.state == CallState::Awaited);
        let Some(sent_at) = oldest.and_then(|call| call.sent_at) else {
            return Duration::ZERO;
        };
        let due = sent_at
            .checked_add(self.distance.get())
            .max(self.last_answer);
        let late = due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due));
        if late < NOISE { Duration::ZERO } else { late }
    }

    fn answered(&mut self, number: u64, now: Instant) {
        let Some(call) = self.call(number) else {
            return;
        };
        if call.state != CallState::Awaited {
            // The response may have arrived long ago, unread.
            return self.end(number);
        }
        let (weight, expected_queue) = (call.weight, call.queue);
        let took = call.sent_at.map(|at| now.saturating_duration_since(at));
        self.end(number);
        self.end_abandoned_before(number);
        let Some(took) = took else { return };
        self.recent = took.max(self.recent - self.recent.saturating_sub(took) / 8);
        let noise = (self.distance.get() / 16).clamp(NOISE, NOISE * 4);
        let found_none = expected_queue <= 2 * self.time_of(u64::from(weight));
        self.distance = self.distance.learn(took, expected_queue, found_none);
        let queue = took.saturating_sub(self.distance.get());
        if queue >= noise {
            self.learn_cost(weight, queue, now);
        } else {
            self.unbooked = 0.0;
            if expected_queue >= 2 * noise {
                // The call ended sooner than estimated.
                self.busy *= 0.98;
            }
            let left = now.checked_add(self.time_of(self.weight));
            self.busy_until = self.busy_until.min(left);
        }
        self.last_answer = Some(now);
    }

    /// Learns from a call that was queued: the server was busy since the response before.
    fn learn_cost(&mut self, weight: u32, queue: Duration, now: Instant) {
        let gap = self
            .last_answer
            .map_or(queue, |last| now.saturating_duration_since(last).min(queue));
        // This process may read responses late and many at once, after a gap. The gap belongs to
        // all of them, so each adds only a part of it.
        let most = MOST_AT_ONCE * self.time_of(u64::from(weight)).as_nanos() as f64;
        let waiting = (self.unbooked + gap.as_nanos() as f64).min(MOST_UNBOOKED);
        let booked = waiting.min(most);
        self.unbooked = waiting - booked;
        let keep = 1.0 - 1.0 / MEMORY;
        self.busy = self.busy * keep + booked;
        self.done = self.done * keep + f64::from(weight);
        let left = self.time_of(self.weight);
        self.busy_until = now.checked_add(left.saturating_sub(self.distance.get()));
    }

    /// Abandons calls whose time is over: a caller whose runtime is not driven does not do so.
    fn expire(&mut self, now: Instant) {
        let is_over = |call: &&InFlightCall| call.expires_at.is_some_and(|at| at <= now);
        let over = self.calls.iter().take_while(is_over).count() as u64;
        for number in self.first..self.first + over {
            self.abandon(number);
        }
    }

    fn abandon(&mut self, number: u64) {
        let Some(call) = self.call(number) else {
            return;
        };
        if call.state != CallState::Awaited {
            return;
        }
        if call.sent_at.is_none() {
            return self.end(number);
        }
        call.state = CallState::Abandoned;
        self.awaited -= 1;
    }

    fn end(&mut self, number: u64) {
        let Some(call) = self.call(number) else {
            return;
        };
        let (weight, state) = (call.weight, call.state);
        call.state = CallState::Done;
        if state != CallState::Done {
            self.weight -= u64::from(weight);
        }
        if state == CallState::Awaited {
            self.awaited -= 1;
        }
        while self
            .calls
            .front()
            .is_some_and(|call| call.state == CallState::Done)
        {
            self.calls.pop_front();
            self.first += 1;
        }
    }

    /// Ends abandoned calls before this one. The server responds in order, so their responses have
    /// arrived.
    fn end_abandoned_before(&mut self, number: u64) {
        while self.first < number
            && let Some(InFlightCall {
                state: CallState::Abandoned,
                ..
            }) = self.calls.front()
        {
            self.end(self.first);
        }
    }
}
