//! The sums of a capture by source: `limiter explain --pcap --summary`.

use limiter_api::Counts;
use limiter_api::render::{line, number, push, table, titled};
use limiter_api::stats::verdict;
use limiter_common::source::Source;
use limiter_common::wire::Tally;
use limiter_replay::explain::{BySource, Explainer, MAX_REPORTED, Others, SourceSums};
use limiter_replay::tune::{FEW_PACKETS, Seldom};
use limiter_rules::model::TriePrefix;
use serde::Serialize;

/// Number of sources with few packets each that is worth a remark, if most packets are theirs.
const MANY: u64 = 100;

/// Sums by source, the sources that lost most first.
#[derive(Debug, Serialize)]
pub(crate) struct Sources {
    /// The sources of which most packets were dropped.
    #[serde(rename = "sources")]
    top: Vec<SourceLine>,
    /// Sums of all other sources.
    others: OthersLine,
    /// Sums of packets without a source: ARP, and what else is not IP.
    no_source: OthersLine,
    /// Sums of packets that came when no more sources were distinguished.
    #[serde(rename = "not_told_apart")]
    not_distinguished: OthersLine,
    /// Sources of fewer than [`FEW_PACKETS`] packets, and the packets that they sent.
    seldom: Seldom,
    /// Packets of all sources that were distinguished.
    #[serde(skip)]
    packets: u64,
}

#[derive(Debug, Serialize)]
struct SourceLine {
    source: String,
    offered: Counts,
    passed: Counts,
    dropped: Counts,
    causes: Vec<CauseLine>,
}

/// Packets of a source with one verdict for one reason by one rule.
#[derive(Debug, Serialize)]
struct CauseLine {
    verdict: &'static str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<String>,
    packets: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct OthersLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    sources: Option<u64>,
    offered: Counts,
    passed: Counts,
    dropped: Counts,
}

fn sum(passed: Tally, dropped: Tally) -> Counts {
    let mut sum = passed;
    sum.merge(dropped);
    sum.into()
}

fn others(others: &Others, distinguished: bool) -> OthersLine {
    let Others { sources, passed, dropped } = *others;
    let sources = distinguished.then_some(sources);
    let offered = sum(passed, dropped);
    OthersLine { sources, offered, passed: passed.into(), dropped: dropped.into() }
}

/// A source as every command writes it.
pub(crate) fn source_text(source: Source) -> String {
    let selector = TriePrefix::of_source(source.trie_key()).selector();
    selector.map_or_else(|| "-".to_owned(), |selector| selector.to_string())
}

impl Sources {
    pub(crate) fn new(by_source: &BySource, most: usize, explainer: &Explainer) -> Self {
        let (top, rest) = by_source.top(most);
        let (sources, of_few, packets) = by_source.seldom(FEW_PACKETS);
        Self {
            seldom: Seldom { sources, packets: of_few },
            packets,
            top: top.iter().map(|sums| SourceLine::new(sums, explainer)).collect(),
            others: others(&rest, true),
            no_source: others(by_source.exempt(), false),
            not_distinguished: others(by_source.beyond(), false),
        }
    }

    /// Remark about packets that no limit by source holds.
    pub(crate) fn flood(&self) -> Option<String> {
        let Seldom { sources, packets } = self.seldom;
        (packets > self.packets / 2 && sources >= MANY).then(|| {
            format!(
                "{} sources sent fewer than {FEW_PACKETS} packets each, {} of the {} in all: if \
                 they are forged, a limit by source does not hold them; one over all of them does, \
                 as a budget, or a rule on the port alone",
                number(sources),
                number(packets),
                number(self.packets)
            )
        })
    }

    pub(crate) fn render(&self, text: &mut String) {
        let mut sources = table(&["SOURCE", ">OFFERED", ">PASSED", ">DROPPED", "DROPPED BY"]);
        for line in &self.top {
            let mut drops = line.causes.iter().filter(|cause| cause.verdict == "drop").peekable();
            let why = if drops.peek().is_none() {
                "-".to_owned()
            } else {
                drops.map(CauseLine::text).collect::<Vec<_>>().join("; ")
            };
            let counts = [line.offered, line.passed, line.dropped];
            sources.add_row(
                [line.source.clone()]
                    .into_iter()
                    .chain(counts.map(|counts| number(counts.packets)))
                    .chain([why]),
            );
        }
        let reported = self.others.sources.unwrap_or_default();
        for (name, sums) in [
            (format!("{} other sources", number(reported)), &self.others),
            ("no source".to_owned(), &self.no_source),
            ("not distinguished".to_owned(), &self.not_distinguished),
        ] {
            if sums.offered.packets > 0 {
                let counts = [sums.offered, sums.passed, sums.dropped];
                let counts = counts.map(|counts| number(counts.packets));
                sources.add_row([name].into_iter().chain(counts));
            }
        }
        push(text, &sources);
        if self.not_distinguished.offered.packets > 0 {
            line(
                text,
                format_args!(
                    "sources are distinguished until there are {} of them with their rules and \
                     reasons; explain a part of the capture for the rest",
                    number(u64::try_from(MAX_REPORTED).unwrap_or(u64::MAX))
                ),
            );
        }
    }
}

impl SourceLine {
    fn new(sums: &SourceSums, explainer: &Explainer) -> Self {
        let SourceSums { source, passed, dropped, causes } = sums;
        let causes = causes.iter().map(|((rule, reason), tally)| CauseLine {
            verdict: verdict(*reason),
            reason: reason.name(),
            rule: explainer.rule_name(*rule).map(str::to_owned),
            rule_name: explainer.called(*rule).map(str::to_owned),
            packets: tally.packets,
            bytes: tally.bytes,
        });
        Self {
            source: source_text(*source),
            offered: sum(*passed, *dropped),
            passed: (*passed).into(),
            dropped: (*dropped).into(),
            causes: causes.collect(),
        }
    }
}

impl CauseLine {
    fn text(&self) -> String {
        let Self { reason, rule, rule_name, packets, .. } = self;
        let titled = |rule| format!("{}, ", titled(Some(rule), rule_name.as_deref()));
        let by = rule.as_deref().map_or_else(String::new, titled);
        format!("{by}{reason} {}", number(*packets))
    }
}
