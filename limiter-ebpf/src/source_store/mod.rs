//! The buckets of sources: in lines, or in hash maps. A load-time constant selects the store
//! ([`lines::all`]), so the verifier removes the code for the other one.

pub(crate) mod hashed;
pub(crate) mod lines;

use core::ptr::NonNull;

use limiter_common::bucket_key::BucketKey;
use limiter_common::wire::{Bucket, LineEntry};
use limiter_decision::line::LineBucket;
use limiter_decision::maps::Kept;
use limiter_decision::stored::Stored;

use self::hashed::MapBucket;
use self::lines::{MapEntry, MapLine};

/// The bucket of a source in place.
pub(crate) type MapStored = Stored<MapBucket, MapLine>;

// The value of either store is passed to a subprogram as a pointer to so many bytes.
const _: () = assert!(size_of::<Bucket>() == size_of::<LineEntry>());

/// The bucket of a source that was found before and passed to a subprogram. For a line, its limit
/// is read before anything else.
#[inline(always)]
pub(crate) fn at(value: *mut Bucket, bucket_key: &BucketKey) -> Option<MapStored> {
    let value = NonNull::new(value)?;
    Some(if lines::are_used() { lined(value, bucket_key.name()?) } else { hashed(value) })
}

/// Like [`at`], by the name of the source, without a lock.
#[inline(always)]
pub(crate) fn named(value: *mut Bucket, name: u64) -> Option<MapStored> {
    let value = NonNull::new(value)?;
    Some(if lines::are_used() { lined(value, name) } else { hashed(value) })
}

#[inline(always)]
fn lined(value: NonNull<Bucket>, name: u64) -> MapStored {
    Stored::Lined(LineBucket::resume(MapEntry(value.cast()), name))
}

#[inline(always)]
fn hashed(value: NonNull<Bucket>) -> MapStored {
    Stored::Hashed(MapBucket::new(value))
}

/// The value of a map that has a bucket of the tables of sources.
pub(crate) struct MapKept(NonNull<Bucket>);

impl Kept<MapStored> for MapKept {
    #[inline(always)]
    fn of(bucket: MapStored) -> Self {
        Self(match bucket {
            Stored::Hashed(MapBucket(value)) => value,
            Stored::Lined(bucket) => bucket.entry().0.cast(),
        })
    }

    #[inline(always)]
    fn bucket(self, bucket_key: &BucketKey) -> Option<MapStored> {
        at(self.0.as_ptr(), bucket_key)
    }
}
