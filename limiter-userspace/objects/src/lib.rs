//! The XDP program, embedded: the build script makes it with the BPF toolchain. Only the binary and
//! the tests depend on this crate, so that everything else builds beside it.

/// Bytes aligned for aya, which reads ELF structures in place.
#[repr(C, align(32))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name)));
        &OBJECT.0
    }};
}

/// The XDP program with the buckets of sources in hash maps; empty when there was no BPF toolchain.
pub static HASH: &[u8] = object!("limiter");

/// The one with the buckets of sources in lines; empty when there was no BPF toolchain.
pub static LINES: &[u8] = object!("limiter-lines");
