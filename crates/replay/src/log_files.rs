//! Files and pipes of lines, also compressed ones.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    fs::File,
    io::{self, BufRead, BufReader, Read},
    mem,
    path::{Path, PathBuf},
};

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    json_log_format::{FieldNames, JsonLines},
    log_entry::Attempt,
    log_parser::{Parsed, Parser},
    missing_request_parts::field_names,
    reordering::{AHEAD, seconds_of},
    settings::Settings,
    timestamps::Dates,
};

/// The longest line, in bytes; longer ones are invalid.
const LONGEST: usize = 1 << 20;

/// The read buffers, of all files together and of each.
const BUFFERS: usize = 32 << 20;
const BUFFER: usize = 1 << 20;
const LEAST_BUFFER: usize = 1 << 16;

/// The size of a block that passes from one thread to the other: attempts, and their bytes.
const BLOCK: usize = 4_096;
const BLOCK_BYTES: usize = 8 << 20;

/// Counts of the lines read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) files: usize,
    pub(crate) lines: u64,
    pub(crate) attempts: u64,
    /// Lines about requests that do not count.
    pub(crate) others: u64,
    /// For each option that filters lines, their number.
    pub(crate) left_out: Vec<u64>,
    pub(crate) skipped: u64,
    /// The first of them, with the reasons.
    pub(crate) reasons: Vec<String>,
    /// Attempts without an address, if the key is one.
    pub(crate) without_address: u64,
    /// The first of them: its place, and the client's word.
    pub(crate) first_without_address: Option<(String, Option<String>)>,
    /// The compressed files that end too early.
    pub(crate) cut: Vec<String>,
    /// For each need of the rules, the number of attempts whose lines lack it.
    pub(crate) missing: Vec<u64>,
}

/// Merges all files by the times of their lines: files may cover the same time, in any order.
pub(crate) struct Reader<'s> {
    sources: Vec<Source>,
    parser: Parser<'s>,
    progress: ProgressBar,
    pub(crate) seen: Seen,
}

/// A file or a pipe.
struct Source {
    name: String,
    bytes: Box<dyn BufRead + Send>,
    line: Vec<u8>,
    /// The line's number.
    number: u64,
    is_compressed: bool,
    /// Whether the compressed file ends before its end.
    is_cut: bool,
    /// The next attempts.
    next: VecDeque<Attempt>,
    has_ended: bool,
    /// The time read so far, in microseconds.
    reached: u64,
}

impl<'s> Reader<'s> {
    /// # Errors
    ///
    /// A file that cannot be opened.
    pub(crate) fn open(settings: &'s Settings) -> Result<Self, String> {
        let files = &settings.files;
        if files.iter().filter(|file| is_stdin(file)).count() > 1 {
            return Err("the standard input can be read only once".into());
        }
        let progress = ProgressBar::no_length();
        let sources = sources(files, &progress)?;
        let names = FieldNames {
            time: settings.time_field.clone(),
            ip: settings.ip_field.clone(),
            status: settings.status_field.clone(),
            keys: settings.key.fields().to_vec(),
            needed: field_names(&settings.needs),
        };
        Ok(Self {
            seen: Seen {
                files: sources.len(),
                left_out: vec![0; settings.left_out.names().len()],
                ..Seen::default()
            },
            sources,
            parser: Parser {
                settings,
                json: JsonLines::new(names),
                dates: Dates::new(),
            },
            progress,
        })
    }

    /// Reads all files, and passes attempts on in blocks until the receiver closes. They are as
    /// ordered as those of each source.
    ///
    /// # Errors
    ///
    /// A file that cannot be read to its end.
    pub(crate) fn read(
        &mut self,
        mut hand_on: impl FnMut(Vec<Attempt>) -> bool,
    ) -> Result<(), String> {
        let mut sources = mem::take(&mut self.sources);
        let window = seconds_of(self.parser.settings.reorder) * 1_000_000;
        let mut turns = BinaryHeap::with_capacity(sources.len());
        for (place, source) in sources.iter_mut().enumerate() {
            self.fill(source)?;
            turns.extend(source.turn(window).map(|at| Reverse((at, place))));
        }
        let (mut block, mut bytes) = (Vec::with_capacity(BLOCK), 0);
        while let Some(Reverse((at, place))) = turns.pop() {
            let source = &mut sources[place];
            let Some(mut attempt) = source.next.pop_front() else {
                continue;
            };
            source.reached = source.reached.max(at);
            self.fill(source)?;
            turns.extend(source.turn(window).map(|at| Reverse((at, place))));
            attempt.source = place as u32;
            bytes += attempt.bytes;
            block.push(attempt);
            if block.len() == BLOCK || bytes > BLOCK_BYTES {
                bytes = 0;
                if !hand_on(mem::replace(&mut block, Vec::with_capacity(BLOCK))) {
                    return Ok(());
                }
            }
        }
        hand_on(block);
        self.progress.finish_and_clear();
        Ok(())
    }

    /// Reads the source until it has enough attempts to detect a wrong time.
    fn fill(&mut self, source: &mut Source) -> Result<(), String> {
        while source.next.len() < AHEAD && !source.has_ended {
            match source.read_line()? {
                Some(fits) => {
                    let attempt = self.take(source, fits);
                    source.next.extend(attempt);
                }
                None => {
                    source.has_ended = true;
                    if source.is_cut {
                        self.seen.cut.push(source.name.clone());
                    }
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, source: &Source, fits: bool) -> Option<Attempt> {
        let line = fits.then(|| source.text());
        if line.is_some_and(|line| line.iter().all(u8::is_ascii_whitespace)) {
            return None;
        }
        self.seen.lines += 1;
        let parsed = match line {
            Some(line) => self.parser.parse(line, &mut self.seen.missing),
            None => Err("it is longer than 1 MiB"),
        };
        match parsed {
            Ok(Parsed::Attempt(attempt)) => {
                self.seen.attempts += 1;
                return Some(attempt);
            }
            Ok(Parsed::WithoutAddress(attempt, client)) => {
                self.seen.attempts += 1;
                self.seen.without_address += 1;
                let Source { name, number, .. } = source;
                self.seen
                    .first_without_address
                    .get_or_insert_with(|| (format!("{name}:{number}"), client));
                return Some(attempt);
            }
            Ok(Parsed::Other) => self.seen.others += 1,
            Ok(Parsed::LeftOut(option)) => self.seen.left_out[option] += 1,
            Err(why) => {
                self.seen.skipped += 1;
                if self.seen.reasons.len() < 3 {
                    let Source { name, number, .. } = source;
                    self.seen.reasons.push(format!("{name}:{number}: {why}"));
                }
            }
        }
        None
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

impl Source {
    /// Opens a file, a compressed one, or `-` for the standard input; returns its size if known.
    fn open(path: &Path, buffer: usize, progress: &ProgressBar) -> Result<(Self, u64), String> {
        let name = path.display().to_string();
        let opened = bytes(path, buffer, progress);
        let (bytes, is_compressed, size) = opened.map_err(|error| format!("{name}: {error}"))?;
        let source = Self {
            name,
            bytes,
            line: Vec::new(),
            number: 0,
            is_compressed,
            is_cut: false,
            next: VecDeque::with_capacity(AHEAD),
            has_ended: false,
            reached: 0,
        };
        Ok((source, size))
    }

    /// The time of its next attempt, unless others of it are much earlier.
    fn turn(&self, window: u64) -> Option<u64> {
        let at = self.next.front()?.at;
        if at <= self.reached + window {
            return Some(at);
        }
        let times = self.next.iter().map(|attempt| attempt.at);
        times
            .min()
            .map(|least| if at > least + window { least } else { at })
    }

    /// The line, without the byte order mark of a file.
    fn text(&self) -> &[u8] {
        let mark = "\u{feff}".as_bytes();
        let text = self.line.strip_prefix(mark).filter(|_| self.number == 1);
        text.unwrap_or(&self.line)
    }

    /// Reads the next line. Returns whether it is complete, and `None` after the last one. The end of a compressed file
    /// that was cut is its last complete line.
    fn read_line(&mut self) -> Result<Option<bool>, String> {
        self.number += 1;
        let read = next_line(&mut self.bytes, &mut self.line);
        if self.is_compressed && is_cut(&read) {
            self.is_cut = true;
            return Ok(None);
        }
        read.map_err(|error| format!("{}: {error}", self.name))
    }
}

/// Opens a file. Returns its bytes, whether it is compressed, and its size.
fn bytes(
    path: &Path,
    buffer: usize,
    progress: &ProgressBar,
) -> io::Result<(Box<dyn BufRead + Send>, bool, u64)> {
    let (raw, size): (Box<dyn Read + Send>, u64) = if is_stdin(path) {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        (Box::new(file), size)
    };
    let mut raw = BufReader::with_capacity(buffer, progress.wrap_read(raw));
    check_format(raw.fill_buf()?, path)?;
    let is_compressed = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    let bytes: Box<dyn BufRead + Send> = if is_compressed {
        Box::new(BufReader::with_capacity(buffer, MultiGzDecoder::new(raw)))
    } else {
        Box::new(raw)
    };
    Ok((bytes, is_compressed, size))
}

/// Reads the next line, without its end. Returns whether it is complete, and `None` after the last
/// one.
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

/// Opens the files. The progress covers all with a known size.
fn sources(files: &[PathBuf], progress: &ProgressBar) -> Result<Vec<Source>, String> {
    let buffer = (BUFFERS / files.len().max(1)).clamp(LEAST_BUFFER, BUFFER);
    let mut sizes = 0;
    let open = |path: &PathBuf| {
        let (source, size) = Source::open(path, buffer, progress)?;
        sizes += size;
        Ok(source)
    };
    let sources: Vec<Source> = files.iter().map(open).collect::<Result<_, String>>()?;
    if sizes > 0 {
        progress.set_length(sizes);
        let style = ProgressStyle::with_template("{bar:40} {percent}% {bytes}/{total_bytes} {eta}");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }
    Ok(sources)
}

/// Whether reading failed since a compressed file ends too early.
pub(crate) fn is_cut<T>(read: &io::Result<T>) -> bool {
    let kind = read.as_ref().err().map(io::Error::kind);
    kind == Some(io::ErrorKind::UnexpectedEof)
}

/// The first bytes of other compressed files, with the name of the format and the program that reads it.
const OTHER_FORMATS: [(&[u8], &str, &str); 3] = [
    (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"BZh", "bzip2", "bzcat"),
];

/// Refuses a file in a compressed format that is not read.
pub(crate) fn check_format(begin: &[u8], path: &Path) -> io::Result<()> {
    let formats = OTHER_FORMATS.iter();
    let mut found = formats.filter(|(first, ..)| begin.starts_with(first));
    match found.next() {
        // A line of text may begin with these letters.
        Some((b"BZh", ..)) if begin.get(4..10) != Some(b"1AY&SY") => Ok(()),
        Some((_, format, program)) => Err(io::Error::other(format!(
            "it is compressed by {format}, and replay reads gzip only: {program} {} | tower-ratelimit replay -",
            path.display()
        ))),
        None => Ok(()),
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
        let (mut line, mut lines) = (Vec::new(), Vec::new());
        while let Some(fits) = next_line(&mut source, &mut line).expect("bytes") {
            lines.push(fits.then(|| String::from_utf8_lossy(&line).into_owned()));
        }
        let expected = [Some("a\r"), Some(""), Some("b\0c"), None, Some("last")];
        assert_eq!(lines, expected.map(|line| line.map(str::to_owned)));
    }
}
