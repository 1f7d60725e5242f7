//! `limiter simulate`.

#[cfg(feature = "requests")]
mod requests;

use std::path::PathBuf;

use limiter_api::render::{self, Render, duration, line, number, push, table};
use limiter_daemon::rule_files;
use limiter_replay::explain::{Captured, Incoming, Settings};
use limiter_replay::simulate::{MAX_CANDIDATES, Report, Simulation, figure, in_every_algorithm};
use limiter_rules::RuleSet;
use limiter_rules::warnings::not_judged_in_captures;
use limiter_text::plain::clean;
use serde::Serialize;

use super::explain::BEHIND_XDP;
use super::reading::access_log::LogArguments;
use super::reading::left_out::OwnArgument;
use super::reading::{self, AS_ONE, Read};
use crate::answer::Answer;
use crate::args::defaults::LEAST_FRAME;
use crate::failure::Failure;
use crate::files::export;
use crate::output::Output;

/// Arguments of `simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    /// A capture, or a directory of captures; may be repeated; `-` for standard input
    #[arg(
        long, value_name = "FILE|DIR", required_unless_present_any = ["load", "access_log"],
        conflicts_with = "access_log",
    )]
    pcap: Vec<PathBuf>,
    /// A load: a YAML file with senders
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "interface", "access_log"])]
    load: Option<PathBuf>,
    #[command(flatten)]
    logs: LogArguments,
    #[command(flatten)]
    own: OwnArgument,
    /// A rule file, or a directory of them: one candidate; may be repeated
    #[arg(long, value_name = "FILE|DIR", required = true)]
    rules: Vec<PathBuf>,
    /// Make candidates of each limit in every algorithm, with the same number and window
    #[arg(long, conflicts_with = "access_log")]
    algorithms: bool,
    /// Draw what was offered and what passed, over the time
    #[arg(long, value_name = "FILE.svg", conflicts_with = "access_log")]
    plot: Option<PathBuf>,
    /// The interface that the packets come in by: its name, or its index in a capture
    #[arg(long, value_name = "NAME|INDEX", conflicts_with = "access_log")]
    interface: Option<String>,
    /// The largest frame of the interface in bytes: the MTU, and 22 for Ethernet with two VLAN tags
    #[arg(
        long, value_name = "BYTES", default_value_t = LEAST_FRAME,
        value_parser = clap::value_parser!(u64).range(LEAST_FRAME..=131_071),
    )]
    max_frame: u64,
    /// Same as --output json
    #[arg(long)]
    json: bool,
}

/// Answer of `simulate`.
#[derive(Debug, Serialize)]
struct Simulated {
    #[serde(flatten)]
    report: Report,
    /// Candidates that no limiter can hold, and the reason.
    refused: Vec<Refused>,
    notes: Vec<String>,
    /// Error that ended the simulation early, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    /// True if the packets come from captures.
    #[serde(skip)]
    captured: bool,
}

#[derive(Debug, Serialize)]
struct Refused {
    name: String,
    why: String,
}

/// Simulates. Nothing is applied.
pub(crate) fn simulate(ask: &Ask, output: Output) -> Result<Answer, Failure> {
    let output = if ask.json { Output::Json } else { output };
    if !ask.logs.files.is_empty() {
        #[cfg(feature = "requests")]
        return requests::simulate(&ask.logs, &ask.rules, output);
        #[cfg(not(feature = "requests"))]
        return Err(Failure::Replay(
            "--access-log: this build has no rules for requests: build it with the feature \
             `requests`"
                .to_owned(),
        ));
    }
    let interface = ask.interface.as_ref().map(|text| match text.parse() {
        Ok(index) => Incoming::Index(index),
        Err(_no_number) => Incoming::Name(text.clone()),
    });
    let settings = Settings { interface, max_frame: ask.max_frame };
    let (sets, refused) = candidates(ask, &settings)?;
    let failed = |(file, source)| Failure::Plan { file, source };
    let mut simulation = Simulation::new(&sets, &settings).map_err(failed)?;
    let mut full = None;
    let read = {
        let packet = |captured: &Captured| {
            simulation
                .packet(captured)
                .map_err(|source| Failure::Explain { file: "the packets".to_owned(), source })
        };
        match &ask.load {
            Some(file) => reading::load(file, packet),
            None => reading::captures(&ask.pcap, &ask.own.own(), packet),
        }
    };
    let read = match read {
        // Packets before the one that is too many were judged.
        Err(failure @ Failure::Explain { .. }) => {
            full = Some(failure.to_string());
            Read::default()
        }
        other => other?,
    };
    let report = simulation.report();
    let stopped = full.or(read.stopped);
    if report.packets == 0
        && let Some(stopped) = stopped
    {
        return Err(Failure::Replay(stopped));
    }
    let mut errors = Vec::new();
    if let Some(file) = &ask.plot {
        let of = ask.load.as_ref().or(ask.pcap.first());
        let title = of.and_then(|of| of.file_stem()).unwrap_or_default();
        let svg = figure(&report, &title.to_string_lossy());
        errors.push(export::written(file, svg.as_bytes())?.trim_end().to_owned());
    }
    let code = if stopped.is_some() { 2 } else { 0 };
    let captured = ask.load.is_none();
    let notes = read.notes.into_iter().chain(read.lengths.line(AS_ONE));
    let notes = notes.chain(not_judged(&sets)).collect();
    let simulated = Simulated { report, refused, notes, stopped, captured };
    let text = output.document(&simulated)?.unwrap_or_else(|| render::text(&simulated));
    errors.extend(simulated.stopped);
    Ok(Answer { text, errors, code })
}

/// Rule sets side by side, with their names.
type Sets = Vec<(String, RuleSet)>;

fn candidates(ask: &Ask, settings: &Settings) -> Result<(Sets, Vec<Refused>), Failure> {
    let (mut sets, mut refused) = (Vec::new(), Vec::new());
    for path in &ask.rules {
        let set = rule_files::load(std::slice::from_ref(path), ask.max_frame)?.rules;
        let file = clean(&path.display().to_string());
        if !ask.algorithms {
            sets.push((file, set));
            continue;
        }
        for (algorithm, set) in in_every_algorithm(&set) {
            let name = if ask.rules.len() == 1 {
                algorithm.to_owned()
            } else {
                format!("{file}: {algorithm}")
            };
            let candidate = [(name.clone(), set)];
            match Simulation::new(&candidate, settings) {
                Ok(_) => sets.extend(candidate),
                Err((_, error)) => refused.push(Refused { name, why: error.to_string() }),
            }
        }
    }
    if sets.len() > MAX_CANDIDATES {
        let (most, there) = (MAX_CANDIDATES, sets.len());
        let what = format!("{there} rule sets side by side, and {most} are the most: give fewer");
        return Err(Failure::Replay(what));
    }
    Ok((sets, refused))
}

/// Remarks about rules for which no packet is judged, each once.
fn not_judged(sets: &[(String, RuleSet)]) -> Vec<String> {
    let mut lines = Vec::new();
    for line in sets.iter().flat_map(|(_, set)| not_judged_in_captures(set)) {
        let line = clean(&line);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Seconds in the form for people.
fn time(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded, not negative"
    )]
    let nanos = (seconds * 1e9).round() as u64;
    if nanos == 0 { "-".to_owned() } else { duration(nanos) }
}

/// A share of packets in percent.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn share(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.2} %", part as f64 * 100.0 / all as f64) }
}

impl Render for Simulated {
    fn render(&self, text: &mut String) {
        let Report { packets, bytes, seconds, candidates, .. } = &self.report;
        let sources = candidates.iter().map(|row| row.sources).max().unwrap_or(0);
        line(
            text,
            format_args!(
                "{} packets, {} bytes of {} sources in {}",
                number(*packets),
                number(*bytes),
                number(sources),
                time(*seconds)
            ),
        );
        text.push('\n');
        let mut rows = table(&[
            "RULES",
            ">PASSED",
            ">DROPPED",
            ">SOURCES HIT",
            ">THEIR PACKETS",
            ">MOST IN 10 ms",
            ">IN 1 s",
            ">IN WINDOW",
            ">STARVED",
            ">WAIT",
            ">MEAN",
        ]);
        for row in candidates {
            let wait = |seconds: Option<f64>| seconds.map_or_else(|| "?".to_owned(), time);
            let window = if row.window_seconds > 0.0 {
                format!("{} in {}", number(row.most_in_window), time(row.window_seconds))
            } else {
                "-".to_owned()
            };
            rows.add_row([
                row.name.clone(),
                number(row.passed),
                number(row.dropped),
                number(row.sources_hit),
                share(row.packets_of_hit, *packets),
                number(row.most_in_10ms),
                number(row.most_in_1s),
                window,
                time(row.starved_seconds),
                wait(row.longest_wait_seconds),
                wait(row.mean_wait_seconds),
            ]);
        }
        push(text, &rows);
        for Refused { name, why } in &self.refused {
            line(text, format_args!("{name} cannot hold these limits: {why}"));
        }
        for note in &self.notes {
            line(text, format_args!("{note}"));
        }
        if self.captured {
            line(text, format_args!("{BEHIND_XDP}"));
        }
    }
}
