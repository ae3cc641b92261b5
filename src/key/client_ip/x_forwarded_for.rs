use super::entry::{Entry, host};

/// The entries of one line, from the right.
///
/// They are cut off one by one, so what stands to the left of the last one asked for is not read.
pub(super) fn entries(line: &[u8]) -> impl Iterator<Item = Entry> {
    line.rsplit(|byte| *byte == b',')
        .map(|entry| host(entry).into())
}
