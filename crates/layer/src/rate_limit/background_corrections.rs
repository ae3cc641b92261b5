//! Corrections of charges that no request waits for.

use std::{
    future::{Future, poll_fn},
    sync::Mutex,
    task::{Poll, Waker},
};

use tower_ratelimit_core::lock::unpoisoned;

static UNDER_WAY: Mutex<UnderWay> = Mutex::new(UnderWay {
    count: 0,
    waiting: Vec::new(),
});

struct UnderWay {
    count: usize,
    /// Woken when the count is 0.
    waiting: Vec<Waker>,
}

/// Counts a correction as under way until it drops.
struct Correction;

impl Correction {
    fn begin() -> Self {
        under_way(|this| this.count += 1);
        Self
    }
}

impl Drop for Correction {
    fn drop(&mut self) {
        let woken = under_way(|this| {
            this.count -= 1;
            if this.count == 0 {
                std::mem::take(&mut this.waiting)
            } else {
                Vec::new()
            }
        });
        woken.into_iter().for_each(Waker::wake);
    }
}

fn under_way<T>(change: impl FnOnce(&mut UnderWay) -> T) -> T {
    let mut under_way = unpoisoned(UNDER_WAY.lock());
    change(&mut under_way)
}

/// Runs a correction on the current runtime. Without one it is dropped.
pub(super) fn spawn(correction: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        let counted = Correction::begin();
        runtime.spawn(async move {
            correction.await;
            drop(counted);
        });
    }
}

/// Waits until no correction of a charge is under way in this process.
///
/// A limiter in Redis, or in a store of your own, is charged in the background by what a response used when its body
/// has ended. A process that ends right after its last response may lose that: await this before, with the runtime
/// that served the requests. It takes as long as the limiters' deadlines at most, and nothing if limits count in this
/// process.
///
/// ```no_run
/// # async fn serve() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // Until a signal, with a graceful shutdown.
/// serve().await;
/// tower_ratelimit::rate_limit::settled().await;
/// # }
/// ```
pub async fn settled() {
    poll_fn(|cx| {
        under_way(|this| {
            if this.count == 0 {
                return Poll::Ready(());
            }
            if !this.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                this.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Waker},
    };

    use tokio::sync::oneshot;

    use super::{settled, spawn};

    #[tokio::test]
    async fn end_of_all_corrections_is_awaited_also_of_a_panic() {
        settled().await;
        let (first, until_first) = oneshot::channel::<()>();
        let (second, until_second) = oneshot::channel::<()>();
        spawn(async { drop(until_first.await) });
        spawn(async {
            until_second
                .await
                .expect("it is dropped, and the task panics")
        });
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting = pin!(settled());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(first);
        tokio::task::yield_now().await;
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(second);
        waiting.await;
    }
}
