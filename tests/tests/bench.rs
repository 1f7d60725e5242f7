//! Figures, printed: `cargo test --release -p limiter-tests --test bench -- --ignored --nocapture`.

use anyhow::Result;
use limiter_tests::bench::control;
use limiter_tests::root::require_root;

/// Whether the machinery of the figures works, with few rules.
#[test]
fn figures_of_large_rule_sets_can_be_taken() -> Result<()> {
    require_root();
    let report = control::report(100)?;
    assert_eq!(report.lines().count(), 15, "{report}");
    Ok(())
}

#[test]
#[ignore = "it prints figures, and takes minutes"]
fn figures_of_large_rule_sets() -> Result<()> {
    require_root();
    println!("{}", control::report(100_000)?);
    Ok(())
}

/// Homes for the state of a source, beside each other.
#[test]
#[ignore = "it prints figures, and takes minutes"]
fn figures_of_homes() -> Result<()> {
    require_root();
    println!("{}", limiter_tests::bench::lines::report(7, 500_000)?);
    Ok(())
}
