//! Files and pipes of lines.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Attempt, Parsed, Parser, date::Dates, json::FieldNames};
use crate::{arguments::Replay, replay::settings::Settings};

/// A line that is longer is none of a log.
const LONGEST: usize = 1 << 20;

const BUFFER: usize = 1 << 20;

/// Counts of the lines that were read.
#[derive(Debug, Clone, Default)]
pub(in crate::replay) struct Seen {
    pub(in crate::replay) lines: u64,
    pub(in crate::replay) attempts: u64,
    /// Lines about requests that do not count.
    pub(in crate::replay) others: u64,
    pub(in crate::replay) skipped: u64,
    /// The first of them, and why.
    pub(in crate::replay) reasons: Vec<String>,
}

/// Reads the files one after another.
pub(in crate::replay) struct Reader<'s> {
    sources: Vec<(String, Box<dyn BufRead + Send>)>,
    parser: Parser<'s>,
    progress: ProgressBar,
    seen: Seen,
}

impl<'s> Reader<'s> {
    /// # Errors
    ///
    /// A file that cannot be opened.
    pub(in crate::replay) fn open(
        arguments: &Replay,
        settings: &'s Settings,
    ) -> Result<Self, String> {
        let mut sizes = 0;
        let progress = ProgressBar::no_length();
        let open = |path: &std::path::PathBuf| {
            let name = path.display().to_string();
            let (source, size) =
                source(path, &progress).map_err(|error| format!("{name}: {error}"))?;
            sizes += size;
            Ok((name, source))
        };
        let sources = arguments
            .files
            .iter()
            .map(open)
            .collect::<Result<_, String>>()?;
        if sizes > 0 {
            progress.set_length(sizes);
            let style =
                ProgressStyle::with_template("{bar:40} {percent}% {bytes}/{total_bytes} {eta}");
            progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        Ok(Self {
            sources,
            parser: Parser {
                settings,
                format: arguments.format,
                fields: FieldNames {
                    time: arguments.time_field.clone(),
                    ip: arguments.ip_field.clone(),
                    key: settings.key.field().map(str::to_owned),
                },
                dates: Dates::new(),
            },
            progress,
            seen: Seen::default(),
        })
    }

    /// Reads all, and hands on blocks of so many attempts until nobody takes them.
    ///
    /// # Errors
    ///
    /// A file that cannot be read to its end.
    pub(in crate::replay) fn read(
        &mut self,
        block: usize,
        mut hand_on: impl FnMut(Vec<Attempt>) -> bool,
    ) -> Result<(), String> {
        let mut attempts = Vec::with_capacity(block);
        for (name, mut source) in std::mem::take(&mut self.sources) {
            let (mut line, mut number) = (Vec::new(), 0_u64);
            while let Some(fits) =
                next_line(&mut source, &mut line).map_err(|error| format!("{name}: {error}"))?
            {
                number += 1;
                self.take(
                    &name,
                    number,
                    fits.then_some(line.as_slice()),
                    &mut attempts,
                );
                if attempts.len() == block {
                    let full = std::mem::replace(&mut attempts, Vec::with_capacity(block));
                    if !hand_on(full) {
                        return Ok(());
                    }
                }
            }
        }
        hand_on(attempts);
        self.progress.finish_and_clear();
        Ok(())
    }

    pub(in crate::replay) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    fn take(&mut self, name: &str, number: u64, line: Option<&[u8]>, attempts: &mut Vec<Attempt>) {
        if line.is_some_and(|line| line.iter().all(u8::is_ascii_whitespace)) {
            return;
        }
        self.seen.lines += 1;
        let parsed = match line {
            Some(line) => self.parser.parse(line),
            None => Err("it is longer than 1 MiB"),
        };
        match parsed {
            Ok(Parsed::Attempt(attempt)) => {
                self.seen.attempts += 1;
                attempts.push(attempt);
            }
            Ok(Parsed::Other) => self.seen.others += 1,
            Err(why) => {
                self.seen.skipped += 1;
                if self.seen.reasons.len() < 3 {
                    self.seen.reasons.push(format!("{name}:{number}: {why}"));
                }
            }
        }
    }
}

/// A file, a compressed one, or `-` for the standard input, with its size where that is known.
fn source(path: &Path, progress: &ProgressBar) -> io::Result<(Box<dyn BufRead + Send>, u64)> {
    let (raw, size): (Box<dyn Read + Send>, u64) = if path == Path::new("-") {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        (Box::new(file), size)
    };
    let mut raw = BufReader::with_capacity(BUFFER, progress.wrap_read(raw));
    let is_compressed = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    let source: Box<dyn BufRead + Send> = match is_compressed {
        true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(raw))),
        false => Box::new(raw),
    };
    Ok((source, size))
}

/// Reads the next line, without its end; says whether all of it is there, and `None` behind the
/// last one.
fn next_line(source: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let mut fits = true;
    let mut is_any = false;
    loop {
        let available = source.fill_buf()?;
        if available.is_empty() {
            return Ok(is_any.then_some(fits));
        }
        is_any = true;
        let end = memchr::memchr(b'\n', available);
        let part = &available[..end.unwrap_or(available.len())];
        fits &= line.len() + part.len() <= LONGEST;
        if fits {
            line.extend_from_slice(part);
        }
        let used = end.map_or(part.len(), |end| end + 1);
        source.consume(used);
        if end.is_some() {
            return Ok(Some(fits));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_sign() {
        let long = vec![b'x'; LONGEST + 1];
        let mut text = b"a\r\n\nb\0c\n".to_vec();
        text.extend(&long);
        text.extend(b"\nlast");
        let mut source = BufReader::with_capacity(7, text.as_slice());
        let (mut line, mut told) = (Vec::new(), Vec::new());
        while let Some(fits) = next_line(&mut source, &mut line).expect("bytes") {
            told.push(fits.then(|| String::from_utf8_lossy(&line).into_owned()));
        }
        let expected = [Some("a\r"), Some(""), Some("b\0c"), None, Some("last")];
        assert_eq!(told, expected.map(|line| line.map(str::to_owned)));
    }
}
