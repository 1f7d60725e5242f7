//! The parts of a step that the verifier is to walk only once: each is a function of its own, as in
//! [`crate::tables`].

use limiter_common::bucket::Slot;
use limiter_common::meter::{Charged, Peek};
use limiter_common::table::{self, Paid, Prepared, Sight, limit};
use limiter_common::time::Ticks;

use crate::atomic::MapKeyed;
use crate::maps::KernelMaps;
use crate::tables::{Bucket, keyed, scratch};

/// `bucket` is one of `KEYED` or of `BUDGETS`.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_peek_limit(bucket: Bucket, slot: u32, place: u32, scale: u32) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return Peek::Moved as u32;
    };
    limit::peek(&KernelMaps, scratch, &bucket, Slot::new(slot), place, scale != 0) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_try_limit(
    bucket: Bucket,
    slot: u32,
    place: u32,
    scale: u32,
    index: u32,
) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return Charged::Moved as u32;
    };
    let slot = Slot::new(slot);
    limit::attempt(&KernelMaps, scratch, &bucket, slot, place, scale != 0, index) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_most_specific(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Slot::NONE.index() };
    table::most_specific(&KernelMaps, scratch, index).index()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_sight(bucket: Bucket, slot: u32, scale: u32) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return Sight::Moved as u32;
    };
    table::sight(&KernelMaps, scratch, &bucket, Slot::new(slot), scale != 0) as u32
}

#[inline(always)]
pub(crate) fn sight(bucket: &MapKeyed, slot: Slot, scale: bool) -> Sight {
    match limiter_sight(bucket.as_ptr(), slot.index(), u32::from(scale)) {
        0 => Sight::Within,
        1 => Sight::Soft,
        2 => Sight::Over,
        _ => Sight::Moved,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_pay(bucket: Bucket, slot: u32, scale: u32, index: u32) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return Paid::Contended as u32;
    };
    table::pay(&KernelMaps, scratch, &bucket, Slot::new(slot), scale != 0, index) as u32
}

#[inline(always)]
pub(crate) fn pay(bucket: &MapKeyed, slot: Slot, scale: bool, index: u32) -> Paid {
    match limiter_pay(bucket.as_ptr(), slot.index(), u32::from(scale), index) {
        0 => Paid::Hard,
        1 => Paid::Soft,
        2 => Paid::Over,
        _ => Paid::Contended,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_prepare(bucket: Bucket, index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Prepared::Contended as u32 };
    table::prepare(&KernelMaps, scratch, keyed(bucket).as_ref(), index) as u32
}

#[inline(always)]
pub(crate) fn prepare(bucket: Option<&MapKeyed>, index: u32) -> Prepared {
    match limiter_prepare(pointer(bucket), index) {
        0 => Prepared::Done,
        1 => Prepared::Pay,
        _ => Prepared::Contended,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_give_back(bucket: Bucket, index: u32) -> u32 {
    if let Some(scratch) = scratch() {
        table::give_back(&KernelMaps, scratch, keyed(bucket).as_ref(), index);
    }
    0
}

#[inline(always)]
pub(crate) fn give_back(bucket: Option<&MapKeyed>, index: u32) {
    limiter_give_back(pointer(bucket), index);
}

#[inline(always)]
fn pointer(bucket: Option<&MapKeyed>) -> Bucket {
    bucket.map_or(core::ptr::null_mut(), |bucket| bucket.as_ptr())
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_passed(bucket: Bucket, index: u32, soft: u32) -> u32 {
    if let Some(scratch) = scratch() {
        table::passed(&KernelMaps, scratch, keyed(bucket).as_ref(), index, soft != 0);
    }
    0
}

#[inline(always)]
pub(crate) fn passed(bucket: Option<&MapKeyed>, index: u32, soft: bool) {
    limiter_passed(pointer(bucket), index, u32::from(soft));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_count_class(index: u32, passed: u32, add: u32) -> u32 {
    if let Some(scratch) = scratch() {
        table::count_class(&KernelMaps, scratch, index, passed != 0, add != 0);
    }
    0
}

#[inline(always)]
pub(crate) fn count_class(index: u32, passed: bool, add: bool) {
    limiter_count_class(index, u32::from(passed), u32::from(add));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_undo(index: u32) -> u32 {
    if let Some(scratch) = scratch() {
        table::undo_step(&KernelMaps, scratch, index);
    }
    0
}

#[inline(always)]
pub(crate) fn undo_step(index: u32) {
    limiter_undo(index);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_of_shape(index: u32, number: u32) -> u64 {
    let Some(scratch) = scratch() else { return 0 };
    table::of_shape(&KernelMaps, scratch, index, number)
}

#[inline(always)]
pub(crate) fn of_shape(index: u32, number: u32) -> u64 {
    limiter_of_shape(index, number)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_is_used(bucket: Bucket) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else { return 0 };
    u32::from(table::is_used(scratch, &bucket))
}

#[inline(always)]
pub(crate) fn is_used(bucket: &MapKeyed) -> bool {
    limiter_is_used(bucket.as_ptr()) != 0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_words(bucket: Bucket, before: u32, after: u32, place: u32, used: u64) -> u32 {
    if let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) {
        let slots = (Slot::new(before), Slot::new(after));
        table::limit_words(&KernelMaps, scratch, &bucket, slots, place, used);
    }
    0
}

#[inline(always)]
pub(crate) fn limit_words(bucket: &MapKeyed, (before, after): (Slot, Slot), place: u32, used: u64) {
    limiter_words(bucket.as_ptr(), before.index(), after.index(), place, used);
}

#[inline(always)]
pub(crate) fn most_specific(index: u32) -> Slot {
    Slot::new(limiter_most_specific(index))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_freeze(bucket: Bucket, scale: u32) -> u32 {
    if let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) {
        table::freeze(scratch, &bucket, scale & 1 != 0);
    }
    0
}

#[inline(always)]
pub(crate) fn freeze(bucket: &MapKeyed, scale: bool) {
    limiter_freeze(bucket.as_ptr(), u32::from(scale));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_clear_fresh() -> u32 {
    if let Some(scratch) = scratch() {
        table::clear_fresh(scratch);
    }
    0
}

#[inline(always)]
pub(crate) fn clear_fresh() {
    limiter_clear_fresh();
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_store_fresh(bucket: Bucket, scale: u32) -> u32 {
    if let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) {
        table::store_fresh(scratch, &bucket, scale & 1 != 0);
    }
    0
}

#[inline(always)]
pub(crate) fn store_fresh(bucket: &MapKeyed, scale: bool) {
    limiter_store_fresh(bucket.as_ptr(), u32::from(scale));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_update(bucket: Bucket, target: u32, shared: u32) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    table::update(&KernelMaps, scratch, &bucket, Slot::new(target), shared != 0);
    0
}

#[inline(always)]
pub(crate) fn update(bucket: &MapKeyed, target: Slot, shared: bool) {
    limiter_update(bucket.as_ptr(), target.index(), u32::from(shared));
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_used(bucket: Bucket, before: u32, after: u32, place: u32) -> u64 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    let (before, after) = (Slot::new(before), Slot::new(after));
    limit::used(&KernelMaps, scratch, &bucket, before, after, place)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_fill(bucket: Bucket, slot: u32, place: u32, at: u64) -> u64 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    limit::fill(&KernelMaps, scratch, &bucket, Slot::new(slot), place, Ticks::new(at))
}

#[inline(always)]
pub(crate) fn limit_fill(bucket: &MapKeyed, slot: Slot, place: u32, at: Ticks) -> u64 {
    limiter_fill(bucket.as_ptr(), slot.index(), place, at.get())
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_converted(before: u32, after: u32, place: u32, used: u64) -> u64 {
    limit::converted(&KernelMaps, Slot::new(before), Slot::new(after), place, used)
}

#[inline(always)]
pub(crate) fn limit_converted(before: Slot, after: Slot, place: u32, used: u64) -> u64 {
    limiter_converted(before.index(), after.index(), place, used)
}

/// `at`: the place above, the word in the lower half.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_word(bucket: Bucket, before: u32, after: u32, at: u64, used: u64) -> u32 {
    let (Some(scratch), Some(bucket)) = (scratch(), keyed(bucket)) else {
        return 0;
    };
    let slots = (Slot::new(before), Slot::new(after));
    let at = ((at >> 32) as u32, (at & 0xffff_ffff) as u32);
    limit::word(&KernelMaps, scratch, &bucket, slots, at, used);
    0
}

#[inline(always)]
pub(crate) fn peek_limit(bucket: &MapKeyed, slot: Slot, place: u32, scale: bool) -> Peek {
    match limiter_peek_limit(bucket.as_ptr(), slot.index(), place, u32::from(scale)) {
        0 => Peek::Conforming,
        1 => Peek::Over,
        _ => Peek::Moved,
    }
}

#[inline(always)]
pub(crate) fn try_limit(
    bucket: &MapKeyed,
    slot: Slot,
    place: u32,
    scale: bool,
    index: u32,
) -> Charged {
    match limiter_try_limit(bucket.as_ptr(), slot.index(), place, u32::from(scale), index) {
        0 => Charged::Conforming,
        1 => Charged::Over,
        2 => Charged::Contended,
        _ => Charged::Moved,
    }
}

#[inline(always)]
pub(crate) fn limit_used(bucket: &MapKeyed, before: Slot, after: Slot, place: u32) -> u64 {
    limiter_used(bucket.as_ptr(), before.index(), after.index(), place)
}

#[inline(always)]
pub(crate) fn limit_word(
    bucket: &MapKeyed,
    (before, after): (Slot, Slot),
    (place, index): (u32, u32),
    used: u64,
) {
    let at = u64::from(place) << 32 | u64::from(index);
    limiter_word(bucket.as_ptr(), before.index(), after.index(), at, used);
}
