//! The command `tower-ratelimit`.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

/// Returns the memory of closed connections to the system within seconds.
#[cfg(all(feature = "serve", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let stdout = io::stdout();
    let colours = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let exit = tower_ratelimit_cli::run(
        std::env::args_os(),
        colours,
        &mut stdout.lock(),
        // Not locked: other threads of a service log errors, and would block.
        &mut io::stderr(),
    );
    ExitCode::from(exit)
}
