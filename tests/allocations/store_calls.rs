//! Allocations of a call to Redis that is alone, those of the client `redis` included.

use std::time::Duration;

use testkit::{bench_redis::Server, needs};
use tokio::runtime::Builder;
use tower_ratelimit::{Key, Quota, RedisLimiter, RedisStore};

const CALLS: u64 = 1_000;

/// The most allocations of a call: thirteen of them are those of a plain script's call.
const MOST: u64 = 20;

/// The connection is a task of the caller's runtime, as counts are those of one thread.
#[test]
fn a_call_that_is_alone_allocates_little() {
    needs!(redis);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start()).unwrap();
    let connection = runtime.block_on(server.connection()).unwrap();
    let store = RedisStore::builder().deadline(Duration::from_secs(20));
    let store = store.connection(connection).unwrap();
    let limiter = RedisLimiter::builder(Quota::per_second(1_000_000));
    let limiter = limiter.build(&store).unwrap();
    let call = || {
        for key in 0..CALLS {
            let key = Key::from(key);
            let decision = runtime.block_on(async { limiter.acquire(&key, 1).await });
            let decision = decision.unwrap();
            assert!(decision.is_allowed() && !decision.is_degraded());
        }
    };
    call();
    let counted = allocation_counter::measure(call).count_total;
    let each = counted.div_ceil(CALLS);
    assert!(each <= MOST + 1, "{counted} in {CALLS} calls");
}
