//! The search for a culprit: `limiter sources` and `limiter top` beside 200,000 sources.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::live_frames::{self, Family, LiveFrames, Load, Regular, Sources};
use limiter_tests::root::require_root;
use limiter_tests::terminal::Session;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use rustix::process::Signal;
use rustix::termios::LocalModes;
use serde_json::Value;

/// One packet keeps a source for a minute: anybody who has drained may leave for somebody new.
const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 60, burst: 20}}
  - {key: remote_address, value: 10.30.0.0/16, rate_limit: {unit: second, requests_per_unit: \
  4000, burst: 4000}}\n";

const MANY: u64 = 200_000;

/// Over their limit, with what they send a second.
const HEAVY: [(&str, [u8; 4], u32); 3] = [
    ("10.20.0.1", [10, 20, 0, 1], 4000),
    ("10.20.1.1", [10, 20, 1, 1], 1500),
    ("10.20.2.1", [10, 20, 2, 1], 500),
];

const BUSY: (&str, [u8; 4], u32) = ("10.30.0.1", [10, 30, 0, 1], 2500);

const PATIENCE: Duration = Duration::from_mins(1);

fn load(frames: u64, regular: Vec<Regular>) -> Load {
    Load {
        sources: Sources::New(0),
        family: Family::V4,
        length: 60,
        per_second: Some(150_000),
        frames,
        duration: Duration::from_mins(10),
        regular,
        place: None,
    }
}

/// A limiter that has seen everybody once.
fn crowd(bed: &Testbed) -> Result<Limiter> {
    let mut limiter = bed.limiter(RULES)?;
    limiter.options(["--max-sources", "1048576"]);
    limiter.start()?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    LiveFrames::start(&bed.sender, SENDER.interface, &load(MANY, Vec::new()))?.finish()?;
    let v6 = Load { family: Family::V6, length: 80, ..load(1_000, Vec::new()) };
    LiveFrames::start(&bed.sender, SENDER.interface, &v6)?.finish()?;
    bed.wait_until_met(MANY + v6.frames)?;
    Ok(limiter)
}

fn heavy(bed: &Testbed) -> Result<LiveFrames> {
    let group =
        |address, per_second| Regular { first: u32::from_be_bytes(address), count: 1, per_second };
    let mut regular: Vec<Regular> =
        HEAVY.iter().map(|(_, address, per_second)| group(*address, *per_second)).collect();
    regular.push(group(BUSY.1, BUSY.2));
    LiveFrames::start(&bed.sender, SENDER.interface, &load(0, regular))
}

fn number(document: &Value, path: &str) -> Result<u64> {
    document.pointer(path).and_then(Value::as_u64).with_context(|| format!("{path}: {document}"))
}

fn request(limiter: &Limiter, path: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(limiter.socket())?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: limiter\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").with_context(|| answer.clone())?;
    Ok(serde_json::from_str(body)?)
}

fn names(document: &Value) -> Vec<&str> {
    let rows = document["sources"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter_map(|row| row["source"].as_str()).collect()
}

fn denied(limiter: &Limiter) -> Result<u64> {
    let stats = limiter.json(&["stats"])?;
    let reasons = stats["reasons"].as_array().context("no reasons")?;
    let row = reasons.iter().find(|row| row["reason"] == "denied").context("no such reason")?;
    number(row, "/packets")
}

/// `limiter top` in a terminal.
fn session(bed: &Testbed, limiter: &Limiter, args: &[&str]) -> Result<Session> {
    let mut command = Command::new(limiter.binary());
    command.arg("--socket").arg(limiter.socket()).arg("top").args(args).env_remove("NO_COLOR");
    Session::start(&bed.receiver, &mut command, 30, 110)
}

fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        ensure!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The rows below the names of the columns, wherever the headline ends.
fn first_rows(text: &str, count: usize) -> Vec<&str> {
    let below = text.lines().skip_while(|line| !line.starts_with("SOURCE"));
    below.skip(1).take(count).collect()
}

/// The interface has rates, and the drops are events; a pause keeps what is shown. Ends on the tab
/// of sources.
fn other_tabs(watching: &mut Session) -> Result<()> {
    watching.keys("4")?;
    watching.wait_for("rates", |text| {
        let row = text.lines().find(|line| line.contains(RECEIVER.interface));
        row.is_some_and(|line| line.contains("limited") && line.matches("bit/s").count() == 2)
    })?;
    watching.keys("2p")?;
    watching.wait_for("events in a pause", |text| {
        text.contains("PAUSED") && text.contains("ongoing") && text.contains(" ago ")
    })?;
    watching.keys("p1")?;
    watching.wait_for("the sources", |text| !text.contains("PAUSED") && text.contains("REASON"))?;
    Ok(())
}

#[test]
fn those_who_stand_out_are_found_and_dealt_with() -> Result<()> {
    require_root();
    let bed = Testbed::create("top")?;
    let limiter = crowd(&bed)?;

    // Everybody is counted, once: by what is in the maps, and by what the program says that it put
    // there.
    let all = limiter.json(&["sources", "--top", "5"])?;
    let (v4, v6) = (number(&all, "/tracked_v4")?, number(&all, "/tracked_v6")?);
    let made = request(&limiter, "/v1/top")?;
    ensure!(v4 == number(&made, "/tracked_v4")? && v6 == number(&made, "/tracked_v6")?, "{made}");
    // The cable's queue may have had no room for some.
    let lost = bed.lost_on_link()?;
    ensure!(v4 + lost > MANY * 9 / 10 && v6 + lost >= 900, "{v4} and {v6} sources, {lost} lost");
    ensure!(lost < MANY / 2, "{lost} frames were lost on the link");
    let inside = limiter.json(&["sources", "--within", "16.0.0.0/5"])?;
    let half = number(&inside, "/within")?;
    ensure!((v4 * 4 / 10..v4 * 6 / 10).contains(&half), "{half} of {v4}");

    let before_them = bed.met()?;
    let mut generator = heavy(&bed)?;
    let expected: Vec<&str> = HEAVY.iter().map(|(name, ..)| *name).collect();
    let order = |by: &str, top: &str| limiter.json(&["sources", "--by", by, "--top", top]);
    wait_until("the order of drops", || {
        Ok(names(&order("dropped", "3")?) == expected
            && names(&order("drop-rate", "3")?) == expected)
    })?;
    wait_until("the order of rates", || {
        Ok(names(&order("rate", "3")?) == [HEAVY[0].0, BUSY.0, HEAVY[1].0])
    })?;
    wait_until("who passes most", || Ok(names(&order("passed", "1")?) == [BUSY.0]))?;
    let near = order("utilization", "1000")?;
    ensure!(expected.iter().all(|name| names(&near).contains(name)), "{:?}", names(&near));

    // `limiter top` shows that order, by a part of all sources at each look.
    let mut watching = session(&bed, &limiter, &["--interval", "250ms"])?;
    watching.wait_for("order of the dropped", |text| {
        let places: Vec<_> = expected.iter().map(|name| text.find(name)).collect();
        places.iter().all(Option::is_some) && places.is_sorted()
    })?;
    watching.keys("ss")?;
    watching.wait_for("one that passes", |text| {
        let rows = first_rows(text, 2).join("\n");
        text.contains("by packets a second") && rows.contains(BUSY.0) && rows.contains(expected[0])
    })?;

    // There: one source, the deny list and back, a ban for a time, another limit.
    watching.keys("sss")?;
    watching.wait_for("the first order", |text| {
        text.contains("by drops a second")
            && first_rows(text, 1).iter().any(|line| line.contains(expected[0]))
    })?;
    other_tabs(&mut watching)?;
    watching.keys("\r")?;
    watching.wait_for("one source", |text| text.contains("bucket") && text.contains("20 of 20"))?;
    ensure!(watching.text().contains("b deny for a time"), "{}", watching.text());
    let before = denied(&limiter)?;
    watching.keys("d")?;
    watching.wait_for("question", |text| text.contains("y yes"))?;
    ensure!(denied(&limiter)? == before, "denied without a yes");
    watching.keys("y")?;
    watching.wait_for("word of the deny list", |text| text.contains("denied: every packet"))?;
    wait_until("drops of a denied source", || Ok(denied(&limiter)? > before))?;
    ensure!(limiter.json(&["show", expected[0]])?["listed"] == "deny");
    watching.keys("u")?;
    watching.wait_for("question", |text| text.contains("off the deny list"))?;
    watching.keys("y")?;
    watching.wait_for("nobody on a list", |text| text.contains("on none"))?;
    watching.keys("b")?;
    watching.wait_for("word of the deny list", |text| text.contains(" deny list "))?;
    watching.keys("\r")?;
    watching.wait_for("a ban for a time", |text| text.contains("is denied for 10 min"))?;
    let lists = limiter.json(&["lists"])?;
    ensure!(lists["entries"][0]["source"] == expected[0], "{lists}");
    ensure!(lists["entries"][0]["expires_in_seconds"].is_u64(), "{lists}");
    watching.keys("uy")?;
    watching.wait_for("nobody on a list", |text| text.contains("on none"))?;
    watching.keys("l")?;
    watching.wait_for("question", |text| text.contains("as in 100/s"))?;
    // The prompt comes with the limit in force, which goes with the first key.
    watching.keys("77/x\r")?;
    watching.wait_for("what is wrong", |text| text.contains("77/x"))?;
    watching.keys("\u{7f}s\r")?;
    watching.wait_for("the new limit", |text| text.contains("has 77/s"))?;
    ensure!(limiter.json(&["show", expected[0]])?["limit"] == "77/s");
    watching.keys("q")?;
    ensure!(watching.ended()?.success());
    ensure!(!watching.with_screen(vt100::Screen::alternate_screen), "the other screen is left on");
    ensure!(!watching.with_screen(vt100::Screen::hide_cursor), "there is no cursor");

    // For scripts.
    let text = limiter.ok(["top", "--once", "--interval", "250ms"])?;
    ensure!(text.starts_with("limits on, generation 2") && text.contains(expected[1]), "{text}");
    generator.stop();
    let sent = generator.finish()?;
    bed.wait_until_met(before_them + sent.regular.iter().sum::<u64>())?;
    let rows = limiter.json(&["sources", "--top", "3"])?;
    for row in rows["sources"].as_array().context("no rows")? {
        let name = row["source"].as_str().context("no name")?;
        let shown = limiter.json(&["show", name])?;
        ensure!(
            shown["dropped"] == row["dropped"] && shown["passed"] == row["passed"],
            "{row} {shown}"
        );
    }
    limiter.close()?;
    bed.close()
}

/// Whatever happens to it, the terminal is given back.
#[test]
fn the_terminal_is_given_back() -> Result<()> {
    require_root();
    let bed = Testbed::create("term")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut watching = session(&bed, &limiter, &[])?;
        watching.wait_for("the view", |text| text.contains("limits on"))?;
        ensure!(!watching.modes()?.local_modes.contains(LocalModes::ECHO), "not in raw mode");
        for (rows, columns) in [(10, 40), (1, 1), (2, 300), (30, 3), (24, 80)] {
            watching.resize(rows, columns)?;
            watching.keys("?")?;
            thread::sleep(Duration::from_millis(150));
            watching.keys("\u{1b}")?;
            ensure!(watching.is_running()?, "{rows} x {columns}:\n{}", watching.text());
        }
        watching.wait_for("the view again", |text| text.contains("limits on"))?;
        watching.signal(signal)?;
        ensure!(watching.ended()?.success());
        ensure!(watching.modes()?.local_modes.contains(LocalModes::ECHO), "still in raw mode");
        ensure!(!watching.with_screen(vt100::Screen::alternate_screen));
    }

    // The daemon goes and comes: the view says so, and goes on.
    let mut watching = session(&bed, &limiter, &["--interval", "250ms"])?;
    watching.wait_for("the view", |text| text.contains("limits on"))?;
    limiter.terminate()?;
    watching.wait_for("why there is no answer", |text| text.contains("no daemon at"))?;
    limiter.start()?;
    watching.wait_for("the view again", |text| !text.contains("no daemon at"))?;
    watching.keys("\u{3}")?;
    ensure!(watching.ended()?.success());

    // Without a terminal.
    let mut command = Command::new(limiter.binary());
    command.arg("--socket").arg(limiter.socket()).arg("top").stdin(Stdio::null());
    let output = bed.receiver.output(&mut command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2) && said.contains("limiter top --once"), "{said}");
    limiter.close()?;
    bed.close()
}
