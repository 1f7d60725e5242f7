//! Allow and deny lists with real frames: before every rule, and through the daemon's death.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Map, MapData};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Five packets, then one in three minutes.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

/// Sends ten packets and returns how many arrive.
fn arrive_of_ten(bed: &Testbed) -> Result<u64> {
    let frames = vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let (_, counts) = bed.measure(vec![Stream { frames, pattern }], Duration::from_millis(200))?;
    Ok(counts.of(IpAddr::from(SOURCE)))
}

#[test]
fn lists_hold_with_and_without_a_daemon() -> Result<()> {
    require_root();
    let bed = Testbed::create("lists")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.json(&["deny", "203.0.113.0/24"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "a denied prefix arrives");
    limiter.json(&["allow", "203.0.113.77", "--for", "1h"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "an allowed source is dropped");
    limiter.kill()?;
    ensure!(arrive_of_ten(&bed)? == 10, "without the daemon the allow list does not hold");
    limiter.start()?;
    let lists = limiter.json(&["lists"])?;
    let entries = lists["entries"].as_array().map_or(0, Vec::len);
    ensure!(entries == 2, "{entries} entries after the restart: {lists}");
    limiter.json(&["unlist", "203.0.113.77"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "the prefix is denied no longer");
    limiter.json(&["unlist", "203.0.113.0/24"])?;
    // Packets that came while it was listed were charged to nobody.
    ensure!(arrive_of_ten(&bed)? == 5, "the rule does not hold after the lists");
    limiter.close()?;
    bed.close()
}

/// Packets of IPv4 stand inside `::/8` in the trie, and are not of it: neither with an entry for
/// all of IPv4, nor after it, nor where an older version left the maps.
#[test]
fn a_prefix_of_ipv6_is_not_for_ipv4() -> Result<()> {
    require_root();
    let bed = Testbed::create("apart")?;
    let mut limiter = bed.limiter("domain: test\ndescriptors: []\n")?;
    limiter.start()?;
    limiter.ok(["deny", "::/8", "--force"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "::/8 is for IPv4");
    limiter.ok(["deny", "::/16", "--force"])?;
    limiter.ok(["unlist", "::/8"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "::/16 is for IPv4");
    limiter.ok(["deny", "0.0.0.0/0", "--force"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "all of IPv4 is denied, and arrives");
    limiter.ok(["unlist", "0.0.0.0/0"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "::/16 is for IPv4 where that was on a list");
    let alone = limiter.cli(["unlist", "0.0.0.0/0"])?;
    ensure!(alone.status.code() == Some(2), "it is asked to be on a list");
    let sources = |limiter: &Limiter| -> Result<Vec<String>> {
        let lists = limiter.json(&["lists"])?;
        let entries = lists["entries"].as_array().context("no entries")?.iter();
        Ok(entries.map(|it| it["source"].as_str().unwrap_or_default().to_owned()).collect())
    };
    ensure!(sources(&limiter)? == ["::/16"], "{:?}", sources(&limiter)?);
    limiter.terminate()?;
    let data = MapData::from_pin(limiter.pins().join("maps/LISTED_PREFIXES"))?;
    let mut prefixes: LpmTrie<_, [u8; 16], [u64; 2]> = Map::from_map_data(data)?.try_into()?;
    let v4 = Key::new(96, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]);
    prefixes.remove(&v4)?;
    ensure!(arrive_of_ten(&bed)? == 0, "this test cannot see what it is about");
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 10, "::/16 is for IPv4 in maps of before");
    ensure!(sources(&limiter)? == ["::/16"], "{:?}", sources(&limiter)?);
    limiter.ok(["unlist", "::/16"])?;
    ensure!(prefixes.keys().count() == 0, "something is left in the trie");
    limiter.close()?;
    bed.close()
}

/// A prefix inside another is one more, and the other holds when it goes.
#[test]
fn a_prefix_around_another_holds_without_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("around")?;
    let mut limiter = bed.limiter("domain: test\ndescriptors: []\n")?;
    limiter.start()?;
    limiter.ok(["deny", "203.0.0.0/16"])?;
    limiter.ok(["deny", "203.0.113.0/24"])?;
    limiter.ok(["unlist", "203.0.113.0/24"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "the prefix around it is not asked any more");
    limiter.ok(["unlist", "203.0.0.0/16"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "it is denied by nobody");
    limiter.close()?;
    bed.close()
}

/// The lists of a rule file: with and without a daemon, on trial, and beside the word of a person.
#[test]
fn the_lists_of_a_rule_file_hold_as_others_do() -> Result<()> {
    require_root();
    let bed = Testbed::create("filelists")?;
    let listed = |lists: &str| format!("{lists}\n{RULES}");
    let mut limiter = bed.limiter(&listed("deny: [{address: 203.0.113.0/24, reason: noise}]"))?;
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 0, "a denied prefix arrives");
    let shown = limiter.ok(["show", "203.0.113.77"])?;
    ensure!(shown.contains("by the rule file: noise"), "{shown}");
    // Without a daemon it holds, and it is known to be of the file.
    limiter.kill()?;
    ensure!(arrive_of_ten(&bed)? == 0, "without the daemon the list does not hold");
    let pins = limiter.pins().display().to_string();
    let shown = limiter.ok(["show", "203.0.113.77", "--pin-dir", &pins])?;
    ensure!(shown.contains("by the rule file"), "{shown}");
    limiter.start()?;
    // On trial what is new ends with it, in the program: the daemon is dead by then.
    let tried = bed.dir.write("tried.yaml", listed("allow: [203.0.113.77]"))?;
    let tried = tried.display().to_string();
    let said = limiter.ok(["apply", &tried, "--confirm", "3s", "--force"])?;
    ensure!(said.contains("203.0.113.0/24 stays on the deny list"), "{said}");
    ensure!(arrive_of_ten(&bed)? == 10, "an allowed source is dropped");
    limiter.kill()?;
    thread::sleep(Duration::from_secs(4));
    ensure!(arrive_of_ten(&bed)? == 0, "the trial outlives its time");
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 0, "the trial outlives the daemon");
    // A person stands over the file at its prefix, and gives it back.
    limiter.ok(["allow", "203.0.113.0/24"])?;
    ensure!(arrive_of_ten(&bed)? == 10, "the word of a person does not count");
    let lists = limiter.ok(["lists"])?;
    ensure!(lists.contains("it is allowed by hand"), "{lists}");
    limiter.ok(["unlist", "203.0.113.0/24"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "the word of the file is not back");
    fs::write(limiter.rules(), RULES)?;
    limiter.ok(["reload"])?;
    ensure!(arrive_of_ten(&bed)? == 5, "the rule does not hold after the lists");
    limiter.close()?;
    bed.close()
}

#[test]
fn what_a_file_listed_a_file_takes_off() -> Result<()> {
    require_root();
    let bed = Testbed::create("unlist")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let file = limiter.rules().with_file_name("denied");
    let name = file.to_str().context("a path of other characters")?;
    // The longest that are written in a request.
    let source =
        |number: u32| format!("2001:db8:{:x}:{:x}::/64\n", 0xff00 + number % 7, 0xf000 + number);
    let sources: Vec<String> = (0..3000).map(source).collect();
    let text = format!("# from somewhere\n203.0.113.0/24 # and why\n\n{}", sources.concat());
    fs::write(&file, text)?;
    limiter.ok(["deny", "--file", name])?;
    limiter.ok(["allow", "192.0.2.1", "192.0.2.2", "192.0.2.3"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "a denied prefix arrives");
    let said = limiter.ok(["unlist", "2001:db8:ff00:f000::1", "192.0.2.1", "192.0.2.1"])?;
    let output = "192.0.2.1: on no list, was allowed for ever\n\
                2001:db8:ff00:f000::/64: on no list, was denied for ever\n2 allowed, 3000 denied\n";
    ensure!(said == output, "{said}");
    let said = limiter.ok(["unlist", "--file", name, "192.0.2.2", "198.51.100.1"])?;
    let output =
        "3003 named: 3001 taken off\n1 allowed, 0 denied\n2 of those named were on no list\n";
    ensure!(said == output, "{said}");
    ensure!(arrive_of_ten(&bed)? == 5, "the rule does not hold after the lists");
    // One alone that is on no list is an error, and a file with a mistake changes nothing.
    let alone = limiter.cli(["unlist", "198.51.100.1"])?;
    let words = String::from_utf8_lossy(&alone.stderr).into_owned();
    ensure!(alone.status.code() == Some(2) && words.contains("it is on no list"), "{words}");
    fs::write(&file, "192.0.2.3\n192.0.2.300\n")?;
    let wrong = limiter.cli(["unlist", "--file", name])?;
    let said = String::from_utf8(wrong.stderr)?;
    ensure!(wrong.status.code() == Some(2) && said.contains("denied:2: "), "{said}");
    ensure!(limiter.json(&["lists"])?["entries"][0]["source"] == "192.0.2.3");
    limiter.close()?;
    bed.close()
}

#[test]
fn a_file_takes_the_place_of_the_list_before() -> Result<()> {
    require_root();
    let bed = Testbed::create("replace")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let list = |text: &str| -> Result<String> {
        Ok(bed.dir.write("list.txt", text)?.display().to_string())
    };
    limiter.ok(["allow", "192.0.2.1"])?;
    limiter.ok(["deny", "192.0.2.2", "198.51.100.0/24"])?;
    let file = list("203.0.113.0/24\n198.51.100.0/24 2h # known\n192.0.2.9 1h\n")?;
    let said = limiter.ok(["deny", "--file", &file, "--for", "30m", "--replace"])?;
    let output = "3 named: 2 new on the deny list, 1 on it before; 0 others taken off\n\
                1 allowed, 4 denied\n";
    ensure!(said == output, "{said}");
    ensure!(arrive_of_ten(&bed)? == 0, "a denied prefix arrives");
    let lists = limiter.json(&["lists"])?;
    let left = |source: &str| {
        let entries = lists["entries"].as_array().into_iter().flatten();
        let mut found = entries.filter(|entry| entry["source"] == source);
        found.next().map(|entry| entry["expires_in_seconds"].as_u64())
    };
    let about = |left: Option<Option<u64>>, seconds: u64| {
        left.flatten().is_some_and(|left| left <= seconds && left + 60 > seconds)
    };
    ensure!(about(left("203.0.113.0/24"), 1800), "{lists}");
    ensure!(about(left("192.0.2.9"), 3600), "{lists}");
    ensure!(left("192.0.2.1") == Some(None), "the other list changed: {lists}");
    // What a person denied is not the file's.
    for by_hand in ["198.51.100.0/24", "192.0.2.2"] {
        ensure!(left(by_hand) == Some(None), "{lists}");
    }
    let file = list("203.0.113.0/24\n")?;
    let said = limiter.ok(["deny", "--file", &file, "--for", "30m", "--replace"])?;
    ensure!(said.contains("0 new on the deny list, 1 on it before; 1 others taken off"), "{said}");
    // Nothing in the file is a mistake, and changes nothing.
    let empty = limiter.cli(["deny", "--file", &list("# none\n")?, "--replace"])?;
    ensure!(empty.status.code() == Some(2), "an empty file takes the place of a list");
    ensure!(arrive_of_ten(&bed)? == 0, "a denied prefix arrives");
    limiter.close()?;
    bed.close()
}

#[test]
fn an_entry_ends_in_the_program_without_a_daemon() -> Result<()> {
    require_root();
    let bed = Testbed::create("expiry")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    limiter.json(&["deny", "203.0.113.77", "--for", "10s"])?;
    ensure!(arrive_of_ten(&bed)? == 0, "a denied source arrives");
    limiter.kill()?;
    // The end may be amid ten packets: then some of the burst are among the next ones.
    let (deadline, mut passed) = (Instant::now() + Duration::from_mins(1), 0);
    while passed < 5 {
        passed += arrive_of_ten(&bed)?;
        ensure!(Instant::now() < deadline, "the entry did not end: {passed} passed");
    }
    ensure!(passed == 5, "{passed} passed: the rule does not hold after the entry");
    limiter.close()?;
    bed.close()
}

/// Kilobytes that the daemon has on its own, without the files that it maps.
fn resident(limiter: &Limiter) -> Result<u64> {
    let pid = limiter.pid().context("the daemon is not running")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("no RssAnon")?.parse()?)
}

/// Waits for what comes by itself.
fn wait(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !done()? {
        ensure!(Instant::now() < deadline, "within two minutes: {what}");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

#[test]
fn memory_of_entries_that_ended_is_given_back() -> Result<()> {
    require_root();
    let bed = Testbed::create("listmemory")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let mut file = String::new();
    for host in 0..100_000u32 {
        writeln!(file, "{}", Ipv4Addr::from(0x0a00_0000 + host))?;
    }
    let file = bed.dir.write("listed.txt", file)?.display().to_string();
    limiter.ok(["deny", "192.0.2.1"])?;
    let before = resident(&limiter)?;
    limiter.ok(["deny", "--file", &file, "--for", "20s"])?;
    let full = resident(&limiter)?;
    ensure!(full > before + 5_000, "{full} kB with 100,000 entries, {before} kB before");
    let most = before + 2_500;
    let given_back = || {
        wait("what the entries took is given back", || Ok(resident(&limiter)? < most))
            .with_context(|| format!("{before} kB, then {full} kB, now {:?}", resident(&limiter)))
    };
    given_back()?;
    wait("all but one are over", || {
        let lists = limiter.json(&["lists"])?;
        Ok(lists["entries"].as_array().map_or(0, Vec::len) == 1)
    })?;
    given_back()?;
    limiter.close()?;
    bed.close()
}
