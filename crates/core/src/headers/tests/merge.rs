//! Tests of responses that have fields already.

use std::time::Duration;

use super::{PER_MINUTE, added_to, allowed, denied, denied_for, left, pairs};
use crate::{
    decision::{Policy, QuotaStatus, Unit},
    headers::{Headers, ResetFormat},
};

const LEGACY: Headers = Headers::none().x_ratelimit(Some(ResetFormat::DeltaSeconds));

const OURS: [(&str, &str); 3] = [
    ("x-ratelimit-limit", "100"),
    ("x-ratelimit-remaining", "50"),
    ("x-ratelimit-reset", "30"),
];

fn set_after(present: &[(&str, &str)], remaining: u64) -> Vec<(String, String)> {
    let mut fields = added_to(present, &LEGACY, &[PER_MINUTE], &allowed(left(remaining)));
    fields.sort();
    fields
}

#[test]
fn the_set_with_less_remaining_stays() {
    let theirs = |remaining| {
        [
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "1"),
        ]
    };
    assert_eq!(set_after(&theirs("51"), 50), pairs(&OURS));
    assert_eq!(set_after(&theirs("49"), 50), pairs(&theirs("49")));
    assert_eq!(set_after(&theirs("50"), 50), pairs(&theirs("50")));
}

/// Reddit's form.
#[test]
fn a_fraction_of_remaining_units_does_not_count() {
    for (remaining, stays) in [("51.0", false), ("50.9", true), ("49.9", true)] {
        let theirs = [
            ("x-ratelimit-limit", "600.0"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "1"),
        ];
        let expected = if stays { pairs(&theirs) } else { pairs(&OURS) };
        assert_eq!(set_after(&theirs, 50), expected, "{remaining}");
    }
}

#[test]
fn a_set_with_an_unreadable_remaining_stays() {
    for remaining in [
        "",
        "many",
        "+99",
        "99.",
        ".99",
        "99.5.5",
        "99,9",
        "99.-5",
        "99999999999999999999999",
    ] {
        let theirs = [("x-ratelimit-remaining", remaining)];
        assert_eq!(set_after(&theirs, 50), pairs(&theirs), "{remaining}");
    }
    let twice = [
        ("x-ratelimit-remaining", "99"),
        ("x-ratelimit-remaining", "98"),
    ];
    let mut expected = pairs(&twice);
    expected.sort();
    assert_eq!(set_after(&twice, 50), expected);
}

#[test]
fn a_whole_set_replaces_a_part_of_one() {
    assert_eq!(set_after(&[("x-ratelimit-limit", "5")], 50), pairs(&OURS));
    assert_eq!(set_after(&[("x-ratelimit-reset", "1")], 50), pairs(&OURS));
    assert_eq!(
        set_after(&[("x-ratelimit-remaining", "51")], 50),
        pairs(&OURS)
    );
}

#[test]
fn sets_are_never_mixed() {
    let theirs = [
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "4"),
        ("x-ratelimit-reset", "1"),
    ];
    let unknown = allowed(QuotaStatus::new(&PER_MINUTE));
    assert_eq!(
        added_to(&theirs, &LEGACY, &[PER_MINUTE], &unknown),
        pairs(&theirs),
    );

    let in_flight = Policy::new("flight", 8).with_unit(Unit::ConcurrentRequests);
    let lower = allowed(QuotaStatus::new(&in_flight).with_remaining(3));
    assert_eq!(
        added_to(&theirs, &LEGACY, &[in_flight], &lower),
        pairs(&[("x-ratelimit-limit", "8"), ("x-ratelimit-remaining", "3")]),
    );
}

#[test]
fn other_fields_stay() {
    let theirs = [
        ("x-ratelimit-resource", "core"),
        ("set-cookie", "a"),
        ("set-cookie", "b"),
    ];
    let fields = set_after(&theirs, 50);
    assert!(pairs(&theirs).iter().all(|field| fields.contains(field)));
    assert!(pairs(&OURS).iter().all(|field| fields.contains(field)));
}

#[test]
fn the_longer_wait_stays() {
    let headers = Headers::none()
        .retry_after(true)
        .x_ratelimit_retry_after(true);
    let denial = denied(denied_for(Some(Duration::from_secs(7))));
    for name in ["retry-after", "x-ratelimit-retry-after"] {
        let wait_after = |theirs: &str| {
            let fields = added_to(&[(name, theirs)], &headers, &[PER_MINUTE], &denial);
            let mut waits = fields.into_iter().filter(|field| field.0 == name);
            let wait = waits.next().map(|field| field.1);
            assert_eq!(waits.next(), None);
            wait.unwrap_or_default()
        };
        assert_eq!(wait_after("3"), "7");
        assert_eq!(wait_after("7"), "7");
        assert_eq!(wait_after("60"), "60");
        assert_eq!(wait_after("6.9"), "7");
        assert_eq!(wait_after("7.5"), "7.5");
        for unreadable in ["Wed, 21 Oct 2026 07:28:00 GMT", "soon", "-1", ""] {
            assert_eq!(wait_after(unreadable), unreadable);
        }
        let twice = [(name, "3"), (name, "4")];
        assert_eq!(
            added_to(&twice, &headers, &[PER_MINUTE], &denial)
                .into_iter()
                .filter(|field| field.0 == name)
                .collect::<Vec<_>>(),
            pairs(&twice)
        );
    }
}
