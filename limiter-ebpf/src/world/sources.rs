//! The maps of the source table, of the gate before it, and of what counts.

use aya_ebpf::{bindings::xdp_action, btf_maps::lpm_trie::Key};
use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::Cell;
use limiter_common::change::Changes;
use limiter_common::outcome::{Insert, Packed};
use limiter_common::register::Aside;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{ActionKind, Bucket, Control, Limit, Listed, Moment, RuleSetHeader};
use limiter_common::world::{Maps, Tables as _};

use super::kernel::{Clock as _, Home, Kernel, control, scratch};
use super::lists::{banned, listed};
use super::maps::{CHANGES, CPUS, INTERFACES, LIMITS, REASONS, RULES};
use super::{room, uncounted};
use crate::step::step;

impl Changes for Kernel {
    #[inline(always)]
    fn moment(&self, generation: u32) -> Moment {
        let word = CHANGES.get_ptr(Moment::index(generation));
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Moment::from_raw(word.map_or(0, |word| unsafe { word.read_volatile() }))
    }
}

impl Maps for Kernel {
    type Meter = <Self as Home>::Meter;

    #[inline(always)]
    fn brake(&self) -> bool {
        control(Control::Brake) != 0
    }

    #[inline(always)]
    fn exact(&self, recent: Ticks) -> Ticks {
        self.now(recent)
    }

    #[inline(always)]
    fn aside(&self) -> Option<&Aside> {
        scratch().map(|scratch| &scratch.aside)
    }

    #[inline(always)]
    fn listed(&self, source: &Source, now: Ticks) -> Option<Listed> {
        if control(Control::Lists) == 0 {
            return None;
        }
        step!(listed(; source, now))
    }

    #[inline(always)]
    fn generation(&self) -> Generation {
        Generation::new(control(Control::Generation))
    }

    #[inline(always)]
    fn header(&self, generation: Generation) -> RuleSetHeader {
        RuleSetHeader::from_raw(control(if generation.buffer() == 0 {
            Control::EvenRuleSet
        } else {
            Control::OddRuleSet
        }))
    }

    #[inline(always)]
    fn trial_ended(&self, now: Ticks) -> bool {
        step!(trial_ended(; now))
    }

    #[inline(always)]
    fn banned(&self, source: &Source, now: Ticks) -> bool {
        if control(Control::BansKept) == 0 {
            return false;
        }
        step!(banned(; source, now))
    }

    #[inline(always)]
    fn meter(&self, source: &Source) -> Option<Self::Meter> {
        self.find(source)
    }

    #[inline(always)]
    fn count_drop(&self, source: &Source, meter: &Self::Meter) {
        let packets = uncounted::count(source);
        if packets != 0 {
            self.count_drops(meter, packets);
        }
    }

    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        Home::insert(self, source, bucket, now)
    }

    #[inline(always)]
    fn aggregate(&self, index: u32) -> Option<impl Cell> {
        room::aggregate(index)
    }

    #[inline(always)]
    fn resolve(&self, generation: Generation, source: &Source) -> Option<Slot> {
        step!(resolve(; source, generation))
    }

    #[inline(always)]
    fn limit(&self, slot: Slot) -> Option<&Limit> {
        LIMITS.get(slot.index())
    }
}

/// [`Maps::trial_ended`].
#[inline(always)]
pub(crate) fn trial_ended(now: Ticks) -> bool {
    Kernel.now(now).get() >= control(Control::TrialEnd)
}

/// [`Maps::resolve`], in the half of `RULES` of a generation.
#[inline(always)]
pub(crate) fn resolve(source: &Source, generation: Generation) -> Option<Slot> {
    let key = Key::new(128, source.trie_key());
    let slot = RULES.get(generation.buffer()).and_then(|trie| trie.get(&key));
    slot.map(|slot| Slot::new(*slot))
}

/// Of the flags of a redirection: what follows when the map has no such entry.
const ELSE_PASS: u64 = xdp_action::XDP_PASS as u64;

/// Sends the packet where an action says: by the map, and to the network stack if that has no such
/// entry.
#[inline(always)]
pub(crate) fn redirect(action: u32) -> u32 {
    let Some(action) = Kernel.action(action) else {
        return xdp_action::XDP_PASS;
    };
    let target = action.target;
    match action.kind() {
        ActionKind::Interface => {
            INTERFACES.redirect(target, ELSE_PASS).unwrap_or_else(|other| other)
        }
        ActionKind::Cpu => CPUS.redirect(target, ELSE_PASS).unwrap_or_else(|other| other),
        _ => xdp_action::XDP_PASS,
    }
}

/// Counts one frame.
#[inline(always)]
pub(crate) fn count(outcome: Packed, length: u64) {
    let outcome = outcome.unpack();
    if let Some(tally) = REASONS.get_ptr_mut(outcome.reason.index()) {
        // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
        unsafe { (*tally).add(length) };
    }
    Kernel.count_rule(outcome.rule, outcome.counted, length, true);
}
