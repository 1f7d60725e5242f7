//! What waiting gives TCP, beside the other ways to limit a rate, how precisely packets depart, and
//! what a limit delivers of its rate: figures of an emulated kernel with `fq`, for
//! docs/shaping-figures.md.

// Figures of other kernels, in docs/shaping-figures.md: 1200 s each.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::clock;
use limiter_tests::delay::hold;
use limiter_tests::delay::report::{departures, late, percent_of, percentile};
use limiter_tests::delay::traffic::{Pace, collect, datagrams, stream};
use limiter_tests::interrupt::Interrupt;
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::oracle::Limit;
use limiter_tests::packet_socket::{segment, send_at, timed};
use limiter_tests::requests::bounds;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

/// Times that everything is measured, in turn.
const ROUNDS: usize = 3;

/// Of each TCP stream: the start, which is not counted, and the rest.
const FIRST: Duration = Duration::from_millis(1_500);
const LENGTH: Duration = Duration::from_secs(4);

/// Packets a second of the limit whose departures are measured, and how many are sent at once.
const RATE: u32 = 500;
const AT_ONCE: u32 = 200;

/// Megabits a second, and bytes at once: eight milliseconds, and never less than 20 kB.
const RATES: [(u64, u64); 3] = [(1, 20), (20, 20), (200, 200)];

/// Limits of which it is measured how short `longest` may be, and its milliseconds.
const SHORT: [(u64, u64); 3] = [(1, 2), (20, 2), (20, 20)];
const WAITS: [u64; 6] = [2, 5, 10, 20, 50, 100];

/// A way to limit what goes out to a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Waiting,
    Dropping,
    Htb,
    Tbf,
    Police,
}

impl Way {
    const ALL: [Self; 5] = [Self::Waiting, Self::Dropping, Self::Htb, Self::Tbf, Self::Police];

    const fn text(self) -> &'static str {
        match self {
            Self::Waiting => "limiter, `action: {delay: {longest: 200ms}}`",
            Self::Dropping => "limiter, `action: drop`",
            Self::Htb => "`tc` htb",
            Self::Tbf => "`tc` tbf, latency 200ms",
            Self::Police => "`tc` police",
        }
    }

    /// The commands of `tc`, without the device.
    fn commands(self, mbit: u64, burst: u64) -> Vec<String> {
        let limit = format!("rate {mbit}mbit burst {burst}000");
        match self {
            Self::Waiting | Self::Dropping => {
                vec!["qdisc replace dev DEV root fq flow_limit 10000".to_owned()]
            }
            Self::Htb => vec![
                "qdisc replace dev DEV root handle 1: htb default 1".to_owned(),
                format!(
                    "class replace dev DEV parent 1: classid 1:1 htb {limit} cburst {burst}000"
                ),
            ],
            Self::Tbf => vec![format!("qdisc replace dev DEV root tbf {limit} latency 200ms")],
            Self::Police => vec![
                "qdisc replace dev DEV clsact".to_owned(),
                format!(
                    "filter replace dev DEV egress protocol all pref 1 matchall action police \
                     {limit} conform-exceed drop/ok"
                ),
            ],
        }
    }
}

fn tc(netns: &Netns, command: &str) -> Result<()> {
    let command = command.replace("DEV", SENDER.interface);
    let output = netns.output(Command::new("tc").args(command.split(' ')))?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A limiter at the sending end of a cable with `fq`; none where the kernel has no `fq`.
fn limiter(bed: &Testbed, rules: &str) -> Result<Option<Limiter>> {
    if !hold(&bed.sender, SENDER.interface)? {
        println!("this kernel has no fq: figures are of others");
        return Ok(None);
    }
    started(bed, rules).map(Some)
}

/// A limiter of what goes out of the sending end.
fn started(bed: &Testbed, rules: &str) -> Result<Limiter> {
    let file = bed.dir.write("rules.yaml", rules)?;
    let (binary, interface) = (limiter_tests::limiter::binary()?, SENDER.interface);
    let (dir, bpffs) = (bed.dir.path(), bed.bpffs.path());
    let mut limiter = Limiter::within(&bed.sender, binary, &file, interface, dir, bpffs);
    limiter.options(["--direction", "out"]);
    limiter.start()?;
    Ok(limiter)
}

/// Ports of the streams that wait, by rate; those of the streams that are dropped are behind.
fn ports() -> impl Iterator<Item = (u16, (u64, u64))> {
    (9_000..).step_by(2).zip(RATES)
}

/// The rule for streams to a port.
fn rule(port: u16, (mbit, burst): (u64, u64), action: &str) -> String {
    format!(
        "  - key: destination_port\n    value: {port}\n    direction: out\n    descriptors:\n      \
         - key: remote_address\n        rate_limit: {{rate: {mbit}mbit/s, burst: {burst}kB}}\n        \
         action: {action}\n"
    )
}

fn rules() -> String {
    let both = |(port, limit)| {
        rule(port, limit, "{delay: {longest: 200ms}}") + &rule(port + 1, limit, "drop")
    };
    format!("descriptors:\n{}", ports().map(both).collect::<String>())
}

/// Payload of one TCP stream under a limit, in percent of that.
fn share(bed: &Testbed, port: u16, mbit: u64) -> Result<f64> {
    let ends = [&*bed.sender, &*bed.receiver];
    let target = SocketAddr::from((RECEIVER.ipv4, port));
    let (bytes, lasted) = stream(ends, target, FIRST, LENGTH)?;
    let bits = u128::from(bytes) * 8_000 / lasted.as_millis().max(1);
    Ok(percent_of(u64::try_from(bits)?, mbit * 1_000_000))
}

#[test]
#[ignore = "figures of an emulated kernel: `cargo xtask bench figures`"]
fn tcp_beside_other_ways() -> Result<()> {
    require_root();
    let (bed, others) = (Testbed::create("delayfig")?, Testbed::create("delayoth")?);
    let Some(limiter) = limiter(&bed, &rules())? else {
        return Ok(());
    };
    let mut shares = vec![vec![Vec::new(); RATES.len()]; Way::ALL.len()];
    for _ in 0..ROUNDS {
        for (place, (port, (mbit, burst))) in ports().enumerate() {
            for (way, shares) in Way::ALL.into_iter().zip(&mut shares) {
                let (bed, port) = match way {
                    Way::Waiting => (&bed, port),
                    Way::Dropping => (&bed, port + 1),
                    _ => (&others, port),
                };
                for command in way.commands(mbit, burst) {
                    tc(&bed.sender, &command)?;
                }
                let share = share(bed, port, mbit)?;
                eprintln!("{way:?} at {mbit} Mbit/s: {share:.1} %");
                shares.get_mut(place).context("a rate")?.push(share);
                for end in ["qdisc del dev DEV root", "qdisc del dev DEV clsact"] {
                    // Whichever there was.
                    drop(tc(&bed.sender, end));
                }
            }
        }
    }
    let heads = RATES.map(|(mbit, burst)| format!(" {mbit} Mbit/s, burst {burst} kB |"));
    println!();
    println!("figure: | payload of one TCP stream, of the limit |{}", heads.concat());
    println!("figure: |---|{}", "---|".repeat(RATES.len()));
    for (way, shares) in Way::ALL.into_iter().zip(&mut shares) {
        let cells: String = shares.iter_mut().map(|shares| spread(shares, 1)).collect();
        println!("figure: | {} |{cells}", way.text());
    }
    println!("figure:");
    limiter.close()?;
    bed.close().and(others.close())
}

/// How short `longest` may be, by the packets that fit into burst and wait together.
#[test]
#[ignore = "figures of an emulated kernel: `cargo xtask bench figures`"]
fn tcp_by_longest_wait() -> Result<()> {
    require_root();
    let bed = Testbed::create("delaylen")?;
    let cases = || {
        (9_200..).zip(SHORT).flat_map(|(port, limit)| {
            (port..).step_by(10).zip(WAITS).map(move |(port, longest)| (port, limit, longest))
        })
    };
    let rules: String = cases()
        .map(|(port, limit, longest)| {
            rule(port, limit, &format!("{{delay: {{longest: {longest}ms}}}}"))
        })
        .collect();
    let Some(limiter) = limiter(&bed, &format!("descriptors:\n{rules}"))? else {
        return Ok(());
    };
    let mut shares = vec![Vec::new(); SHORT.len() * WAITS.len()];
    for _ in 0..ROUNDS {
        for ((port, (mbit, _), longest), shares) in cases().zip(&mut shares) {
            let share = share(&bed, port, mbit)?;
            eprintln!("{longest} ms at {mbit} Mbit/s: {share:.1} %");
            shares.push(share);
        }
    }
    let heads = WAITS.map(|longest| format!(" {longest}ms |"));
    println!();
    println!("figure: | the same, medians, by `longest` |{}", heads.concat());
    println!("figure: |---|{}", "---|".repeat(WAITS.len()));
    for ((mbit, burst), shares) in SHORT.into_iter().zip(shares.chunks_mut(WAITS.len())) {
        let cells: String = shares.iter_mut().map(|shares| median(shares)).collect();
        println!("figure: | {mbit} Mbit/s, burst {burst} kB |{cells}");
    }
    println!("figure:");
    limiter.close()?;
    bed.close()
}

/// The median, the least and the most, with so many decimals, as a cell of a table.
fn spread(values: &mut [f64], decimals: usize) -> String {
    values.sort_unstable_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(least), Some(median), Some(most)) => {
            format!(" {median:.decimals$} % ({least:.decimals$} to {most:.decimals$}) |")
        }
        _ => " - |".to_owned(),
    }
}

/// The median, as a cell of a table.
fn median(values: &mut [f64]) -> String {
    values.sort_unstable_by(f64::total_cmp);
    values
        .get(values.len() / 2)
        .map_or_else(|| " - |".to_owned(), |value| format!(" {value:.1} % |"))
}

/// Datagrams whose times of departure the sender names itself, and nobody limits: these times, and
/// when they arrived.
fn by_fq_alone([from, to]: [&Netns; 2], interrupt: &Interrupt) -> Result<Vec<(u64, u64)>> {
    let target = SocketAddr::from((RECEIVER.ipv4, 9_101));
    let socket = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    timed(&socket)?;
    let pace = Pace { each: AT_ONCE, every: Duration::from_secs(1) };
    let every = 1_000_000_000 / u64::from(RATE);
    let mut departures: Vec<u64> = Vec::new();
    let sent = collect(to, target, pace, Duration::from_millis(1), interrupt, |number| {
        let next = departures.last().map_or_else(clock::now, |last| last + every);
        departures.push(next);
        send_at(&socket, number, target, next)
    })?;
    let of = |(number, at): &(usize, u64)| Some((departures.get(*number).copied()?, *at));
    Ok(sent.arrivals.iter().filter_map(of).collect())
}

#[test]
#[ignore = "figures of an emulated kernel: `cargo xtask bench figures`"]
fn departures_beside_fq_alone() -> Result<()> {
    require_root();
    let bed = Testbed::create("departures")?;
    let rules = format!(
        "descriptors:\n  - key: destination_port\n    value: 9100\n    direction: out\n    \
         descriptors:\n      - key: remote_address\n        rate_limit: {{rate: {RATE}/s, burst: \
         1}}\n        action: {{delay: {{longest: 500ms}}}}\n"
    );
    let Some(limiter) = limiter(&bed, &rules)? else {
        return Ok(());
    };
    let interrupt = Interrupt::watch()?;
    let ends = [&*bed.sender, &*bed.receiver];
    let target = SocketAddr::from((RECEIVER.ipv4, 9_100));
    let limit = Limit::per_second(RATE.into(), 1);
    let (mut of_limiter, mut of_fq) = (Vec::new(), Vec::new());
    for _ in 0..2 * ROUNDS {
        for (is_ours, latenesses) in [(true, &mut of_limiter), (false, &mut of_fq)] {
            let arrived = if is_ours {
                let pace = Pace { each: AT_ONCE, every: Duration::from_secs(1) };
                let sent = datagrams(ends, target, pace, Duration::from_millis(1), &interrupt)?;
                departures(&sent, &limit)
            } else {
                by_fq_alone(ends, &interrupt)?
            };
            ensure!(arrived.len() == usize::try_from(AT_ONCE)?, "{arrived:?}");
            let (late, early) = late(&arrived);
            ensure!(early == 0, "{early} are early, by limiter: {is_ours}");
            latenesses.extend(late);
        }
    }
    // Not behind libtest's own words.
    println!();
    println!("figure: | {AT_ONCE} datagrams at {RATE}/s, late by | median | 99 of 100 |");
    println!("figure: |---|---|---|");
    for (who, late) in
        [("limiter and fq", &mut of_limiter), ("fq alone, times by the sender", &mut of_fq)]
    {
        late.sort_unstable();
        let [median, most] = [50, 99].map(|of_100| percentile(late, of_100) / 1_000);
        println!("figure: | {who} | {median} µs | {most} µs |");
    }
    println!("figure:");
    limiter.close()?;
    bed.close()
}

/// Bytes of a datagram, and of its headers on the wire.
const DATAGRAM: u16 = 1_000;
const HEADERS: u64 = 14 + 20 + 8;

/// Datagrams of a super-frame, super-frames of the limit in a second, and those at once.
const SEGMENTS: u16 = 5;
const FRAMES: u64 = 50;
const BURST: u32 = 6;

/// The limits whose rates are measured: a port, what is counted, and the action.
const LIMITS: [(u16, &str, &str); 4] = [
    (9_200, "packets", "drop"),
    (9_201, "bytes", "drop"),
    (9_202, "packets", "{delay: {longest: 200ms}}"),
    (9_203, "bytes", "{delay: {longest: 200ms}}"),
];

fn rule_of_datagrams((port, count, action): (u16, &str, &str)) -> String {
    let each = if count == "bytes" { u64::from(DATAGRAM) + HEADERS } else { 1 };
    let frame = u64::from(SEGMENTS) * each;
    let (rate, burst) = (frame * FRAMES, frame * u64::from(BURST));
    format!(
        "  - key: destination_port\n    value: {port}\n    direction: out\n    descriptors:\n      \
         - key: remote_address\n        rate_limit: {{unit: second, requests_per_unit: {rate}, \
         burst: {burst}, count: {count}}}\n        action: {action}\n"
    )
}

/// Of twice the rate for a while, in super-frames of so many datagrams: delivered over what an
/// exact bucket lets pass of the same frames at the same times, in percent.
fn held(
    [from, to]: [&Netns; 2],
    (port, longest): (u16, Duration),
    segments: u16,
    interrupt: &Interrupt,
) -> Result<f64> {
    let target = SocketAddr::from((RECEIVER.ipv4, port));
    let socket = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    segment(&socket, DATAGRAM)?;
    let every = Duration::from_secs(1) / (2 * u32::try_from(FRAMES)?);
    let pace = Pace { each: u32::from(SEGMENTS / segments), every };
    let sent = collect(to, target, pace, Duration::from_secs(8), interrupt, |number| {
        let mut datagram = number.to_vec();
        datagram.resize(usize::from(DATAGRAM), 0);
        // One that is dropped on its way out is no error of every kernel.
        drop(socket.send_to(&datagram.repeat(usize::from(segments)), target));
        Ok(())
    })?;
    let offered = u64::try_from(sent.times.len())? * u64::from(segments);
    let limit = 8 * FRAMES * u64::from(SEGMENTS);
    ensure!(offered > limit, "the machine is too busy: {offered} of {}", 2 * limit);
    let each = u32::from(SEGMENTS / segments);
    let limit = Limit::per_second(FRAMES * u64::from(each), BURST * each);
    let exact = bounds::allowed(&sent.times, &limit, longest);
    let arrived = u64::try_from(sent.arrivals.len())? / u64::from(segments);
    // The middle of what is possible.
    Ok(percent_of(2 * arrived, exact.start() + exact.end()))
}

#[test]
#[ignore = "figures of an emulated kernel: `cargo xtask bench figures`"]
fn delivered_over_configured() -> Result<()> {
    require_root();
    let bed = Testbed::create("held")?;
    let has_fq = hold(&bed.sender, SENDER.interface)?;
    let limits = if has_fq { &LIMITS[..] } else { LIMITS.split_at(2).0 };
    let rules: Vec<String> = limits.iter().map(|limit| rule_of_datagrams(*limit)).collect();
    let limiter = started(&bed, &format!("descriptors:\n{}", rules.concat()))?;
    let interrupt = Interrupt::watch()?;
    let ends = [&*bed.sender, &*bed.receiver];
    let sizes = [SEGMENTS, 1];
    let mut shares = vec![[Vec::new(), Vec::new()]; limits.len()];
    for _ in 0..ROUNDS {
        for (&(port, count, action), shares) in limits.iter().zip(&mut shares) {
            for (segments, shares) in sizes.into_iter().zip(shares) {
                let longest = Duration::from_millis(if action == "drop" { 0 } else { 200 });
                let share = held(ends, (port, longest), segments, &interrupt)?;
                eprintln!("{action}, {count}, {segments} in a frame: {share:.2} %");
                shares.push(share);
            }
        }
    }
    println!();
    println!("figure: | delivered, of an exact bucket | frames of {SEGMENTS} | one by one |");
    println!("figure: |---|---|---|");
    for ((_, count, action), shares) in limits.iter().zip(&mut shares) {
        let cells: String = shares.iter_mut().map(|shares| spread(shares, 2)).collect();
        println!("figure: | `action: {action}`, {count} |{cells}");
    }
    println!("figure:");
    limiter.close()?;
    bed.close()
}
