//! A bucket of the source table in the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::wire::Bucket;
use limiter_decision::cell::{Cell, SourceBucket};

/// A bucket whose words are atomics.
#[derive(Debug, Default)]
struct ModelSourceBucket {
    word: AtomicU64,
    resolved: AtomicU64,
    passed: AtomicU64,
    dropped: AtomicU64,
}

/// A bucket of a source, as the tables share it.
#[derive(Clone, Debug)]
pub struct ModelSourceBucketRef(Arc<ModelSourceBucket>);

impl ModelSourceBucketRef {
    /// Bytes of the shared value.
    pub(crate) const SIZE: usize = size_of::<ModelSourceBucket>();

    pub(crate) fn of(bucket: &Bucket) -> Self {
        let Bucket { word, resolved, passed, dropped } = *bucket;
        Self(Arc::new(ModelSourceBucket {
            word: word.into(),
            resolved: resolved.into(),
            passed: passed.into(),
            dropped: dropped.into(),
        }))
    }

    /// The stored form of the bucket.
    pub(crate) fn bucket(&self) -> Bucket {
        Bucket {
            word: self.0.word.load(Ordering::Acquire),
            resolved: self.0.resolved.load(Ordering::Acquire),
            passed: self.0.passed.load(Ordering::Acquire),
            dropped: self.0.dropped.load(Ordering::Acquire),
        }
    }
}

impl SourceBucket for ModelSourceBucketRef {
    fn word(&self) -> impl Cell {
        &self.0.word
    }

    fn resolved(&self) -> impl Cell {
        &self.0.resolved
    }

    fn count_passed(&self, packets: u64) {
        self.0.passed.fetch_add(packets, Ordering::Relaxed);
    }

    fn count_dropped(&self, packets: u64) {
        self.0.dropped.fetch_add(packets, Ordering::Relaxed);
    }

    fn packets(&self) -> u64 {
        let Bucket { passed, dropped, .. } = self.bucket();
        passed.wrapping_add(dropped)
    }
}
