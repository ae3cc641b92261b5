//! Simulated nodes admit no more than one limiter would, whatever goes wrong.
//!
//! In CI 64 seeds, in some ten seconds. `SIMULATION_SEEDS` says how many instead.

use std::env;

use testkit::simulation::{Faults, LIMITS, Mode, Report, Setup, Workload};

fn seeds() -> u64 {
    let seeds = env::var("SIMULATION_SEEDS");
    seeds.map_or(64, |text| text.parse().expect("a number of seeds"))
}

fn run(setup: &Setup) -> Report {
    let report = setup.run();
    assert!(
        report.excess <= setup.mode.excess(),
        "{} units too many: {setup:#?}\n{}",
        report.excess,
        report.log.concat()
    );
    report
}

#[test]
fn no_more_than_one_limiter_would_admit() {
    for seed in 0..seeds() {
        run(&Setup::of_seed(seed, Mode::Strict));
    }
}

/// Those that decide from the value that they wrote last do not, either.
#[test]
fn no_more_on_a_database_that_swaps() {
    for seed in 0..seeds() / 2 {
        let setup = Setup::of_seed(seed, Mode::Strict).with_swaps();
        let report = run(&setup);
        assert!(report.admitted > 0, "{setup:#?}");
    }
}

/// Without faults the nodes together admit about what one limiter does: their requests arrive a few
/// milliseconds later, and in another order.
#[test]
fn hardly_less_than_one_limiter_would_admit() {
    for seed in 0..seeds() / 2 {
        let setup = Setup::of_seed(seed, Mode::Strict).without_faults();
        let report = run(&setup);
        assert_eq!(report.failed, 0, "{setup:#?}");
        let (admitted, central) = (report.admitted as f64, report.central as f64);
        assert!(
            admitted > 0.95 * central,
            "{admitted} of {central}: {setup:#?}"
        );
        assert!(report.calls <= report.requests, "{setup:#?}");
    }
}

/// Each node finds out by itself, with the first trial after an outage.
#[test]
fn outages_end() {
    let mut ended = 0;
    for seed in 0..12 {
        let setup = Setup {
            limit: LIMITS[0],
            nodes: 3,
            workload: Workload::Uniform,
            load: 1.5,
            faults: Faults {
                outages: 1,
                ..Faults::NONE
            },
            ..Setup::of_seed(seed, Mode::Strict)
        };
        let report = run(&setup);
        if report.failed > 0 && report.last_outage < 5_000 {
            ended += 1;
            let after = report.last_failure.saturating_sub(report.last_outage);
            assert!(after < 500, "{after} ms: {setup:#?}");
        }
    }
    assert!(ended > 3, "{ended}");
}

#[test]
fn same_seed_gives_the_same_events() {
    for seed in [3, 5, 8, 13, 21] {
        let setup = Setup::of_seed(seed, Mode::Strict);
        let digests = [setup.run().digest, setup.run().digest];
        assert_eq!(digests[0], digests[1], "{setup:#?}");
        let other = Setup::of_seed(seed + 1, Mode::Strict).run();
        assert_ne!(digests[0], other.digest);
    }
}

/// The judge notices a store that forgets, with each limit.
#[test]
fn store_that_forgets_is_caught() {
    for limit in LIMITS {
        let setup = Setup {
            limit,
            nodes: 3,
            keys: 1,
            workload: Workload::Uniform,
            load: 4.0,
            faults: Faults {
                restarts: 4,
                forgets: true,
                ..Faults::NONE
            },
            ..Setup::of_seed(1, Mode::Strict)
        };
        assert!(setup.run().excess > 0, "{}", limit.name);
    }
}
