//! Frames of more than a page, and packets that the kernel keeps together on their way.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::frames::v4;
use limiter_tests::packet_socket::{Direction, PacketSocket};
use limiter_tests::veth::{RECEIVER, SENDER};

use super::scene::{Count, Counters, MODES, Scene};

/// Three frames of 9,014 bytes, and nothing more for hours.
const THREE: &str = "key: remote_address, \
    rate_limit: {unit: week, requests_per_unit: 604800, count: bytes, burst: 27042}";

const BYTES: &str = "key: remote_address, \
    rate_limit: {unit: second, requests_per_unit: 1000000000, count: bytes, burst: 1000000000}";

/// Bytes that a connection carries.
const CARRIED: usize = 4_000_000;

/// The longest frame with the usual MTU.
const FULL: usize = 1_514;

/// A page and a half at least is outside of the linear part, and costs its bytes.
#[test]
fn a_limit_in_bytes_counts_all_of_a_jumbo_frame() -> Result<()> {
    for mode in MODES {
        let scene = Scene::start("jumbo", mode, 9_000, THREE)?;
        let socket = scene.socket(SENDER.interface)?;
        let frame = v4().payload(&[0; 9_014 - 42]).build();
        let moved = scene.send(&socket, &frame, 4)?;
        let of = |packets| Count { packets, bytes: packets * 9_014 };
        let expected = Counters {
            seen: 4,
            reasons: [("conforming".to_owned(), of(3)), ("over-limit".to_owned(), of(1))].into(),
            passed: of(3),
            dropped: of(1),
        };
        ensure!(moved == expected, "{mode}: {moved:?}");
        scene.close()?;
    }
    Ok(())
}

/// The lengths of all frames that arrive until the connection is over.
fn lengths(scene: &Scene, work: impl FnOnce() -> Result<()>) -> Result<Vec<usize>> {
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let (stop, netns) = (Arc::clone(&stop), Arc::clone(&scene.bed.receiver));
        // Opened here, so that it is there before the work begins.
        let socket = netns.enter(|| {
            let wait = Duration::from_millis(200);
            PacketSocket::receiver(RECEIVER.interface, Direction::Incoming, 256 << 20, wait)
        })??;
        thread::spawn(move || -> Result<Vec<usize>> {
            let mut lengths = Vec::new();
            let mut room = vec![0; 1 << 20];
            loop {
                match socket.receive(&mut room)? {
                    0 if stop.load(Ordering::Relaxed) => break,
                    0 => {}
                    length => lengths.push(length),
                }
            }
            ensure!(socket.statistics()?.dropped == 0, "frames were lost on the way to the test");
            Ok(lengths)
        })
    };
    let worked = work();
    stop.store(true, Ordering::Relaxed);
    let lengths = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    worked?;
    lengths
}

/// A connection from one end to the other, of sockets that know nothing of the test's frames.
fn connection(scene: &Scene) -> Result<()> {
    let (sender, receiver) = (&scene.bed.sender, &scene.bed.receiver);
    let listener = receiver.enter(|| TcpListener::bind((RECEIVER.ipv4, 0)))??;
    let port = listener.local_addr()?.port();
    let mut from = sender.enter(|| TcpStream::connect((RECEIVER.ipv4, port)))??;
    let (mut to, _) = listener.accept()?;
    let reader = thread::spawn(move || to.read_to_end(&mut Vec::new()));
    from.write_all(&vec![0; CARRIED])?;
    drop(from);
    let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(read == CARRIED, "{read} bytes of the connection arrived");
    Ok(())
}

/// Frames that the program saw of a connection must be those that arrive behind it, one by one and
/// byte by byte; returns the lengths.
fn of_connection(scene: &Scene) -> Result<Vec<usize>> {
    let before = scene.counters()?;
    let lengths = lengths(scene, || connection(scene))?;
    let total = Count {
        packets: lengths.len() as u64,
        bytes: lengths.iter().map(|length| *length as u64).sum(),
    };
    let moved = scene.counted(&before, total.packets)?.since(&before);
    let expected = Counters {
        seen: total.packets,
        reasons: [("conforming".to_owned(), total)].into(),
        passed: total,
        dropped: Count::default(),
    };
    ensure!(moved == expected, "{}: {moved:?}, but {total:?} arrived", scene.mode);
    Ok(lengths)
}

/// In native mode, veth cuts segments before the program.
#[test]
fn in_native_mode_each_segment_comes_alone() -> Result<()> {
    let scene = Scene::start("segments", "native", 1_500, BYTES)?;
    let lengths = of_connection(&scene)?;
    let longest = lengths.iter().max().context("nothing came")?;
    ensure!(*longest <= FULL, "one of {longest} bytes");
    ensure!(lengths.len() > CARRIED / FULL, "{} frames", lengths.len());
    scene.close()
}

/// Nor is it different where the receiving end joins segments (GRO): it does so behind the program.
#[test]
fn in_native_mode_segments_are_joined_behind_the_program() -> Result<()> {
    let scene = Scene::start("behind", "native", 1_500, BYTES)?;
    scene.bed.receiver.run("ethtool", ["-K", RECEIVER.interface, "gro", "on"])?;
    let before = scene.counters()?;
    let lengths = lengths(&scene, || connection(&scene))?;
    ensure!(lengths.iter().any(|length| *length > FULL), "nothing was joined");
    let moved = scene.counters()?.since(&before);
    ensure!(moved.seen > (CARRIED / FULL) as u64, "{moved:?}");
    ensure!(moved.passed.bytes <= moved.seen * FULL as u64, "{moved:?}");
    scene.close()
}

/// In generic mode the program sees what the kernel keeps together: one packet of up to 64 kB, and
/// the headers of the first segment only.
#[test]
fn in_generic_mode_segments_come_together() -> Result<()> {
    let scene = Scene::start("segments", "generic", 1_500, BYTES)?;
    let lengths = of_connection(&scene)?;
    let longest = lengths.iter().max().context("nothing came")?;
    ensure!(*longest > 32_768, "none is longer than {longest} bytes");
    ensure!(lengths.len() < CARRIED / FULL, "{} frames", lengths.len());
    scene.close()
}

/// Only those that were never cut. What comes one by one is not joined (GRO) before the program:
/// the kernel leaves it be on an interface with a generic program, whatever the interface's feature
/// says.
#[test]
fn in_generic_mode_nothing_is_joined_on_arrival() -> Result<()> {
    let scene = Scene::start("alone", "generic", 1_500, BYTES)?;
    let off = ["tso", "off", "gso", "off"];
    scene.bed.sender.run("ethtool", ["-K", SENDER.interface].iter().chain(&off))?;
    scene.bed.receiver.run("ethtool", ["-K", RECEIVER.interface, "gro", "on"])?;
    let lengths = of_connection(&scene)?;
    let longest = lengths.iter().max().context("nothing came")?;
    ensure!(*longest <= FULL, "one of {longest} bytes");
    scene.close()
}
