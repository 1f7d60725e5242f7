//! Path of a rule: the packets that it is for, and the parts of their key.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;

use super::direction::Direction;
use super::key::Overlap;
use super::part::{Part, SOURCE_MASKS, SourceMasks};
use super::selector::Selector;

/// The direction of a rule's packets, and its keys. A copy shares the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// The keys in the order in which they are nested; none for a rule on all packets together. Of
    /// outgoing packets they are as the other end sees them: [`Direction`].
    pub parts: Arc<[Part]>,
    /// Packets that come in, or go out.
    pub direction: Direction,
}

impl Path {
    /// Keys of packets that come in.
    pub fn of(parts: impl Into<Arc<[Part]>>) -> Self {
        Self { parts: parts.into(), direction: Direction::In }
    }

    /// The same keys of packets that go another way.
    #[must_use]
    pub fn going(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    /// The path with one key more, nested inside of the others.
    #[must_use]
    pub fn with(&self, part: Part) -> Self {
        let parts = self.parts.iter().cloned().chain([part]).collect();
        Self { parts, direction: self.direction }
    }

    /// The selector, if this is a rule by source alone for packets that come in.
    pub fn selector(&self) -> Option<Selector> {
        self.other_end().filter(|_| self.direction == Direction::In)
    }

    /// The other ends that a rule is for if they are its only key, in any direction.
    pub fn other_end(&self) -> Option<Selector> {
        match &*self.parts {
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
        Self::of([Part::Source(SOURCE_MASKS, value)])
    }

    /// Share of the packets of an SSH session, of those in the rule's direction, that have all of
    /// the keys. A session has packets in both directions. It is that of `peer`, to `port` if that
    /// is known.
    pub fn overlap(&self, peer: &Selector, port: Option<u16>) -> Overlap {
        self.parts.iter().map(|part| part.overlap(peer, port)).min().unwrap_or(Overlap::All)
    }

    /// True if both are of one table: they have the same keys and direction.
    pub fn is_in_table_of(&self, other: &Self) -> bool {
        let same = |(one, other): (&Part, &Part)| match (one, other) {
            (Part::Source(one, _), Part::Source(other, _)) => one == other,
            _ => one.same_key(other),
        };
        self.direction == other.direction
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(other.parts.iter()).all(same)
    }

    /// True if the other path is of the same table, and takes some of this one's packets.
    pub fn has_inside(&self, other: &Self) -> bool {
        self.is_in_table_of(other)
            && self != other
            && self.parts.iter().zip(other.parts.iter()).all(|(part, other)| part.has_all(other))
    }

    /// The interface whose packets alone the rule is for.
    pub fn interface(&self) -> Option<&str> {
        self.parts.iter().find_map(|part| match part {
            Part::Interface(name) => name.as_deref(),
            _ => None,
        })
    }

    /// True if the interface is one of the keys.
    pub fn has_interface(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Interface(_)))
    }

    /// The masks and the value of the source, if it is one of the keys.
    pub fn source(&self) -> Option<(SourceMasks, Option<IpNet>)> {
        self.parts.iter().find_map(|part| match part {
            Part::Source(masks, value) => Some((*masks, *value)),
            _ => None,
        })
    }

    /// The keys in the words of rule files, without their values.
    pub fn keys(&self) -> String {
        let bare = |part: &Part| match part {
            Part::Source(masks, _) => Part::Source(*masks, None).text(self.direction),
            other => other.key(self.direction).to_owned(),
        };
        self.in_words(&self.parts.iter().map(bare).collect::<Vec<_>>())
    }

    /// The direction, if it is not the default, and the keys.
    fn in_words(&self, parts: &[String]) -> String {
        let parts = parts.join(" ");
        match (self.direction, parts.as_str()) {
            (Direction::In, "") => "every packet".to_owned(),
            (Direction::Out, "") => "every outgoing packet".to_owned(),
            (Direction::Both, "") => "every packet in and out".to_owned(),
            (Direction::In, _) => parts,
            (direction, _) => format!("direction={} {parts}", direction.name()),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The sources alone say it all.
        if let Some(selector) = self.selector() {
            return selector.fmt(f);
        }
        let text = |part: &Part| part.text(self.direction);
        f.write_str(&self.in_words(&self.parts.iter().map(text).collect::<Vec<_>>()))
    }
}
