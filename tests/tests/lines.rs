//! The line table in the kernel, hammered by all CPUs.

use anyhow::{Result, ensure};
use limiter_tests::bench::lines::hammer;
use limiter_tests::root::require_root;

fn packets() -> u32 {
    let divisor = std::env::var("LIMITER_SHORTER").ok().and_then(|text| text.parse::<u32>().ok());
    2_000_000 / divisor.unwrap_or(1)
}

/// Sources that share two lines, with room for 14: they push each other out as soon as they have drained. None passes
/// more than its limit, and none has two entries.
#[test]
fn no_source_passes_more_than_its_limit_on_all_cpus() -> Result<()> {
    require_root();
    for sources in [8, 24, 64] {
        check(sources, false)?;
    }
    Ok(())
}

/// The same while the limits change all the time.
#[test]
fn no_source_passes_more_than_its_limit_while_rules_change() -> Result<()> {
    require_root();
    for sources in [8, 24] {
        check(sources, true)?;
    }
    Ok(())
}

fn check(sources: u32, changing: bool) -> Result<()> {
    let seen = hammer(sources, packets(), changing)?;
    // Those that are never drained when another one comes keep their ways for all the time, so one that is late may get
    // none. But ways change hands, or there is nothing to see here.
    let served = seen.passed.iter().filter(|passed| **passed > 0).count();
    ensure!(served > 14 || served == 8 && sources == 8, "{served} of {sources} passed: {seen:?}");
    for (number, passed) in seen.passed.iter().enumerate() {
        ensure!(*passed <= seen.bound, "source {number} of {sources}: {seen:?}");
    }
    let mut distinct = seen.there.clone();
    distinct.dedup();
    ensure!(distinct == seen.there, "a source has two entries: {seen:?}");
    ensure!(seen.there.len() == 14 || sources == 8, "the lines were not full: {seen:?}");
    ensure!(!changing || seen.changes > 2, "the rules did not change: {seen:?}");
    Ok(())
}
