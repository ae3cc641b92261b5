//! State files: the counts of a limiter or a store, saved when a process ends and restored when the next
//! one starts.
//!
//! A file is eight bytes of magic, four of version, and blocks. A block is its length, a checksum, and
//! its bytes. The checksum covers the block's number, so that blocks cannot be lost or exchanged, and the
//! last block has the number of entries. A block is parsed only if its checksum is right.

mod blocks;
mod error;
mod header;
mod layout;
mod replace_file;
mod scattered_order;

pub use self::error::{RestoreError, RestoreErrorKind, SaveError, SaveErrorKind, Saved};
pub(super) use self::{
    blocks::{BlockReader, BlockWriter},
    header::{FileHeader, LimiterHeader, SavedLimit, StoreHeader},
    layout::Layout,
    replace_file::{log_refused, open, replace_file},
    scattered_order::scattered,
};
