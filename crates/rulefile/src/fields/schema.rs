//! The description of fields as a JSON Schema, and its text.

use std::fmt::{self, Write};

use super::field::{Shape, Table};

/// The JSON Schema (2020-12) of files whose root is this table, for completion and checks in editors.
///
/// It has the fields and the kinds of their values. Names, patterns, quotas and times are checked when a file is read.
pub fn json_schema(title: &str, file: &Table) -> String {
    let mut writer = SchemaWriter::default();
    let fields = writer.table(file);
    writer.definitions.sort_by(|(a, _), (b, _)| a.cmp(b));
    let head = [
        (
            "$schema",
            Json::text("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", Json::text(title)),
    ];
    let definitions = [("$defs", Json::object(writer.definitions))];
    let schema = head.map(owned).into_iter().chain(fields);
    let schema = Json::object(schema.chain(definitions.map(owned)));
    format!("{schema}\n")
}

/// A field of an object of the schema.
type JsonField = (String, Json);

fn owned((name, value): (&str, Json)) -> JsonField {
    (name.to_owned(), value)
}

fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
    Json::object(fields.map(owned))
}

#[derive(Default)]
struct SchemaWriter {
    /// The tables and shapes with names, since some contain themselves.
    definitions: Vec<JsonField>,
}

impl SchemaWriter {
    fn table(&mut self, table: &Table) -> Vec<JsonField> {
        let mut fields = vec![
            ("description", Json::text(table.about)),
            ("type", Json::text("object")),
        ];
        if table.one_field {
            fields.push(("minProperties", Json::Number(1)));
            fields.push(("maxProperties", Json::Number(1)));
        }
        let required = table.infos().filter(|field| field.required);
        let required: Vec<&str> = required.map(|field| field.name).collect();
        if !required.is_empty() {
            fields.push(("required", Json::texts(required)));
        }
        let properties = table.infos().map(|field| {
            let about = ("description", Json::text(field.about));
            let shape = self.shape(&field.shape).into_iter().chain([about]);
            (field.name.to_owned(), Json::object(shape.map(owned)))
        });
        let properties = Json::object(properties);
        fields.push(("additionalProperties", Json::Boolean(false)));
        fields.push(("properties", properties));
        fields.into_iter().map(owned).collect()
    }

    fn shape(&mut self, shape: &Shape) -> Vec<(&'static str, Json)> {
        let of_type = |name| ("type", Json::text(name));
        match shape {
            // Without quotes 404 and 1.10 are numbers for a schema; a rule file takes them as texts.
            Shape::Text(example) => vec![
                ("type", Json::texts(["string", "number", "boolean"])),
                ("examples", Json::texts([*example])),
            ],
            Shape::Words(table) => vec![("enum", Json::texts(table.words()))],
            Shape::Number(least, most) | Shape::NumberOfReader(least, most) => vec![
                of_type("integer"),
                ("minimum", Json::Number(*least)),
                ("maximum", Json::Number(*most)),
            ],
            Shape::Decimal => vec![of_type("number"), ("minimum", Json::Number(0))],
            Shape::Boolean => vec![of_type("boolean")],
            Shape::List(item) => vec![of_type("array"), ("items", self.object(item))],
            Shape::Many(item) => {
                let item = self.object(item);
                let list = object([
                    of_type("array"),
                    ("minItems", Json::Number(1)),
                    ("items", item.clone()),
                ]);
                vec![("anyOf", Json::List(vec![item, list]))]
            }
            Shape::Map(value) => vec![
                of_type("object"),
                ("additionalProperties", self.object(value)),
            ],
            Shape::Either(choices) => {
                let choices = choices.iter().map(|choice| self.object(choice)).collect();
                vec![("anyOf", Json::List(choices))]
            }
            Shape::Table(table) => {
                let name = table.name.trim_start_matches("the ");
                self.reference(name, |writer| Json::object(writer.table(table)))
            }
            Shape::Named(name, shape) => self.reference(name, |writer| writer.object(shape)),
        }
    }

    fn object(&mut self, shape: &Shape) -> Json {
        Json::object(self.shape(shape).into_iter().map(owned))
    }

    /// A reference to a definition. Writes the definition at its first reference.
    fn reference(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Self) -> Json,
    ) -> Vec<(&'static str, Json)> {
        if !self.definitions.iter().any(|(known, _)| known == name) {
            // Reserved before it is written, since it may contain itself.
            self.definitions
                .push((name.to_owned(), Json::object(Vec::new())));
            let written = write(self);
            let definition = self.definitions.iter_mut().find(|(known, _)| known == name);
            if let Some((_, definition)) = definition {
                *definition = written;
            }
        }
        vec![("$ref", Json::Text(format!("#/$defs/{name}")))]
    }
}

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

    fn object(fields: impl IntoIterator<Item = (String, Self)>) -> Self {
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
