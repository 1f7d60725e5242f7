//! The decision for one packet: parse it, look up the lists, charge every bucket that applies.
//!
//! [`classify`] determines how a packet continues. With only the source table, and nothing but
//! drops over its limits, this is a single look-up of a bucket: [`plain_source`]. Every other
//! packet takes the route of plain tables, [`crate::table::judge_plain`], or the general one,
//! [`crate::table::run_tables`].

mod again;
pub mod changed;
pub mod entry;
pub mod first;
pub mod source;
mod source_packet;

pub use again::{charge_again, charge_contended, exchange};
pub use changed::arrival;
pub use source::plain_source;
pub use source_packet::{SourceCharge, SourcePacket};

use limiter_common::bucket::Generation;
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Control, LISTS_EXACT, LISTS_PREFIXES, Listed, RuleSetHeader};

use crate::ban::Entry as _;
use crate::call::call;
use crate::cell::Cell as _;
use crate::clock::SLACK;
use crate::maps::Maps;
use crate::packet::{self, Bytes, Packet};

/// How a packet continues after [`classify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Not at all: the packet is judged, without any rule.
    Done(Reason),
    /// By the source table of a rule set that has nothing else: [`plain_source`].
    Sources(SourcePacket),
    /// By the tables: [`crate::table::begin_packet`], then [`crate::table::judge_plain`], and
    /// [`crate::table::run_tables`] for packets that need the general route.
    Tables {
        /// The rule set that judges the packet.
        generation: Generation,
        /// The header of that rule set.
        header: RuleSetHeader,
        /// Time of arrival, or up to [`SLACK`] before.
        now: Ticks,
    },
}

/// Everything before the source table and the tables, for a frame (of which `frame` may show only
/// the beginning). `now` may be up to [`SLACK`] early: list entries end that much later.
///
/// An outgoing frame skips the deny list and the bans, which apply to what the other end sends, and
/// the source table, whose rules are for incoming packets.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn classify<W: Maps>(maps: &W, frame: &impl Bytes, size: FrameSize, now: Ticks) -> Next {
    if maps.control(Control::Bypass) != 0 {
        return Next::Done(Reason::Bypass);
    }
    if now.is_past_range() {
        return Next::Done(Reason::Untracked);
    }
    let source = match packet::parse(frame) {
        Packet::Exempt(reason) => return Next::Done(reason),
        Packet::From(source) => source,
    };
    if maps.control(Control::Lists) != 0 {
        match call!(listed(maps; &source, now)) {
            Some(Listed::Allow | Listed::Management) => return Next::Done(Reason::Allowed),
            Some(Listed::Deny) if !frame.is_out() => return Next::Done(Reason::Denied),
            Some(Listed::Deny) | None => {}
        }
    }
    if !frame.is_out()
        && maps.control(Control::BansKept) != 0
        && call!(is_banned(maps; &source, now))
    {
        return Next::Done(Reason::Banned);
    }
    let mut generation = Generation::new(maps.control(Control::Generation));
    let mut header = header(maps, generation);
    if header.is_on_trial() && call!(is_trial_over(maps; now)) {
        // The next generation has the buffers of the previous one, which have not been written
        // since.
        generation = generation.next();
        header = self::header(maps, generation);
    }
    if frame.is_out() {
        if !header.has_out() {
            return Next::Done(Reason::NoRule);
        }
        if let Some(bucket_key) = header.only_out(&source) {
            let packet = SourcePacket { bucket_key, generation, size, now, deferred: false };
            return Next::Sources(packet);
        }
        return Next::Tables { generation, header: header.of_out(), now };
    }
    if header.drops_martians() && source.is_martian() {
        return Next::Done(Reason::Martian);
    }
    if header.is_plain() {
        let bucket_key = source.into();
        return Next::Sources(SourcePacket { bucket_key, generation, size, now, deferred: false });
    }
    Next::Tables { generation, header, now }
}

/// The header of a rule set: what it has besides the source table.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn header<W: Maps>(maps: &W, generation: Generation) -> RuleSetHeader {
    let even = generation.buffer() == 0;
    let word = if even { Control::EvenRuleSet } else { Control::OddRuleSet };
    RuleSetHeader::from_raw(maps.control(word))
}

/// The verdict of the lists on a source at `now`: from the entry of the source itself, otherwise of
/// the longest prefix.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn listed<W: Maps>(maps: &W, source: &Source, now: Ticks) -> Option<Listed> {
    let lists = maps.control(Control::Lists);
    if lists & LISTS_EXACT != 0
        && let Some(entry) = maps.listed(source)
        && let Some(listed) = entry.at(now)
    {
        return Some(listed);
    }
    if lists & LISTS_PREFIXES != 0 {
        return maps.listed_prefix(source).and_then(|entry| entry.at(now));
    }
    None
}

/// True if a source is banned, for a packet that arrived at `now` or up to [`SLACK`] later.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_banned<W: Maps>(maps: &W, source: &Source, now: Ticks) -> bool {
    let Some(ban) = maps.ban(source) else {
        return false;
    };
    let until = Ticks::new(ban.until().load());
    until > now.plus(SLACK) || until > now && until > maps.now(now)
}

/// True if a rule set on trial has ended, for a packet that arrived at `now` or later. Uses the
/// exact time, because CPUs that disagree on the rule set would convert buckets back and forth.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_trial_over<W: Maps>(maps: &W, now: Ticks) -> bool {
    maps.now(now).get() >= maps.control(Control::TrialEnd)
}
