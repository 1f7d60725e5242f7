//! The licence and the panic handler, which every object must have.

/// Lets the kernel hand out its GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // No code path reaches this: the verifier rejects a program with an endless loop.
    loop {}
}
