//! JSON for the results: objects of texts and whole numbers.

use std::{fmt::Write as _, time::Duration};

/// An object in progress.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.raw(name, &quoted(value))
    }

    pub(crate) fn number(self, name: &str, value: impl Into<Option<u64>>) -> Self {
        let value = value.into();
        let value = value.map_or_else(|| String::from("null"), |value| value.to_string());
        self.raw(name, &value)
    }

    pub(crate) fn micros(self, name: &str, value: Option<Duration>) -> Self {
        let micros = |value: Duration| u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.number(name, value.map(micros))
    }

    /// A list of pairs of texts.
    pub(crate) fn pairs<'a>(
        self,
        name: &str,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let pairs = pairs
            .map(|(one, other)| format!("[{},{}]", quoted(one), quoted(other)))
            .collect::<Vec<_>>()
            .join(",");
        self.raw(name, &format!("[{pairs}]"))
    }

    fn raw(mut self, name: &str, value: &str) -> Self {
        let comma = if self.0.len() > 1 { "," } else { "" };
        let _ = write!(self.0, "{comma}{}:{value}", quoted(name));
        self
    }

    pub(crate) fn end(self) -> String {
        self.0 + "}"
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted += "\\\"",
            '\\' => quoted += "\\\\",
            '\0'..='\x1f' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(char));
            }
            _ => quoted.push(char),
        }
    }
    quoted + "\""
}
