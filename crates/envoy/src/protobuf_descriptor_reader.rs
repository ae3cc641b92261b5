//! Messages as the committed descriptors describe them, for tests of messages that are written by hand.

use std::collections::{BTreeSet, HashMap};

use prost::{
    Message as _,
    encoding::{WireType, decode_key, decode_varint},
};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorSet, field_descriptor_proto::Type,
};

/// The descriptors by their full names.
#[derive(Default)]
pub(crate) struct Described {
    messages: HashMap<String, DescriptorProto>,
    enums: HashMap<String, EnumDescriptorProto>,
}

impl Described {
    pub(crate) fn read(descriptors: &[u8]) -> Self {
        let mut described = Self::default();
        let set = FileDescriptorSet::decode(descriptors).expect("descriptors");
        for file in set.file {
            let package = format!(".{}", file.package());
            described.add_enums(&package, file.enum_type);
            for message in file.message_type {
                described.add_message(&package, message);
            }
        }
        described
    }

    fn add_message(&mut self, outer: &str, message: DescriptorProto) {
        let name = format!("{outer}.{}", message.name());
        self.add_enums(&name, message.enum_type.clone());
        for nested in message.nested_type.clone() {
            self.add_message(&name, nested);
        }
        self.messages.insert(name, message);
    }

    fn add_enums(&mut self, outer: &str, enums: Vec<EnumDescriptorProto>) {
        let named = enums.into_iter().map(|described| {
            let name = format!("{outer}.{}", described.name());
            (name, described)
        });
        self.enums.extend(named);
    }

    /// The fields of an encoded message and of the messages in it, as `.package.Message.field`.
    pub(crate) fn fields(&self, name: &str, mut bytes: &[u8]) -> BTreeSet<String> {
        let mut fields = BTreeSet::new();
        while !bytes.is_empty() {
            let (number, wire) = decode_key(&mut bytes).expect("a key");
            let mut described = self.messages[name].field.iter();
            let field = described
                .find(|field| field.number() == number.cast_signed())
                .unwrap_or_else(|| panic!("{name} has a field {number}"));
            fields.insert(format!("{name}.{}", field.name()));
            let expected = match field.r#type() {
                Type::Message | Type::String | Type::Bytes => WireType::LengthDelimited,
                Type::Double => WireType::SixtyFourBit,
                _ => WireType::Varint,
            };
            assert_eq!(wire, expected, "{name}.{}", field.name());
            let length = match wire {
                WireType::SixtyFourBit => 8,
                _ => decode_varint(&mut bytes).expect("a number") as usize,
            };
            if wire == WireType::Varint {
                continue;
            }
            let (part, rest) = bytes.split_at(length);
            if field.r#type() == Type::Message {
                fields.extend(self.fields(field.type_name(), part));
            }
            bytes = rest;
        }
        fields
    }

    /// All fields of the messages whose names begin so.
    pub(crate) fn all_fields(&self, prefix: &str) -> BTreeSet<String> {
        let messages = self.messages.iter();
        let messages = messages.filter(|(name, _)| name.starts_with(prefix));
        let fields = messages.flat_map(|(name, message)| {
            let fields = message.field.iter();
            fields.map(move |field| format!("{name}.{}", field.name()))
        });
        fields.collect()
    }

    /// The values of an enumeration.
    pub(crate) fn values(&self, name: &str) -> BTreeSet<(String, i32)> {
        let values = self.enums[name].value.iter();
        let values = values.map(|value| (value.name().to_owned(), value.number()));
        values.collect()
    }
}
