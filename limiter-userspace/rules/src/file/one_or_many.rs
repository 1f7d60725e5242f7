//! Values that may be written in two ways: a scalar or a list of them, a word or a map.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::placed::Scalar;

/// Actions that are a word.
const WORDS: [&str; 2] = ["drop", "reject"];

/// A scalar, or a list of scalars.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(Option<String>),
    Many(Vec<Scalar>),
}

/// A word, or a map.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum WordOr<T> {
    Word(Option<String>),
    Map(T),
}

/// The scalars that the reader types, as text again. A float is none of our values: how it reads is
/// for the error message alone.
macro_rules! scalars {
    ($value:ident => $wrap:expr) => {
        fn visit_str<E: de::Error>(self, $value: &str) -> Result<Self::Value, E> {
            Ok($wrap)
        }

        fn visit_u64<E: de::Error>(self, $value: u64) -> Result<Self::Value, E> {
            Ok($wrap)
        }

        fn visit_i64<E: de::Error>(self, $value: i64) -> Result<Self::Value, E> {
            Ok($wrap)
        }

        fn visit_f64<E: de::Error>(self, $value: f64) -> Result<Self::Value, E> {
            Ok($wrap)
        }

        fn visit_bool<E: de::Error>(self, $value: bool) -> Result<Self::Value, E> {
            Ok($wrap)
        }
    };
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            scalars!(value => OneOrMany::One(Some(value.to_string())));

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(OneOrMany::Many(values))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Of `action`, the only field that is written so.
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
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = WordOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a map")
            }

            scalars!(value => WordOr::Word(Some(value.to_string())));

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(WordOr::Word(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(WordOr::Map)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}
