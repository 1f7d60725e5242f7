//! Kinds of warnings, and their words.

use crate::model::Subject;

/// A kind of warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No packet has the keys.
    Nothing,
    /// Broken packets alone have the keys.
    Broken,
    /// Later fragments alone have the keys.
    Pieces,
    /// The limit counts SYNs, and none of the packets is one.
    NoSyns,
    /// The limit carries no TCP session.
    Session,
    /// The burst is too short for a TCP stream.
    Burst,
    /// The longest wait is too short for a TCP stream.
    Wait,
    /// The ceiling lets fewer come at once than the limit below it.
    Ceiling,
    /// The window is smaller than a super-frame.
    SuperFrame,
    /// All senders share one bucket.
    Together,
    /// A source that is many hosts, by the way their addresses are written.
    Translated,
    /// A source that is many people behind one address.
    Crowd,
    /// All sources of one family, and none of the other.
    OneFamily,
    /// A denial of such a source.
    CrowdDenied,
    /// The ban takes no evidence, and could.
    Forgeable,
    /// The ban takes no evidence, and there is none to take.
    OnlyForgeable,
    /// Packets over the limit of SYNs are no strikes.
    NoStrikes,
}

/// A warning about a rule or a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The kind.
    pub kind: Kind,
    /// The rule or budget.
    pub subject: Subject,
    /// Words about this one alone.
    pub(super) detail: String,
}

impl Warning {
    pub(super) const fn of(kind: Kind, subject: Subject) -> Self {
        Self { kind, subject, detail: String::new() }
    }

    /// The warning in one line, which stands for so many more of its kind.
    pub fn text(&self, more: usize) -> String {
        let Self { kind, subject, detail } = self;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        let who = format!("the {subject}{more}");
        match kind {
            Kind::Nothing => format!(
                "{who} limits nothing: no packet has {detail}; correct the keys, or remove it"
            ),
            Kind::Broken => format!(
                "{who} limits broken packets alone: no other has {detail}; correct the keys, or \
                 remove it"
            ),
            Kind::Pieces => format!(
                "{who} limits later fragments alone: no other packet has {detail}; correct the \
                 keys, or add `fragment: later`"
            ),
            Kind::NoSyns => format!(
                "{who} counts SYNs, and no packet with {detail} is one, so everything passes: \
                 count packets or flows"
            ),
            Kind::Session => format!("{who} carries no TCP session: {detail}"),
            Kind::Burst => format!(
                "{who} has a burst that starves TCP: {detail} (docs/tuning.md#bursts-for-tcp)"
            ),
            Kind::Wait => format!(
                "{who} lets packets wait too short a time for TCP: {detail} (docs/shaping.md)"
            ),
            Kind::Ceiling => format!("{who} never lets its burst pass at once: {detail}"),
            Kind::SuperFrame => format!(
                "{who} drops each super-frame that is larger than its window: {detail} \
                 (docs/shaping.md#what-counts)"
            ),
            Kind::Together => format!(
                "{who} is one bucket for all senders, and one of them can use it up: nest \
                 `remote_address` in it for a bucket each, or charge a `budget`"
            ),
            Kind::Translated => format!(
                "{who} is one bucket for many hosts: {detail}, and a source of IPv6 is a /64; for \
                 a bucket each write `masked_remote_address` with `v6_prefix_mask_len: 128`"
            ),
            Kind::Crowd => format!("{who} is one limit for everybody behind an address: {detail}"),
            Kind::OneFamily => format!("{who} is for one family: {detail}"),
            Kind::CrowdDenied => format!("{who} denies everybody behind it: {detail}"),
            Kind::Forgeable => format!(
                "{who} bans without evidence, so whoever forges an address gets it banned: write \
                 `evidence: established`"
            ),
            Kind::OnlyForgeable => format!(
                "{who} bans without evidence, because its packets carry none, so whoever forges an \
                 address gets it banned: write `action: drop`, or keep the ban short"
            ),
            Kind::NoStrikes => format!(
                "{who} never bans for SYNs alone, because a SYN is no evidence: count packets, \
                 or write `evidence: none`"
            ),
        }
    }
}
