//! `limiter tune`.

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use limiter_common::wire::Count;
use serde::Serialize;

use super::args::{LEAST_FRAME, Output, interval};
use super::capture::budget;
use super::explain::BEHIND_XDP;
use super::failure::Failure;
use super::observe::share as share_of;
use super::reading::Read;
use super::{Answer, export, live, reading};
use crate::control::Client;
use crate::daemon::api::nearness::Nearness;
use crate::datapath::Backend;
use crate::explain::Captured;
use crate::render::{self, Render, duration, line, number, push, table};
use crate::replay::tune::{
    AtRate, MAX_CURVES, MAX_SOURCES, Observation, Proposal, Report, SHARES, Settings, Tuner,
    rule_file,
};
use crate::rules::model::{SOURCE_MASKS, SourceMasks};
use crate::rules::plain::clean;
use crate::rules::{Selector, source_text};

/// Fewer sources than this say little about a share of 99.9 %.
const FEW: u64 = 3000;

/// Group of the arguments that name traffic. Without any, the rules in force are looked at.
const TRAFFIC: &str = "traffic";

/// Arguments of `tune`.
#[derive(Debug, clap::Args)]
pub(super) struct Ask {
    /// A capture, or a directory of captures; may be repeated; `-` for standard input
    #[arg(long, value_name = "FILE|DIR", group = TRAFFIC)]
    pcap: Vec<PathBuf>,
    /// A load in place of captures, as for `simulate`: to see what is made of known traffic
    #[arg(long, value_name = "FILE", group = TRAFFIC)]
    load: Option<PathBuf>,
    /// Observe the traffic for a time, as in 10m, and propose from that: needs the daemon, and its
    /// rights. Ctrl-C ends it before its time, and what came so far is proposed from
    #[arg(long = "for", value_name = "TIME", value_parser = interval, group = TRAFFIC)]
    time: Option<Duration>,
    /// With --for: read the counters of all sources each second, in the place of their packets.
    /// Bursts within a second are not seen; needs a rule on sources in force
    #[arg(long, requires = "time", conflicts_with_all = ["share", "rate_budget"])]
    counters: bool,
    /// With --for: share of the sources to begin with, as in `observe`
    #[arg(
        long, value_name = "1/N", default_value = "1", value_parser = share_of,
        requires = "time",
    )]
    share: u32,
    /// With --for: packets that each CPU may tell a second, as in `observe`
    #[arg(
        long, value_name = "N/s", default_value = "10000/s", value_parser = budget,
        requires = "time",
    )]
    rate_budget: NonZeroU32,
    /// Bucket of the limit: `source`, or prefixes as /24 of IPv4, or /24,/48 of both families
    #[arg(
        long, value_name = "source|/N[,/N]", default_value = "source", value_parser = masks,
        requires = TRAFFIC,
    )]
    by: SourceMasks,
    /// Unit that the limit counts
    #[arg(long, value_enum, default_value_t = Unit::Packets, requires = TRAFFIC)]
    count: Unit,
    /// Share of the sources that the limit is to spare
    #[arg(
        long, value_name = "SHARE", default_value = "99.9%", value_parser = share,
        requires = TRAFFIC,
    )]
    spare: f64,
    /// Sources to leave out: an address, a prefix, or a file with one a line; may be repeated
    #[arg(long, value_name = "ADDRESS|PREFIX|FILE", requires = TRAFFIC)]
    exclude: Vec<String>,
    /// The largest frame of the interface in bytes: the MTU, and 22 for Ethernet with two VLAN tags
    #[arg(
        long, value_name = "BYTES", default_value_t = LEAST_FRAME,
        value_parser = clap::value_parser!(u64).range(LEAST_FRAME..=131_071),
        requires = TRAFFIC,
    )]
    max_frame: u64,
    /// Write the rule file there, as a whole or not at all
    #[arg(long, value_name = "FILE", requires = TRAFFIC)]
    to: Option<PathBuf>,
    /// Same as --output json
    #[arg(long)]
    json: bool,
}

/// Units that a limit by source can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Unit {
    /// Packets
    Packets,
    /// Bytes
    Bytes,
}

/// `source`, `/24` or `/24,/48`.
fn masks(text: &str) -> Result<SourceMasks, String> {
    if text == "source" {
        return Ok(SOURCE_MASKS);
    }
    let wrong =
        || "write source, /24 of IPv4 (1 to 32), or /24,/48 of both (IPv6: 1 to 64)".to_owned();
    let (v4, v6) = text.split_once(',').map_or((text, None), |(v4, v6)| (v4, Some(v6)));
    let bits = |text: &str, most: u8| {
        let bits = text.strip_prefix('/').and_then(|bits| bits.parse::<u8>().ok());
        bits.filter(|bits| (1..=most).contains(bits)).ok_or_else(wrong)
    };
    let v6 = v6.map_or(Ok(64), |v6| bits(v6, 64))?;
    Ok(SourceMasks { v4: Some(bits(v4, 32)?), v6: Some(v6) })
}

/// `99.9%` or `0.999` as a share.
fn share(text: &str) -> Result<f64, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    parsed
        .ok()
        .filter(|share| (0.0..=1.0).contains(share) && *share > 0.0)
        .ok_or_else(|| "write a share above 0, up to 100%, as in 99.9%".to_owned())
}

/// Answer of `tune`.
#[derive(Debug, Serialize)]
struct Tuned {
    #[serde(flatten)]
    report: Report,
    /// The rule file; none without a proposal.
    rule_file: Option<String>,
    /// Cautions, and remarks about the captures.
    notes: Vec<String>,
    /// Error that ended the reading before the end of what there is, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    #[serde(skip)]
    spare: f64,
}

/// Proposes a limit, or says whether those in force fit. Nothing is applied.
pub(super) fn tune(
    client: &Client,
    backend: &dyn Backend,
    ask: &Ask,
    output: Output,
) -> Result<Answer, Failure> {
    let output = if ask.json { Output::Json } else { output };
    if ask.load.is_none() && ask.pcap.is_empty() && ask.time.is_none() {
        let nearness = client.get::<Nearness>("/v1/nearness")?;
        let text = output.document(&nearness)?.unwrap_or_else(|| render::text(&nearness));
        return Ok(text.into());
    }
    let settings = Settings {
        count: ask.counted()?,
        masks: ask.by,
        excluded: excluded(&ask.exclude)?,
        spare: ask.spare,
        max_frame: ask.max_frame,
    };
    let mut tuner = Tuner::new(settings).map_err(|error| Failure::Replay(error.to_string()))?;
    let (read, one_of) = ask.read(client, backend, &mut tuner)?;
    let mut report = tuner.report();
    if read.packets == 0
        && let Some(stopped) = read.stopped
    {
        return Err(Failure::Replay(stopped));
    }
    let mut notes = cautions(&report, ask.spare);
    if one_of > 1 {
        notes.push(format!(
            "one of {one_of} sources was observed, chosen by a secret hash, and all shares are of \
             those"
        ));
        report.one_of *= u64::from(one_of);
    }
    notes.extend(read.notes);
    let rule_file = rule_file(&report, ask.by, &clean(&ask.origin()))?;
    let mut errors = Vec::new();
    if let Some(to) = &ask.to {
        match &rule_file {
            Some(text) => {
                errors.push(export::written(to, text.as_bytes())?.trim_end().to_owned());
            }
            None => errors.push("no rule file was written: there is no proposal".to_owned()),
        }
    }
    let code = if read.stopped.is_some() || report.proposal.is_none() { 2 } else { 0 };
    let answer = Tuned { report, rule_file, notes, stopped: read.stopped, spare: ask.spare };
    let text = output.document(&answer)?.unwrap_or_else(|| render::text(&answer));
    errors.extend(answer.stopped);
    Ok(Answer { text, errors, code })
}

impl Ask {
    /// The unit that the limit counts.
    fn counted(&self) -> Result<Count, Failure> {
        match self.count {
            Unit::Packets => Ok(Count::Packets),
            Unit::Bytes if self.counters => Err(Failure::Replay(
                "--counters: the counters of sources are of packets: leave it out to count bytes"
                    .to_owned(),
            )),
            Unit::Bytes => Ok(Count::Bytes),
        }
    }

    /// Gives the traffic to the tuner; says one in how many sources that is.
    fn read(
        &self,
        client: &Client,
        backend: &dyn Backend,
        tuner: &mut Tuner,
    ) -> Result<(Read, u32), Failure> {
        if let Some(time) = self.time {
            if self.counters {
                return Ok((live::counted(client, backend, time, tuner)?, 1));
            }
            let (read, one_of) =
                live::observed(client, (time, self.share, self.rate_budget), tuner)?;
            if one_of > 1 && self.by != SOURCE_MASKS {
                return Err(Failure::Replay(format!(
                    "of each prefix one of {one_of} sources was observed: --by takes all of them; \
                     give --share 1 and a larger --rate-budget"
                )));
            }
            return Ok((read, one_of));
        }
        let mut exempt = 0u64;
        let packet = |captured: &Captured| {
            match captured.source() {
                Some(source) => {
                    let (nanos, bytes) = (captured.nanos, captured.length);
                    tuner.observe(&Observation { nanos, source, bytes });
                }
                None => exempt += 1,
            }
            Ok(())
        };
        let mut read = match &self.load {
            Some(file) => reading::load(file, packet)?,
            None => reading::captures(&self.pcap, packet)?,
        };
        if exempt > 0 {
            let exempt = number(exempt);
            read.notes
                .push(format!("{exempt} packets have no source (ARP, not IP), and were left out"));
        }
        if self.load.is_none() {
            read.notes.push(BEHIND_XDP.to_owned());
        }
        Ok((read, 1))
    }

    /// The traffic in a few words.
    fn origin(&self) -> String {
        if self.time.is_some() {
            let how = if self.counters { "counters of all sources" } else { "observed" };
            return format!("live traffic, {how}");
        }
        let files = self.pcap.iter().chain(&self.load);
        files.map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    }
}

/// The prefixes to leave out.
fn excluded(texts: &[String]) -> Result<Vec<IpNet>, Failure> {
    let mut nets = Vec::new();
    let mut add = |text: &str| {
        if let Selector::Prefix(net) = source_text::parse(text)? {
            nets.push(net);
        }
        Ok::<_, Failure>(())
    };
    for text in texts {
        let Err(error) = add(text) else { continue };
        // No address: a file.
        let Ok(file) = fs::read_to_string(text) else {
            let why = "nor is it a file that can be read";
            return Err(Failure::Replay(format!("--exclude: {error}; {why}")));
        };
        for (number, line) in (1..).zip(file.lines()) {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if !entry.is_empty() {
                add(entry).map_err(|error| {
                    Failure::Replay(format!("{}:{number}: {error}", clean(text)))
                })?;
            }
        }
    }
    Ok(nets)
}

/// Limits of what the observation can tell.
fn cautions(report: &Report, spare: f64) -> Vec<String> {
    let mut notes = Vec::new();
    let Report { sources, seconds, one_of, .. } = report;
    for (length, peak) in [(3600.0, "an hourly"), (86_400.0, "a daily"), (604_800.0, "a weekly")] {
        if *seconds < length {
            notes.push(format!("{} were seen: {peak} peak is not in it", time(*seconds)));
            break;
        }
    }
    if *one_of > 1 {
        notes.push(format!(
            "there are more than {} sources, or more than {} of several packets: one of {one_of} \
             was looked at, chosen by a hash, and all shares are of those",
            number(u64::try_from(MAX_SOURCES).unwrap_or(u64::MAX)),
            number(u64::try_from(MAX_CURVES).unwrap_or(u64::MAX)),
        ));
    }
    match &report.proposal {
        None => notes.push(
            "no limit is proposed: at least a second of packets with a source is needed, and a \
             burst that a rule may have"
                .to_owned(),
        ),
        Some(proposal) if *sources < FEW => notes.push(format!(
            "{} sources are few: of others like them the limit may hit up to {} (with a \
             confidence of 95 %), not only {}",
            number(*sources),
            percent(proposal.share_at_most),
            percent(1.0 - spare),
        )),
        Some(_) => {}
    }
    notes.push(
        "shares are of sources as they are: forged addresses, NAT and attackers count as users; \
         leave known attackers out with --exclude"
            .to_owned(),
    );
    notes
}

fn percent(share: f64) -> String {
    let text = format!("{:.3}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Seconds in the form for people.
fn time(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    duration((seconds * 1e9) as u64)
}

fn burst(burst: Option<u64>) -> String {
    burst.map_or_else(|| "none".to_owned(), number)
}

impl Render for Tuned {
    fn render(&self, text: &mut String) {
        let Report { packets, bytes, seconds, sources, count, .. } = &self.report;
        line(
            text,
            format_args!(
                "{} packets, {} bytes of {} sources in {}; limits count {count}",
                number(*packets),
                number(*bytes),
                number(*sources),
                time(*seconds)
            ),
        );
        if *packets > 0 {
            self.curves(text);
            self.top(text);
        }
        if let Some(proposal) = &self.report.proposal {
            self.proposal(text, proposal);
        }
        text.push('\n');
        for note in &self.notes {
            line(text, format_args!("{note}"));
        }
        if let Some(rules) = &self.rule_file {
            text.push('\n');
            text.push_str(rules);
        }
    }
}

impl Tuned {
    /// The rates, from the slowest to the first at which no burst is needed.
    fn told(&self) -> impl Iterator<Item = &AtRate> {
        let rates = &self.report.rates;
        let least = rates.last().and_then(|last| last.bursts.last()).copied().flatten();
        let enough = rates.iter().position(|at| at.bursts.last().copied().flatten() == least);
        rates.iter().take(enough.map_or(rates.len(), |place| place + 1))
    }

    fn curves(&self, text: &mut String) {
        let shares = SHARES.map(|share| format!(">{}", percent(share)));
        let mut names = vec!["LEAST BURST FOR"];
        names.extend(shares.iter().map(String::as_str));
        let mut bursts = table(&names);
        for at in self.told() {
            let cells = at.bursts.iter().map(|least| burst(*least));
            bursts.add_row([at.rate.clone()].into_iter().chain(cells));
        }
        text.push('\n');
        push(text, &bursts);
        let all = self.told().flat_map(|at| at.hits.iter().map(|hit| hit.burst));
        let columns: std::collections::BTreeSet<u64> = all.collect();
        let titles: Vec<_> =
            columns.iter().map(|burst| format!(">BURST {}", number(*burst))).collect();
        let mut names = vec!["HIT: SOURCES (THEIR PACKETS)"];
        names.extend(titles.iter().map(String::as_str));
        let mut hits = table(&names);
        for at in self.told() {
            let cells = columns.iter().map(|column| {
                let hit = at.hits.iter().find(|hit| hit.burst == *column);
                hit.map_or_else(
                    || "-".to_owned(),
                    |hit| format!("{} ({})", percent(hit.sources), percent(hit.packets)),
                )
            });
            hits.add_row([at.rate.clone()].into_iter().chain(cells));
        }
        text.push('\n');
        push(text, &hits);
    }

    fn top(&self, text: &mut String) {
        let mut top = table(&[
            "TOP SOURCE",
            ">PACKETS",
            ">BYTES",
            ">MOST IN 10 ms",
            ">1 s",
            ">1 min",
            ">1 h",
            ">BURST NEEDED",
            "HIT",
        ]);
        for source in &self.report.top {
            let most = source.most.map(number);
            let row = [source.source.clone(), number(source.packets), number(source.bytes)];
            let hit = if source.hit { "yes" } else { "no" };
            let last = [burst(source.burst), hit.to_owned()];
            top.add_row(row.into_iter().chain(most).chain(last));
        }
        text.push('\n');
        push(text, &top);
    }

    fn proposal(&self, text: &mut String, proposal: &Proposal) {
        let Proposal {
            rate,
            burst,
            sources_hit,
            share_hit,
            packets_of_hit,
            share_at_most,
            hit,
            ..
        } = proposal;
        text.push('\n');
        line(
            text,
            format_args!(
                "proposed, to spare {}: {rate}, burst {}: hits {} of {} sources ({}), which sent \
                 {} of the packets",
                percent(self.spare),
                number(*burst),
                number(*sources_hit),
                number(self.report.sources),
                percent(*share_hit),
                percent(*packets_of_hit),
            ),
        );
        line(
            text,
            format_args!(
                "of others like these it hits at most {}, with a confidence of 95 %",
                percent(*share_at_most)
            ),
        );
        if !hit.is_empty() {
            let told = u64::try_from(hit.len()).unwrap_or(u64::MAX);
            let more = match sources_hit.saturating_sub(told) {
                0 => String::new(),
                more => format!(" and {} more", number(more)),
            };
            line(text, format_args!("hit: {}{more}", hit.join(", ")));
        }
    }
}
