//! An instruction that does nothing, for the verifier.

/// An instruction that no other call of this has, so that the compiler joins nothing before it.
#[inline(always)]
pub(crate) fn apart<const NUMBER: u32>() {
    // SAFETY: it changes a register that a call has used up.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!(
            "r1 = {number}",
            number = const NUMBER,
            out("r1") _,
            options(nomem, nostack)
        );
    }
}
