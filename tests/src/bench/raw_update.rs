//! The least that 100,000 limits can take: two maps filled by the system call that writes many entries at once.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bpf::Plain;

/// How long it takes to write so many limits of 32 bytes into an array, and prefixes into a trie.
///
/// # Errors
///
/// Without root, or when the kernel refuses.
pub fn measure(entries: u32) -> Result<Duration> {
    let array = Plain::array(entries)?;
    let trie = Plain::trie(entries)?;
    let slots: Vec<u32> = (0..entries).collect();
    let limits = vec![[1_u64; 4]; slots.len()];
    let prefix = |slot: &u32| {
        let mut key = [0_u8; 20];
        key[..4].copy_from_slice(&128_u32.to_ne_bytes());
        key[14..16].copy_from_slice(&[0xff, 0xff]);
        key[16..].copy_from_slice(&(0x0a00_0000 + slot).to_be_bytes());
        key
    };
    let prefixes: Vec<[u8; 20]> = slots.iter().map(prefix).collect();
    let began = Instant::now();
    array.write(&slots, &limits)?;
    trie.write(&prefixes, &slots)?;
    Ok(began.elapsed())
}
