//! The source table, the lists and the bans of a rehearsal.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use limiter_common::ban::Bans;
use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::Cell as SharedWord;
use limiter_common::change::Changes;
use limiter_common::outcome::Insert;
use limiter_common::packet::Facts;
use limiter_common::room::source as entry;
use limiter_common::room::{AdmissionCells, HostSpace, SpaceWords, Spaces, admission};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{
    Action, Admission, Bucket, Control, LISTS_EXACT, LISTS_PREFIXES, Lane, Limit, Listed, Moment,
    RuleSetHeader,
};
use limiter_common::world::Maps;

use super::super::actions::{ModelBanRef, Surroundings};
use super::super::{ModelMeter, ModelMeterRef};
use super::Rehearsal;

/// The budget of new entries of one CPU.
struct OneCpu {
    space: HostSpace,
    cells: AdmissionCells,
}

impl Spaces for OneCpu {
    fn space(&self, _lane: Lane) -> Option<impl SpaceWords> {
        Some(&self.space)
    }

    fn admission(&self, _lane: Lane) -> Option<&AdmissionCells> {
        Some(&self.cells)
    }
}

impl Rehearsal<'_> {
    /// Whether one more entry may be made. Which CPU will take the packet is not known: where they differ,
    /// or a table from which entries were turned away is more than half full, that is noted.
    pub(super) fn admits(&self, lane: Lane, now: Ticks) -> Insert {
        let space = self.seen.space(lane);
        let cpus = self.seen.admissions(lane);
        let mut sum = Admission::default();
        let mut admitted = 0;
        for cpu in cpus {
            sum.merge(*cpu);
            let cells = AdmissionCells { tat: Cell::new(cpu.tat), ..AdmissionCells::default() };
            let cpu = OneCpu { space: HostSpace::new(space), cells };
            admitted += usize::from(admission::admit(&cpu, lane, now));
        }
        if admitted == 0 {
            return Insert::Refused;
        }
        let entries = sum.made.saturating_sub(sum.evicted);
        if admitted < cpus.len() || sum.full != 0 && entries.saturating_mul(2) >= space.entries {
            self.doubts.borrow_mut().insert(lane.index());
        }
        Insert::Made
    }
}

impl Spaces for Rehearsal<'_> {
    fn space(&self, lane: Lane) -> Option<impl SpaceWords> {
        self.spaces.get(lane.index() as usize)
    }

    /// [`Rehearsal::admits`] asks those of all CPUs.
    fn admission(&self, _lane: Lane) -> Option<&AdmissionCells> {
        None
    }
}

impl Changes for Rehearsal<'_> {
    fn moment(&self, generation: u32) -> Moment {
        self.seen.moment(generation)
    }
}

impl Maps for Rehearsal<'_> {
    type Meter = ModelMeterRef;

    fn brake(&self) -> bool {
        self.seen.control(Control::Brake) != 0
    }

    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed> {
        let lists = self.seen.control(Control::Lists);
        let says = |around, bit| {
            let entry = if lists & bit == 0 { None } else { self.seen.listed(source, around) };
            entry.and_then(|entry| entry.at(now))
        };
        says(false, LISTS_EXACT).or_else(|| says(true, LISTS_PREFIXES))
    }

    fn banned(&self, source: &Source, now: Ticks) -> bool {
        self.seen.control(Control::BansKept) != 0
            && self.seen.ban(source).is_some_and(|ban| Ticks::new(ban.until) > now)
    }

    fn generation(&self) -> Generation {
        Generation::new(self.seen.control(Control::Generation))
    }

    fn header(&self, generation: Generation) -> RuleSetHeader {
        let [even, odd] = [Control::EvenRuleSet, Control::OddRuleSet];
        let word = if generation.buffer() == 0 { even } else { odd };
        RuleSetHeader::from_raw(self.seen.control(word))
    }

    fn trial_ended(&self, now: Ticks) -> bool {
        now.get() >= self.seen.control(Control::TrialEnd)
    }

    fn meter(&self, source: &Source) -> Option<ModelMeterRef> {
        let mut meters = self.meters.borrow_mut();
        if let Some(meter) = meters.get(source) {
            return Some(meter.clone());
        }
        let meter = ModelMeterRef(Arc::new(ModelMeter::new(self.seen.bucket(source)?)));
        meters.insert(*source, meter.clone());
        Some(meter)
    }

    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        if entry::name(source).is_none() {
            return Insert::Refused;
        }
        let made = self.admits(entry::lane(source), now);
        if made == Insert::Made {
            let meter = ModelMeterRef(Arc::new(ModelMeter::new(bucket)));
            self.meters.borrow_mut().insert(*source, meter);
        }
        made
    }

    fn aggregate(&self, index: u32) -> Option<impl SharedWord> {
        let mut words = self.aggregates.borrow_mut();
        let word = if let Some(word) = words.get(&index) {
            Arc::clone(word)
        } else {
            let word = Arc::new(AtomicU64::new(self.seen.aggregate(index)?));
            words.insert(index, Arc::clone(&word));
            word
        };
        Some(Shared(word))
    }

    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        self.seen.slot(generation, source)
    }

    fn limit(&self, slot: Slot) -> Option<&Limit> {
        self.seen.limit(slot)
    }
}

/// A word that several may hold.
struct Shared(Arc<AtomicU64>);

impl SharedWord for Shared {
    fn load(&self) -> u64 {
        SharedWord::load(&*self.0)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        SharedWord::compare_exchange(&*self.0, current, new)
    }
}

impl Bans for Rehearsal<'_> {
    type Entry = ModelBanRef;

    fn ban(&self, source: &Source) -> Option<ModelBanRef> {
        let mut bans = self.bans.borrow_mut();
        if let Some(ban) = bans.get(source) {
            return Some(ban.clone());
        }
        let ban = ModelBanRef::of(self.seen.ban(source)?);
        bans.insert(*source, ban.clone());
        Some(ban)
    }

    fn insert_ban(&self, source: &Source) -> Insert {
        self.bans.borrow_mut().entry(*source).or_default();
        Insert::Made
    }
}

impl Surroundings for Rehearsal<'_> {
    /// Only the kernel knows. It decides about a ban, and not about the packet.
    fn is_established(&self, _facts: &Facts) -> bool {
        false
    }

    /// The daemon has put it there before the rules that say so.
    fn leads(&self, _action: &Action) -> bool {
        true
    }
}
