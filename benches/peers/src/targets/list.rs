use super::Target;
use crate::{
    count, decision,
    decision::Clock,
    growth, http_load, instructions, memory, middleware,
    middleware::{
        BARE, DEFAULT, DEFAULT_TSC, FIVE_FIELDS, PLAIN, PLAIN_TSC, TOWER_GOVERNOR,
        TOWER_GOVERNOR_HEADERS,
    },
    report::Report,
    rounds::Samples,
    stall,
};

/// All targets of what was measured.
pub fn targets(report: &Report) -> Vec<Target> {
    let lists = [
        decisions(report),
        allowed(report),
        denied(report),
        memory(report),
        end_to_end(report),
    ];
    lists.into_iter().flatten().flatten().collect()
}

fn decisions(report: &Report) -> Vec<Option<Target>> {
    use decision::{FLOOR, GOVERNOR, HOT_1, HOT_2, MANY_1, MANY_2, OURS, TEXT_1, TEXT_2};
    let ratio = |title, peer, clock: Clock| {
        let samples = |name| report.samples(title, &format!("{name}, {clock}"));
        Some(samples(OURS)?.over(samples(peer)?))
    };
    let mut targets = Vec::new();
    for title in [HOT_1, HOT_2, MANY_1, MANY_2] {
        for clock in [Clock::Os, Clock::Tsc] {
            let ratio = ratio(title, FLOOR, clock);
            let what = format!("{title}: over the floor, {clock}");
            targets.push(ratio.map(|ratio| Target::at_most(what, 1.3, &ratio)));
        }
        let ratio = ratio(title, GOVERNOR, Clock::Tsc);
        let what = format!("{title}: over governor, TSC");
        targets.push(ratio.map(|ratio| Target::at_most(what, 1.0, &ratio)));
    }
    for title in [TEXT_1, TEXT_2] {
        let ratio = ratio(title, GOVERNOR, Clock::Tsc);
        let what = format!("{title}: governor over ours, TSC");
        let inverse = |ratio: Samples| Samples(ratio.0.iter().map(|ratio| 1.0 / ratio).collect());
        targets.push(ratio.map(|ratio| Target::at_least(what, 2.0, &inverse(ratio))));
    }
    targets
}

fn allowed(report: &Report) -> Vec<Option<Target>> {
    let added = |name| report.samples(middleware::ALLOWED_ADDED, name);
    let allocations = |name| report.samples(count::ALLOWED, name);
    let instructions = |name| report.samples(instructions::ALLOWED, name);
    let at_most = |what: &str, limit, samples: &Samples| Target::at_most(what, limit, samples);
    let beyond_fields = || {
        let growth = allocations(FIVE_FIELDS)?;
        Some(allocations(DEFAULT)?.combine(growth, |ours, growth| ours - growth))
    };
    let plain = || Some(added(PLAIN_TSC)?.over(added(TOWER_GOVERNOR)?));
    let with_headers = || Some(added(DEFAULT_TSC)?.over(added(TOWER_GOVERNOR_HEADERS)?));
    vec![
        allocations(PLAIN).map(|n| at_most("allowed, no headers: allocations", 0.0, n)),
        instructions(PLAIN).map(|n| at_most("allowed, no headers: instructions", 600.0, n)),
        plain().map(|n| {
            at_most(
                "allowed, no headers: added over tower_governor's, TSC",
                1.0,
                &n,
            )
        }),
        beyond_fields().map(|n| {
            at_most(
                "allowed, headers: allocations beyond five ready fields'",
                1.0,
                &n,
            )
        }),
        instructions(DEFAULT).map(|n| at_most("allowed, headers: instructions", 1_400.0, n)),
        with_headers().map(|n| {
            at_most(
                "allowed, headers: added over tower_governor's, TSC",
                1.0,
                &n,
            )
        }),
    ]
}

/// Both are about machines where tower_governor's denials trap, that is, virtual ones.
fn denied(report: &Report) -> Vec<Option<Target>> {
    if !report.machine().is_virtual {
        return Vec::new();
    }
    let whole = |name| report.samples(middleware::DENIED, name);
    let added = |name| report.samples(middleware::DENIED_ADDED, name);
    let times = || Some(whole(TOWER_GOVERNOR)?.over(whole(DEFAULT)?));
    // A denial calls no handler, so it can cost less than a no-op layer; then the share is below 0.
    let share = || Some(added(DEFAULT)?.over(added(TOWER_GOVERNOR)?));
    vec![
        times().map(|n| Target::at_least("denied: tower_governor's request over ours", 20.0, &n)),
        share().map(|n| Target::at_most("denied: added over tower_governor's", 0.02, &n)),
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
    let name = memory::name(decision::OURS, false);
    let resident = |after| report.samples(memory::FLOOD, &format!("{name}, {after}"));
    let growth = || Some(resident("10 M")?.over(resident("1 M")?));
    let what = "resident set after 10 M keys over that after 1 M";
    targets.push(growth().map(|n| Target::at_most(what, 1.05, &n)));
    targets.extend(table_full(report));
    targets
}

fn table_full(report: &Report) -> Vec<Option<Target>> {
    let longest = |name| report.samples(stall::TITLE, name);
    let over_floor = || Some(longest(decision::OURS)?.over(longest(stall::FLOOR)?));
    let what = "longest decision, table full, over what the machine does anyway";
    let over_floor = over_floor().map(|n| Target::at_most(what, 2.0, &n));
    // The floor is no bound on a machine that is busy. Cleaning up a million keys takes milliseconds.
    let what = "longest decision, table full: us";
    let alone = longest(decision::OURS).map(|n| Target::at_most(what, 1_000.0, n));
    // Memory alone makes the floor take up to 1.4 times as long from the one number of keys to the
    // other, with a table of its own for each. More than that would be the work of making room.
    let filling = |(_, keys)| {
        let name = format!("{}, {keys}", growth::OURS_FOR_1M);
        report.samples(growth::FILLING, &name)
    };
    let step = || Some(filling(growth::AFTER)?.over(filling(growth::BEFORE)?));
    let what = "a decision after the table fills over one before";
    let step = step().map(|n| Target::at_most(what, 1.5, &n));
    vec![over_floor, alone, step]
}

fn end_to_end(report: &Report) -> Vec<Option<Target>> {
    let per_second = |name| report.samples(http_load::DENIED, name);
    let share = || Some(per_second(DEFAULT)?.over(per_second(BARE)?));
    vec![
        share()
            .map(|n| Target::at_least("all denied: requests/s over the bare router's", 0.95, &n)),
    ]
}
