//! The state that stays in force when the daemon ends, and what a new one takes over.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::clock;
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::oracle::Limit;
use limiter_tests::packet::Frame;
use limiter_tests::receiver::Receiver;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Five packets, then one in three minutes: what is drained stays drained for the test.
const DRAINING: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

fn frames() -> Vec<Vec<u8>> {
    vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()]
}

/// Sends ten packets and returns how many arrive.
fn arrive_of_ten(bed: &Testbed) -> Result<u64> {
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let stream = Stream { frames: frames(), pattern };
    let (recordings, counts) = bed.measure(vec![stream], Duration::from_millis(200))?;
    ensure!(recordings[0].times.len() == 10, "{} were sent", recordings[0].times.len());
    Ok(counts.of(IpAddr::from(SOURCE)))
}

/// Passed and dropped of the source, as the daemon reports.
fn counted(limiter: &Limiter) -> Result<(u64, u64)> {
    let answer = limiter.json(&["show", &IpAddr::from(SOURCE).to_string()])?;
    let number = |name: &str| {
        answer.get(name).and_then(Value::as_u64).with_context(|| format!("no {name} in {answer}"))
    };
    Ok((number("passed")?, number("dropped")?))
}

fn check_detached(limiter: &Limiter) -> Result<()> {
    limiter.wait_until_detached()?;
    ensure!(!limiter.pins().exists(), "{} is still there", limiter.pins().display());
    Ok(())
}

#[test]
fn a_killed_daemon_lets_nothing_pass_and_a_restart_takes_over() -> Result<()> {
    require_root();
    ["hash", "lines"].into_iter().try_for_each(a_killed_daemon_lets_nothing_pass)
}

fn a_killed_daemon_lets_nothing_pass(source_store: &str) -> Result<()> {
    let bed = Testbed::create("kill")?;
    let mut limiter = bed.limiter(
        "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 300, burst: 40}}\n",
    )?;
    limiter.options(["--source-table", source_store]);
    limiter.start()?;
    let program = limiter.xdp()?;
    let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
    let stream = Stream { frames: frames(), pattern: Pattern::Paced { per_second: 900.0 } };
    // Until the restart is over, however long that takes.
    let time = Duration::from_mins(5);
    let generator = Generator::start(&bed.sender, SENDER.interface, vec![stream], time, 1 << 20)?;
    let start = clock::now();
    clock::sleep_until(start + 1_500_000_000);
    limiter.kill()?;
    ensure!(limiter.xdp()? == program, "the program changed when the daemon was killed");
    clock::sleep_until(start + 3_000_000_000);
    limiter.start()?;
    clock::sleep_until(clock::now() + 500_000_000);
    ensure!(!generator.is_finished(), "the traffic ended before the restart was over");
    generator.stop();
    let recordings = generator.finish()?;
    bed.wait_until_met(recordings[0].times.len() as u64)?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    ensure!(bed.lost_on_link()? == 0, "frames were lost on the link");

    let times = &recordings[0].times;
    let expected = Limit::per_second(300, 40).delivered(1, times.iter().copied())?;
    let delivered = counts.of(IpAddr::from(SOURCE));
    // One bucket over the whole time. A second burst of 40 would be 2.6 % of it.
    let off = delivered.abs_diff(expected);
    ensure!(off * 100 <= expected, "{delivered} arrived, {expected} expected");
    let (passed, dropped) = counted(&limiter)?;
    ensure!(passed == delivered, "the daemon says {passed} passed, {delivered} arrived");
    ensure!(passed + dropped == times.len() as u64, "{dropped} dropped of {}", times.len());
    limiter.close()?;
    bed.close()
}

#[test]
fn a_drained_bucket_is_still_drained_after_a_restart() -> Result<()> {
    require_root();
    for (kill, source_store) in [(false, "hash"), (true, "hash"), (false, "lines"), (true, "lines")]
    {
        let bed = Testbed::create("drained")?;
        let mut limiter = bed.limiter(DRAINING)?;
        limiter.options(["--source-table", source_store]);
        limiter.start()?;
        ensure!(arrive_of_ten(&bed)? == 5, "the burst is five");
        if kill {
            limiter.kill()?;
        } else {
            limiter.terminate()?;
        }
        ensure!(arrive_of_ten(&bed)? == 0, "without a daemon the limit is not in force");
        limiter.start()?;
        ensure!(arrive_of_ten(&bed)? == 0, "the restart filled the bucket");
        ensure!(
            counted(&limiter)? == (5, 25),
            "the counters did not go on: {:?}",
            counted(&limiter)?
        );
        let sources = limiter.json(&["sources"])?.to_string();
        ensure!(sources.contains(&IpAddr::from(SOURCE).to_string()), "{source_store}: {sources}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Lines, if nobody says it; what is in force stays.
#[test]
fn the_source_store_is_chosen_at_the_start_and_kept() -> Result<()> {
    require_root();
    for (asked, source_store) in [("auto", "lines"), ("hash", "hash maps")] {
        let bed = Testbed::create("home")?;
        let mut limiter = bed.limiter(DRAINING)?;
        limiter.options(["--source-table", asked]).start()?;
        let said = limiter.said();
        ensure!(said.contains(&format!("sources have their buckets in {source_store}")), "{said}");
        // Another source store takes effect with new maps.
        limiter.terminate()?;
        let other = if source_store == "lines" { "hash" } else { "lines" };
        limiter.without_options().options(["--source-table", other]).start()?;
        let said = limiter.said();
        ensure!(said.contains(&format!("--source-table {other} has no effect")), "{said}");
        ensure!(said.contains(&format!("sources have their buckets in {source_store}")), "{said}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

#[test]
fn the_bypass_works_with_and_without_a_daemon() -> Result<()> {
    require_root();
    let bed = Testbed::create("bypass")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 5);
    limiter.on_pins("off")?;
    ensure!(limiter.json(&["status"])?["bypass"] == true);
    ensure!(arrive_of_ten(&bed)? == 10, "the bypass is on, but packets are dropped");
    limiter.on_pins("on")?;
    ensure!(limiter.json(&["status"])?["bypass"] == false);
    ensure!(arrive_of_ten(&bed)? == 0, "the bypass is off, but packets pass");
    limiter.terminate()?;
    limiter.on_pins("off")?;
    ensure!(
        arrive_of_ten(&bed)? == 10,
        "the bypass is on without a daemon, but packets are dropped"
    );
    limiter.on_pins("on")?;
    ensure!(arrive_of_ten(&bed)? == 0, "the bypass is off without a daemon, but packets pass");
    limiter.on_pins("off")?;
    let ready = limiter.start()?;
    ensure!(ready.ends_with("nothing is limited until `limiter on`"), "{ready}");
    ensure!(arrive_of_ten(&bed)? == 10, "the bypass did not outlive the restart");
    limiter.close()?;
    bed.close()
}

#[test]
fn detach_leaves_nothing() -> Result<()> {
    require_root();
    for daemon in [true, false] {
        let bed = Testbed::create("detach")?;
        let mut limiter = bed.limiter(DRAINING)?;
        limiter.start()?;
        ensure!(arrive_of_ten(&bed)? == 5);
        if !daemon {
            limiter.kill()?;
        }
        limiter.on_pins("detach")?;
        check_detached(&limiter)?;
        ensure!(arrive_of_ten(&bed)? == 10, "detached, but packets are dropped");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Whatever somebody did to the pins under a dead daemon: the start that cannot use them says what
/// to do, and that does.
#[test]
fn pins_that_were_changed_name_the_way_out() -> Result<()> {
    require_root();
    for (pin, other) in [
        ("CONTROL", None),
        ("LIMITS", Some("RULE_STATS")),
        ("SOURCES_V4", Some("CONTROL")),
        ("RULES", Some("TABLES")),
    ] {
        let bed = Testbed::create("changed-pins")?;
        let mut limiter = bed.limiter(DRAINING)?;
        limiter.options(["--source-table", "hash"]).start()?;
        limiter.kill()?;
        let at = |name: &str| limiter.pins().join("maps").join(name);
        match other {
            None => fs::remove_file(at(pin))?,
            Some(other) => {
                fs::rename(at(pin), at("ASIDE"))?;
                fs::rename(at(other), at(pin))?;
                fs::rename(at("ASIDE"), at(other))?;
            }
        }
        let output = limiter.run_to_end()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(!output.status.success(), "{pin} {other:?}: {said}");
        let way_out = format!("limiter detach --pin-dir {}", limiter.pins().display());
        ensure!(said.contains(&way_out), "{pin} {other:?}: {said}");
        limiter.on_pins("detach")?;
        limiter.wait_until_detached()?;
        limiter.start()?;
        ensure!(arrive_of_ten(&bed)? == 5, "{pin} {other:?}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

#[test]
fn detach_on_exit_does_so() -> Result<()> {
    require_root();
    let bed = Testbed::create("exit")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--detach-on-exit"]).start()?;
    ensure!(arrive_of_ten(&bed)? == 5);
    limiter.terminate()?;
    check_detached(&limiter)?;
    limiter.close()?;
    bed.close()
}

/// Pins on a BPF file system that only the daemon's mount namespace has, as in a container without
/// a volume for it: they end with the daemon, and that is what it says.
#[test]
fn limits_that_end_with_the_daemon_are_not_said_to_stay() -> Result<()> {
    require_root();
    let bed = Testbed::create("ownmount")?;
    let mut limiter = bed.limiter(DRAINING)?;
    let pins = limiter.pins().to_owned();
    limiter.start()?;
    let said = limiter.terminate()?;
    ensure!(said.contains("the limits stay in force without the daemon"), "{said}");
    ensure!(!said.contains("in this mount namespace alone"), "{said}");
    ensure!(arrive_of_ten(&bed)? == 5, "the limits did not stay");
    limiter.on_pins("detach")?;
    check_detached(&limiter)?;
    // Now the same without anybody who shares the mount.
    let own = bed.dir.path().join("own");
    fs::create_dir(&own)?;
    let mount = "mount -t bpf bpf \"$0\" && exec \"$@\"";
    let own = own.to_str().context("a path of other characters")?.to_owned();
    limiter.pin_in(&Path::new(&own).join("pins"));
    limiter.through(["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, &own]);
    limiter.start()?;
    let said = limiter.terminate()?;
    ensure!(said.matches("in this mount namespace alone").count() == 2, "{said}");
    ensure!(!said.contains("stay in force"), "{said}");
    limiter.wait_until_detached()?;
    ensure!(arrive_of_ten(&bed)? == 10, "the limits stayed");
    limiter.pin_in(&pins);
    limiter.close()?;
    bed.close()
}

/// The lock-out that nobody is there to mend: rules on trial go by themselves, also with the daemon
/// killed. A rule for a machine on which too much traffic is a lesser evil than a limit that nobody
/// can lift.
#[test]
fn rules_that_ask_for_it_only_count_without_a_daemon() -> Result<()> {
    const FADING: &str = "descriptors: [{key: remote_address, rate_limit: {unit: week, \
        requests_per_unit: 5}, on_daemon_loss: shadow}]\n";
    require_root();
    let bed = Testbed::create("loss")?;
    let mut limiter = bed.limiter(FADING)?;
    limiter.options(["--daemon-lost-after", "20s"]).start()?;
    ensure!(arrive_of_ten(&bed)? == 5);
    limiter.kill()?;
    ensure!(arrive_of_ten(&bed)? == 0, "the rule is in force until the daemon is lost");
    let mut rounds = 0;
    while arrive_of_ten(&bed)? != 10 {
        rounds += 1;
        ensure!(rounds < 300, "the rule did not fade");
    }
    limiter.start()?;
    ensure!(
        arrive_of_ten(&bed)? == 0,
        "with a daemon it is in force again, and nothing is forgotten"
    );
    let report = limiter.json(&["stats"])?;
    ensure!(report.to_string().contains("\"shadow\""), "{report}");
    limiter.close()?;
    bed.close()
}

#[test]
fn rules_on_trial_go_without_the_daemon() -> Result<()> {
    const EVERYTHING: &str =
        "descriptors: [{key: remote_address, rate_limit: {unlimited: true}}]\n";
    const NOTHING: &str = "descriptors: [{key: remote_address, rate_limit: {unit: week, \
        requests_per_unit: 1}, shadow_mode: false}]\n";
    require_root();
    let bed = Testbed::create("trial")?;
    let mut limiter = bed.limiter(EVERYTHING)?;
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 10);
    let wrong = limiter.rules().with_file_name("wrong.yaml");
    fs::write(&wrong, NOTHING)?;
    let wrong = wrong.to_str().context("the path is not UTF-8")?;
    let said = limiter.ok(["apply", wrong, "--confirm", "15s"])?;
    ensure!(said.contains("limiter confirm"), "{said}");
    limiter.kill()?;
    ensure!(arrive_of_ten(&bed)? <= 1, "the rules on trial are in force");
    let mut rounds = 0;
    while arrive_of_ten(&bed)? != 10 {
        rounds += 1;
        ensure!(rounds < 200, "the rules before did not come back");
    }
    // The next daemon says what is so already, and goes on from there.
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 10);
    limiter.ok(["apply", wrong, "--confirm", "10m"])?;
    let status = limiter.json(&["status"])?;
    ensure!(status["trial"]["seconds_left"].as_u64().is_some_and(|left| left > 0), "{status}");
    limiter.ok(["confirm"])?;
    ensure!(arrive_of_ten(&bed)? <= 1, "the confirmed rules are in force");
    limiter.ok(["apply", limiter.rules().to_str().context("not UTF-8")?, "--confirm", "10m"])?;
    ensure!(arrive_of_ten(&bed)? == 10);
    limiter.ok(["revert"])?;
    // A source that was unlimited owes nothing: one packet of the week's is there.
    ensure!(arrive_of_ten(&bed)? <= 1, "the rules before are in force again");
    limiter.close()?;
    bed.close()
}
