//! `OnChange::Fresh` in Redis: nodes with old and new numbers count side by side, by scripts of every
//! kind, and a change back continues.

use testkit::{needs, servers::Server};
use tower_ratelimit::{
    Key, Limiter as _, OnFailure, Quota, RedisLimiter, RedisStore,
    clock::{ManualClock, Timestamp},
    decision::Op,
    limiter::{OnChange, Tier},
    shared::RedisLimiterBuilder,
};

const TWO: Quota = Quota::per_minute(2);
const FIVE: Quota = Quota::per_minute(5);

fn store(server: &Server) -> RedisStore {
    let store = RedisStore::builder().deadline(std::time::Duration::from_secs(20));
    store.connect(&server.url()).unwrap()
}

fn node(builder: RedisLimiterBuilder, server: &Server) -> RedisLimiter {
    builder
        .name("login")
        .on_change(OnChange::Fresh)
        .on_failure(OnFailure::deny())
        .test_clock(ManualClock::at(Timestamp::from_secs(1_767_225_600)))
        .build(&store(server))
        .unwrap()
}

async fn take(limiter: &RedisLimiter, key: &str, most: u64) -> u64 {
    let taken = limiter.acquire_up_to(&Key::from(key), most).await.unwrap();
    taken.charged()
}

fn raised() -> [(Quota, Quota); 6] {
    let soft = FIVE.soft(20);
    [
        (TWO, FIVE),
        (TWO.leaky_bucket(1), FIVE.leaky_bucket(4)),
        (TWO.fixed_window(), FIVE.fixed_window()),
        (TWO.sliding_window(), FIVE.sliding_window()),
        (TWO.sliding_log(), FIVE.sliding_log()),
        (FIVE, soft),
    ]
}

#[tokio::test]
async fn old_and_new_nodes_hold_their_bounds_side_by_side() {
    needs!(redis);
    let server = Server::start().await;
    for (number, (two, five)) in raised().into_iter().enumerate() {
        let key = number.to_string();
        let [old, new] = [two, five].map(|quota| node(RedisLimiter::builder(quota), &server));
        let most = |limiter: &RedisLimiter| limiter.policies()[0].limit();
        let mut passed = [0, 0];
        for _ in 0..12 {
            let alice = Key::from(key.as_str());
            passed[0] += old.acquire(&alice, 1).await.unwrap().charged();
            passed[1] += new.acquire(&alice, 1).await.unwrap().charged();
        }
        let soft = u64::from(five.capacity() == two.capacity());
        assert_eq!(passed, [most(&old), most(&new) + soft], "{five:?}");
        // The old node reads the new file: its keys continue with what the new nodes count.
        for quota in [five, two] {
            let node = node(RedisLimiter::builder(quota), &server);
            assert_eq!(take(&node, &key, 9).await, 0, "{quota:?}");
        }
    }
}

#[tokio::test]
async fn raised_limit_frees_the_client_at_once() {
    needs!(redis);
    let server = Server::start().await;
    for (two, five) in raised() {
        let old = node(RedisLimiter::builder(two), &server);
        let key = format!("{five:?}");
        let most = old.policies()[0].limit();
        let alice = Key::from(key.as_str());
        let open = old.acquire(&alice, 1).await.unwrap();
        assert_eq!(take(&old, &key, most).await, most - 1);
        let limiter = node(RedisLimiter::builder(five), &server);
        assert_eq!(take(&limiter, &key, 5).await, 5, "{five:?}");
        // The receipt of before gives nothing.
        let _ = limiter.refund(&alice, 1, Some(open.receipt())).await;
        let _ = take(&limiter, &key, 9).await;
        assert!(limiter.acquire(&alice, 1).await.unwrap().is_denied());
    }
}

/// Two tiers of two quotas and a block, by the general script.
#[tokio::test]
async fn tiers_and_lists_start_afresh_together() {
    needs!(redis);
    let server = Server::start().await;
    let build = |minute: Quota| {
        let day = Quota::per_day(9).sliding_log().named("day");
        let builder = RedisLimiter::builder([minute.named("minute"), day]);
        let pro = [
            FIVE.named("minute"),
            Quota::per_day(30).sliding_log().named("day"),
        ];
        node(builder.tier("pro", pro), &server)
    };
    let [old, new] = [TWO, FIVE].map(build);
    let pro = Tier::named("pro");
    let all = async |limiter: &RedisLimiter| {
        let mut passed = 0;
        for _ in 0..4 {
            for tier in [&Tier::DEFAULT, &pro] {
                let alice = Key::from("alice");
                let taken = testkit::apply_in(limiter, tier, &alice, Op::AcquireUpTo(2)).await;
                passed += taken.unwrap().charged();
            }
        }
        passed
    };
    // Two of two a minute are a minute, and so all of five a minute.
    assert_eq!(all(&old).await, 2);
    assert_eq!(all(&new).await, 5);
    assert_eq!(all(&old).await, 0);
}

/// Its numbers are a part of the name of a key, which is longer by eight letters; without it names are
/// as they were.
#[tokio::test]
async fn numbers_are_a_part_of_the_name() {
    needs!(redis);
    let server = Server::start().await;
    let _ = take(&node(RedisLimiter::builder(TWO), &server), "alice", 1).await;
    let plain = RedisLimiter::builder(TWO)
        .name("login")
        .build(&store(&server));
    let _ = take(&plain.unwrap(), "alice", 1).await;
    let mut keys: Vec<String> = server.send(["KEYS", "*"]).await.unwrap();
    keys.sort_by_key(String::len);
    let ids: Vec<&str> = keys
        .iter()
        .map(|key| key.split(':').nth(2).unwrap())
        .collect();
    let [plain, fresh] = ids[..] else {
        panic!("{keys:?}")
    };
    assert_eq!(plain.len(), "login.abcd".len(), "{plain}");
    assert_eq!(fresh.len(), plain.len() + 8, "{fresh}");
    assert!(fresh.starts_with(plain), "{fresh}");
}
