//! Tries limits on access logs before they are in force: the library behind `tower-ratelimit replay`.
//!
//! The lines of logs flow in, of nginx, Caddy, Apache and others, in any order and also compressed. Each is read as a
//! request, put in the order of its time, and decided by the limiters that a service would have, with the log's clock. A
//! [`Tally`] flows out: how many requests each quota or rule would have limited, and of whom, as [`text`], as
//! [HTML](html) or as [JSON](Tally::json). Only counts are kept, so memory is bounded.
//!
//! ```
//! use tower_ratelimit_replay::{Settings, replay, text};
//!
//! let mut lines = String::new();
//! for second in 0..9 {
//!     let time = format!("21/Nov/2026:03:00:0{second} +0000");
//!     lines += &format!("203.0.113.7 - - [{time}] \"GET / HTTP/1.1\" 200 5\n");
//! }
//! # let folder = tempfile::tempdir()?;
//! # let log = folder.path().join("access.log");
//! std::fs::write(&log, lines)?;
//!
//! let mut settings = Settings::new(vec![log], Vec::new(), "ip".parse()?)?;
//! settings.quotas.push("5/minute".parse()?);
//! let tally = replay(&settings)?;
//! assert!(text(&tally).contains("limits 4 requests, 44.44 %, of 1 key"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod timestamps;

mod log_entry;

mod filters;
mod key_counts;

mod missing_request_parts;

mod settings;

mod combined_log_format;

mod json_log_format;

mod log_parser;
mod reordering;

mod log_files;

mod candidate_quota;
mod peaks;
mod simulated_queue;

mod tried_rules;

mod replay_counts;

mod text_report;

mod chart;

mod html_report;

use std::{sync::mpsc::sync_channel, thread};

pub use self::{
    filters::{LeftOut, RequestPattern, StatusSet},
    html_report::html,
    log_entry::KeySpec,
    log_parser::{LogLine, read_line},
    replay_counts::Tally,
    settings::Settings,
    text_report::text,
};
use self::{log_entry::Attempt, log_files::Reader, reordering::Reordering};

/// Each quota has a bit, and so have the limits of `--what-if`.
const MOST_QUOTAS: usize = 16;

/// Replays the logs. One thread reads and parses, the other sorts the lines and decides.
///
/// # Errors
///
/// More than 16 quotas, unreadable files, and rules that cannot be read any more.
pub fn replay(settings: &Settings) -> Result<Tally<'_>, String> {
    if settings.quotas.len() > MOST_QUOTAS {
        return Err(format!(
            "more than {MOST_QUOTAS} quotas at once are not tried"
        ));
    }
    let mut reader = Reader::open(settings)?;
    thread::scope(|scope| {
        let (sender, blocks) = sync_channel::<Vec<Attempt>>(4);
        let reading = scope.spawn(move || {
            let sent = |block| sender.send(block).is_ok();
            reader.read(sent).map(|()| reader.seen)
        });
        let mut tally = Tally::new(settings)?;
        let mut order = Reordering::new(settings.reorder, settings.spreads_seconds);
        for attempt in blocks.into_iter().flatten() {
            order.push(attempt, &mut |attempt| tally.decide(attempt));
        }
        order.finish(&mut |attempt| tally.decide(attempt));
        tally.finish(order.late());
        tally.seen = reading.join().map_err(|_| "reading ended early")??;
        Ok(tally)
    })
}
