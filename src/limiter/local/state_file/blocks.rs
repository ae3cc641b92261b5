//! The blocks of a state file.

use std::io::{self, BufReader, Read, Write};

use super::error::{RestoreError, RestoreErrorKind};
use crate::number_bytes::{push_u64, take_u64};

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
pub(in super::super) struct BlockWriter<W> {
    to: W,
    /// The prefix of the block, its content's letter, and its bytes.
    block: Vec<u8>,
    number: u64,
    written: u64,
    entries: u64,
}

impl<W: Write> BlockWriter<W> {
    /// Writes the magic, the version and the header.
    pub(in super::super) fn begin(mut to: W, header: &[u8]) -> io::Result<Self> {
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
    pub(in super::super) fn entry(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.entries += 1;
        write(&mut self.block);
    }

    /// Whether the block has its size, and should be [flushed](Self::flush) without a lock.
    pub(in super::super) fn is_full(&self) -> bool {
        self.block.len() >= BLOCK
    }

    /// Writes the block, if it has entries.
    pub(in super::super) fn flush(&mut self) -> io::Result<()> {
        if self.block.len() > PREFIX + 1 {
            self.write()?;
            self.clear(BlockContent::Entries);
        }
        Ok(())
    }

    /// Writes the end. Returns the number of entries, and of bytes.
    pub(in super::super) fn finish(mut self) -> io::Result<(u64, u64)> {
        self.flush()?;
        self.clear(BlockContent::End);
        push_u64(&mut self.block, self.entries);
        self.write()?;
        self.to.flush()?;
        Ok((self.entries, self.written))
    }
}

/// Reads blocks, and checks each before it is parsed.
pub(in super::super) struct BlockReader<R> {
    from: BufReader<R>,
    block: Vec<u8>,
    number: u64,
    /// The number of entries that were parsed.
    entries: u64,
}

impl<R: Read> BlockReader<R> {
    /// Reads the magic and the version.
    pub(in super::super) fn begin(from: R) -> Result<Self, RestoreError> {
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

    pub(in super::super) fn damaged(&self) -> RestoreError {
        RestoreError::damaged(format!(
            "the state file is damaged in its block {}: its checksum or its content is wrong",
            self.number
        ))
    }

    /// The bytes of the header.
    pub(in super::super) fn header(&mut self) -> Result<&[u8], RestoreError> {
        match self.read()? {
            BlockContent::FileHeader => Ok(&self.block[1..]),
            _ => Err(self.damaged()),
        }
    }

    /// Calls `parse` with the bytes of each entry and all that follow, until the end. `parse` removes an
    /// entry from the front, and returns `None` if there is none.
    pub(in super::super) fn entries(
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
