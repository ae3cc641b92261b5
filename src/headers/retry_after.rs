use http::{HeaderMap, HeaderName, HeaderValue, header::Entry};

use super::number;

/// Sets the field `name` to `value`, which says `seconds`, unless it already asks for a longer
/// wait, or for one in a form that cannot be compared.
pub(super) fn put(name: HeaderName, seconds: u64, value: HeaderValue, headers: &mut HeaderMap) {
    match headers.entry(name) {
        Entry::Vacant(free) => {
            free.insert(value);
        }
        Entry::Occupied(mut present) => {
            if number::parse(present.iter()).is_some_and(|theirs| theirs < seconds) {
                present.insert(value);
            }
        }
    }
}
