//! The test program: the same decision, the clock read from a map, so that days pass in
//! microseconds, and the facts of the last frame left in a map. Never shipped.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch)]

mod act;
mod atomic;
mod events;
mod frame;
mod hashed;
mod hashed_meter;
mod keyed;
mod licence;
mod limits;
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

use hashed as home;
use test_clock as clock;
