//! The permits of one request.

use super::in_flight::Permit;

/// The permits that a request holds; released when this is dropped. The first needs no heap.
#[derive(Debug, Default)]
pub(crate) struct HeldPermits {
    first: Option<Permit>,
    more: Vec<Permit>,
}

impl HeldPermits {
    #[cfg(feature = "rules")]
    pub(crate) fn push(&mut self, permit: Permit) {
        match &self.first {
            None => self.first = Some(permit),
            Some(_) => self.more.push(permit),
        }
    }

    pub(crate) fn release(&mut self) {
        self.first = None;
        self.more.clear();
    }
}

impl From<Option<Permit>> for HeldPermits {
    fn from(first: Option<Permit>) -> Self {
        Self {
            first,
            more: Vec::new(),
        }
    }
}
