//! Compressed files: those that end too early, and formats that are not read.

use std::{io, path::Path};

/// Whether reading failed since a compressed file ends too early.
pub(super) fn is_cut<T>(read: &io::Result<T>) -> bool {
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
pub(super) fn check_format(begin: &[u8], path: &Path) -> io::Result<()> {
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
