//! `Field`: a number in a header or a trailer.

use http::{HeaderMap, HeaderName, response};

use super::{SpendReader, SpendReaders, Tokens};

/// Reads a whole number from a header or a trailer of the response, as [`output`](Tokens::output). A response without
/// the field keeps its reservation.
///
/// ```
/// use tower_ratelimit::spend::Field;
///
/// let units = Field::trailer("x-cost");
/// # let _ = units;
/// ```
#[derive(Debug, Clone)]
pub struct Field {
    name: HeaderName,
    is_trailer: bool,
}

impl Field {
    /// A field of the response's head.
    ///
    /// # Panics
    ///
    /// When `name` is no name of a field in lower case.
    pub const fn header(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            is_trailer: false,
        }
    }

    /// A field after the response's body.
    ///
    /// # Panics
    ///
    /// When `name` is no name of a field in lower case.
    pub const fn trailer(name: &'static str) -> Self {
        Self {
            name: HeaderName::from_static(name),
            is_trailer: true,
        }
    }

    /// A field of the response's head, or after its body.
    #[cfg(feature = "rules")]
    pub(crate) const fn of(name: HeaderName, is_trailer: bool) -> Self {
        Self { name, is_trailer }
    }

    /// Reads the field. Returns whether it is a number.
    fn read(&self, fields: &HeaderMap, tokens: &mut Tokens) -> bool {
        let text = fields.get(&self.name).and_then(|value| value.to_str().ok());
        let units = text.and_then(|text| text.trim().parse().ok());
        if let Some(units) = units {
            tokens.report(&Tokens::output(units));
        }
        units.is_some()
    }
}

impl SpendReaders for Field {
    type Reader = FieldReader;

    fn reader(&self, response: &response::Parts, tokens: &mut Tokens) -> Option<FieldReader> {
        if self.is_trailer {
            return Some(FieldReader {
                field: self.clone(),
                is_found: false,
            });
        }
        self.read(&response.headers, tokens);
        None
    }
}

/// Reads the trailers of one response for a [`Field`].
#[derive(Debug)]
pub struct FieldReader {
    field: Field,
    is_found: bool,
}

impl SpendReader for FieldReader {
    fn data(&mut self, _: &[u8], _: &mut Tokens) {}

    fn trailers(&mut self, trailers: &HeaderMap, tokens: &mut Tokens) {
        self.is_found |= self.field.read(trailers, tokens);
    }

    fn has_recognised(&self) -> bool {
        self.is_found
    }
}
