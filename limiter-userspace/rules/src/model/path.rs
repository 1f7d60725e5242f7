//! Path of a rule: the packets that it is for, and the parts of their key.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::key::Overlap;
use super::part::{Part, SOURCE_MASKS, SourceMasks};
use super::selector::Selector;

/// The keys of a rule in the order in which they are nested; none for a rule on all packets
/// together. A copy shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(pub Arc<[Part]>);

impl Path {
    /// The path with one key more, nested inside of the others.
    #[must_use]
    pub fn with(&self, part: Part) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }

    /// The selector, if this is a rule by source alone.
    pub fn selector(&self) -> Option<Selector> {
        match &*self.0 {
            [Part::Source(masks, value)] if *masks == SOURCE_MASKS => {
                Some(value.map_or(Selector::Every, Selector::Prefix))
            }
            _ => None,
        }
    }

    /// The path of a rule by source alone: what [`Path::selector`] is the selector of.
    pub fn of_source(selector: &Selector) -> Self {
        let value = match selector {
            Selector::Every => None,
            Selector::Prefix(net) => Some(*net),
        };
        Self(Arc::new([Part::Source(SOURCE_MASKS, value)]))
    }

    /// Share of the packets of an SSH session that have all of the keys. The session is that of
    /// `peer`, to `port` if that is known.
    pub fn overlap(&self, peer: &Selector, port: Option<u16>) -> Overlap {
        self.0.iter().map(|part| part.overlap(peer, port)).min().unwrap_or(Overlap::All)
    }

    /// True if both are of one table: they have the same keys.
    pub fn is_in_table_of(&self, other: &Self) -> bool {
        let same = |(one, other): (&Part, &Part)| match (one, other) {
            (Part::Source(one, _), Part::Source(other, _)) => one == other,
            _ => one.same_key(other),
        };
        self.0.len() == other.0.len() && self.0.iter().zip(other.0.iter()).all(same)
    }

    /// True if the other one is of the same table, and for some of the packets of this one.
    pub fn has_inside(&self, other: &Self) -> bool {
        self.is_in_table_of(other)
            && self != other
            && self.0.iter().zip(other.0.iter()).all(|(part, other)| part.has_all(other))
    }

    /// True if the interface is one of the keys.
    pub fn has_interface(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Interface(_)))
    }

    /// The masks and the value of the source, if it is one of the keys.
    pub fn source(&self) -> Option<(SourceMasks, Option<IpNet>)> {
        self.0.iter().find_map(|part| match part {
            Part::Source(masks, value) => Some((*masks, *value)),
            _ => None,
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The sources alone say it all.
        if let Some(selector) = self.selector() {
            return selector.fmt(f);
        }
        if self.0.is_empty() {
            return f.write_str("every packet");
        }
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}
