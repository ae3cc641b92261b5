//! Limiters that are called from many runtimes, from some that nobody drives, and from none.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use testkit::{AGE, child_processes::eventually, needs};
use tokio::runtime::{Builder, Handle, Runtime};
use tower_ratelimit::{
    Decision, Key, OnFailure, Quota, RedisLimiter, RedisStore, limiter::JointLimiter,
};

use crate::servers::{Cluster, PRIMARY_NAME, Sentinels, Server};

/// Longer than a busy machine takes for all that a call does.
const PATIENCE: Duration = Duration::from_secs(10);

const THREADS: usize = 4;
const EACH: usize = 50;

/// A server, and a runtime that drives nothing but the test's own questions to it.
struct Bed {
    runtime: Runtime,
    server: Server,
    limiter: RedisLimiter,
}

impl Bed {
    fn new(limit: u64) -> Self {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Server::start());
        let store = RedisStore::builder().deadline(PATIENCE);
        let store = store.connect_timeout(PATIENCE);
        let store = store.connect(&server.url()).unwrap();
        let quota = Quota::per(limit, AGE).fixed_window();
        let limiter = RedisLimiter::builder(quota)
            .on_failure(OnFailure::local())
            .remember_denials(false)
            .build(&store)
            .unwrap();
        Self {
            runtime,
            server,
            limiter,
        }
    }
}

fn single_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Waits for a future on a thread that has nothing of tokio's.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Has several threads take from one key and from keys of their own. Redis decides about every
/// unit, and half of the shared key's are allowed.
fn all_are_decided_by_redis(take: impl Fn(&RedisLimiter, Key) -> Decision + Sync) {
    let limit = (THREADS * EACH / 2) as u64;
    let bed = Bed::new(limit);
    let (allowed, degraded) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |decision: &Decision| {
        degraded.fetch_add(usize::from(decision.is_degraded()), Ordering::Relaxed);
        usize::from(decision.is_allowed())
    };
    thread::scope(|scope| {
        for one in 0..THREADS {
            let (bed, take, count, allowed) = (&bed, &take, &count, &allowed);
            scope.spawn(move || {
                for at in 0..EACH {
                    let shared = take(&bed.limiter, Key::from("shared"));
                    allowed.fetch_add(count(&shared), Ordering::Relaxed);
                    count(&take(&bed.limiter, Key::from(format!("own {one}"))));
                    // Nobody drives this thread's runtime meanwhile.
                    if at % 10 == one {
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            });
        }
    });
    assert_eq!(
        degraded.into_inner(),
        0,
        "{:?}",
        bed.limiter.store().stats()
    );
    assert_eq!(allowed.into_inner() as u64, limit);
}

#[test]
fn each_thread_has_a_runtime() {
    needs!(redis);
    thread_local!(static OWN: Runtime = single_threaded());
    all_are_decided_by_redis(|limiter, key| {
        OWN.with(|own| own.block_on(async { limiter.acquire(&key, 1).await }))
            .unwrap()
    });
}

#[test]
fn each_request_has_a_runtime() {
    needs!(redis);
    all_are_decided_by_redis(|limiter, key| {
        let own = single_threaded();
        own.block_on(async { limiter.acquire(&key, 1).await })
            .unwrap()
    });
}

/// As the threads of a pool for computations do it: one runtime is entered, and nobody drives it.
#[test]
fn a_pool_of_threads_shares_a_runtime_that_nobody_drives() {
    needs!(redis);
    let shared = single_threaded();
    let handle = shared.handle().clone();
    all_are_decided_by_redis(move |limiter, key| {
        handle
            .block_on(async { limiter.acquire(&key, 1).await })
            .unwrap()
    });
}

#[test]
fn several_threads_drive_one_runtime_by_turns() {
    needs!(redis);
    let shared = single_threaded();
    all_are_decided_by_redis(move |limiter, key| {
        shared
            .block_on(async { limiter.acquire(&key, 1).await })
            .unwrap()
    });
}

#[test]
fn there_is_no_runtime() {
    needs!(redis);
    all_are_decided_by_redis(|limiter, key| {
        assert!(Handle::try_current().is_err());
        block_on(async { limiter.acquire(&key, 1).await }).unwrap()
    });
}

#[test]
fn several_runtimes_of_several_threads() {
    needs!(redis);
    let runtimes: Vec<_> = (0..2)
        .map(|_| Builder::new_multi_thread().enable_all().build().unwrap())
        .collect();
    let turn = AtomicUsize::new(0);
    all_are_decided_by_redis(|limiter, key| {
        let runtime = &runtimes[turn.fetch_add(1, Ordering::Relaxed) % runtimes.len()];
        runtime
            .block_on(async { limiter.acquire(&key, 1).await })
            .unwrap()
    });
}

/// The second request is denied by one limit, and given back to the other: also when nobody waits.
#[test]
fn limits_that_are_charged_together_need_no_runtime() {
    needs!(redis);
    let bed = Bed::new(1_000);
    let strict = RedisLimiter::builder(Quota::per(1, AGE).fixed_window().named("strict"));
    let strict = strict.remember_denials(false);
    let strict = strict.build(bed.limiter.store()).unwrap();
    let both = JointLimiter::new([strict, bed.limiter.clone()]).unwrap();
    let key = Key::from("a");
    let keys = [key.clone(), key.clone()];
    let take = || both.acquire_all(&keys, 1);
    assert!(block_on(async { take().await }).unwrap().is_allowed());
    assert!(block_on(async { take().await }).unwrap().is_denied());
    let mut noop = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        let mut lost = Box::pin(take().into_future());
        // The store's own thread may answer before the poll ends.
        if let Poll::Ready(decision) = lost.as_mut().poll(&mut noop) {
            assert!(decision.unwrap().is_denied());
        }
    }
    let left = || block_on(async { bed.limiter.peek(&key, 1).await.unwrap().remaining() });
    let is_given_back = (0..1_000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        left() == Some(999)
    });
    assert!(is_given_back, "{:?}", left());
}

#[test]
fn a_cluster_and_sentinels_need_no_runtime() {
    needs!(redis);
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let cluster = runtime.block_on(Cluster::start());
    let sentinels = runtime.block_on(Sentinels::start(0));
    let builder = || {
        let builder = RedisStore::builder().deadline(PATIENCE);
        builder.connect_timeout(PATIENCE)
    };
    let stores = [
        builder().cluster(cluster.urls()).unwrap(),
        builder().sentinel(sentinels.urls(), PRIMARY_NAME).unwrap(),
    ];
    for store in stores {
        let builder = RedisLimiter::builder(Quota::per(1_000, AGE));
        let limiter = builder.on_failure(OnFailure::allow()).build(&store);
        let limiter = limiter.unwrap();
        for key in 0..16_u64 {
            let take = async { limiter.acquire(&Key::from(key), 1).await.unwrap() };
            assert!(!block_on(take).is_degraded(), "{:?}", store.stats());
        }
        block_on(store.check()).unwrap();
    }
    drop((cluster, sentinels));
}

/// A runtime must not be dropped within another one, and nobody waits there for the thread to end.
#[tokio::test]
async fn a_store_whose_last_handle_is_dropped_within_a_runtime_ends() {
    needs!(redis);
    let server = Server::start().await;
    let connections = async || {
        let info = server.info("clients").await;
        info["connected_clients"].parse::<u32>().unwrap()
    };
    let before = connections().await;
    for is_waited_for in [true, false] {
        let store = RedisStore::builder().deadline(Duration::from_secs(20));
        let store = store.connect(&server.url()).unwrap();
        store.check().await.unwrap();
        let limiter = RedisLimiter::builder(Quota::per(1_000, AGE)).build(&store);
        let limiter = limiter.unwrap();
        let requested = limiter.acquire(&Key::from("a"), 1).into_future();
        drop((limiter, store));
        if is_waited_for {
            requested.await.unwrap();
        } else {
            drop(requested);
        }
        let is_closed = async || (connections().await == before).then_some(());
        eventually("the end of the connection", is_closed).await;
    }
}

/// Keeps the thread that wakes it.
struct Blocks {
    entered: mpsc::Sender<()>,
    released: Mutex<mpsc::Receiver<()>>,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.entered.send(()).ok();
        self.released.lock().unwrap().recv().ok();
    }
}

/// A waker stops the store's thread. What waits there meanwhile is decided without Redis, and not sent afterwards.
#[test]
fn a_blocked_home_sends_nothing_late_and_goes_on() {
    needs!(redis);
    let bed = Bed::new(1_000);
    let deadline = Duration::from_millis(50);
    let store = RedisStore::builder().deadline(deadline);
    let store = store.connect(&bed.server.url()).unwrap();
    let quota = Quota::per(1_000, AGE).fixed_window();
    let limiter = RedisLimiter::builder(quota).on_failure(OnFailure::allow());
    let limiter = limiter.remember_denials(false).build(&store).unwrap();
    let take = |key: &str| Box::pin(limiter.acquire(&Key::from(key), 1).into_future());
    let ((entered, is_entered), (release, released)) = (mpsc::channel(), mpsc::channel());
    let waker = Waker::from(Arc::new(Blocks {
        entered,
        released: Mutex::new(released),
    }));
    // Its first poll may have the answer.
    let (mut blocking, mut context) = (take("blocking"), Context::from_waker(&waker));
    while blocking.as_mut().poll(&mut context).is_ready() {
        blocking = take("blocking");
    }
    is_entered.recv().unwrap();
    let waiting: Vec<_> = (0..4).map(|_| take("waiting")).collect();
    thread::sleep(10 * deadline);
    // Whatever wakes it later is not kept either.
    drop((release, is_entered));
    let own = single_threaded();
    for (at, call) in waiting.into_iter().enumerate() {
        let decision = match at {
            0 => block_on(call),
            1 => own.block_on(call),
            _ => bed.runtime.block_on(call),
        };
        assert!(decision.unwrap().is_degraded(), "call {at}");
    }
    let key = Key::from("waiting");
    let left = || block_on(async { bed.limiter.peek(&key, 1).await.unwrap().remaining() });
    assert_eq!(left(), Some(1_000));
    // A busy machine may be late.
    let is_decided = (0..1_000).any(|_| !block_on(take("after")).unwrap().is_degraded());
    assert!(is_decided, "{:?}", store.stats());
}

/// The runtimes that are waited on begin, stand still with calls under way, and end.
#[test]
fn runtimes_that_stand_still_or_end_keep_nobody_from_redis() {
    needs!(redis);
    let bed = Bed::new(1_000);
    let still = single_threaded();
    let key = Key::from("shared");
    let mut noop = Context::from_waker(Waker::noop());
    for round in 0..3 {
        // The call leaves, and nobody waits for its answer.
        {
            let _here = still.enter();
            let mut lost = pin!(bed.limiter.acquire(&key, 1).into_future());
            let _ = lost.as_mut().poll(&mut noop);
        }
        let ends = Builder::new_multi_thread().enable_all().build().unwrap();
        {
            let _here = ends.enter();
            let mut lost = pin!(bed.limiter.acquire(&key, 1).into_future());
            let _ = lost.as_mut().poll(&mut noop);
        }
        ends.shutdown_background();
        for key in [key.clone(), Key::from(round as u64)] {
            let decision = bed
                .runtime
                .block_on(async { bed.limiter.acquire(&key, 1).await });
            assert!(
                !decision.unwrap().is_degraded(),
                "{:?}",
                bed.limiter.store().stats()
            );
        }
    }
    let used = bed
        .runtime
        .block_on(async { bed.limiter.peek(&key, 1).await });
    assert_eq!(used.unwrap().remaining(), Some(1_000 - 9));
    drop(bed.server);
}
