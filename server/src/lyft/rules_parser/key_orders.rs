//! Warnings about limits whose keys differ in their order only.

use std::collections::hash_map;

use tower_ratelimit_rulefile::{ProblemCode, Span};

use super::parser_state::RulesParser;

impl RulesParser<'_> {
    /// Warns about a limit at the current path if another one has its keys in another order: a quota's bucket has no
    /// order.
    pub(super) fn warn_of_order(&mut self, span: &Span) {
        if self.keys.len() < 2 {
            return;
        }
        let mut sorted = self.keys.clone();
        sorted.sort_unstable();
        let (first, place) = match self.orders.entry((self.domain.clone(), sorted)) {
            hash_map::Entry::Vacant(entry) => {
                entry.insert((self.keys.clone(), span.clone()));
                return;
            }
            hash_map::Entry::Occupied(entry) => entry.get().clone(),
        };
        if first != self.keys {
            let message = format!(
                "the keys {} are those of the limit at {} in another order: with --rlqs a bucket with these keys has no \
                 order, and one limit only",
                self.keys.join(", "),
                place.short()
            );
            self.fault(ProblemCode::W34, span, message);
        }
    }
}
