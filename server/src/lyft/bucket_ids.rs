//! Bucket ids of quotas: the entries of a descriptor without their order.

use std::collections::BTreeMap;

use super::rules::{Level, Matched, Rules};
use crate::protobuf_messages::Entry;

/// The most descriptors that one search visits. Clients choose ids, and patterns below patterns have many orders.
const MAX_VISITS: usize = 1_000;

/// A search that visits too many descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyOrders;

/// The entries that are left, those of the path so far, and the visits.
struct Search {
    left: Vec<Entry>,
    path: Vec<Entry>,
    visits: usize,
}

impl Rules {
    /// The pairs in the order of the first path to a limit that uses each of them once. At each level exact values come
    /// before patterns, and these before keys alone; among equals the keys are in alphabetical order.
    ///
    /// # Errors
    ///
    /// When the search visits too many descriptors.
    pub(crate) fn in_order(
        &self,
        domain: &str,
        pairs: &BTreeMap<String, String>,
    ) -> Result<Option<Vec<Entry>>, TooManyOrders> {
        let Some(level) = self.domains.get(domain) else {
            return Ok(None);
        };
        let entry = |(key, value): (&String, &String)| Entry {
            key: key.clone(),
            value: value.clone(),
        };
        let mut search = Search {
            left: pairs.iter().map(entry).collect(),
            path: Vec::new(),
            visits: 0,
        };
        let is_found = search.descend(level)?;
        Ok(is_found.then_some(search.path))
    }
}

impl Search {
    /// Continues the path below a level. Whether it ends at a limit.
    fn descend(&mut self, level: &Level) -> Result<bool, TooManyOrders> {
        let steps = self.left.iter().enumerate();
        let mut steps: Vec<_> = steps
            .filter_map(|(at, entry)| {
                let step = level.step(entry)?;
                Some((rank(step.matched), at, step.descriptor))
            })
            .collect();
        steps.sort_by_key(|(rank, at, _)| (*rank, *at));
        for (_, at, descriptor) in steps {
            self.visits += 1;
            if self.visits > MAX_VISITS {
                return Err(TooManyOrders);
            }
            let entry = self.left.remove(at);
            self.path.push(entry);
            let is_found = if self.left.is_empty() {
                descriptor.limit.is_some()
            } else {
                self.descend(&descriptor.below)?
            };
            if is_found {
                return Ok(true);
            }
            self.left.extend(self.path.pop());
            // The entries keep their places.
            self.left[at..].rotate_right(1);
        }
        Ok(false)
    }
}

const fn rank(matched: Matched<'_>) -> u8 {
    match matched {
        Matched::Exact => 0,
        Matched::Pattern(_) => 1,
        Matched::KeyAlone => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "domain: shop
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - key: path
        rate_limit: {unit: second, requests_per_unit: 2}
  - key: path
    value: /buy
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 3}
  - key: a_*
    descriptors: [{key: b, rate_limit: {unit: second, requests_per_unit: 4}}]
  - key: b
    descriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 5}}]
";

    fn found(pairs: &[(&str, &str)]) -> Option<u32> {
        let rules = Rules::builder().parse([("rules.yaml", RULES)]);
        let rules = rules.expect("rules");
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let pairs = pairs.iter().map(pair).collect();
        let entries = rules.in_order("shop", &pairs).expect("few orders")?;
        assert_eq!(entries.len(), pairs.len());
        rules
            .find("shop", &entries)
            .map(|found| found.limit.requests)
    }

    #[test]
    fn pairs_are_ordered_by_the_first_path_with_all_of_them() {
        assert_eq!(found(&[("user", "eve")]), Some(1));
        assert_eq!(found(&[("user", "eve"), ("path", "/")]), Some(2));
        // An exact value comes before a key alone, a pattern too.
        assert_eq!(found(&[("user", "eve"), ("path", "/buy")]), Some(3));
        assert_eq!(found(&[("a", "x"), ("b", "y")]), Some(4));
        assert_eq!(found(&[("path", "/buy")]), None);
        assert_eq!(found(&[("user", "eve"), ("other", "x")]), None);
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn hostile_ids_end_the_search() {
        let mut rules = "rate_limit: {unit: second, requests_per_unit: 1}".to_owned();
        for _ in 0..10 {
            rules = format!("descriptors: [{{key: k*, {rules}}}]");
        }
        let rules = Rules::builder().parse([("rules.yaml", format!("domain: d\n{rules}\n"))]);
        let rules = rules.expect("rules");
        let pairs = |last: &str| {
            let keys = (0..9).map(|at| (format!("k{at}"), String::new()));
            keys.chain([(last.to_owned(), String::new())]).collect()
        };
        assert!(matches!(rules.in_order("d", &pairs("k9")), Ok(Some(_))));
        assert_eq!(rules.in_order("d", &pairs("x")), Err(TooManyOrders));
    }
}
