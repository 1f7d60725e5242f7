//! The entries of the allow and the deny list.

use std::time::{Duration, SystemTime};

use super::checked::{Checked, Failure, stand};
use super::scalar::{at, text};
use crate::file::error::Problem;
use crate::file::one_or_many::WordOr;
use crate::file::placed::{At, Placed, Scalar};
use crate::file::shape::{self, File};
use crate::model::{LEAST, LONGEST_REASON, Listing, ROOM, Selector, Subject, is_nearly_everybody};
use crate::source_text;

/// A day without a time stands for all of it.
const DAY: Duration = Duration::from_hours(24);

const REMEDY: &str = "write an address or a prefix, or remove the line";

type Raw = Placed<WordOr<shape::Listing>>;

impl Checked {
    /// Reads the entries of both lists.
    pub(super) fn lists(&mut self, file: &File) {
        for (raw, list) in [(&file.allow, "allow"), (&file.deny, "deny")] {
            for raw in raw.iter().flat_map(|list| &list.value) {
                let added = self.listing(raw, list);
                self.note(added);
            }
        }
        let fits = self.room();
        self.note(fits);
    }

    fn listing(&mut self, raw: &Raw, list: &'static str) -> Result<(), Failure> {
        let here = raw.referenced;
        let (address, place, reason, until) = match &raw.value {
            WordOr::Word(None) => {
                return Err(at(here, Problem::Empty { field: list, remedy: REMEDY }));
            }
            WordOr::Word(Some(address)) => (address.as_str(), here, None, None),
            WordOr::Map(shape::Listing { address, reason, until }) => {
                let missing = || at(here, Problem::Missing { field: "address", remedy: REMEDY });
                let scalar = address.as_ref().ok_or_else(missing)?;
                let address = text(scalar, "address", REMEDY)?;
                (address, scalar.referenced, reason.as_ref(), until.as_ref())
            }
        };
        let selector = selector(address, place, list)?;
        let reason = reason.map(self::reason).transpose()?;
        let until = until.map(self::until).transpose()?;
        stand(&mut self.file, Subject::Listed(selector), here.place())?;
        self.file.rules.lists.insert(selector, Listing { allow: list == "allow", reason, until });
        Ok(())
    }

    /// Refuses more entries than the program can hold.
    fn room(&self) -> Result<(), Failure> {
        let sources = self.file.rules.lists.keys().filter(|at| at.is_source()).count();
        let counts = [sources, self.file.rules.lists.len() - sources];
        for (count, (what, room)) in counts.into_iter().zip(ROOM) {
            if count > room {
                return Err((None, Problem::ListsFull { what, room }));
            }
        }
        Ok(())
    }
}

fn selector(address: &str, place: At, list: &'static str) -> Result<Selector, Failure> {
    let refused = |error| at(place, Problem::Listed { list, error });
    let selector = source_text::parse(address).map_err(refused)?;
    if is_nearly_everybody(&selector, LEAST) {
        return Err(at(place, Problem::Everybody { list, selector }));
    }
    Ok(selector)
}

fn reason(scalar: &Scalar) -> Result<Box<str>, Failure> {
    let reason = text(scalar, "reason", "give one, or remove the line")?.trim();
    if reason.is_empty() {
        let remedy = "give one, or remove the line";
        return Err(at(scalar.referenced, Problem::Empty { field: "reason", remedy }));
    }
    if reason.chars().count() > LONGEST_REASON {
        let problem = Problem::LongText { field: "reason", most: LONGEST_REASON };
        return Err(at(scalar.referenced, problem));
    }
    Ok(reason.into())
}

/// The end of an entry, in seconds since 1970.
fn until(scalar: &Scalar) -> Result<u64, Failure> {
    let text = text(scalar, "until", "write a day like 2026-12-31, or remove the line")?;
    let time = if text.len() == "2026-12-31".len() {
        humantime::parse_rfc3339_weak(&format!("{text}T00:00:00")).ok().map(|day| day + DAY)
    } else {
        humantime::parse_rfc3339_weak(text).ok()
    };
    let since_epoch = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since_epoch
        .map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0))
        .ok_or_else(|| at(scalar.referenced, Problem::Until { text: text.to_owned() }))
}
