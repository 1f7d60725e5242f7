//! State of the view: all that it knows and shows.

use std::collections::HashMap;

use limiter_api::client::ClientError;
use limiter_api::events::Episode;
use limiter_api::moment::Zone;
use limiter_api::requests::{self, Requests};
use limiter_api::sources::source::SourceView;
use limiter_api::sources::top::Top;
use limiter_api::sources::{By, SourceRow};
use limiter_api::stats::Stats;
use limiter_api::status::{Interface, Status};

use super::filter::Filter;
use super::line::Line;
use super::link::{Action, Asking, Link};
use super::orders::{Order, next_by};
use super::past::{Rates, Totals};
use crate::questions::sources::rate;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Sources,
    Events,
    Rules,
    Interfaces,
    /// Rules for requests: only while a `limiter serve` reports.
    Requests,
}

impl Tab {
    pub(super) const ALL: [Self; 5] =
        [Self::Sources, Self::Events, Self::Rules, Self::Interfaces, Self::Requests];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Rules => "rules",
            Self::Interfaces => "interfaces",
            Self::Events => "events",
            Self::Requests => "requests",
        }
    }
}

/// Purpose of a text that is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    Deny,
    Allow,
    Limit,
    /// Prefix of the sources to be seen.
    Prefix,
    /// Words of the rules to be seen.
    Rule,
}

/// A dialog above the rest, which takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dialog {
    /// A line to be typed, and what was wrong with it.
    Input {
        prompt: Prompt,
        line: Line,
        wrong: Option<String>,
    },
    /// A question, answered by yes or no.
    Confirm {
        action: Action,
        question: String,
    },
    Help,
}

/// A line at the bottom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) bad: bool,
}

/// Packets that a rule passed, dropped, and passed over its limit.
pub(super) type RuleCounts = [u64; 3];

/// A rule, packets a second of the same three, and bits a second of the first two.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleRow {
    pub(super) rule: String,
    pub(super) name: Option<String>,
    pub(super) counts: RuleCounts,
    pub(super) rates: [Option<f64>; 3],
    pub(super) bits: [Option<f64>; 2],
}

impl RuleRow {
    /// The name that its author gave it, else what it is for.
    pub(super) fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.rule)
    }
}

/// A process of `limiter serve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) words: String,
    /// True if its numbers are old.
    pub(super) silent: bool,
}

/// A rule for requests of a process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestRow {
    pub(super) pid: u32,
    pub(super) silent: bool,
    pub(super) at: requests::RequestRow,
}

/// The counts of the rules at a look.
#[derive(Debug)]
struct RulesBefore {
    /// Packets, and bytes of what passed and was dropped.
    counts: HashMap<String, (RuleCounts, [u64; 2])>,
    clock: u64,
    /// The run of the daemon, and the rule set.
    of: (u64, u64),
}

/// All that the view knows and shows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tab: Tab,
    pub(super) by: By,
    pub(super) filter: Filter,
    /// Orders of the lists, in the order of [`Tab::ALL`].
    orders: [Order; Tab::ALL.len()],
    /// True while no updates are requested.
    pub(super) paused: bool,
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
    /// The time of day of the last answer.
    pub(super) answered: Option<String>,
    pub(super) top: Top,
    pub(super) status: Option<Status>,
    pub(super) rules: Vec<RuleRow>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) events: Vec<Episode>,
    /// Lines about the processes of `limiter serve` that report.
    pub(super) serving: Vec<Serving>,
    pub(super) requests: Vec<RequestRow>,
    pub(super) view: Option<SourceView>,
    pub(super) totals: Totals,
    pub(super) of_source: [Rates; 2],
    /// Packets of the shown source that had passed and were dropped at the last look.
    counted: Option<[u64; 2]>,
    /// The same before its counters left the tables, and the time of day when that was seen.
    pub(super) left: Option<([u64; 2], String)>,
    /// The counts of the rules at the look before.
    before: Option<RulesBefore>,
}

impl State {
    pub(super) fn new(by: By, within: Option<String>) -> Self {
        Self {
            tab: Tab::default(),
            by,
            filter: Filter { within, rule: None },
            orders: [Order::default(); Tab::ALL.len()],
            paused: false,
            cursor: 0,
            chosen: None,
            source: None,
            dialog: None,
            message: None,
            lost: None,
            answered: None,
            top: Top::default(),
            status: None,
            rules: Vec::new(),
            interfaces: Vec::new(),
            events: Vec::new(),
            serving: Vec::new(),
            requests: Vec::new(),
            view: None,
            totals: Totals::default(),
            of_source: [Rates::default(), Rates::default()],
            counted: None,
            left: None,
            before: None,
        }
    }

    /// Asks the daemon. Without an answer the last one stays, and the reason is shown.
    pub(super) fn refresh(&mut self, link: &dyn Link) {
        self.lost = self.try_refresh(link).err();
        if self.lost.is_none() {
            self.answered = Some(Zone::of_this_process().clock());
        }
    }

    fn try_refresh(&mut self, link: &dyn Link) -> Result<(), ClientError> {
        let (by, within, watch) = (self.by, self.filter.within.clone(), self.source.clone());
        let top = link.top(&Asking { by, within, watch, many: self.filter.rule.is_some() })?;
        self.take(top);
        self.totals.take(link.history(self.totals.newest())?);
        let status = link.status()?;
        self.interfaces.clone_from(&status.interfaces);
        self.status = Some(status);
        match self.tab {
            Tab::Rules => self.take_rules(link.stats()?),
            Tab::Events => self.events = link.events()?.episodes,
            Tab::Requests => self.take_requests(link.requests()?),
            Tab::Sources | Tab::Interfaces => {}
        }
        if self.tab != Tab::Rules {
            self.before = None;
        }
        self.arrange();
        self.view = self.source.as_deref().map(|source| link.source(source)).transpose()?;
        Ok(())
    }

    fn take(&mut self, mut top: Top) {
        top.sources.retain(|row| self.filter.has_source(row));
        self.top = top;
        let watched = &self.top.watched;
        if !watched.is_empty() {
            // What comes in and what goes out is one band.
            let sum =
                |of: fn(&SourceRow) -> Option<f64>| watched.iter().map(of).sum::<Option<f64>>();
            let [passed, dropped] = &mut self.of_source;
            passed.push(self.top.clock_ns, sum(|row| row.passed_per_second));
            dropped.push(self.top.clock_ns, sum(|row| row.dropped_per_second));
            let sum = |of: fn(&SourceRow) -> u64| watched.iter().map(of).sum::<u64>();
            let now = [sum(|row| row.passed), sum(|row| row.dropped)];
            if let Some(before) = self.counted.replace(now)
                && now.iter().sum::<u64>() < before.iter().sum()
            {
                self.left = Some((before, Zone::of_this_process().clock()));
            }
        }
    }

    /// Puts the rows of the tab in their order, and the cursor on one.
    pub(super) fn arrange(&mut self) {
        let order = self.order();
        match self.tab {
            Tab::Sources => {}
            Tab::Rules => {
                self.rules.retain(|row| self.filter.has_rule(row));
                order.rules(&mut self.rules);
            }
            Tab::Interfaces => order.interfaces(&mut self.interfaces),
            Tab::Events => {
                self.events.retain(|episode| self.filter.has_episode(episode));
                order.events(&mut self.events);
            }
            Tab::Requests => {
                self.requests.retain(|row| self.filter.has_request(&row.at));
                order.requests(&mut self.requests);
            }
        }
        let found = self.chosen.as_ref().and_then(|chosen| {
            (0..self.rows()).find(|row| self.name_of(*row).as_ref() == Some(chosen))
        });
        self.cursor = found.unwrap_or(self.cursor).min(self.rows().saturating_sub(1));
    }

    pub(super) fn order(&self) -> Order {
        self.orders[self.tab as usize]
    }

    /// Sorts by the next column, or by the one before.
    pub(super) fn turn_order(&mut self, back: bool) {
        if self.tab == Tab::Sources {
            self.by = next_by(self.by, back);
        }
        self.orders[self.tab as usize].turn(self.tab, back);
        self.choose(0);
        self.arrange();
    }

    /// Reverses the order: the least first, or the most again. Sources are only the first of many,
    /// of which the daemon alone knows the least.
    pub(super) fn turn_round(&mut self) {
        let order = &mut self.orders[self.tab as usize];
        order.ascending = self.tab != Tab::Sources && !order.ascending;
        self.choose(0);
        self.arrange();
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
            let bytes = [rule.passed.bytes, rule.dropped.bytes];
            let (mut rates, mut bits) = ([None; 3], [None; 2]);
            if let Some(before) = self.before.as_ref().filter(|before| before.of == of)
                && let Some((packets_before, bytes_before)) = before.counts.get(&rule.rule)
            {
                let time = clock.saturating_sub(before.clock);
                for ((to, before), now) in rates.iter_mut().zip(packets_before).zip(&counts) {
                    *to = rate(*before, *now, time);
                }
                for ((to, before), now) in bits.iter_mut().zip(bytes_before).zip(&bytes) {
                    *to = rate(*before, *now, time).map(|bytes| 8.0 * bytes);
                }
            }
            now.insert(rule.rule.clone(), (counts, bytes));
            self.rules.push(RuleRow { rule: rule.rule, name: rule.rule_name, counts, rates, bits });
        }
        self.before = Some(RulesBefore { counts: now, clock, of });
    }

    fn take_requests(&mut self, requests: Requests) {
        (self.serving, self.requests) = (Vec::new(), Vec::new());
        for process in requests.processes {
            let (words, pid, silent) = (process.words(), process.pid, process.silent);
            self.serving.push(Serving { words, silent });
            let row = |at| RequestRow { pid, silent, at };
            self.requests.extend(process.rules.into_iter().map(row));
        }
    }

    /// True if a tab has something to show, as far as is known without a request.
    pub(super) fn has(&self, tab: Tab) -> bool {
        let reports = || self.status.as_ref().is_some_and(|status| !status.requests.is_empty());
        tab != Tab::Requests || tab == self.tab || reports()
    }

    /// The next tab, or the one before.
    pub(super) fn beside(&self, back: bool) -> Tab {
        let count = Tab::ALL.len();
        let step = if back { count - 1 } else { 1 };
        let tabs = (1..count).map(|steps| (self.tab as usize + steps * step) % count);
        let mut tabs = tabs.filter_map(|index| Tab::ALL.get(index).copied());
        tabs.find(|tab| self.has(*tab)).unwrap_or(self.tab)
    }

    pub(super) fn rows(&self) -> usize {
        match self.tab {
            Tab::Sources => self.top.sources.len(),
            Tab::Rules => self.rules.len(),
            Tab::Interfaces => self.interfaces.len(),
            Tab::Events => self.events.len(),
            Tab::Requests => self.requests.len(),
        }
    }

    /// The name of a row, by which it stays chosen.
    fn name_of(&self, row: usize) -> Option<String> {
        match self.tab {
            Tab::Sources => self.top.sources.get(row).map(SourceRow::name),
            Tab::Rules => self.rules.get(row).map(|row| row.rule.clone()),
            Tab::Interfaces => self.interfaces.get(row).map(|at| at.name.clone()),
            Tab::Events => self
                .events
                .get(row)
                .map(|at| format!("{} {} {} {:?}", at.source, at.began, at.reason, at.rule)),
            Tab::Requests => {
                let named = |RequestRow { pid, at, .. }: &RequestRow| {
                    format!("{pid} {} {}", at.domain, at.rule)
                };
                self.requests.get(row).map(named)
            }
        }
    }

    /// The source that the chosen row is about.
    pub(super) fn source_of_row(&self) -> Option<String> {
        match self.tab {
            Tab::Events => self.events.get(self.cursor).map(|at| at.source.clone()),
            _ => self.row().map(|row| row.source.clone()),
        }
    }

    pub(super) fn row(&self) -> Option<&SourceRow> {
        self.top.sources.get(self.cursor).filter(|_| self.tab == Tab::Sources)
    }

    pub(super) fn choose(&mut self, row: usize) {
        self.cursor = row.min(self.rows().saturating_sub(1));
        // The first place is the one of the first row, whichever that is.
        self.chosen = (self.cursor > 0).then(|| self.name_of(self.cursor)).flatten();
    }

    pub(super) fn open(&mut self, tab: Tab) {
        self.tab = tab;
        self.cursor = 0;
        self.chosen = None;
    }

    /// Shows a source alone, or none.
    pub(super) fn show(&mut self, source: Option<String>) {
        self.source = source;
        self.view = None;
        self.top.watched.clear();
        self.of_source = [Rates::default(), Rates::default()];
        (self.counted, self.left) = (None, None);
    }

    /// The change that would leave the source to the rules again: first of its list, then its ban,
    /// then its limit.
    pub(super) fn undo(&self) -> Option<(Action, String)> {
        let source = self.source.clone()?;
        let row = self.top.watched.iter().find(|row| row.source == source)?;
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
