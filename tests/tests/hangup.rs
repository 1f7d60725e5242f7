//! Readers that go away: a terminal that closes, a pipe whose reader ends. Nothing is left that
//! runs for nobody.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::{Limiter, binary};
use limiter_tests::pcap;
use limiter_tests::root::require_root;
use limiter_tests::terminal::Session;
use limiter_tests::testbed::Testbed;
use limiter_tests::work_dir::WorkDir;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::LocalModes;
use serde_json::Value;

const RULES: &str = "domain: test\ndescriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 100}}\n";

/// Much longer than the second that it takes on a machine with nothing else to do.
const PATIENCE: Duration = Duration::from_secs(30);

fn command(limiter: &Limiter, args: &[&str]) -> Command {
    let mut command = Command::new(limiter.binary());
    command.arg("--socket").arg(limiter.socket()).args(args).env_remove("NO_COLOR");
    command
}

fn session(bed: &Testbed, limiter: &Limiter, args: &[&str]) -> Result<Session> {
    Session::start(&bed.receiver, &mut command(limiter, args), 24, 80)
}

/// Waits until it has ended, with success; ends it if it does not.
fn ends(child: &mut Child, what: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{what}: {status}");
            return Ok(());
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("{what} goes on for nobody");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn followers(limiter: &Limiter, count: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while limiter.json(&["events"])?["counts"]["followers"] != count {
        ensure!(Instant::now() < deadline, "there are not {count} who follow");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_terminal_that_closes_ends_what_runs_in_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("hangup")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    // While it waits for keys, while it draws, and in between.
    for pause in [0, 30, 100, 230, 270] {
        let mut watching = session(&bed, &limiter, &["top", "--interval", "250ms"])?;
        watching.wait_for("the view", |text| text.contains("limits on"))?;
        thread::sleep(Duration::from_millis(pause));
        watching.hang_up()?;
        let status = watching.ended()?;
        ensure!(status.success(), "limiter top at the end of its terminal: {status}");
    }

    // Stopped while the terminal closes, with an answer to draw: the first thing that it notices is
    // mostly a write that fails.
    for _ in 0..4 {
        let mut watching = session(&bed, &limiter, &["top", "--interval", "250ms"])?;
        watching.wait_for("the view", |text| text.contains("limits on"))?;
        limiter.signal(Signal::STOP)?;
        thread::sleep(Duration::from_millis(300));
        watching.signal(Signal::STOP)?;
        limiter.signal(Signal::CONT)?;
        thread::sleep(Duration::from_millis(100));
        watching.hang_up()?;
        watching.signal(Signal::CONT)?;
        let status = watching.ended()?;
        ensure!(status.success(), "limiter top, which draws for a terminal that is gone: {status}");
    }

    // No drop is reported, so nothing is written that would fail.
    let mut following = session(&bed, &limiter, &["events", "--follow"])?;
    followers(&limiter, 1)?;
    following.hang_up()?;
    ensure!(following.ended()?.success(), "limiter events failed at the end of its terminal");
    limiter.close()?;
    bed.close()
}

/// Also while the keyboard has sent half of what a key is, and nobody knows how it goes on.
#[test]
fn the_first_signal_ends_the_view() -> Result<()> {
    require_root();
    let bed = Testbed::create("signals")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    for signal in [Signal::HUP, Signal::TERM, Signal::INT] {
        let mut watching = session(&bed, &limiter, &["top"])?;
        watching.wait_for("the view", |text| text.contains("limits on"))?;
        watching.keys("\u{1b}[")?;
        thread::sleep(Duration::from_millis(300));
        watching.signal(signal)?;
        ensure!(watching.ended()?.success(), "{signal:?}");
        ensure!(watching.modes()?.local_modes.contains(LocalModes::ECHO), "still in raw mode");
        ensure!(!watching.with_screen(vt100::Screen::alternate_screen), "the other screen is left");
        ensure!(!watching.with_screen(vt100::Screen::hide_cursor), "there is no cursor");
    }
    limiter.close()?;
    bed.close()
}

#[test]
fn a_reader_that_goes_away_ends_what_writes_for_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("reader")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    for output in ["table", "json"] {
        let args = ["events", "--follow", "--output", output];
        let mut following = bed.receiver.spawn(command(&limiter, &args).stdout(Stdio::piped()))?;
        followers(&limiter, 1)?;
        drop(following.stdout.take().context("no output")?);
        ends(&mut following, "limiter events --follow")?;
        followers(&limiter, 0)?;
    }

    // A frame that is an hour away.
    let args = ["top", "--once", "--interval", "1h"];
    let mut waiting = bed.receiver.spawn(command(&limiter, &args).stdout(Stdio::piped()))?;
    drop(waiting.stdout.take().context("no output")?);
    ends(&mut waiting, "limiter top --once")?;

    // A capture that goes on: a packet may come in a week.
    let path = limiter.rules().with_file_name("capture");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let name = path.to_str().context("a path of other characters")?;
    let args = ["explain", "--pcap", name];
    let mut explaining = bed.receiver.spawn(command(&limiter, &args).stdout(Stdio::piped()))?;
    // Not refused by the one that has it open both ways, so that nothing hangs here.
    let mut capture: File = OpenOptions::new().read(true).write(true).open(&path)?;
    let header =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 1, 0, 0, 0];
    capture.write_all(&header)?;
    drop(explaining.stdout.take().context("no output")?);
    ends(&mut explaining, "limiter explain")?;
    limiter.close()?;
    bed.close()
}

/// A change is made, whether anybody reads the answer or not.
#[test]
fn a_change_is_made_also_when_nobody_reads_the_answer() -> Result<()> {
    require_root();
    let bed = Testbed::create("unread")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    let args = ["set", "192.0.2.7", "5/s"];
    let mut setting = bed.receiver.spawn(command(&limiter, &args).stdout(Stdio::piped()))?;
    drop(setting.stdout.take().context("no output")?);
    ends(&mut setting, "limiter set")?;
    ensure!(limiter.json(&["show", "192.0.2.7"])?["limit"] == "5/s");
    limiter.close()?;
    bed.close()
}

/// True once the process takes SIGINT itself, and has worked for a fifth of a second since.
fn is_at_work(child: &Child) -> Result<bool> {
    let of = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id()));
    let status = of("status")?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.context("no SigCgt")?.trim(), 16)?;
    let stat = of("stat")?;
    let (_, fields) = stat.rsplit_once(") ").context("no fields")?;
    // Hundredths of a second in user space.
    let worked: u64 = fields.split(' ').nth(11).context("no utime")?.parse()?;
    Ok(caught >> (Signal::INT.as_raw() - 1) & 1 == 1 && worked >= 20)
}

/// `observe` shows on a terminal how far it is, also where no packet comes, and Ctrl-C ends it with
/// what was seen.
#[test]
fn an_observation_says_how_far_it_is() -> Result<()> {
    require_root();
    let bed = Testbed::create("progress")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.start()?;
    for args in [["observe", "--for", "50s"], ["tune", "--for", "50s"]] {
        let mut watching = session(&bed, &limiter, &args)?;
        // A second and more of fifty.
        let reported = |text: &str| text.contains(" packets, ") && !text.contains(", 0 %");
        watching.wait_for("how far it is", reported)?;
        watching.signal(Signal::INT)?;
        let success = watching.ended()?.success();
        // Without a packet there is nothing to propose, which is exit code 2.
        ensure!(success == (args[0] == "observe"), "{args:?}");
        let ends = if args[0] == "observe" { "were seen whole" } else { "no limit is proposed" };
        ensure!(watching.text().contains(ends), "{}", watching.text());
    }
    limiter.close()?;
    bed.close()
}

/// `explain --pcap` of a capture that goes on ends by Ctrl-C with the sums of what was read.
#[test]
fn an_interrupt_ends_an_explanation_with_its_sums() -> Result<()> {
    let dir = WorkDir::create("explain-interrupt")?;
    let rules = dir.write("rules.yaml", RULES)?;
    for summary in [true, false] {
        let mut command = Command::new(binary()?);
        command.args(["explain", "--pcap", "-", "--output", "json", "--rules"]).arg(&rules);
        command.args(summary.then_some("--summary")).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut to = child.stdin.take().context("no input")?;
        let writer = thread::spawn(move || {
            let mut bytes = pcap::header();
            loop {
                if to.write_all(&bytes).is_err() {
                    return;
                }
                bytes = (0..500u32).flat_map(|at| pcap::packet(u64::from(at), at)).collect();
            }
        });
        let mut out = child.stdout.take().context("no output")?;
        let reader = thread::spawn(move || {
            let mut said = String::new();
            out.read_to_string(&mut said).map(|_| said)
        });
        let deadline = Instant::now() + PATIENCE;
        while !is_at_work(&child)? {
            ensure!(Instant::now() < deadline, "it does nothing");
            thread::sleep(Duration::from_millis(20));
        }
        let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process id")?;
        kill_process(pid, Signal::INT)?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {said}", output.status);
        writer.join().map_err(|_panic| anyhow::anyhow!("the writer panicked"))?;
        let reported = reader.join().map_err(|_panic| anyhow::anyhow!("the reader panicked"))??;
        let last: Value = serde_json::from_str(reported.lines().last().context("nothing")?)?;
        let sums = &last["summary"];
        ensure!(sums["seen"]["packets"].as_u64().is_some_and(|packets| packets > 0), "{sums}");
        ensure!(sums["stopped"].to_string().contains("interrupted"), "{sums}");
    }
    Ok(())
}

/// Ctrl-C ends `tune` and `simulate` with what was read, and exit code 0.
#[test]
fn an_interrupt_ends_a_long_reading_with_what_was_read() -> Result<()> {
    let dir = WorkDir::create("interrupt")?;
    let rules = dir.write("rules.yaml", RULES)?;
    let load = "duration: 11d\nsenders:\n  - {pattern: steady, rate: 100/s, sources: 10}\n";
    let load = dir.write("load.yaml", load)?;
    for words in [vec!["tune"], vec!["simulate", "--rules", rules.to_str().context("a path")?]] {
        let mut command = Command::new(binary()?);
        command.args(&words).arg("--load").arg(&load).args(["--output", "json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let deadline = Instant::now() + PATIENCE;
        while !is_at_work(&child)? {
            ensure!(child.try_wait()?.is_none(), "{words:?} ended by itself");
            ensure!(Instant::now() < deadline, "{words:?} does nothing");
            thread::sleep(Duration::from_millis(20));
        }
        let pid = Pid::from_raw(i32::try_from(child.id())?).context("no process id")?;
        kill_process(pid, Signal::INT)?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {}: {said}", output.status);
        let reported: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(reported["packets"].as_u64().is_some_and(|packets| packets > 0), "{reported}");
        ensure!(reported["notes"].to_string().contains("interrupted: "), "{}", reported["notes"]);
    }
    Ok(())
}
