//! What the program would do with a packet now: its own decision, over the maps as they are. What the packet
//! would change stays here, so nothing is charged for the question.

mod kept;
mod looked;
mod maps;
mod seen;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use limiter_common::bucket::Generation;
use limiter_common::engine;
use limiter_common::host;
use limiter_common::outcome::Outcome;
use limiter_common::packet::{Bytes, Layer3};
use limiter_common::room::HostSpace;
use limiter_common::source::Source;
use limiter_common::table::Scratch;
use limiter_common::time::{TICK_BITS, Ticks};
use limiter_common::wire::{Control, Lane, RuleSetHeader, TableKey};
use limiter_common::world::World as _;

use self::maps::Budget;
use super::ModelMeterRef;
use super::actions::{self, ModelBanRef};
use super::tables::ModelKeyed;
use crate::datapath::{Framing, Way};

pub use looked::{Held, Holder, Looked, LookedLimit, LookedSource, LookedTable};
pub use seen::Seen;

/// The packet that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// With what it begins.
    pub framing: Framing,
    /// Its bytes, or the beginning of them.
    pub frame: &'a [u8],
    /// How many it has.
    pub length: u64,
    /// The index of the interface that it comes in by.
    pub interface: u32,
}

/// What would become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Why it passes or is dropped, and by which rule.
    pub outcome: Outcome,
    /// Where it goes.
    pub way: Option<Way>,
}

/// The maps with what one packet changed.
pub(super) struct Rehearsal<'m> {
    seen: &'m Seen<'m>,
    spaces: [HostSpace; Lane::COUNT],
    meters: RefCell<HashMap<Source, ModelMeterRef>>,
    keyed: RefCell<HashMap<TableKey, ModelKeyed>>,
    budgets: RefCell<HashMap<u32, ModelKeyed>>,
    aggregates: RefCell<HashMap<u32, Arc<AtomicU64>>>,
    bans: RefCell<HashMap<Source, ModelBanRef>>,
    /// The tables of entries in which it is not sure whether the packet gets one.
    doubts: RefCell<BTreeSet<u32>>,
    /// Of new entries, by table.
    budgets_of_new: [Budget; Lane::COUNT],
}

impl<'m> Rehearsal<'m> {
    fn new(seen: &'m Seen<'m>, now: Ticks) -> Self {
        Self {
            seen,
            spaces: Lane::ALL.map(|lane| HostSpace::new(seen.space(lane))),
            meters: RefCell::default(),
            keyed: RefCell::default(),
            budgets: RefCell::default(),
            aggregates: RefCell::default(),
            bans: RefCell::default(),
            doubts: RefCell::default(),
            budgets_of_new: Lane::ALL.map(|lane| Budget::of(seen, lane, now)),
        }
    }

    /// The rule set that packets at `now` are judged by, as [`limiter_common::engine::gate`] finds it.
    fn in_force(&self, now: Ticks) -> (Generation, RuleSetHeader) {
        let generation = Generation::new(self.control(Control::Generation));
        let header = engine::header(self, generation);
        if header.is_on_trial() && engine::is_trial_over(self, now) {
            return (generation.next(), engine::header(self, generation.next()));
        }
        (generation, header)
    }

    fn judge(&self, packet: &Packet<'_>, now: Ticks) -> Judged {
        match packet.framing {
            Framing::Ethernet => self.judge_bytes(&packet.frame, packet, now),
            Framing::Layer3 => self.judge_bytes(&Layer3(packet.frame), packet, now),
        }
    }

    fn judge_bytes(&self, read: &impl Bytes, packet: &Packet<'_>, now: Ticks) -> Judged {
        let Packet { interface, length, frame, .. } = *packet;
        let mut scratch = Scratch::empty();
        let judged = host::judge(self, &mut scratch, read, interface, length, now);
        let (outcome, left) = actions::carry_out(self, &scratch, judged, frame);
        Judged { outcome: outcome.unpack(), way: left.way }
    }
}

impl Seen<'_> {
    /// What the program would do with a packet at `now`, or later if no other came.
    pub fn judge(&self, packet: &Packet<'_>, now: Ticks) -> Judged {
        Rehearsal::new(self, now).judge(packet, now)
    }

    /// The rules that a packet falls under at `now`, and how full their buckets are.
    pub fn look(&self, packet: &Packet<'_>, now: Ticks) -> Looked {
        Rehearsal::new(self, now).look(packet, now)
    }
}

/// How long after `now` something holds for the first time, if once it does it goes on; `None` for never.
pub fn wait_until(now: Ticks, holds: impl Fn(Ticks) -> bool) -> Option<Ticks> {
    if holds(now) {
        return Some(Ticks::ZERO);
    }
    let (mut early, mut late) = (0, 1u64 << TICK_BITS);
    loop {
        let at = now.plus(Ticks::new(late));
        if at.is_past_range() {
            return None;
        }
        if holds(at) {
            break;
        }
        early = late;
        late = late.saturating_mul(2);
    }
    while late - early > 1 {
        let middle = early + (late - early) / 2;
        if holds(now.plus(Ticks::new(middle))) { late = middle } else { early = middle }
    }
    Some(Ticks::new(late))
}
