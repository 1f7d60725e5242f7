//! The least that 100,000 limits can take: two maps filled by the system call that writes many
//! entries at once.

use std::time::Instant;

use anyhow::Result;
use limiter_tests::bpf::Plain;
use rustix::time::{ClockId, clock_gettime};

/// Seconds of a raw reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw {
    pub(super) clock: f64,
    /// Processor time of this thread.
    pub(super) processor: f64,
}

/// The processor time of the calling thread.
pub(super) fn processor() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u32::try_from(number).map_or(f64::MAX, f64::from);
    part(time.tv_sec) + part(time.tv_nsec) / 1e9
}

/// How long it takes to write so many limits of 32 bytes into an array, and prefixes into a trie.
pub(super) fn measure(entries: u32) -> Result<Raw> {
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
    let (began, used) = (Instant::now(), processor());
    array.write(&slots, &limits)?;
    trie.write(&prefixes, &slots)?;
    Ok(Raw { clock: began.elapsed().as_secs_f64(), processor: processor() - used })
}
