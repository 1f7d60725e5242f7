//! The line table in the kernel, hammered by all CPUs.

use anyhow::{Result, ensure};
use limiter_tests::bench::lines::hammer;
use limiter_tests::root::require_root;

/// Sources that share two lines, with room for 14: they push each other out as soon as they have drained. None passes
/// more than its limit, and none has two entries.
#[test]
fn no_source_passes_more_than_its_limit_on_all_cpus() -> Result<()> {
    require_root();
    let divisor = std::env::var("LIMITER_SHORTER").ok().and_then(|text| text.parse().ok());
    let packets = 2_000_000 / divisor.unwrap_or(1);
    for sources in [8, 24, 64] {
        let seen = hammer(sources, 2, packets)?;
        for (number, passed) in seen.passed.iter().enumerate() {
            ensure!(*passed > 0, "source {number} of {sources} never passed: {seen:?}");
            ensure!(*passed <= seen.bound, "source {number} of {sources}: {seen:?}");
        }
        let mut distinct = seen.names.clone();
        distinct.dedup();
        ensure!(distinct == seen.names, "a source has two entries: {seen:?}");
        ensure!(seen.names.len() == 14 || sources == 8, "the lines were not full: {seen:?}");
    }
    Ok(())
}
