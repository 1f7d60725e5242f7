//! `limiter explain`: a line for each packet as it is read, or none, and the sums at the end.

use std::fmt::Write as _;
use std::io::{BufWriter, Write};

use limiter_api::Counts;
use limiter_api::render::{self, duration, exact, number, push, table};
use limiter_api::stats::{ReasonCounts, RuleCounts, outcomes, verdict};
use limiter_common::verdict::{Reason, Verdict};
use limiter_daemon::rule_files;
use limiter_replay::explain::{
    Arrivals, BySource, Captured, Decision, Explainer, Incoming, LeftOut, Match, Settings,
};
use limiter_rules::model::{Over, Terms};
use limiter_rules::warnings::not_judged_in_captures;
use limiter_text::plain::clean;
use serde::Serialize;

use super::explain_summary::{Sources, source_text};
use super::progress::{INTERRUPTED, Progress};
use super::reading::{AS_ONE, Lengths, Times, left_out};
use crate::args::explain::Explain;
use crate::failure::Failure;
use crate::output::Output;
use crate::shell::hangup::nobody_reads;

/// A line about a packet, for programs.
#[derive(Debug, Serialize)]
struct PacketLine<'a> {
    packet: u64,
    /// Seconds since 1970.
    time: String,
    source: Option<String>,
    bytes: u64,
    captured: usize,
    verdict: &'static str,
    reason: &'static str,
    /// The rule that it was counted under.
    rule: Option<&'a str>,
    /// Nanoseconds that it waits before it goes on, if a limit holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_ns: Option<u64>,
    matches: Vec<MatchLine<'a>>,
}

#[derive(Debug, Serialize)]
struct MatchLine<'a> {
    table: u32,
    rule: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<&'a str>,
}

/// The last line, for programs.
#[derive(Debug, Serialize)]
struct Last<'a> {
    summary: &'a Summary,
}

#[derive(Debug, Serialize)]
struct Summary {
    seen: Counts,
    /// Packets of which the capture has not all.
    cut: u64,
    /// Packets that the capture says went out; they were left out.
    outgoing: u64,
    /// Packets of interfaces of link types that are not known; they were left out.
    other_links: u64,
    /// Packets that are older than one before them.
    late: u64,
    /// Error that ended the explanation before the capture's end, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
    reasons: Vec<ReasonCounts>,
    rules: Vec<RuleCounts>,
    /// Packets that this host sent; they were left out. `None` if it was not known in time which
    /// ones they are: they are then among the others.
    own: Option<u64>,
    /// Packets that appear in the capture a second time; they were left out.
    again: u64,
    /// Rules for outgoing packets, of which none is judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_judged: Vec<String>,
    /// Sums by source, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    sources: Option<Sources>,
}

/// Packets that are reported only at the end.
#[derive(Debug, Default)]
struct InTheEnd {
    /// Sums by source, if they were asked for in place of a line for each packet.
    by_source: Option<BySource>,
    cut: u64,
    left_out: LeftOut,
    times: Times,
    lengths: Lengths,
    /// Link types, their names, and how many packets of them.
    other_links: Vec<(i32, &'static str, u64)>,
    not_judged: Vec<String>,
    stopped: Option<String>,
}

/// Remark below every table: nobody can see it in the capture itself.
pub(crate) const BEHIND_XDP: &str = "made by tcpdump where limits were in force, a capture has \
                                     only what they let pass: XDP drops before tcpdump sees a \
                                     packet";

/// Explains a capture. A reader that goes away early is no failure.
pub(crate) fn explain(what: &Explain, output: Output, to: &mut impl Write) -> Result<(), Failure> {
    let form = if what.json { Output::Json } else { output };
    let mut out = Out { to: BufWriter::new(to), form };
    match run(what, &mut out) {
        Err(Failure::Output(error)) if nobody_reads(&error) => Ok(()),
        done => done,
    }
}

fn run<W: Write>(what: &Explain, out: &mut Out<W>) -> Result<(), Failure> {
    let Some(pcap) = &what.pcap else {
        // A capture is given, or a packet to ask the daemon about.
        return Ok(());
    };
    let mut capture = Arrivals::open(pcap, &what.own.own(), !what.summary)?;
    let set = rule_files::load(&what.rules, what.max_frame)?.rules;
    let interface = what.interface.as_ref().map(|text| match text.parse() {
        Ok(index) => Incoming::Index(index),
        Err(_no_number) => Incoming::Name(text.clone()),
    });
    let settings = Settings { interface, max_frame: what.max_frame };
    let mut explainer = Explainer::new(&set, settings)
        .map_err(|source| Failure::Plan { file: rule_files::names(&what.rules), source })?;
    let by_source = what.summary.then(BySource::default);
    let not_judged = not_judged_in_captures(&set);
    let mut in_the_end = InTheEnd { by_source, not_judged, ..InTheEnd::default() };
    if !what.summary {
        out.begin()?;
    }
    let done = each(what, &mut capture, &mut explainer, &mut in_the_end, out);
    in_the_end.other_links = capture.other_links().collect();
    in_the_end.left_out = capture.left_out();
    if let Err(error) = &done {
        if matches!(error, Failure::Output(_)) || explainer.seen().packets == 0 {
            out.flush()?;
            return done;
        }
        // The lines before stay true, and so do their sums.
        in_the_end.stopped = Some(error.to_string());
    }
    let mut summary = summary(&explainer, &in_the_end);
    let sources = |sums: &BySource| Sources::new(sums, what.top, &explainer);
    summary.sources = in_the_end.by_source.as_ref().map(sources);
    out.end(&summary, &in_the_end)?;
    done
}

/// Explains packet by packet, until the capture ends or something stops it.
fn each<W: Write>(
    what: &Explain,
    capture: &mut Arrivals,
    explainer: &mut Explainer,
    in_the_end: &mut InTheEnd,
    out: &mut Out<W>,
) -> Result<(), Failure> {
    let file = || what.pcap.as_deref().map_or_else(String::new, |pcap| pcap.display().to_string());
    let mut began = None;
    let mut progress = Progress::begin(what.summary, "packets");
    while let Some(captured) = capture.next_packet()? {
        if !progress.goes_on(captured.number, capture.percent()) {
            in_the_end.stopped = Some(INTERRUPTED.to_owned());
            break;
        }
        in_the_end.times.add(captured.nanos);
        in_the_end.lengths.add(captured.length);
        let full = |source| Failure::Explain { file: file(), source };
        if let Some(by_source) = &mut in_the_end.by_source {
            explainer.has_beside(by_source);
            by_source.add(&explainer.decide(&captured).map_err(full)?, captured.length);
            in_the_end.cut += u64::from(captured.is_cut());
            continue;
        }
        let decided = explainer.packet(&captured).map_err(full)?;
        in_the_end.cut += u64::from(captured.is_cut());
        let began = *began.get_or_insert(captured.nanos);
        out.packet(&captured, began, &decided, explainer)?;
    }
    Ok(())
}

fn summary(explainer: &Explainer, in_the_end: &InTheEnd) -> Summary {
    let tallies = explainer.reasons();
    let reasons = Reason::ALL
        .into_iter()
        .zip(tallies)
        .filter(|(_, tally)| tally.packets > 0)
        .map(|(reason, tally)| ReasonCounts::new(reason, tally))
        .collect();
    let rules = explainer
        .rules()
        .into_iter()
        .map(|(number, counters)| {
            let rule = explainer.rule_name(number).unwrap_or_default().to_owned();
            RuleCounts::new(rule, explainer.called(number).map(str::to_owned), counters)
        })
        .collect();
    let left_out = &in_the_end.left_out;
    Summary {
        seen: explainer.seen().into(),
        cut: in_the_end.cut,
        outgoing: left_out.outgoing,
        own: left_out.own_packets(),
        again: left_out.again,
        not_judged: in_the_end.not_judged.clone(),
        other_links: in_the_end.other_links.iter().map(|(_, _, packets)| packets).sum(),
        late: in_the_end.times.late(),
        stopped: in_the_end.stopped.clone(),
        reasons,
        rules,
        sources: None,
    }
}

/// Standard output, in one of its forms.
struct Out<W: Write> {
    to: BufWriter<W>,
    form: Output,
}

impl<W: Write> Out<W> {
    fn begin(&mut self) -> Result<(), Failure> {
        if self.form != Output::Table {
            return Ok(());
        }
        self.line(format_args!(
            "{:>8}  {:>16}  {:<22}  {:>6}  {:<7}  {:<19}  RULES",
            "PACKET", "SECONDS", "SOURCE", "BYTES", "VERDICT", "REASON"
        ))
    }

    fn packet(
        &mut self,
        captured: &Captured,
        began: u64,
        (decided, matches): &(Decision, Vec<Match>),
        explainer: &Explainer,
    ) -> Result<(), Failure> {
        let reason = decided.reason;
        let rule = explainer.rule_name(decided.rule);
        let waits = Some(decided.waits.as_nanos_rounded_up()).filter(|wait| *wait > 0);
        if self.form != Output::Table {
            let matches = matches.iter().map(|found| MatchLine {
                table: found.table,
                rule: found.rule.path.to_string(),
                name: found.rule.called(),
                budget: budget(found, explainer),
            });
            return self.document(&PacketLine {
                packet: captured.number,
                time: seconds(captured.nanos),
                source: decided.source.map(source_text),
                bytes: captured.length,
                captured: captured.frame.len(),
                verdict: verdict(reason),
                reason: reason.name(),
                rule,
                waits_ns: waits,
                matches: matches.collect(),
            });
        }
        let (sign, since) = match captured.nanos.checked_sub(began) {
            Some(since) => ("", since),
            None => ("-", began.saturating_sub(captured.nanos)),
        };
        let mut rules: Vec<String> = Vec::with_capacity(matches.len());
        for found in matches {
            let mut text = found.rule.path.to_string();
            if let Some(name) = found.rule.called() {
                text = format!("{text} ({name})");
            }
            if let Some(budget) = budget(found, explainer) {
                text = format!("{text} [{budget}]");
            }
            rules.push(text);
        }
        let by = match (reason.verdict(), rule) {
            (Verdict::Drop, Some(rule)) if matches.len() > 1 => {
                clean(&format!("; dropped by {rule}"))
            }
            _ => String::new(),
        };
        let wait = match (waits, reason, explainer.limits(decided.rule).map(|of| &of.over)) {
            (Some(wait), ..) => format!("; waits {}", duration(wait)),
            (None, Reason::OverLimit, Some(Over::Delay(delay))) => {
                format!("; it would have to wait longer than {}", exact(delay.longest))
            }
            _ => String::new(),
        };
        self.line(format_args!(
            "{:>8}  {:>16}  {:<22}  {:>6}  {:<7}  {:<19}  {}{by}{wait}",
            captured.number,
            format!("{sign}{}", seconds(since)),
            decided.source.map(source_text).as_deref().unwrap_or("-"),
            captured.length,
            verdict(reason),
            reason.name(),
            if rules.is_empty() { "-".to_owned() } else { clean(&rules.join("; ")) },
        ))
    }

    fn end(&mut self, summary: &Summary, in_the_end: &InTheEnd) -> Result<(), Failure> {
        if self.form != Output::Table {
            self.document(&Last { summary })?;
            return self.flush();
        }
        let mut text = String::from("\n");
        if let Some(sources) = &summary.sources {
            text.clear();
            sources.render(&mut text);
            text.push('\n');
        }
        let mut totals = table(&["VERDICT", "REASON", ">PACKETS", ">BYTES"]);
        for reason in &summary.reasons {
            totals.add_row([
                reason.verdict.clone(),
                reason.reason.clone(),
                number(reason.packets),
                render::bytes(reason.bytes),
            ]);
        }
        let Counts { packets, bytes } = summary.seen;
        totals.add_row([
            "sum".to_owned(),
            "seen".to_owned(),
            number(packets),
            render::bytes(bytes),
        ]);
        push(&mut text, &totals);
        if !summary.rules.is_empty() {
            text.push('\n');
            push(&mut text, &outcomes("RULE", &summary.rules.iter().collect::<Vec<_>>()));
        }
        if summary.cut > 0 {
            let _: std::fmt::Result = writeln!(
                text,
                "{} packets are longer than what was captured of them; their whole length counts",
                number(summary.cut)
            );
        }
        for line in left_out::lines(&in_the_end.left_out) {
            let _: std::fmt::Result = writeln!(text, "{line}");
        }
        for line in &summary.not_judged {
            let _: std::fmt::Result = writeln!(text, "{}", clean(line));
        }
        for (link, name, packets) in &in_the_end.other_links {
            let packets = number(*packets);
            let _: std::fmt::Result = writeln!(
                text,
                "{packets} packets are of link type {link} ({name}), and were left out"
            );
        }
        if let Some(remark) = summary.sources.as_ref().and_then(Sources::flood) {
            let _: std::fmt::Result = writeln!(text, "{remark}");
        }
        for line in in_the_end.times.lines().into_iter().chain(in_the_end.lengths.line(AS_ONE)) {
            let _: std::fmt::Result = writeln!(text, "{line}");
        }
        if summary.stopped.is_some() {
            let of = if summary.sources.is_some() { "read so far" } else { "above" };
            let _: std::fmt::Result = writeln!(
                text,
                "the sums are of the packets {of}: the capture was not explained to its end"
            );
        }
        text.push_str(BEHIND_XDP);
        self.line(format_args!("{text}"))?;
        self.flush()
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        writeln!(self.to, "{line}").map_err(Failure::Output)
    }

    fn document(&mut self, answer: &impl Serialize) -> Result<(), Failure> {
        let text = self.form.one_of_several(answer)?.unwrap_or_default();
        self.to.write_all(text.as_bytes()).map_err(Failure::Output)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(Failure::Output)
    }
}

/// The budget that a rule is charged to.
fn budget<'a>(found: &Match, explainer: &'a Explainer) -> Option<&'a str> {
    explainer.rule_name(found.number).filter(|_| matches!(found.rule.terms, Terms::Budget(_)))
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
