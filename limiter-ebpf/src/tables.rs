//! The steps of a decision over several tables, each a function of its own.
//!
//! A function with external linkage is proven by the verifier by itself, for any arguments, and
//! then called without being walked again. So eight tables cost it little more than one. Such
//! functions share nothing but maps: the packet under way is in [`crate::maps::scratch`].

use core::ptr::{NonNull, null_mut};

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use limiter_common::bucket::Generation;
use limiter_common::engine::{self, Outcome, Packed};
use limiter_common::packet;
use limiter_common::source::Source;
use limiter_common::table::{self, Code, Scratch, Steps};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{KeyedBucket, RuleSetHeader};

use crate::atomic::MapKeyed;
use crate::frame::Frame;
use crate::maps::{self, KernelMaps};

/// A bucket in a map, or null.
pub(crate) type Bucket = *mut KeyedBucket;

#[inline(always)]
pub(crate) fn keyed(bucket: Bucket) -> Option<MapKeyed> {
    NonNull::new(bucket).map(MapKeyed::new)
}

#[inline(always)]
pub(crate) fn scratch<'a>() -> Option<&'a Scratch> {
    // SAFETY: this CPU's own copy, alive as long as the program; XDP does not nest on a CPU. Its only
    // field that is no cell is written in `limiter_facts`, before any shared reference.
    maps::scratch().map(|scratch| unsafe { &*scratch })
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_begin_packet(
    ctx: *mut xdp_md,
    generation: u64,
    header: u64,
    length: u64,
    now: u64,
) -> u32 {
    begin_packet::<false>(ctx, generation, header, length, now)
}

/// The same for frames without an Ethernet header.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_begin_packet_l3(
    ctx: *mut xdp_md,
    generation: u64,
    header: u64,
    length: u64,
    now: u64,
) -> u32 {
    begin_packet::<true>(ctx, generation, header, length, now)
}

#[inline(always)]
fn begin_packet<const LAYER_3: bool>(
    ctx: *mut xdp_md,
    generation: u64,
    header: u64,
    length: u64,
    now: u64,
) -> u32 {
    let facts = if LAYER_3 { limiter_facts_l3 } else { limiter_facts };
    if facts(ctx) == 0 {
        return 0;
    }
    let header = RuleSetHeader::from_raw(header);
    if header.inner() {
        limiter_inner(ctx);
    }
    let Some(scratch) = scratch() else { return 0 };
    let generation = Generation::new(generation);
    table::begin_packet(&KernelMaps, scratch, generation, header, length, Ticks::new(now));
    1
}

/// [`packet::facts`] into the scratch, and the interface; 0 for a frame that has none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn limiter_facts(ctx: *mut xdp_md) -> u32 {
    facts::<false>(ctx)
}

/// The same for frames without an Ethernet header.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn limiter_facts_l3(ctx: *mut xdp_md) -> u32 {
    facts::<true>(ctx)
}

#[inline(always)]
fn facts<const LAYER_3: bool>(ctx: *mut xdp_md) -> u32 {
    let Some(place) = maps::scratch() else { return 0 };
    let context = XdpContext::new(ctx);
    // SAFETY: this CPU's own copy, and no other reference to it at this time.
    let facts = unsafe { &mut (*place).facts };
    if packet::facts(&Frame::<LAYER_3>::new(&context), facts).is_err() {
        return 0;
    }
    // SAFETY: the context pointer is the one that the kernel passed.
    facts.set_interface(unsafe { (*ctx).ingress_ifindex });
    1
}

/// [`packet::inner`] of the facts in the scratch. It asks for no offset that depends on the Ethernet
/// header.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_inner(ctx: *mut xdp_md) -> u32 {
    let Some(place) = maps::scratch() else { return 0 };
    let context = XdpContext::new(ctx);
    // SAFETY: this CPU's own copy, and the caller uses no other reference to it at this time.
    let facts = unsafe { &mut (*place).facts };
    packet::inner(&Frame::<false>::new(&context), facts);
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_drive(tables: u32) -> u64 {
    // Only `begin_packet` needs the context, and it was called before.
    table::drive(&KernelSteps::<false>(null_mut()), tables).raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_begin(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    u32::from(table::begin(&KernelMaps, scratch, index))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_peek(bucket: Bucket, index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Code::Contended as u32 };
    table::peek(&KernelMaps, keyed(bucket), scratch, index) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_repair(index: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    table::repair(&KernelMaps, scratch, index);
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_look_again(index: u32) -> u32 {
    let repair = || {
        limiter_repair(index);
    };
    table::look_again(|| Code::from_raw(limiter_peek(made(index), index)), repair) as u32
}

#[inline(always)]
fn made(index: u32) -> Bucket {
    let bucket = scratch().and_then(|scratch| table::bucket(&KernelMaps, scratch, index));
    bucket.map_or(null_mut(), MapKeyed::as_ptr)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_charge(bucket: Bucket, index: u32) -> u32 {
    let Some(scratch) = scratch() else { return Code::Contended as u32 };
    table::charge(&KernelMaps, keyed(bucket), scratch, index) as u32
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_fail(index: u32, code: u32) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    let drop = || Packed::from_raw(limiter_dropped(null_mut(), index, code));
    table::fail(&KernelMaps, scratch, index, drop).raw()
}

/// `source`: the address as it stands in the packet, of a version 4 or 6.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_plain_source(
    source: u64,
    version: u32,
    generation: u64,
    length: u64,
    now: u64,
) -> u64 {
    let source = Source::from_word(source, version);
    let generation = Generation::new(generation);
    engine::plain_source(&KernelMaps, generation, &source, length, Ticks::new(now)).raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_source() -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::judge_source(&KernelMaps, scratch).raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_dropped(bucket: Bucket, index: u32, code: u32) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::dropped(&KernelMaps, keyed(bucket), scratch, index, Code::from_raw(code)).pack().raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_finish(source: u64, tables: u32) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::finish(&KernelMaps, scratch, Packed::from_raw(source), tables).raw()
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_over_source(outcome: u64) -> u64 {
    let Some(scratch) = scratch() else { return contended() };
    table::over_source(&KernelMaps, scratch, Packed::from_raw(outcome).unpack()).pack().raw()
}

#[inline(always)]
fn contended() -> u64 {
    Outcome::without_rule(Reason::Contended).pack().raw()
}

/// The steps of one packet in the kernel. With `LAYER_3`, its frame begins with its IP header.
pub(crate) struct KernelSteps<const LAYER_3: bool>(pub(crate) *mut xdp_md);

impl<const LAYER_3: bool> Steps for KernelSteps<LAYER_3> {
    type Pointer = Bucket;

    #[inline(always)]
    fn nowhere(&self) -> Bucket {
        null_mut()
    }

    #[inline(always)]
    fn begin_packet(&self, generation: Generation, header: RuleSetHeader, length: u64, now: Ticks) {
        let generation = u64::from(generation.get());
        let begin = if LAYER_3 { limiter_begin_packet_l3 } else { limiter_begin_packet };
        begin(self.0, generation, header.raw(), length, now.get());
    }

    #[inline(always)]
    fn drive(&self, tables: u32) -> Packed {
        Packed::from_raw(limiter_drive(tables))
    }

    #[inline(always)]
    fn begin(&self, index: u32) -> bool {
        limiter_begin(index) != 0
    }

    #[inline(always)]
    fn find(&self, index: u32) -> Bucket {
        maps::keyed_of_scratch(index)
    }

    #[inline(always)]
    fn peek(&self, bucket: Bucket, index: u32) -> Code {
        Code::from_raw(limiter_peek(bucket, index))
    }

    #[inline(always)]
    fn look_again(&self, index: u32) -> Code {
        Code::from_raw(limiter_look_again(index))
    }

    #[inline(always)]
    fn charge(&self, bucket: Bucket, index: u32) -> Code {
        Code::from_raw(limiter_charge(bucket, index))
    }

    #[inline(always)]
    fn fail(&self, index: u32, code: Code) -> Packed {
        Packed::from_raw(limiter_fail(index, code as u32))
    }

    #[inline(always)]
    fn plain_source(
        &self,
        generation: Generation,
        source: &Source,
        length: u64,
        now: Ticks,
    ) -> Packed {
        let (source, version) = source.to_word();
        let generation = u64::from(generation.get());
        Packed::from_raw(limiter_plain_source(source, version, generation, length, now.get()))
    }

    #[inline(always)]
    fn source(&self) -> Packed {
        Packed::from_raw(limiter_source())
    }

    #[inline(always)]
    fn over_source(&self, outcome: Packed) -> Packed {
        Packed::from_raw(limiter_over_source(outcome.raw()))
    }

    #[inline(always)]
    fn dropped(&self, bucket: Bucket, index: u32, code: Code) -> Packed {
        Packed::from_raw(limiter_dropped(bucket, index, code as u32))
    }

    #[inline(always)]
    fn finish(&self, source: Packed, tables: u32) -> Packed {
        Packed::from_raw(limiter_finish(source.raw(), tables))
    }
}
