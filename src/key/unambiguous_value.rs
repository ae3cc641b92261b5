//! The one value of a request that several places could give.

use crate::{error::KeyError, key::Key};

/// The one value that the client sent.
///
/// If two differ, neither counts: readers disagree on whether the first or the last does, and a
/// client that is known to the application by one must not be counted by the other, which it could
/// choose anew for every request. Nor is such a client one that sent none, which may be counted by
/// something else: an account would have one more limit there.
pub(super) fn only<V: AsRef<[u8]>>(mut values: impl Iterator<Item = V>) -> Result<V, KeyError> {
    let only = values.next().ok_or(KeyError::absent())?;
    let bytes = only.as_ref();
    if values.any(|other| other.as_ref() != bytes) {
        return Err(KeyError::ambiguous());
    }
    match bytes {
        [] => Err(KeyError::absent()),
        _ => Ok(only),
    }
}

/// Refuses a value where servers that read the request in another way find another one.
pub(super) fn agreed<V: AsRef<[u8]>>(
    value: V,
    mut others: impl Iterator<Item = impl AsRef<[u8]>>,
) -> Result<V, KeyError> {
    if others.all(|other| other.as_ref() == value.as_ref()) {
        Ok(value)
    } else {
        Err(KeyError::ambiguous())
    }
}

/// The digest of the one value that the client sent.
pub(super) fn digest_of_only<V: AsRef<[u8]>>(
    values: impl Iterator<Item = V>,
) -> Result<Key, KeyError> {
    only(values).map(|only| Key::digest(only.as_ref()))
}
