//! The maps of the kernel, as the decision sees them: look-ups and inserts, and all that is unsafe.

pub(crate) mod atomic;
mod bans;
pub(crate) mod frame;
pub(crate) mod lists;
mod maps;
pub(crate) mod room;
pub(crate) mod room_keyed;
pub(crate) mod socket;
mod tables;
pub(crate) mod uncounted;
pub(crate) mod words;

use aya_ebpf::{bindings::xdp_action, btf_maps::lpm_trie::Key};
use limiter_common::bucket::{Generation, Slot};
use limiter_common::cell::{Cell, Meter};
use limiter_common::change::Changes;
use limiter_common::outcome::{Insert, Packed};
use limiter_common::packet::Facts;
use limiter_common::register::{Aside, Place};
use limiter_common::source::Source;
use limiter_common::table::Scratch;
use limiter_common::time::Ticks;
use limiter_common::wire::{ActionKind, Bucket, Control, Limit, Listed, Moment, RuleSetHeader};
use limiter_common::world::{Maps, Tables as _};

use self::lists::{banned, listed};
use self::maps::{CHANGES, CONTROL, CPUS, INTERFACES, LIMITS, REASONS, RULES, SCRATCH};
use crate::steps::step;
use crate::world::frame::Frame;

/// The maps.
pub(crate) struct Kernel;

/// The clock: the kernel's, or one of tests.
pub(crate) trait Clock {
    /// The time at the beginning of a packet: now, or a little before ([`limiter_common::clock`]).
    fn recent<const LAYER_3: bool>(&self, frame: &Frame<LAYER_3>) -> Ticks;

    /// The time now, when the packet came with a recent one.
    fn now(&self, recent: Ticks) -> Ticks;
}

/// Where the buckets of sources are.
pub(crate) trait Home {
    /// A value of a map that has a bucket.
    type Bucket;

    /// A bucket in place.
    type Meter: Meter + Place;

    /// The bucket of a source.
    fn find(&self, source: &Source) -> Option<Self::Meter>;

    /// The bucket of a source that was found before, and crossed to a BPF function.
    fn at(&self, bucket: *mut Self::Bucket, source: &Source) -> Option<Self::Meter>;

    /// The bucket of the source with a name ([`Place::name`]) that was found before, without a lock.
    fn named(&self, bucket: *mut Self::Bucket, name: u64) -> Option<Self::Meter>;

    /// Counts packets that were dropped.
    fn count_drops(&self, meter: &Self::Meter, packets: u64);

    /// Makes the bucket of a source, if there is none and there is room.
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert;
}

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

/// `EEXIST`: another CPU inserted first.
const EEXIST: i32 = -17;

#[inline(always)]
pub(crate) fn inserted(result: Result<(), i32>) -> Insert {
    match result {
        Ok(()) => Insert::Made,
        Err(EEXIST) => Insert::Exists,
        Err(_) => Insert::Refused,
    }
}

/// The packet under way on this CPU.
#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a Scratch> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU. Its only
    // field that is no cell is written through `facts`, before any shared reference.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &*scratch })
}

/// The facts of the packet under way, to be written. The caller has no other reference to them.
#[inline(always)]
pub(crate) fn facts<'a>() -> Option<&'a mut Facts> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU, and
    // whoever calls this has no other reference to it.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut (*scratch).facts })
}

/// A word of the control map.
#[inline(always)]
pub(crate) fn control(word: Control) -> u64 {
    control_at(word.index())
}

/// A word of the control map by its index.
#[inline(always)]
fn control_at(index: u32) -> u64 {
    match CONTROL.get_ptr(index) {
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        Some(value) => unsafe { value.read_volatile() },
        None => 0,
    }
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

/// An instruction that no other call of this has, so that the compiler joins nothing before it.
#[inline(always)]
pub(crate) fn apart<const NUMBER: u32>() {
    // SAFETY: it changes a register that a call has used up.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("r1 = {number}", number = const NUMBER, out("r1") _, options(nomem, nostack));
    }
}
