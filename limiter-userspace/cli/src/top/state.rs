//! State of the view: all that it knows and shows.

use std::collections::{HashMap, VecDeque};

use limiter_daemon::api::source::SourceView;
use limiter_daemon::api::sources::Dropped;
use limiter_daemon::api::sources::{By, SourceRow};
use limiter_daemon::api::stats::Stats;
use limiter_daemon::api::status::Status;
use limiter_daemon::api::top::Top;
use limiter_daemon::control::ClientError;

use super::super::sources::{drop_rates, rate, rates};
use super::line::Line;
use super::link::{Action, Asking, Link};

/// Points of a history: as wide as any terminal's.
const HISTORY: usize = 300;

/// Lists of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Sources,
    Rules,
    Interfaces,
}

impl Tab {
    pub(super) const ALL: [Self; 3] = [Self::Sources, Self::Rules, Self::Interfaces];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Rules => "rules",
            Self::Interfaces => "interfaces",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Sources => Self::Rules,
            Self::Rules => Self::Interfaces,
            Self::Interfaces => Self::Sources,
        }
    }

    pub(super) const fn previous(self) -> Self {
        self.next().next()
    }
}

/// Purpose of a text that is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Time to deny for.
    Deny,
    /// Time to allow for.
    Allow,
    /// Rate of a limit.
    Limit,
    /// Prefix of the sources to be seen.
    Filter,
}

/// A dialog above the rest, which takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dialog {
    /// A line to be typed, and what was wrong with it.
    Input { prompt: Prompt, line: Line, wrong: Option<String> },
    /// Yes or no.
    Confirm { action: Action, question: String },
    /// The help: all keys.
    Help,
}

/// A line at the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) bad: bool,
}

/// Packets a second, over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct History {
    /// The newest first; none where the rate is not known.
    points: VecDeque<Option<u64>>,
    pub(super) now: Option<f64>,
}

impl History {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are not negative"
    )]
    fn push(&mut self, rate: Option<f64>) {
        self.now = rate;
        self.points.truncate(HISTORY - 1);
        self.points.push_front(rate.map(|rate| rate.ceil() as u64));
    }

    /// The newest `count` points, the newest first.
    pub(super) fn points(&self, count: usize) -> Vec<Option<u64>> {
        self.points.iter().copied().take(count).collect()
    }
}

/// Packets that a rule passed, dropped, and passed over its limit.
pub(super) type RuleCounts = [u64; 3];

/// A rule, and packets a second of the same three.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleRow {
    pub(super) rule: String,
    pub(super) name: Option<String>,
    pub(super) counts: RuleCounts,
    pub(super) rates: [Option<f64>; 3],
}

/// The counts of the rules at a look.
#[derive(Debug)]
struct RulesBefore {
    counts: HashMap<String, RuleCounts>,
    clock: u64,
    /// The run of the daemon, and the rule set.
    of: (u64, u64),
}

/// All that the view knows and shows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tab: Tab,
    pub(super) by: By,
    pub(super) within: Option<String>,
    /// The chosen row of the tab.
    pub(super) cursor: usize,
    /// The chosen source stays chosen wherever it goes, once somebody chose.
    chosen: Option<String>,
    /// The source that is shown alone.
    pub(super) source: Option<String>,
    pub(super) dialog: Option<Dialog>,
    pub(super) message: Option<Message>,
    /// Error of the last question, if there is no answer.
    pub(super) lost: Option<ClientError>,
    pub(super) top: Top,
    pub(super) status: Option<Status>,
    pub(super) rules: Vec<RuleRow>,
    pub(super) view: Option<SourceView>,
    pub(super) passed: History,
    pub(super) dropped: History,
    /// Drops now, by what drops the packets.
    pub(super) dropped_by: Option<Dropped<f64>>,
    pub(super) of_source: [History; 2],
    /// The counts of the rules at the look before.
    before: Option<RulesBefore>,
}

impl State {
    pub(super) fn new(by: By, within: Option<String>) -> Self {
        Self {
            tab: Tab::default(),
            by,
            within,
            cursor: 0,
            chosen: None,
            source: None,
            dialog: None,
            message: None,
            lost: None,
            top: Top::default(),
            status: None,
            rules: Vec::new(),
            view: None,
            passed: History::default(),
            dropped: History::default(),
            dropped_by: None,
            of_source: [History::default(), History::default()],
            before: None,
        }
    }

    /// Asks the daemon. Without an answer the last one stays, and why there is none is shown.
    pub(super) fn refresh(&mut self, link: &dyn Link) {
        self.lost = self.try_refresh(link).err();
    }

    fn try_refresh(&mut self, link: &dyn Link) -> Result<(), ClientError> {
        let (by, within, watch) = (self.by, self.within.clone(), self.source.clone());
        let top = link.top(&Asking { by, within, watch })?;
        self.take(top);
        self.status = Some(link.status()?);
        if self.tab == Tab::Rules {
            self.take_rules(link.stats()?);
        } else {
            self.before = None;
        }
        self.view = self.source.as_deref().map(|source| link.source(source)).transpose()?;
        Ok(())
    }

    fn take(&mut self, top: Top) {
        let before = std::mem::replace(&mut self.top, top);
        // Nothing to compare with at first, and counters begin anew with new maps.
        if before.clock_ns > 0 {
            let [passed, dropped] = rates(&before, &self.top);
            self.passed.push(passed);
            self.dropped.push(dropped);
            self.dropped_by = drop_rates(&before, &self.top);
        }
        if let Some(row) = &self.top.watched {
            let [passed, dropped] = &mut self.of_source;
            passed.push(row.passed_per_second);
            dropped.push(row.dropped_per_second);
        }
        if self.tab == Tab::Sources {
            let chosen = self.chosen.as_deref();
            let found = self.top.sources.iter().position(|row| Some(row.source.as_str()) == chosen);
            self.cursor = found.unwrap_or(self.cursor).min(self.rows().saturating_sub(1));
        }
    }

    fn take_rules(&mut self, stats: Stats) {
        let clock = self.top.clock_ns;
        // Under other rules the same name may have another counter.
        let of = (self.top.began_ns, stats.generation);
        let mut now = HashMap::new();
        self.rules.clear();
        for rule in stats.rules.into_iter().chain(stats.budgets) {
            let over = rule.shadowed.packets.saturating_add(rule.marked.packets);
            let counts = [rule.passed.packets, rule.dropped.packets, over];
            let mut rates = [None; 3];
            if let Some(before) = self.before.as_ref().filter(|before| before.of == of)
                && let Some(counted) = before.counts.get(&rule.rule)
            {
                let time = clock.saturating_sub(before.clock);
                for ((to, before), now) in rates.iter_mut().zip(counted).zip(&counts) {
                    *to = rate(*before, *now, time);
                }
            }
            now.insert(rule.rule.clone(), counts);
            self.rules.push(RuleRow { rule: rule.rule, name: rule.rule_name, counts, rates });
        }
        self.before = Some(RulesBefore { counts: now, clock, of });
        self.cursor = self.cursor.min(self.rows().saturating_sub(1));
    }

    /// Rows of the tab.
    pub(super) fn rows(&self) -> usize {
        match self.tab {
            Tab::Sources => self.top.sources.len(),
            Tab::Rules => self.rules.len(),
            Tab::Interfaces => self.status.as_ref().map_or(0, |status| status.interfaces.len()),
        }
    }

    /// The chosen source.
    pub(super) fn row(&self) -> Option<&SourceRow> {
        self.top.sources.get(self.cursor).filter(|_| self.tab == Tab::Sources)
    }

    /// Chooses a row.
    pub(super) fn choose(&mut self, row: usize) {
        self.cursor = row.min(self.rows().saturating_sub(1));
        // The first place is whoever comes first.
        self.chosen = self.row().filter(|_| self.cursor > 0).map(|row| row.source.clone());
    }

    /// Shows another list.
    pub(super) fn open(&mut self, tab: Tab) {
        self.tab = tab;
        self.cursor = 0;
        self.chosen = None;
    }

    /// Shows a source alone, or none.
    pub(super) fn show(&mut self, source: Option<String>) {
        self.source = source;
        self.view = None;
        self.top.watched = None;
        self.of_source = [History::default(), History::default()];
    }

    /// The change that would leave the source to the rules again: of its list first, then its ban,
    /// then its limit.
    pub(super) fn undo(&self) -> Option<(Action, String)> {
        let source = self.source.clone()?;
        let row = self.top.watched.as_ref().filter(|row| row.source == source)?;
        if let Some(list) = row.listed {
            let question = format!("Take {source} off the {} list?", list.name());
            return Some((Action::Unlist { source }, question));
        }
        if row.banned_seconds.is_some() {
            let question = format!("Forget the bans of {source}?");
            return Some((Action::Unban { source }, question));
        }
        if row.rule.as_ref() == Some(&source) {
            let question = format!("Remove the limit that was set for {source}?");
            return Some((Action::Unset { source }, question));
        }
        None
    }

    pub(super) fn say(&mut self, text: impl Into<String>, bad: bool) {
        self.message = Some(Message { text: text.into(), bad });
    }
}
