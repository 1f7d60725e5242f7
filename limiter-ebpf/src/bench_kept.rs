//! The line table of `limiter_common::line` in the kernel, under the decision for sources as limiter has it, with one limit
//! for all. Measured and hammered by the tests; never shipped.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};
use core::ptr::NonNull;

use aya_ebpf::{
    bindings::xdp_action,
    btf_maps::Array,
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, xdp},
    programs::XdpContext,
};
use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::cell::{Cell, Meter as _};
use limiter_common::engine::{self, Change, Insert, Maps, Outcome, Packed};
use limiter_common::gcra::Charge;
use limiter_common::line::{self, Place, Tenant};
use limiter_common::room::source::name;
use limiter_common::room::{AdmissionCells, Leave, SpaceWords, Spaces};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Bucket, Lane, Limit, Line, LineEntry, Listed};

use crate::bench_lines::{LINES_LIMITS, MMAPABLE, control};
use crate::source_v4;

/// The lines. Aligned to them: the kernel puts what can be mapped on a page of its own.
#[btf_map]
static LINES_KEPT: Array<Line, 1, MMAPABLE> = Array::new();

/// Packets that passed, by the last byte of their source, if that is asked for.
#[btf_map]
static LINES_PASSED: Array<u64, 256> = Array::new();

/// A word inside a line.
#[derive(Clone, Copy)]
struct LineWord(*mut u64);

impl Cell for LineWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: inside a value of the array, which is there as long as the program.
        unsafe { self.0.read_volatile() }
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        // SAFETY: as above.
        unsafe {
            atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(
                self.0, current, new,
            )
            .1
        }
    }
}

/// An entry inside a line.
#[derive(Clone, Copy)]
struct MapEntry(*mut LineEntry, u64);

impl line::Entry for MapEntry {
    #[inline(always)]
    fn name(&self) -> impl Cell {
        // SAFETY: the address of a field.
        LineWord(unsafe { &raw mut (*self.0).name })
    }

    #[inline(always)]
    fn word(&self) -> impl Cell {
        // SAFETY: as above.
        LineWord(unsafe { &raw mut (*self.0).word })
    }

    #[inline(always)]
    fn resolved(&self) -> impl Cell {
        // SAFETY: as above.
        LineWord(unsafe { &raw mut (*self.0).resolved })
    }

    #[inline(always)]
    fn packets(&self) -> u64 {
        // SAFETY: as in `LineWord::load`.
        unsafe {
            let passed = (&raw const (*self.0).passed).read_volatile();
            let dropped = (&raw const (*self.0).dropped).read_volatile();
            u64::from(passed) + u64::from(dropped)
        }
    }

    #[inline(always)]
    fn begin_counts(&self, passed: u64, dropped: u64) {
        // SAFETY: as in `LineWord::load`.
        unsafe {
            (&raw mut (*self.0).passed).write_volatile((passed & 0xffff_ffff) as u32);
            (&raw mut (*self.0).dropped).write_volatile((dropped & 0xffff_ffff) as u32);
        }
    }

    #[inline(always)]
    fn count(&self, passed: bool) {
        // SAFETY: as in `LineWord::load`. The orderings differ so that the two stay two instructions.
        unsafe {
            if passed {
                let counter = &raw mut (*self.0).passed;
                atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(counter, 1);
            } else {
                let counter = &raw mut (*self.0).dropped;
                atomic_xadd::<u32, u32, { AtomicOrdering::SeqCst }>(counter, 1);
            }
        }
    }

    #[inline(always)]
    fn uncount(&self) {
        // SAFETY: as above.
        unsafe {
            let counter = &raw mut (*self.0).passed;
            atomic_xadd::<u32, u32, { AtomicOrdering::Relaxed }>(counter, u32::MAX);
        }
    }
}

/// A line inside its map.
#[derive(Clone, Copy)]
struct MapLine(NonNull<Line>);

impl line::Line for MapLine {
    type Entry = MapEntry;

    #[inline(always)]
    fn lock(&self) -> impl Cell {
        // SAFETY: the address of a field.
        LineWord(unsafe { &raw mut (*self.0.as_ptr()).lock })
    }

    #[inline(always)]
    fn entry(&self, way: u32) -> Option<MapEntry> {
        let way = (way & Self::LAST) as usize;
        if way == 0 {
            return None;
        }
        // SAFETY: the mask keeps it inside the line; the head is as long as an entry.
        Some(MapEntry(unsafe { self.0.as_ptr().cast::<LineEntry>().add(way) }, way as u64))
    }
}

/// No settings.
enum Nothing {}

impl Cell for Nothing {
    fn load(&self) -> u64 {
        match *self {}
    }

    fn compare_exchange(&self, _current: u64, _new: u64) -> bool {
        match *self {}
    }
}

impl SpaceWords for Nothing {
    fn entries(&self) -> u64 {
        match *self {}
    }

    fn keep(&self) -> Ticks {
        match *self {}
    }

    fn cost(&self) -> Ticks {
        match *self {}
    }

    fn tolerance(&self) -> Ticks {
        match *self {}
    }

    fn seed(&self) -> u64 {
        match *self {}
    }

    fn hand(&self) -> impl Cell {
        self
    }

    fn flood_until(&self) -> impl Cell {
        self
    }

    fn total(&self) -> impl Cell {
        self
    }
}

/// The maps, as the decision sees them.
struct LineMaps;

impl LineMaps {
    #[inline(always)]
    fn place(source: &Source) -> Option<(MapLine, u32, u64)> {
        let name = name(source)?;
        let place = Place::of(name, 0, (control(1) & 0xffff_ffff) as u32);
        let line = LINES_KEPT.get_ptr_mut(place.line).and_then(NonNull::new)?;
        Some((MapLine(line), place.start, name))
    }
}

impl Spaces for LineMaps {
    #[inline(always)]
    fn space(&self, _lane: Lane) -> Option<impl SpaceWords> {
        None::<Nothing>
    }

    #[inline(always)]
    fn admission(&self, _lane: Lane) -> Option<&AdmissionCells> {
        None
    }
}

impl Maps for LineMaps {
    type Meter = Tenant<MapLine>;

    #[inline(always)]
    fn brake(&self) -> bool {
        false
    }

    #[inline(always)]
    fn listed(&self, _source: &Source, _now: Ticks) -> Option<Listed> {
        None
    }

    #[inline(always)]
    fn generation(&self) -> Generation {
        Generation::new(control(0))
    }

    #[inline(always)]
    fn meter(&self, source: &Source) -> Option<Tenant<MapLine>> {
        let (line, start, name) = Self::place(source)?;
        line::tenant(&line, start, name)
    }

    #[inline(always)]
    fn insert(&self, source: &Source, bucket: &Bucket, now: Ticks) -> Insert {
        let word = source.to_word().0;
        match limiter_line_insert(word, bucket.word, bucket.resolved, bucket.passed, now.get()) {
            0 => Insert::Made,
            1 => Insert::Exists,
            _ => Insert::Refused,
        }
    }

    #[inline(always)]
    fn aggregate(&self, _index: u32) -> Option<impl Cell> {
        None::<Nothing>
    }

    #[inline(always)]
    fn resolve(&self, _generation: Generation, _source: &Source) -> Option<Slot> {
        Some(Slot::new(0))
    }

    #[inline(always)]
    fn limit(&self, slot: Slot) -> Option<&Limit> {
        LINES_LIMITS.get(slot.index())
    }

    #[inline(always)]
    fn charge_again(
        &self,
        meter: &Self::Meter,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
        stored: &mut Change,
    ) -> Packed {
        // Nobody asks for what was stored here.
        *stored = Change::NONE;
        let generation = u64::from(generation.get());
        let who = source.to_word().0 | meter.entry().1 << WAY;
        Packed::from_raw(limiter_line_again(who, meter.seen(), generation, length, now.get()))
    }

    #[inline(always)]
    fn re_resolve(
        &self,
        meter: &Self::Meter,
        old: Resolved,
        generation: Generation,
        slot: Slot,
        now: Ticks,
    ) {
        let generation = u64::from(generation.get()) | u64::from(slot.index()) << 32;
        limiter_line_resolve(meter.name(), meter.entry().1, old.raw(), generation, now.get());
    }

    #[inline(always)]
    fn rescale(&self, meter: &Self::Meter, resolved: Resolved, word: Word, now: Ticks) {
        let (name, way) = (meter.name(), meter.entry().1);
        limiter_line_rescale(name, way, resolved.raw(), word.raw(), now.get());
    }

    #[inline(always)]
    fn charge_contended(
        &self,
        meter: &Self::Meter,
        scale: bool,
        charge: &Charge,
        _stored: &mut Change,
    ) -> Option<Reason> {
        let [now, cost, horizon] = charge.parts();
        // The name of an IPv4 source has 33 bits.
        let who = meter.name() | u64::from(scale) << SCALE | meter.entry().1 << WAY;
        let reason = limiter_line_contended(who, meter.seen(), now, cost, horizon);
        if reason == MOVED { None } else { Some(Reason::from_index(reason)) }
    }
}

/// Where the way and the scale stand beside a name or an address.
const WAY: u32 = 40;
const SCALE: u32 = 48;

/// No reason: something is to be done first.
const MOVED: u32 = u32::MAX;

/// The bucket with a name at a way.
#[inline(always)]
fn resume(name: u64, way: u64, seen: u64) -> Option<Tenant<MapLine>> {
    use limiter_common::line::Line as _;
    let place = Place::of(name, 0, (control(1) & 0xffff_ffff) as u32);
    let line = MapLine(LINES_KEPT.get_ptr_mut(place.line).and_then(NonNull::new)?);
    let entry = line.entry((way & 7) as u32)?;
    Some(Tenant::resume(line, entry, name, seen))
}

/// [`Maps::charge_contended`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_contended(
    who: u64,
    seen: u64,
    now: u64,
    cost: u64,
    horizon: u64,
) -> u32 {
    let Some(meter) = resume(who & 0x1_ffff_ffff, who >> WAY & 7, seen) else {
        return Reason::Contended as u32;
    };
    let (charge, mut stored) = (Charge::of_parts([now, cost, horizon]), Change::NONE);
    let scale = who >> SCALE & 1 != 0;
    match engine::source::charge_contended(meter.word(), scale, &charge, &mut stored) {
        Some(reason) => reason.index(),
        None => MOVED,
    }
}

/// [`Maps::re_resolve`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_resolve(
    name: u64,
    way: u64,
    old: u64,
    generation: u64,
    now: u64,
) -> u32 {
    if let Some(meter) = resume(name, way, old) {
        let slot = Slot::new((generation >> 32) as u32);
        let (old, now) = (Resolved::from_raw(old), Ticks::new(now));
        let generation = Generation::new(generation & 0xffff_ffff);
        engine::source::re_resolve(&LineMaps, &meter, old, generation, slot, now);
    }
    0
}

/// [`Maps::rescale`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_rescale(name: u64, way: u64, resolved: u64, word: u64, now: u64) -> u32 {
    if let Some(meter) = resume(name, way, resolved) {
        let (resolved, word) = (Resolved::from_raw(resolved), Word::from_raw(word));
        engine::source::rescale(&LineMaps, &meter, resolved, word, Ticks::new(now));
    }
    0
}

/// [`Maps::insert`] of an IPv4 source: a function of its own, as in limiter.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_insert(
    source: u64,
    word: u64,
    resolved: u64,
    passed: u64,
    now: u64,
) -> u32 {
    let source = Source::from_word(source, 4);
    let Some((line, start, name)) = LineMaps::place(&source) else {
        return Insert::Refused as u32;
    };
    let bucket = Bucket { word, resolved, passed, dropped: 1 - (passed & 1) };
    let leave = Leave { now: Ticks::new(now), keep: Ticks::ZERO };
    line::insert(&line, start, name, &bucket, &leave).insert as u32
}

/// [`Maps::charge_again`] of an IPv4 source, with its way.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_line_again(
    who: u64,
    seen: u64,
    generation: u64,
    length: u64,
    now: u64,
) -> u64 {
    let source = Source::from_word(who & 0xffff_ffff, 4);
    let meter = name(&source).and_then(|name| resume(name, who >> WAY & 7, seen));
    let Some(meter) = meter else {
        return Outcome::without_rule(Reason::Contended).pack().raw();
    };
    let mut stored = Change::NONE;
    let (generation, now) = (Generation::new(generation), Ticks::new(now));
    engine::source::charge_again(&LineMaps, &meter, generation, &source, length, now, &mut stored)
        .pack()
        .raw()
}

/// The decision over the line table.
#[xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn home_kept(ctx: XdpContext) -> u32 {
    // SAFETY: the helper takes no pointer and reads the monotonic clock.
    let now = Ticks::from_nanos(unsafe { bpf_ktime_get_ns() });
    let length = (ctx.data_end() - ctx.data()) as u64;
    let Some(address) = source_v4(&ctx) else { return xdp_action::XDP_ABORTED };
    let source = Source::V4(address);
    let outcome = engine::plain_source(&LineMaps, LineMaps.generation(), &source, length, now);
    if outcome.drops() {
        return xdp_action::XDP_DROP;
    }
    let [.., last] = address;
    if control(3) != 0
        && let Some(passed) = LINES_PASSED.get_ptr_mut(u32::from(last))
    {
        // SAFETY: a word of the array.
        unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(passed, 1) };
    }
    xdp_action::XDP_PASS
}
