//! Simulated nodes admit no more than one limiter would, or than they may be ahead, whatever goes
//! wrong.
//!
//! Runs 8 seeds, or as many as `SIMULATION_SEEDS` sets; the public workflow runs a thousand each night. Ten thousand are
//! quicker with `cargo run --release -p example-simulate -- seeds 0 10000`.

use std::env;

use testkit::simulation::{BUCKET, Faults, LIMITS, Mode, Report, Setup, WINDOW, Workload};

fn seeds() -> u64 {
    let seeds = env::var("SIMULATION_SEEDS");
    seeds.map_or(8, |text| text.parse().expect("a number of seeds"))
}

fn run(setup: &Setup) -> Report {
    let report = setup.run();
    let classes = setup.classes.len() > 1;
    let (seed, mode) = (
        setup.seed,
        if classes {
            "classes"
        } else {
            setup.mode.name()
        },
    );
    assert!(
        report.is_right(),
        "{} units too many of {}, {:?}: {setup:#?}\n{}\nAll of a seed's events: \
         cargo run --release -p example-simulate -- seed {seed} {mode}",
        report.excess,
        report.bound,
        report.broken,
        report.log.concat()
    );
    report
}

/// The invariants of leases hold as well, as far as the network reports. A store that loses its values
/// makes nodes begin anew: what had been spent then is lost, and what had been leased is spent.
#[test]
fn no_more_than_one_limiter_would_admit() {
    let modes = [Mode::Leased, Mode::Strict, Mode::Eventual, Mode::Mixed];
    for (seed, mode) in (0..seeds()).zip(modes.iter().cycle()) {
        run(&Setup::of_seed(seed, *mode));
    }
}

/// No class takes the part that is kept for those above it.
#[test]
fn no_class_takes_more_than_its_part() {
    for seed in 0..seeds() {
        let setup = Setup::of_seed(seed, Mode::Leased).with_classes();
        let report = run(&setup);
        assert!(report.admitted > 0, "{setup:#?}");
    }
}

/// Those that decide from the value that they wrote last do not, either.
#[test]
fn no_more_on_a_database_that_swaps() {
    for seed in 0..seeds() / 4 {
        let mode = Mode::ALL[seed as usize % 4];
        let setup = Setup::of_seed(seed, mode).with_swaps();
        let report = run(&setup);
        assert!(report.admitted > 0, "{setup:#?}");
    }
}

/// Without faults the nodes together admit about what one limiter does: their requests arrive a few
/// milliseconds later, and in another order.
#[test]
fn hardly_less_than_one_limiter_would_admit() {
    for seed in 0..seeds() / 8 {
        let setup = Setup {
            // A refund is a call more.
            ones: true,
            ..Setup::of_seed(seed, Mode::Strict).without_faults()
        };
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

/// At one and a half times the limit, and hardly any call is needed.
#[test]
fn leases_hold_little_back() {
    for nodes in [3, 10] {
        let report = run(&Setup::calm(Mode::Leased, BUCKET, nodes, 1.5));
        let (admitted, central) = (report.admitted as f64, report.central as f64);
        assert!(admitted >= 0.99 * central, "{admitted} of {central}");
        let (calls, requests) = (report.calls as f64, report.requests as f64);
        assert!(calls <= 0.12 * requests, "{calls} for {requests}");
    }
}

/// Three classes at four times the limit: what critical requests leave goes to the others.
#[test]
fn leases_of_classes_hold_little_back() {
    for (limit, nodes) in [(BUCKET, 3), (WINDOW, 3)] {
        let report = run(&Setup::calm(Mode::Leased, limit, nodes, 4.0).with_classes());
        let (admitted, central) = (report.admitted as f64, report.central as f64);
        assert!(admitted >= 0.9 * central, "{admitted} of {central}");
    }
}

/// Each node finds out by itself, with the first trial after an outage.
#[test]
fn outages_end() {
    for mode in Mode::ALL {
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
                ..Setup::of_seed(seed, mode)
            };
            let report = run(&setup);
            if report.failed > 0 && report.last_outage < 4_000 {
                ended += 1;
                let after = report.last_failure.saturating_sub(report.last_outage);
                assert!(after < 500, "{after} ms: {setup:#?}");
            }
        }
        assert!(ended > 3, "{ended}");
    }
}

#[test]
fn same_seed_gives_the_same_events() {
    for (seed, mode) in [3, 5, 8, 13, 21, 34]
        .into_iter()
        .zip(Mode::ALL.iter().cycle())
    {
        let setup = Setup::of_seed(seed, *mode);
        let digests = [setup.run().digest, setup.run().digest];
        assert_eq!(digests[0], digests[1], "{setup:#?}");
        let other = Setup::of_seed(seed + 1, *mode).run();
        assert_ne!(digests[0], other.digest);
    }
}

/// The judge notices a store that forgets, with each limit.
#[test]
fn store_that_forgets_is_caught() {
    for (limit, mode) in LIMITS.into_iter().zip(Mode::ALL.iter().cycle()) {
        let setup = Setup {
            limit: limit.times(10),
            nodes: 3,
            keys: 1,
            workload: Workload::Uniform,
            load: 4.0,
            faults: Faults {
                restarts: 4,
                forgets: true,
                ..Faults::NONE
            },
            ..Setup::of_seed(1, *mode)
        };
        assert!(setup.run().excess > 0, "{}", limit.name);
    }
}
