//! Measures: all, or the parts that its arguments name. Other arguments are its own, for processes
//! that it starts.

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

use tower_ratelimit_peers::{
    allocations, decision, http_load, instructions, memory, middleware, middleware::Case,
    performance_targets::targets, redis_middleware, report::Report, scaling, worst_latency,
};

type Part = (&'static str, fn(&mut Report));

const PARTS: [Part; 9] = [
    ("decision", decision::measure),
    ("middleware", middleware::measure),
    ("instructions", instructions::measure),
    ("allocations", allocations::measure),
    ("memory", memory::measure),
    ("stall", worst_latency::measure),
    ("growth", scaling::measure),
    ("http", http_load::measure),
    ("redis", redis_middleware::measure),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["counted", name, case] => in_runtime(|| instructions::run(name, Case::of(case))),
        ["serve", name, case] => http_load::serve(name, Case::of(case)).expect("a server"),
        ["run", directory, parts @ ..] => return run(directory, parts),
        _ => {
            let parts = PARTS.map(|(name, _)| name).join(" ");
            eprintln!("usage: peers run <directory> [{parts}]");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(directory: &str, parts: &[&str]) -> ExitCode {
    if let Some(unknown) = parts
        .iter()
        .find(|name| !PARTS.iter().any(|(part, _)| part == *name))
    {
        eprintln!("no part is called {unknown:?}");
        return ExitCode::FAILURE;
    }
    let begin = Instant::now();
    let mut report = Report::new();
    println!("{}", report.machine());
    in_runtime(|| {
        // Whatever is measured: a limiter that does not limit is fast.
        decision::check();
        middleware::check();
        memory::check();
        let chosen = |(name, _): &Part| parts.is_empty() || parts.contains(name);
        for (name, measure) in PARTS.into_iter().filter(chosen) {
            println!("\n== {name}, after {} s", begin.elapsed().as_secs());
            measure(&mut report);
        }
    });
    report.set_targets(targets(&report));
    report
        .write(&PathBuf::from(directory))
        .expect("a directory that can be written to");
    println!("\nmeasured in {} s", begin.elapsed().as_secs());
    println!("{}", report.summary());
    ExitCode::SUCCESS
}

/// Some layers start a task.
fn in_runtime<R>(work: impl FnOnce() -> R) -> R {
    let builder = &mut tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    work()
}
