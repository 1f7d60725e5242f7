//! Maps without room.

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

use super::scene::{DRAINING, MANAGEMENT, arrive, drain, ensure_clear_output, ensure_in_force};

fn scene(tag: &str, options: [&str; 2]) -> Result<(Testbed, Limiter)> {
    let bed = Testbed::create(tag)?;
    let mut limiter = bed.limiter(DRAINING)?;
    let management = std::net::Ipv4Addr::from(MANAGEMENT).to_string();
    limiter.options(["--management", &management]).options(options);
    limiter.start()?;
    drain(&bed)?;
    Ok((bed, limiter))
}

#[test]
fn rules_without_room_are_refused_whole() -> Result<()> {
    require_root();
    let (bed, limiter) = scene("fullrules", ["--max-rules", "16"])?;
    let mut refused = None;
    for last in 1..20 {
        let export = limiter.ok(["export"])?;
        let output = limiter.cli(["set", &format!("192.0.2.{last}"), "5/s"])?;
        if !output.status.success() {
            ensure_clear_output(&output, "no room for a rule")?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(said.contains("--max-rules"), "{said}");
            ensure!(limiter.ok(["export"])? == export, "something changed");
            refused = Some(last);
            break;
        }
    }
    ensure!(refused.is_some_and(|last| last > 2), "{refused:?} was refused");
    let many: String = (1..100)
        .map(|last| {
            format!(
                "  - {{key: remote_address, value: 198.51.100.{last}, rate_limit: \
            {{unit: second, requests_per_unit: 5}}}}\n"
            )
        })
        .collect::<Vec<_>>()
        .concat();
    let file = bed.dir.write("many.yaml", format!("{DRAINING}{many}"))?;
    let export = limiter.ok(["export"])?;
    let output = limiter.cli(["apply", "--force", file.to_str().context("path")?])?;
    ensure_clear_output(&output, "no room for a rule set")?;
    ensure!(limiter.ok(["export"])? == export, "something changed");
    ensure_in_force(&bed, 0, "without room")?;
    limiter.ok(["unset", "192.0.2.1"])?;
    limiter.ok(["set", "192.0.2.9", "5/s"])?;
    limiter.close()?;
    bed.close()
}

/// Sixteen sources are tracked, and each of them owes. Anybody who comes then gets no burst of its
/// own out of it, and nobody is forgotten.
#[test]
fn sources_without_room_neither_escape_nor_push_others_out() -> Result<()> {
    require_root();
    let (bed, limiter) = scene("fullsources", ["--max-sources", "16"])?;
    for part in 0..4_u8 {
        let sources: Vec<[u8; 4]> = (1..=16).map(|last| [198, 18, part, last]).collect();
        let passed = arrive(&bed, &sources)?;
        ensure!(passed.iter().all(|passed| *passed <= 10), "{passed:?}");
    }
    ensure_in_force(&bed, 0, "with a full table")?;
    let status = limiter.json(&["status"])?;
    ensure!(status["no_room_for"].is_array(), "{status}");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_list_without_room_is_refused_with_its_remedy() -> Result<()> {
    require_root();
    let (bed, limiter) = scene("fulllist", ["--max-rules", "64"])?;
    let prefixes = |count: u32| -> String {
        (0..count)
            .map(|n| format!("{}/31\n", std::net::Ipv4Addr::from(0x0a00_0000 + 2 * n)))
            .collect::<Vec<_>>()
            .concat()
    };
    let file = bed.dir.write("prefixes", prefixes(65_000))?;
    limiter.ok(["deny", "--file", file.to_str().context("path")?])?;
    let before = limiter.ok(["lists"])?;
    let more: String = (0..500)
        .map(|n| format!("{}/30\n", std::net::Ipv4Addr::from(0x0b00_0000 + 4 * n)))
        .collect::<Vec<_>>()
        .concat();
    let file = bed.dir.write("more", more)?;
    let file = file.to_str().context("path")?;
    let mut refused = false;
    for _ in 0..2 {
        let output = limiter.cli(["deny", "--file", file])?;
        refused |= !output.status.success();
    }
    ensure!(!refused, "65,500 fit");
    let last: String = (0..100)
        .map(|n| format!("{}/30\n", std::net::Ipv4Addr::from(0x0c00_0000 + 4 * n)))
        .collect::<Vec<_>>()
        .concat();
    let last = bed.dir.write("last", last)?;
    let full = limiter.ok(["lists"])?;
    let output = limiter.cli(["deny", "--file", last.to_str().context("path")?])?;
    ensure_clear_output(&output, "no room on the list")?;
    ensure!(limiter.ok(["lists"])? == full, "some of them are on the list");
    ensure!(full != before);
    ensure_in_force(&bed, 0, "with a full list")?;
    limiter.close()?;
    bed.close()
}
