//! The words of one limit among those of its bucket.

use core::hint::black_box;

use limiter_common::window::{MAX_SLOTS, WindowLimit};
use limiter_common::wire::{LimitSpec, WORDS};

use crate::algorithm::Words;
use crate::algorithm::sliding_slots::Reading;
use crate::cell::Cell;
use crate::rounds::Rounds;

/// The last index of a bucket's words, and a mask: they are a power of two.
pub(super) const LAST: u32 = 31;

const _: () = assert!(LAST as usize == WORDS - 1 && WORDS.is_power_of_two());

/// The place of a limit's words in the bucket, and their scale bit.
pub(super) struct Place<'bucket, W> {
    words: &'bucket W,
    first: u32,
    scale: u64,
}

impl<'bucket, W: Words> Place<'bucket, W> {
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn new(spec: &LimitSpec, words: &'bucket W, scale: bool) -> Self {
        Self { words, first: u32::from(spec.first), scale: u64::from(scale) }
    }

    /// The index in the bucket. Masked, so that it needs no check.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn index(&self, word: u32) -> u32 {
        self.first.wrapping_add(word) & LAST
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn pack(&self, state: u64) -> u64 {
        state << 1 | self.scale
    }

    /// 1 if a word has the other scale bit, else 0.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) const fn moved(&self, raw: u64) -> u64 {
        (raw ^ self.scale) & 1
    }

    /// A word as it stands, with its scale bit; one that is not there reads as zero.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn raw(&self, word: u32) -> u64 {
        match self.words.cell(self.index(word)) {
            Some(cell) => cell.load(),
            None => 0,
        }
    }

    /// The state in a word, whatever its scale bit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn state(&self, word: u32) -> u64 {
        self.raw(word) >> 1
    }

    /// The states of the first two words, and whether one has the other scale bit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn two(&self) -> ([u64; 2], bool) {
        let here = self.here();
        here.states([here.raw(0), here.raw(1)])
    }

    /// The words of a limit in slots as a packet in the slot `number` reads them; true if one has
    /// the other scale bit.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(super) fn slots(&self, limit: &WindowLimit, number: u64) -> (Reading, bool) {
        let mut reading = Reading::new(number);
        let mut moved = 0;
        let mut rounds = Rounds::new();
        while let Some(round) = rounds.next_within(limit.words(), MAX_SLOTS as u64) {
            let raw = self.raw(reading.index(limit, round));
            moved |= self.moved(raw);
            reading.add(limit, raw >> 1);
        }
        (reading, moved != 0)
    }

    /// The place, which the compiler takes for one found anew: otherwise it would keep the
    /// addresses of all words on the stack, of which there is little.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn here(&self) -> Self {
        Self { first: black_box(self.first), ..*self }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn states<const N: usize>(&self, mut words: [u64; N]) -> ([u64; N], bool) {
        let mut moved = 0;
        for word in &mut words {
            moved |= self.moved(*word);
            *word >>= 1;
        }
        (words, moved != 0)
    }
}
