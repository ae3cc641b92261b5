//! What every store has to keep.

use std::time::Duration;

use testkit::AGE;
use tower_ratelimit::{AnyLimiter, Decision, Key, Limiter as _, Op, Quota, RedisLimiter};

use super::Bench;

const MINUTE: Duration = Duration::from_secs(60);

/// Ten a minute, by each algorithm that denies.
fn quotas() -> [Quota; 5] {
    let ten = Quota::per_minute(10);
    [
        ten,
        ten.refill_every(MINUTE),
        ten.fixed_window(),
        ten.sliding_window().slices(6),
        ten.sliding_log(),
    ]
}

fn two_nodes(bench: &Bench, name: &str, quota: Quota) -> [AnyLimiter; 2] {
    [(); 2].map(|()| {
        let builder = RedisLimiter::builder(quota).name(name);
        bench.node(builder.remember_denials(false))
    })
}

async fn acquire(limiter: &AnyLimiter, key: &Key) -> Decision {
    limiter.acquire(key, 1).await.unwrap()
}

/// All nodes count together, keys and names apart.
async fn one_limit(bench: Bench) {
    for (at, quota) in quotas().into_iter().enumerate() {
        let [one, two] = two_nodes(&bench, &format!("limit-{at}"), quota);
        let (alice, bob) = (Key::from("alice"), Key::from("bob"));
        for left in (0..5).rev() {
            assert!(acquire(&one, &alice).await.is_allowed(), "{quota:?}");
            let decision = acquire(&two, &alice).await;
            assert_eq!(decision.remaining(), Some(2 * left), "{quota:?}");
        }
        assert!(!acquire(&one, &alice).await.is_allowed(), "{quota:?}");
        assert!(!acquire(&two, &alice).await.is_allowed(), "{quota:?}");
        assert_eq!(acquire(&two, &bob).await.remaining(), Some(9), "{quota:?}");
        let [other, _] = two_nodes(&bench, &format!("other-{at}"), quota);
        assert_eq!(acquire(&other, &alice).await.remaining(), Some(9));
    }
}

/// What was denied passes when it was told to, and not a microsecond before.
async fn exact_waits(bench: Bench) {
    for (at, quota) in quotas().into_iter().enumerate() {
        let [one, two] = two_nodes(&bench, &format!("waits-{at}"), quota);
        let key = Key::from("alice");
        assert!(one.acquire(&key, 10).await.unwrap().is_allowed());
        let wait = acquire(&two, &key).await.retry_after().unwrap();
        bench.clock.advance(wait - Duration::from_micros(1));
        assert!(!acquire(&two, &key).await.is_allowed(), "{quota:?}");
        bench.clock.advance(Duration::from_micros(1));
        assert!(acquire(&two, &key).await.is_allowed(), "{quota:?}");
    }
}

/// What one node gives back, forgets or blocks, the other knows.
async fn corrections(bench: Bench) {
    for (at, quota) in quotas().into_iter().enumerate() {
        let [one, two] = two_nodes(&bench, &format!("corrections-{at}"), quota);
        let key = Key::from("alice");
        let charged = one.acquire(&key, 8).await.unwrap();
        let settled = Op::Settle(3, charged.receipt());
        two.apply(&key, settled).await.unwrap();
        let left = one.peek(&key, 0).await.unwrap().remaining();
        assert_eq!(left, Some(7), "{quota:?}");

        two.block(&key, MINUTE).await.unwrap();
        let blocked = acquire(&one, &key).await;
        assert!(blocked.is_blocked(), "{quota:?}");
        assert_eq!(blocked.retry_after(), Some(MINUTE));
        one.reset(&key).await.unwrap();
        assert_eq!(acquire(&two, &key).await.remaining(), Some(9), "{quota:?}");
    }
}

/// Of many requests on many nodes at once exactly as many pass as may.
async fn at_once(bench: Bench) {
    let quota = Quota::per(100, AGE).fixed_window();
    let [one, two] = two_nodes(&bench, "at-once", quota);
    let asked: Vec<_> = (0..300)
        .map(|at| {
            let limiter = if at % 2 == 0 {
                one.clone()
            } else {
                two.clone()
            };
            tokio::spawn(async move { acquire(&limiter, &Key::from("alice")).await.is_allowed() })
        })
        .collect();
    let mut passed = 0;
    for answer in asked {
        passed += u32::from(answer.await.unwrap());
    }
    assert_eq!(passed, 100);
}

macro_rules! contract {
    ($($test:ident),*) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::Bench::memory()).await;
                }
            )*
        }

        mod compare_and_swap {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::Bench::versions()).await;
                }
            )*
        }

        #[cfg(target_os = "linux")]
        mod redis {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    testkit::needs!(redis);
                    super::$test(super::Bench::redis().await).await;
                }
            )*
        }
    };
}

contract!(one_limit, exact_waits, corrections, at_once);
