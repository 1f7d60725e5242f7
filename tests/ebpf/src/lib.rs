//! Parts that the BPF programs of the tests and of the benchmark have in common.

#![no_std]

/// Parts without which no object is linked and loaded: the licence, which lets the kernel hand out
/// its GPL-only helpers, and a panic handler, which the verifier proves to be never reached.
#[macro_export]
macro_rules! licence {
    () => {
        #[unsafe(link_section = "license")]
        #[unsafe(no_mangle)]
        static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

        #[cfg(not(test))]
        #[panic_handler]
        fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }
    };
}
