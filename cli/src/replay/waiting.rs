//! Requests that wait for their turn, in the time of the log.

use std::{
    fmt,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower_ratelimit::{ManualClock, Timestamp};

/// Futures whose timers go by the time of the log: that of a runtime that is paused, and goes from
/// timer to timer.
pub(super) struct WaitingRequests<T> {
    runtime: Runtime,
    clock: ManualClock,
    waiting: JoinSet<Waited<T>>,
    start: Start,
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Waited<T> {
    pub(super) answer: T,
    /// When it came and when it was answered, in microseconds since 1970.
    pub(super) came: u64,
    pub(super) ended: u64,
}

/// An instant of the runtime, and the time of the log then.
#[derive(Debug, Clone, Copy)]
struct Start(Instant, u64);

impl Start {
    fn instant_of(self, at: u64) -> Instant {
        self.0 + Duration::from_micros(at.saturating_sub(self.1))
    }

    /// The time of the log now, in microseconds.
    fn now(self) -> u64 {
        self.1 + self.0.elapsed().as_micros() as u64
    }
}

impl<T: Send + 'static> WaitingRequests<T> {
    pub(super) fn new(clock: &ManualClock) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let start = {
            let _entered = runtime.enter();
            Start(Instant::now(), 0)
        };
        Ok(Self {
            runtime,
            clock: clock.clone(),
            waiting: JoinSet::new(),
            start,
        })
    }

    /// Asks for the answer to a request that comes at this time; `None` if it has to wait.
    pub(super) fn ask<F>(&mut self, at: u64, answer: F) -> Option<Waited<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut answer: Pin<Box<F>> = Box::pin(answer);
        let entered = self.runtime.enter();
        if self.waiting.is_empty() {
            self.start = Start(Instant::now(), at);
        }
        self.clock.set(Timestamp::from_micros(at));
        let polled = answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        if let Poll::Ready(answer) = polled {
            return Some(Waited {
                answer,
                came: at,
                ended: at,
            });
        }
        let (clock, start) = (self.clock.clone(), self.start);
        let waits = async move {
            let answer = poll_fn(|cx| {
                clock.set(Timestamp::from_micros(start.now()));
                answer.as_mut().poll(cx)
            });
            Waited {
                answer: answer.await,
                came: at,
                ended: start.now(),
            }
        };
        self.waiting.spawn_on(waits, self.runtime.handle());
        None
    }

    /// Lets the requests go on that wait, until this time of the log, or all to their end.
    pub(super) fn go_on(&mut self, until: Option<u64>, mut told: impl FnMut(Waited<T>)) {
        let Self {
            runtime,
            waiting,
            start,
            ..
        } = self;
        if waiting.is_empty() {
            return;
        }
        let start = *start;
        runtime.block_on(async {
            let end = async {
                match until {
                    Some(until) => sleep_until(start.instant_of(until)).await,
                    None => pending().await,
                }
            };
            let mut end = pin!(end);
            poll_fn(|cx| {
                while let Poll::Ready(ended) = waiting.poll_join_next(cx) {
                    match ended {
                        Some(ended) => ended.into_iter().for_each(&mut told),
                        None => return Poll::Ready(()),
                    }
                }
                end.as_mut().poll(cx)
            })
            .await;
        });
    }
}

impl<T> fmt::Debug for WaitingRequests<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRequests")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}
