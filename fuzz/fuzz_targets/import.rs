//! libFuzzer's entry to the importer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_fuzz_targets::import;

fuzz_target!(|data: &[u8]| import::check(data));
