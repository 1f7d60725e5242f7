//! The machinery of `cargo xtask bench` works, with little to measure.

use std::time::Duration;

use anyhow::{Result, ensure};
use limiter_bench::{control, daemon};
use limiter_tests::root::require_root;

#[test]
fn the_control_plane_can_be_measured() -> Result<()> {
    require_root();
    let effort = control::run::Effort { limits: 100, rounds: 2, listed: Some(300), sources: 2_000 };
    let measured = control::run::measure(&effort)?;
    for text in ["| 100 | one rule with a list |", "| 300 | one rule with a list |", "waited"] {
        ensure!(measured.page.contains(text), "no {text} in {}", measured.page);
    }
    Ok(())
}

#[test]
fn the_daemon_can_be_measured() -> Result<()> {
    require_root();
    let watched = Duration::from_millis(100);
    let effort = daemon::run::Effort { watched, sources: 2_000, limits: 100, applied: 1 };
    let measured = daemon::run::measure(&effort)?;
    ensure!(measured.figures.len() == 4, "{:?}", measured.figures);
    Ok(())
}
