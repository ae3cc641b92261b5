//! State files: the counts of a limiter or a store, saved when a process ends and restored when the next
//! one starts.
//!
//! A file is eight bytes of magic, four of version, the limits, the entries, and a checksum of all bytes before it.
//! Nothing is parsed unless the checksum is right.

use std::{
    borrow::Cow,
    error::Error,
    ffi::OsString,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    LocalLimiter, LocalLimiterBuilder, LocalStore, LocalStoreBuilder,
    eviction::scattered,
    store::{ONLY_LIMIT, SavedEntry, SavedLimit, StoreTable, StoredCounters, changed},
};
use crate::{
    algorithm::{EvictionWeight, State},
    clock::{ClockReading, Timestamp},
    error::ConfigError,
    hash::{KeyHash, KeyHasher},
    limiter::limits_in_force::CounterLabel,
    little_endian::{push_bytes, push_u32, push_u64, take_bytes, take_u8, take_u32, take_u64},
    log::{self, Code},
};

impl LocalLimiter {
    /// Saves the counts of all keys, for
    /// [`restore`](crate::limiter::LocalLimiterBuilder::restore) in the next process: a deployment then
    /// gives no client a new daily quota.
    ///
    /// The save does not stop requests: each key is saved as it is at some moment of the save. When
    /// requests have stopped, everything is exact. The save takes memory for one buffer, and locks a few keys at a time.
    /// The file contains hashes of keys and the secret of these hashes: who can read it can test whether a
    /// key was counted.
    ///
    /// # Errors
    ///
    /// If `to` cannot be written, or the limiter is in a store, which saves all its limiters together by
    /// [`LocalStore::save`](crate::LocalStore::save).
    pub fn save(&self, to: impl Write) -> Result<Saved, SaveError> {
        let inner = &*self.0;
        if self.stored().is_some() {
            return Err(SaveError::new(
                SaveErrorKind::InStore,
                "this limiter counts in a store, which saves all its limiters together: call \
                 LocalStore::save",
            ));
        }
        let time = inner.clock.read();
        let limits = self.limits();
        let header = FileHeader {
            hash_key: inner.hasher.key(),
            limiters: 1,
            limits: vec![SavedLimit {
                number: ONLY_LIMIT,
                name: None,
                counter_mark: limits.counter_mark(),
                labels: limits.labels(),
            }],
        };
        write(to, &header, time, |writer| {
            if let Some(lone) = self.instants() {
                let counters = StoredCounters::alone(&inner.hasher, Arc::clone(&limits));
                let (fresh, count) = (lone.fresh(time.now), lone.len());
                for entry in (0..count).map(scattered(count)) {
                    lone.visit(entry, fresh, |tag, instant| {
                        let state = State::Instant(instant);
                        let weight = limits.eviction_weight(0, &state, time);
                        writer.entry((counters.lone_tag(tag), ONLY_LIMIT), weight, &state, time);
                    });
                    writer.flush_full()?;
                }
            }
            match inner.locked.get() {
                Some(locked) => writer.entries_of(&locked.table, time),
                None => Ok(()),
            }
        })
    }

    /// [Saves](Self::save) to a file, which only its owner can read. It is written beside `path` and then
    /// renamed, so that a process that is killed meanwhile leaves the old file.
    ///
    /// # Errors
    ///
    /// Those of [`save`](Self::save); the text names the file, and the step that failed.
    pub fn save_to(&self, path: impl AsRef<Path>) -> Result<Saved, SaveError> {
        replace_file(path.as_ref(), |file| self.save(file))
    }

    /// Restores the entries of a file about this limit. The limiter has no keys yet.
    fn restore_entries(&self, saved: &SavedLimit, entries: &[u8]) -> Result<(), RestoreError> {
        let inner = &*self.0;
        let limits = self.limits();
        let own = limits.labels();
        saved.check(&own)?;
        let time = inner.clock.read();
        let starts_afresh = saved.counter_mark != limits.counter_mark();
        let counters = StoredCounters::alone(&inner.hasher, Arc::clone(&limits));
        restore_each(entries, time, |entry| {
            match self.instants() {
                _ if starts_afresh => {}
                // The count of a former quota becomes one of a key that nobody asks for.
                Some(lone) if entry.weight.blocked_until() == 0 => {
                    let key = KeyHash::of_tag(counters.lone_tag(entry.tag));
                    lone.restore(key, time.now, *entry.state.as_instant());
                }
                _ => {
                    let locked = inner.locked(&limits)?;
                    locked.table.restore_entry(entry, time.as_nanos());
                }
            }
            Ok(())
        })?;
        // The keys of a larger bucket. All other tables clamp a key when a request comes.
        if let Some(lone) = self.instants()
            && own != saved.labels
        {
            lone.fit(time.now);
        }
        Ok(())
    }
}

impl LocalLimiterBuilder {
    /// Makes the limiter with a table of its own, and the counts that [`LocalLimiter::save`] wrote.
    ///
    /// Counts continue at their time: what flowed back while no process ran is back, and a block may have
    /// ended. If the clock is behind the file, the limiter treats it as a clock that stepped back.
    /// Limits, bursts, queues and the number of keys may have changed since, as by
    /// [`set_quota`](LocalLimiter::set_quota). With [`OnChange::Fresh`](crate::limiter::OnChange::Fresh) all keys start afresh if the limiter of
    /// the file was built with other numbers. If fewer keys fit, those with the least usage are dropped. Of a table that is as full as its
    /// number of keys, at most one key in 1,000 finds no place. Until it returns, the whole file is in memory.
    ///
    /// # Errors
    ///
    /// If the file is no state file, cut off, damaged, of another version, of a store or of a limiter
    /// with other quotas (another name, algorithm, period, number of slices or refill step), or the
    /// limiter cannot be [built](Self::build). Nothing of the file is used then.
    pub fn restore(self, from: impl Read) -> Result<LocalLimiter, RestoreError> {
        let (header, entries) = read(from)?;
        let saved = header.limit()?;
        let limiter = self.build_with(KeyHasher::of_key(header.hash_key))?;
        limiter.restore_entries(saved, &entries)?;
        Ok(limiter)
    }

    /// Makes the limiter with the counts of this file, if it can be [restored](Self::restore). Otherwise
    /// makes it without counts, and logs one line with the reason, unless the file does not exist.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build).
    pub fn restore_or_new(self, path: impl AsRef<Path>) -> Result<LocalLimiter, ConfigError> {
        let restore = |file| self.clone().restore(file);
        restored_or(path.as_ref(), restore, || self.clone().build())
    }
}

impl LocalStore {
    /// Saves the counts of all limiters, for [`restore`](LocalStoreBuilder::restore) in the next process:
    /// a deployment then gives no client a new daily quota. Permits of
    /// [`ConcurrencyLayer`](https://docs.rs/tower-ratelimit/latest/tower_ratelimit/struct.ConcurrencyLayer.html) are not saved.
    ///
    /// The save does not stop requests, see [`LocalLimiter::save`](crate::LocalLimiter::save).
    ///
    /// # Errors
    ///
    /// If `to` cannot be written, or a limiter of the store has no
    /// [name](crate::limiter::LocalLimiterBuilder::name), and the next process could not find its counts.
    pub fn save(&self, to: impl Write) -> Result<Saved, SaveError> {
        let (table, time) = (&*self.0, self.clock().read());
        let (limiters, limits) = table.saved().map_err(|quota| {
            SaveError::new(
                SaveErrorKind::Unnamed,
                format!(
                    "a limiter of the store (\"{quota}\") has no name, and the next process could not find \
                     its counts: give it one with LocalLimiter::builder(..).name(..)"
                ),
            )
        })?;
        let header = FileHeader {
            hash_key: table.hasher.key(),
            limiters,
            limits,
        };
        write(to, &header, time, |writer| writer.entries_of(table, time))
    }

    /// [Saves](Self::save) to a file, which only its owner can read. It is written beside `path` and then
    /// renamed, so that a process that is killed meanwhile leaves the old file.
    ///
    /// # Errors
    ///
    /// Those of [`save`](Self::save); the text names the file, and the step that failed.
    pub fn save_to(&self, path: impl AsRef<Path>) -> Result<Saved, SaveError> {
        replace_file(path.as_ref(), |file| self.save(file))
    }
}

impl LocalStoreBuilder {
    /// Makes the store with the counts that [`LocalStore::save`] wrote. Limiters of the same names continue
    /// with them, whenever they are [built in the store](crate::limiter::LocalLimiterBuilder::build_in).
    ///
    /// Counts continue at their time: what flowed back while no process ran is back. If the clock is behind
    /// the file, the store treats it as a clock that stepped back. Limits, bursts, queues and the number of
    /// keys may have changed since. A quota with another algorithm, period, number of slices or refill step
    /// starts afresh, as after [`set_quota`](crate::LocalLimiter::set_quota), and the store logs it; all
    /// other counts stay. Until it returns, the whole file is in memory.
    ///
    /// # Errors
    ///
    /// If the file is no state file, cut off, damaged, of another version or of a limiter with a table of
    /// its own, or the store cannot be [built](Self::build). Nothing of the file is used then.
    pub fn restore(self, from: impl Read) -> Result<LocalStore, RestoreError> {
        let (header, entries) = read(from)?;
        header.check_store()?;
        let store = self.build_with(KeyHasher::of_key(header.hash_key))?;
        let (table, time) = (&*store.0, store.clock().read());
        let numbers = table.restore_limits(header.limiters, header.limits);
        restore_each(&entries, time, |entry| {
            // 0 for entries of limits that had left.
            let limit = numbers.get(&entry.limit).copied().unwrap_or(0);
            table.restore_entry(SavedEntry { limit, ..entry }, time.as_nanos());
            Ok(())
        })?;
        Ok(store)
    }

    /// Makes the store with the counts of this file, if it can be [restored](Self::restore). Otherwise
    /// makes it without counts, and logs one line with the reason, unless the file does not exist.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build).
    pub fn restore_or_new(self, path: impl AsRef<Path>) -> Result<LocalStore, ConfigError> {
        let restore = |file| self.clone().restore(file);
        restored_or(path.as_ref(), restore, || self.clone().build())
    }
}

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
    fn new(kind: SaveErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
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
struct FileHeader {
    hash_key: HashKey,
    /// The number of limiters ever added.
    limiters: u64,
    /// A limiter with a table of its own is one limit without a name.
    limits: Vec<SavedLimit>,
}

impl FileHeader {
    /// The limit of a limiter with a table of its own.
    ///
    /// # Errors
    ///
    /// If the file is of a store.
    fn limit(&self) -> Result<&SavedLimit, RestoreError> {
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
    fn check_store(&self) -> Result<(), RestoreError> {
        if self.limits.iter().all(|limit| limit.name.is_some()) {
            return Ok(());
        }
        Err(RestoreError::new(
            RestoreErrorKind::Limits,
            "the state file is of a limiter with a table of its own and not of a store: restore it \
             with LocalLimiter::builder(..).restore(..)",
        ))
    }

    fn push_to(&self, to: &mut Vec<u8>) {
        push_u64(to, self.hash_key.0);
        push_u64(to, self.hash_key.1);
        push_u64(to, self.limiters);
        push_u32(to, self.limits.len() as u32);
        self.limits.iter().for_each(|limit| limit.push_to(to));
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
    fn check(&self, own: &[CounterLabel]) -> Result<(), RestoreError> {
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
const VERSION: u32 = 4;

/// The size of both.
const HEAD: usize = MAGIC.len() + size_of::<u32>();

/// The size from which a buffer is written.
const BUFFER: usize = 1 << 16;

/// Writes a file. Buffers a part of it.
struct StateWriter<W> {
    to: W,
    buffer: Vec<u8>,
    checksum: crc32fast::Hasher,
    saved: Saved,
}

impl<W: Write> StateWriter<W> {
    /// Adds an entry. Instants are those of the wall.
    fn entry(
        &mut self,
        (tag, limit): (u64, u32),
        weight: EvictionWeight,
        state: &State,
        time: ClockReading,
    ) {
        self.saved.entries += 1;
        let [fresh_at, used] = weight.to_numbers();
        push_u64(&mut self.buffer, tag);
        push_u32(&mut self.buffer, limit);
        push_u64(&mut self.buffer, time.wall_of(fresh_at));
        push_u64(&mut self.buffer, used);
        state.push_to(&mut self.buffer, time);
    }

    /// Adds the states and blocks of a table.
    fn entries_of(&mut self, table: &StoreTable, time: ClockReading) -> io::Result<()> {
        let mut next = Some((0, 0));
        while let Some(place) = next {
            next = table.visit(place, time.as_nanos(), |of, weight, state| {
                self.entry(of, weight, state, time);
                !self.is_full()
            });
            self.flush_full()?;
        }
        Ok(())
    }

    /// Whether the buffer has its size, and should be [flushed](Self::flush_full) without a lock.
    fn is_full(&self) -> bool {
        self.buffer.len() >= BUFFER
    }

    fn flush_full(&mut self) -> io::Result<()> {
        if self.is_full() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.checksum.update(&self.buffer);
        self.saved.bytes += self.buffer.len() as u64;
        self.to.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Writes a file of these entries.
fn write<W: Write>(
    to: W,
    header: &FileHeader,
    time: ClockReading,
    entries: impl FnOnce(&mut StateWriter<W>) -> io::Result<()>,
) -> Result<Saved, SaveError> {
    let mut writer = StateWriter {
        to,
        buffer: Vec::with_capacity(2 * BUFFER),
        checksum: crc32fast::Hasher::new(),
        saved: Saved {
            entries: 0,
            bytes: 0,
            at: time.wall,
        },
    };
    writer.buffer.extend_from_slice(&MAGIC);
    push_u32(&mut writer.buffer, VERSION);
    header.push_to(&mut writer.buffer);
    entries(&mut writer)?;
    writer.flush()?;
    let checksum = writer.checksum.clone().finalize();
    push_u32(&mut writer.buffer, checksum);
    writer.flush()?;
    writer.to.flush()?;
    Ok(writer.saved)
}

/// Reads a file: its header, and the bytes of its entries.
fn read(mut from: impl Read) -> Result<(FileHeader, Vec<u8>), RestoreError> {
    let mut file = Vec::new();
    from.by_ref().take(HEAD as u64).read_to_end(&mut file)?;
    if !file.starts_with(&MAGIC) && !MAGIC.starts_with(&file) {
        return Err(RestoreError::damaged(
            "it is no state file of tower-ratelimit: it does not begin with TRLSTATE",
        ));
    }
    let mut version = file.get(MAGIC.len()..).ok_or_else(damaged)?;
    let version = take_u32(&mut version).ok_or_else(damaged)?;
    if version != VERSION {
        return Err(RestoreError::new(
            RestoreErrorKind::Version,
            format!("the state file has version {version}; this build reads version {VERSION}"),
        ));
    }
    from.read_to_end(&mut file)?;
    let (mut content, checksum) = file[HEAD..].split_last_chunk().ok_or_else(damaged)?;
    let checked = &file[..file.len() - checksum.len()];
    if crc32fast::hash(checked) != u32::from_le_bytes(*checksum) {
        return Err(damaged());
    }
    let header = FileHeader::take_from(&mut content).ok_or_else(damaged)?;
    let entries = checked.len() - content.len()..checked.len();
    file.truncate(entries.end);
    file.drain(..entries.start);
    Ok((header, file))
}

/// Restores each entry that is not fresh at this time.
fn restore_each(
    mut entries: &[u8],
    time: ClockReading,
    mut restore: impl FnMut(SavedEntry) -> Result<(), RestoreError>,
) -> Result<(), RestoreError> {
    while !entries.is_empty() {
        let entry = SavedEntry::take_from(&mut entries, time).ok_or_else(damaged)?;
        if !entry.weight.is_nothing(time.as_nanos()) {
            restore(entry)?;
        }
    }
    Ok(())
}

fn damaged() -> RestoreError {
    RestoreError::damaged(
        "the state file is cut off or damaged: its checksum or its content is wrong",
    )
}

/// The state of a file, or else one that is made anew, with a line in the log about the reason. A file that does
/// not exist is no fault: the first process has none.
fn restored_or<T>(
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
            log::report(Code::STATE_REFUSED, &fault);
        }
        make()
    })
}

/// Writes a file beside `path`, readable for its owner only, syncs it, and renames it to `path`. A
/// process that is killed meanwhile leaves the old file as it was.
fn replace_file(
    path: &Path,
    write: impl FnOnce(&File) -> Result<Saved, SaveError>,
) -> Result<Saved, SaveError> {
    let temporary = temporary(path);
    let failed = |step: &str| {
        let step = format!("{step} {}", temporary.display());
        move |error| SaveError::write(&step, error)
    };
    let replace = || {
        let file = create(&temporary).map_err(failed("create"))?;
        let saved = write(&file)?;
        file.sync_all().map_err(failed("sync"))?;
        drop(file);
        fs::rename(&temporary, path).map_err(|error| {
            let step = format!("rename {} to {}", temporary.display(), path.display());
            SaveError::write(&step, error)
        })?;
        Ok::<_, SaveError>(saved)
    };
    let saved = replace().inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    sync_folder(folder).map_err(|error| {
        SaveError::write(&format!("sync the folder {}", folder.display()), error)
    })?;
    Ok(saved)
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
