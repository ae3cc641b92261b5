//! The window on what is under way: when an answer can be expected in time.

mod distance;
#[cfg(test)]
mod tests;

use self::distance::Distance;
use crate::lock::unpoisoned;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// The weight of a call that carries one row.
const CALL: u32 = 8;

/// The weight of each further subject of a call, with one row.
const SUBJECT: u32 = 4;

/// The assumed cost of a call for the server until answers have told, in nanoseconds.
const USUAL_COST: f64 = 20_000.0;

/// The bounds of what a call is taken to cost, in nanoseconds.
const COSTS: (f64, f64) = (2_000.0, 20_000_000.0);

/// Roughly the number of answers that make the estimate of the cost.
const MEMORY: f64 = 256.0;

/// How many times its estimated cost an answer can add to what the server was busy, and how much of
/// it waits for the answers that follow, in nanoseconds.
const MOST_AT_ONCE: f64 = 4.0;
const MOST_UNBOOKED: f64 = 100_000_000.0;

/// A shorter queue is not told from noise.
const NOISE: Duration = Duration::from_micros(500);

/// The calls under way on a store's connection, and the times of the last answers: so that a call
/// which cannot be answered in time is known before it is sent.
///
/// The model is a server at some distance that does one call after another. Its distance is what an
/// answer takes that finds no queue; the cost of a call is what passes between two answers while
/// there is one. Both are learnt from every answer. Holds no clock: the caller says what time it
/// is.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    /// How long a call is waited for at most; twice that where others were to be done before it.
    deadline: Duration,
}

#[derive(Debug)]
struct State {
    /// The connection that all this is about.
    connection: u64,
    calls: VecDeque<Flight>,
    /// The number of the first of them.
    first: u64,
    /// Calls that somebody waits for.
    awaited: usize,
    /// The weight of all calls whose answer is still to come.
    weight: u64,
    distance: Distance,
    /// How long answers take at present, queue included: rises at once and falls soon.
    lately: Duration,
    /// Nanoseconds in which the server was busy, and the weight of what it did in them.
    busy: f64,
    done: f64,
    /// Nanoseconds of that which are still to be booked.
    unbooked: f64,
    /// When the server will have done what is under way, by the time at which it was sent.
    busy_until: Option<Instant>,
    last_answer: Option<Instant>,
}

#[derive(Debug)]
struct Flight {
    fate: Fate,
    weight: u32,
    sent_at: Option<Instant>,
    /// From then on it is taken for given up. Whoever waits for it is not driven any more.
    expires_at: Option<Instant>,
    /// The queue that it was expected to find.
    queue: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Awaited,
    /// Nobody waits for the answer any more, which is still to come.
    GivenUp,
    Over,
}

/// What a call carries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallSize {
    pub(crate) subjects: usize,
    /// Of all subjects.
    pub(crate) rows: usize,
}

/// A call's place among those that are under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct CallPlace {
    pace: Arc<Pace>,
    connection: u64,
    number: u64,
    weight: u32,
    is_queued: bool,
}

/// No answer can be expected in time.
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
            lately: Duration::ZERO,
            busy: PRIOR * USUAL_COST,
            done: PRIOR * f64::from(CALL),
            unbooked: 0.0,
            busy_until: None,
            last_answer: None,
        }
    }
}

impl Pace {
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            state: Mutex::default(),
            deadline,
        }
    }

    /// A place for a call of this size, unless its answer would come later than
    /// `within`. A call is sent in any case when nothing is under way: otherwise nobody would find
    /// out that the server has become faster.
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

    /// A place whether or not an answer can be expected in time.
    pub(super) fn insist(self: &Arc<Self>, size: CallSize, now: Instant) -> CallPlace {
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
            number: state.begin(weight, now, expires_at),
            connection: state.connection,
            pace: Arc::clone(self),
            weight,
        }
    }

    /// Whether any answer has come in time since then, or so long before.
    pub(super) fn answered_since(&self, time: Instant, before: Duration) -> bool {
        let counts = |at: Instant| at.checked_add(before).is_none_or(|at| at > time);
        self.lock().last_answer.is_some_and(counts)
    }

    /// How long the answer to a call would take that is sent now: the distance and the queue that
    /// the server has before it, but no less than answers take at present.
    pub(super) fn expected(&self, now: Instant) -> Duration {
        let mut state = self.lock();
        state.expire(now);
        state.expected(CALL, now).max(state.lately)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

impl CallPlace {
    /// The call is sent now over this connection, which took `opening` to make. A call that waited
    /// for the connection must have room on it, if the answer is to come `within` a time.
    pub(super) fn send(
        &mut self,
        connection: u64,
        opening: Duration,
        now: Instant,
        within: Option<Duration>,
    ) -> Result<(), Full> {
        let pace = Arc::clone(&self.pace);
        let mut state = pace.lock();
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
            let expires_at = now.checked_add(pace.deadline + pace.deadline / 4);
            self.number = state.begin(self.weight, now, expires_at);
        }
        if let Some(call) = state.call(self.number) {
            call.sent_at = Some(now);
        }
        Ok(())
    }

    /// Whether it is one among the calls of this window.
    pub(super) fn is_in(&self, pace: &Arc<Pace>) -> bool {
        Arc::ptr_eq(&self.pace, pace)
    }

    /// Whether others were to be done before it, as it was entered.
    pub(super) const fn is_queued(&self) -> bool {
        self.is_queued
    }

    /// The answer has come.
    pub(super) fn answered(&self, now: Instant) {
        let mut state = self.pace.lock();
        if state.connection == self.connection {
            state.answered(self.number, now);
        }
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        let mut state = self.pace.lock();
        if state.connection == self.connection {
            state.give_up(self.number);
        }
    }
}

impl CallSize {
    /// One subject, with one row.
    pub(crate) const ONE: Self = Self {
        subjects: 1,
        rows: 1,
    };

    fn weight(self) -> u32 {
        let Self { subjects, rows } = self;
        let more = |count: usize, less: usize| {
            u32::try_from(count.saturating_sub(less)).unwrap_or(u32::MAX)
        };
        let further = more(subjects, 1).saturating_mul(SUBJECT);
        more(rows, subjects)
            .saturating_add(further)
            .saturating_add(CALL)
    }
}

impl State {
    fn call(&mut self, number: u64) -> Option<&mut Flight> {
        let at = number.checked_sub(self.first)?;
        self.calls.get_mut(usize::try_from(at).ok()?)
    }

    fn begin(&mut self, weight: u32, now: Instant, expires_at: Option<Instant>) -> u64 {
        let queue = self.backlog(now) + self.time_of(u64::from(weight));
        self.busy_until = now.checked_add(queue);
        self.weight += u64::from(weight);
        self.awaited += 1;
        self.calls.push_back(Flight {
            fate: Fate::Awaited,
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
        // Without a queue the distance alone says no more than that it may be close.
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

    /// The work that the server still has before a call that is sent now.
    fn backlog(&self, now: Instant) -> Duration {
        self.busy_until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// How long the server has not been seen to do anything, although it has something to do.
    fn late_by(&self, now: Instant) -> Duration {
        let oldest = self.calls.front();
        let oldest = oldest.filter(|call| call.fate == Fate::Awaited);
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
        if call.fate != Fate::Awaited {
            // The answer may have been there for long, and nobody looked.
            return self.end(number);
        }
        let (weight, expected_queue) = (call.weight, call.queue);
        let took = call.sent_at.map(|at| now.saturating_duration_since(at));
        self.end(number);
        self.end_given_up_before(number);
        let Some(took) = took else { return };
        self.lately = took.max(self.lately - self.lately.saturating_sub(took) / 8);
        let noise = (self.distance.get() / 16).clamp(NOISE, NOISE * 4);
        let found_none = expected_queue <= 2 * self.time_of(u64::from(weight));
        self.distance = self.distance.learn(took, expected_queue, found_none);
        let queue = took.saturating_sub(self.distance.get());
        if queue >= noise {
            self.learn_cost(weight, queue, now);
        } else {
            self.unbooked = 0.0;
            if expected_queue >= 2 * noise {
                // The call was done sooner than it was thought to be.
                self.busy *= 0.98;
            }
            let left = now.checked_add(self.time_of(self.weight));
            self.busy_until = self.busy_until.min(left);
        }
        self.last_answer = Some(now);
    }

    /// The call has found a queue, so the server was busy since the answer before.
    fn learn_cost(&mut self, weight: u32, queue: Duration, now: Instant) {
        let gap = self
            .last_answer
            .map_or(queue, |last| now.saturating_duration_since(last).min(queue));
        // Answers that this process reads late come in one go, after one long gap: it is theirs
        // together, so it is booked little by little.
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

    /// Gives up those whose time is over: nobody does it whose runtime is not driven.
    fn expire(&mut self, now: Instant) {
        let is_over = |call: &&Flight| call.expires_at.is_some_and(|at| at <= now);
        let over = self.calls.iter().take_while(is_over).count() as u64;
        for number in self.first..self.first + over {
            self.give_up(number);
        }
    }

    fn give_up(&mut self, number: u64) {
        let Some(call) = self.call(number) else {
            return;
        };
        if call.fate != Fate::Awaited {
            return;
        }
        if call.sent_at.is_none() {
            return self.end(number);
        }
        call.fate = Fate::GivenUp;
        self.awaited -= 1;
    }

    fn end(&mut self, number: u64) {
        let Some(call) = self.call(number) else {
            return;
        };
        let (weight, fate) = (call.weight, call.fate);
        call.fate = Fate::Over;
        if fate != Fate::Over {
            self.weight -= u64::from(weight);
        }
        if fate == Fate::Awaited {
            self.awaited -= 1;
        }
        while self
            .calls
            .front()
            .is_some_and(|call| call.fate == Fate::Over)
        {
            self.calls.pop_front();
            self.first += 1;
        }
    }

    /// The server answers in order, so what was sent before and is not waited for any more has been
    /// answered, too.
    fn end_given_up_before(&mut self, number: u64) {
        while self.first < number
            && let Some(Flight {
                fate: Fate::GivenUp,
                ..
            }) = self.calls.front()
        {
            self.end(self.first);
        }
    }
}
