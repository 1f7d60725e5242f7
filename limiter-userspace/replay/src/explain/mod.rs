//! The decisions that limiter would have taken on the packets of a capture: the code of the XDP
//! program runs on the host, in the time of the capture. Needs no privilege, no kernel and no
//! daemon.
//!
//! [`Capture`] reads the file packet by packet, and [`Explainer`] judges the packets. Both hold one
//! packet at a time; [`MAX_MEGABYTES`] bounds the state of sources and keys.

mod arrivals;
mod bound;
mod capture;
mod error;
mod interface;
mod link;
mod matches;
mod obsolete;
mod opening;
mod own;
mod summary;
mod twice;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::window::WallOffset;
use limiter_common::wire::{ListEntry, RULE_NONE, RuleCounters, Tally};
use limiter_decision::outcome::Outcome;

pub use arrivals::{Arrivals, LeftOut};
pub(crate) use bound::{LOOK, MAX_BYTES};
pub use bound::{MAX_MEGABYTES, MAX_REPORTED};
pub use capture::{Capture, Captured};
pub use error::{CaptureError, ExplainError};
pub use matches::{Bucket, Charge, Match};
pub use own::Own;
pub use summary::{BySource, Others, SourceSums};

use limiter_model::{Model, Packet};
use limiter_rules::compile::OWN_BUDGETS;
use limiter_rules::model::{Limits, Listing};
use limiter_rules::place::{Rulebook, Title, budget_tag};
use limiter_rules::{Environment, Installed, PlanError, Rule, RuleSet, Selector};

/// Capacity for sources and keys: the defaults of `limiter run`.
const MAX_SOURCES: u32 = 262_144;
const MAX_KEYS: u32 = 65_536;

/// Capacity for rules: as many as the maps can hold.
const CAPACITY: u32 = limiter_common::bucket::MAX_SLOTS / 4;

/// The time of the first packet on limiter's clock, which begins at boot. Later packets of the file
/// may be older, if several queues of a card were captured.
const FIRST: u64 = 86_400_000_000_000;

/// Indices of interfaces that only the rule file knows begin here, so that none equals a given one.
const NAMED: u32 = 1 << 30;

/// Interface by which the packets came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Interface of this name.
    Name(String),
    /// Interface of this index.
    Index(u32),
}

/// Settings of an explanation.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The interface of every packet; if `None`, the one that the capture names, if it does.
    pub interface: Option<Incoming>,
    /// The largest frame in bytes, which the daemon would take from the interfaces.
    pub max_frame: u64,
}

/// Decision on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The source that the packet is charged to; `None` if it is exempt.
    pub source: Option<Source>,
    /// Why the packet passed or was dropped.
    pub reason: Reason,
    /// The number of the rule under which the packet was counted; for a dropped packet, the rule
    /// that dropped it. [`RULE_NONE`] for none.
    pub rule: u32,
    /// How long the packet waits before it is sent; zero unless a limit holds it back.
    pub waits: Ticks,
}

/// The indices of interfaces that rules and captures name.
#[derive(Debug, Default)]
struct Interfaces(RefCell<BTreeMap<String, u32>>);

impl Interfaces {
    /// The index of a name, assigned at its first use.
    fn index(&self, name: &str) -> u32 {
        let mut known = self.0.borrow_mut();
        let next = NAMED + u32::try_from(known.len()).unwrap_or(0);
        *known.entry(name.to_owned()).or_insert(next)
    }
}

/// Judges packets.
#[derive(Debug)]
pub struct Explainer {
    model: Model,
    book: Rulebook<Arc<Rule>>,
    /// Rules and budgets by number.
    titles: BTreeMap<u32, Title>,
    limits: BTreeMap<u32, Limits>,
    interfaces: Interfaces,
    incoming: Option<Incoming>,
    /// Time of the first packet, in nanoseconds since 1970.
    began: Option<u64>,
    seen: Tally,
    /// List entries with an end, in seconds since 1970. They take effect with the first packet.
    listed: Vec<(Selector, Listing)>,
    /// [`MAX_BYTES`], except in tests; `None` if the caller bounds several explainers together.
    room: Option<usize>,
    /// Bytes that the caller keeps about the same capture.
    beside: usize,
}

impl Explainer {
    /// Makes an explainer with a rule set in force.
    ///
    /// # Errors
    ///
    /// If the rule set cannot be installed.
    pub fn new(set: &RuleSet, settings: Settings) -> Result<Self, PlanError> {
        let interfaces = Interfaces::default();
        let index = |name: &str| Some(interfaces.index(name));
        let environment = Environment {
            max_frame: settings.max_frame,
            interface_index: &index,
            // A capture does not show the machine's CPUs.
            cpus: u32::MAX,
            cluster: None,
            in_at_tc: None,
        };
        let mut model = Model::with_room(MAX_SOURCES, MAX_KEYS, 0);
        let generation = model.generation() + 1;
        let plan = Installed::default().plan(set, generation, CAPACITY, &environment)?;
        model.commit(plan, Ticks::ZERO);
        let (ends, stays): (Vec<_>, Vec<_>) =
            set.lists.iter().partition(|(_, entry)| entry.until.is_some());
        for (selector, entry) in stays {
            model.list(selector, ListEntry::of_rule_file(entry.verdict(), None));
        }
        let listed = ends.into_iter().map(|(at, entry)| (*at, entry.clone())).collect();
        let installed = model.installed();
        let book = Rulebook::new(installed, set.rules.iter().cloned(), &index);
        let named = set.budgets.iter().map(|budget| (budget.name.as_str(), budget.name.as_str()));
        let budgets = named.chain(OWN_BUDGETS).map(|(shown, name)| (shown, budget_tag(name)));
        let titles = installed.titles(set.rules.iter().map(AsRef::as_ref), budgets, &index);
        let of_rules = book.rules().filter_map(|of| Some((of.number, of.rule.terms.limits()?)));
        let of_budgets = set.budgets.iter().filter_map(|budget| {
            let (_, record) = installed.tables.budget(budget_tag(&budget.name))?;
            Some((record.rule, &budget.limits))
        });
        let limits = of_rules.chain(of_budgets).map(|(number, of)| (number, of.clone())).collect();
        let incoming = settings.interface;
        let seen = Tally::default();
        Ok(Self {
            model,
            book,
            titles,
            limits,
            interfaces,
            incoming,
            began: None,
            seen,
            listed,
            room: Some(MAX_BYTES),
            beside: 0,
        })
    }

    /// Judges the next packet of a capture. Also returns the rules that apply to it, beginning with
    /// the rule for its source alone; none if it is exempt.
    ///
    /// # Errors
    ///
    /// If there are more sources and keys than can be kept.
    pub fn packet(&mut self, captured: &Captured) -> Result<(Decision, Vec<Match>), ExplainError> {
        let (now, interface) = self.arrival(captured)?;
        let found = self.model.rules_of(captured.framing, &captured.frame, interface, now);
        Ok((self.judge(captured, now, interface), self.matches(&found)))
    }

    /// Like [`Explainer::packet`], without the rules.
    ///
    /// # Errors
    ///
    /// If there are more sources and keys than can be kept.
    pub fn decide(&mut self, captured: &Captured) -> Result<Decision, ExplainError> {
        let (now, interface) = self.arrival(captured)?;
        Ok(self.judge(captured, now, interface))
    }

    /// Like [`Explainer::decide`]. Also writes the rules that apply to the packet into `charges`,
    /// with their buckets for it.
    ///
    /// # Errors
    ///
    /// If there are more sources and keys than can be kept.
    pub fn decide_charged(
        &mut self,
        captured: &Captured,
        charges: &mut Vec<Charge>,
    ) -> Result<Decision, ExplainError> {
        let (now, interface) = self.arrival(captured)?;
        let found = self.model.rules_of(captured.framing, &captured.frame, interface, now);
        let decision = self.judge(captured, now, interface);
        self.charges(&found, decision.source, charges);
        Ok(decision)
    }

    /// The time of a packet on limiter's clock, and its interface.
    fn arrival(&mut self, captured: &Captured) -> Result<(Ticks, u32), ExplainError> {
        if let Some(room) = self.room
            && self.seen.packets.is_multiple_of(LOOK)
            && self.bytes() + self.beside > room
        {
            return Err(ExplainError::Full { packet: captured.number, candidates: 1 });
        }
        let began = *self.began.get_or_insert_with(|| {
            // Like the daemon: weeks begin on Monday.
            self.model.set_wall_offset(WallOffset::of_clocks(captured.nanos, FIRST));
            for (selector, entry) in self.listed.drain(..) {
                let until = Duration::from_secs(entry.until.unwrap_or(u64::MAX));
                let left = until.saturating_sub(Duration::from_nanos(captured.nanos));
                let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
                // An entry that has already ended never takes effect.
                if nanos > 0 {
                    let end = Ticks::from_nanos(nanos.saturating_add(FIRST));
                    self.model.list(&selector, ListEntry::of_rule_file(entry.verdict(), Some(end)));
                }
            }
            captured.nanos
        });
        let now = Ticks::from_nanos(captured.nanos.saturating_add(FIRST).saturating_sub(began));
        let interface = match (&self.incoming, &captured.interface) {
            (Some(Incoming::Index(index)), _) => *index,
            (Some(Incoming::Name(name)), _) => self.interfaces.index(name),
            (None, Some(name)) => self.interfaces.index(name),
            (None, None) => captured.index.unwrap_or(0),
        };
        Ok((now, interface))
    }

    fn judge(&mut self, captured: &Captured, now: Ticks, interface: u32) -> Decision {
        let Captured { framing, frame, length, .. } = captured;
        let source = captured.source();
        let packet = Packet::received(*framing, frame, *length, interface);
        let outcome = self.model.judge_packet(&packet, now);
        let Outcome { reason, rule, .. } = outcome;
        self.seen.add(packet.size);
        Decision { source, reason, rule, waits: self.model.waited(now) }
    }

    /// Notes the caller's memory for the same capture, because the bound includes it.
    pub fn has_beside(&mut self, by_source: &BySource) {
        self.beside = by_source.bytes();
    }

    /// Removes the explainer's own bound.
    #[must_use]
    pub(crate) fn unbounded(self) -> Self {
        Self { room: None, ..self }
    }

    /// Approximate bytes of sources, keys, flows and bans.
    pub(crate) fn bytes(&self) -> usize {
        self.model.bytes()
    }

    /// All packets and bytes so far.
    pub fn seen(&self) -> Tally {
        self.seen
    }

    /// Packets and bytes so far by [`Reason`].
    pub fn reasons(&self) -> [Tally; Reason::COUNT] {
        self.model.reasons()
    }

    /// Counters of every rule and every budget, by number.
    pub fn rules(&self) -> Vec<(u32, RuleCounters)> {
        let numbers = self.titles.keys().filter(|number| **number != RULE_NONE);
        numbers.map(|number| (*number, self.model.rule_counters(*number))).collect()
    }

    /// The name that a rule's author gave it, by number.
    pub fn called(&self, number: u32) -> Option<&str> {
        self.titles.get(&number)?.name.as_deref()
    }

    /// The limits of a rule or budget, by number; `None` if everything passes.
    pub fn limits(&self, number: u32) -> Option<&Limits> {
        self.limits.get(&number)
    }

    /// The sources or keys of a rule, or a budget with its name, by number.
    pub fn rule_name(&self, number: u32) -> Option<&str> {
        self.titles.get(&number).map(|title| title.rule.as_str())
    }
}

#[cfg(test)]
mod tests;
