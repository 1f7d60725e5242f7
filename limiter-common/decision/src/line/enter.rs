//! Inserts an entry into the line table by the rules of [`crate::entries`]: new entries have a
//! budget, and while there are too many, recently used ones stay.

use limiter_common::bucket_key::BucketKey;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, EntryKind};

use super::LineInsert;
use super::insert::insert;
use crate::call::call;
use crate::entries::admission::full;
use crate::entries::bump;
use crate::maps::Maps;
use crate::outcome::Insert;

/// Makes the entry of a source in one of its lines, if they have space, and counts the result.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn enter<W: Maps>(maps: &W, bucket_key: &BucketKey, bucket: &Bucket, now: Ticks) -> Insert {
    let made = insert(maps, bucket_key, bucket, now);
    call!(count_insert(maps; bucket_key.kind(), made, now))
}

/// Counts the result of an insert.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn count_insert<W: Maps>(maps: &W, kind: EntryKind, made: LineInsert, now: Ticks) -> Insert {
    let LineInsert { insert, evicted } = made;
    if matches!(insert, Insert::Refused) {
        full(maps, kind, now);
    }
    if matches!(insert, Insert::Made)
        && let Some(admission) = maps.admission(kind)
    {
        bump(&admission.made);
        if evicted {
            bump(&admission.evicted);
        }
    }
    insert
}
