//! The shipped XDP program: the clock is the kernel's. Buckets of sources are in hash maps.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch)]

mod act;
mod atomic;
mod clock;
mod entry;
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
mod uncounted;
mod words;

use hashed as home;
