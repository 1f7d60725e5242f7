//! The fast generator: what it says that it sent is what the other end counts, from the sources
//! that it says, with right checksums.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::live_frames::cable::Link;
use limiter_tests::live_frames::{self, Family, LiveFrames, Load, Regular, Sent, Sources};
use limiter_tests::receiver::{Counts, Receiver, masked};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

/// Attempts at a run in which the cable's queue has room for every frame.
const ATTEMPTS: u32 = 20;

/// Slow enough for the receiving socket, on a busy machine as well.
const LOAD: Load = Load {
    sources: Sources::New(1_000),
    family: Family::V4,
    length: 60,
    per_second: Some(20_000),
    frames: 10_000,
    duration: Duration::from_mins(1),
    regular: Vec::new(),
    place: None,
};

/// Sends it; returns how much, and what arrived: all of it. On a busy machine the cable's queue may
/// run over. That is counted and checked as well, and then says nothing of single sources.
fn send(bed: &Testbed, load: &Load) -> Result<(Sent, Counts)> {
    whole(bed, || send_until(bed, load, |_| Ok(())))
}

/// The first run in which the cable lost nothing.
fn whole<T>(bed: &Testbed, mut run: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..ATTEMPTS {
        let lost = bed.lost_on_link()?;
        let done = run()?;
        if bed.lost_on_link()? == lost {
            return Ok(done);
        }
    }
    anyhow::bail!("the cable's queue ran over in each of {ATTEMPTS} runs")
}

/// Sends it to its end; `enough` may stop it before.
fn send_until(
    bed: &Testbed,
    load: &Load,
    enough: impl FnOnce(&mut LiveFrames) -> Result<()>,
) -> Result<(Sent, Counts)> {
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    let before = Link::read(bed)?;
    let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
    let mut generator = LiveFrames::start(&bed.sender, SENDER.interface, load)?;
    enough(&mut generator)?;
    let sent = generator.finish()?;
    let all = sent.frames + sent.regular.iter().sum::<u64>();
    bed.wait_until_met(before.received + before.lost + all)?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    let after = Link::read(bed)?;
    let (arrived, lost) = (after.received - before.received, after.lost - before.lost);
    let counted = counts.sources.values().sum::<u64>() + counts.other;
    let other = counts.other;
    ensure!(
        all == arrived + lost,
        "{sent:?}: {arrived} received, {lost} lost; the receiver counted {counted}, {other} of \
         them not IP"
    );
    ensure!(counted == arrived, "the interface counts {arrived}, the receiver {counted}");
    Ok((sent, counts))
}

/// Waits for something that is to happen, however busy the machine is.
fn wait(what: &str, mut happened: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !happened()? {
        ensure!(Instant::now() < deadline, "not within half a minute: {what}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn every_frame_has_another_source() -> Result<()> {
    require_root();
    let bed = Testbed::create("live")?;
    for (family, length) in [(Family::V4, 60), (Family::V6, 77)] {
        let load = Load { family, length, ..LOAD };
        let (sent, counts) = send(&bed, &load)?;
        ensure!(sent.frames == load.frames, "{sent:?}");
        for number in 1_000..11_000 {
            let source = family.source(number);
            let seen = counts.of(source);
            ensure!(seen == 1, "{source}: {seen} frames");
        }
        ensure!(counts.sources.len() == 10_000 && counts.other == 0);
    }
    bed.close()
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn sources_are_the_ones_asked_for() -> Result<()> {
    require_root();
    let bed = Testbed::create("live-few")?;
    let (_, counts) = send(&bed, &Load { sources: Sources::One, ..LOAD })?;
    ensure!(counts.of(Family::V4.source(0)) == 10_000 && counts.sources.len() == 1);
    let (_, counts) = send(&bed, &Load { sources: Sources::Uniform(10), ..LOAD })?;
    ensure!(counts.sources.len() == 10, "{:?}", counts.sources);
    for number in 0..10 {
        let seen = counts.of(Family::V4.source(number));
        // A thousand each; six standard deviations are 180.
        ensure!((820..=1180).contains(&seen), "source {number}: {seen}");
    }
    let (_, counts) = send(&bed, &Load { sources: Sources::Zipf(10), ..LOAD })?;
    ensure!(counts.sources.len() <= 1_023 && counts.other == 0);
    let mut all = 0;
    for octave in 0..10 {
        let numbers = (1 << octave) - 1..(2 << octave) - 1;
        let seen: u64 = numbers.map(|number| counts.of(Family::V4.source(number))).sum();
        ensure!((820..=1180).contains(&seen), "octave {octave}: {seen}");
        all += seen;
    }
    ensure!(all == 10_000, "{all} from sources that were asked for");
    // Four of rank 4 to 7, 250 each; six standard deviations are 94.
    let fourth = counts.of(Family::V4.source(3));
    ensure!((155..=345).contains(&fourth), "rank 4: {fourth}");
    bed.close()
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn regular_sources_send_amid_the_others() -> Result<()> {
    require_root();
    let bed = Testbed::create("live-regular")?;
    let group = |second, count, per_second| Regular {
        first: u32::from_be_bytes([10, second, 0, 1]),
        count,
        per_second,
    };
    let regular = vec![group(1, 100, 100), group(2, 4, 1_000)];
    // Until all others are sent, which takes a busy machine longer, and then some more of these
    // alone.
    let load = Load { regular, ..LOAD };
    let (sent, counts, seconds) = whole(&bed, || {
        let began = Instant::now();
        let (sent, counts) = send_until(&bed, &load, |generator| {
            wait("the others are sent", || Ok(generator.sent()? == LOAD.frames))?;
            let then = bed.met()?;
            wait("they go on", || Ok(bed.met()? > then + 100))?;
            generator.stop();
            Ok(())
        })?;
        Ok((sent, counts, began.elapsed().as_secs_f64()))
    })?;
    ensure!(sent.frames == LOAD.frames, "{sent:?}");
    let of = |second: u8, host: u8| counts.of(IpAddr::from([10, second, host, 1]));
    let sums: [u64; 2] =
        [(0..100).map(|host| of(1, host)).sum(), (0..4).map(|host| of(2, host)).sum()];
    ensure!(sent.regular[..2] == sums, "{sent:?}: {sums:?} arrived");
    // The first is sent at once; what a stall costs is not made up for.
    for (sum, per_second) in sums.into_iter().zip([100, 1_000]) {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand frames")]
        let sum = sum as f64;
        let most = f64::from(per_second) * seconds + 1.0;
        ensure!(sum > 0.0 && sum <= most, "{sum} in {seconds} s, at {per_second} a second");
    }
    ensure!((0..4).all(|host| of(2, host).abs_diff(sums[1] / 4) <= 1), "not in turn");
    bed.close()
}

/// The stack of the receiver drops what has a wrong checksum, and counts it.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn checksums_are_right() -> Result<()> {
    require_root();
    let bed = Testbed::create("live-sums")?;
    for (family, length, wrong) in
        [(Family::V4, 1514, "IpInHdrErrors"), (Family::V6, 1513, "Udp6InCsumErrors")]
    {
        let bind: IpAddr = match family {
            Family::V4 => RECEIVER.ipv4.into(),
            Family::V6 => RECEIVER.ipv6.into(),
        };
        let socket = bed.receiver.enter(|| std::net::UdpSocket::bind((bind, 9)))??;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        // Few, so that they fit into the socket.
        let load = Load { family, length, frames: 20, per_second: Some(1_000), ..LOAD };
        let (sent, counts) = send_until(&bed, &load, |_| Ok(()))?;
        ensure!(sent.frames == 20 && counts.sources.len() == 20, "{sent:?}: {counts:?}");
        let counted = bed.receiver.run("nstat", ["-asz", wrong])?;
        let value = counted.lines().find(|line| line.contains(wrong)).context("no counter")?;
        ensure!(value.split_whitespace().nth(1) == Some("0"), "{counted}");
        let mut buffer = [0; 2048];
        for number in 1_000..1_020 {
            let (read, from) = socket.recv_from(&mut buffer)?;
            ensure!(masked(from.ip()) == masked(family.source(number)), "{from}");
            ensure!(read + if family == Family::V4 { 42 } else { 62 } == length, "{read} bytes");
        }
    }
    bed.close()
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn it_stops_by_its_time() -> Result<()> {
    require_root();
    let bed = Testbed::create("live-stop")?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    let endless = Load { frames: 1 << 28, sources: Sources::New(0), ..LOAD };
    // Long enough for its thread to have a turn.
    let load = Load { per_second: None, duration: Duration::from_secs(1), ..endless.clone() };
    let sent = LiveFrames::start(&bed.sender, SENDER.interface, &load)?.finish()?;
    ensure!(sent.frames > 0 && sent.frames < load.frames, "{sent:?}");
    let slow = Load { per_second: Some(10), ..load.clone() };
    let few = LiveFrames::start(&bed.sender, SENDER.interface, &slow)?.finish()?;
    ensure!(few.frames < sent.frames, "{few:?}: it is not paced");
    // Dropped, it stops at once.
    let mut running = LiveFrames::start(
        &bed.sender,
        SENDER.interface,
        &Load { duration: LOAD.duration, ..load.clone() },
    )?;
    running.stop();
    running.finish()?;
    let too_many = Load { frames: (1 << 28) + 1, ..load };
    ensure!(LiveFrames::start(&bed.sender, SENDER.interface, &too_many).is_err());
    bed.close()
}
