//! The measuring itself: without a limiter, everything that is sent arrives, and nothing of a
//! testbed is left.

use std::fs;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::generator::{Generator, Pattern, Stream, rate};
use limiter_tests::packet::Frame;
use limiter_tests::receiver::Receiver;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::{names, sweep, veth};

const BOUND: usize = 1 << 20;

fn frames(sources: u8) -> Vec<Vec<u8>> {
    let frame = |last| Frame::ipv4([198, 51, 100, last], [192, 0, 2, 254]).payload(&[0; 18]);
    (1..=sources).map(|last| frame(last).build()).collect()
}

#[test]
fn everything_sent_arrives() -> Result<()> {
    require_root();
    let bed = Testbed::create("harness")?;
    let receiver = Receiver::start(&bed.receiver, veth::RECEIVER.interface)?;
    let v6 = Frame::ipv6([0x20; 16], [0x20; 16]).build();
    let patterns = [
        (frames(1), Pattern::Paced { per_second: 2000.0 }),
        (vec![v6], Pattern::Burst { frames: 300, every: Duration::from_millis(250) }),
        (frames(200).split_off(10), Pattern::Flood { per_second: 20_000 }),
    ];
    let streams = patterns
        .iter()
        .map(|(frames, pattern)| Stream { frames: frames.clone(), pattern: *pattern });
    let duration = Duration::from_secs(2);
    let generator =
        Generator::start(&bed.sender, veth::SENDER.interface, streams.collect(), duration, BOUND)?;
    let recordings = generator.finish()?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    for ((_, pattern), recording) in patterns.iter().zip(&recordings) {
        ensure!(!recording.truncated && recording.times.is_sorted());
        let sent = recording.times.len() as u64;
        let offered = rate(sent, 2_000_000_000);
        // Late slots are skipped, so a busy machine offers less, but never more.
        ensure!(offered <= pattern.per_second() * 1.001 + 1.0, "{pattern:?}: {offered}");
        ensure!(offered >= pattern.per_second() * 0.5, "{pattern:?}: {offered}");
    }
    ensure!(counts.of(IpAddr::from([198, 51, 100, 1])) == recordings[0].times.len() as u64);
    ensure!(counts.of(IpAddr::from([0x20; 16])) == recordings[1].times.len() as u64);
    for last in 11..=200u8 {
        let sent = recordings[2].times_of(usize::from(last - 11), 190).count() as u64;
        ensure!(counts.of(IpAddr::from([198, 51, 100, last])) == sent, "source {last}");
    }
    ensure!(counts.other == 0, "{} frames that are not IP disturb", counts.other);
    bed.close()
}

#[test]
fn the_link_is_quiet() -> Result<()> {
    require_root();
    let bed = Testbed::create("quiet")?;
    // What the stack says when an interface comes up.
    thread::sleep(Duration::from_millis(500));
    let receiver = Receiver::start(&bed.receiver, veth::RECEIVER.interface)?;
    thread::sleep(Duration::from_secs(3));
    let counts = receiver.finish()?;
    ensure!(counts.sources.is_empty() && counts.other == 0, "{counts:?}");
    bed.close()
}

#[test]
fn a_recording_is_bounded() -> Result<()> {
    require_root();
    let bed = Testbed::create("bound")?;
    let stream = Stream { frames: frames(3), pattern: Pattern::Flood { per_second: 10_000 } };
    let duration = Duration::from_secs(1);
    let generator =
        Generator::start(&bed.sender, veth::SENDER.interface, vec![stream], duration, 100)?;
    let recordings = generator.finish()?;
    ensure!(recordings[0].truncated && recordings[0].times.len() == 100);
    bed.close()
}

#[test]
fn a_panic_leaves_nothing() -> Result<()> {
    require_root();
    let (sender, seen) = std::sync::mpsc::channel();
    let work = thread::spawn(move || -> Result<()> {
        let bed = Testbed::create("panic")?;
        let namespaces = [bed.sender.name().to_owned(), bed.receiver.name().to_owned()];
        sender.send((namespaces, bed.dir.path().to_owned()))?;
        std::panic::resume_unwind(Box::new("on purpose"))
    });
    ensure!(work.join().is_err(), "it did not panic");
    let (namespaces, dir) = seen.recv()?;
    sweep::check_gone(&namespaces, &dir)
}

#[test]
fn a_killed_run_is_swept() -> Result<()> {
    require_root();
    let bed = Testbed::create("sweep")?;
    // Stand-ins for what a run with a process id that never lives left: see `names`.
    let orphan = "limiter-orphan-4194305-0";
    limiter_tests::command::run("ip", ["netns", "add", orphan])?;
    let mut inside = Command::new("nsenter")
        .arg(format!("--net=/run/netns/{orphan}"))
        .args(["sleep", "60"])
        .stdin(Stdio::null())
        .spawn()
        .context("nsenter")?;
    let dir = std::env::temp_dir().join(orphan);
    fs::create_dir(&dir)?;
    let mount = limiter_tests::bpffs::Bpffs::mount(dir.join("bpf"))?;
    ensure!(names::is_orphaned(orphan));
    ensure!(sweep::check_gone(&[orphan.to_owned()], &dir).is_err(), "the check sees nothing");
    // The child must be inside before its namespace is swept.
    let deadline = Instant::now() + Duration::from_secs(5);
    while limiter_tests::command::run("ip", ["netns", "pids", orphan])?.trim().is_empty() {
        ensure!(Instant::now() < deadline, "the child is not in the namespace");
        thread::sleep(Duration::from_millis(10));
    }
    let removed = sweep::sweep()?;
    std::mem::forget(mount);
    ensure!(removed.iter().any(|name| name == orphan), "{removed:?}");
    ensure!(!inside.wait()?.success(), "the process inside was not ended");
    sweep::check_gone(&[orphan.to_owned()], &dir)?;
    // What lives was not touched.
    ensure!(limiter_tests::netns::all()?.iter().any(|name| name == bed.sender.name()));
    bed.close()
}
