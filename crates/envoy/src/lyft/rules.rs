//! Rules: the trees of all domains, the look-up of a descriptor, and the files that hold them.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use tower_ratelimit::Quota;
use tower_ratelimit_rulefile::{Problem, Span};

use crate::protobuf_messages::{Entry, Struct, Unit};
use tower_ratelimit_service::rule_file_polling::FilesOf;

/// The rules of all domains.
#[derive(Debug, Default)]
pub struct Rules {
    pub(super) domains: HashMap<String, Level>,
    pub(super) limits: usize,
    pub(super) warnings: Vec<Problem>,
    /// The name of each file, and its SHA-256.
    pub(super) files: Vec<(String, String)>,
    /// The files and directories in the rule directories that were not read.
    pub(super) others: Vec<PathBuf>,
}

/// Settings for reading rules. Made by [`Rules::builder`].
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    pub(super) merge_domains: bool,
    pub(super) strict: bool,
    pub(super) files: FilesOf,
}

/// The descriptors below a domain or a descriptor.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) descriptors: HashMap<String, Descriptor>,
    /// In the order of the file.
    pub(super) wildcards: Vec<String>,
}

/// A descriptor of a file.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) limit: Option<Limit>,
    pub(super) below: Level,
    pub(super) value_to_metric: bool,
    /// The text with `*` that replaces all values in counts.
    pub(super) shared: Option<String>,
    pub(super) metadata: Option<Struct>,
}

/// A limit of a file.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) requests: u32,
    /// The unit; `None` if unlimited.
    pub(crate) unit: Option<Unit>,
    /// The number of units in a period, if the file has one.
    pub(crate) unit_multiplier: Option<u32>,
    /// The quota, if the limit is no fixed window.
    pub(crate) quota_of_its_own: Option<Quota>,
    pub(crate) name: String,
    pub(crate) replaces: Vec<String>,
    pub(crate) shadow: bool,
    pub(crate) quota: bool,
    pub(super) detailed_metric: bool,
    pub(crate) span: Span,
}

/// The limit of a descriptor, and the path to it.
#[derive(Debug)]
pub(crate) struct Found<'r> {
    pub(crate) limit: &'r Limit,
    pub(super) steps: Vec<Step<'r>>,
}

/// An entry, and the descriptor of the file that it matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'r> {
    pub(super) descriptor: &'r Descriptor,
    pub(super) matched: Matched<'r>,
}

/// How an entry matched.
#[derive(Debug, Clone, Copy)]
pub(super) enum Matched<'r> {
    Exact,
    Pattern(&'r str),
    KeyAlone,
}

impl Rules {
    /// A builder with the settings for reading rules.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The files and directories in the rule directories that were not read.
    pub fn others(&self) -> &[PathBuf] {
        &self.others
    }

    /// The number of limits, unlimited ones included.
    pub const fn len(&self) -> usize {
        self.limits
    }

    /// Whether there is no limit.
    pub const fn is_empty(&self) -> bool {
        self.limits == 0
    }

    /// The problems that do not reject the files.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The files that were read, each with the SHA-256 of its contents in hexadecimal digits.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter();
        files.map(|(name, sha256)| (name.as_str(), sha256.as_str()))
    }

    /// The domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    pub(crate) fn knows(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The limit of a descriptor with these entries, if there is one.
    pub(crate) fn find(&self, domain: &str, entries: &[Entry]) -> Option<Found<'_>> {
        let steps = self.way(domain, entries);
        let last = steps.last().filter(|_| steps.len() == entries.len())?;
        let limit = last.descriptor.limit.as_ref()?;
        Some(Found { limit, steps })
    }

    /// The matches of the entries, up to the first without one.
    pub(super) fn way(&self, domain: &str, entries: &[Entry]) -> Vec<Step<'_>> {
        let mut steps: Vec<Step<'_>> = Vec::with_capacity(entries.len());
        let mut level = self.domains.get(domain);
        for entry in entries {
            let Some(step) = level.and_then(|level| level.step(entry)) else {
                break;
            };
            level = Some(&step.descriptor.below);
            steps.push(step);
        }
        steps
    }
}

impl Level {
    /// The descriptor of this level that an entry matches.
    pub(super) fn step(&self, entry: &Entry) -> Option<Step<'_>> {
        let text = format!("{}_{}", entry.key, entry.value);
        if let Some(descriptor) = self.descriptors.get(&text) {
            return Some(Step::new(descriptor, Matched::Exact));
        }
        let mut patterns = self.wildcards.iter();
        if let Some(pattern) = patterns.find(|pattern| covers(pattern, &text)) {
            let descriptor = self.descriptors.get(pattern)?;
            return Some(Step::new(descriptor, Matched::Pattern(pattern)));
        }
        let descriptor = self.descriptors.get(&entry.key)?;
        Some(Step::new(descriptor, Matched::KeyAlone))
    }
}

impl<'r> Step<'r> {
    const fn new(descriptor: &'r Descriptor, matched: Matched<'r>) -> Self {
        Self {
            descriptor,
            matched,
        }
    }

    /// The pattern that replaces the value, if all values share a count.
    pub(super) fn shared(&self, entry: &Entry) -> Option<&'r str> {
        let Matched::Pattern(_) = self.matched else {
            return None;
        };
        let shared = self.descriptor.shared.as_deref()?;
        Some(value_of(shared, entry))
    }
}

/// The pattern without the key of the entry, if it begins with the key.
pub(super) fn value_of<'p>(pattern: &'p str, entry: &Entry) -> &'p str {
    let value = pattern.strip_prefix(&entry.key);
    value
        .and_then(|value| value.strip_prefix('_'))
        .unwrap_or(pattern)
}

impl<'r> Found<'r> {
    /// The values of the counter.
    pub(crate) fn counted<'s>(
        &'s self,
        entries: &'s [Entry],
    ) -> impl Iterator<Item = (&'s str, &'s str)> {
        let steps = self.steps.iter().zip(entries);
        steps.map(|(step, entry)| {
            let value = step.shared(entry).unwrap_or(&entry.value);
            (entry.key.as_str(), value)
        })
    }

    pub(crate) fn metadata(&self) -> Option<&'r Struct> {
        self.steps.last()?.descriptor.metadata.as_ref()
    }
}

/// Whether a pattern, in which each `*` matches any characters or none, matches the text: the pieces occur in order, the
/// first at the beginning, the last at the end, each of the others as early as possible. A `*` cannot be escaped.
fn covers(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return false;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let within = text.strip_prefix(first);
    let Some(mut left) = within.and_then(|within| within.strip_suffix(last)) else {
        return false;
    };
    middle.split('*').all(|piece| match left.find(piece) {
        Some(at) => {
            left = &left[at + piece.len()..];
            true
        }
        None => false,
    })
}

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

    #[test]
    fn pieces_come_in_order_and_do_not_overlap() {
        let cases = [
            ("a*", "a", true),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("ab*bc", "abc", false),
            ("foo*bar*baz", "foobarbaz", true),
            ("foo*bar*baz", "foo1bar2baz", true),
            ("foo*bar*baz", "foobaz", false),
            ("foo*bar*baz", "foobazbar", false),
            ("*x*", "axb", true),
            ("*x*", "ab", false),
            ("a**b", "ab", true),
            ("a*b*b", "ab", false),
            ("a*b*b", "abb", true),
            ("a*b*c*d", "a-b-b-c-d", true),
            // As early as possible, so that the next piece can match.
            ("*b*c*", "bcb", true),
            ("ä*ö", "äüö", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(covers(pattern, text), expected, "{pattern} {text}");
        }
    }

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
