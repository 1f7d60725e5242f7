//! Upgrades across a change of the maps' layout: what is taken over, and that nothing is without
//! limits in between. On other kernels `cargo xtask vm --system` does such an upgrade.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, HashMap, Map, MapData};
use limiter_common::wire::{ABI_VERSION, Control, LISTS_AUTHORS};
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

fn pinned(limiter: &Limiter, name: &str) -> Result<Map> {
    let data = MapData::from_pin(limiter.pins().join("maps").join(name))?;
    Ok(Map::from_map_data(data)?)
}

/// Makes the pinned maps those of another version, as far as a start can see.
pub(crate) fn age(limiter: &Limiter, abi: u64) -> Result<()> {
    let mut control: Array<_, u64> = pinned(limiter, "CONTROL")?.try_into()?;
    ensure!(control.get(&0, 0)? == ABI_VERSION, "the first word is the number of the layout");
    Ok(control.set(0, abi, 0)?)
}

/// Makes the lists those of a version in which entries had no authors: with ends of any lowest bit,
/// in maps whose word does not have the bit for them. Says how many ends it made odd.
fn without_authors(limiter: &Limiter) -> Result<usize> {
    let mut control: Array<_, u64> = pinned(limiter, "CONTROL")?.try_into()?;
    let index = Control::Lists.index();
    let word = control.get(&index, 0)?;
    ensure!(word & LISTS_AUTHORS != 0, "the maps do not say that they have authors: {word}");
    control.set(index, word & !LISTS_AUTHORS, 0)?;
    let mut listed: HashMap<_, [u8; 16], [u64; 2]> = pinned(limiter, "LISTED")?.try_into()?;
    let mut odd = 0;
    for source in listed.keys().collect::<Result<Vec<_>, _>>()? {
        let [expires, verdict] = listed.get(&source, 0)?;
        if expires != 0 {
            listed.insert(source, [expires | 1, verdict], 0)?;
            odd += 1;
        }
    }
    Ok(odd)
}

/// Source, list and author of each entry.
fn authors(limiter: &Limiter) -> Result<Vec<[String; 3]>> {
    let lists = limiter.json(&["lists"])?;
    let entries = lists["entries"].as_array().context("no entries")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    Ok(entries.iter().map(|it| ["source", "list", "by"].map(|word| text(&it[word]))).collect())
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
    ensure!(pins(&limiter)? == ["links", "links-in", "links-out", "maps"], "{:?}", pins(&limiter)?);
    limiter.close()?;
    bed.close()
}

/// Lists of a file, which come and go with it.
const WITH_LISTS: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 20}}
deny:
  - {address: 203.0.113.90, reason: from the file}\n";

/// Entries of people and programs as they are before and after each start, and of the file.
const AUTHORS: [[&str; 3]; 5] = [
    ["203.0.113.70", "allow", "-"],
    ["203.0.113.78", "deny", "-"],
    ["203.0.113.88", "deny", "-"],
    ["203.0.113.90", "deny", "rule file"],
    ["203.0.113.91", "deny", "fail2ban"],
];

fn list(limiter: &Limiter) -> Result<()> {
    limiter.ok(["deny", "203.0.113.78", "--for", "3d"])?;
    limiter.ok(["allow", "203.0.113.70", "--for", "3d"])?;
    limiter.ok(["deny", "203.0.113.88"])?;
    limiter.ok(["deny", "203.0.113.91", "--for", "3d", "--by", "fail2ban"])?;
    Ok(())
}

/// True if the denied source sends and nothing arrives.
fn is_denied(bed: &Testbed) -> Result<bool> {
    let counts = bed.measure(vec![stream(DENIED, 200.0)], Duration::from_millis(100))?.1;
    Ok(counts.of(IpAddr::from(DENIED)) == 0)
}

#[test]
fn entries_of_people_in_maps_without_authors_stay_theirs() -> Result<()> {
    require_root();
    let bed = Testbed::create("authors")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    list(&limiter)?;
    limiter.terminate()?;
    ensure!(without_authors(&limiter)? == 3, "other ends were made odd");
    // The rule file of this version has a list of its own.
    std::fs::write(limiter.rules(), WITH_LISTS)?;
    limiter.start()?;
    ensure!(authors(&limiter)? == AUTHORS, "{:?}", authors(&limiter)?);
    ensure!(is_denied(&bed)?, "a denied source passed");
    // Maps that say who wrote what are read so: nothing of the file becomes a person's.
    limiter.terminate()?;
    limiter.start()?;
    ensure!(authors(&limiter)? == AUTHORS, "{:?}", authors(&limiter)?);
    std::fs::write(limiter.rules(), RULES)?;
    limiter.ok(["reload"])?;
    let left: Vec<_> = AUTHORS.into_iter().filter(|[_, _, by]| *by != "rule file").collect();
    ensure!(authors(&limiter)? == left, "{:?}", authors(&limiter)?);
    limiter.close()?;
    bed.close()
}

/// The maps are all there is: the names of programs are nowhere else, and their entries count as
/// people's.
#[test]
fn entries_in_maps_without_authors_stay_without_a_state_directory() -> Result<()> {
    require_root();
    let bed = Testbed::create("alone")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    list(&limiter)?;
    limiter.terminate()?;
    ensure!(without_authors(&limiter)? == 3, "other ends were made odd");
    std::fs::write(limiter.rules(), WITH_LISTS)?;
    let empty = bed.dir.path().join("empty");
    limiter.keep_in(&empty);
    limiter.start()?;
    let nameless =
        AUTHORS.map(|[source, list, by]| [source, list, if by == "rule file" { by } else { "-" }]);
    ensure!(authors(&limiter)? == nameless, "{:?}", authors(&limiter)?);
    ensure!(is_denied(&bed)?, "a denied source passed");
    // What was adopted is in the new directory, so that it outlives the maps.
    limiter.terminate()?;
    let stored = std::fs::read_to_string(empty.join("lists.json"))?;
    for [source, _, by] in AUTHORS {
        ensure!(stored.contains(source) == (by != "rule file"), "{source}: {stored}");
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn a_change_of_the_layout_keeps_lists_without_a_state_directory() -> Result<()> {
    require_root();
    let bed = Testbed::create("unstated")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    list(&limiter)?;
    limiter.terminate()?;
    without_authors(&limiter)?;
    age(&limiter, ABI_VERSION - 1)?;
    limiter.keep_in(&bed.dir.path().join("empty"));
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("lists and the bypass are as before"), "{said}");
    let kept = authors(&limiter)?;
    let theirs = AUTHORS.into_iter().filter(|[_, _, by]| *by != "rule file");
    let nameless: Vec<_> = theirs.map(|[source, list, _]| [source, list, "-"]).collect();
    ensure!(kept == nameless, "{kept:?}");
    ensure!(is_denied(&bed)?, "a denied source passed");
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
    ensure!(said.contains("the lists are those of the state directory"), "{said}");
    ensure!(limiter.json(&["bans"])?["entries"].as_array().context("no list")?.is_empty());
    ensure!(limiter.json(&["status"])?["bypass"] == true, "{}", limiter.json(&["status"])?);
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
    ensure!(pins(&limiter)? == ["links", "links-in", "links-out", "maps"], "{:?}", pins(&limiter)?);
    // The rest of a start that was killed.
    std::fs::create_dir(limiter.pins().join("maps-next"))?;
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("are replaced"), "{said}");
    ensure!(pins(&limiter)? == ["links", "links-in", "links-out", "maps"], "{:?}", pins(&limiter)?);
    limiter.close()?;
    bed.close()
}
