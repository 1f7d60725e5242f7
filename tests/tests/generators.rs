//! The fast generator beside others' counts and beside another generator: what a measurement with
//! it says is not its own word.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::command;
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::live_frames::cable::{measured, send};
use limiter_tests::live_frames::{self, Family, Load, Sent, Sources};
use limiter_tests::packet::Frame;
use limiter_tests::receiver::Receiver;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

const SOURCES: u32 = 100;

/// Frames of each source, and how many of them its limit lets pass.
const EACH: u32 = 20;
const PASS: u64 = 7;

/// Slow enough for every socket that counts, on a busy machine as well.
fn load(sources: Sources, frames: u64) -> Load {
    Load {
        sources,
        family: Family::V4,
        length: 60,
        per_second: Some(20_000),
        frames,
        duration: Duration::from_mins(1),
        regular: Vec::new(),
        place: None,
    }
}

/// A counter of the kernel's netfilter, where a rule of nft would be, in front of the IP stack.
fn count(bed: &Testbed) -> Result<()> {
    let script = format!(
        "table netdev check {{\n\
           counter seen {{ }}\n\
           chain ingress {{\n\
             type filter hook ingress device {} priority -500;\n\
             ip protocol udp counter name seen\n\
           }}\n\
         }}\n",
        RECEIVER.interface
    );
    bed.receiver.enter(|| command::feed("nft", &["-f", "-"], &script))?
}

fn counted(bed: &Testbed) -> Result<u64> {
    let text = bed.receiver.run("nft", ["-j", "list", "counter", "netdev", "check", "seen"])?;
    let listed: Value = serde_json::from_str(&text)?;
    let objects = listed["nftables"].as_array().context("no objects")?;
    let packets = objects.iter().find_map(|object| object["counter"]["packets"].as_u64());
    packets.with_context(|| format!("no counter: {text}"))
}

/// The generator, the interface, nft and a packet socket all count the same, for every way to
/// choose sources.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn others_count_what_it_says_that_it_sent() -> Result<()> {
    require_root();
    let bed = Testbed::create("gen-count")?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    count(&bed)?;
    for sources in
        [Sources::One, Sources::Uniform(1_000), Sources::Zipf(10), Sources::New(5_000_000)]
    {
        let before = counted(&bed)?;
        let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
        let load = load(sources, 10_000);
        let (sent, link) = measured(&bed, || send(&bed, &load))?;
        let arrived = receiver.finish()?;
        arrived.check_clean()?;
        let by_socket = arrived.sources.values().sum::<u64>();
        let by_nft = counted(&bed)? - before;
        ensure!(sent.frames == 10_000, "{sources:?}: {sent:?}");
        // Frames that found the cable's queue full were sent, and nobody behind it can count them.
        let all = [by_socket, by_nft, link.received];
        ensure!(all == [10_000 - link.lost; 3], "{sources:?}: {all:?}, {link:?}");
        ensure!(arrived.other == 0, "{sources:?}: {} that are not IP", arrived.other);
    }
    bed.close()
}

/// Counts by limiter, and the packets that came past it by source.
type Judged = (Value, Vec<u64>);

fn judged(tag: &str, work: impl FnOnce(&Testbed) -> Result<()>) -> Result<Judged> {
    let bed = Testbed::create(tag)?;
    let rules = format!(
        "descriptors: [{{key: remote_address, rate_limit: {{unit: hour, requests_per_unit: \
         {PASS}, burst: {PASS}}}}}]"
    );
    let mut limiter = bed.limiter(&rules)?;
    limiter.start()?;
    let receiver = Receiver::start(&bed.receiver, RECEIVER.interface)?;
    work(&bed)?;
    let arrived = receiver.finish()?;
    arrived.check_clean()?;
    ensure!(bed.lost_on_link()? == 0, "{} frames were lost on the link", bed.lost_on_link()?);
    let stats = limiter.json(&["stats"])?;
    let by_source = (0..SOURCES).map(|number| arrived.of(Family::V4.source(number))).collect();
    let said = serde_json::json!({
        "seen": stats["seen"], "passed": stats["passed"], "dropped": stats["dropped"],
        "reasons": stats["reasons"],
    });
    limiter.close()?;
    bed.close()?;
    Ok((said, by_source))
}

/// Equal frames in the same order through packet sockets: limiter counts the same packets, bytes
/// and reasons, and lets the same pass.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn another_generator_finds_the_same_limiter() -> Result<()> {
    require_root();
    let fast = judged("gen-live", |bed| {
        for _ in 0..EACH {
            let load = load(Sources::New(0), SOURCES.into());
            let sent: Sent = send(bed, &load)?;
            ensure!(sent.frames == u64::from(SOURCES), "{sent:?}");
        }
        Ok(())
    })?;
    let slow = judged("gen-socket", |bed| {
        let frame = |number| match Family::V4.source(number) {
            IpAddr::V4(source) => {
                let frame = Frame::ipv4(source.octets(), RECEIVER.ipv4.octets());
                Ok(frame.payload(&[0; 60 - 42]).build())
            }
            IpAddr::V6(source) => anyhow::bail!("{source} is not IPv4"),
        };
        let frames = (0..SOURCES).map(frame).collect::<Result<Vec<_>>>()?;
        let streams = vec![Stream { frames, pattern: Pattern::Paced { per_second: 5_000.0 } }];
        let bound = usize::try_from(SOURCES * EACH)?;
        let time = Duration::from_mins(1);
        let generator = Generator::start(&bed.sender, SENDER.interface, streams, time, bound)?;
        while generator.times_after(0, bound - 1).is_empty() && !generator.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        generator.stop();
        let sent = generator.finish()?;
        let times = sent.first().map_or(0, |recording| recording.times.len());
        ensure!(times == bound, "{times} of {bound} sent");
        Ok(())
    })?;
    ensure!(fast == slow, "live frames: {fast:?}\npacket sockets: {slow:?}");
    let (said, by_source) = fast;
    ensure!(by_source.iter().all(|passed| *passed == PASS), "{by_source:?}");
    let (passed, all) = (u64::from(SOURCES) * PASS, u64::from(SOURCES * EACH));
    let packets = |name: &str| said[name]["packets"].as_u64();
    ensure!(packets("seen") == Some(all) && packets("passed") == Some(passed), "{said}");
    ensure!(packets("dropped") == Some(all - passed), "{said}");
    Ok(())
}
