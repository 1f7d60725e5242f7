//! The test program for tc: the same decision, the clock read from a map, so that days pass in
//! microseconds, and the facts of the last frame left in a map. Never shipped.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch, stmt_expr_attributes)]

mod capture;
mod clock {
    pub(crate) mod test;
}
mod call;
mod context;
mod define_subprograms;
mod events;
mod facts;
mod hook {
    pub(crate) mod tc;
    pub(crate) use self::tc::*;
}
mod licence;
mod maps;
mod path;
mod program {
    pub(crate) mod tc;
    pub(crate) use self::tc::*;
}
mod source_store;
mod subprograms;
