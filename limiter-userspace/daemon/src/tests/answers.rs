//! Answers in slices, assembled into whole documents; and the effect of changes between two slices.

use std::fmt::Write as _;

use limiter_api::bans::Bans;
use limiter_api::limits::Limits;
use limiter_api::lists::{ListName, Lists, SetList};
use limiter_api::rules::{ExportRules, Exported};
use limiter_api::stats::Stats;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::control::parts::PART;
use crate::control::{Lines, Sliced, Step};
use crate::events::filter::Filter;
use crate::routes::bans::BansText;
use crate::routes::lists::ListsText;
use crate::routes::metrics::MetricsText;
use crate::views::{LimitsText, RulesText, StatsText};

#[derive(Debug)]
enum Asked {
    Limits,
    Stats,
    Lists,
    Bans,
    Rules(ExportRules),
    Metrics,
}

type Slices = Box<dyn Sliced<Service>>;

impl Service {
    /// The text of an answer, and how many parts it came in.
    fn text(&self, asked: &Asked) -> Result<(String, usize), Refusal> {
        let mut slices = self.begin(asked)?;
        let (mut text, mut parts) = (Vec::new(), 0);
        while let Some(part) = self.next_part(&mut slices)? {
            assert!(part.len() < 2 * PART || matches!(asked, Asked::Metrics), "{}", part.len());
            text.extend(part);
            parts += 1;
        }
        Ok((String::from_utf8(text).unwrap(), parts))
    }

    fn begin(&self, asked: &Asked) -> Result<Slices, Refusal> {
        Ok(match asked {
            Asked::Limits => Box::new(LimitsText::begin(self)?),
            Asked::Stats => Box::new(StatsText::begin(self)?),
            Asked::Lists => Box::new(ListsText::begin(self)?),
            Asked::Bans => Box::new(BansText::begin(self)?),
            Asked::Rules(what) => Box::new(RulesText::begin(self, *what)?),
            Asked::Metrics => Box::new(MetricsText::begin(self)?),
        })
    }

    fn next_part(&self, slices: &mut Slices) -> Result<Option<Vec<u8>>, Refusal> {
        loop {
            match slices.step(self)? {
                Step::Again => {}
                Step::Part(part) => return Ok(Some(part.into())),
                Step::Done => return Ok(None),
                Step::After(_) => panic!("no answer of these waits"),
            }
        }
    }

    /// The document, whose text is exactly what serde produces.
    fn document<T: Serialize + DeserializeOwned>(&self, asked: &Asked) -> Result<T, Refusal> {
        let (text, _) = self.text(asked)?;
        let document: T = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&document).unwrap(), text);
        Ok(document)
    }

    pub(super) fn limits(&self) -> Result<Limits, Refusal> {
        self.document(&Asked::Limits)
    }

    pub(super) fn stats(&self) -> Result<Stats, Refusal> {
        self.document(&Asked::Stats)
    }

    pub(super) fn lists(&self) -> Result<Lists, Refusal> {
        self.document(&Asked::Lists)
    }

    pub(super) fn bans(&self) -> Result<Bans, Refusal> {
        self.document(&Asked::Bans)
    }

    pub(super) fn metrics(&self) -> Result<String, Refusal> {
        self.text(&Asked::Metrics).map(|(text, _)| text)
    }

    pub(super) fn export(&self, what: ExportRules) -> Result<Exported, Refusal> {
        self.document(&Asked::Rules(what))
    }

    pub(super) fn followed(&mut self, drops: bool) -> Result<Lines, Refusal> {
        self.follow(drops, Filter::default(), 0, true)
    }
}

/// Rules for so many sources, and as many ports.
fn many(rules: u32) -> String {
    let mut text = "descriptors:\n".to_owned();
    for number in 0..rules {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
        let limit = "rate_limit: {unit: second, requests_per_unit: 7, burst: 9}";
        writeln!(text, "  - {{key: remote_address, value: {address}, {limit}}}").unwrap();
        writeln!(text, "  - {{key: destination_port, value: {}, {limit}}}", number + 1).unwrap();
    }
    text
}

fn large(rules: u32) -> Daemon {
    let mut daemon = Daemon::start(&[]);
    daemon.fake.state().capacity = 1 << 14;
    daemon.write(&many(rules));
    daemon.service.reload().unwrap();
    daemon
}

#[test]
fn large_answers_come_in_parts() {
    let mut daemon = large(1000);
    let sources = (0..3000).map(|n| std::net::Ipv4Addr::from_bits(0x0b00_0000 + n).to_string());
    let request = SetList {
        list: ListName::Deny,
        sources: sources.collect(),
        seconds: None,
        ..SetList::default()
    };
    daemon.service.list(&request).unwrap();
    for asked in [Asked::Limits, Asked::Stats, Asked::Lists, Asked::Rules(ExportRules::default())] {
        let (_, parts) = daemon.service.text(&asked).unwrap();
        assert!(parts >= 5, "{asked:?}: {parts}");
    }
    let (limits, stats) = (daemon.service.limits().unwrap(), daemon.service.stats().unwrap());
    assert_eq!((limits.limits.len(), stats.rules.len()), (2000, 2000));
    let named: Vec<_> = limits.limits.iter().map(|entry| &entry.source).collect();
    assert_eq!(named, stats.rules.iter().map(|rule| &rule.rule).collect::<Vec<_>>());
    assert_eq!(daemon.service.lists().unwrap().entries.len(), 3000);
    let text = daemon.service.export(ExportRules::default()).unwrap().text;
    daemon.write(&text);
    daemon.service.reload().unwrap();
    assert_eq!(daemon.service.export(ExportRules::default()).unwrap().text, text);
}

/// An answer under way reports the rules with which it began; an answer that is still counting
/// begins again.
#[test]
fn rules_that_change_between_two_parts_tear_no_answer() {
    let mut daemon = large(1000);
    let whole = |asked: &Asked, daemon: &Daemon| daemon.service.text(asked).unwrap().0;
    for (asked, parts) in [(Asked::Limits, 1), (Asked::Stats, 1), (Asked::Limits, 0)] {
        let before = whole(&asked, &daemon);
        let mut slices = daemon.service.begin(&asked).unwrap();
        let mut text = Vec::new();
        match parts {
            0 => assert_eq!(slices.step(&daemon.service).unwrap(), Step::Again),
            _ => text.extend(daemon.service.next_part(&mut slices).unwrap().unwrap()),
        }
        daemon.set("10.0.0.1", &format!("{}/s", 100 + parts), None).unwrap();
        daemon.set("10.9.9.9", "3/s", None).unwrap();
        while let Some(part) = daemon.service.next_part(&mut slices).unwrap() {
            text.extend(part);
        }
        let reported = String::from_utf8(text).unwrap();
        let expected = if parts == 0 { whole(&asked, &daemon) } else { before };
        assert!(reported == expected, "{asked:?}");
        daemon.unset("10.9.9.9").unwrap();
    }
    // An exported file also describes a single rule set; a rewritten file describes the newest.
    daemon.write(&format!("# {}\n{}", "x".repeat(1 << 20), many(1000)));
    daemon.service.reload().unwrap();
    let asked = Asked::Rules(ExportRules::default());
    let mut slices = daemon.service.begin(&asked).unwrap();
    assert_eq!(slices.step(&daemon.service).unwrap(), Step::Again);
    daemon.set("10.0.0.7", "77/s", None).unwrap();
    let mut text = Vec::new();
    while let Some(part) = daemon.service.next_part(&mut slices).unwrap() {
        text.extend(part);
    }
    assert!(String::from_utf8(text).unwrap() == whole(&asked, &daemon));
}

/// A source that stays on a list is reported once, whatever comes and goes.
#[test]
fn who_stays_on_a_list_is_reported_once() {
    let mut daemon = Daemon::start(&[]);
    let name = |number: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).to_string();
    let put = |daemon: &mut Daemon, list, sources| {
        daemon
            .service
            .list(&SetList { list, sources, seconds: None, ..SetList::default() })
            .unwrap();
    };
    put(&mut daemon, ListName::Deny, (0..4000).map(|number| name(2 * number)).collect());
    let mut slices = daemon.service.begin(&Asked::Lists).unwrap();
    let mut text = daemon.service.next_part(&mut slices).unwrap().unwrap();
    put(&mut daemon, ListName::Allow, (0..4000).map(|number| name(2 * number + 1)).collect());
    while let Some(part) = daemon.service.next_part(&mut slices).unwrap() {
        text.extend(part);
    }
    let reported: Lists = serde_json::from_slice(&text).unwrap();
    let denied = reported.entries.iter().filter(|entry| entry.list == ListName::Deny);
    let expected: Vec<_> = (0..4000).map(|number| name(2 * number)).collect();
    assert_eq!(denied.map(|entry| entry.source.clone()).collect::<Vec<_>>(), expected);
    let mut all: Vec<_> = reported.entries.iter().map(|entry| &entry.source).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), reported.entries.len(), "somebody was notified twice");
}
