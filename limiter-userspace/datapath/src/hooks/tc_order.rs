//! The place among the programs at tc of an interface (TCX), which run one after the other until
//! one of them decides.

use std::fmt;
use std::str::FromStr;

use aya::programs::ProgramId;
use aya::programs::links::LinkOrder;

/// The place that the program takes at tc in a new attachment. An adopted link keeps its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcOrder {
    /// Before all existing programs.
    #[default]
    First,
    /// Behind all existing programs.
    Last,
    /// Right before the program of this id.
    Before(u32),
    /// Right behind the program of this id.
    After(u32),
}

/// A word that names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no place: give first, last, before:ID or after:ID, with the id of a program")]
pub struct NoPlace(String);

impl TcOrder {
    /// The program beside which the place is; `None` for the first and the last place.
    pub(crate) const fn neighbour(self) -> Option<u32> {
        match self {
            Self::First | Self::Last => None,
            Self::Before(id) | Self::After(id) => Some(id),
        }
    }

    /// True if the program `own` has this place among `programs`, in the order in which they run.
    pub(crate) fn holds(self, programs: &[u32], own: u32) -> bool {
        let place = |id: u32| programs.iter().position(|program| *program == id);
        let Some(own) = place(own) else { return false };
        match self {
            Self::First => own == 0,
            Self::Last => own + 1 == programs.len(),
            Self::Before(id) => place(id) == Some(own + 1),
            Self::After(id) => place(id).is_some_and(|at| at + 1 == own),
        }
    }

    /// The place in aya's terms.
    #[expect(unsafe_code, reason = "aya marks any number as unsafe to take for an id")]
    pub(crate) fn link_order(self) -> LinkOrder {
        // SAFETY: the kernel checks the id, and rejects one that is not a program's.
        let program = |id| unsafe { ProgramId::new(id) };
        match self {
            Self::First => LinkOrder::first(),
            Self::Last => LinkOrder::last(),
            Self::Before(id) => LinkOrder::before_program_id(program(id)),
            Self::After(id) => LinkOrder::after_program_id(program(id)),
        }
    }
}

impl FromStr for TcOrder {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let no_place = || NoPlace(text.to_owned());
        let id = |digits: &str| digits.parse().ok().filter(|id| *id != 0).ok_or_else(no_place);
        match text.split_once(':') {
            None if text == "first" => Ok(Self::First),
            None if text == "last" => Ok(Self::Last),
            Some(("before", digits)) => id(digits).map(Self::Before),
            Some(("after", digits)) => id(digits).map(Self::After),
            _ => Err(no_place()),
        }
    }
}

impl fmt::Display for TcOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("first"),
            Self::Last => f.write_str("last"),
            Self::Before(id) => write!(f, "before:{id}"),
            Self::After(id) => write!(f, "after:{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        let places = [TcOrder::First, TcOrder::Last, TcOrder::Before(7), TcOrder::After(4096)];
        for place in places {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for word in ["", "firs", "before", "before:", "before:0", "after:-1", "after:eth0", "7"] {
            assert_eq!(word.parse::<TcOrder>(), Err(NoPlace(word.to_owned())), "{word}");
        }
    }

    #[test]
    fn a_place_is_held_by_the_program_that_has_it_alone() {
        let programs = [5, 6, 7];
        let holders = |order: TcOrder| {
            programs.into_iter().filter(|own| order.holds(&programs, *own)).collect::<Vec<_>>()
        };
        assert_eq!(holders(TcOrder::First), [5]);
        assert_eq!(holders(TcOrder::Last), [7]);
        assert_eq!(holders(TcOrder::Before(6)), [5]);
        assert_eq!(holders(TcOrder::After(6)), [7]);
        assert_eq!(holders(TcOrder::After(7)), [0; 0]);
        assert!(!TcOrder::First.holds(&programs, 8));
    }
}
