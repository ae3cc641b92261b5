//! The program whose allocator counts; `peers` starts it.

use std::{alloc::System, env};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tower_ratelimit_peers::{allocations, memory, middleware::Case};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let output = match arguments.as_slice() {
        ["allocations", name, case] => {
            allocations::allocations(ALLOCATOR, name, Case::of(case)).to_string()
        }
        ["memory", name, capacity, keys] => {
            let number = |text: &str| text.parse().expect("a number");
            memory::run(ALLOCATOR, name, number(capacity), number(keys))
        }
        _ => panic!("started by `peers`, not by hand"),
    };
    println!("{output}");
}
