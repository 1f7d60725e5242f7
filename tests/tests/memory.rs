//! Memory of the maps and of the daemon.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::{map_memory, process};

/// The bytes of a key and of a flow on the page of `limiter run`'s options are what the kernel
/// accounts for.
#[test]
fn a_key_takes_the_bytes_that_the_page_says() -> Result<()> {
    const KEYS: u64 = 65_536;
    require_root();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/service.md");
    let page = std::fs::read_to_string(page)?;
    let row = page.lines().find(|line| line.starts_with("| `--max-keys N`")).context("no row")?;
    let bed = Testbed::create("keybytes")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    limiter.options(["--max-keys", &KEYS.to_string()]).start()?;
    let maps = map_memory::maps(&limiter.pins().join("maps"))?;
    let bytes = |names: &[&str]| -> Result<u64> {
        let of = |name: &&str| maps.iter().find(|(map, _)| map == name).map(|(_, bytes)| *bytes);
        let sizes = names.iter().map(|name| of(name).with_context(|| format!("no map {name}")));
        Ok(sizes.sum::<Result<u64>>()? / KEYS)
    };
    let (key, flow) = (bytes(&["KEYED", "FRAMES_KEYED"])?, bytes(&["FLOWS"])?);
    let output = format!("{key} bytes each, and {flow} for flows");
    ensure!(row.contains(&output), "it is {output}, the page says: {row}");
    limiter.close()?;
    bed.close()
}

/// The bytes of a source in lines on that page are what the kernel accounts for.
#[test]
fn a_source_takes_the_bytes_that_the_page_says() -> Result<()> {
    const SOURCES: u64 = 262_144;
    const KEYS: u64 = 65_536;
    require_root();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/service.md");
    let page = std::fs::read_to_string(page)?;
    let row = page.lines().find(|line| line.starts_with("| `--max-sources N`"));
    let row = row.context("no row")?;
    let bed = Testbed::create("linebytes")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    let (sources, keys) = (SOURCES.to_string(), KEYS.to_string());
    let options = ["--source-table", "lines", "--max-sources", &sources, "--max-keys", &keys];
    limiter.options(options).start()?;
    let maps = map_memory::maps(&limiter.pins().join("maps"))?;
    let (_, bytes) = maps.iter().find(|(map, _)| map == "LINES").context("no map LINES")?;
    let output = format!("{} in lines", bytes / (2 * SOURCES + KEYS));
    ensure!(row.contains(&output), "LINES is {bytes} bytes, the page says: {row}");
    limiter.close()?;
    bed.close()
}

/// A large rule set that is replaced by none is not kept, neither by the daemon nor by its
/// allocator.
#[test]
fn memory_of_large_rule_sets_is_given_back() -> Result<()> {
    require_root();
    let bed = Testbed::create("given-back")?;
    let mut limiter = bed.limiter("descriptors: []\n")?;
    limiter.options(["--max-rules", "65536"]).start()?;
    let pid = limiter.pid().context("no daemon")?;
    let none = bed.dir.write("none.yaml", "descriptors: []\n")?;
    // A start leaves over more than the rules take.
    limiter.ok(["apply", &none.to_string_lossy()])?;
    let before = settled(pid)?;
    let rule = |number: u32| {
        let [_, _, a, b] = number.to_be_bytes();
        format!(
            "  - {{key: remote_address, value: 10.0.{a}.{b}, rate_limit: {{unit: second, \
             requests_per_unit: 5}}}}\n"
        )
    };
    let rules: Vec<String> = (0..20_000).map(rule).collect();
    let rules = format!("descriptors:\n{}", rules.concat());
    let large = bed.dir.write("large.yaml", rules)?;
    limiter.ok(["apply", &large.to_string_lossy()])?;
    let with_rules = process::memory(pid)?.own;
    for _ in 0..2 {
        limiter.ok(["apply", &none.to_string_lossy()])?;
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    // Less than a quarter of what 20,000 rules take is left: of every thread that read them, the
    // allocator keeps a little.
    while process::memory(pid)?.own > before + (with_rules - before) / 4.0 {
        ensure!(Instant::now() < deadline, "{with_rules} bytes, then {:?}", process::memory(pid)?);
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(with_rules > before + 4e6, "{before} bytes, then {with_rules}: this measures nothing");
    limiter.close()?;
    bed.close()
}

/// The memory of a process of its own in bytes, once it has not changed for 2.5 s: what is left
/// over is given back once a second.
fn settled(pid: u32) -> Result<f64> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let (mut seen, mut since) = (process::memory(pid)?.own, Instant::now());
    while since.elapsed() < Duration::from_millis(2_500) {
        ensure!(Instant::now() < deadline, "the memory of the daemon at rest goes on changing");
        std::thread::sleep(Duration::from_millis(50));
        let own = process::memory(pid)?.own;
        if (own - seen).abs() >= 1.0 {
            (seen, since) = (own, Instant::now());
        }
    }
    Ok(seen)
}
