//! The table of fields: what `shape!` makes of a row. It is the field of a struct, how it is read
//! and written, its JSON schema, the dialects that have it, and what to say in the other one.

use std::borrow::Borrow;
use std::fmt;
use std::sync::OnceLock;

use schemars::{Schema, SchemaGenerator};
use serde::de::{self, DeserializeSeed, Visitor};
use serde::{Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::placed::{At, Scalar};
use crate::dialect::Dialect;

/// A row of the table: one field.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The lines of its description.
    pub(super) about: &'static [&'static str],
    /// The dialect that alone has it, and what to say in the other one: nothing if that is empty.
    pub(super) only: Option<(Dialect, &'static str)>,
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Field {
    fn is_of(&self, dialect: Dialect) -> bool {
        self.only.is_none_or(|(only, _)| only == dialect)
    }
}

/// The fields of a struct.
pub(super) struct Table {
    fields: &'static [Field],
    /// Names of the fields for packets, and of those for requests.
    names: OnceLock<[Vec<&'static str>; 2]>,
}

impl Table {
    pub(super) const fn of(fields: &'static [Field]) -> Self {
        Self { fields, names: OnceLock::new() }
    }

    /// Names of the fields of a dialect.
    pub(super) fn names(&self, dialect: Dialect) -> &[&'static str] {
        let of = |dialect| {
            let fields = self.fields.iter().filter(|field| field.is_of(dialect));
            fields.map(|field| field.name).collect()
        };
        let [packets, requests] =
            self.names.get_or_init(|| [Dialect::Packets, Dialect::Requests].map(of));
        match dialect {
            Dialect::Packets => packets,
            Dialect::Requests => requests,
        }
    }

    /// True if it is a field in either dialect.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// What to say about a field of the other dialect.
    pub(super) fn elsewhere(&self, name: &str, dialect: Dialect) -> Option<&'static str> {
        let field = self.fields.iter().find(|field| field.name == name && !field.is_of(dialect))?;
        field.only.map(|(_, reason)| reason).filter(|reason| !reason.is_empty())
    }

    /// The schema of the struct in the dialect of the schema; `more` are its other keywords.
    pub(super) fn schema(&self, g: &mut SchemaGenerator, about: &[&str], more: &Value) -> Schema {
        let text = |lines: &[&str]| json!(lines.concat().trim());
        let own = self.fields.iter().filter(|field| field.is_of(Dialect::current()));
        let properties = own.map(|field| {
            let mut schema = (field.schema)(g);
            if !field.about.is_empty() {
                schema.insert("description".to_owned(), text(field.about));
            }
            (field.name.to_owned(), schema.to_value())
        });
        let mut object = Schema::default();
        object.insert("type".to_owned(), json!("object"));
        object.insert("description".to_owned(), text(about));
        object.insert("properties".to_owned(), Value::Object(properties.collect()));
        object.insert("additionalProperties".to_owned(), json!(false));
        for (keyword, value) in more.as_object().into_iter().flatten() {
            object.insert(keyword.clone(), value.clone());
        }
        object
    }
}

/// A struct of the table.
pub(super) trait Written {
    /// The fields that are there, with their places, in their order.
    fn written(&self) -> impl Iterator<Item = (&'static str, At)>;
}

/// The name of a field, in the dialect of what is read.
pub(super) struct Name(pub(super) &'static Table);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<&'static str, E> {
        let names = self.0.names(Dialect::current());
        let known = names.iter().find(|name| **name == text).copied();
        known.ok_or_else(|| E::unknown_field(text, names))
    }
}

/// A number, which is read as text and written as a number.
pub(super) struct Number<'a, T>(pub(super) &'a Option<T>);

impl<T: Borrow<Scalar>> Serialize for Number<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0.as_ref().and_then(|scalar| scalar.borrow().value.as_deref());
        match text.map(str::parse::<u64>) {
            Some(Ok(number)) => serializer.serialize_u64(number),
            Some(Err(_)) | None => text.serialize(serializer),
        }
    }
}

/// The dialects of a row.
macro_rules! only {
    () => { None };
    (packets) => { only!(packets "") };
    (requests) => { only!(requests "") };
    (packets $reason:expr) => { Some((Dialect::Packets, $reason)) };
    (requests $reason:expr) => { Some((Dialect::Requests, $reason)) };
}

/// How a field is read. A key without a value counts as no key where that is all that `maybe` says;
/// elsewhere it is one without a value: `value:` left empty must not select every source. A `flag`
/// that is false says nothing.
macro_rules! read {
    (some $map:ident) => {
        $map.next_value().map(Some)?
    };
    (number $map:ident) => {
        $map.next_value().map(Some)?
    };
    (maybe $map:ident) => {
        $map.next_value()?
    };
    (any $map:ident) => {
        $map.next_value()?
    };
    (flag $map:ident) => {
        $map.next_value::<Option<Placed<bool>>>()?.filter(|flag| flag.value)
    };
}

/// What is written of a field; of `any`, nothing.
macro_rules! value {
    (number $value:expr) => {
        &Number($value)
    };
    (any $value:expr) => {
        &()
    };
    ($how:ident $value:expr) => {
        $value
    };
}

/// Makes the structs of a file, and their tables: `NAME [title of the schema, its other keywords]
/// {rows}`, with a row `field: how it is read and written, its type => its schema, the only dialect
/// that has it, and what to say in the other one;`. Without a title the schema stands where it is
/// used.
macro_rules! shape {
    ($(
        $(#[doc = $about:literal])*
        $shape:ident [$title:literal, $more:expr] {$(
            $(#[doc = $line:literal])*
            $field:ident: $how:ident $type:ty => $schema:expr
                $(, $only:ident $($reason:expr)?)?;
        )*}
    )*) => {
        $(
            $(#[doc = $about])*
            #[derive(Debug, Default)]
            pub(super) struct $shape {$(
                $(#[doc = $line])*
                pub(super) $field: Option<$type>,
            )*}

            impl $shape {
                pub(super) fn table() -> &'static Table {
                    static TABLE: Table = Table::of(&[$(Field {
                        name: stringify!($field),
                        about: &[$($line),*],
                        only: only!($($only $($reason)?)?),
                        schema: $schema,
                    }),*]);
                    &TABLE
                }
            }

            impl Written for $shape {
                fn written(&self) -> impl Iterator<Item = (&'static str, At)> {
                    let fields = [$(
                        self.$field.as_ref().map(|value| (stringify!($field), value.at()))
                    ),*];
                    fields.into_iter().flatten()
                }
            }

            impl<'de> Deserialize<'de> for $shape {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Fields;

                    impl<'de> Visitor<'de> for Fields {
                        type Value = $shape;

                        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                            f.write_str(concat!("struct ", stringify!($shape)))
                        }

                        fn visit_map<A>(self, mut map: A) -> Result<$shape, A::Error>
                        where
                            A: MapAccess<'de>,
                        {
                            let mut fields = $shape::default();
                            while let Some(name) = map.next_key_seed(Name($shape::table()))? {
                                match name {
                                    $(stringify!($field) => fields.$field = read!($how map),)*
                                    _ => {}
                                }
                            }
                            Ok(fields)
                        }
                    }

                    deserializer.deserialize_struct(stringify!($shape), &[], Fields)
                }
            }

            impl Serialize for $shape {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let count = self.written().count();
                    let mut fields = serializer.serialize_struct(stringify!($shape), count)?;
                    $(if self.$field.is_some() {
                        fields.serialize_field(stringify!($field), value!($how &self.$field))?;
                    })*
                    fields.end()
                }
            }

            impl JsonSchema for $shape {
                fn schema_name() -> Cow<'static, str> {
                    $title.into()
                }

                fn inline_schema() -> bool {
                    $title.is_empty()
                }

                fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                    Self::table().schema(generator, &[$($about),*], &$more)
                }
            }
        )*

        /// The tables of all structs.
        const TABLES: &[fn() -> &'static Table] = &[$($shape::table),*];
    };
}

pub(super) use {only, read, shape, value};
