//! Requests that wait in a queue, in the time of the log.

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
use tower_ratelimit::clock::{ManualClock, Timestamp};

/// Futures whose timers run in the time of the log: a paused runtime, which advances from timer to
/// timer.
pub(crate) struct RequestQueue<T> {
    runtime: Runtime,
    clock: ManualClock,
    waiting: JoinSet<Completed<T>>,
    start: Start,
}

/// A completed request.
#[derive(Debug)]
pub(crate) struct Completed<T> {
    pub(crate) result: T,
    /// When it arrived and when it completed, in microseconds since 1970.
    pub(crate) arrived: u64,
    pub(crate) ended: u64,
}

/// An instant of the runtime, and the log's time at that instant.
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

impl<T: Send + 'static> RequestQueue<T> {
    pub(crate) fn new(clock: &ManualClock) -> std::io::Result<Self> {
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

    /// Starts a request that arrives at this time; `None` if it has to wait.
    pub(crate) fn start<F>(&mut self, at: u64, result: F) -> Option<Completed<T>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut result: Pin<Box<F>> = Box::pin(result);
        let entered = self.runtime.enter();
        if self.waiting.is_empty() {
            self.start = Start(Instant::now(), at);
        }
        self.clock.set(Timestamp::from_micros(at));
        let polled = result
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        if let Poll::Ready(result) = polled {
            return Some(Completed {
                result,
                arrived: at,
                ended: at,
            });
        }
        let (clock, start) = (self.clock.clone(), self.start);
        let waits = async move {
            let result = poll_fn(|cx| {
                clock.set(Timestamp::from_micros(start.now()));
                result.as_mut().poll(cx)
            });
            Completed {
                result: result.await,
                arrived: at,
                ended: start.now(),
            }
        };
        self.waiting.spawn_on(waits, self.runtime.handle());
        None
    }

    /// Advances the waiting requests to this time of the log, or to their end.
    pub(crate) fn advance(
        &mut self,
        until: Option<u64>,
        mut on_completed: impl FnMut(Completed<T>),
    ) {
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
                        Some(ended) => ended.into_iter().for_each(&mut on_completed),
                        None => return Poll::Ready(()),
                    }
                }
                end.as_mut().poll(cx)
            })
            .await;
        });
    }
}

impl<T> fmt::Debug for RequestQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestQueue")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}
