//! Lines of access logs, as `replay` reads them.

use testkit::fuzz::log_lines::LogLine;

/// The fields of a line, or the reason that it has none.
pub(crate) fn read(line: &[u8]) -> Result<LogLine, &'static str> {
    let line = tower_ratelimit_replay::read_line(line)?;
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
