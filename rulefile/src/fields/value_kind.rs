//! The shapes of values, and tables of fields.

use std::fmt;

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

    /// The name of the field.
    fn name(&self) -> &'static str {
        self.info().name
    }
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
