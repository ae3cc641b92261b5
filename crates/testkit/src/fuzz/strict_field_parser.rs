//! A strict parser for what RFC 9651 calls a List of Items, as far as rate limit fields go: strings
//! with parameters that are Integers or Strings.

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(u64),
    String(String),
}

/// An item: its string, and its parameters in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub text: String,
    pub parameters: Vec<(String, Value)>,
}

/// The items of a field. `None` for whatever the RFC has clients ignore.
pub fn list(field: &str) -> Option<Vec<Item>> {
    let mut rest = field.trim_matches(' ');
    let mut items = Vec::new();
    loop {
        items.push(item(&mut rest)?);
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() {
            return Some(items);
        }
        rest = rest.strip_prefix(',')?.trim_start_matches([' ', '\t']);
    }
}

fn item(rest: &mut &str) -> Option<Item> {
    let text = string(rest)?;
    let mut parameters: Vec<(String, Value)> = Vec::new();
    while let Some(after) = rest.strip_prefix(';') {
        *rest = after.trim_start_matches(' ');
        let (name, value) = (key(rest)?, parameter(rest)?);
        // The RFC lets the last one win; nobody should rely on that.
        if parameters.iter().any(|(known, _)| *known == name) {
            return None;
        }
        parameters.push((name, value));
    }
    Some(Item { text, parameters })
}

fn parameter(rest: &mut &str) -> Option<Value> {
    *rest = rest.strip_prefix('=')?;
    if rest.starts_with('"') {
        return string(rest).map(Value::String);
    }
    let digits = take(rest, |c| c.is_ascii_digit());
    if !(1..=15).contains(&digits.len()) {
        return None;
    }
    digits.parse().ok().map(Value::Integer)
}

fn key(rest: &mut &str) -> Option<String> {
    let starts = |c: char| c.is_ascii_lowercase() || c == '*';
    if !rest.starts_with(starts) {
        return None;
    }
    let name = take(rest, |c| {
        starts(c) || c.is_ascii_digit() || ['_', '-', '.'].contains(&c)
    });
    Some(name.to_owned())
}

fn string(rest: &mut &str) -> Option<String> {
    let mut text = String::new();
    let mut characters = rest.strip_prefix('"')?.chars();
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => text.push(characters.next().filter(|c| ['"', '\\'].contains(c))?),
            c @ ' '..='~' => text.push(c),
            _ => return None,
        }
    }
    *rest = characters.as_str();
    Some(text)
}

fn take<'t>(rest: &mut &'t str, wanted: impl Fn(char) -> bool) -> &'t str {
    let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
    let (taken, after) = rest.split_at(end);
    *rest = after;
    taken
}
