//! The queue of log lines. A thread of its own writes them, so that a stream that nobody reads
//! blocks no request and no signal.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

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
pub(super) struct Lines {
    waiting: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl Lines {
    /// Starts the thread that writes to the stream.
    ///
    /// # Errors
    ///
    /// When the thread cannot start.
    pub(super) fn start(stream: impl Write + Send + 'static) -> io::Result<Self> {
        let (waiting, messages) = sync_channel(MAX_WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || write_all(stream, &messages, &counted))?;
        Ok(Self { waiting, dropped })
    }

    /// Waits until all queued lines are written, or for a second.
    pub(super) fn flush(&self) {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

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
