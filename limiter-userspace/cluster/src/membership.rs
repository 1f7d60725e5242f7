//! What nodes report to each other through the store: their presence and their changes. `node.lua`
//! does the same, and tests compare it with this model.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use limiter_sharing::rate::EXACT;
use limiter_text::plain::clean;

use super::change::{Change, TEXT_MAX};
use super::sign::Proof;
use super::store_error::StoreError;

/// Silence after which a node counts as gone, in microseconds.
pub const DEAD: u64 = 15_000_000;
/// Changes that the store keeps: at least this many, and slightly more.
pub const KEPT: usize = 10_000;
/// Most changes in one answer.
pub const REPORTED: usize = 200;
/// Most changes that one call adds.
pub const ADDED: usize = 100;
/// Most nodes in one answer.
pub const NODES_MAX: usize = 65_535;
/// Longest name of a node in bytes.
pub const NODE_NAME_MAX: usize = 64;

/// Presence of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The node is there.
    Heartbeat(Heartbeat),
    /// Unchanged since the last call.
    Stay,
    /// The node is shutting down.
    Leave,
}

/// What a node reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Name: 1 to [`NODE_NAME_MAX`] letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Digest of its rule set.
    pub digest: u64,
    /// Version of the program.
    pub version: String,
}

/// One call of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Number of the node's daemon: a new one after each start.
    pub instance: u64,
    /// Presence of the node.
    pub presence: Presence,
    /// Number of the latest change that it knows; 0 for none.
    pub known: u64,
    /// Changes to add, at most [`ADDED`].
    pub changes: Vec<Sent>,
}

/// A change on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Line of the change, signed where nodes have a key.
    pub line: String,
    /// Remaining time; `None` if it does not end.
    pub left: Option<Duration>,
}

impl From<&Change> for Sent {
    fn from(change: &Change) -> Self {
        Self { line: change.to_string(), left: change.left() }
    }
}

/// A node that reported recently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Number of its daemon.
    pub instance: u64,
    /// Time of the report, by the store's clock.
    pub at: u64,
    /// Content of the report.
    pub heartbeat: Heartbeat,
}

/// A change that the store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number; consecutive.
    pub number: u64,
    /// Daemon that made it.
    pub instance: u64,
    /// Content of its line.
    pub line: Line,
    /// Proof of who made it, if present. It has not been checked.
    pub proof: Option<Proof>,
}

/// Content of a change that the store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A change, with its remaining time.
    Change(Change),
    /// A change that has ended.
    Ended,
    /// A change that this version does not know, as printable characters, cut to the maximum
    /// length.
    Unknown(String),
}

/// Answer of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Time of the store's clock in microseconds since 1970.
    pub now: u64,
    /// Number of the oldest stored change; 0 for none.
    pub oldest: u64,
    /// Number of the latest change.
    pub latest: u64,
    /// Number of the first change that this call added; 0 if it added none.
    pub added: u64,
    /// Nodes, after a heartbeat. Unreadable ones are left out.
    pub nodes: Vec<Heard>,
    /// Changes after the latest known one, oldest first.
    pub changes: Vec<Entry>,
}

/// A node as the store reports it: instance, time and text.
pub type RawNode = (Vec<u8>, i64, Vec<u8>);
/// A change as the store reports it: number, instance, end and text.
pub type RawChange = (i64, Vec<u8>, i64, Vec<u8>);

impl Heartbeat {
    /// Formats the report for the store.
    pub(super) fn text(&self) -> String {
        format!("{} {:016x} {}", self.name, self.digest, self.version)
    }

    fn read(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let (name, digest, version) = (words.next()?, words.next()?, words.next()?);
        let short = version.len() <= NODE_NAME_MAX && version.chars().all(|c| c.is_ascii_graphic());
        if !is_node_name(name) || !short || words.next().is_some() {
            return None;
        }
        let (name, version) = (name.to_owned(), version.to_owned());
        Some(Self { name, digest: u64::from_str_radix(digest, 16).ok()?, version })
    }
}

pub(super) fn is_node_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=NODE_NAME_MAX).contains(&name.len()) && name.chars().all(good)
}

pub(super) fn instance_text(instance: u64) -> String {
    format!("{instance:016x}")
}

fn instance(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// Time until `end` on the store's clock; `None` if it does not end.
fn left(end: i64, now: u64) -> Option<Duration> {
    Some(Duration::from_micros(u64::try_from(end).ok()?.saturating_sub(now)))
}

fn line(text: &[u8], end: i64, now: u64) -> (Line, Option<Proof>) {
    let unknown = |text: &str| Line::Unknown(clean(text).chars().take(TEXT_MAX).collect());
    let split = std::str::from_utf8(text).ok().and_then(Proof::split);
    let Some((text, proof)) = split else {
        return (unknown(&String::from_utf8_lossy(text)), None);
    };
    let line = match Change::parse(text, left(end, now)) {
        Some(change) => change.after(Duration::ZERO).map_or(Line::Ended, Line::Change),
        None => unknown(text),
    };
    (line, proof)
}

/// Reads an answer to `membership`. Numbers out of range invalidate all of it. A node or change
/// that cannot be read may come from a newer version, and does not invalidate the others.
pub fn read(
    membership: &Membership,
    numbers: &[i64],
    nodes: Vec<RawNode>,
    changes: Vec<RawChange>,
) -> Result<Met, StoreError> {
    let exact = |number: i64, what| {
        u64::try_from(number).ok().filter(|number| *number < EXACT).ok_or(StoreError::Wrong(what))
    };
    let [now, oldest, latest, added] = *numbers else {
        return Err(StoreError::Wrong("its length"));
    };
    let now = exact(now, "its time")?;
    let (oldest, latest) = (exact(oldest, "a number")?, exact(latest, "a number")?);
    let added = exact(added, "a number")?;
    if oldest > latest || added > latest || (added == 0) != membership.changes.is_empty() {
        return Err(StoreError::Wrong("its numbers of changes"));
    }
    if nodes.len() > NODES_MAX || changes.len() > REPORTED {
        return Err(StoreError::Wrong("its lists"));
    }
    let heard = |(name, at, text): RawNode| {
        let at = u64::try_from(at).ok().filter(|at| *at <= now)?;
        Some(Heard { instance: instance(&name)?, at, heartbeat: Heartbeat::read(&text)? })
    };
    let mut before = membership.known;
    let entry = |(number, name, end, text): RawChange| {
        let number = exact(number, "a change's number")?;
        if number <= before || number > latest {
            return Err(StoreError::Wrong("a change's number"));
        }
        before = number;
        let instance = instance(&name).unwrap_or(0);
        let (line, proof) = line(&text, end, now);
        Ok(Entry { number, instance, line, proof })
    };
    Ok(Met {
        now,
        oldest,
        latest,
        added,
        nodes: nodes.into_iter().filter_map(heard).collect(),
        changes: changes.into_iter().map(entry).collect::<Result<_, _>>()?,
    })
}

/// The meeting place of nodes in memory: the model of `node.lua`.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    nodes: BTreeMap<u64, (u64, String)>,
    changes: VecDeque<(u64, u64, i64, String)>,
}

impl Place {
    /// Handles one call at `now`, in microseconds since 1970.
    pub(super) fn meet(&mut self, now: u64, membership: &Membership) -> Result<Met, StoreError> {
        let mut nodes = Vec::new();
        match &membership.presence {
            Presence::Heartbeat(heartbeat) => {
                self.nodes.insert(membership.instance, (now, heartbeat.text()));
                self.nodes.retain(|_, (at, _)| {
                    *at = now.min(*at);
                    now - *at < DEAD
                });
                let raw = |(instance, (at, text)): (&u64, &(u64, String))| {
                    (instance_text(*instance).into(), number(*at), text.clone().into())
                };
                nodes.extend(self.nodes.iter().map(raw));
            }
            Presence::Stay => {}
            Presence::Leave => {
                self.nodes.remove(&membership.instance);
            }
        }
        let mut latest = self.changes.back().map_or(0, |last| last.0);
        let mut added = 0;
        for change in &membership.changes {
            latest = if latest > 0 { latest + 1 } else { now };
            if added == 0 {
                added = latest;
            }
            let end = change.left.map_or(-1, |left| number(now) + number(micros(left)));
            self.changes.push_back((latest, membership.instance, end, change.line.clone()));
        }
        while self.changes.len() > KEPT {
            self.changes.pop_front();
        }
        let oldest = self.changes.front().map_or(0, |first| first.0);
        let new = self.changes.iter().filter(|change| change.0 > membership.known).take(REPORTED);
        let changes = new.map(|(number_of, instance, end, text)| {
            (number(*number_of), instance_text(*instance).into(), *end, text.clone().into())
        });
        let numbers = [number(now), number(oldest), number(latest), number(added)];
        read(membership, &numbers, nodes, changes.collect())
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A time in microseconds, at most 8 years, so that sums with the time of day stay exact in a
/// double.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(1 << 48)
}

impl Membership {
    /// Checks sizes before sending.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.changes.len() > ADDED {
            return Err(StoreError::Batch("more than 100 changes"));
        }
        match &self.presence {
            Presence::Heartbeat(heartbeat) if !is_node_name(&heartbeat.name) => {
                Err(StoreError::Batch("a node's name is not 1 to 64 letters, digits, -, _ and ."))
            }
            _ => Ok(()),
        }
    }
}
