//! Templates: maps that have all fields already, of which the values change.

use std::mem;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{fields::Fields, ietf, number, x_ratelimit};

/// The maps that responses of a layer begin with. To clone one hashes no names.
#[derive(Debug)]
pub(super) struct Templates {
    /// The limit's fields alone.
    bare: HeaderMap,
    /// The same after `Content-Type`, which most responses have and many have alone.
    typed: HeaderMap,
    /// The fields of a denial that has this content, after those of its content.
    denial: HeaderMap,
}

/// A response with more fields of its own is better added to.
const MOST_OWN: usize = 4;

/// A clone has room for no more fields than the map had, and one that grows takes a third of what the
/// fields do: this one is removed again, in whose place a router puts it.
const ROOM: HeaderName = header::CONTENT_LENGTH;

impl Templates {
    /// Templates of the fields that `append` adds, to denials and to other responses; none if maps
    /// don't keep them in order.
    pub(super) fn new(append: impl Fn(bool, &mut HeaderMap)) -> Option<Self> {
        let template = |own: &[(HeaderName, HeaderValue)], denied| {
            // The index does not grow when a field is added.
            let mut map = HeaderMap::with_capacity(8);
            map.extend(own.iter().cloned());
            append(denied, &mut map);
            let mut limit = HeaderMap::new();
            append(denied, &mut limit);
            let names = own.iter().map(|(name, _)| name).chain(limit.keys());
            let in_order = map.keys().eq(names);
            map.insert(ROOM, HeaderValue::from_static(""));
            in_order.then_some(map)
        };
        let (to_be_set, no_store) = const {
            let no_store = HeaderValue::from_static("no-store");
            (HeaderValue::from_static(""), no_store)
        };
        let content = [
            (header::CONTENT_TYPE, to_be_set.clone()),
            (header::CONTENT_LENGTH, to_be_set),
            (header::CACHE_CONTROL, no_store),
        ];
        Some(Self {
            bare: template(&[], false)?,
            typed: template(&content[..1], false)?,
            denial: template(&content, true)?,
        })
    }

    /// Puts `fields` into the map of a response; not if some of ours are there, or many others.
    #[inline]
    pub(super) fn put(&self, fields: &Fields<'_>, headers: &mut HeaderMap) -> bool {
        if headers.len() == 1 && headers.keys().next() == Some(&header::CONTENT_TYPE) {
            let mut own = mem::replace(headers, self.typed.clone());
            let mut places = headers.values_mut();
            if let (Some(place), Some(value)) = (places.next(), own.values_mut().next()) {
                mem::swap(place, value);
            }
            fields.fill(places);
            headers.remove(ROOM);
            return true;
        }
        if headers.len() > MOST_OWN || headers.keys().any(is_ours) {
            return false;
        }
        let own = mem::replace(headers, self.bare.clone());
        fields.fill(headers.values_mut());
        headers.remove(ROOM);
        headers.extend(own);
        true
    }

    /// The fields of a denial and of its content.
    pub(super) fn denial(
        &self,
        fields: &Fields<'_>,
        content_type: &HeaderValue,
        length: usize,
    ) -> HeaderMap {
        let mut map = self.denial.clone();
        let mut places = map.values_mut();
        if let (Some(its_type), Some(its_length)) = (places.next(), places.next()) {
            *its_type = content_type.clone();
            *its_length = number::header_value(length as u64);
        }
        places.next();
        fields.fill(places);
        map
    }
}

/// Whether a field is one that more than one layer may add.
fn is_ours(name: &HeaderName) -> bool {
    *name == ietf::POLICY || *name == ietf::RATELIMIT || x_ratelimit::is_of_a_set(name)
}
