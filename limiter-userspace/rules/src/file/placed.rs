//! A value and where it stands in the file.
//!
//! Places in a rule matter only to errors, and cost a third of the reading. So a file is read
//! without first, and again with all places when something is wrong with it.

use std::cell::Cell;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{Location, Spanned};

use super::place::Place;

/// Values that get their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// All values.
    All,
    /// All but those inside of rules.
    NotInRules,
    /// None: inside of rules.
    None,
}

thread_local! {
    /// For what this thread reads: serde hands nothing down to values.
    static PLACES: Cell<Places> = const { Cell::new(Places::All) };
}

/// Reads something with these places.
pub(super) fn reading<T>(places: Places, read: impl FnOnce() -> T) -> T {
    let before = PLACES.replace(places);
    let result = read();
    PLACES.set(before);
    result
}

/// Reads rules.
pub(super) fn rules<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let inside = match PLACES.get() {
        Places::All => Places::All,
        Places::NotInRules | Places::None => Places::None,
    };
    reading(inside, || T::deserialize(deserializer))
}

/// The line and the column of a value, if they were asked for. Most values of a large file have
/// one, so it is as small as can be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    line: u32,
    column: u32,
}

impl At {
    /// The place, if it is known.
    pub(super) fn place(self) -> Option<Place> {
        let Self { line, column } = self;
        (line > 0).then(|| Place { line: line.into(), column: column.into() })
    }
}

impl From<Location> for At {
    fn from(location: Location) -> Self {
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self { line: narrow(location.line()), column: narrow(location.column()) }
    }
}

/// A value, and its place if that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    /// Place of use; of an alias, the place where that stands.
    pub(super) referenced: At,
}

/// A scalar that is there; `None` inside is a key without a value. Numbers are text as well, so
/// that the checks can say what is wrong with them.
pub(super) type Scalar = Placed<Option<String>>;

impl<T> From<T> for Placed<T> {
    /// A value that is to be written.
    fn from(value: T) -> Self {
        Self { value, referenced: At::default() }
    }
}

impl<T: Serialize> Serialize for Placed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// A rule, whose place is always known.
#[derive(Debug, Serialize)]
pub(super) struct Item<T>(pub(super) Placed<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self(Placed { value, referenced: referenced.into() }))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match PLACES.get() {
            Places::None => {
                let value = T::deserialize(deserializer)?;
                Ok(Self { value, referenced: At::default() })
            }
            Places::All | Places::NotInRules => {
                let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
                Ok(Self { value, referenced: referenced.into() })
            }
        }
    }
}
