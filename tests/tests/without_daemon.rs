//! `limiter list`, `stats` and `show` where no daemon answers: from the maps that it left pinned.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, Map, MapData};
use limiter_tests::clock;
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use serde_json::{Value, json};

const SOURCE: [u8; 4] = [203, 0, 113, 77];
const CUSTOMER: [u8; 4] = [192, 0, 2, 7];
const DENIED: [u8; 4] = [198, 51, 100, 3];

/// Rules of every table, so slow that nothing comes back while the test looks.
const RULES: &str = "domain: test
budgets:
  - {name: customer, rate_limit: {unit: day, requests_per_unit: 6, burst: 4}}
descriptors:
  - {key: remote_address, rate_limit: {name: all, unit: day, requests_per_unit: 20, burst: 5}}
  - {key: remote_address, value: 192.0.2.0/24, budget: customer}
  - {key: remote_address, value: 198.51.100.9, rate_limit: {rate: 10mbit/s, burst: 60kB}}
  - {key: remote_address, value: 203.0.113.99, rate_limit: {name: monitoring, unlimited: true}}
  - key: protocol
    value: udp
    descriptors:
      - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 30, burst: 3}}
  - key: destination_port
    value: 1000-1999
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 90}
";

/// Another limit for all, to be tried.
const TRIED: &str = "domain: test
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 9, burst: 2}}
";

fn address(source: [u8; 4]) -> String {
    IpAddr::from(source).to_string()
}

/// Sends ten packets of each source.
fn send(bed: &Testbed) -> Result<()> {
    for source in [SOURCE, CUSTOMER, DENIED] {
        let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
        let frames = vec![Frame::ipv4(source, RECEIVER.ipv4.octets()).build()];
        let (recordings, _) =
            bed.measure(vec![Stream { frames, pattern }], Duration::from_millis(100))?;
        ensure!(recordings[0].times.len() == 10, "{} were sent", recordings[0].times.len());
    }
    Ok(())
}

/// All answers, each under its command; without a daemon they are read from `pins`.
fn answers(limiter: &Limiter, by_maps: bool) -> Result<BTreeMap<String, Value>> {
    let pins = limiter.pins().to_string_lossy().into_owned();
    let mut commands = vec![vec!["list".to_owned()], vec!["stats".to_owned()]];
    let shown = [address(SOURCE), address(CUSTOMER), address(DENIED)];
    let others = ["198.51.100.9", "203.0.113.99", "2001:db8::1", "203.0.113.55"].map(str::to_owned);
    commands.extend(shown.into_iter().chain(others).map(|of| vec!["show".to_owned(), of]));
    let mut answers = BTreeMap::new();
    for mut command in commands {
        let name = command.join(" ");
        if by_maps {
            command.extend(["--pin-dir".to_owned(), pins.clone()]);
        }
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        answers.insert(name, limiter.json(&words)?);
    }
    Ok(answers)
}

/// A rule without the name that stands before it: `ssh (destination_port=22 remote_address)`.
fn without_name(rule: &Value) -> String {
    let text = rule.as_str().unwrap_or_default();
    let keys = text.split_once(" (").and_then(|(_, keys)| keys.strip_suffix(')'));
    keys.unwrap_or(text).to_owned()
}

/// An answer without what no map holds, and without what time changes.
fn comparable(answer: &Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                // Only a daemon compares two readings, and has events.
                let unknown = ["generation", "name", "origin", "rule_name", "unknown", "warnings"];
                for unknown in unknown.into_iter().chain(["rows", "since", "dropped_per_second"]) {
                    fields.remove(unknown);
                }
                // Only a daemon has read the events; without one a total is a part.
                if let Some(Value::Array(rules)) = fields.get_mut("by_rule") {
                    let sampled = rules.iter().filter(|rule| rule["exact"] == false);
                    let sampled: u64 = sampled.filter_map(|rule| rule["dropped"].as_u64()).sum();
                    rules.retain(|rule| rule["exact"] == true);
                    let dropped = fields["dropped"].as_u64().unwrap_or(0);
                    fields.insert("dropped".to_owned(), json!(dropped - sampled));
                    fields.remove("dropped_at_least");
                }
                if let Some(Value::Array(rules)) = fields.get_mut("other_rules") {
                    for rule in rules {
                        *rule = json!(without_name(rule));
                    }
                }
                for (field, of) in fields.iter_mut() {
                    if field == "full_in_ns" || field == "banned_seconds" {
                        *of = json!(of.as_u64().is_some_and(|time| time > 0));
                    }
                    walk(of);
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(walk);
                // Rules on other keys stand in the order of the file, which is not in the maps.
                items.sort_by_key(ToString::to_string);
            }
            Value::String(text) => *text = text.replace("customer", "(unknown 1)"),
            _ => {}
        }
    }
    let mut answer = answer.clone();
    walk(&mut answer);
    answer
}

fn ensure_same(read: &BTreeMap<String, Value>, reported: &BTreeMap<String, Value>) -> Result<()> {
    for (command, reported) in reported {
        let read = read.get(command).with_context(|| format!("no {command}"))?;
        let (read, reported) = (comparable(read), comparable(reported));
        ensure!(
            read == reported,
            "{command}: the maps say\n{read:#}\nand the daemon said\n{reported:#}"
        );
    }
    Ok(())
}

/// Everything under the pin directory: each pin with what the file system knows of it, and the
/// words of `CONTROL`.
fn state(limiter: &Limiter) -> Result<Vec<String>> {
    let mut state = Vec::new();
    for part in ["", "maps", "links"] {
        for entry in fs::read_dir(limiter.pins().join(part))? {
            let (path, at) = {
                let entry = entry?;
                (entry.path(), entry.metadata()?)
            };
            let facts = (at.ino(), at.mode(), at.uid(), at.mtime(), at.mtime_nsec());
            state.push(format!("{} {facts:?}", path.display()));
        }
    }
    state.sort();
    let control = Map::from_map_data(MapData::from_pin(limiter.pins().join("maps/CONTROL"))?)?;
    let control: Array<MapData, u64> = control.try_into()?;
    for index in 0..control.len() {
        state.push(format!("{index}: {}", control.get(&index, 0)?));
    }
    Ok(state)
}

/// Standard error of `limiter list` on the pins.
fn said(limiter: &Limiter) -> Result<String> {
    let pins = limiter.pins().to_string_lossy().into_owned();
    let output = limiter.cli(["list", "--pin-dir", &pins])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stderr)?)
}

#[test]
fn the_maps_answer_as_the_daemon_did() -> Result<()> {
    require_root();
    ["hash", "lines"].into_iter().try_for_each(the_maps_answer)
}

fn the_maps_answer(source_store: &str) -> Result<()> {
    let bed = Testbed::create("answer")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.options(["--source-table", source_store]).start()?;
    limiter.ok(["set", "203.0.113.55", "5/day"])?;
    limiter.ok(["unset", "203.0.113.55"])?;
    limiter.ok(["set", "203.0.113.55", "7/day", "--name", "slow one"])?;
    limiter.ok(["deny", "198.51.100.0/29"])?;
    limiter.ok(["allow", "203.0.113.99"])?;
    limiter.ok(["ban", "203.0.113.55", "--for", "1h"])?;
    send(&bed)?;
    let reported = answers(&limiter, false)?;
    let dropped = reported["stats"]["dropped"]["packets"].as_u64();
    ensure!(dropped.is_some_and(|dropped| dropped >= 5 + 6 + 10), "{}", reported["stats"]);
    // A daemon that has the maps answers, also where they are named.
    ensure!(answers(&limiter, true)?["list"]["limits"][0]["origin"] == "file");
    limiter.kill()?;

    let before = state(&limiter)?;
    let read = answers(&limiter, true)?;
    ensure_same(&read, &reported)?;
    let denied = &read[&format!("show {}", address(DENIED))];
    ensure!(denied["dropped_at_least"] == true, "{denied}");
    ensure!(read["list"]["generation"] == reported["list"]["generation"], "{}", read["list"]);
    ensure!(read["list"]["limits"][0]["origin"] == "unknown", "{}", read["list"]);
    ensure!(read["list"]["unknown"][0].as_str().is_some_and(|text| text.contains("labels")));
    let text = said(&limiter)?;
    for words in ["read from the maps in", "the limits are in force on", "do not hold names"] {
        ensure!(text.contains(words), "{words}: {text}");
    }
    // Nobody knows where the maps of this socket are.
    let unnamed = limiter.cli(["list"])?;
    let error = String::from_utf8_lossy(&unnamed.stderr).into_owned();
    ensure!(
        unnamed.status.code() == Some(2) && error.contains("no daemon at")
            || error.contains("is gone"),
        "{error}"
    );
    limiter.on_pins("off")?;
    let bypassed = said(&limiter)?;
    ensure!(bypassed.contains("the bypass lets every packet pass"), "{bypassed}");
    limiter.on_pins("on")?;
    refuse_a_plain_user(&limiter)?;
    ensure!(state(&limiter)? == before, "{:#?}\n{before:#?}", state(&limiter)?);

    // Maps that were only read are taken over, with all that was counted.
    limiter.start()?;
    ensure_same(&answers(&limiter, false)?, &reported)?;
    limiter.close()?;
    bed.close()
}

fn refuse_a_plain_user(limiter: &Limiter) -> Result<()> {
    let plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut command = Command::new(plain[0]);
    command.args(&plain[1..]).arg(limiter.binary()).arg("--socket").arg(limiter.socket());
    let output = command.args(["list", "--pin-dir"]).arg(limiter.pins()).output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success() && error.contains("root"), "{error}");
    Ok(())
}

/// A trial that nobody confirms ends by itself, and the maps say so; they know how long it lasts.
#[test]
fn a_trial_is_reported_while_it_lasts_and_not_after() -> Result<()> {
    require_root();
    let bed = Testbed::create("tried")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let reported = answers(&limiter, false)?;
    let file = limiter.rules().with_file_name("tried.yaml");
    fs::write(&file, TRIED)?;
    let name = file.to_string_lossy().into_owned();
    limiter.ok(["apply", "--force", "--confirm", "10s", &name])?;
    let begun = clock::now();
    limiter.kill()?;
    let pins = limiter.pins().to_string_lossy().into_owned();
    let list = limiter.json(&["list", "--pin-dir", &pins])?;
    let tried = &list["limits"][0]["limits"][0]["text"];
    let text = said(&limiter)?;
    if clock::now() - begun < 9_000_000_000 {
        ensure!(tried == "9/hour burst 2", "{list}");
        ensure!(text.contains("on trial"), "{text}");
    }
    clock::sleep_until(begun + 10_500_000_000);
    let text = said(&limiter)?;
    ensure!(!text.contains("on trial"), "{text}");
    let before = state(&limiter)?;
    let read = answers(&limiter, true)?;
    let generation = |list: &Value| list["generation"].as_u64().context("no generation");
    // The program went on to the generation after the trial.
    ensure!(generation(&read["list"])? == generation(&reported["list"])? + 2, "{}", read["list"]);
    let rules = |list: &Value| comparable(&list["limits"]);
    ensure!(rules(&read["list"]) == rules(&reported["list"]), "{:#}", read["list"]);
    ensure!(state(&limiter)? == before);
    limiter.close()?;
    bed.close()
}
