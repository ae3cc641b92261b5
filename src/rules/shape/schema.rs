//! The description as a JSON Schema.

use super::{
    describe::{Shape, TableShape},
    fields::FILE,
};
use crate::rules::json::Json;

/// The JSON Schema (2020-12) of rule files, for editors, which then complete and underline.
///
/// It knows the fields and the kinds of their values. What names, patterns, quotas and times mean
/// is checked where a file is read.
#[must_use]
pub fn schema() -> String {
    let mut writer = SchemaWriter::default();
    let Json::Object(fields) = writer.table(&FILE) else {
        unreachable!("a table is an object")
    };
    writer.definitions.sort_by(|(a, _), (b, _)| a.cmp(b));
    let head = Json::object([
        (
            "$schema",
            Json::text("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", Json::text("Rule files of tower-ratelimit")),
    ]);
    let whole = fields
        .into_iter()
        .fold(head, |whole, (name, value)| whole.with(&name, value));
    let whole = whole.with("$defs", Json::Object(writer.definitions));
    format!("{whole}\n")
}

#[derive(Default)]
struct SchemaWriter {
    /// The tables and shapes that have names, since some contain themselves.
    definitions: Vec<(String, Json)>,
}

impl SchemaWriter {
    fn table(&mut self, table: &'static TableShape) -> Json {
        let mut object = Json::object([
            ("description", Json::text(table.about)),
            ("type", Json::text("object")),
        ]);
        if table.one_field {
            object = object
                .with("minProperties", Json::Number(1))
                .with("maxProperties", Json::Number(1));
        }
        let mut required = table
            .fields
            .iter()
            .filter(|field| field.required)
            .peekable();
        if required.peek().is_some() {
            object = object.with("required", Json::texts(required.map(|field| field.name)));
        }
        let fields = table.fields.iter().map(|field| {
            let shape = self.shape(field.shape);
            (
                field.name.to_owned(),
                shape.with("description", Json::text(field.about)),
            )
        });
        let fields = Json::Object(fields.collect());
        object
            .with("additionalProperties", Json::Truth(false))
            .with("properties", fields)
    }

    fn shape(&mut self, shape: &'static Shape) -> Json {
        let of_type = |name| Json::object([("type", Json::text(name))]);
        match shape {
            // Without quotes 404 and 1.10 are numbers for a schema, and the text that stands there for us.
            Shape::Text(example) => {
                let kinds = Json::texts(["string", "number", "boolean"].into_iter());
                Json::object([
                    ("type", kinds),
                    ("examples", Json::texts([*example].into_iter())),
                ])
            }
            Shape::Words(words) => Json::object([("enum", Json::texts(words.iter().copied()))]),
            Shape::Number(least, most) => of_type("integer")
                .with("minimum", Json::Number(*least))
                .with("maximum", Json::Number(*most)),
            Shape::Truth => of_type("boolean"),
            Shape::List(item) => of_type("array").with("items", self.shape(item)),
            Shape::Many(item) => {
                let list = of_type("array").with("minItems", Json::Number(1));
                let item = self.shape(item);
                let choices = vec![item.clone(), list.with("items", item)];
                Json::object([("anyOf", Json::List(choices))])
            }
            Shape::Names(value) => {
                of_type("object").with("additionalProperties", self.shape(value))
            }
            Shape::Either(choices) => {
                let choices = choices.iter().map(|choice| self.shape(choice)).collect();
                Json::object([("anyOf", Json::List(choices))])
            }
            Shape::Table(table) => {
                let name = table.name.trim_start_matches("the ");
                self.reference(name, |writer| writer.table(table))
            }
            Shape::Named(name, shape) => self.reference(name, |writer| writer.shape(shape)),
        }
    }

    /// A reference to a definition, which is written unless it is there or under way.
    fn reference(&mut self, name: &str, write: impl FnOnce(&mut Self) -> Json) -> Json {
        if !self.definitions.iter().any(|(known, _)| known == name) {
            self.definitions
                .push((name.to_owned(), Json::Object(Vec::new())));
            let written = write(self);
            let definition = self.definitions.iter_mut().find(|(known, _)| known == name);
            if let Some((_, definition)) = definition {
                *definition = written;
            }
        }
        Json::object([("$ref", Json::Text(format!("#/$defs/{name}")))])
    }
}
