//! Warnings about keys that have no effect at their place.

use tower_ratelimit_rulefile::{
    ProblemCode,
    document::{Node, NodeEntry},
};

use super::{DESCRIPTOR, OF_LIMITS, RATE_LIMIT, REPLACES, ROOT, parser_state::RulesParser};

impl RulesParser<'_> {
    /// Warns about keys of other tables.
    pub(super) fn warn_of_misplaced(&mut self, table: &Node, known: &[&str], place: &str) {
        let groups = [&ROOT[..], &DESCRIPTOR, &RATE_LIMIT, &REPLACES];
        for NodeEntry { key, key_span, .. } in table.entries() {
            let key = key.as_str();
            if !known.contains(&key) && groups.iter().any(|group| group.contains(&key)) {
                let message = format!("{key:?} means nothing in {place}, and is ignored");
                self.report.push(ProblemCode::W32, key_span, message);
            }
        }
    }

    /// Warns about modes that are on in a descriptor without a limit: the levels below do not inherit them.
    pub(super) fn warn_of_modes(&mut self, descriptor: &Node, modes: [bool; 3]) {
        let on = OF_LIMITS.iter().zip(modes).filter(|(_, is_on)| *is_on);
        for (name, _) in on {
            let mut entries = descriptor.entries().iter();
            if let Some(entry) = entries.find(|entry| entry.key == *name) {
                let message = format!(
                    "{name:?} means nothing in a descriptor without a rate_limit, and is ignored; limits below it need \
                     their own"
                );
                self.report.push(ProblemCode::W32, &entry.key_span, message);
            }
        }
    }
}
