//! Promises of state files: nothing is renewed by a restart, and a damaged file is refused.

use std::{env, fs, path::Path, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use tower_ratelimit::{
    Key, LocalLimiter, LocalStore, Quota,
    clock::{ManualClock, Timestamp},
    limiter::{LocalLimiterBuilder, OnChange, RestoreError, RestoreErrorKind, SaveErrorKind},
};

use super::{in_parallel, key, seconds};

/// The number of random damages, unless `STATE_DAMAGES` sets another one.
const DAMAGES: u32 = 2_000;

fn day() -> Quota {
    Quota::per_day(1_000).fixed_window()
}

fn builder(quota: Quota, clock: &ManualClock) -> LocalLimiterBuilder {
    LocalLimiter::builder(quota).clock(clock.clone())
}

fn saved(limiter: &LocalLimiter) -> Vec<u8> {
    let mut state = Vec::new();
    limiter.save(&mut state).expect("a save to memory");
    state
}

fn left(limiter: &LocalLimiter, number: u64) -> Option<u64> {
    limiter.peek(&key(number), 1).remaining()
}

/// A limiter whose keys have states of all sizes.
fn filled(clock: &ManualClock) -> LocalLimiter {
    let quotas = [
        Quota::per_second(50).named("bucket"),
        day().named("window"),
        Quota::per_hour(100)
            .sliding_window()
            .slices(6)
            .named("slices"),
        Quota::per_hour(100).sliding_log().named("log"),
    ];
    let builder = LocalLimiter::builder(quotas).block_for(seconds(60));
    let limiter = builder.clock(clock.clone()).build().expect("good quotas");
    for number in 0..40 {
        for _ in 0..number {
            clock.advance(Duration::from_millis(1));
            let _ = limiter.acquire(&key(number), 1);
        }
    }
    let _ = limiter.block(&key(3), seconds(600));
    limiter
}

fn restored(state: &[u8], clock: &ManualClock) -> Result<LocalLimiter, RestoreError> {
    let quotas = [
        Quota::per_second(50).named("bucket"),
        day().named("window"),
        Quota::per_hour(100)
            .sliding_window()
            .slices(6)
            .named("slices"),
        Quota::per_hour(100).sliding_log().named("log"),
    ];
    let builder = LocalLimiter::builder(quotas).block_for(seconds(60));
    builder.clock(clock.clone()).restore(state)
}

#[test]
fn a_restart_renews_no_quota_and_the_time_between_counts() {
    let clock = ManualClock::new();
    for quota in [
        day(),
        Quota::per_day(1_000),
        Quota::per_day(1_000).sliding_log(),
    ] {
        let before = builder(quota, &clock).build().expect("a good quota");
        assert_eq!(before.hit(&key(7), 600).remaining(), Some(400));
        let _ = before.block(&key(8), seconds(60));
        let state = saved(&before);
        let after = builder(quota, &clock).restore(&*state).expect("its state");
        assert_eq!(left(&after, 7), Some(400), "{quota}");
        assert!(after.peek(&key(8), 1).is_blocked());
        clock.advance(seconds(86_400));
        let later = builder(quota, &clock).restore(&*state).expect("its state");
        assert_eq!(left(&later, 7), Some(1_000), "{quota}");
        assert!(!later.peek(&key(8), 1).is_blocked());
        assert_eq!(later.tracked_keys(), 0);
    }
}

/// A customer's month goes on after a deployment, and ends where the calendar ends it.
#[cfg(feature = "calendar")]
#[test]
fn a_restart_within_a_month_keeps_its_count_and_one_over_its_end_begins_anew() {
    let berlin = Quota::per_month(1_000).in_zone("Europe/Berlin");
    for (quota, last) in [
        (berlin, "2026-03-31T21:59:59.999999Z"),
        (berlin.starting_on(15), "2026-03-14T22:59:59.999999Z"),
        (
            Quota::per_month(1_000).in_zone("Pacific/Apia"),
            "2026-03-31T10:59:59.999999Z",
        ),
    ] {
        let clock = ManualClock::at(testkit::charge_vectors::utc("2026-03-10T12:00:00Z"));
        let before = builder(quota, &clock).build().expect("a good quota");
        let _ = before.acquire(&key(7), 600);
        let state = saved(&before);
        clock.set(testkit::charge_vectors::utc(last));
        let after = builder(quota, &clock).restore(&*state).expect("its state");
        assert_eq!(left(&after, 7), Some(400), "{quota}");
        let denied = after.acquire(&key(7), 500);
        assert_eq!(denied.retry_after(), Some(Duration::from_micros(1)));
        let again = saved(&after);
        clock.advance(Duration::from_micros(1));
        for state in [&state, &again] {
            let later = builder(quota, &clock).restore(&**state).expect("its state");
            assert_eq!(left(&later, 7), Some(1_000), "{quota}");
            assert_eq!(later.tracked_keys(), 0, "{quota}");
        }
    }
}

#[test]
fn a_clock_that_is_behind_the_file_clamps_like_a_step_back() {
    let clock = ManualClock::new();
    let quota = Quota::per_minute(60);
    let before = builder(quota, &clock).build().expect("a good quota");
    let _ = before.acquire(&key(0), 60);
    let state = saved(&before);
    clock.step_back(seconds(86_400));
    let after = builder(quota, &clock).restore(&*state).expect("its state");
    assert_eq!(after.peek(&key(0), 60), before.peek(&key(0), 60));
    assert_eq!(after.acquire(&key(0), 60).retry_after(), Some(seconds(60)));
}

#[test]
fn changed_limits_keep_the_counts_unless_keys_start_afresh() {
    let clock = ManualClock::new();
    for quota in [day(), Quota::per_day(1_000)] {
        let before = builder(quota, &clock).build().expect("a good quota");
        let _ = before.hit(&key(0), 600);
        let state = saved(&before);
        let other = Quota::per_day(900);
        let other = if quota == day() {
            other.fixed_window()
        } else {
            other
        };
        let set = |on_change| {
            let changed = builder(quota, &clock).on_change(on_change).restore(&*state);
            let changed = changed.expect("its state");
            changed.set_quota("default", other).expect("a good quota");
            left(&changed, 0)
        };
        let rebuilt = |state: &[u8], quota, on_change| {
            let changed = builder(quota, &clock).on_change(on_change).restore(state);
            changed.expect("its state")
        };
        let kept = rebuilt(&state, other, OnChange::Keep);
        assert_eq!(left(&kept, 0), set(OnChange::Keep), "{quota}");
        // With another `on_change`, and with other numbers, keys start afresh.
        let fresh = rebuilt(&state, quota, OnChange::Fresh);
        assert_eq!(left(&fresh, 0), Some(1_000), "{quota}");
        let _ = fresh.hit(&key(0), 600);
        fresh.set_quota("default", other).expect("a good quota");
        let state = saved(&fresh);
        let fresh = rebuilt(&state, other, OnChange::Fresh);
        assert_eq!(left(&fresh, 0), Some(900), "{quota}");
        // With the numbers that the limiter was built with, they do not.
        let fresh = rebuilt(&state, quota, OnChange::Fresh);
        assert_eq!(left(&fresh, 0), Some(400), "{quota}");
    }
}

#[test]
fn keys_that_do_not_fit_are_those_with_the_least_usage() {
    let clock = ManualClock::new();
    for quota in [Quota::per_day(1_000), day()] {
        let before = builder(quota, &clock).build().expect("a good quota");
        for number in 0..20_000 {
            let _ = before.acquire(&key(number), if number % 1_000 == 0 { 900 } else { 1 });
        }
        let state = saved(&before);
        let after = builder(quota, &clock).max_keys(4_000).restore(&*state);
        let after = after.expect("its state");
        assert!(after.evictions() > 10_000);
        for number in (0..20_000).step_by(1_000) {
            assert_eq!(left(&after, number), Some(100), "{quota}");
        }
    }
}

#[test]
fn of_a_full_table_hardly_a_key_is_lost() {
    const MAX_KEYS: u64 = 100_000;
    let clock = ManualClock::new();
    // Without the scattered order a bucket loses 5 in 10,000 keys, and here none.
    for (quota, share) in [(Quota::per_day(1_000), 5_000), (day(), 1_000)] {
        let full = || builder(quota, &clock).max_keys(MAX_KEYS as usize);
        let mut limiter = full().build().expect("a good quota");
        (0..MAX_KEYS).for_each(|number| drop(limiter.acquire(&key(number), 1)));
        for _ in 0..3 {
            let before = limiter.tracked_keys();
            limiter = full().restore(&*saved(&limiter)).expect("its state");
            let lost = before - limiter.tracked_keys();
            assert!(lost <= before / share, "{quota}: {lost} of {before}");
        }
    }
}

#[test]
fn a_save_meets_requests_and_each_key_is_true() {
    let clock = ManualClock::new();
    for quota in [Quota::per_day(1_000_000), day().fixed_window()] {
        let limiter = builder(quota, &clock).build().expect("a good quota");
        let hit = |limiter: &LocalLimiter| {
            (0..500).for_each(|number| drop(limiter.hit(&key(number), 1)));
        };
        hit(&limiter);
        let states = in_parallel(|thread| {
            if thread > 0 {
                (0..20).for_each(|_| hit(&limiter));
                return None;
            }
            Some((0..10).map(|_| saved(&limiter)).collect::<Vec<_>>())
        });
        let full = quota.capacity();
        let lowest: Vec<_> = (0..500).map(|number| left(&limiter, number)).collect();
        for state in states.into_iter().flatten().flatten() {
            let after = builder(quota, &clock).restore(&*state).expect("its state");
            for (number, lowest) in (0..500).zip(&lowest) {
                let left = left(&after, number);
                assert!(left < Some(full) && left >= *lowest, "{left:?} {lowest:?}");
            }
        }
    }
}

#[test]
fn a_state_that_is_cut_anywhere_is_refused() {
    let clock = ManualClock::new();
    let state = saved(&filled(&clock));
    assert!(restored(&state, &clock).is_ok());
    for end in 0..state.len() {
        let error = restored(&state[..end], &clock).expect_err("a cut state");
        assert_eq!(error.kind(), RestoreErrorKind::Damaged, "{end}: {error}");
    }
    let longer = [&*state, &[0]].concat();
    assert!(restored(&longer, &clock).is_err());
}

#[test]
fn a_state_that_is_damaged_anywhere_is_refused() {
    let clock = ManualClock::new();
    let state = saved(&filled(&clock));
    let damages = env::var("STATE_DAMAGES").map(|number| number.parse().expect("a number"));
    let config = ProptestConfig {
        cases: damages.unwrap_or(DAMAGES),
        failure_persistence: None,
        ..Default::default()
    };
    let damage = (
        any::<prop::sample::Index>(),
        0..4_u8,
        prop::collection::vec(any::<u8>(), 1..40),
    );
    let outcome = TestRunner::new(config).run(&damage, |(at, kind, bytes)| {
        let at = at.index(state.len());
        let mut damaged = state.clone();
        let end = (at + bytes.len()).min(state.len());
        match kind {
            0 => damaged[at] ^= bytes[0].max(1),
            1 => damaged[at..end].copy_from_slice(&bytes[..end - at]),
            2 => drop(damaged.splice(at..at, bytes)),
            _ => drop(damaged.drain(at..end)),
        }
        prop_assert_eq!(restored(&damaged, &clock).is_ok(), damaged == state);
        Ok(())
    });
    outcome.expect("refused");
}

#[test]
fn states_of_others_are_refused_by_name() {
    let clock = ManualClock::new();
    let state = saved(&builder(day(), &clock).build().expect("a good quota"));
    let refused = |builder: LocalLimiterBuilder, state: &[u8]| {
        let error = builder.restore(state).expect_err("another limiter");
        (error.kind(), error.to_string())
    };
    for (other, expected) in [
        (
            Quota::per_hour(1_000).fixed_window(),
            "\"1000/3600s fixed_window\"",
        ),
        (Quota::per_day(1_000), "\"1000/86400s\""),
        #[cfg(feature = "calendar")]
        (
            Quota::per_day(1_000).in_zone("Europe/Berlin"),
            "\"1000/day in Europe/Berlin\"",
        ),
        (day().named("uploads"), "another limiter"),
    ] {
        let (kind, text) = refused(builder(other, &clock), &state);
        assert_eq!(kind, RestoreErrorKind::Limits);
        assert!(text.contains(expected), "{text}");
    }
    let mut version = state.clone();
    version[8] = 7;
    let (kind, text) = refused(builder(day(), &clock), &version);
    assert_eq!(kind, RestoreErrorKind::Version);
    assert!(
        text.contains("version 7") && text.contains("version 4"),
        "{text}"
    );
    let (kind, text) = refused(builder(day(), &clock), b"rules: []");
    assert_eq!(kind, RestoreErrorKind::Damaged);
    assert!(
        text.contains("TRLSTATE") || text.contains("cut off"),
        "{text}"
    );
    let (kind, _) = refused(builder(Quota::per_second(0), &clock), &state);
    assert_eq!(kind, RestoreErrorKind::Config);

    let error = LocalStore::builder()
        .restore(&*state)
        .expect_err("a limiter");
    assert_eq!(error.kind(), RestoreErrorKind::Limits);
    assert!(
        error.to_string().contains("LocalLimiter::builder"),
        "{error}"
    );
    let mut state = Vec::new();
    LocalStore::new().save(&mut state).expect("an empty store");
    let (kind, text) = refused(builder(day(), &clock), &state);
    assert_eq!(kind, RestoreErrorKind::Limits);
    assert!(text.contains("LocalStore::builder"), "{text}");
}

#[test]
fn limits_of_a_store_are_saved_together_and_by_name() {
    let clock = ManualClock::new();
    let store = LocalStore::builder()
        .clock(clock.clone())
        .build()
        .expect("a store");
    let build = |name: &str, quota: Quota, store: &LocalStore| {
        let built = LocalLimiter::builder(quota).name(name).build_in(store);
        built.expect("a good quota")
    };
    let (login, search) = (
        build("login", day(), &store),
        build("search", day(), &store),
    );
    let _ = login.hit(&key(0), 100);
    let _ = search.hit(&key(0), 200);
    let error = login.save(Vec::new()).expect_err("in a store");
    assert_eq!(error.kind(), SaveErrorKind::InStore);
    assert!(error.to_string().contains("LocalStore::save"), "{error}");

    let mut state = Vec::new();
    let report = store.save(&mut state).expect("a save to memory");
    assert_eq!((report.entries(), report.bytes()), (2, state.len() as u64));
    let restore = |state: &[u8]| {
        let builder = LocalStore::builder().clock(clock.clone());
        builder.restore(state).expect("its state")
    };
    let after = restore(&state);
    // A limit that comes late, after another save, still has its counts; one that changed has not.
    let search = build("search", Quota::per_hour(1_000).fixed_window(), &after);
    assert_eq!(left(&search, 0), Some(1_000));
    let mut again = Vec::new();
    after.save(&mut again).expect("a save to memory");
    for store in [after, restore(&again)] {
        assert_eq!(left(&build("login", day(), &store), 0), Some(900));
    }

    let unnamed = LocalLimiter::builder(day())
        .build_in(&store)
        .expect("a good quota");
    let error = store.save(Vec::new()).expect_err("no name");
    assert_eq!(error.kind(), SaveErrorKind::Unnamed);
    assert!(error.to_string().contains(".name(..)"), "{error}");
    drop(unnamed);
    assert!(store.save(Vec::new()).is_ok());
}

#[test]
fn a_file_is_replaced_and_a_missing_or_damaged_one_starts_afresh() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let start = || {
        builder(day(), &clock)
            .restore_or_new(&path)
            .expect("a good quota")
    };
    let first = start();
    assert_eq!(first.hit(&key(0), 100).remaining(), Some(900));
    let report = first.save_to(&path).expect("written");
    assert_eq!(fs::metadata(&path).expect("a file").len(), report.bytes());
    let second = start();
    assert_eq!(second.hit(&key(0), 100).remaining(), Some(800));
    second.save_to(&path).expect("written");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    assert_eq!(left(&start(), 0), Some(800));
    fs::write(&path, "TRLSTATE?").expect("written");
    assert_eq!(left(&start(), 0), Some(1_000));
    // A folder is no state file.
    let folder = builder(day(), &clock).restore_or_new(folder.path());
    assert_eq!(left(&folder.expect("a good quota"), 0), Some(1_000));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let limiter = builder(day(), &ManualClock::new())
        .build()
        .expect("a good quota");
    let fails = |path: &Path| {
        let error = limiter.save_to(path).expect_err("no such folder");
        assert_eq!(error.kind(), SaveErrorKind::Write);
        assert!(
            error.to_string().contains(&*path.to_string_lossy()),
            "{error}"
        );
    };
    fails(&folder.path().join("missing").join("state"));
    // A folder cannot be replaced by a file, and no temporary file stays.
    fs::create_dir(folder.path().join("state")).expect("a folder");
    fails(&folder.path().join("state"));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    // Not even root may write here.
    #[cfg(target_os = "linux")]
    fails(Path::new("/proc/self/state"));
}

/// The processes of [`a_process_that_is_killed_leaves_a_whole_file`] begin here.
#[cfg(target_os = "linux")]
#[test]
fn saves_until_it_is_killed() {
    let Ok(path) = env::var("STATE_TO_SAVE") else {
        return;
    };
    let limiter = LocalLimiter::builder(day())
        .restore_or_new(&path)
        .expect("a good quota");
    for number in 0..2_000 {
        let _ = limiter.hit(&Key::from(number), 1);
    }
    loop {
        limiter.save_to(&path).expect("written");
        println!("saved");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_is_killed_leaves_a_whole_file() {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state");
    for round in 1..=12_u64 {
        let test = env::current_exe().expect("this test");
        let mut process = Command::new(test)
            .args([
                "restarts::saves_until_it_is_killed",
                "--exact",
                "--nocapture",
            ])
            .env("STATE_TO_SAVE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut saves = lines
            .map_while(Result::ok)
            .filter(|line| line.contains("saved"));
        assert!(saves.next().is_some());
        // Within one of the saves, at another place of it in each round.
        std::thread::sleep(Duration::from_micros(377 * round));
        process.kill().expect("killed by signal 9");
        process.wait().expect("it ended");
        let state = fs::File::open(&path).expect("a file");
        let after = LocalLimiter::builder(day())
            .restore(state)
            .expect("a whole file");
        for number in [0, 1_999] {
            assert_eq!(left(&after, number), Some(1_000 - round));
        }
    }
}
