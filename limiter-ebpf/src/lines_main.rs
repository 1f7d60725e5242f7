//! The shipped XDP program with the buckets of sources in lines.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch, stmt_expr_attributes)]

mod capture;
mod clock {
    pub(crate) mod kernel;
}
mod define_steps;
mod events;
mod source_store {
    pub(crate) mod lines;
}
mod licence;
mod step;
mod steps;
mod world;
mod xdp;
