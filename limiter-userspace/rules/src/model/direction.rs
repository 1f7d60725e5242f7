//! The direction of a rule: incoming packets, outgoing ones, or both.

use limiter_common::wire::field;

/// The packets that a rule is for, by where they go.
///
/// A rule for both has one bucket for both. Keys are kept as the other end of a conversation sees
/// it, which is what the program looks at: the source is the other end, whichever way a packet
/// goes. A rule file says of outgoing packets what they have in their own headers, so the ports and
/// addresses change places there: [`super::Fact::in_header`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Packets that come in.
    #[default]
    In,
    /// Packets that go out.
    Out,
    /// All of them.
    Both,
}

impl Direction {
    /// All, with their names in rule files.
    pub const NAMED: [(&str, Self); 3] = [
        (Self::In.name(), Self::In),
        (Self::Out.name(), Self::Out),
        (Self::Both.name(), Self::Both),
    ];

    /// Name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Both => "both",
        }
    }

    /// The direction of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, direction)| *direction)
    }

    /// Bits of [`field`] of the tables with such rules.
    pub const fn fields(self) -> u32 {
        match self {
            Self::In => field::IN,
            Self::Out => field::OUT,
            Self::Both => 0,
        }
    }

    /// The direction of the rules of a table with these bits of [`field`].
    pub const fn of_fields(fields: u32) -> Self {
        match (fields & field::IN != 0, fields & field::OUT != 0) {
            (true, _) => Self::In,
            (false, true) => Self::Out,
            (false, false) => Self::Both,
        }
    }

    /// True if packets that come in are among them.
    pub const fn has_in(self) -> bool {
        matches!(self, Self::In | Self::Both)
    }

    /// True if packets that go out are among them.
    pub const fn has_out(self) -> bool {
        matches!(self, Self::Out | Self::Both)
    }

    /// True if all packets of the other one are among them.
    pub fn has_all(self, other: Self) -> bool {
        self == Self::Both || self == other
    }

    /// True if packets of one are among those of the other.
    pub fn meets(self, other: Self) -> bool {
        self.has_all(other) || other == Self::Both
    }
}
