//! libFuzzer's entry to the packet parser. Every other change is one of headers, not of bytes.

#![no_main]

use fastrand::Rng;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use limiter_fuzz_targets::{mutate, packet};

fuzz_target!(|data: &[u8]| packet::check(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut frame = data[..size].to_vec();
    mutate::frame(&mut frame, &mut Rng::with_seed(u64::from(seed)));
    frame.truncate(max_size);
    data[..frame.len()].copy_from_slice(&frame);
    frame.len()
});
