//! The text format of Prometheus, for numbers that are read when somebody asks for them.

use std::fmt::{Display, Write as _};

/// A text that families of metrics are appended to.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

/// A family whose samples come next.
#[derive(Debug)]
pub(crate) struct Family<'t> {
    text: &'t mut String,
    name: &'t str,
}

impl Text {
    pub(crate) fn gauge<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
        self.family(name, "gauge", help)
    }

    pub(crate) fn counter<'t>(&'t mut self, name: &'t str, help: &str) -> Family<'t> {
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
        self.text.push_str(self.name);
        for (at, (name, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"");
            value.chars().for_each(|c| self.escaped(c));
            self.text.push('"');
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    fn escaped(&mut self, c: char) {
        match c {
            '\\' => self.text.push_str(r"\\"),
            '"' => self.text.push_str("\\\""),
            '\n' => self.text.push_str("\\n"),
            c => self.text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut text = Text::default();
        let mut family = text.gauge("limit", "Units.");
        family.sample(&[("policy", "a\"b\\c\nd"), ("backend", "local")], 7);
        family.sample(&[], 0.5);
        let expected = "# HELP limit Units.\n# TYPE limit gauge\n\
            limit{policy=\"a\\\"b\\\\c\\nd\",backend=\"local\"} 7\nlimit 0.5\n";
        assert_eq!(text.into_string(), expected);
    }
}
