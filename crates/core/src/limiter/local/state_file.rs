//! State files: the counts of a limiter or a store, saved when a process ends and restored when the next
//! one starts.
//!
//! A file is eight bytes of magic, four of version, and blocks. A block is its length, a checksum, and
//! its bytes. The checksum covers the block's number, so that blocks cannot be lost or exchanged, and the
//! last block has the number of entries. A block is parsed only if its checksum is right.

use std::{
    borrow::Cow,
    error::Error,
    ffi::OsString,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use crate::{
    algorithm::{EvictionWeight, State},
    byte_buffers::{push_bytes, push_u32, push_u64, take_bytes, take_u8, take_u32, take_u64},
    clock::{ClockReading, Timestamp},
    error::ConfigError,
    limiter::limits_in_force::CounterLabel,
    log::{self, Code},
};

/// A state file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    entries: u64,
    bytes: u64,
    at: Timestamp,
}

impl Saved {
    /// The number of counts and blocks in the file: a key has one count for each of its quotas.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// The size of the file in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time at which the save began.
    pub const fn at(&self) -> Timestamp {
        self.at
    }
}

/// Counts could not be saved.
#[derive(Debug)]
pub struct SaveError {
    kind: SaveErrorKind,
    message: Cow<'static, str>,
    source: Option<io::Error>,
}

/// Why counts could not be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SaveErrorKind {
    /// The file could not be written.
    Write,
    /// The limiter counts in a store, which saves all its limiters together.
    InStore,
    /// A limiter of the store has no name, and the next process could not find its counts.
    Unnamed,
}

impl SaveError {
    #[doc(hidden)]
    pub fn new(kind: SaveErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// The error of a step of writing, such as "sync FILE".
    fn write(step: &str, source: io::Error) -> Self {
        Self {
            kind: SaveErrorKind::Write,
            message: format!("{step}: {source}").into(),
            source: Some(source),
        }
    }

    /// Why the counts could not be saved.
    pub const fn kind(&self) -> SaveErrorKind {
        self.kind
    }
}

impl From<io::Error> for SaveError {
    fn from(source: io::Error) -> Self {
        Self::write("the state cannot be written", source)
    }
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SaveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Counts could not be restored. Nothing of the file is used.
#[derive(Debug)]
pub struct RestoreError {
    kind: RestoreErrorKind,
    message: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Why counts could not be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestoreErrorKind {
    /// The file does not exist.
    NotFound,
    /// The file could not be read.
    Read,
    /// It is no state file, or it is cut off or damaged.
    Damaged,
    /// Another version of this crate wrote the file.
    Version,
    /// The file has the counts of another limiter: of other quotas, or of a store.
    Limits,
    /// The limiter itself could not be built.
    Config,
}

impl RestoreError {
    fn new(kind: RestoreErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    fn damaged(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(RestoreErrorKind::Damaged, message)
    }

    /// Why the counts could not be restored.
    pub const fn kind(&self) -> RestoreErrorKind {
        self.kind
    }
}

impl From<io::Error> for RestoreError {
    fn from(source: io::Error) -> Self {
        let kind = if source.kind() == io::ErrorKind::NotFound {
            RestoreErrorKind::NotFound
        } else {
            RestoreErrorKind::Read
        };
        Self {
            kind,
            message: format!("the state file cannot be read: {source}").into(),
            source: Some(source.into()),
        }
    }
}

impl From<ConfigError> for RestoreError {
    fn from(source: ConfigError) -> Self {
        Self {
            kind: RestoreErrorKind::Config,
            message: source.to_string().into(),
            source: Some(source.into()),
        }
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for RestoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The key of a table's hash: tags mean nothing without it.
type HashKey = (u64, u64);

/// The header of a file: what its entries are of.
#[derive(Debug)]
pub(super) struct FileHeader {
    pub(super) hash_key: HashKey,
    /// The number of limiters ever added.
    pub(super) limiters: u64,
    /// A limiter with a table of its own is one limit without a name.
    pub(super) limits: Vec<SavedLimit>,
}

/// A limit of a store, or of a limiter with a table of its own.
#[derive(Debug, Clone)]
pub(super) struct SavedLimit {
    /// The number of its entries.
    pub(super) number: u32,
    pub name: Option<String>,
    /// The part of the counters' names that is made of numbers.
    pub counter_mark: u32,
    /// The counters of all its limiters.
    pub(super) labels: Vec<CounterLabel>,
}

impl FileHeader {
    pub(super) fn read(reader: &mut BlockReader<impl Read>) -> Result<Self, RestoreError> {
        let mut bytes = reader.header()?;
        let header = Self::take_from(&mut bytes).filter(|_| bytes.is_empty());
        header.ok_or_else(|| reader.damaged())
    }

    /// The limit of a limiter with a table of its own.
    ///
    /// # Errors
    ///
    /// If the file is of a store.
    pub(super) fn limit(&self) -> Result<&SavedLimit, RestoreError> {
        match self.limits.as_slice() {
            [limit] if limit.name.is_none() => Ok(limit),
            _ => Err(RestoreError::new(
                RestoreErrorKind::Limits,
                "the state file is of a store and not of a limiter with a table of its own: restore it with \
                 LocalStore::builder().restore(..)",
            )),
        }
    }

    /// # Errors
    ///
    /// If the file is of a limiter with a table of its own.
    pub(super) fn check_store(&self) -> Result<(), RestoreError> {
        if self.limits.iter().all(|limit| limit.name.is_some()) {
            return Ok(());
        }
        Err(RestoreError::new(
            RestoreErrorKind::Limits,
            "the state file is of a limiter with a table of its own and not of a store: restore it \
             with LocalLimiter::builder(..).restore(..)",
        ))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_u64(&mut bytes, self.hash_key.0);
        push_u64(&mut bytes, self.hash_key.1);
        push_u64(&mut bytes, self.limiters);
        push_u32(&mut bytes, self.limits.len() as u32);
        self.limits
            .iter()
            .for_each(|limit| limit.push_to(&mut bytes));
        bytes
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        Some(Self {
            hash_key: (take_u64(from)?, take_u64(from)?),
            limiters: take_u64(from)?,
            limits: {
                let limits = (0..take_u32(from)?).map(|_| SavedLimit::take_from(from));
                limits.collect::<Option<_>>()?
            },
        })
    }
}

impl SavedLimit {
    /// Checks that the file and a limiter have the same counters.
    ///
    /// # Errors
    ///
    /// Names the first counter that differs.
    pub(super) fn check(&self, own: &[CounterLabel]) -> Result<(), RestoreError> {
        let refused = |text| Err(RestoreError::new(RestoreErrorKind::Limits, text));
        if let Some(label) = first_missing(&self.labels, own) {
            return refused(match changed(own, label) {
                Some(own) => format!(
                    "the state file has counts of the quota {} as \"{}\", this limiter as \"{}\": \
                     algorithm, period, slices, refill step and calendar have to be the same",
                    label.shown_name(),
                    label.text,
                    own.text
                ),
                None => format!(
                    "the state file has counts of the quota {} (\"{}\"), which this limiter has \
                     not: the file is of another limiter",
                    label.shown_name(),
                    label.text
                ),
            });
        }
        match first_missing(own, &self.labels) {
            None => Ok(()),
            Some(label) => refused(format!(
                "the state file has no counts of the quota {} (\"{}\") of this limiter: the file is \
                 of another limiter",
                label.shown_name(),
                label.text
            )),
        }
    }

    /// Logs the first counter of the limit that counts otherwise than the saved one of its name: it starts
    /// afresh.
    pub(super) fn warn_of_changes(&self, own: &[CounterLabel]) {
        let mut labels = self.labels.iter();
        let changed = labels.find_map(|label| Some((label, changed(own, label)?)));
        if let Some((label, own)) = changed {
            let fault = format!(
                "{:?} counts its quota {} as \"{}\", and the restored state as \"{}\": algorithm, period, \
                 slices or refill step differ, so this quota starts afresh",
                self.name.as_deref().unwrap_or_default(),
                label.shown_name(),
                own.text,
                label.text
            );
            log::report(Code::StateChanged, &fault);
        }
    }

    fn push_to(&self, to: &mut Vec<u8>) {
        push_u32(to, self.number);
        to.push(u8::from(self.name.is_some()));
        push_bytes(to, self.name.as_deref().unwrap_or_default().as_bytes());
        push_u32(to, self.counter_mark);
        push_u32(to, self.labels.len() as u32);
        for label in &self.labels {
            push_bytes(to, &label.name);
            push_u64(to, u64::from(label.is_named));
            label.shape.iter().for_each(|number| push_u64(to, *number));
            push_bytes(to, label.text.as_bytes());
        }
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        let number = take_u32(from)?;
        let is_named = take_u8(from)? > 0;
        let name = String::from_utf8(take_bytes(from)?.to_vec()).ok()?;
        let counter_mark = take_u32(from)?;
        let labels = (0..take_u32(from)?).map(|_| {
            Some(CounterLabel {
                name: take_bytes(from)?.to_vec(),
                is_named: take_u64(from)? > 0,
                shape: [
                    take_u64(from)?,
                    take_u64(from)?,
                    take_u64(from)?,
                    take_u64(from)?,
                ],
                text: String::from_utf8(take_bytes(from)?.to_vec()).ok()?,
            })
        });
        Some(Self {
            number,
            name: is_named.then_some(name),
            counter_mark,
            labels: labels.collect::<Option<_>>()?,
        })
    }
}

/// The first of `labels` that no counter of `among` counts like.
fn first_missing<'a>(
    labels: &'a [CounterLabel],
    among: &[CounterLabel],
) -> Option<&'a CounterLabel> {
    let mut labels = labels.iter();
    labels.find(|label| !among.iter().any(|other| other.counts_like(label)))
}

/// The counter of this name that counts otherwise than `label`, if none of this name counts like it.
fn changed<'a>(own: &'a [CounterLabel], label: &CounterLabel) -> Option<&'a CounterLabel> {
    let counts_like = own.iter().any(|own| own.counts_like(label));
    let mut own = own.iter().filter(|_| !counts_like);
    own.find(|own| own.name == label.name)
}

/// An entry of a table: a state, or a block.
pub(super) struct SavedEntry {
    pub tag: u64,
    /// The number of its limit.
    pub limit: u32,
    pub(super) weight: EvictionWeight,
    pub(super) state: State,
}

impl SavedEntry {
    fn take_from(from: &mut &[u8], time: ClockReading) -> Option<Self> {
        let (tag, limit) = (take_u64(from)?, take_u32(from)?);
        let fresh_at = time.of_wall(take_u64(from)?);
        Some(Self {
            tag,
            limit,
            weight: EvictionWeight::from_numbers([fresh_at, take_u64(from)?])?,
            state: State::take_from(from, time)?,
        })
    }
}

const MAGIC: [u8; 8] = *b"TRLSTATE";

/// Increased with every change of the format. A file of another version is refused.
const VERSION: u32 = 3;

/// The size from which a block is written. It may be larger: an entry is in one block.
const BLOCK: usize = 1 << 16;

/// The length and the checksum of a block.
const PREFIX: usize = 8;

/// The largest block that is read: a key with a hundred long logs.
const MAX_BLOCK: u32 = 1 << 28;

/// The first byte of a block: its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockContent {
    FileHeader = b'H' as isize,
    Entries = b'E' as isize,
    End = b'Z' as isize,
}

fn checksum(number: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Writes blocks. Buffers one block.
pub(super) struct BlockWriter<W> {
    to: W,
    /// The prefix of the block, its content's letter, and its bytes.
    block: Vec<u8>,
    number: u64,
    written: u64,
    entries: u64,
}

impl<W: Write> BlockWriter<W> {
    /// Writes the magic, the version and the header.
    fn begin(mut to: W, header: &FileHeader) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        let mut writer = Self {
            to,
            block: Vec::with_capacity(2 * BLOCK),
            number: 0,
            written: (MAGIC.len() + size_of_val(&VERSION)) as u64,
            entries: 0,
        };
        writer.clear(BlockContent::FileHeader);
        writer.block.extend_from_slice(&header.to_bytes());
        writer.write()?;
        writer.clear(BlockContent::Entries);
        Ok(writer)
    }

    fn clear(&mut self, content: BlockContent) {
        self.block.clear();
        self.block.extend_from_slice(&[0; PREFIX]);
        self.block.push(content as u8);
    }

    fn write(&mut self) -> io::Result<()> {
        let (prefix, bytes) = self.block.split_at_mut(PREFIX);
        prefix[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        prefix[4..].copy_from_slice(&checksum(self.number, bytes).to_le_bytes());
        self.number += 1;
        self.written += self.block.len() as u64;
        self.to.write_all(&self.block)
    }

    /// Adds an entry to the block. Instants are those of the wall.
    pub(super) fn entry(
        &mut self,
        (tag, limit): (u64, u32),
        weight: EvictionWeight,
        state: &State,
        time: ClockReading,
    ) {
        self.entries += 1;
        let [fresh_at, used] = weight.to_numbers();
        push_u64(&mut self.block, tag);
        push_u32(&mut self.block, limit);
        push_u64(&mut self.block, time.wall_of(fresh_at));
        push_u64(&mut self.block, used);
        state.push_to(&mut self.block, time);
    }

    /// Whether the block has its size, and should be [flushed](Self::flush) without a lock.
    pub(super) fn is_full(&self) -> bool {
        self.block.len() >= BLOCK
    }

    /// Writes the block, if it has entries.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.block.len() > PREFIX + 1 {
            self.write()?;
            self.clear(BlockContent::Entries);
        }
        Ok(())
    }

    /// Writes the end.
    fn finish(mut self, at: Timestamp) -> io::Result<Saved> {
        self.flush()?;
        self.clear(BlockContent::End);
        push_u64(&mut self.block, self.entries);
        self.write()?;
        self.to.flush()?;
        Ok(Saved {
            entries: self.entries,
            bytes: self.written,
            at,
        })
    }
}

/// Writes a file of these entries.
pub(super) fn write<W: Write>(
    to: W,
    header: &FileHeader,
    time: ClockReading,
    entries: impl FnOnce(&mut BlockWriter<W>) -> io::Result<()>,
) -> Result<Saved, SaveError> {
    let mut writer = BlockWriter::begin(to, header)?;
    entries(&mut writer)?;
    Ok(writer.finish(time.wall)?)
}

/// Reads blocks, and checks each before it is parsed.
pub(super) struct BlockReader<R> {
    from: BufReader<R>,
    block: Vec<u8>,
    number: u64,
    /// The number of entries that were parsed.
    entries: u64,
}

impl<R: Read> BlockReader<R> {
    /// Reads the magic and the version.
    pub(super) fn begin(from: R) -> Result<Self, RestoreError> {
        let mut from = BufReader::with_capacity(BLOCK, from);
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic).map_err(|error| cut(error, 0))?;
        if magic != MAGIC {
            return Err(RestoreError::damaged(
                "it is no state file of tower-ratelimit: it does not begin with TRLSTATE",
            ));
        }
        let mut version = [0; 4];
        from.read_exact(&mut version)
            .map_err(|error| cut(error, 0))?;
        match u32::from_le_bytes(version) {
            VERSION => Ok(Self {
                from,
                block: Vec::new(),
                number: 0,
                entries: 0,
            }),
            other => Err(RestoreError::new(
                RestoreErrorKind::Version,
                format!("the state file has version {other}; this build reads version {VERSION}"),
            )),
        }
    }

    /// Reads a block, and returns its content.
    fn read(&mut self) -> Result<BlockContent, RestoreError> {
        let number = self.number;
        let mut prefix = [0; PREFIX];
        let read = self.from.read_exact(&mut prefix);
        read.map_err(|error| cut(error, number))?;
        let [a, b, c, d, expected @ ..] = prefix;
        let length = u32::from_le_bytes([a, b, c, d]);
        if !(1..=MAX_BLOCK).contains(&length) {
            return Err(self.damaged());
        }
        self.block.clear();
        // Memory grows with the bytes that come, whatever length a damaged block claims to have.
        let block = self.from.by_ref().take(u64::from(length));
        let mut block = block;
        block.read_to_end(&mut self.block)?;
        if self.block.len() < length as usize {
            return Err(cut(io::ErrorKind::UnexpectedEof.into(), number));
        }
        if checksum(number, &self.block) != u32::from_le_bytes(expected) {
            return Err(self.damaged());
        }
        self.number += 1;
        match self.block[0] {
            b'H' => Ok(BlockContent::FileHeader),
            b'E' => Ok(BlockContent::Entries),
            b'Z' => Ok(BlockContent::End),
            _ => Err(self.damaged()),
        }
    }

    fn damaged(&self) -> RestoreError {
        RestoreError::damaged(format!(
            "the state file is damaged in its block {}: its checksum or its content is wrong",
            self.number
        ))
    }

    /// The bytes of the header.
    fn header(&mut self) -> Result<&[u8], RestoreError> {
        match self.read()? {
            BlockContent::FileHeader => Ok(&self.block[1..]),
            _ => Err(self.damaged()),
        }
    }

    /// Restores each entry that is not fresh at this time.
    pub(super) fn entries(
        &mut self,
        time: ClockReading,
        mut restore: impl FnMut(SavedEntry) -> Result<(), RestoreError>,
    ) -> Result<(), RestoreError> {
        loop {
            match self.read()? {
                BlockContent::FileHeader => return Err(self.damaged()),
                BlockContent::Entries => {}
                BlockContent::End => return self.end(),
            }
            let mut bytes = &self.block[1..];
            while !bytes.is_empty() {
                let Some(entry) = SavedEntry::take_from(&mut bytes, time) else {
                    return Err(self.damaged());
                };
                self.entries += 1;
                if !entry.weight.is_nothing(time.as_nanos()) {
                    restore(entry)?;
                }
            }
        }
    }

    /// Checks the number of entries, and that no bytes follow.
    fn end(&mut self) -> Result<(), RestoreError> {
        let mut bytes = &self.block[1..];
        let is_whole = take_u64(&mut bytes) == Some(self.entries) && bytes.is_empty();
        let has_more = self.from.read(&mut [0])? > 0;
        if !is_whole || has_more {
            return Err(self.damaged());
        }
        Ok(())
    }
}

/// The error of a file that ends inside of a block.
fn cut(error: io::Error, block: u64) -> RestoreError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        let message = format!("the state file is cut off: it ends in its block {block}");
        return RestoreError::damaged(message);
    }
    error.into()
}

/// The numbers below `count`, each once, neighbours far apart.
///
/// A key has two buckets, and a restore inserts it into the emptier. In the order of the buckets those at
/// the front would fill with keys of their own before the keys that share them come: of a full table of lone
/// buckets 5 keys in 10,000 were lost instead of none.
pub(super) fn scattered(count: usize) -> impl Fn(usize) -> usize {
    // Near the golden section, and without a common divisor.
    let mut step = (count as u128 * 618_034 / 1_000_000).max(1);
    while common_divisor(step, count as u128) > 1 {
        step += 1;
    }
    move |number| (number as u128 * step % count.max(1) as u128) as usize
}

fn common_divisor(mut one: u128, mut other: u128) -> u128 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// The state of a file, or else one that is made anew, with a line in the log about the reason. A file that does
/// not exist is no fault: the first process has none.
pub(super) fn restored_or<T>(
    path: &Path,
    restore: impl FnOnce(File) -> Result<T, RestoreError>,
    make: impl FnOnce() -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let opened = File::open(path).map_err(RestoreError::from);
    opened.and_then(restore).or_else(|error| {
        if error.kind() != RestoreErrorKind::NotFound {
            let fault = format!(
                "{}: {error}; all keys start afresh, and the next save replaces the file",
                path.display()
            );
            log::report(Code::StateRefused, &fault);
        }
        make()
    })
}

/// Writes a file beside `path`, readable for its owner only, syncs it, and renames it to `path`. A
/// process that is killed meanwhile leaves the old file as it was.
pub(super) fn replace_file(
    path: &Path,
    write: impl FnOnce(&File) -> Result<Saved, SaveError>,
) -> Result<Saved, SaveError> {
    let temporary = temporary(path);
    let saved = create(&temporary)
        .map_err(|error| SaveError::write(&format!("create {}", temporary.display()), error))
        .and_then(|file| {
            let saved = write(&file)?;
            let synced = file.sync_all();
            synced.map_err(|error| {
                SaveError::write(&format!("sync {}", temporary.display()), error)
            })?;
            Ok(saved)
        })
        .and_then(|saved| {
            let renamed = fs::rename(&temporary, path);
            renamed.map_err(|error| {
                let step = format!("rename {} to {}", temporary.display(), path.display());
                SaveError::write(&step, error)
            })?;
            Ok(saved)
        });
    if saved.is_err() {
        drop(fs::remove_file(&temporary));
        return saved;
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    sync_folder(folder).map_err(|error| {
        SaveError::write(&format!("sync the folder {}", folder.display()), error)
    })?;
    saved
}

/// One name for all processes, so that those that were killed leave one file at most.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".tmp");
    name.into()
}

/// Creates a file that only its owner can read: with it one can test whether an address was counted.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    // A new one: another user's file or link must not receive the state.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a rename last. Only on Unix can a folder be synced.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once() {
        for count in (1..200).chain([4_096, 4_098, 7_680]) {
            let mut numbers: Vec<_> = (0..count).map(scattered(count)).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count}");
        }
        assert_eq!(scattered(0)(0), 0);
    }
}
