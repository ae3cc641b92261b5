//! Metric families as Prometheus reads them.

use std::fmt::{Display, Write as _};

/// A text of metric families.
#[derive(Debug, Default)]
pub struct MetricsText(String);

/// A family that takes samples.
#[derive(Debug)]
pub struct Family<'t> {
    text: &'t mut String,
    name: &'t str,
}

impl MetricsText {
    pub(crate) fn gauge<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, "gauge", help)
    }

    pub fn counter<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, "counter", help)
    }

    fn family<'t>(&'t mut self, name: &'t str, kind: &str, help: &str) -> Family<'t> {
        let text = &mut self.0;
        // Writing to a string never fails.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Family { text, name }
    }

    pub(crate) fn append(&mut self, other: &str) {
        self.0.push_str(other);
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl Family<'_> {
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.labelled(&label_text(labels.iter().copied()), value);
    }

    /// A sample with prepared [`labels`].
    pub fn labelled(&mut self, labels: &str, value: impl Display) {
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }
}

/// Labels as they are written after a name: `{backend="local"}`.
pub fn label_text<'l>(labels: impl Iterator<Item = (&'l str, &'l str)>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let before = if text.is_empty() { '{' } else { ',' };
        let _ = write!(text, "{before}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str(r"\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = MetricsText::default();
        let mut family = text.gauge("limit", "Units.");
        family.sample(&[("policy", "a\"b\\c\nd"), ("backend", "local")], 7);
        family.sample(&[], 0.5);
        let expected = "# HELP limit Units.\n# TYPE limit gauge\n\
        limit{policy=\"a\\\"b\\\\c\\nd\",backend=\"local\"} 7\nlimit 0.5\n";
        assert_eq!(text.into_string(), expected);
    }
}
