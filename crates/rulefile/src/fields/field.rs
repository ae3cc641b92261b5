//! Fields of tables: the shapes of values, and handles with the name, the type and the meaning of a field in one place.

use std::{fmt, ops::RangeInclusive};

use crate::{
    document::{Node, NodeEntry},
    problems::{ProblemCode, Report},
};

/// A field of a table. `K` is the type of its value: [`Text`], [`Number`], [`Boolean`], [`OneOf`], [`Parsed`] or
/// [`Tree`].
///
/// `of` reads the field from a table. It returns `None` if the field is missing, and also if its value is not as
/// described, which [`Table::check`] reports.
#[derive(Debug, Clone, Copy)]
pub struct Field<K> {
    info: FieldInfo,
    kind: K,
}

impl<K: fmt::Debug + Sync> AnyField for Field<K> {
    fn info(&self) -> &FieldInfo {
        &self.info
    }
}

/// The type of a field whose value is a text.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Text;

/// The type of a field whose value is a whole number.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Number;

/// The type of a field whose value is `true` or `false`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Boolean;

/// The type of a field whose value is one of a few words. Each word means a `T`.
#[derive(Debug, Clone, Copy)]
pub struct OneOf<T: 'static> {
    words: &'static [(&'static str, T)],
}

/// The type of a field whose value is a text that means a `T`, or several such texts.
pub struct Parsed<T> {
    code: ProblemCode,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> Clone for Parsed<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Parsed<T> {}

impl<T> fmt::Debug for Parsed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parsed").field(&self.code).finish()
    }
}

/// The type of a field whose value has parts.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Tree;

impl<K> Field<K> {
    const fn new(name: &'static str, shape: Shape, about: &'static str, kind: K) -> Self {
        let info = FieldInfo {
            name,
            shape,
            required: false,
            about,
        };
        Self { info, kind }
    }

    /// The field, without which a table is faulty.
    #[must_use]
    pub const fn required(mut self) -> Self
    where
        K: Copy,
    {
        self.info.required = true;
        self
    }

    /// The name of the field.
    pub const fn name(&self) -> &'static str {
        self.info.name
    }

    /// Whether an entry is this field.
    pub fn is(&self, entry: &NodeEntry) -> bool {
        entry.key == self.info.name
    }

    /// The entry of the field in a table.
    pub fn entry<'n>(&self, table: &'n Node) -> Option<&'n NodeEntry> {
        table.entry(self.info.name)
    }

    /// The value of the field in a table, of any kind.
    pub fn node<'n>(&self, table: &'n Node) -> Option<&'n Node> {
        table.get(self.info.name)
    }

    /// The entries of the field's value, which is itself a table; none if the field is missing.
    pub fn entries<'n>(&self, table: &'n Node) -> &'n [NodeEntry] {
        self.node(table).map_or(&[], Node::entries)
    }
}

impl Field<Text> {
    /// A field whose value is a text, with an example of one.
    pub const fn text(name: &'static str, example: &'static str, about: &'static str) -> Self {
        Self::new(name, Shape::Text(example), about, Text)
    }

    /// A field whose value is one of these words.
    pub const fn word<const N: usize>(
        name: &'static str,
        words: &'static [&'static str; N],
        about: &'static str,
    ) -> Self {
        Self::new(name, Shape::Words(words), about, Text)
    }

    /// The text.
    pub fn of<'n>(&self, table: &'n Node) -> Option<&'n str> {
        self.node(table)?.text()
    }
}

impl Field<Number> {
    /// A field whose value is a whole number of the range.
    pub const fn number(
        name: &'static str,
        range: RangeInclusive<u64>,
        about: &'static str,
    ) -> Self {
        let shape = Shape::Number(*range.start(), *range.end());
        Self::new(name, shape, about, Number)
    }

    /// The number.
    pub fn of(&self, table: &Node) -> Option<u64> {
        let range = match self.info.shape {
            Shape::Number(least, most) => least..=most,
            _ => 0..=u64::MAX,
        };
        self.node(table)?
            .number()
            .filter(|number| range.contains(number))
    }
}

impl Field<Boolean> {
    /// A field whose value is `true` or `false`.
    pub const fn boolean(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Shape::Boolean, about, Boolean)
    }

    /// The boolean.
    pub fn of(&self, table: &Node) -> Option<bool> {
        self.node(table)?.boolean()
    }
}

impl<T: fmt::Debug + Copy + Sync> Field<OneOf<T>> {
    /// A field whose value is one of these words.
    pub const fn one_of<const N: usize>(
        name: &'static str,
        words: &'static [(&'static str, T); N],
        about: &'static str,
    ) -> Self {
        let shape = Shape::Words(words);
        Self::new(name, shape, about, OneOf { words })
    }

    /// The value of the word.
    pub fn of(&self, table: &Node) -> Option<T> {
        let text = self.node(table)?.text()?;
        let mut words = self.kind.words.iter();
        words
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value)
    }
}

impl<T> Field<Parsed<T>> {
    /// A field whose texts mean a `T`. `shape` is [`Shape::Text`], or [`Shape::Many`] or [`Shape::List`] of it;
    /// `parse` returns a message for a text that means nothing, which becomes a problem of this code.
    pub const fn parsed(
        name: &'static str,
        shape: Shape,
        code: ProblemCode,
        parse: fn(&str) -> Result<T, String>,
        about: &'static str,
    ) -> Self {
        Self::new(name, shape, about, Parsed { code, parse })
    }

    /// The value of a field with one text. Reports a text that means nothing.
    pub fn of(&self, table: &Node, report: &mut Report) -> Option<T> {
        self.parse(self.node(table)?, report)
    }

    /// The value of a field with one text, or `default` if the field is missing. `None` after reporting a text that
    /// means nothing.
    pub fn or_default(&self, table: &Node, default: T, report: &mut Report) -> Option<T> {
        match self.node(table) {
            Some(node) => self.parse(node, report),
            None => Some(default),
        }
    }

    /// The values of a field with several texts, without those that mean nothing, which are reported.
    pub fn all(&self, table: &Node, report: &mut Report) -> Option<Vec<T>> {
        let items = self.node(table)?.items().iter();
        let values = items.filter_map(|item| self.parse(item, report));
        Some(values.collect())
    }

    fn parse(&self, node: &Node, report: &mut Report) -> Option<T> {
        let parsed = (self.kind.parse)(node.text()?);
        parsed
            .map_err(|message| report.push(self.kind.code, &node.span, message))
            .ok()
    }
}

impl Field<Tree> {
    /// A field whose value is of this shape.
    pub const fn tree(name: &'static str, shape: Shape, about: &'static str) -> Self {
        Self::new(name, shape, about, Tree)
    }

    /// A field whose value is this table.
    pub const fn table(name: &'static str, table: &'static Table, about: &'static str) -> Self {
        Self::tree(name, Shape::Table(table), about)
    }

    /// The value.
    pub fn of<'n>(&self, table: &'n Node) -> Option<&'n Node> {
        self.node(table)
    }
}

/// The values that a field accepts.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Shape {
    /// A text that is not empty, with an example.
    Text(&'static str),
    /// One of these words.
    Words(&'static dyn WordTable),
    /// A whole number, from the first to the second.
    Number(u64, u64),
    /// A whole number from the first to the second. The reader of the field reports one outside of them, under a code of
    /// its own.
    NumberOfReader(u64, u64),
    /// A number from 0 on, with at most three decimals.
    Decimal,
    /// `true` or `false`.
    Boolean,
    /// A list of at least one item, or a single item, which means a list of one.
    Many(&'static Self),
    /// A list.
    List(&'static Self),
    /// A table of known fields.
    Table(&'static Table),
    /// A table whose keys are names that the operator chooses.
    Map(&'static Self),
    /// A shape under a name: one that contains itself, or that several fields have.
    Named(&'static str, &'static Self),
    /// One of these shapes. A scalar, a list or a table chooses the first shape of its kind.
    Either(&'static [Self]),
}

/// The words that a field accepts: an array of words, or of pairs of a word and its value.
pub trait WordTable: fmt::Debug + Sync {
    /// The words, in their order.
    fn words(&self) -> Vec<&'static str>;
}

impl<T: fmt::Debug + Sync, const N: usize> WordTable for [(&'static str, T); N] {
    fn words(&self) -> Vec<&'static str> {
        self.iter().map(|(word, _)| *word).collect()
    }
}

impl<const N: usize> WordTable for [&'static str; N] {
    fn words(&self) -> Vec<&'static str> {
        self.to_vec()
    }
}

/// The description of a field, whatever its type.
#[derive(Debug, Clone, Copy)]
pub struct FieldInfo {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) required: bool,
    pub(super) about: &'static str,
}

/// A field of any type, as [`Table::new`] takes it. Implemented by [`Field`](super::Field).
pub trait AnyField: fmt::Debug + Sync {
    /// The description of the field.
    fn info(&self) -> &FieldInfo;
}

/// A table of known fields.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fields: &'static [&'static dyn AnyField],
    pub(super) one_field: bool,
    pub(super) foreign: (&'static [&'static str], &'static str),
}

impl Table {
    /// The names of the fields, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.fields.iter().map(|field| field.info().name)
    }

    /// A table of these fields. Messages call it `name`, as in "unknown field … in match"; the schema has `about`.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        fields: &'static [&'static dyn AnyField],
    ) -> Self {
        Self {
            name,
            about,
            fields,
            one_field: false,
            foreign: (&[], ""),
        }
    }

    /// The table with exactly one of its fields.
    #[must_use]
    pub const fn one_field(mut self) -> Self {
        self.one_field = true;
        self
    }

    /// The table with a message for fields of another format: `"domain" is …`, where `hint` continues.
    #[must_use]
    pub const fn foreign(mut self, names: &'static [&'static str], hint: &'static str) -> Self {
        self.foreign = (names, hint);
        self
    }
}
