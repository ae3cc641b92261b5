#![no_main]

use testkit::fuzz::log_lines::{LogLine, check};

fn read(line: &[u8]) -> Result<LogLine, &'static str> {
    let line = tower_ratelimit_cli::fuzzing::read_line(line)?;
    Ok(LogLine {
        at: line.at,
        client: line.client,
        user: line.user,
        method: line.method,
        uri: line.uri,
        status: line.status,
        user_agent: line.user_agent,
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data, read));
