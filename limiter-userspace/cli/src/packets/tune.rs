//! `limiter tune`.

mod text;

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgGroup;
use ipnet::IpNet;
use limiter_api::arguments::interval;
use limiter_api::client::Client;
use limiter_api::render::{self, number};
use limiter_api::utilization::Utilization;

use limiter_common::wire::Count;
use limiter_datapath::Backend;
use limiter_replay::explain::Captured;
use limiter_replay::tune::{Observation, Observed, Settings, Tuner, rule_file};
use limiter_rules::model::{SOURCE_MASKS, SourceMasks};
use limiter_rules::{Selector, source_text};
use limiter_text::plain::clean;
use serde_json::Value;

use super::capture::budget;
use super::explain::BEHIND_XDP;
use super::observe::share as share_of;
use super::reading::access_log::LogArguments;
use super::reading::left_out::OwnArgument;
use super::reading::{AS_FRAMES, Read};
use super::{live, reading};
use crate::answer::Answer;
use crate::args::defaults::LEAST_FRAME;
use crate::failure::Failure;
use crate::files::export;
use crate::output::Output;
use text::{Tuned, cautions};

/// Group of the arguments that name traffic. Without any, the rules in force are looked at.
const TRAFFIC: &str = "traffic";

/// Arguments of `tune`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new(TRAFFIC).args(["pcap", "load", "time", "access_log"]))]
pub(crate) struct Ask {
    /// A capture, or a directory of captures; may be repeated; `-` for standard input
    #[arg(long, value_name = "FILE|DIR")]
    pcap: Vec<PathBuf>,
    /// A load in place of captures, as for `simulate`: to see what is made of known traffic
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
    #[command(flatten)]
    logs: LogArguments,
    #[command(flatten)]
    own: OwnArgument,
    /// Observe the traffic for a time, as in 10m, and propose from that: needs the daemon, and its
    /// rights. Ctrl-C ends it before its time, and what came so far is proposed from
    #[arg(long = "for", value_name = "TIME", value_parser = interval)]
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
    /// With --for: packets that each CPU may report a second, as in `observe`
    #[arg(
        long, value_name = "N/s", default_value = "10000/s", value_parser = budget,
        requires = "time",
    )]
    rate_budget: NonZeroU32,
    /// Bucket of the limit: `source`, or prefixes as /24 of IPv4, or /24,/48 of both families
    #[arg(
        long, value_name = "source|/N[,/N]", default_value = "source", value_parser = masks,
        requires = TRAFFIC, conflicts_with = "access_log",
    )]
    by: SourceMasks,
    /// Unit that the limit counts
    #[arg(
        long, value_enum, default_value_t = Unit::Packets, requires = TRAFFIC,
        conflicts_with = "access_log",
    )]
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
    /// Sources that are reported one by one: those that send most, and those that would be hit. As
    /// JSON each has the least burst at each of the 32 rates
    #[arg(
        long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        requires = TRAFFIC,
    )]
    top: u32,
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

/// Proposes a limit, or says whether those in force fit. Nothing is applied.
pub(crate) fn tune(
    client: &Client,
    backend: &dyn Backend,
    ask: &Ask,
    output: Output,
) -> Result<Answer, Failure> {
    let output = if ask.json { Output::Json } else { output };
    let observed = if ask.logs.files.is_empty() { Observed::Packets } else { Observed::Requests };
    let packets = ask.load.is_some() || !ask.pcap.is_empty() || ask.time.is_some();
    if observed == Observed::Packets && !packets {
        let utilization = client.get::<Utilization>("/v1/utilization")?;
        let text = output.document(&utilization)?.unwrap_or_else(|| render::text(&utilization));
        return Ok(text.into());
    }
    let settings = Settings {
        observed,
        count: ask.counted()?,
        masks: ask.by,
        excluded: excluded(&ask.exclude)?,
        spare: ask.spare,
        max_frame: ask.max_frame,
        named: usize::try_from(ask.top).unwrap_or(usize::MAX),
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
    let text = match observed {
        Observed::Packets => output.document(&answer)?,
        Observed::Requests => output.document(&of_requests(serde_json::to_value(&answer)?))?,
    };
    let text = text.unwrap_or_else(|| render::text(&answer));
    errors.extend(answer.stopped);
    Ok(Answer { text, errors, code })
}

/// A document with requests in the place of packets.
fn of_requests(document: Value) -> Value {
    match document {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name.replace("packets", "requests"), of_requests(value)))
            .collect(),
        Value::Array(values) => values.into_iter().map(of_requests).collect(),
        other => other,
    }
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

    /// Passes the traffic to the tuner; returns one in how many sources that is.
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
        if !self.logs.files.is_empty() {
            let mut nameless = 0u64;
            let mut read = self.logs.read(|logged, nanos| {
                let bytes = logged.get("bytes").and_then(|text| text.parse().ok()).unwrap_or(0);
                match logged.source() {
                    Some(source) => tuner.observe(&Observation { nanos, source, bytes }),
                    None => nameless += 1,
                }
                Ok(())
            })?;
            if nameless > 0 {
                read.notes.push(format!(
                    "requests without the address of a client, which were left out: {}; \
                     `--field client=FIELD` names the field that has it",
                    number(nameless)
                ));
            }
            return Ok((read, 1));
        }
        let mut exempt = 0u64;
        let packet = |captured: &Captured| {
            match captured.source() {
                Some(source) => {
                    let (nanos, bytes) = (captured.nanos, captured.length);
                    tuner.observe_joined(&Observation { nanos, source, bytes });
                }
                None => exempt += 1,
            }
            Ok(())
        };
        let mut read = match &self.load {
            Some(file) => reading::load(file, packet)?,
            None => reading::captures(&self.pcap, &self.own.own(), packet)?,
        };
        read.notes.extend(read.lengths.line(AS_FRAMES));
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
        if !self.logs.files.is_empty() {
            return self.logs.origin();
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
