//! The test program with the buckets of sources in lines. Never shipped.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch)]

mod act;
mod atomic;
mod events;
mod frame;
mod keyed;
mod licence;
mod limits;
mod line_steps;
mod line_words;
mod lines;
mod maps;
mod room;
mod room_keyed;
mod run;
mod sources;
mod tables;
mod test_clock;
mod test_entry;
mod uncounted;
mod words;

use lines as home;
use test_clock as clock;
