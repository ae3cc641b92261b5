//! The parts of a description.

/// What a value may be.
#[derive(Debug)]
pub(super) enum Shape {
    /// A text, of which an example is given.
    Text(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number from the first to the second.
    Number(u64, u64),
    Truth,
    /// A list of at least one, or one item that stands for it.
    Many(&'static Self),
    /// A list.
    List(&'static Self),
    /// A table of known fields.
    Table(&'static TableShape),
    /// A table whose keys are names.
    Names(&'static Self),
    /// A shape under a name, which contains itself or stands at many places.
    Named(&'static str, &'static Self),
    /// One of these, told apart by whether it is a scalar, a list or a table.
    Either(&'static [Self]),
}

/// A table of known fields.
#[derive(Debug)]
pub(super) struct TableShape {
    /// What messages call it: "in match".
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fields: &'static [FieldShape],
    /// Whether it says exactly one of its fields.
    pub(super) one_field: bool,
}

/// A field of a table.
#[derive(Debug)]
pub(super) struct FieldShape {
    pub(super) name: &'static str,
    pub(super) shape: &'static Shape,
    pub(super) required: bool,
    pub(super) about: &'static str,
}

impl FieldShape {
    pub(super) const fn new(
        name: &'static str,
        shape: &'static Shape,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            shape,
            required: false,
            about,
        }
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

impl TableShape {
    pub(super) const fn new(
        name: &'static str,
        about: &'static str,
        fields: &'static [FieldShape],
    ) -> Self {
        Self {
            name,
            about,
            fields,
            one_field: false,
        }
    }

    pub(super) const fn one_field(mut self) -> Self {
        self.one_field = true;
        self
    }
}
