//! Upgrades across a change of the maps' layout: what is taken over, and that nothing is without
//! limits in between. On other kernels `cargo xtask vm --system` does such an upgrade.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, Map, MapData};
use limiter_common::wire::ABI_VERSION;
use limiter_tests::clock;
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::receiver::Receiver;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

const SOURCE: [u8; 4] = [203, 0, 113, 77];
const DENIED: [u8; 4] = [203, 0, 113, 78];
const BANNED: [u8; 4] = [203, 0, 113, 79];

/// Twenty at once, and then next to none.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 20}}\n";

fn stream(source: [u8; 4], per_second: f64) -> Stream {
    let frames = vec![Frame::ipv4(source, RECEIVER.ipv4.octets()).build()];
    Stream { frames, pattern: Pattern::Paced { per_second } }
}

/// Makes the pinned maps those of another version, as far as a start can see.
fn age(limiter: &Limiter, abi: u64) -> Result<()> {
    let data = MapData::from_pin(limiter.pins().join("maps/CONTROL"))?;
    let mut control: Array<_, u64> = Map::from_map_data(data)?.try_into()?;
    ensure!(control.get(&0, 0)? == ABI_VERSION, "the first word is the number of the layout");
    Ok(control.set(0, abi, 0)?)
}

/// Names of the pins, by directory.
fn pins(limiter: &Limiter) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(limiter.pins())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[test]
fn a_change_of_the_layout_lets_nothing_pass_and_keeps_lists_bans_and_edits() -> Result<()> {
    require_root();
    let bed = Testbed::create("layout")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["deny", &IpAddr::from(DENIED).to_string()])?;
    limiter.ok(["ban", &IpAddr::from(BANNED).to_string(), "--for", "1h"])?;
    limiter.ok(["set", "203.0.113.80/32", "7/week", "--burst", "7"])?;
    let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
    let streams = vec![stream(SOURCE, 2_000.0), stream(DENIED, 200.0), stream(BANNED, 200.0)];
    let time = Duration::from_mins(5);
    let generator = Generator::start(&bed.sender, SENDER.interface, streams, time, 1 << 20)?;
    clock::sleep_until(clock::now() + 500_000_000);
    let program = limiter.xdp()?;
    limiter.terminate()?;
    age(&limiter, ABI_VERSION - 1)?;
    limiter.start()?;
    let said = limiter.said();
    clock::sleep_until(clock::now() + 500_000_000);
    ensure!(!generator.is_finished(), "the traffic ended before the start was over");
    generator.stop();
    let recordings = generator.finish()?;
    bed.wait_until_met(recordings.iter().map(|sent| sent.times.len() as u64).sum())?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    ensure!(bed.lost_on_link()? == 0, "frames were lost on the link");

    ensure!(limiter.xdp()? != program, "the program is the old one");
    // A burst in the old maps and one in the new ones, and not one packet by neither.
    ensure!(counts.of(IpAddr::from(SOURCE)) == 40, "{} passed", counts.of(IpAddr::from(SOURCE)));
    for none in [DENIED, BANNED] {
        ensure!(counts.of(IpAddr::from(none)) == 0, "{none:?} passed");
    }
    let layout = format!("layout {}", ABI_VERSION - 1);
    for part in [layout.as_str(), "1 source with bans", "begin anew"] {
        ensure!(said.contains(part), "no {part:?} in {said}");
    }
    ensure!(limiter.json(&["status"])?["interfaces"][0]["adopted"] == true);
    let bans = limiter.json(&["bans"])?;
    ensure!(bans["entries"][0]["source"] == IpAddr::from(BANNED).to_string(), "{bans}");
    ensure!(bans["entries"][0]["by_hand"] == true, "{bans}");
    let listed = limiter.json(&["lists"])?.to_string();
    ensure!(listed.contains("203.0.113.78"), "{listed}");
    let rules = limiter.ok(["list"])?;
    ensure!(rules.contains("203.0.113.80"), "{rules}");
    ensure!(pins(&limiter)? == ["links", "maps"], "{:?}", pins(&limiter)?);
    limiter.close()?;
    bed.close()
}

#[test]
fn an_unknown_layout_is_replaced_and_what_is_lost_is_named() -> Result<()> {
    require_root();
    let bed = Testbed::create("unknown")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.ok(["ban", &IpAddr::from(BANNED).to_string(), "--for", "1h"])?;
    limiter.ok(["off"])?;
    limiter.terminate()?;
    age(&limiter, ABI_VERSION + 1_000)?;
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("bans could not be read, and are forgotten"), "{said}");
    ensure!(limiter.json(&["bans"])?["entries"].as_array().context("no list")?.is_empty());
    ensure!(limiter.json(&["status"])?["brake"] == true, "{}", limiter.json(&["status"])?);
    limiter.close()?;
    bed.close()
}

#[test]
fn a_start_that_fails_leaves_the_old_maps_in_force() -> Result<()> {
    require_root();
    let bed = Testbed::create("stays")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let program = limiter.xdp()?;
    limiter.terminate()?;
    age(&limiter, ABI_VERSION - 1)?;
    // Read once the new maps are made.
    let lists = bed.dir.path().join("state/lists.json");
    std::fs::create_dir(&lists)?;
    ensure!(limiter.start().is_err(), "it started without its lists");
    std::fs::remove_dir(&lists)?;
    ensure!(limiter.xdp()? == program, "a start that failed replaced the program");
    ensure!(pins(&limiter)? == ["links", "maps"], "{:?}", pins(&limiter)?);
    // The rest of a start that was killed.
    std::fs::create_dir(limiter.pins().join("maps-next"))?;
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("are replaced"), "{said}");
    ensure!(pins(&limiter)? == ["links", "maps"], "{:?}", pins(&limiter)?);
    limiter.close()?;
    bed.close()
}
