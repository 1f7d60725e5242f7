//! Undoes charges elsewhere after one table has rejected the packet.

use super::charge::undo;
use crate::call::call;
use crate::engine::source::undo_bucket_key;
use crate::maps::Maps;
use crate::table::buckets::target;
use crate::table::scratch::Scratch;

/// Undoes what [`crate::table::run::judge_source`] has charged and counted.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn undo_source<W: Maps>(maps: &W, scratch: &Scratch) {
    let (old, new) = (scratch.source_old.get(), scratch.source_new.get());
    let packets = scratch.size::<W>().packets();
    call!(undo_bucket_key(maps; &scratch.facts.source().into(), old, new, packets));
}

/// Undoes a whole account: its charges and its counts.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn undo_table<W: Maps>(maps: &W, scratch: &Scratch, index: u32) {
    // The class of the source table has no bucket of its own.
    undo(maps, target::bucket(maps, scratch, index).as_ref(), scratch, index);
}
