//! A data path in memory, for tests: it takes the same plans and counts what it is told to.

mod reading;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytemuck::Zeroable as _;
use limiter_common::bucket::{Generation, Resolved, Slot, Word};
use limiter_common::change::ended_in;
use limiter_common::gcra::Charge;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Action, Admission, Ban, Bucket, Event, EventBudget, KeyedBucket, Lane, Limit, ListEntry,
    Moment, Record, RuleCounters, TableKey, Tally,
};

use super::datapath::{Backend, Datapath, Fault};
use crate::datapath::{
    Attachment, LinkChange, LinkState, Mode, ModeChoice, Options, Reading, SourceTable, Sweep,
    TrialOutcome, of_key,
};
use crate::rules::model::TriePrefix;
use crate::rules::{Installed, Plan, Selector, TablesPlan};

/// What the maps hold, and what happened to them.
#[expect(clippy::struct_excessive_bools, reason = "a test's tick list, not a state machine")]
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) installed: Installed,
    pub(crate) generation: u64,
    pub(crate) limits: BTreeMap<u32, Limit>,
    pub(crate) commits: usize,
    /// Makes the next commits fail.
    pub(crate) refuse_commits: bool,
    pub(crate) brake: bool,
    /// Whether interfaces take VLAN tags off; none for a kernel that does not say.
    pub(crate) strips_tags: Option<bool>,
    /// How long the last sign of life lasts.
    pub(crate) sign_of_life: Option<Duration>,
    pub(crate) detached: bool,
    pub(crate) left: bool,
    pub(crate) opened: usize,
    /// What the next look at the interfaces finds.
    pub(crate) link_changes: Vec<LinkChange>,
    /// Whether somebody removed the pins.
    pub(crate) unpinned: bool,
    pub(crate) adopted: bool,
    pub(crate) max_frame: u64,
    pub(crate) capacity: u32,
    pub(crate) now: Ticks,
    /// The wall clock, if it is not this machine's.
    pub(crate) wall: Option<Duration>,
    pub(crate) buckets: HashMap<Source, Bucket>,
    pub(crate) admission: HashMap<Lane, Admission>,
    pub(crate) rules: HashMap<u32, RuleCounters>,
    pub(crate) lists: BTreeMap<Selector, ListEntry>,
    pub(crate) bans: BTreeMap<[u8; 16], Ban>,
    pub(crate) clock_refreshed: usize,
    /// Drops that the program has told, and nobody has taken.
    pub(crate) events: VecDeque<Event>,
    pub(crate) event_counts: EventBudget,
    pub(crate) event_rate: Option<NonZero<u32>>,
    pub(crate) reasons: [Tally; Reason::COUNT],
    /// By generation, what the two halves of the maps of rules hold.
    pub(crate) rule_sets: [RuleSetMaps; 2],
    pub(crate) records: BTreeMap<u32, Record>,
    pub(crate) actions: BTreeMap<u32, Action>,
    pub(crate) keyed: HashMap<TableKey, KeyedBucket>,
    pub(crate) budgets: HashMap<u32, KeyedBucket>,
    pub(crate) trial_end: Ticks,
    /// When the present rule set came into force.
    pub(crate) moment: Moment,
    pub(crate) source_table: SourceTable,
}

/// One half.
#[derive(Debug, Default)]
pub(crate) struct RuleSetMaps {
    trie: Vec<(TriePrefix, u32)>,
    tables: TablesPlan,
}

impl State {
    fn half(&self, generation: Generation) -> &RuleSetMaps {
        &self.rule_sets[usize::from(generation.buffer() == 1)]
    }

    fn changed(&mut self, now: Ticks) {
        self.moment = Moment::new(self.generation, now);
    }

    fn set_trial(&mut self, on_trial: bool) {
        let half = &mut self.rule_sets[usize::from(self.generation % 2 == 1)];
        half.tables.header = half.tables.header.with_trial(on_trial);
    }
}

/// The data path and, to the test, its inside.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    attachments: Vec<Attachment>,
}

impl Default for Fake {
    fn default() -> Self {
        let attachment = Attachment {
            interface: "fake0".to_owned(),
            ifindex: 7,
            mode: Mode::Native,
            program_id: 42,
            link_id: 4,
            adopted: false,
            state: LinkState::Attached,
            asked: "fake0".to_owned(),
        };
        let state =
            State { max_frame: 1522, capacity: 64, strips_tags: Some(false), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), attachments: vec![attachment] }
    }
}

impl Fake {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sends `packets` of `length` bytes, as the program would judge them for a rule.
    pub(crate) fn send(&self, source: Source, selector: Selector, packets: u64, length: u64) {
        let mut state = self.state();
        let rule = state.installed.rules[&selector];
        let now = state.now;
        let resolved = Resolved::new(
            Generation::new(state.generation),
            Slot::new(rule.slot),
            Slot::NONE,
            false,
        );
        let fresh = Bucket { resolved: resolved.raw(), ..Bucket::default() };
        for _ in 0..packets {
            let bucket = state.buckets.entry(source).or_insert(fresh);
            let tat = Word::from_raw(bucket.word).tat();
            let units = rule.limit.units(length);
            let reason = if let Some(tat) = Charge::new(&rule.limit, now, units).apply(tat) {
                bucket.word = Word::new(tat, false).raw();
                bucket.passed += 1;
                state.rules.entry(rule.limit.rule).or_default().passed.add(length);
                Reason::Conforming
            } else {
                bucket.dropped += 1;
                state.rules.entry(rule.limit.rule).or_default().dropped.add(length);
                Reason::OverLimit
            };
            state.reasons[reason.index() as usize].add(length);
        }
    }
}

/// As the trait hands out a reference, a copy of the installed rules is kept beside the shared state.
#[derive(Debug)]
pub(crate) struct Opened {
    fake: Fake,
    installed: Installed,
    /// What was in force before, and until when it is not.
    trial: Option<(Installed, Ticks)>,
}

impl Fake {
    pub(crate) fn open_now(&self) -> Box<dyn Datapath> {
        let installed = self.state().installed.clone();
        let mut fake = self.clone();
        fake.attachments[0].adopted = self.state().adopted;
        Box::new(Opened { fake, installed, trial: None })
    }
}

impl Datapath for Opened {
    fn attachments(&self) -> &[Attachment] {
        &self.fake.attachments
    }

    fn look_after_links(&mut self) -> Vec<LinkChange> {
        std::mem::take(&mut self.fake.state().link_changes)
    }

    fn is_pinned(&self) -> bool {
        !self.fake.state().unpinned
    }

    fn is_new(&self) -> bool {
        !self.fake.state().adopted
    }

    fn max_frame(&self) -> u64 {
        self.fake.state().max_frame
    }

    fn installed(&self) -> &Installed {
        &self.installed
    }

    fn generation(&self) -> u64 {
        self.fake.state().generation
    }

    fn commit(&mut self, plan: Plan) -> Result<u64, Fault> {
        if self.trial.is_some() {
            return Err(Fault::refused("a rule set is on trial"));
        }
        let now = self.now();
        let mut state = self.fake.state();
        if state.refuse_commits {
            return Err(Fault::failed("map LIMITS: the fake refuses: tell it not to"));
        }
        state.commits += 1;
        state.generation += 1;
        state.limits.extend(plan.limits);
        state.records.extend(plan.tables.records.iter().copied());
        state.actions.extend(plan.tables.actions.iter().copied());
        let before = Generation::new(state.generation - 1);
        let resolved = Resolved::new(before, Slot::NONE, Slot::NONE, false).raw();
        let begun = KeyedBucket { resolved, ..KeyedBucket::zeroed() };
        let indices = plan.tables.begun_budgets.iter();
        state.budgets.extend(indices.map(|index| (*index, begun)));
        let half = usize::from(state.generation % 2 == 1);
        state.rule_sets[half] = RuleSetMaps { trie: plan.trie, tables: plan.tables };
        let left = self.installed.not_in(&plan.installed).ended(ended_in(state.generation));
        state.limits.extend(left.limits);
        state.records.extend(left.records);
        state.changed(now);
        state.installed = plan.installed.clone();
        self.installed = plan.installed;
        Ok(state.generation)
    }

    fn commit_on_trial(&mut self, plan: Plan, end: Ticks) -> Result<u64, Fault> {
        let before = self.installed.clone();
        let generation = self.commit(plan)?;
        self.trial = Some((before, end));
        let mut state = self.fake.state();
        state.trial_end = end;
        state.set_trial(true);
        drop(state);
        Ok(generation)
    }

    fn confirm(&mut self) -> Result<TrialOutcome, Fault> {
        match &self.trial {
            None => Err(Fault::refused("no rule set is on trial")),
            Some((_, end)) if *end <= self.now() => {
                self.revert()?;
                Ok(TrialOutcome::Reverted)
            }
            Some(_) => {
                self.trial = None;
                self.fake.state().set_trial(false);
                Ok(TrialOutcome::Confirmed)
            }
        }
    }

    fn revert(&mut self) -> Result<(), Fault> {
        let (before, _) =
            self.trial.take().ok_or_else(|| Fault::refused("no rule set is on trial"))?;
        let now = self.now();
        let mut state = self.fake.state();
        state.trial_end = Ticks::ZERO;
        state.generation += 1;
        state.changed(now);
        state.installed = before.clone();
        self.installed = before;
        Ok(())
    }

    fn capacity(&self) -> u32 {
        self.fake.state().capacity
    }

    fn source_table(&self) -> SourceTable {
        self.fake.state().source_table
    }

    fn max_sources(&self) -> u32 {
        1024
    }

    fn entries(&self, _lane: Lane) -> Result<u64, Fault> {
        Ok(1024)
    }

    fn admission(&self, lane: Lane) -> Result<Admission, Fault> {
        let state = self.fake.state();
        Ok(state.admission.get(&lane).copied().unwrap_or_default())
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        interface_index(name)
    }

    fn cpus(&self) -> u32 {
        2
    }

    fn strips_tags(&self, interface: &str) -> Result<bool, Fault> {
        match self.fake.state().strips_tags {
            Some(strips) => Ok(strips),
            None => Err(Fault::failed(format!("asking about {interface}: the fake refuses"))),
        }
    }

    fn set_brake(&mut self, engaged: bool) -> Result<(), Fault> {
        self.fake.state().brake = engaged;
        Ok(())
    }

    fn brake(&self) -> Result<bool, Fault> {
        Ok(self.fake.state().brake)
    }

    fn reasons(&self) -> Result<[Tally; Reason::COUNT], Fault> {
        Ok(self.fake.state().reasons)
    }

    fn rule_counters(&self, number: u32) -> Result<RuleCounters, Fault> {
        Ok(self.fake.state().rules.get(&number).copied().unwrap_or_default())
    }

    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), Fault> {
        self.fake.state().lists.insert(*selector, entry);
        Ok(())
    }

    fn unlist(&mut self, selector: &Selector) -> Result<bool, Fault> {
        Ok(self.fake.state().lists.remove(selector).is_some())
    }

    fn listed(&self) -> Result<Vec<(Selector, ListEntry)>, Fault> {
        Ok(self.fake.state().lists.iter().map(|(selector, entry)| (*selector, *entry)).collect())
    }

    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, Fault> {
        Ok(self.fake.state().bans.iter().map(|(source, ban)| (*source, *ban)).collect())
    }

    fn ban(&self, source: &Source) -> Result<Option<Ban>, Fault> {
        Ok(self.fake.state().bans.get(&source.trie_key()).copied())
    }

    fn unban(&mut self, source: &Source) -> Result<bool, Fault> {
        Ok(self.fake.state().bans.remove(&source.trie_key()).is_some())
    }

    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), Fault> {
        self.fake.state().sign_of_life = Some(lasts);
        Ok(())
    }

    fn refresh_wall_clock(&mut self) -> Result<(), Fault> {
        self.fake.state().clock_refreshed += 1;
        Ok(())
    }

    fn limit(&self, slot: u32) -> Result<Limit, Fault> {
        Ok(self.fake.state().limits.get(&slot).copied().unwrap_or_default())
    }

    fn bucket(&self, source: &Source) -> Result<Option<Bucket>, Fault> {
        Ok(self.fake.state().buckets.get(source).copied())
    }

    fn reading(&self) -> &dyn Reading {
        self
    }

    fn wall(&self) -> Duration {
        let set = self.fake.state().wall;
        set.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
    }

    fn sources(&self, sweep: &mut Sweep, most: usize) -> Result<Vec<(Source, Bucket)>, Fault> {
        let Some((lane, from)) = sweep.place() else { return Ok(Vec::new()) };
        let state = self.fake.state();
        let of_lane = |source: &Source| matches!(source, Source::V4(_)) == (lane == Lane::V4);
        let mut entries: Vec<(Source, Bucket)> = if lane == Lane::Keyed {
            let mine = state.keyed.iter().filter(|(key, _)| Some(key.table) == sweep.table());
            mine.map(|(key, bucket)| of_key(key, bucket)).collect()
        } else {
            let mine = state.buckets.iter().filter(|(source, _)| of_lane(source));
            mine.map(|(source, bucket)| (*source, *bucket)).collect()
        };
        entries.sort_by_key(|(source, _)| *source);
        let from = from.map_or(0, |from| from as usize);
        let to = (from + most).min(entries.len());
        sweep.go_on((to < entries.len()).then(|| u32::try_from(to).unwrap()));
        Ok(entries[from.min(to)..to].to_vec())
    }

    fn now(&self) -> Ticks {
        self.fake.state().now
    }

    fn next_event(&mut self) -> Option<Event> {
        self.fake.state().events.pop_front()
    }

    fn event_descriptor(&self) -> Result<Option<OwnedFd>, Fault> {
        Ok(None)
    }

    fn event_counts(&self) -> Result<EventBudget, Fault> {
        Ok(self.fake.state().event_counts)
    }

    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        _burst: NonZero<u32>,
    ) -> Result<(), Fault> {
        self.fake.state().event_rate = per_second;
        Ok(())
    }

    fn give_back(self: Box<Self>) -> Result<(), Fault> {
        if self.fake.attachments.iter().any(|at| at.adopted) {
            self.leave();
        } else {
            self.detach()?;
        }
        Ok(())
    }

    fn detach(self: Box<Self>) -> Result<Vec<String>, Fault> {
        self.fake.state().detached = true;
        Ok(self.fake.attachments.into_iter().map(|at| at.interface).collect())
    }

    fn leave(self: Box<Self>) {
        self.fake.state().left = true;
    }
}

fn interface_index(name: &str) -> Option<u32> {
    match name {
        "fake0" => Some(7),
        "fake1" => Some(8),
        _ => None,
    }
}

impl Backend for Fake {
    fn check(&self, interfaces: &[String], _pin_dir: &Path) -> Result<u64, Fault> {
        match interfaces.iter().find(|name| *name != "fake0") {
            Some(name) => Err(Fault::refused(format!("there is no interface {name}: use fake0"))),
            None => Ok(1522),
        }
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        interface_index(name)
    }

    fn cpus(&self) -> u32 {
        2
    }

    fn open(
        &self,
        options: &Options,
        _interfaces: &[String],
        _mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, Fault> {
        self.state().opened += 1;
        self.state().source_table = options.source_table;
        Ok(self.open_now())
    }

    fn give_up_privileges(&self) -> std::io::Result<()> {
        // The tests are threads of one process.
        Ok(())
    }

    fn set_brake(&self, pin_dir: &Path, engaged: bool) -> Result<(), Fault> {
        if !pin_dir.ends_with("pinned") {
            return Err(Fault::refused(format!("nothing is pinned under {}", pin_dir.display())));
        }
        self.state().brake = engaged;
        Ok(())
    }

    fn detach(&self, _pin_dir: &Path) -> Result<Vec<String>, Fault> {
        self.state().detached = true;
        Ok(vec!["fake0".to_owned()])
    }
}
