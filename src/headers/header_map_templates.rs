//! Templates: header maps that have all fields of a response, whose values are replaced.

use std::mem;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::{ietf, number, response_fields::FieldValues, x_ratelimit};

/// The maps that responses of a layer begin with. A clone hashes no names.
#[derive(Debug)]
pub(super) struct Templates {
    /// The fields about the limit.
    bare: HeaderMap,
    /// `Content-Type`, the only field of many responses, and the fields about the limit.
    typed: HeaderMap,
    /// The fields of a denial's content, and the fields about the limit.
    denial: HeaderMap,
}

/// A response with more fields of its own gets those about the limit appended.
const MOST_OWN: usize = 4;

/// A field that a template has and a response loses: a clone of a map has no room for more fields than
/// the map, so that one more field makes it grow. A router sets this one last.
const ROOM: HeaderName = header::CONTENT_LENGTH;

impl Templates {
    /// Templates of the fields that `append` adds to denials and to other responses. `None` if a map
    /// does not keep the order of its fields.
    pub(super) fn new(append: impl Fn(bool, &mut HeaderMap)) -> Option<Self> {
        let template = |own: &[(HeaderName, HeaderValue)], denied| {
            // Room for all fields, so that the index does not grow.
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

    /// Adds the fields to a response. Returns false, and adds none, if it has fields about a limit or
    /// many others.
    #[inline]
    pub(super) fn put(&self, values: &FieldValues<'_>, headers: &mut HeaderMap) -> bool {
        if headers.len() == 1 && headers.keys().next() == Some(&header::CONTENT_TYPE) {
            let mut own = mem::replace(headers, self.typed.clone());
            let mut places = headers.values_mut();
            if let (Some(place), Some(value)) = (places.next(), own.values_mut().next()) {
                mem::swap(place, value);
            }
            values.fill(places);
            headers.remove(ROOM);
            return true;
        }
        if headers.len() > MOST_OWN || headers.keys().any(is_ours) {
            return false;
        }
        let own = mem::replace(headers, self.bare.clone());
        values.fill(headers.values_mut());
        headers.remove(ROOM);
        headers.extend(own);
        true
    }

    /// All fields of a denial whose content has this type and length.
    pub(super) fn denial(
        &self,
        values: &FieldValues<'_>,
        content_type: &HeaderValue,
        length: usize,
    ) -> HeaderMap {
        let mut map = self.denial.clone();
        let mut places = map.values_mut();
        if let (Some(type_place), Some(length_place)) = (places.next(), places.next()) {
            *type_place = content_type.clone();
            *length_place = number::header_value(length as u64);
        }
        places.next();
        values.fill(places);
        map
    }
}

/// Whether a field is about a limit, which another layer may have added.
fn is_ours(name: &HeaderName) -> bool {
    *name == ietf::POLICY || *name == ietf::RATELIMIT || x_ratelimit::is_of_a_set(name)
}
