//! The shipped program for tc: the clock is the kernel's.

#![no_std]
#![no_main]
#![expect(internal_features, reason = "compare-and-exchange exists on BPF only as an intrinsic")]
#![feature(core_intrinsics, asm_experimental_arch, stmt_expr_attributes)]

mod capture;
mod clock {
    pub(crate) mod kernel;
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
