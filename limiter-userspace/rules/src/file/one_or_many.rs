//! Values that may be written in two ways: a scalar or a list of them, a word or a map.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::placed::{Read, Scalar, as_written};

/// Actions that are a word.
const WORDS: [&str; 2] = ["drop", "reject"];

/// A scalar, or a list of scalars.
#[derive(Debug)]
pub(super) enum OneOrMany {
    One(Option<String>),
    Many(Vec<Scalar>),
}

/// A number stands without quotes, as people write it.
impl Serialize for OneOrMany {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(Some(text)) => match text.parse::<u64>() {
                Ok(number) if number.to_string() == *text => serializer.serialize_u64(number),
                _ => serializer.serialize_str(text),
            },
            Self::One(None) => serializer.serialize_none(),
            Self::Many(values) => values.serialize(serializer),
        }
    }
}

/// A word, or a map.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum WordOr<T> {
    Word(Option<String>),
    Map(T),
}

/// Scalars: text as it is, and those that the reader types.
macro_rules! scalars {
    ($text:ident => $known:expr) => {
        fn visit_str<E: de::Error>(self, $text: &str) -> Result<Self::Value, E> {
            Ok(Read::Known($known))
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Read::Typed(value.to_string()))
        }

        fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
            Ok(Read::Typed(value.to_string()))
        }

        fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
            Ok(Read::Typed(value.to_string()))
        }

        fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
            Ok(Read::Typed(value.to_string()))
        }
    };
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_written(deserializer, |text| Self::One(Some(text)))
    }
}

impl<'de> Deserialize<'de> for Read<OneOrMany> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Read<OneOrMany>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            scalars!(text => OneOrMany::One(Some(text.to_owned())));

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Read::Known(OneOrMany::One(None)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(Read::Known(OneOrMany::Many(values)))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// For `action`, the only field that is written so.
impl<T: JsonSchema> JsonSchema for WordOr<T> {
    fn schema_name() -> Cow<'static, str> {
        "action".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"enum": WORDS}, generator.subschema_for::<T>()]})
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        as_written(deserializer, |text| Self::Word(Some(text)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Read<WordOr<T>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = Read<WordOr<T>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a map")
            }

            scalars!(text => WordOr::Word(Some(text.to_owned())));

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Read::Known(WordOr::Word(None)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let map = T::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Read::Known(WordOr::Map(map)))
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}
