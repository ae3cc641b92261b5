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
    clock::Timestamp,
    error::ConfigError,
    limiter::tier_set::{CounterLabel, TierSet},
    log::{self, Code},
    number_bytes::{push_bytes, push_u32, push_u64, take_bytes, take_u8, take_u32, take_u64},
};

/// A state file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) at: Timestamp,
}

impl Saved {
    /// The number of keys in the file; for a store, of counts and blocks.
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
    pub(super) fn new(kind: SaveErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
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

/// The header of a file.
#[derive(Debug)]
pub(super) struct FileHeader<T> {
    /// The time at which the save began.
    pub(super) saved_at: Timestamp,
    pub(super) max_keys: u64,
    pub(super) hash_key: HashKey,
    pub(super) of: T,
}

/// A limiter with a table of its own.
#[derive(Debug)]
pub(super) struct LimiterHeader {
    /// The part of the counters' names that is made of numbers.
    pub(super) counter_mark: u32,
    pub(super) layout: Layout,
}

/// A store.
#[derive(Debug)]
pub(super) struct StoreHeader {
    /// The number of limiters ever added.
    pub(super) limiters: u64,
    pub(super) limits: Vec<SavedLimit>,
}

/// A limit of a store.
#[derive(Debug, Clone)]
pub(super) struct SavedLimit {
    /// The number of its entries.
    pub(super) number: u32,
    pub(super) name: String,
    /// The layout of each of its limiters.
    pub(super) layouts: Vec<Layout>,
}

/// The content of a header apart from what all have.
pub(super) trait SavedOwner: Sized {
    /// The letter in the file.
    const LETTER: u8;
    /// The error for a file with the other letter.
    const OTHER: &'static str;

    fn push_to(&self, to: &mut Vec<u8>);

    fn take_from(from: &mut &[u8]) -> Option<Self>;
}

impl<T: SavedOwner> FileHeader<T> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![T::LETTER];
        push_u64(&mut bytes, self.saved_at.as_micros());
        push_u64(&mut bytes, self.max_keys);
        push_u64(&mut bytes, self.hash_key.0);
        push_u64(&mut bytes, self.hash_key.1);
        self.of.push_to(&mut bytes);
        bytes
    }

    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or has the other letter.
    pub(super) fn read(reader: &mut BlockReader<impl Read>) -> Result<Self, RestoreError> {
        let mut bytes = reader.header()?;
        if bytes.first().is_some_and(|letter| *letter != T::LETTER) {
            return Err(RestoreError::new(RestoreErrorKind::Limits, T::OTHER));
        }
        let header = Self::take_from(&mut bytes).filter(|_| bytes.is_empty());
        header.ok_or_else(|| reader.damaged())
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        take_u8(from)?;
        Some(Self {
            saved_at: Timestamp::from_micros(take_u64(from)?),
            max_keys: take_u64(from)?,
            hash_key: (take_u64(from)?, take_u64(from)?),
            of: T::take_from(from)?,
        })
    }
}

impl SavedOwner for LimiterHeader {
    const LETTER: u8 = b'L';
    const OTHER: &'static str = "the state file is of a store and not of a limiter with a table of its own: restore it with \
                                 LocalStore::builder().restore(..)";

    fn push_to(&self, to: &mut Vec<u8>) {
        push_u32(to, self.counter_mark);
        self.layout.push_to(to);
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        Some(Self {
            counter_mark: take_u32(from)?,
            layout: Layout::take_from(from)?,
        })
    }
}

impl SavedOwner for StoreHeader {
    const LETTER: u8 = b'S';
    const OTHER: &'static str = "the state file is of a limiter with a table of its own and not of a store: restore it \
                                 with LocalLimiter::builder(..).restore(..)";

    fn push_to(&self, to: &mut Vec<u8>) {
        push_u64(to, self.limiters);
        push_u32(to, self.limits.len() as u32);
        for limit in &self.limits {
            push_u32(to, limit.number);
            push_bytes(to, limit.name.as_bytes());
            push_u32(to, limit.layouts.len() as u32);
            limit.layouts.iter().for_each(|layout| layout.push_to(to));
        }
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        let limiters = take_u64(from)?;
        let limits = (0..take_u32(from)?).map(|_| {
            let number = take_u32(from)?;
            let name = String::from_utf8(take_bytes(from)?.to_vec()).ok()?;
            let layouts = (0..take_u32(from)?).map(|_| Layout::take_from(from));
            Some(SavedLimit {
                number,
                name,
                layouts: layouts.collect::<Option<_>>()?,
            })
        });
        let limits = limits.collect::<Option<_>>()?;
        Some(Self { limiters, limits })
    }
}

/// The most counters of a limiter, in a file that is no accident.
const MOST_COUNTERS: u32 = 1 << 20;

/// The counters of a key in the order of its states. If denials block keys, a state for the responses of
/// each counter follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// `None` for a counter that no quota has.
    pub(super) labels: Vec<Option<CounterLabel>>,
    has_responses: bool,
}

impl Layout {
    pub(super) fn of(limits: &TierSet) -> Self {
        Self {
            labels: limits.labels(),
            has_responses: limits.block_for.is_some(),
        }
    }

    /// The number of states.
    pub(super) fn states(&self) -> usize {
        self.labels.len() * (1 + usize::from(self.has_responses))
    }

    /// The index of the state in `from` for each state of `self`; `None` for one that begins fresh.
    pub(super) fn positions_in(&self, from: &Self) -> Vec<Option<usize>> {
        let halves = 1 + usize::from(self.has_responses);
        let position = |(half, label): (usize, &Option<CounterLabel>)| {
            let label = label.as_ref()?;
            let at = from.position(label)?;
            (half == 0 || from.has_responses).then(|| half * from.labels.len() + at)
        };
        let labels = |half| self.labels.iter().map(move |label| (half, label));
        (0..halves).flat_map(labels).map(position).collect()
    }

    fn position(&self, label: &CounterLabel) -> Option<usize> {
        let mut labels = self.labels.iter();
        labels.position(|own| own.as_ref().is_some_and(|own| own.counts_like(label)))
    }

    /// Checks that both have the same counters.
    ///
    /// # Errors
    ///
    /// Names the first counter that differs.
    pub(super) fn check_saved(&self, saved: &Self) -> Result<(), RestoreError> {
        let refused = |text| Err(RestoreError::new(RestoreErrorKind::Limits, text));
        for label in saved.labels.iter().flatten() {
            if self.position(label).is_some() {
                continue;
            }
            return refused(match self.changed(label) {
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
        let mut own = self.labels.iter().flatten();
        match own.find(|label| saved.position(label).is_none()) {
            None => Ok(()),
            Some(label) => refused(format!(
                "the state file has no counts of the quota {} (\"{}\") of this limiter: the file is \
                 of another limiter",
                label.shown_name(),
                label.text
            )),
        }
    }

    /// The counter of this name that counts otherwise than `label`, if none of this name counts like it.
    pub(super) fn changed(&self, label: &CounterLabel) -> Option<&CounterLabel> {
        if self.position(label).is_some() {
            return None;
        }
        let mut own = self.labels.iter().flatten();
        own.find(|own| own.name == label.name)
    }

    fn push_to(&self, to: &mut Vec<u8>) {
        to.push(u8::from(self.has_responses));
        push_u32(to, self.labels.len() as u32);
        for label in &self.labels {
            to.push(u8::from(label.is_some()));
            let Some(label) = label else { continue };
            push_bytes(to, &label.name);
            push_u64(to, u64::from(label.is_named));
            label.shape.iter().for_each(|number| push_u64(to, *number));
            push_bytes(to, label.text.as_bytes());
        }
    }

    fn take_from(from: &mut &[u8]) -> Option<Self> {
        let has_responses = take_u8(from)? > 0;
        let labels = take_u32(from).filter(|labels| *labels <= MOST_COUNTERS)?;
        let labels = (0..labels).map(|_| {
            if take_u8(from)? == 0 {
                return Some(None);
            }
            Some(Some(CounterLabel {
                name: take_bytes(from)?.to_vec(),
                is_named: take_u64(from)? > 0,
                shape: [
                    take_u64(from)?,
                    take_u64(from)?,
                    take_u64(from)?,
                    take_u64(from)?,
                ],
                text: String::from_utf8(take_bytes(from)?.to_vec()).ok()?,
            }))
        });
        Some(Self {
            labels: labels.collect::<Option<_>>()?,
            has_responses,
        })
    }
}

const MAGIC: [u8; 8] = *b"TRLSTATE";

/// Increased with every change of the format. A file of another version is refused.
const VERSION: u32 = 2;

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
    pub(super) fn begin(mut to: W, header: &[u8]) -> io::Result<Self> {
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
        writer.block.extend_from_slice(header);
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

    /// Adds an entry to the block.
    pub(super) fn entry(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.entries += 1;
        write(&mut self.block);
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

    /// Writes the end. Returns the number of entries, and of bytes.
    pub(super) fn finish(mut self) -> io::Result<(u64, u64)> {
        self.flush()?;
        self.clear(BlockContent::End);
        push_u64(&mut self.block, self.entries);
        self.write()?;
        self.to.flush()?;
        Ok((self.entries, self.written))
    }
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

    /// Calls `parse` with the bytes of each entry and all that follow, until the end. `parse` removes an
    /// entry from the front, and returns `None` if there is none.
    pub(super) fn entries(
        &mut self,
        mut parse: impl FnMut(&mut &[u8]) -> Option<()>,
    ) -> Result<(), RestoreError> {
        loop {
            match self.read()? {
                BlockContent::FileHeader => return Err(self.damaged()),
                BlockContent::Entries => {}
                BlockContent::End => return self.end(),
            }
            let mut bytes = &self.block[1..];
            while !bytes.is_empty() {
                if parse(&mut bytes).is_none() {
                    return Err(self.damaged());
                }
                self.entries += 1;
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

/// Opens a state file.
pub(super) fn open(path: &Path) -> Result<File, RestoreError> {
    Ok(File::open(path)?)
}

/// Logs why counts start afresh. A file that does not exist is no fault: the first process has none.
pub(super) fn log_refused(path: &Path, error: &RestoreError) {
    if error.kind() != RestoreErrorKind::NotFound {
        let fault = format!(
            "{}: {error}; all keys start afresh, and the next save replaces the file",
            path.display()
        );
        log::report(Code::StateRefused, &fault);
    }
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
