//! The log of services: lines of text or JSON on the standard error stream.

mod line_queue;

use std::{io, str::FromStr, sync::OnceLock};

use clap::{Args, ValueEnum};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use self::line_queue::Lines;

/// The prefix of this project's crates.
const OWN: &str = "tower_ratelimit";

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct Log {
    /// The format of the lines on the standard error stream.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "TOWER_RATELIMIT_LOG_FORMAT"
    )]
    log_format: Format,
    /// The lowest level of the lines: error, warn, info, debug or trace; or a level for each
    /// module, such as warn,hyper=debug.
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        env = "RUST_LOG",
        hide_env_values = true
    )]
    log_level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One object a line, with timestamp, level, message and target.
    Json,
}

/// The enabled lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Level(Targets);

impl From<LevelFilter> for Level {
    /// The level of this project's lines. Details of other crates are disabled: they may contain
    /// requests.
    fn from(level: LevelFilter) -> Self {
        let others = level.min(LevelFilter::WARN);
        Self(Targets::new().with_default(others).with_target(OWN, level))
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(level) = text.parse::<LevelFilter>() {
            return Ok(level.into());
        }
        let targets = text.parse().map(Self);
        targets.map_err(|_| {
            "a level is error, warn, info, debug, trace or off; or levels of modules, such as warn,hyper=debug"
                .to_owned()
        })
    }
}

impl Log {
    pub(crate) fn begin(self) {
        begin(self.log_format, self.log_level);
    }
}

static LINES: OnceLock<Lines> = OnceLock::new();

/// Writes the queued lines before the process exits.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
}

/// Starts the log. Only the first call has an effect.
pub(crate) fn begin(format: Format, level: Level) {
    let Ok(writer) = Lines::start(io::stderr()) else {
        return;
    };
    let writer = LINES.get_or_init(|| writer).clone();
    // Without colours: the stream of a service is no terminal.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    let begun = tracing_subscriber::registry()
        .with(lines.with_filter(level.0))
        .try_init();
    drop(begun);
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::Level;

    #[test]
    fn a_level_is_that_of_this_project() {
        let level: Level = "debug".parse().expect("a level");
        let shown = |target: &str, level_of_line| level.0.would_enable(target, &level_of_line);
        assert!(shown(
            "tower_ratelimit_server::serve",
            tracing::Level::DEBUG
        ));
        assert!(!shown("h2::codec", tracing::Level::INFO));
        assert!(shown("redis", tracing::Level::WARN));
        assert_eq!("off".parse(), Ok(Level::from(LevelFilter::OFF)));
    }

    #[test]
    fn levels_of_modules_are_parsed() {
        let level: Level = "error,h2=trace".parse().expect("levels");
        assert!(level.0.would_enable("h2::codec", &tracing::Level::TRACE));
        let own = level
            .0
            .would_enable("tower_ratelimit", &tracing::Level::WARN);
        assert!(!own);
        assert!("a=b=c".parse::<Level>().is_err());
    }
}
