//! Differences between a rule of another program and its translation. Each has a letter, under
//! which docs/import.md explains it.

use std::fmt;

use super::imported::Effect;

/// A difference, with the details that are written beside the rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// The burst is the default of the other program.
    DefaultBurst,
    /// The other program rounds rates to ticks of the kernel's clock.
    Ticks,
    /// The other program counts bytes differently: in pieces of `piece`, and up to `most` at first.
    Bytes {
        what: &'static str,
        piece: u64,
        most: u64,
    },
    /// A burst in bytes, which is written differently.
    ByteBurst(&'static str),
    /// The other program counts lengths of merged packets.
    Length,
    /// A burst below one frame was raised.
    Frame,
    /// IPv6 sources become /64s.
    Prefix64,
    /// Established connections were accepted before.
    Established(String),
    /// Related connections were accepted before.
    Related(String),
    /// For TCP, `NEW` becomes SYN.
    NewSyn,
    /// For other protocols, `NEW` becomes a new flow.
    NewFlow,
    /// For ICMP, `NEW` becomes every message.
    NewIcmp,
    /// SYN with FIN or RST also counts.
    Syn,
    /// The hook sees other packets.
    Hook(&'static str),
    /// Packets that an earlier rule drops are charged.
    DroppedBefore(String),
    Interface,
    /// Neither program limits loopback.
    Loopback,
    /// Packets within the limit need a rule that accepts them.
    Accepted,
    /// Elements expire after so many milliseconds: always, or without packets.
    Forgotten {
        milliseconds: u64,
        always: bool,
    },
    Full(&'static str),
    Rejected,
    /// The other program notifies the sender; a list does not.
    Silent,
    /// With `recent`, rejected packets count.
    Refused,
    /// A `recent` list that other rules also use.
    Shared,
    /// Several limits in one rule.
    Several,
    /// Open connections are dropped as well.
    DeniesOpen,
    /// A rule of `tc`.
    Policed(&'static str),
    /// Packets to one port are redirected to another, and both ports share a bucket.
    Redirected {
        place: String,
        from: u16,
        to: u16,
    },
}

impl Difference {
    const fn letter(&self) -> char {
        match self {
            Self::DefaultBurst => 'A',
            Self::Ticks => 'B',
            Self::Bytes { .. } | Self::ByteBurst(_) | Self::Frame | Self::Length => 'C',
            Self::Prefix64 => 'D',
            Self::Established(_) | Self::Related(_) => 'E',
            Self::NewSyn | Self::NewFlow | Self::NewIcmp | Self::Syn => 'F',
            Self::Hook(_) => 'G',
            Self::DroppedBefore(_) => 'H',
            Self::Interface | Self::Loopback => 'I',
            Self::Accepted => 'J',
            Self::Forgotten { .. } => 'K',
            Self::Full(_) => 'L',
            Self::Rejected | Self::Silent => 'M',
            Self::Refused | Self::Shared => 'N',
            Self::Several => 'O',
            Self::DeniesOpen => 'P',
            Self::Policed(_) => 'Q',
            Self::Redirected { .. } => 'R',
        }
    }
}

impl Difference {
    /// How the difference affects the number of passed packets of one source.
    pub(super) const fn effect(&self) -> Option<Effect> {
        Some(match self {
            Self::Ticks => Effect::Ticks,
            Self::Bytes { piece, most, .. } => Effect::Bytes { piece: *piece, most: *most },
            Self::Forgotten { milliseconds, always } => {
                Effect::Forgotten { milliseconds: *milliseconds, always: *always }
            }
            Self::Refused => Effect::Refused,
            Self::Several => Effect::Several,
            _ => return None,
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.letter())?;
        match self {
            Self::DefaultBurst => f.write_str(
                "burst 5 is the default there, and rarely meant: raise it if clients send more \
                 at once",
            ),
            Self::Ticks => f.write_str(
                "there the rate is held in ticks of the kernel's clock, and less passes; here \
                 it is exact",
            ),
            Self::Length => f.write_str(
                "lengths there are of packets that GRO has merged; here of those on the wire",
            ),
            Self::Bytes { what, .. } => {
                write!(
                    f,
                    "bytes there are {what}; here those of each frame with its Ethernet header"
                )
            }
            Self::ByteBurst(what) => write!(f, "burst: {what}"),
            Self::Frame => f.write_str("the burst was raised to one whole frame"),
            Self::Prefix64 => {
                f.write_str("an IPv6 address there is a /64 here: hosts in one /64 are one source")
            }
            Self::Established(place) => write!(
                f,
                "packets of open connections are accepted before, by {place}: here they are not \
                 counted"
            ),
            Self::Related(place) => write!(
                f,
                "{place} accepts RELATED before, as data of FTP and ICMP errors: here they are \
                 counted"
            ),
            Self::NewSyn => f.write_str(
                "new connections are those whose SYN is seen here; there also those found open",
            ),
            Self::NewFlow => f.write_str(
                "a new flow here is one not seen for a minute; there, of connection tracking, and \
                 every packet that nobody answers is new",
            ),
            Self::NewIcmp => f.write_str(
                "every message is counted here; there, not the later ones of a ping that is \
                 answered",
            ),
            Self::Syn => f.write_str("SYN with FIN or RST set is counted here, too"),
            Self::Hook(what) | Self::Policed(what) => f.write_str(what),
            Self::Refused => f.write_str(
                "there what is refused counts as well, so who goes on trying stays out; here only \
                 what passes counts",
            ),
            Self::Shared => f.write_str(
                "there its list is shared with other rules, and tries at those count here, too; \
                 here not",
            ),
            Self::DroppedBefore(places) => {
                write!(f, "packets that {places} drops before are not counted there; here they are")
            }
            Self::Interface => f.write_str(
                "the interface is the one that limiter is attached to: of a bridge, bond or VLAN, \
                 the device under it",
            ),
            Self::Loopback => f.write_str("lo is accepted before: do not attach limiter to lo"),
            Self::Accepted => f.write_str(
                "leave a rule in the firewall that accepts these packets without a limit",
            ),
            Self::Forgotten { milliseconds, always } => {
                let when = if *always { "every" } else { "after" };
                let time = match milliseconds / 1000 {
                    seconds if seconds * 1000 == *milliseconds => format!("{seconds} s"),
                    _ => format!("{milliseconds} ms"),
                };
                let what = if *always { ", however much was sent" } else { " without packets" };
                write!(
                    f,
                    "there a bucket is full again {when} {time}{what}; here it fills at \
                     its rate alone"
                )
            }
            Self::Full(what) => write!(f, "a full table: there {what}; here see `on_full`"),
            Self::Rejected => f.write_str(
                "`replies` bounds the answers here, and the kind of answer is limiter's own",
            ),
            Self::Silent => {
                f.write_str("the sender is notified there; a list here drops in silence")
            }
            Self::Several => f.write_str(
                "with the limits beside it: a packet that one drops is charged to none here; there, \
                 to those before",
            ),
            Self::Redirected { place, from, to } => write!(
                f,
                "{place} gives packets to port {from} the port {to}: there both have one bucket, \
                 here each its own, so a source that uses both passes twice as much"
            ),
            Self::DeniesOpen => f.write_str(
                "packets of open connections are accepted before; here they are dropped as well",
            ),
        }
    }
}
