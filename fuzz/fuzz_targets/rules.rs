//! libFuzzer's entry to the rule compiler.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_fuzz_targets::rules;

fuzz_target!(|data: &[u8]| rules::check(data));
