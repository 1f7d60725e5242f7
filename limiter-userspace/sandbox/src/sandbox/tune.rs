//! `cargo xtask run --tune`: the sandbox observes its own senders, proposes a limit, puts it in
//! force, and sends again: usual senders lose nothing, and the others are held to the limit.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::rules::Rules;
use super::{BOUND, DISCARD, Failure, Options, Outcome, could_run};
use crate::generator::{Generator, Pattern, Stream};
use crate::interrupt::Interrupt;
use crate::limiter::Limiter;
use crate::oracle::Limit;
use crate::packet::Frame;
use crate::receiver::{Counts, Receiver};
use crate::testbed::Testbed;
use crate::veth::{RECEIVER, SENDER};

/// Rules before the proposal: nobody is limited.
const BEFORE: &str = "descriptors:\n  - {key: remote_address, rate_limit: {unlimited: true}}\n";

/// Share of the sources that the proposal must spare: the two kinds of users.
const SPARED: &str = "90%";

/// Bytes of a frame.
const LENGTH: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Steady,
    /// Send many frames at once, and then nothing for a while.
    Bursting,
    /// Send more than any user should.
    Heavy,
}

/// The kinds, and the number of sources of each: nine in ten are users.
const KINDS: [(Kind, u8); 3] = [(Kind::Steady, 27), (Kind::Bursting, 27), (Kind::Heavy, 6)];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Bursting => "bursting",
            Self::Heavy => "heavy",
        }
    }

    fn pattern(self, sources: u32) -> Pattern {
        let paced = |each: u32| Pattern::Paced { per_second: f64::from(each * sources) };
        match self {
            Self::Steady => paced(18),
            Self::Bursting => {
                Pattern::Burst { frames: 12 * sources, every: Duration::from_secs(1) }
            }
            Self::Heavy => paced(150),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct TuneSource {
    address: Ipv4Addr,
    kind: Kind,
    /// True if the source is observed before the proposal; the others only resemble those.
    observed: bool,
}

/// Sources of a run, grouped by kind; `others` adds as many similar ones that are not observed.
fn sources(others: bool) -> Vec<Vec<TuneSource>> {
    let nets = [(true, [203, 0, 113]), (false, [198, 51, 100])];
    let mut first = 1;
    let mut kinds = Vec::new();
    for (kind, count) in KINDS {
        let mut all = Vec::new();
        for (observed, [a, b, c]) in nets.into_iter().filter(|(observed, _)| *observed || others) {
            let of = (first..first + count).map(|last| Ipv4Addr::new(a, b, c, last));
            all.extend(of.map(|address| TuneSource { address, kind, observed }));
        }
        first += count;
        kinds.push(all);
    }
    kinds
}

fn streams(kinds: &[Vec<TuneSource>]) -> Result<Vec<Stream>> {
    let of = |sources: &Vec<TuneSource>| {
        let kind = sources.first().context("a kind without sources")?.kind;
        let frames = sources.iter().map(|source| {
            let empty = Frame::ipv4(source.address.octets(), RECEIVER.ipv4.octets());
            let payload = LENGTH.saturating_sub(empty.build().len());
            empty.payload(&vec![0; payload]).build()
        });
        let pattern = kind.pattern(u32::try_from(sources.len())?);
        Ok(Stream { frames: frames.collect(), pattern })
    };
    kinds.iter().map(of).collect()
}

/// Result for the sources of one kind after the proposal came into force.
#[derive(Clone, Debug, Serialize)]
struct TuneRow {
    kind: &'static str,
    /// True if these sources had been observed.
    observed: bool,
    sources: usize,
    offered: u64,
    delivered: u64,
    /// Frames that an exact limiter delivers, of those sent.
    expected: u64,
    /// Sources that lost a frame.
    hit: usize,
}

#[derive(Debug, Serialize)]
struct TuneReport {
    pass: bool,
    failures: Vec<String>,
    rate: String,
    burst: u64,
    /// Observed sources that the proposal was predicted to hit.
    promised: u64,
    /// Largest predicted share of similar sources that it hits, with a confidence of 95 %.
    promised_at_most: f64,
    rows: Vec<TuneRow>,
    /// Sources that sent, that lost a packet, and that lost most of their packets, by limiter's
    /// counts.
    counted: [u64; 3],
}

/// Observes, proposes, applies, and measures.
///
/// # Errors
///
/// When there is no result. The sandbox is taken down in any case.
pub fn run(options: &Options) -> Result<Outcome, Failure> {
    could_run(&options.limiter).map_err(Failure::CouldNotRun)?;
    let interrupt = Interrupt::watch().map_err(Failure::CouldNotRun)?;
    let testbed = Testbed::create("tune").map_err(Failure::CouldNotRun)?;
    let before = testbed.dir.write("before.yaml", BEFORE).map_err(Failure::CouldNotRun)?;
    let mut limiter = Limiter::new(options.limiter.clone(), &before, RECEIVER.interface, &testbed);
    let ready = limiter.start().map_err(Failure::CouldNotRun)?;
    eprintln!("{ready}");
    let outcome = tuned(options, &testbed, &limiter, &interrupt);
    let closed = limiter.close().and(testbed.close());
    let outcome = outcome.map_err(Failure::BrokeOff)?;
    closed.context("cannot clean up").map_err(Failure::BrokeOff)?;
    Ok(outcome)
}

fn tuned(
    options: &Options,
    testbed: &Testbed,
    limiter: &Limiter,
    interrupt: &Interrupt,
) -> Result<Outcome> {
    let _listener = testbed.receiver.enter(|| UdpSocket::bind((RECEIVER.ipv4, DISCARD)))??;
    let seconds = options.duration.as_secs().max(2);
    let file = testbed.dir.path().join("tuned.yaml");
    let tuned = path(&file)?;
    let Some(proposed) = observe(testbed, limiter, interrupt, (seconds, tuned))? else {
        return Ok(Outcome::Interrupted);
    };
    let proposal = &proposed["proposal"];
    let (rate, burst) = (proposal["rate"].as_str(), proposal["burst"].as_u64());
    let (rate, burst) = rate.zip(burst).with_context(|| format!("no proposal: {proposed}"))?;
    eprintln!("Proposed: {rate}, {burst} at once.");

    // An operator would do the same after a while of looking.
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains("shadow_mode: true"), "the proposal does more than count: {text}");
    fs::write(&file, text.replace("shadow_mode: true", "shadow_mode: false"))?;
    for words in [["check", tuned], ["apply", tuned]] {
        eprintln!("$ limiter {}", words.join(" "));
        limiter.ok(words)?;
    }
    // From this call on, limiter recognizes every new source as new.
    limiter.ok(["tune"])?;
    let rules = Rules::read(&file)?;
    let limit = rules.of(Ipv4Addr::new(203, 0, 113, 1).into()).context("no limit")?.limit;
    let Some(rows) = measure(testbed, interrupt, seconds, &limit)? else {
        return Ok(Outcome::Interrupted);
    };
    let mut report = TuneReport {
        pass: false,
        failures: Vec::new(),
        rate: rate.to_owned(),
        burst,
        promised: proposal["sources_hit"].as_u64().context("no sources_hit")?,
        promised_at_most: proposal["share_at_most"].as_f64().context("no share_at_most")?,
        rows,
        counted: counted(limiter)?,
    };
    report.judge();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.pass { Outcome::Pass } else { Outcome::Fail })
}

/// Counts of `limiter tune` about the rule in force.
fn counted(limiter: &Limiter) -> Result<[u64; 3]> {
    let reported = limiter.json(&["tune"])?;
    let rule = &reported["rules"][0];
    ensure!(rule["rule_name"] == "tuned", "another rule is in force: {reported}");
    let number = |name: &str| rule[name].as_u64().with_context(|| format!("no {name}: {reported}"));
    Ok([number("sent")?, number("lost")?, number("lost_most")?])
}

fn path(file: &Path) -> Result<&str> {
    file.to_str().context("a path that is no text")
}

/// Sends while `limiter tune` observes; returns `None` after an interrupt.
fn observe(
    testbed: &Testbed,
    limiter: &Limiter,
    interrupt: &Interrupt,
    (seconds, to): (u64, &str),
) -> Result<Option<Value>> {
    let kinds = sources(false);
    eprintln!("{} sources send, and nobody is limited.", kinds.iter().map(Vec::len).sum::<usize>());
    // The senders go on until the observation is over.
    let longest = Duration::from_secs(seconds + 60);
    let generator =
        Generator::start(&testbed.sender, SENDER.interface, streams(&kinds)?, longest, BOUND)?;
    let time = format!("{seconds}s");
    let words = ["tune", "--for", &time, "--spare", SPARED, "--to", to];
    eprintln!("$ limiter {}", words.join(" "));
    let words = words.into_iter().chain(["--output", "json"]).map(str::to_owned);
    let output: Output = limiter.cli(words.collect::<Vec<_>>())?;
    // Dropping the generator ends the traffic.
    drop(generator);
    if interrupt.is_set() {
        return Ok(None);
    }
    ensure!(
        output.status.success(),
        "`limiter tune` failed: {}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(Some(serde_json::from_slice(&output.stdout)?))
}

/// Sends again, together with similar sources that were not observed, and counts the arrivals.
fn measure(
    testbed: &Testbed,
    interrupt: &Interrupt,
    seconds: u64,
    limit: &Limit,
) -> Result<Option<Vec<TuneRow>>> {
    let kinds = sources(true);
    eprintln!("They send again, and as many others like them.");
    let receiver = Receiver::start(&testbed.receiver, RECEIVER.interface)?;
    let met = testbed.met()?;
    let duration = Duration::from_secs(seconds);
    let generator =
        Generator::start(&testbed.sender, SENDER.interface, streams(&kinds)?, duration, BOUND)?;
    while !generator.is_finished() && !interrupt.is_set() {
        thread::sleep(Duration::from_millis(20));
    }
    let recordings = generator.finish()?;
    if interrupt.is_set() {
        return Ok(None);
    }
    let sent: usize = recordings.iter().map(|recording| recording.times.len()).sum();
    testbed.wait_until_met(met + u64::try_from(sent)?)?;
    let counts = receiver.finish()?;
    counts.check_clean()?;
    let mut rows = Vec::new();
    for (sources, recording) in kinds.iter().zip(&recordings) {
        for observed in [true, false] {
            let of = sources.iter().copied().enumerate();
            let of = of.filter(|(_, source)| source.observed == observed);
            let times = |index| recording.times_of(index, sources.len());
            rows.push(row(of, times, &counts, limit)?);
        }
    }
    Ok(Some(rows))
}

fn row<T: Iterator<Item = u64>>(
    sources: impl Iterator<Item = (usize, TuneSource)>,
    times: impl Fn(usize) -> T,
    counts: &Counts,
    limit: &Limit,
) -> Result<TuneRow> {
    let mut row = TuneRow {
        kind: Kind::Steady.name(),
        observed: true,
        sources: 0,
        offered: 0,
        delivered: 0,
        expected: 0,
        hit: 0,
    };
    for (index, source) in sources {
        let sent: Vec<u64> = times(index).collect();
        let (offered, delivered) =
            (u64::try_from(sent.len())?, counts.of(IpAddr::from(source.address)));
        (row.kind, row.observed) = (source.kind.name(), source.observed);
        row.sources += 1;
        row.offered += offered;
        row.delivered += delivered;
        row.expected += limit.delivered(1, sent)?;
        row.hit += usize::from(delivered < offered);
    }
    Ok(row)
}

impl TuneReport {
    #[expect(clippy::cast_precision_loss, reason = "a few sources")]
    fn judge(&mut self) {
        let mut failures = Vec::new();
        let heavy = Kind::Heavy.name();
        for row in &self.rows {
            let TuneRow { kind, offered, delivered, expected, hit, sources, .. } = row;
            if *kind == heavy && hit != sources {
                failures
                    .push(format!("{} of {sources} {kind} sources lost nothing", sources - hit));
            }
            if *kind != heavy && *hit > 0 {
                failures.push(format!("{hit} of {sources} {kind} sources lost packets"));
            }
            if delivered.abs_diff(*expected) * 100 > *expected || *offered == 0 {
                failures.push(format!(
                    "of {kind} sources {delivered} arrived, {expected} were expected of {offered}"
                ));
            }
        }
        let hit = |observed| {
            let rows = self.rows.iter().filter(|row| row.observed == observed);
            rows.fold((0, 0), |(hit, all), row| (hit + row.hit, all + row.sources))
        };
        let (of_observed, _) = hit(true);
        if u64::try_from(of_observed).ok() != Some(self.promised) {
            failures.push(format!(
                "{of_observed} of the observed sources were hit, {} were promised",
                self.promised
            ));
        }
        let (of_others, others) = hit(false);
        if of_others as f64 > self.promised_at_most * others as f64 {
            failures.push(format!(
                "{of_others} of {others} others were hit, more than {:.1} % were promised at most",
                self.promised_at_most * 100.0
            ));
        }
        let sent: usize = self.rows.iter().map(|row| row.sources).sum();
        // The heavy sources send far more than passes.
        let hit = of_observed + of_others;
        let counted = [sent, hit, hit].map(|count| u64::try_from(count).unwrap_or(0));
        if self.counted != counted {
            failures.push(format!(
                "limiter counted {:?} sources that sent, lost, and lost most; {counted:?} did",
                self.counted
            ));
        }
        self.pass = failures.is_empty();
        self.failures = failures;
    }

    fn text(&self) -> String {
        let mut lines: Vec<String> = self
            .rows
            .iter()
            .map(|row| {
                let who = if row.observed { "observed" } else { "others like them" };
                format!(
                    "{:>2} {} sources ({who}): {} of {} packets arrived, {} sources lost any",
                    row.sources, row.kind, row.delivered, row.offered, row.hit
                )
            })
            .collect();
        lines.extend(self.failures.iter().map(|failure| format!("FAIL: {failure}")));
        if self.pass {
            lines.push(format!(
                "PASS: {}, {} at once spares the users and holds the heavy senders, as promised",
                self.rate, self.burst
            ));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> TuneReport {
        let row = |kind: Kind, observed, hit| TuneRow {
            kind: kind.name(),
            observed,
            sources: 6,
            offered: 100,
            delivered: if hit > 0 { 50 } else { 100 },
            expected: if hit > 0 { 50 } else { 100 },
            hit,
        };
        let rows = [(true, 6), (false, 6)].into_iter().flat_map(|(observed, hit)| {
            [row(Kind::Steady, observed, 0), row(Kind::Heavy, observed, hit)]
        });
        TuneReport {
            pass: false,
            failures: Vec::new(),
            rate: "20/s".to_owned(),
            burst: 15,
            promised: 6,
            promised_at_most: 0.5,
            rows: rows.collect(),
            counted: [24, 12, 12],
        }
    }

    type Change = fn(&mut TuneReport);

    #[test]
    fn each_way_to_fail_is_reported() {
        let judged = |change: Change| {
            let mut report = report();
            change(&mut report);
            report.judge();
            report.failures.join("; ")
        };
        assert_eq!(judged(|_| ()), "");
        let fails: [(Change, &str); 6] = [
            (|report| report.counted = [24, 11, 11], "limiter counted [24, 11, 11] sources"),
            (|report| report.rows[0].hit = 1, "1 of 6 steady sources lost packets"),
            (|report| report.rows[1].hit = 5, "1 of 6 heavy sources lost nothing"),
            (|report| report.rows[0].delivered = 98, "98 arrived, 100 were expected"),
            (|report| report.promised = 5, "6 of the observed sources were hit, 5 were promised"),
            (|report| report.promised_at_most = 0.4, "6 of 12 others were hit, more than 40.0 %"),
        ];
        for (change, reported) in fails {
            let failures = judged(change);
            assert!(failures.contains(reported), "{failures}");
        }
    }
}
