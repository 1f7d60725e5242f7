//! Joins single drops into episodes, and reports them to the log, to followers and to hooks.

mod episodes;
pub(crate) mod filter;
mod followers;
mod hook;
mod lines;
mod log;
mod reported;
mod search;
mod webhook;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use hyper::body::Bytes;
use limiter_api::events::{Dropped, Episode, EventCounts, Line, Phase, TableFull};
use limiter_api::render::would_drop;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::Event;
use limiter_datapath::Datapath;
use tokio::sync::mpsc;

use super::error::ServiceError;
use super::gauges::alarm::Notice;
use super::lists::request_bans::RequestRules;
use super::machine::clocks::Clocks;
use super::rule_sets::effective::EffectiveSet;
use super::views::{self, Shadows, Title};
use episodes::{Due, Episodes, Key, Open};
use filter::Filter;
use followers::Followers;
use lines::{LogBudget, say};
use log::Log;
use reported::{reason, sample, source, view};

pub use hook::HookOptions;
pub(crate) use search::Search;

/// Most episodes under way at once.
const MOST_OPEN: usize = 4096;

/// Most ended episodes that are still shown.
const MOST_ENDED: usize = 256;

/// Most events taken at once, before others have their turn.
const AT_ONCE: usize = 8192;

/// Options of the events of drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventOptions {
    /// Drops that each CPU reports a second; `None` for no reports.
    pub per_second: Option<NonZero<u32>>,
    /// Time between two lines about an episode that goes on.
    pub still: Duration,
    /// Time without a drop that ends an episode.
    pub quiet: Duration,
    /// Hooks that are called for events.
    pub hooks: HookOptions,
    /// Most bytes of the log on disk; 0 for none.
    pub log_bytes: u64,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self {
            per_second: NonZero::new(200),
            still: Duration::from_mins(1),
            quiet: Duration::from_mins(1),
            hooks: HookOptions { command: None, url: None, timeout: Duration::from_secs(10) },
            log_bytes: 64 << 20,
        }
    }
}

/// The state of all events.
#[derive(Debug)]
pub(super) struct Events {
    episodes: Episodes,
    /// Ended episodes, and their reports by source: `None` for those that ended before the daemon's
    /// start.
    ended: VecDeque<(Option<Reported>, Episode)>,
    followers: Followers,
    hook: Option<mpsc::Sender<Line>>,
    hooks_left_out: u64,
    /// Budget for lines in the daemon's own log.
    lines: LogBudget,
    /// The log on disk, if there is one.
    log: Option<Log>,
    /// Directory and size of the log on disk, if one is wanted.
    wanted: Option<(PathBuf, u64)>,
    /// Time since which episodes are known in memory, if there is no log on disk.
    began: SystemTime,
    /// Names of rules by number, and their generation.
    names: (u64, BTreeMap<u32, Title>),
    /// Rules in shadow mode in that generation.
    shadows: Shadows,
}

impl Events {
    pub(super) fn new(options: &EventOptions) -> Self {
        Self {
            episodes: Episodes::new(MOST_OPEN, options.still, options.quiet),
            ended: VecDeque::new(),
            followers: Followers::default(),
            hook: None,
            hooks_left_out: 0,
            lines: LogBudget::default(),
            log: None,
            wanted: None,
            began: SystemTime::now(),
            names: (0, BTreeMap::new()),
            shadows: Shadows::default(),
        }
    }

    /// Takes the events that the program has reported.
    pub(super) fn take(
        &mut self,
        datapath: &mut dyn Datapath,
        effective: &EffectiveSet,
        requests: &RequestRules,
    ) {
        let clocks = Clocks::of(datapath);
        for _ in 0..AT_ONCE {
            let Some(event) = datapath.next_event() else { break };
            let generation = datapath.generation();
            if self.names.0 != generation {
                self.names = (generation, views::rule_names(datapath, effective));
                self.shadows = Shadows::of(datapath, effective);
            }
            let rule = self.shadows.reported(Reason::from_index(event.reason.into()), event.rule);
            if self.followers.want_drops() {
                let title = title_of(&event, rule, &self.names.1, (datapath, requests));
                let reason = reason(event.reason);
                let dropped = Dropped {
                    would_drop: would_drop(&reason),
                    source: source(&Key::of(&event)),
                    rule_name: title.as_ref().and_then(|title| title.name.clone()),
                    rule: title.map(|title| title.rule),
                    reason,
                    packet: sample(&event, datapath),
                };
                self.followers.report(&Line::Drop(dropped));
            }
            let names = &self.names.1;
            let title = || title_of(&event, rule, names, (datapath, requests));
            if let Some(open) = self.episodes.record(event, &clocks, title) {
                let line = Line::Start(view(&Key::of(&event), &open, false, datapath));
                self.report(line, datapath.now());
            }
        }
    }

    /// Emits the lines that are due.
    pub(super) fn look(&mut self, datapath: &dyn Datapath) {
        let now = datapath.now();
        for due in self.episodes.due(now) {
            let line = match due {
                Due::Still(key, open) => Line::Still(view(&key, &open, false, datapath)),
                Due::End(key, open) => {
                    let episode = view(&key, &open, true, datapath);
                    self.ended.truncate(MOST_ENDED - 1);
                    self.ended.push_front((Some(reported(key, &open)), episode.clone()));
                    Line::End(episode)
                }
            };
            self.report(line, now);
        }
        let left_out = self.lines.left_out;
        if left_out > 0 && self.lines.admit(now.as_nanos()) {
            self.lines.left_out = 0;
            tracing::warn!("{left_out} more lines about drops were left out: see `limiter events`");
        } else {
            self.lines.left_out = left_out;
        }
    }

    fn report(&mut self, line: Line, now: Ticks) {
        if self.lines.admit(now.as_nanos()) {
            say(&line);
        }
        self.pass_on(line);
    }

    /// Reports a table of entries without room. There are three tables, so no budget is needed.
    pub(super) fn table_full(&mut self, notice: &Notice) {
        let (phase, table, packets) = match notice {
            Notice::Started(table, packets) => (Phase::Start, table, packets),
            Notice::Still(table, packets) => (Phase::Still, table, packets),
            Notice::Ended(table, packets) => (Phase::End, table, packets),
        };
        notice.log_flood();
        let (table, packets) = (table.clone(), *packets);
        self.pass_on(Line::TableFull(TableFull { phase, table, packets }));
    }

    fn pass_on(&mut self, line: Line) {
        self.followers.report(&line);
        if let Some(hook) = &self.hook
            && hook.try_send(line).is_err()
        {
            self.hooks_left_out += 1;
        }
    }

    /// Adds a live reader of lines: a user, who comes before others if `first`.
    pub(super) fn follow(
        &mut self,
        drops: bool,
        filter: Filter,
        user: u32,
        first: bool,
    ) -> Result<mpsc::Receiver<Bytes>, ServiceError> {
        self.followers.add(drops, filter, user, first).ok_or(ServiceError::Followers)
    }

    /// Ends the lines for all readers.
    pub(super) fn end(&mut self) {
        self.followers.end();
        self.hook = None;
    }

    /// Answer to `GET /v1/events`: the episodes and the counts.
    pub(super) fn view(
        &self,
        datapath: &dyn Datapath,
    ) -> Result<limiter_api::events::Events, ServiceError> {
        let open = self.episodes.open();
        let open = open.iter().map(|(key, open)| view(key, open, false, datapath));
        Ok(limiter_api::events::Events {
            episodes: open.chain(self.ended.iter().map(|(_, episode)| episode.clone())).collect(),
            counts: self.counts(datapath)?,
            reach: None,
        })
    }

    /// Describes the first few drops of a source, in one direction, that go on: by rules in force.
    /// Whether a list or a ban drops it now is known without events.
    pub(super) fn dropped_lately(
        &self,
        (of, is_out): (&str, bool),
        (datapath, effective): (&dyn Datapath, &EffectiveSet),
    ) -> Vec<String> {
        const MOST: usize = 4;
        let mut open = self.episodes.open();
        open.retain(|(key, _)| source(key) == of && key.is_out == is_out);
        if open.is_empty() {
            return Vec::new();
        }
        let names = views::rule_names(datapath, effective);
        let is_in_force = |(key, open): &&(Key, &Open)| {
            open.rule.is_some() && names.get(&key.rule) == open.rule.as_ref()
        };
        let drops = open.iter().filter(is_in_force);
        let drops = drops.map(|(key, open)| view(key, open, false, datapath));
        let drops = drops.filter(|episode| !episode.would_drop).take(MOST);
        drops.map(|episode| episode.in_words()).collect()
    }

    fn counts(&self, datapath: &dyn Datapath) -> Result<EventCounts, ServiceError> {
        let counts = datapath.event_counts()?;
        Ok(EventCounts {
            sent: counts.sent,
            over_budget: counts.over_budget,
            lost: counts.lost,
            forgotten: self.episodes.forgotten,
            not_logged: self.lines.left_out_in_all,
            hooks_left_out: self.hooks_left_out,
            followers: self.followers.count(),
        })
    }

    /// Drops reported in current and recent episodes.
    pub(super) fn reported(&self) -> impl Iterator<Item = Reported> {
        let open = self.episodes.open().into_iter().map(|(key, open)| reported(key, open));
        let reported = open.chain(self.ended.iter().filter_map(|(reported, _)| reported.clone()));
        reported.filter(|reported| reported.reason().verdict() == Verdict::Drop)
    }

    /// Sources with reported drops, the latest first.
    pub(super) fn dropping(&self) -> impl Iterator<Item = Source> {
        self.episodes.open().into_iter().map(|(key, _)| views::of_key(key.source))
    }

    /// Starts the task that calls the hooks, inside a tokio runtime.
    pub(super) fn start_hooks(&mut self, options: &HookOptions) {
        if options.is_any() {
            let (sender, lines) = mpsc::channel(hook::WAITING);
            self.hook = Some(sender);
            tokio::spawn(hook::call(options.clone(), lines));
        }
    }
}

/// The rule of a drop, with its name. A banned source is dropped without looking at any rule; if a
/// rule for requests banned it, that rule is returned.
fn title_of(
    event: &Event,
    rule: u32,
    names: &BTreeMap<u32, Title>,
    (datapath, requests): (&dyn Datapath, &RequestRules),
) -> Option<Title> {
    if Reason::from_index(event.reason.into()) != Reason::Banned {
        return names.get(&rule).cloned();
    }
    // If the ban cannot be read, the drop counts as one without a rule.
    let ban = datapath.ban(views::of_key(event.source)).ok().flatten()?;
    Some(Title { rule: requests.of(ban.rule)?.shown(), name: None, of_one: false })
}

/// Reported drops of a source by one rule for one reason; only part of all drops.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    pub(super) source: [u8; 16],
    pub(super) rule: u32,
    pub(super) reason: u8,
    /// True for outgoing packets.
    pub(super) is_out: bool,
    /// The rule when the episode began.
    pub(super) title: Option<Title>,
    pub(super) began: SystemTime,
    pub(super) dropped: u64,
}

impl Reported {
    pub(super) fn reason(&self) -> Reason {
        Reason::from_index(u32::from(self.reason))
    }
}

fn reported(Key { source, rule, reason, is_out }: Key, open: &Open) -> Reported {
    let (title, dropped) = (open.rule.clone(), open.sampled);
    Reported { source, rule, reason, is_out, title, began: open.began, dropped }
}
