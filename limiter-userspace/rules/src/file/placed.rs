//! A value and where it stands in the file.
//!
//! Places in a rule matter only to errors, and cost a third of the reading. So a file is read
//! without first, and again with all places when something is wrong with it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_saphyr::{Location, Spanned};

use super::place::Place;

/// Values that get their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    All,
    /// All but those inside of rules.
    NotInRules,
    /// None: inside of rules.
    None,
}

thread_local! {
    /// For what this thread reads: serde passes no context down to values.
    static PLACES: Cell<Places> = const { Cell::new(Places::All) };
    /// The text that this thread reads, likewise.
    static TEXT: RefCell<Rc<str>> = RefCell::new(Rc::from(""));
}

/// Reads something with these places.
fn reading<T>(places: Places, read: impl FnOnce() -> T) -> T {
    let before = PLACES.replace(places);
    let result = read();
    PLACES.set(before);
    result
}

/// Reads a text with these places.
pub(super) fn reading_text<T>(text: &str, places: Places, read: impl FnOnce() -> T) -> T {
    let before = TEXT.replace(Rc::from(text));
    let result = reading(places, read);
    TEXT.replace(before);
    result
}

/// A scalar as it is written, where the reader made another type of it: `0o22` is no port 18. None
/// where it says its type itself, as in `!!int "22"`.
fn written(at: Location) -> Option<String> {
    let span = at.span();
    let index = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    let (start, length) = (index(span.byte_offset())?, index(span.byte_len())?);
    let text = TEXT.with_borrow(Rc::clone);
    let text = text.get(start..start.checked_add(length)?)?.trim();
    (!text.is_empty() && !text.starts_with(['!', '"', '\''])).then(|| text.to_owned())
}

/// What a reader of any type makes of a node: a scalar that it took for another type than text is
/// to be read as it is written.
pub(super) enum Read<T> {
    /// Text, or no scalar.
    Known(T),
    /// A number or a boolean, in the reader's words.
    Typed(String),
}

/// Reads a node of any type; `scalar` makes a value of a scalar's text.
pub(super) fn as_written<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    scalar: impl FnOnce(String) -> T,
) -> Result<T, D::Error>
where
    Read<T>: Deserialize<'de>,
{
    let Spanned { value, defined, .. } = Spanned::<Read<T>>::deserialize(deserializer)?;
    Ok(match value {
        Read::Known(value) => value,
        Read::Typed(text) => scalar(written(defined).unwrap_or(text)),
    })
}

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

/// A value that knows its place.
pub(super) trait Stands {
    /// Its place, if that was asked for.
    fn at(&self) -> At;
}

impl<T> Stands for Placed<T> {
    fn at(&self) -> At {
        self.referenced
    }
}

impl<T: Stands> Stands for Box<T> {
    fn at(&self) -> At {
        (**self).at()
    }
}

/// A scalar that is there; `None` inside is a key without a value. Numbers are text as well, so
/// that the checks can say what is wrong with them.
pub(super) type Scalar = Placed<Option<String>>;

impl<T> From<T> for Placed<T> {
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
