//! `replay`: tries limits on access logs.
//!
//! One thread reads and parses, the other sorts the lines and decides. Only counts are kept.

mod arguments;
mod calendar;
mod candidate_quota;
mod date;
mod entry;
mod key;
mod key_sample;
mod left_out;
mod log;
mod matching;
mod peaks;
mod reordering;
mod report;
mod required_request_parts;
mod series;
mod settings;
mod simulated_queue;
mod suggestion;
mod summary_sentence;
mod svg;
mod tally;
mod text_report;
mod top;
mod tried_rules;

use std::{io::Write, sync::mpsc::sync_channel, thread};

pub(crate) use self::arguments::Replay;
pub use self::log::{LogLine, read_line};
use self::{
    entry::Attempt, log::Reader, matching::RequestPattern, reordering::Reordering,
    settings::Settings, tally::Tally,
};
use crate::exit::{FAULTS, OK};

/// More was limited than `--fail-above` allows.
const ABOVE: u8 = 3;

/// Replays the logs, and writes the report. Warnings go to `errors`: the report may be JSON.
///
/// # Errors
///
/// Wrong arguments, and unreadable files.
pub(crate) fn replay(
    arguments: &Replay,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> Result<u8, String> {
    let settings = Settings::new(arguments)?;
    if let Some(warning) = settings.pattern.as_ref().and_then(RequestPattern::warning) {
        let _ = writeln!(errors, "warning[W29]: --match: {warning}");
    }
    let mut reader = Reader::open(arguments, &settings)?;
    let tally = thread::scope(|scope| {
        let (sender, blocks) = sync_channel::<Vec<Attempt>>(4);
        let reading = scope.spawn(move || {
            let sent = |block| sender.send(block).is_ok();
            reader.read(sent).map(|()| reader.seen())
        });
        let mut tally = decide(&settings, blocks.into_iter().flatten())?;
        tally.seen = reading.join().map_err(|_| "reading ended early")??;
        Ok::<_, String>(tally)
    })?;
    let written = report(arguments, &tally);
    // The reader closed the pipe: no error.
    let _ = out.write_all(written.as_bytes());
    if let Some(path) = &arguments.report {
        let page = report::html(&tally);
        std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(match settings.fail_above {
        _ if tally.seen.readable() == 0 => FAULTS,
        Some(share) if tally.worst_share() > share => ABOVE,
        _ => OK,
    })
}

fn decide(settings: &Settings, attempts: impl Iterator<Item = Attempt>) -> Result<Tally, String> {
    let mut tally = Tally::new(settings)?;
    let mut order = Reordering::new(settings.reorder, settings.spread);
    for attempt in attempts {
        order.push(attempt, &mut |attempt| tally.decide(attempt));
    }
    order.finish(&mut |attempt| tally.decide(attempt));
    tally.finish();
    tally.late = order.late();
    Ok(tally)
}

fn report(arguments: &Replay, tally: &Tally) -> String {
    if arguments.json {
        return format!("{:#}\n", tally.json());
    }
    text_report::text(tally)
}
