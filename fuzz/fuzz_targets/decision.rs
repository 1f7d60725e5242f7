//! libFuzzer's entry to the decision.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_fuzz_targets::decision;

fuzz_target!(|data: &[u8]| decision::check(data));
