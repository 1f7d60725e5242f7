//! A daemon that is killed at any of its calls to the kernel: the next start works, and what was in
//! force holds.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::strace::Strace;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;
use rustix::process::Signal;

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// Five packets, then one in three minutes: what is drained stays drained for the test.
const DRAINING: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 20, burst: 5}}\n";

/// Calls at which to kill: the next is the sum of the two before, up to the first that does not
/// come.
const MOST_KILLS: usize = 20;

/// Steps of an end that detaches: two directories with their files, and the one around them.
const MOST_REMOVALS: usize = 60;

fn arrive_of_ten(bed: &Testbed) -> Result<u64> {
    let frames = vec![Frame::ipv4(SOURCE, RECEIVER.ipv4.octets()).build()];
    let pattern = Pattern::Burst { frames: 10, every: Duration::from_secs(10) };
    let (recordings, counts) =
        bed.measure(vec![Stream { frames, pattern }], Duration::from_millis(100))?;
    ensure!(recordings[0].times.len() == 10, "{} were sent", recordings[0].times.len());
    Ok(counts.of(IpAddr::from(SOURCE)))
}

/// The options of `strace` that kill at the call of that number.
fn kill_at(calls: &str, number: usize) -> Vec<String> {
    let inject = format!("inject={calls}:signal=KILL:when={number}");
    let words = ["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e", &inject];
    words.map(str::to_owned).to_vec()
}

/// Starts the daemon, killed at that call; says whether it was.
fn start_and_kill(limiter: &mut Limiter, calls: &str, number: usize) -> bool {
    let strace = ["strace", "-D"].map(str::to_owned).into_iter();
    let killed = limiter.through(strace.chain(kill_at(calls, number))).start().is_err();
    limiter.through(Vec::<String>::new());
    killed
}

/// 1, 2, 3, 5, 8, ...
fn numbers() -> impl Iterator<Item = usize> {
    let mut pair = (1, 2);
    std::iter::from_fn(move || {
        let number = pair.0;
        pair = (pair.1, pair.0 + pair.1);
        Some(number)
    })
    .take(MOST_KILLS)
}

#[test]
fn a_first_start_that_is_killed_leaves_nothing_in_the_way() -> Result<()> {
    require_root();
    let bed = Testbed::create("killfirst")?;
    let mut limiter = bed.limiter(DRAINING)?;
    let mut killed = 0;
    for number in numbers() {
        let at_call = start_and_kill(&mut limiter, "bpf", number);
        if at_call {
            killed += 1;
            // A link without a pin ends a moment after the process.
            let is_pinned =
                limiter.pins().join("links").read_dir().is_ok_and(|mut all| all.next().is_some());
            if !is_pinned {
                limiter.wait_until_detached()?;
            }
            limiter.start().with_context(|| format!("after a kill at call {number}"))?;
        }
        ensure!(arrive_of_ten(&bed)? == 5, "after a kill at call {number} the limit is not five");
        limiter.on_pins("detach")?;
        limiter.wait_until_ended()?;
        limiter.wait_until_detached()?;
        if !at_call {
            ensure!(killed >= 8, "a start has only {number} calls: strace did not count them");
            limiter.close()?;
            return bed.close();
        }
    }
    anyhow::bail!("no start was let through")
}

#[test]
fn a_start_that_takes_over_can_be_killed_at_any_call() -> Result<()> {
    require_root();
    let bed = Testbed::create("killadopt")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 5);
    limiter.kill()?;
    let mut kills = 0;
    for number in numbers() {
        let killed = start_and_kill(&mut limiter, "bpf", number);
        kills += u32::from(killed);
        ensure!(arrive_of_ten(&bed)? == 0, "a kill at call {number} let packets pass");
        if !killed {
            break;
        }
    }
    ensure!(limiter.pid().is_some(), "no start was let through");
    ensure!(kills >= 8, "{kills} starts were killed: strace did not count the calls");
    limiter.kill()?;
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 0, "the last start let packets pass");
    limiter.close()?;
    bed.close()
}

/// Has the running daemon killed at one of its next calls.
fn trace(limiter: &Limiter, calls: &str, number: usize) -> Result<Strace> {
    let pid = limiter.pid().context("the daemon is not running")?;
    Strace::attach(pid, kill_at(calls, number))
}

#[test]
fn a_change_of_the_rules_can_be_killed_at_any_call() -> Result<()> {
    require_root();
    let bed = Testbed::create("killapply")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    ensure!(arrive_of_ten(&bed)? == 5);
    let (mut through, mut kills) = (false, 0);
    for number in numbers() {
        let other = bed.dir.write(
            "other.yaml",
            format!(
                "{DRAINING}  - {{key: remote_address, value: 198.51.100.{number}, rate_limit: \
                 {{unit: second, requests_per_unit: 7}}}}\n"
            ),
        )?;
        let other = other.to_str().context("path")?;
        let strace = trace(&limiter, "bpf", number)?;
        through = limiter.cli(["apply", "--force", other])?.status.success();
        // Calls of housekeeping count, too: the daemon may be killed a moment later.
        if through {
            limiter.signal(Signal::KILL)?;
        } else {
            kills += 1;
        }
        limiter.wait_until_ended()?;
        strace.wait()?;
        ensure!(arrive_of_ten(&bed)? == 0, "a kill at call {number} let packets pass");
        limiter.start().with_context(|| format!("after a kill at call {number}"))?;
        ensure!(arrive_of_ten(&bed)? == 0, "the start after call {number} let packets pass");
        if through {
            break;
        }
    }
    ensure!(through, "no change was let through");
    ensure!(kills >= 5, "{kills} changes were killed: strace did not count the calls");
    limiter.close()?;
    bed.close()
}

/// Whom the lists are about.
const LISTED: [&str; 3] = ["198.51.100.1", "198.51.100.2", "198.51.100.0/25"];

/// Entries of the lists; the maps are gone, as after a reboot.
fn lists_after_a_reboot(limiter: &mut Limiter) -> Result<Vec<String>> {
    limiter.on_pins("detach")?;
    limiter.wait_until_detached()?;
    limiter.start()?;
    let lists = limiter.json(&["lists"])?;
    let entries = lists["entries"].as_array().context("entries")?;
    Ok(entries.iter().filter_map(|entry| entry["source"].as_str().map(str::to_owned)).collect())
}

/// A change of the lists is on disk whole or not at all, and whole once it was answered.
#[test]
fn a_change_of_the_lists_can_be_killed_at_any_call_and_outlives_a_reboot() -> Result<()> {
    require_root();
    let bed = Testbed::create("killlists")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.start()?;
    let mut kills = 0;
    // strace counts each call for itself.
    for (calls, most) in [("openat", 3), ("write,pwrite64", 4), ("fdatasync", 2), ("fsync", 3)] {
        for number in 1..=most {
            let when = format!("{calls} {number}");
            limiter.ok(["deny", "203.0.113.1"])?;
            // A start writes all, and the next change begins a journal.
            limiter.kill()?;
            limiter.start()?;
            let strace = trace(&limiter, calls, number)?;
            let answered = limiter.cli(["deny"].iter().chain(&LISTED))?.status.success();
            limiter.signal(Signal::KILL).or_else(
                |error| {
                    if answered { Err(error) } else { Ok(()) }
                },
            )?;
            limiter.wait_until_ended()?;
            strace.wait()?;
            kills += u32::from(!answered);
            let listed = lists_after_a_reboot(&mut limiter).with_context(|| when.clone())?;
            let of_change = listed.iter().filter(|at| LISTED.contains(&at.as_str())).count();
            ensure!(of_change == 3 || (of_change == 0 && !answered), "{when}: {listed:?}");
            ensure!(listed.iter().any(|at| at == "203.0.113.1"), "{when}: {listed:?}");
            for source in &listed {
                limiter.ok(["unlist", source])?;
            }
        }
    }
    ensure!(kills >= 4, "{kills} changes were killed: strace did not count the calls");
    limiter.close()?;
    bed.close()
}

/// An end that detaches calls no `bpf`: it removes files.
#[test]
fn an_end_can_be_killed_at_any_removal() -> Result<()> {
    require_root();
    let bed = Testbed::create("killend")?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.options(["--detach-on-exit"]);
    let mut kills = 0;
    for number in (1..MOST_REMOVALS).step_by(7) {
        limiter.start().with_context(|| format!("before a kill at removal {number}"))?;
        let passed = arrive_of_ten(&bed)?;
        // Removing the maps may not have been reached: then the bucket is the drained one.
        ensure!(passed == 5 || (passed == 0 && number > 1), "{passed} passed");
        let strace = trace(&limiter, "unlink,unlinkat,rmdir", number)?;
        limiter.signal(Signal::TERM)?;
        let said = limiter.wait_until_ended()?;
        kills += u32::from(!said.contains("nothing is limited any more"));
        strace.wait()?;
    }
    ensure!(kills >= 3, "{kills} ends were killed: strace did not count the removals");
    limiter.start()?;
    limiter.close()?;
    bed.close()
}
