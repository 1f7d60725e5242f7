//! A bucket of a table in the model.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{Bucket, KeyedBucket, LimitSpec, WORDS};
use limiter_decision::algorithm::Words;
use limiter_decision::maps::Keyed;
use limiter_decision::meter::{self, Share};

/// The bucket of a key, or a budget.
#[derive(Debug, Default)]
struct ModelBucket {
    resolved: AtomicU64,
    passed: AtomicU64,
    dropped: AtomicU64,
    used: AtomicU64,
    words: [AtomicU64; FEW],
    /// The other words, allocated once one of them is not zero: few algorithms use them.
    more: OnceLock<Box<[AtomicU64; WORDS - FEW]>>,
}

/// Number of words that every bucket holds.
const FEW: usize = 4;

impl ModelBucket {
    fn with(words: [u64; WORDS]) -> Self {
        let bucket = Self::default();
        for (index, word) in words.into_iter().enumerate().filter(|(_, word)| *word != 0) {
            if let Some(place) = bucket.place(index) {
                place.store(word, Ordering::Relaxed);
            }
        }
        bucket
    }

    /// The place of a word. Allocates it if necessary.
    fn place(&self, index: usize) -> Option<&AtomicU64> {
        let more = || self.more.get_or_init(|| Box::new([const { AtomicU64::new(0) }; _]));
        self.words.get(index).or_else(|| more().get(index.checked_sub(FEW)?))
    }

    fn load(&self, index: usize) -> u64 {
        let more = || self.more.get()?.get(index.checked_sub(FEW)?);
        let word = self.words.get(index).or_else(more);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Bytes of the separately allocated words.
    fn heap(&self) -> usize {
        if self.more.get().is_some() { size_of::<[AtomicU64; WORDS - FEW]>() } else { 0 }
    }
}

/// A shared [`ModelBucket`].
#[derive(Clone, Debug)]
pub struct ModelKeyed(Arc<ModelBucket>);

impl ModelKeyed {
    /// Bytes of the shared value.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<ModelBucket>() + self.0.heap()
    }

    pub(crate) fn begun(resolved: u64) -> Self {
        Self(Arc::new(ModelBucket { resolved: resolved.into(), ..ModelBucket::default() }))
    }

    pub(crate) fn of(bucket: &KeyedBucket) -> Self {
        let KeyedBucket { resolved, passed, dropped, used, words } = *bucket;
        Self(Arc::new(ModelBucket {
            resolved: resolved.into(),
            passed: passed.into(),
            dropped: dropped.into(),
            used: used.into(),
            ..ModelBucket::with(words)
        }))
    }

    pub(crate) fn bucket(&self) -> KeyedBucket {
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        KeyedBucket {
            resolved: load(&self.0.resolved),
            passed: load(&self.0.passed),
            dropped: load(&self.0.dropped),
            used: load(&self.0.used),
            words: std::array::from_fn(|index| self.0.load(index)),
        }
    }
}

/// Used share of a limit at `now`, from a stored bucket.
pub fn used_share(spec: &LimitSpec, bucket: &KeyedBucket, now: Ticks, offset: WallOffset) -> Share {
    meter::used(spec, &ModelKeyed::of(bucket), now, offset)
}

/// Word of a shared bucket.
#[derive(Clone, Debug)]
pub struct ModelWord(Arc<ModelBucket>, usize);

impl limiter_decision::cell::Cell for ModelWord {
    fn load(&self) -> u64 {
        self.0.load(self.1)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.0.place(self.1).is_some_and(|word| {
            word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }
}

impl Words for ModelKeyed {
    type Cell = ModelWord;

    fn cell(&self, index: u32) -> Option<ModelWord> {
        let index = usize::try_from(index).ok().filter(|index| *index < WORDS)?;
        Some(ModelWord(Arc::clone(&self.0), index))
    }
}

impl Keyed for ModelKeyed {
    fn first(&self) -> impl limiter_decision::cell::Cell {
        ModelWord(Arc::clone(&self.0), 0)
    }

    fn second(&self) -> impl limiter_decision::cell::Cell {
        ModelWord(Arc::clone(&self.0), 1)
    }

    fn resolved(&self) -> impl limiter_decision::cell::Cell {
        &self.0.resolved
    }

    fn count(&self, passed: bool, packets: u64) {
        let counter = if passed { &self.0.passed } else { &self.0.dropped };
        counter.fetch_add(packets, Ordering::Relaxed);
    }

    fn touch(&self, now: Ticks) {
        self.0.used.store(now.get(), Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    fn packets(&self) -> u64 {
        let [passed, dropped] =
            [&self.0.passed, &self.0.dropped].map(|count| count.load(Ordering::Relaxed));
        passed.wrapping_add(dropped)
    }
}

/// The state of a compact key in the form of any key. It has no time of the last packet.
pub fn of_compact(bucket: &Bucket) -> KeyedBucket {
    let Bucket { word, resolved, passed, dropped } = *bucket;
    let mut words = [0; WORDS];
    words[0] = word;
    KeyedBucket { resolved, passed, dropped, used: 0, words }
}
