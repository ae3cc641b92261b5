//! The log of a service: lines of text or JSON on the standard error stream, and the runtime until whose end it is written.

use std::{
    io::{self, Write},
    str::FromStr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};
use tower_ratelimit_service::ServeError;
#[cfg(feature = "otel")]
use tower_ratelimit_service::otel_spans;
use tracing::warn;
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The prefix of this project's crates.
const OWN: &str = "tower_ratelimit";

/// The options of a service, and of its log.
#[derive(Debug, Args)]
pub(crate) struct Logged<S: Args> {
    #[command(flatten)]
    settings: S,
    #[command(flatten)]
    log: Log,
}

impl<S: Args> Logged<S> {
    /// Serves until a signal stops it.
    ///
    /// # Errors
    ///
    /// Wrong arguments or files.
    pub(crate) fn run<F>(self, serve: impl FnOnce(S) -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), ServeError>>,
    {
        begin(self.log.log_format, self.log.log_level);
        run(serve(self.settings))
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
struct Log {
    /// The format of the lines on the standard error stream.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
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

static LINES: OnceLock<Lines> = OnceLock::new();

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

/// The most queued lines; further ones are dropped, and counted.
const MAX_WAITING: usize = 4096;

/// How long the process waits for the last lines before it exits.
const FLUSH_TIME: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    Flush(Sender<()>),
}

/// The writer of lines. It never blocks. Clones share the queue.
#[derive(Clone)]
struct Lines {
    waiting: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Lines {
    /// Starts the thread that writes to the stream.
    ///
    /// # Errors
    ///
    /// When the thread cannot start.
    fn start(stream: impl Write + Send + 'static) -> io::Result<Self> {
        let (waiting, messages) = sync_channel(MAX_WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write_all(stream, &messages, &counted))?;
        Ok(Self { waiting, dropped })
    }

    /// Waits until all queued lines are written, or for a second.
    fn flush(&self) {
        let (done, is_done) = channel();
        let mut message = Message::Flush(done);
        // The queue may be full for a moment.
        for _ in 0..10 {
            match self.waiting.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => message = back,
                Err(TrySendError::Disconnected(_)) => return,
            }
            thread::sleep(FLUSH_TIME / 10);
        }
        let _ = is_done.recv_timeout(FLUSH_TIME);
    }
}

fn write_all(mut stream: impl Write, messages: &Receiver<Message>, dropped: &AtomicU64) {
    for message in messages {
        match message {
            // An error cannot be reported anywhere.
            Message::Line(line) => drop(stream.write_all(&line).and_then(|()| stream.flush())),
            Message::Flush(done) => drop(done.send(())),
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            warn!(
                "{lost} lines of the log are lost: nobody read the standard error stream for a while"
            );
        }
    }
}

impl Write for &Lines {
    /// Queues a whole line, which the formatter writes at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.waiting.try_send(Message::Line(line.to_vec())) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'l> MakeWriter<'l> for Lines {
    type Writer = &'l Self;

    fn make_writer(&'l self) -> &'l Self {
        self
    }
}

/// Runs a service until its end.
pub(crate) fn run(service: impl Future<Output = Result<(), ServeError>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let served = runtime.block_on(async {
        #[cfg(feature = "otel")]
        let export = otel_spans::export().map_err(|error| format!("OTLP: {error}"))?;
        let served = service.await;
        #[cfg(feature = "otel")]
        export.end().await;
        served.map_err(|error| error.to_string())
    });
    // The process exits next.
    if let Some(lines) = LINES.get() {
        lines.flush();
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_that_of_this_project() {
        let level: Level = "debug".parse().expect("a level");
        let shown = |target: &str, level_of_line| level.0.would_enable(target, &level_of_line);
        assert!(shown("tower_ratelimit_envoy::serve", tracing::Level::DEBUG));
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

    /// A stream that accepts a line for each permit.
    struct Slow {
        allowed: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.allowed.recv();
            let _ = self.written.send(line.to_vec());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn stream_that_nobody_reads_blocks_no_line() {
        let (allow, allowed) = channel();
        let (written, lines) = channel();
        let writer = Lines::start(Slow { allowed, written }).expect("a thread");
        for number in 0..2 * MAX_WAITING {
            let line = number.to_string();
            (&writer).write_all(line.as_bytes()).expect("never fails");
        }
        // One line may be on its way to the stream.
        let dropped = writer.dropped.load(Ordering::Relaxed) as usize;
        assert!((MAX_WAITING - 1..=MAX_WAITING).contains(&dropped));
        drop(allow);
        writer.flush();
        assert_eq!(lines.try_iter().count(), 2 * MAX_WAITING - dropped);
    }
}
