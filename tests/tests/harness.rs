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
    let sent: usize = recordings.iter().map(|recording| recording.times.len()).sum();
    bed.wait_until_met(u64::try_from(sent)?)?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    ensure!(bed.lost_on_link()? == 0, "frames were lost on the link");
    for ((_, pattern), recording) in patterns.iter().zip(&recordings) {
        ensure!(!recording.truncated && recording.times.is_sorted());
        let sent = recording.times.len() as u64;
        let offered = rate(sent, 2_000_000_000);
        // Late slots are skipped, so a busy machine offers less, but never more; and one slot is
        // sent always.
        ensure!(offered <= pattern.per_second() * 1.001 + 1.0, "{pattern:?}: {offered}");
        ensure!(sent > 0, "{pattern:?} sent nothing");
        if let Pattern::Burst { frames, .. } = pattern {
            let whole = sent + recording.refused;
            ensure!(whole.is_multiple_of(u64::from(*frames)), "{whole} of bursts of {frames}");
        }
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

/// Whatever a test's cable carries, the test has sent. What the kernel says of its own when an
/// interface comes up (listener reports, solicitations) would come at any time on a busy machine,
/// and be one frame too many.
#[test]
fn a_new_link_carries_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("quiet")?;
    let (near, far) = ((&*bed.sender, "send1"), (&*bed.receiver, "recv1"));
    veth::lay(near, far)?;
    // An address more, as the tests of tools have it.
    veth::add_source(&bed.sender, "198.51.100.7/32")?;
    veth::add_source(&bed.sender, "2001:db8:7::7/128")?;
    let receiver = Receiver::start(&bed.receiver, veth::RECEIVER.interface)?;
    // The first report would come at once, and the next ones within a second.
    thread::sleep(Duration::from_secs(2));
    let ends = [(&*bed.sender, veth::SENDER), (&*bed.receiver, veth::RECEIVER)];
    let ends = ends.map(|(netns, end)| (netns, end.interface));
    for (netns, interface) in ends.into_iter().chain([near, far]) {
        let carried = netns.carried(interface)?;
        ensure!(
            carried == [0, 0],
            "{interface} has sent and received {carried:?} since it was made"
        );
    }
    ensure!(bed.lost_on_link()? == 0 && bed.met()? == 0);
    let counts = receiver.finish()?;
    ensure!(counts.sources.is_empty() && counts.other == 0, "{counts:?}");
    // The pair is a link all the same: tools reach the other end, and hear from it.
    let ping = ["-n", "-q", "-c", "3", "-i", "0.05"];
    for target in [veth::RECEIVER.ipv4.to_string(), veth::RECEIVER.ipv6.to_string()] {
        bed.sender.run("ping", ping.iter().copied().chain([target.as_str()]))?;
    }
    ensure!(bed.receiver.carried(veth::RECEIVER.interface)? == [6, 6]);
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
    // Another run that begins meanwhile sweeps as well, and takes what is left here out of our
    // hands.
    let mut swept = leave_and_sweep(0);
    for attempt in 1..5 {
        swept = swept.or_else(|_| leave_and_sweep(attempt));
    }
    swept.context("in each of five attempts")?;
    // A test bed that lives was not touched.
    ensure!(limiter_tests::netns::all()?.iter().any(|name| name == bed.sender.name()));
    bed.close()
}

fn leave_and_sweep(attempt: u32) -> Result<()> {
    // Stand-ins for what a run with a process id that never lives left: see `names`.
    let orphan = &format!("limiter-orphan-{}-{attempt}", 4_194_305 + std::process::id());
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
    let deadline = Instant::now() + Duration::from_secs(30);
    while limiter_tests::command::run("ip", ["netns", "pids", orphan])?.trim().is_empty() {
        ensure!(Instant::now() < deadline, "the child is not in the namespace");
        thread::sleep(Duration::from_millis(10));
    }
    let removed = sweep::sweep()?;
    std::mem::forget(mount);
    ensure!(removed.iter().any(|name| name == orphan), "{removed:?}");
    ensure!(!inside.wait()?.success(), "the process inside was not ended");
    sweep::check_gone(&[orphan.to_owned()], &dir)
}
