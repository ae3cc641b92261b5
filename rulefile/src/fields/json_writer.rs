//! Writes JSON.

use std::fmt::{self, Write};

/// A JSON value to write. Objects are indented, lists are on one line.
#[derive(Debug, Clone)]
pub(super) enum Json {
    Text(String),
    Number(u64),
    Boolean(bool),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub(super) fn texts(texts: impl IntoIterator<Item = &'static str>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    pub(super) fn object(fields: impl IntoIterator<Item = (String, Self)>) -> Self {
        Self::Object(fields.into_iter().collect())
    }

    fn write(&self, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indent = |depth| "  ".repeat(depth);
        match self {
            Self::Text(text) => write_quoted(text, f),
            Self::Number(number) => write!(f, "{number}"),
            Self::Boolean(boolean) => write!(f, "{boolean}"),
            Self::List(items) => {
                f.write_char('[')?;
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    item.write(depth, f)?;
                }
                f.write_char(']')
            }
            Self::Object(fields) if fields.is_empty() => f.write_str("{}"),
            Self::Object(fields) => {
                f.write_char('{')?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let separator = if at == 0 { "" } else { "," };
                    write!(f, "{separator}\n{}", indent(depth + 1))?;
                    write_quoted(name, f)?;
                    f.write_str(": ")?;
                    value.write(depth + 1, f)?;
                }
                write!(f, "\n{}}}", indent(depth))
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(0, f)
    }
}

fn write_quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
