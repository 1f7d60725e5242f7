//! Packets that wait, with real ones: where there is `fq` they arrive no earlier than their bucket
//! lets them, and none is lost that may wait; where there is not, limiter says so.

// Also on other kernels: 120 s each.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use limiter_tests::cpu;
use limiter_tests::delay::{
    self,
    report::{departures, late},
    traffic::{Pace, Sent, datagrams},
};
use limiter_tests::interrupt::Interrupt;
use limiter_tests::netns::Netns;
use limiter_tests::oracle::Limit;
use limiter_tests::packet_socket::receive_buffer;
use limiter_tests::requests::bounds;
use limiter_tests::root::require_root;
use limiter_tests::sandbox::Outcome;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use crate::tc_end_to_end::outgoing_udp;

/// Packets a second.
const RATE: u32 = 500;
const BURST: u32 = 10;
/// As many packets wait half a second at most.
const WAITING: u32 = 250;
/// More than pass.
const SENT: u32 = 400;
/// Packets of a flow that an fq holds of which nothing was said.
const USUAL: u32 = 100;

/// What came of datagrams that were sent as fast as possible.
struct Burst {
    sending: Duration,
    /// When each arrived, since before the first was sent.
    arrivals: Vec<Duration>,
}

impl Burst {
    /// True if at least so many arrived, and no more than came to that while they were sent.
    fn is(&self, packets: u32) -> Result<bool> {
        let count = u32::try_from(self.arrivals.len())?;
        let meanwhile = self.sending.as_nanos() * u128::from(RATE) / 1_000_000_000;
        Ok(count >= packets && u128::from(count) <= u128::from(packets) + meanwhile + 1)
    }
}

impl std::fmt::Display for Burst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} datagrams, sent in {:?}", self.arrivals.len(), self.sending)
    }
}

/// Sends datagrams from the machine with limits, on one socket.
fn burst(bed: &Testbed) -> Result<Burst> {
    let target = SocketAddr::from((SENDER.ipv4, 9_000));
    let at = bed.sender.enter(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(target)?;
        receive_buffer(&socket, 8 << 20)?;
        // Longer than any packet waits.
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        Ok(socket)
    })??;
    let from = bed.receiver.enter(|| UdpSocket::bind((RECEIVER.ipv4, 0)))??;
    let begun = Instant::now();
    for _ in 0..SENT {
        // One that is dropped on its way out is no error of every kernel.
        drop(from.send_to(b"1", target));
    }
    let sending = begun.elapsed();
    let mut arrivals = Vec::new();
    while at.recv(&mut [0; 8]).is_ok() {
        arrivals.push(begun.elapsed());
    }
    Ok(Burst { sending, arrivals })
}

/// The command in limiter's warning about an interface without room for those that wait.
fn command(said: &str) -> Result<&str> {
    let start = said.find("tc qdisc replace dev recv0").context("no command")?;
    said.get(start..).and_then(|rest| rest.lines().next()).context("no command")
}

/// Packets wait in `fq`, no earlier than they may, and none is lost that may wait. Without `fq`, or
/// with too little room, limiter warns, and its command helps.
#[test]
fn packets_wait_in_fq_and_nowhere_else() -> Result<()> {
    require_root();
    let bed = Testbed::create("delay")?;
    let mut rules = outgoing_udp(&format!("rate: {RATE}/s, burst: {BURST}"));
    rules.push_str("        action: {delay: {longest: 500ms}}\n");
    let mut limiter = bed.limiter(&rules)?;
    limiter.options(["--direction", "out"]);
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("do not wait on recv0, which has noqueue"), "{said}");
    // What may wait and does not is as good as a larger burst, and no more than that.
    let at_once = burst(&bed)?;
    ensure!(at_once.is(BURST + WAITING)?, "{at_once}");

    let fq = |words: &[&str]| -> Result<bool> {
        let output = bed.receiver.output(Command::new("tc").args(words))?;
        Ok(output.status.success())
    };
    if !fq(&["qdisc", "replace", "dev", "recv0", "root", "fq"])? {
        println!("this kernel has no fq: that packets wait in it, other kernels show");
        limiter.close()?;
        return bed.close();
    }
    // 100 packets of a flow. Nobody asks the daemon to look.
    let said = limiter.wait_until_logged("has room for 100 packets of a flow")?;
    let cut = burst(&bed)?;
    ensure!(cut.is(BURST + USUAL)?, "fq holds {USUAL} of a flow: {cut}");

    let words: Vec<&str> = command(&said)?.split(' ').skip(1).collect();
    ensure!(fq(&words)?, "tc refuses {words:?}");
    limiter.wait_until_logged("no longer so: fq on recv0 has room for 100 packets of a flow")?;
    let said = limiter.ok(["status"])?;
    ensure!(!said.contains("packets of a flow"), "{said}");
    waited(&burst(&bed)?)?;
    let stats = limiter.ok(["stats"])?;
    ensure!(stats.contains("delayed (asked to wait)"), "{stats}");
    ensure!(fq(&["qdisc", "replace", "dev", "recv0", "root", "pfifo"])?, "no pfifo");
    limiter.wait_until_logged("do not wait on recv0, which has pfifo and not fq")?;
    let doctor = limiter.cli(["doctor", "--iface", "recv0", "--verbose"])?;
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    ensure!(doctor.matches("flow_limit").count() == 1, "{doctor}");
    limiter.close()?;
    bed.close()
}

/// Bytes of TCP that arrive within three seconds, from the machine with limits.
fn arrived_by_tcp(bed: &Testbed) -> Result<u64> {
    let target = SocketAddr::from((SENDER.ipv4, 9_001));
    let listener = bed.sender.enter(|| TcpListener::bind(target))??;
    let mut from = bed.receiver.enter(|| TcpStream::connect(target))??;
    let (mut at, _) = listener.accept()?;
    let sending = thread::spawn(move || {
        // Until the other end is closed.
        while from.write_all(&[0; 16 << 10]).is_ok() {}
    });
    let begun = Instant::now();
    let mut bytes = 0;
    let mut buffer = vec![0; 64 << 10];
    while begun.elapsed() < Duration::from_secs(3) {
        bytes += u64::try_from(at.read(&mut buffer)?)?;
    }
    drop(at);
    sending.join().map_err(|panic| anyhow!("the sender panicked: {panic:?}"))?;
    Ok(bytes)
}

/// A burst of 8 ms starves a stream of which the rest is dropped, and not one of which it waits.
#[test]
fn tcp_gets_more_where_packets_wait() -> Result<()> {
    require_root();
    let bed = Testbed::create("delaytcp")?;
    let fq = ["qdisc", "replace", "dev", "recv0", "root", "fq", "flow_limit", "10000"];
    if !bed.receiver.output(Command::new("tc").args(fq))?.status.success() {
        println!("this kernel has no fq: other kernels show this");
        return bed.close();
    }
    let rules = |action: &str| {
        format!(
            "descriptors:\n  - key: remote_address\n    direction: out\n    rate_limit: {{rate: \
             20mbit/s, burst: 20kB}}\n    action: {action}\n"
        )
    };
    let mut limiter = bed.limiter(&rules("drop"))?;
    limiter.options(["--direction", "out"]);
    limiter.start()?;
    let dropped = arrived_by_tcp(&bed)?;
    fs::write(limiter.rules(), rules("{delay: {longest: 200ms}}"))?;
    limiter.ok(["reload"])?;
    let waited = arrived_by_tcp(&bed)?;
    println!("in 3 s, of 7,500,000 bytes and the burst: {dropped} dropping, {waited} waiting");
    ensure!(waited > dropped, "{waited} bytes of what waits, {dropped} of what is dropped");
    limiter.close()?;
    bed.close()
}

/// `cargo xtask run --delay`.
#[test]
fn the_run_passes() -> Result<()> {
    require_root();
    let limiter = limiter_tests::limiter::binary()?;
    let options = delay::Options { limiter, duration: Duration::from_secs(3), json: false };
    match delay::run(&options) {
        Ok(Outcome::Pass) => Ok(()),
        other => bail!("{other:?}"),
    }
}

/// A device of somebody else's that has the name of limiter's.
#[test]
fn a_device_that_only_has_the_name_stays() -> Result<()> {
    require_root();
    let bed = Testbed::create("delayname")?;
    let rules = "descriptors:\n  - key: remote_address\n    rate_limit: {rate: 100/s, burst: 5}\n    \
                 action: {delay: {longest: 100ms}}\n";
    let mut limiter = bed.limiter(rules)?;
    limiter.options(["--hook", "tc"]);
    limiter.start()?;
    let said = limiter.said();
    let name = match holding(&bed)?.split([':', '@', ' ']).nth(2) {
        Some(name) => name.to_owned(),
        // Where it cannot be made, the warning names it.
        None => said
            .split_once("the device ")
            .and_then(|(_, rest)| rest.split(' ').next())
            .context(said.clone())?
            .to_owned(),
    };
    limiter.terminate()?;
    limiter.on_pins("detach")?;
    bed.receiver.ip(["link", "add", &name, "type", "veth", "peer", "name", "kept0"])?;
    limiter.start()?;
    let said = limiter.said();
    ensure!(said.contains("another device has that name") || said.contains("6.6"), "{said}");
    limiter.terminate()?;
    limiter.on_pins("detach")?;
    bed.receiver.link(&name)?;
    limiter.close()?;
    bed.close()
}

/// The devices that hold packets which come in, by name.
fn holding(bed: &Testbed) -> Result<String> {
    bed.receiver.ip(["-oneline", "link", "show", "type", "ifb"])
}

/// What comes in waits in an `ifb`, in order, and none is early; the device comes back, and leaves
/// with `detach`.
#[test]
fn packets_that_come_in_wait_in_an_ifb() -> Result<()> {
    require_root();
    let bed = Testbed::create("delayin")?;
    let rules = format!(
        "descriptors:\n  - key: protocol\n    value: udp\n    descriptors:\n      - key: \
         remote_address\n        rate_limit: {{rate: {RATE}/s, burst: {BURST}}}\n        action: \
         {{delay: {{longest: 500ms}}}}\n"
    );
    let mut limiter = bed.limiter(&rules)?;
    limiter.options(["--hook", "tc"]);
    limiter.start()?;
    let target = SocketAddr::from((RECEIVER.ipv4, 9_000));
    let pace = Pace { each: SENT, every: Duration::from_secs(1) };
    let interrupt = Interrupt::watch()?;
    let sent = || {
        let ends = [&*bed.sender, &*bed.receiver];
        datagrams(ends, target, pace, Duration::from_millis(1), &interrupt)
    };
    let limit = Limit::per_second(RATE.into(), BURST);
    let expected = |sent: &Sent| {
        let count = u64::try_from(sent.arrivals.len())?;
        let allowed = bounds::allowed(&sent.times, &limit, Duration::from_millis(500));
        // Longest waits are kept in steps that are rounded down: one packet.
        ensure!(allowed.contains(&count) || allowed.contains(&(count + 1)), "{count}: {allowed:?}");
        Ok(())
    };
    let waited = sent()?;
    expected(&waited)?;
    let said = limiter.said();
    // Not by the device: the daemon tries again from time to time, and has it for a moment then.
    if said.contains("do not wait") && said.contains("ifb") {
        println!("this kernel has no ifb with fq: what comes in goes on at once");
        limiter.close()?;
        return bed.close();
    }
    ensure!(!holding(&bed)?.is_empty(), "nothing holds packets: {said}");
    let (by, early) = late(&departures(&waited, &limit));
    ensure!(early == 0, "{early} are early; late: {by:?}");
    let next = waited.arrivals.iter().skip(1);
    let behind = waited.arrivals.iter().zip(next).filter(|((one, _), (next, _))| one > next);
    // Two CPUs that receive change the order of some by themselves.
    ensure!(behind.count() <= 4, "out of order: {:?}", waited.arrivals);

    // Somebody removes the device: it comes back, and what is to wait is not lost.
    let name = holding(&bed)?.split([':', '@', ' ']).nth(2).context("no name")?.to_owned();
    bed.receiver.ip(["link", "delete", &name])?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while holding(&bed)?.is_empty() {
        ensure!(Instant::now() < deadline, "{name} does not come back: {}", limiter.said());
        thread::sleep(Duration::from_millis(20));
    }
    // Full again.
    thread::sleep(Duration::from_secs(1));
    expected(&sent()?)?;

    // With the daemon dead they wait on; behind `detach` nothing is left.
    limiter.kill()?;
    thread::sleep(Duration::from_secs(1));
    let waited = sent()?;
    expected(&waited)?;
    ensure!(late(&departures(&waited, &limit)).1 == 0, "early, without the daemon");
    limiter.on_pins("detach")?;
    ensure!(holding(&bed)?.is_empty(), "{}", holding(&bed)?);
    ensure!(sent()?.arrivals.len() == usize::try_from(SENT)?, "something limits after `detach`");
    limiter.close()?;
    bed.close()
}

/// Flows that send at the same time, and datagrams of each.
const FLOWS: u8 = 8;
const OF_EACH: u8 = 50;

/// Sends by several flows at once, on all CPUs; what arrives of each is in order.
fn flows([from, to]: [&Netns; 2], target: SocketAddr) -> Result<Burst> {
    let at = to.enter(|| UdpSocket::bind(target))??;
    receive_buffer(&at, 8 << 20)?;
    // Longer than any packet waits.
    at.set_read_timeout(Some(Duration::from_secs(2)))?;
    let cpus = thread::available_parallelism()?.get();
    let begun = Instant::now();
    let sending = thread::scope(|scope| {
        let send = |flow: u8| {
            scope.spawn(move || -> Result<Duration> {
                let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
                cpu::pin(None, usize::from(flow) % cpus)?;
                for number in 0..OF_EACH {
                    // One that is dropped on its way out is no error of every kernel.
                    drop(socket.send_to(&[flow, number], target));
                }
                Ok(begun.elapsed())
            })
        };
        let threads: Vec<_> = (0..FLOWS).map(send).collect();
        let ends = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.collect::<Result<Vec<_>>>()
    })?;
    let sending = sending.into_iter().max().context("nobody sent")?;
    let (mut arrivals, mut last) = (Vec::new(), [None; FLOWS as usize]);
    let mut datagram = [0; 2];
    while at.recv(&mut datagram).is_ok() {
        arrivals.push(begun.elapsed());
        let [flow, number] = datagram;
        let last = last.get_mut(usize::from(flow)).context("a flow that nobody sent")?;
        ensure!(*last < Some(number), "flow {flow}: {number} behind {last:?}");
        *last = Some(number);
    }
    Ok(Burst { sending, arrivals })
}

/// As many arrive as may wait, and none before the rate and the burst allow as many.
fn waited(burst: &Burst) -> Result<()> {
    ensure!(burst.is(BURST + WAITING)?, "{burst}");
    for (place, arrived) in (0..).zip(&burst.arrivals) {
        let earliest = Duration::from_secs(1) * (place + 1_u32).saturating_sub(BURST) / RATE;
        ensure!(*arrived >= earliest, "number {place} is early: {arrived:?} of {earliest:?}");
    }
    Ok(())
}

/// One limit over all queues of an interface: its bucket says when a packet departs, and each queue
/// has an fq of its own.
#[test]
fn flows_of_one_limit_wait_in_the_queues_of_mq() -> Result<()> {
    require_root();
    let bed = Testbed::create("delaymq")?;
    let queues = ["numtxqueues", "4", "numrxqueues", "4"];
    let peer = ["type", "veth", "peer", "name", "queue1", "netns", bed.sender.name()];
    bed.receiver.ip(["link", "add", "queue0"]
        .into_iter()
        .chain(queues)
        .chain(peer)
        .chain(queues))?;
    let [ours, theirs] = [(&bed.receiver, "queue0"), (&bed.sender, "queue1")];
    for ((netns, interface), address) in [(ours, "198.51.100.1/24"), (theirs, "198.51.100.2/24")] {
        netns.ip(["address", "add", address, "dev", interface])?;
        netns.ip(["link", "set", interface, "up"])?;
    }
    let fq = |words: String| -> Result<bool> {
        let output = bed.receiver.output(Command::new("tc").args(words.split(' ')))?;
        Ok(output.status.success())
    };
    fq("qdisc replace dev queue0 root handle 1: mq".to_owned())?;
    for queue in 1..=4 {
        let fq = fq(format!("qdisc replace dev queue0 parent 1:{queue} fq flow_limit 1000"))?;
        if !fq {
            println!("this kernel has no mq with fq: other kernels show this");
            return bed.close();
        }
    }
    let mut rules = outgoing_udp(&format!("rate: {RATE}/s, burst: {BURST}"));
    rules.push_str("        action: {delay: {longest: 500ms}}\n");
    let mut limiter = bed.limiter(&rules)?;
    limiter.on("queue0").options(["--direction", "out"]);
    limiter.start()?;
    let said = limiter.said();
    ensure!(!said.contains("do not wait"), "{said}");
    let target = SocketAddr::from(([198, 51, 100, 2], 9_000));
    waited(&flows([&*bed.receiver, &*bed.sender], target)?)?;
    let shown = bed.receiver.run("tc", ["-s", "qdisc", "show", "dev", "queue0"])?;
    let of_fq = shown.split("qdisc ").filter(|part| part.starts_with("fq "));
    let used = of_fq.filter(|part| !part.contains(" Sent 0 bytes")).count();
    ensure!(used > 1, "all flows were in one queue: {shown}");
    limiter.close()?;
    bed.close()
}

/// What comes in on several CPUs at once, and waits in one ifb.
#[test]
fn flows_that_come_in_on_several_cpus_wait_in_an_ifb() -> Result<()> {
    require_root();
    let bed = Testbed::create("delaycpus")?;
    let rules = format!(
        "descriptors:\n  - key: protocol\n    value: udp\n    descriptors:\n      - key: \
         remote_address\n        rate_limit: {{rate: {RATE}/s, burst: {BURST}}}\n        action: \
         {{delay: {{longest: 500ms}}}}\n"
    );
    let mut limiter = bed.limiter(&rules)?;
    limiter.options(["--hook", "tc"]);
    limiter.start()?;
    if holding(&bed)?.is_empty() {
        println!("this kernel has no ifb with fq: what comes in goes on at once");
        limiter.close()?;
        return bed.close();
    }
    for _ in 0..3 {
        waited(&flows([&*bed.sender, &*bed.receiver], SocketAddr::from((RECEIVER.ipv4, 9_000)))?)?;
        // Full again.
        thread::sleep(Duration::from_secs(1));
    }
    limiter.close()?;
    bed.close()
}
