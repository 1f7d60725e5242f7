//! A value and where it stands in the file.
//!
//! Where the parts of a rule stand matters only to errors, and it costs a third of the reading. So a file is read without
//! first, and again with all places when something is wrong with it.

use std::cell::Cell;

use serde::{Deserialize, Deserializer};
use serde_saphyr::{Location, Spanned};

/// Which values get their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// All.
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

/// A value, and its place if that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    /// Where it is used; of an alias, where that stands. [`Location::UNKNOWN`] unless asked for.
    pub(super) referenced: Location,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match PLACES.get() {
            Places::None => {
                let value = T::deserialize(deserializer)?;
                Ok(Self { value, referenced: Location::UNKNOWN })
            }
            Places::All | Places::NotInRules => {
                let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
                Ok(Self { value, referenced })
            }
        }
    }
}
