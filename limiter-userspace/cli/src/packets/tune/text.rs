//! The answer of `limiter tune` as text, with what the observation cannot tell.

use limiter_api::render::{Render, counted, duration, line, number, push, table};
use limiter_replay::tune::{
    AtRate, FEW_PACKETS, MAX_CURVES, MAX_SOURCES, Proposal, Report, SHARES,
};
use serde::Serialize;

/// Fewer sources than this say little about a share of 99.9 %.
const FEW: u64 = 3000;

/// A source that sends so many times the average of the others is named.
const TIMES: u64 = 20;

/// Fewest others that give an average.
const LEAST_OTHERS: u64 = 10;

/// Sources that are named at most.
const MOST_OUTLIERS: usize = 3;

/// Answer of `tune`.
#[derive(Debug, Serialize)]
pub(super) struct Tuned {
    #[serde(flatten)]
    pub(super) report: Report,
    /// The rule file; `None` without a proposal.
    pub(super) rule_file: Option<String>,
    /// Cautions, and remarks about the captures.
    pub(super) notes: Vec<String>,
    /// Error that ended the reading early, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
    #[serde(skip)]
    pub(super) spare: f64,
}

/// Limits of what the observation can tell.
pub(super) fn cautions(report: &Report, spare: f64) -> Vec<String> {
    let mut notes = Vec::new();
    let Report { sources, seconds, seen_seconds, seldom, one_of, .. } = report;
    let noun = report.observed.noun();
    let often = sources.saturating_sub(seldom.sources);
    for (length, peak) in [(3600.0, "an hourly"), (86_400.0, "a daily"), (604_800.0, "a weekly")] {
        if *seen_seconds < length {
            let pauses =
                if *seen_seconds < *seconds { "; of longer pauses ten seconds count" } else { "" };
            let seen = time(*seen_seconds);
            notes.push(format!("{seen} were seen: {peak} peak is not in it{pauses}"));
            break;
        }
    }
    if *one_of > 1 {
        notes.push(format!(
            "there are more than {} sources, or more than {} of several {noun}: one of {one_of} \
             was looked at, chosen by a hash, and all shares are of those",
            number(u64::try_from(MAX_SOURCES).unwrap_or(u64::MAX)),
            number(u64::try_from(MAX_CURVES).unwrap_or(u64::MAX)),
        ));
    }
    notes.extend(report.no_proposal.clone());
    if let Some(proposal) = &report.proposal {
        if seldom.sources > 0 {
            notes.push(format!(
                "{} of the sources sent fewer than {FEW_PACKETS} {noun}, {} in all: of how fast \
                 they send nothing is known",
                number(seldom.sources),
                number(seldom.packets)
            ));
        }
        if often < FEW {
            notes.push(format!(
                "{} few: of others like these the limit may hit up to {} (with a confidence of 95 \
                 %), not only {}",
                counted(often, "source is", "sources are"),
                percent(proposal.share_at_most),
                percent(1.0 - spare),
            ));
        }
    }
    notes.extend(outliers(report));
    notes.push(
        "shares are of sources as they are: forged addresses, NAT and attackers count as users; \
         leave known attackers out with --exclude"
            .to_owned(),
    );
    notes
}

/// Sources that sent many times as much as the others, and that the proposal spares: three at most.
fn outliers(report: &Report) -> Vec<String> {
    if report.proposal.is_none() {
        return Vec::new();
    }
    let (mut packets, mut sources) = (report.packets, report.sources);
    let noun = report.observed.noun();
    let mut found = Vec::new();
    for top in report.top.iter().take(MOST_OUTLIERS) {
        packets = packets.saturating_sub(top.packets);
        sources = sources.saturating_sub(1);
        if sources < LEAST_OTHERS || top.packets / TIMES < packets / sources {
            break;
        }
        let times = top.packets * sources / packets.max(1);
        found.push((top, times));
    }
    let spared = found.into_iter().filter(|(top, _)| !top.hit);
    let named = spared.map(|(top, times)| {
        let source = &top.source;
        format!(
            "{source} sent {} {noun}, {} times as many as the others on average, and the limit \
             spares it: if it attacks, leave it out with `--exclude {source}`",
            number(top.packets),
            number(times)
        )
    });
    named.collect()
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
        let noun = self.report.observed.noun();
        line(
            text,
            format_args!(
                "{} {noun}, {} bytes of {} in {}; limits count {count}",
                number(*packets),
                number(*bytes),
                counted(*sources, "source", "sources"),
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
    fn reported(&self) -> impl Iterator<Item = &AtRate> {
        let rates = &self.report.rates;
        let least = rates.last().and_then(|last| last.bursts.last()).copied().flatten();
        let enough = rates.iter().position(|at| at.bursts.last().copied().flatten() == least);
        rates.iter().take(enough.map_or(rates.len(), |place| place + 1))
    }

    /// What was observed, as the head of a column.
    fn nouns(&self) -> String {
        self.report.observed.noun().to_uppercase()
    }

    fn curves(&self, text: &mut String) {
        let shares = SHARES.map(|share| format!(">{}", percent(share)));
        let mut names = vec!["LEAST BURST FOR"];
        names.extend(shares.iter().map(String::as_str));
        let mut bursts = table(&names);
        for at in self.reported() {
            let cells = at.bursts.iter().map(|least| burst(*least));
            bursts.add_row([at.rate.clone()].into_iter().chain(cells));
        }
        text.push('\n');
        push(text, &bursts);
        let all = self.reported().flat_map(|at| at.hits.iter().map(|hit| hit.burst));
        let columns: std::collections::BTreeSet<u64> = all.collect();
        let titles: Vec<_> =
            columns.iter().map(|burst| format!(">BURST {}", number(*burst))).collect();
        let first = format!("HIT: SOURCES (THEIR {})", self.nouns());
        let mut names = vec![&*first];
        names.extend(titles.iter().map(String::as_str));
        let mut hits = table(&names);
        for at in self.reported() {
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
        let packets = format!(">{}", self.nouns());
        let mut top = table(&[
            "TOP SOURCE",
            &packets,
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
            let last = match &self.report.proposal {
                Some(_) => [burst(source.burst), hit.to_owned()],
                None => ["-".to_owned(), "-".to_owned()],
            };
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
        let noun = self.report.observed.noun();
        text.push('\n');
        line(
            text,
            format_args!(
                "proposed, to spare {}: {rate}, burst {}: hits {} of {} sources ({}), which sent \
                 {} of the {noun}",
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
                "of others like these it hits at most {} in as long a time, with a confidence of \
                 95 %",
                percent(*share_at_most)
            ),
        );
        if !hit.is_empty() {
            let reported = u64::try_from(hit.len()).unwrap_or(u64::MAX);
            let more = match sources_hit.saturating_sub(reported) {
                0 => String::new(),
                more => format!(" and {} more", number(more)),
            };
            line(text, format_args!("hit: {}{more}", hit.join(", ")));
        }
    }
}
