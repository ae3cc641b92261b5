//! How much passes, and how many calls the store gets.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn busy_key_is_decided_without_the_store() {
    let wire = Wire::new();
    let nodes = nodes(3, Quota::per_second(100_000), &wire);
    let passed = Passed::default();
    passed.load(&nodes, 10, 3 * SECOND).await;
    sleep(3 * SECOND).await;
    assert_eq!(passed.count(), 90_000);
    let local = sum(&nodes, |stats| stats.local);
    assert!(wire.calls() < 300, "{} calls", wire.calls());
    assert!(local > 88_000, "{local} of 90,000 without the store");
    // All that was granted has come to an end.
    let fates = |stats: ModeStats| stats.settled + stats.returned + stats.ended;
    assert_eq!(sum(&nodes, |stats| stats.granted), sum(&nodes, fates));
    assert_eq!(sum(&nodes, |stats| stats.ended), 0);
}

#[tokio::test(start_paused = true)]
async fn nodes_admit_exactly_the_limit_of_a_day() {
    for quota in [
        Quota::per_day(20_000).fixed_window(),
        Quota::per_day(20_000).sliding_window(),
        Quota::per_day(20_000).sliding_log(),
        Quota::per_hour(1).burst(20_000),
    ] {
        let wire = Wire::new();
        let mut nodes = nodes(4, quota, &wire);
        // One of them is strict.
        let strict = leased(quota, 9).mode(Mode::strict());
        nodes.push(strict.build_on(wire.clone()).unwrap());
        let passed = Passed::default();
        passed.load(&nodes, 4, 4 * SECOND).await;
        assert_eq!(passed.count(), 20_000, "{quota:?}");
        assert!(sum(&nodes[..4], |stats| stats.local) > 10_000, "{quota:?}");
        assert_eq!(nodes[4].mode_stats(), ModeStats::default());
    }
}

/// Units that were used already are charged next to those that nodes have leased.
#[tokio::test(start_paused = true)]
async fn nodes_that_spend_and_lease_charge_the_limit_and_its_debt_to_the_unit() {
    for quota in [
        Quota::per_day(2_000).fixed_window(),
        Quota::per_day(2_000).sliding_window(),
        Quota::per_day(2_000).sliding_log(),
        Quota::per_hour(1).burst(2_000),
    ] {
        for seed in 0..4 {
            let quota = quota.debt(700);
            let wire = Wire::new();
            let nodes = nodes(3, quota, &wire);
            let (passed, mut spent) = (Passed::default(), 0);
            for round in 0..30 {
                passed.load(&nodes, 1, 20 * MS).await;
                let node = &nodes[(seed + round) % 3];
                let units = 13 * (round * (seed + 3) % 7) as u64;
                let decision = node.spend(&key(), units).await.unwrap();
                assert!(decision.charged() <= units);
                spent += decision.charged();
            }
            assert!(sum(&nodes, |stats| stats.local) > 500, "{quota:?}");
            drop(nodes);
            sleep(SECOND).await;
            let strict = leased(quota, 9).mode(Mode::strict());
            let strict = strict.build_on(wire).unwrap();
            let rest = strict.spend(&key(), 9_000).await.unwrap().charged();
            let all = passed.count() + spent + rest;
            assert_eq!(all, 2_700, "{quota:?}: {spent} and {rest} spent");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_is_gone_takes_at_most_its_lease_along() {
    let quota = Quota::per_day(20_000).fixed_window();
    let wire = Wire::new();
    let mut nodes = nodes(3, quota, &wire);
    let passed = Passed::default();
    passed.load(&nodes, 4, SECOND).await;
    let gone = nodes.remove(0);
    let held = gone.mode_stats();
    // It has no time to return its units: nobody answers.
    wire.all(Some(Fault::LostRequest));
    drop(gone);
    sleep(100 * MS).await;
    wire.all(None);
    passed.load(&nodes, 4, 4 * SECOND).await;
    let held = held.granted - held.settled - held.returned;
    let count = passed.count();
    assert!(
        (20_000 - held..=20_000).contains(&count),
        "{count}, {held} held"
    );
}

#[tokio::test(start_paused = true)]
async fn units_of_a_node_that_is_dropped_are_there_at_once() {
    let wire = Wire::new();
    let quota = Quota::per_day(1_000).fixed_window();
    let [one, two] = <[Node; 2]>::try_from(nodes(2, quota, &wire)).unwrap_or_else(|_| panic!());
    let passed = Passed::default();
    passed.load(std::slice::from_ref(&one), 2, 100 * MS).await;
    assert!(one.mode_stats().granted > 100);
    drop(one);
    sleep(10 * MS).await;
    let left = 1_000 - passed.count();
    let decision = two.acquire(&key(), left).await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
    assert!(two.acquire(&key(), 1).await.unwrap().is_denied());
}

#[tokio::test(start_paused = true)]
async fn idle_nodes_give_back_within_a_tick_of_the_keeper() {
    let wire = Wire::new();
    let nodes = nodes(2, Quota::per_hour(1).burst(1_000), &wire);
    let passed = Passed::default();
    passed.load(&nodes[..1], 2, 200 * MS).await;
    // Until it has been forgotten how much was wanted.
    sleep(2 * LENGTH).await;
    let stats = nodes[0].mode_stats();
    assert_eq!(stats.settled + stats.returned, stats.granted, "{stats:?}");
    let left = 1_000 - passed.count();
    let all = nodes[1].acquire_up_to(&key(), 2_000).await.unwrap();
    assert_eq!(all.charged(), left);
}

/// Held units count as spent when a slice ends. A node takes only as many as it will spend until then.
#[tokio::test(start_paused = true)]
async fn little_is_lost_with_each_slice() {
    let wire = Wire::new();
    let quota = Quota::per_second(2_000).sliding_window().slices(10);
    let nodes = nodes(2, quota, &wire);
    let passed = Passed::default();
    passed.load(&nodes[..1], 1, 4 * SECOND).await;
    // Each of the 40 slices may end with a unit in hand, by where in a slice the test begins.
    let count = passed.count();
    assert!((3_960..=4_000).contains(&count), "{count}");
    let stats = nodes[0].mode_stats();
    assert!(stats.local > 3_000, "{stats:?}");
    // Half of the limit is wanted, so half is left for others.
    let free = nodes[1].peek(&key(), 1).await.unwrap().remaining().unwrap();
    assert!(free > 750, "{free}: {stats:?}");
}

/// Units that were leased in one window are not spent in the next.
#[tokio::test(start_paused = true)]
async fn each_window_has_its_own_units() {
    let wire = Wire::new();
    let nodes = nodes(3, Quota::per_second(500).fixed_window(), &wire);
    let passed = Passed::default();
    // To the beginning of a window, whenever the clock began.
    for _ in 0..2 {
        let wait = nodes[0].peek(&key(), 501).await.unwrap();
        let reset = wait.binding().reset_after().unwrap();
        sleep(reset).await;
        let _ = nodes[0].hit(&key(), 1).await.unwrap();
        passed.note(&Decision::clone(&wait));
    }
    let wait = nodes[0].peek(&key(), 1).await.unwrap();
    sleep(wait.binding().reset_after().unwrap()).await;
    for window in 0..5 {
        let before = passed.count();
        passed.load(&nodes, 1, SECOND - 20 * MS).await;
        let count = passed.count() - before;
        assert!((490..=500).contains(&count), "{count} in window {window}");
        sleep(20 * MS).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_remains_goes_down_one_by_one() {
    let wire = Wire::new();
    let node = nodes(1, Quota::per_hour(1).burst(1_000), &wire).remove(0);
    for taken in 1..500 {
        let decision = node.acquire(&key(), 1).await.unwrap();
        assert_eq!(decision.remaining(), Some(1_000 - taken), "{decision:?}");
        assert_eq!(decision.quotas().len(), 1);
    }
    assert!(node.mode_stats().local > 400);
}

#[tokio::test(start_paused = true)]
async fn queues_and_windows_that_count_on_stay_strict() {
    let rate = Quota::per_second(1_000);
    for quota in [rate.leaky_bucket(500), rate.fixed_window().uncapped()] {
        let node = leased(quota, 1).build_on(Wire::new()).unwrap();
        let passed = Passed::default();
        passed.load(std::slice::from_ref(&node), 1, SECOND).await;
        assert_eq!(node.mode_stats(), ModeStats::default());
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_end_with_the_limiter() {
    let wire = Wire::new();
    let nodes = nodes(1, Quota::per_second(10_000), &wire);
    Passed::default().load(&nodes, 4, 100 * MS).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    assert!(tasks() > 0);
    drop(nodes);
    sleep(LENGTH).await;
    assert_eq!(tasks(), 0);
}

/// A bucket that fills within a pause loses nothing, nor does a window that begins in one.
#[tokio::test(start_paused = true)]
async fn pauses_lose_no_units() {
    let wire = Wire::new();
    let small = nodes(1, Quota::per_second(1_000).burst(10), &wire);
    let passed = Passed::default();
    passed.load(&small, 2, 4 * SECOND).await;
    assert!(passed.count() > 3_600, "{} of 4,010", passed.count());

    let wire = Wire::new();
    let quota = Quota::per_second(200).fixed_window();
    let node = |seed| {
        let mode = Mode::leased().length(10 * SECOND);
        leased(quota, seed)
            .mode(mode)
            .build_on(wire.clone())
            .unwrap()
    };
    let nodes: Vec<_> = (0..3).map(node).collect();
    let wait = nodes[0].peek(&key(), 1).await.unwrap();
    sleep(wait.binding().effective_window().unwrap()).await;
    for window in 0..5 {
        let passed = Passed::default();
        passed.load(&nodes, 1, 150 * MS).await;
        assert!(
            passed.count() > 150,
            "{} in window {window}",
            passed.count()
        );
        passed.load(&nodes, 1, SECOND - 150 * MS).await;
        assert!(
            passed.count() > 190,
            "{} in window {window}",
            passed.count()
        );
    }
}
