use super::Target;
use crate::{
    allocations, decision,
    decision::Clock,
    http_load, instructions, memory, middleware,
    middleware::{
        DEFAULT, EIGHT_FIELDS, FIVE_FIELDS, NOOP, PLAIN, TOWER_GOVERNOR, TOWER_GOVERNOR_HEADERS,
    },
    report::Report,
    scaling, worst_latency,
};

/// All targets of what was measured.
pub fn targets(report: &Report) -> Vec<Target> {
    let lists = [
        decisions(report),
        out_of_the_box(report),
        allowed(report),
        several(report),
        over_peers(report),
        denied(report),
        memory(report),
        end_to_end(report),
    ];
    lists.into_iter().flatten().flatten().collect()
}

fn decisions(report: &Report) -> Vec<Option<Target>> {
    use decision::{FLOOR, GOVERNOR, HOT_1, HOT_2, MANY_1, MANY_2, OURS, TEXT_1, TEXT_2};
    let ratio = |title, one: &str, other: &str, clock: Clock| {
        let samples = |name| report.samples(title, &format!("{name}, {clock}"));
        Some(samples(one)?.over(samples(other)?))
    };
    let over_governor = |title, clock, limit| {
        let what = format!("{title}: over governor, {clock}");
        let floor = ratio(title, FLOOR, GOVERNOR, clock);
        let target = ratio(title, OURS, GOVERNOR, clock);
        target.map(|ratio| Target::at_most(what, limit, &ratio).floor(floor.as_ref()))
    };
    let mut targets = Vec::new();
    for (title, limit) in [(HOT_1, 1.5), (HOT_2, 0.9)] {
        for clock in [Clock::Os, Clock::Tsc] {
            targets.push(over_governor(title, clock, limit));
        }
    }
    for title in [MANY_1, MANY_2] {
        for clock in [Clock::Os, Clock::Tsc] {
            let ratio = ratio(title, OURS, FLOOR, clock);
            let what = format!("{title}: over the floor, {clock}");
            targets.push(ratio.map(|ratio| Target::at_most(what, 1.4, &ratio)));
            targets.push(over_governor(title, clock, 0.85));
        }
    }
    for title in [TEXT_1, TEXT_2] {
        targets.push(over_governor(title, Clock::Tsc, 0.5));
    }
    targets
}

fn allowed(report: &Report) -> Vec<Option<Target>> {
    let added = |name| report.samples(middleware::ALLOWED_ADDED, name);
    let allocations = |name| report.samples(allocations::ALLOWED, name);
    let instructions = |name| report.samples(instructions::ALLOWED, name);
    let beyond_fields = || {
        let growth = allocations(FIVE_FIELDS)?;
        Some(allocations(DEFAULT)?.combine(growth, |ours, growth| ours - growth))
    };
    let with_headers = |name| Some(added(name)?.over(added(TOWER_GOVERNOR_HEADERS)?));
    let five_fields = instructions(FIVE_FIELDS);
    vec![
        allocations(PLAIN).map(|n| Target::at_most("allowed, no headers: allocations", 0.0, n)),
        beyond_fields().map(|n| {
            let what = "allowed, headers: allocations beyond five ready fields'";
            Target::at_most(what, 1.0, &n)
        }),
        instructions(DEFAULT).map(|n| {
            let what = "allowed, headers: instructions, below tower_governor's for two fields";
            Target::at_most(what, 3_725.0, n).floor(five_fields)
        }),
        with_headers(DEFAULT).map(|n| {
            let what = "allowed, five fields: added over tower_governor's for two";
            Target::at_most(what, 1.05, &n).floor(with_headers(FIVE_FIELDS).as_ref())
        }),
    ]
}

/// Each limiter with the clock that it has without settings.
fn out_of_the_box(report: &Report) -> Vec<Option<Target>> {
    use decision::{GOVERNOR, HOT_1, HOT_2, LIMITADOR, MANY_1, MANY_2, OURS};
    let over = |title, peer, clock: Clock, limit| {
        let samples = |name, clock| report.samples(title, &format!("{name}, {clock}"));
        let ratio = samples(OURS, Clock::Tsc)?.over(samples(peer, clock)?);
        let what = format!("{title}: over {peer} out of the box");
        Some(Target::at_most(what, limit, &ratio))
    };
    vec![
        over(HOT_1, GOVERNOR, Clock::Tsc, 1.2),
        over(HOT_2, GOVERNOR, Clock::Tsc, 0.9),
        over(MANY_1, GOVERNOR, Clock::Tsc, 0.85),
        over(MANY_2, GOVERNOR, Clock::Tsc, 0.85),
        over(MANY_1, LIMITADOR, Clock::Os, 0.1),
    ]
}

/// Several limits over one of this crate's. The bounds on instructions are those that
/// `scripts/check-instructions.sh` aims at, over the 900 of one.
fn several(report: &Report) -> Vec<Option<Target>> {
    use decision::{ONE, SEVERAL, TWO_GOVERNORS, TWO_QUOTAS};
    use middleware::{RULES, STORED, THREE, TWO};
    let instructions = |what, name, limit| {
        let samples = |name| report.samples(instructions::SEVERAL, name);
        let ratio = samples(name)?.over(samples(PLAIN)?);
        let what = format!("{what}: instructions over one limit's");
        Some(Target::at_most(what, limit, &ratio))
    };
    let decision = |over, limit| {
        let samples = |name| report.samples(SEVERAL, name);
        let ratio = samples(TWO_QUOTAS)?.over(samples(over)?);
        let what = format!("two quotas of a key: a decision over {over}");
        Some(Target::at_most(what, limit, &ratio))
    };
    vec![
        decision(ONE, 2.5),
        decision(TWO_GOVERNORS, 1.5),
        instructions("two quotas of a key", TWO, 2.1),
        instructions("three limits together", THREE, 5.3),
        instructions("a limit in a store", STORED, 1.67),
        instructions("twenty rules, one met", RULES, 2.78),
    ]
}

/// Several limits, rules, windows, and no limits by key, over those of the peers that have them.
fn over_peers(report: &Report) -> Vec<Option<Target>> {
    use middleware::{
        ALLOWED_ADDED, AXUM_GCRA_RULES, AXUM_GOVERNOR_THREE, AXUM_GOVERNOR_TWO, DENIED,
        LIMITADOR_RULES, RULES, SEVERAL_ADDED, THREE, TOWER_GOVERNOR_THREE, TOWER_GOVERNOR_TWO,
        TOWER_RATE_LIMITER_WINDOW, TOWER_RESILIENCE, TWO, WINDOW,
    };
    let over = |title, one, peer, limit| {
        let samples = |name| report.samples(title, name);
        let ratio = samples(one)?.over(samples(peer)?);
        let work = if title == DENIED {
            "denied request"
        } else {
            "added"
        };
        let (_, one) = one.split_once(", ")?;
        let what = format!("{one}: {work} over {peer}");
        Some(Target::at_most(what, limit, &ratio))
    };
    vec![
        over(SEVERAL_ADDED, TWO, TOWER_GOVERNOR_TWO, 1.5),
        over(SEVERAL_ADDED, TWO, AXUM_GOVERNOR_TWO, 0.5),
        over(SEVERAL_ADDED, THREE, TOWER_GOVERNOR_THREE, 2.0),
        over(SEVERAL_ADDED, THREE, AXUM_GOVERNOR_THREE, 0.8),
        over(SEVERAL_ADDED, RULES, AXUM_GCRA_RULES, 1.5),
        over(SEVERAL_ADDED, RULES, LIMITADOR_RULES, 0.1),
        over(ALLOWED_ADDED, PLAIN, TOWER_RESILIENCE, 1.0),
        over(DENIED, PLAIN, TOWER_RESILIENCE, 1.2),
        over(DENIED, WINDOW, TOWER_RATE_LIMITER_WINDOW, 0.5),
    ]
}

/// Both are about machines where tower_governor's denials trap, that is, virtual ones.
fn denied(report: &Report) -> Vec<Option<Target>> {
    if !report.machine().is_virtual {
        return Vec::new();
    }
    let whole = |name| report.samples(middleware::DENIED, name);
    let added = |name| report.samples(middleware::DENIED_ADDED, name);
    let times = |name| Some(whole(TOWER_GOVERNOR)?.over(whole(name)?));
    // A denial calls no handler, so it can cost less than a no-op layer; then the share is below 0.
    let share = |name| Some(added(name)?.over(added(TOWER_GOVERNOR)?));
    vec![
        times(DEFAULT).map(|n| {
            let what = "denied: tower_governor's request over ours";
            Target::at_least(what, 18.0, &n).floor(times(EIGHT_FIELDS).as_ref())
        }),
        share(DEFAULT).map(|n| {
            let what = "denied: added over tower_governor's";
            Target::at_most(what, 0.025, &n).floor(share(EIGHT_FIELDS).as_ref())
        }),
    ]
}

fn memory(report: &Report) -> Vec<Option<Target>> {
    let mut targets = Vec::new();
    for title in [memory::PER_KEY_1M, memory::PER_KEY_10M] {
        for is_long in [false, true] {
            let name = memory::name(decision::OURS, is_long);
            let bytes = report.samples(title, &name);
            targets.push(bytes.map(|n| Target::at_most(format!("{title}: {name}"), 32.0, n)));
        }
    }
    let of_1k = report.samples(memory::OF_1K, memory::OF_1K_DEFAULT);
    let what = format!("{}: KiB", memory::OF_1K);
    targets.push(of_1k.map(|n| Target::at_most(what, 300.0, n)));
    let name = memory::name(decision::OURS, false);
    let resident = |after| report.samples(memory::FLOOD, &format!("{name}, {after}"));
    let growth = || Some(resident("10 M")?.over(resident("1 M")?));
    let what = "resident set after 10 M keys over that after 1 M";
    targets.push(growth().map(|n| Target::at_most(what, 1.05, &n)));
    targets.extend(table_full(report));
    targets
}

fn table_full(report: &Report) -> Vec<Option<Target>> {
    let longest = |name| report.samples(worst_latency::TITLE, name);
    let over_floor = || Some(longest(decision::OURS)?.over(longest(worst_latency::FLOOR)?));
    let what = "longest decision, table full, over what the machine does anyway";
    let over_floor = over_floor().map(|n| Target::at_most(what, 2.0, &n));
    // The floor is no bound on a machine that is busy. Cleaning up a million keys takes milliseconds.
    let what = "longest decision, table full: us";
    let alone = longest(decision::OURS).map(|n| Target::at_most(what, 1_000.0, n));
    // Memory alone makes the floor take up to 1.4 times as long from the one number of keys to the
    // other, with a table of its own for each. More than that would be the work of making room.
    let filling = |(_, keys)| {
        let name = format!("{}, {keys}", scaling::OURS_FOR_1M);
        report.samples(scaling::FILLING, &name)
    };
    let step = || Some(filling(scaling::AFTER)?.over(filling(scaling::BEFORE)?));
    let what = "a decision after the table fills over one before";
    let step = step().map(|n| Target::at_most(what, 1.5, &n));
    vec![over_floor, alone, step]
}

fn end_to_end(report: &Report) -> Vec<Option<Target>> {
    let ratio = |title, one, other| {
        let per_second = |name| report.samples(title, name);
        Some(per_second(one)?.over(per_second(other)?))
    };
    let constant = ratio(http_load::DENIED, DEFAULT, EIGHT_FIELDS);
    let allowed = ratio(http_load::ALLOWED, DEFAULT, TOWER_GOVERNOR_HEADERS);
    let no_layer = ratio(http_load::ALLOWED, NOOP, TOWER_GOVERNOR_HEADERS);
    vec![
        constant.map(|n| {
            let what = "all denied: requests/s over a constant answer's of the same fields";
            Target::at_least(what, 0.95, &n)
        }),
        allowed.map(|n| {
            let what = "all allowed: requests/s over tower_governor's with headers";
            Target::at_least(what, 1.0, &n).floor(no_layer.as_ref())
        }),
    ]
}
