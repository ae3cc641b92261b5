//! Tests of the settings.

use super::*;
use tower_ratelimit_core::{limiter::limits_in_force::LimitTerms, quota::Quota};

fn limits(quotas: &[Quota], block_for: Option<Duration>) -> TierSet {
    let terms = LimitTerms {
        block_for,
        ..LimitTerms::of(quotas)
    };
    TierSet::new(terms).expect("good quotas")
}

fn terms(mode: Mode) -> Result<Option<Terms>, ConfigError> {
    let limits = limits(&[Quota::per_second(100), Quota::per_day(50)], None);
    mode.terms(DEFAULT_MAX_LEASES, &limits)
}

#[test]
fn settings_out_of_bounds_are_refused() {
    assert_eq!(terms(Mode::strict()), Ok(None));
    let leased = Mode::leased();
    let known = terms(leased).expect("the defaults are good");
    let known = known.expect("leases");
    assert_eq!((known.length, known.overdraft), (DEFAULT_LENGTH, 0));
    assert_eq!(known.most, u32::MAX);
    for bad in [
        leased.length(Duration::from_millis(99)),
        leased.length(Duration::from_millis(60_001)),
        leased.max_units(1),
        leased.ahead(1),
        Mode::strict().length(DEFAULT_LENGTH),
        Mode::strict().max_units(2),
        Mode::strict().ahead(2),
    ] {
        let error = terms(bad).expect_err("out of bounds");
        assert_eq!(error.kind(), ConfigErrorKind::Lease, "{bad:?}");
    }
    for bounds in [SHORTEST_LEASE, LONGEST_LEASE] {
        assert!(terms(leased.length(bounds).max_units(2)).is_ok());
    }
    for leases in [0, MOST_LEASES + 1] {
        let limits = limits(&[Quota::per_second(100)], None);
        assert!(leased.terms(leases, &limits).is_err());
    }
}

#[test]
fn eventual_mode_names_the_settings_it_needs() {
    let ms = Duration::from_millis;
    let eventual = Mode::eventual(ms(50)).ahead(20);
    let known = terms(eventual).expect("good settings");
    let known = known.map(|terms| (terms.length, terms.overdraft));
    assert_eq!(known, Some((ms(50), 20)));
    for (bad, text) in [
        (Mode::eventual(ms(9)).ahead(20), "interval"),
        (Mode::eventual(ms(60_001)).ahead(20), "interval"),
        (Mode::eventual(ms(50)), "without ahead"),
        (eventual.ahead(0), "ahead(0)"),
        (eventual.ahead(51), "smallest capacity among the quotas, 50"),
        (eventual.length(DEFAULT_LENGTH), "leased"),
        (eventual.max_units(5), "leased"),
    ] {
        let error = terms(bad).expect_err("out of bounds");
        assert_eq!(error.kind(), ConfigErrorKind::Lease, "{bad:?}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(terms(eventual.ahead(50)).is_ok());
    let queue = limits(&[Quota::per_second(100).leaky_bucket(20)], None);
    let blocks = limits(&[Quota::per_second(100)], Some(ms(50)));
    let counts = limits(&[Quota::per_second(100).fixed_window().uncapped()], None);
    for (limits, text) in [
        (queue, "leaky bucket"),
        (blocks, "block_for"),
        (counts, "uncapped"),
    ] {
        let terms = eventual.terms(DEFAULT_MAX_LEASES, &limits);
        let error = terms.expect_err("the store alone decides");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn limits_without_leasable_units_stay_strict() {
    let queue = limits(&[Quota::per_second(100).leaky_bucket(20)], None);
    let blocks = limits(&[Quota::per_second(100)], Some(DEFAULT_LENGTH));
    for limits in [queue, blocks] {
        let terms = Mode::leased().terms(DEFAULT_MAX_LEASES, &limits);
        assert_eq!(terms, Ok(None));
    }
}
