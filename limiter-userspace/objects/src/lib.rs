//! The XDP program, embedded and compressed: the build script makes it with the BPF toolchain. Only
//! the binary and the tests depend on this crate, so that everything else builds beside it.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// The object with the XDP program; empty when there was no BPF toolchain.
pub fn program() -> Vec<u8> {
    inflate(include_bytes!(concat!(env!("OUT_DIR"), "/limiter.zlib")))
}

/// The object with the program for tc; empty when there was no BPF toolchain.
pub fn tc_program() -> Vec<u8> {
    inflate(include_bytes!(concat!(env!("OUT_DIR"), "/limiter-tc.zlib")))
}

/// Of a binary that is damaged here, nothing: its caller reports that there is no program.
fn inflate(compressed: &[u8]) -> Vec<u8> {
    let mut object = Vec::new();
    match ZlibDecoder::new(compressed).read_to_end(&mut object) {
        Ok(_) => object,
        Err(_) => Vec::new(),
    }
}
