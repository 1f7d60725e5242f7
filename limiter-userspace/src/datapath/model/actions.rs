//! The actions of the model: the same logic as the kernel's on a frame in memory.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use limiter_common::source::Source;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{ActionKind, Ban, FlowKey};
use limiter_decision::act::{self, FrameMut};
use limiter_decision::ban::Entry;
use limiter_decision::cell::Cell;
use limiter_decision::outcome::Packed;
use limiter_decision::packet::Facts;
use limiter_decision::table::Scratch;
use limiter_decision::world::World as _;

use super::Model;
use super::trail::Trail;
use crate::datapath::Way;

/// The words of a ban.
#[derive(Debug, Default)]
struct ModelBan {
    until: AtomicU64,
    history: AtomicU64,
    rule: AtomicU64,
}

/// A shared record of a source.
#[derive(Clone, Debug, Default)]
pub struct ModelBanRef(Arc<ModelBan>);

impl ModelBanRef {
    /// A record as it stands in the map.
    pub(super) fn of(ban: &Ban) -> Self {
        let Ban { until, history, rule } = *ban;
        let (until, history, rule) = (until.into(), history.into(), rule.into());
        Self(Arc::new(ModelBan { until, history, rule }))
    }

    /// The record as it stands.
    pub(super) fn read(&self) -> Ban {
        Ban { until: self.until().load(), history: self.history().load(), rule: self.rule().load() }
    }
}

/// Word of a ban.
struct Word(Arc<ModelBan>, fn(&ModelBan) -> &AtomicU64);

impl Cell for Word {
    fn load(&self) -> u64 {
        (self.1)(&self.0).load(Ordering::Acquire)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        let word = (self.1)(&self.0);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Entry for ModelBanRef {
    fn until(&self) -> impl Cell {
        Word(Arc::clone(&self.0), |ban| &ban.until)
    }

    fn history(&self) -> impl Cell {
        Word(Arc::clone(&self.0), |ban| &ban.history)
    }

    fn rule(&self) -> impl Cell {
        Word(Arc::clone(&self.0), |ban| &ban.rule)
    }
}

/// Sources on record, and the connections that there are.
#[derive(Debug, Default)]
pub(super) struct ModelBans {
    by_source: RwLock<HashMap<[u8; 16], ModelBanRef>>,
    connections: BTreeSet<FlowKey>,
}

impl ModelBans {
    /// Makes a record of zeros, if there is none.
    pub(super) fn insert(&self, source: &Source) {
        let mut bans = self.by_source.write().unwrap_or_else(PoisonError::into_inner);
        bans.entry(source.trie_key()).or_default();
    }

    pub(super) fn get(&self, source: &Source) -> Option<ModelBanRef> {
        let bans = self.by_source.read().unwrap_or_else(PoisonError::into_inner);
        bans.get(&source.trie_key()).cloned()
    }

    pub(super) fn tracked(&self) -> usize {
        self.by_source.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Puts a source on record.
    fn put(&mut self, source: &Source, ban: &Ban) {
        let bans = self.by_source.get_mut().unwrap_or_else(PoisonError::into_inner);
        bans.insert(source.trie_key(), ModelBanRef::of(ban));
    }

    /// A copy with records of its own.
    pub(super) fn copy(&self) -> Self {
        let bans = self.by_source.read().unwrap_or_else(PoisonError::into_inner);
        let bans = bans.iter().map(|(source, ban)| (*source, ModelBanRef::of(&ban.read())));
        Self { by_source: RwLock::new(bans.collect()), connections: self.connections.clone() }
    }
}

/// State in which the last frame left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) trail: Trail,
    way: Option<Way>,
    frame: Vec<u8>,
}

impl Model {
    /// The steps that the last frame came to.
    pub fn trail(&self) -> &Trail {
        &self.left.trail
    }

    /// Way that the last frame went.
    pub fn way(&self) -> Option<Way> {
        self.left.way
    }

    /// Bytes of the last frame as it left.
    pub fn frame(&self) -> &[u8] {
        &self.left.frame
    }

    /// As [`crate::datapath::Observed::bans`].
    pub fn bans(&self) -> Vec<([u8; 16], Ban)> {
        let bans = self.bans.by_source.read().unwrap_or_else(PoisonError::into_inner);
        bans.iter().map(|(source, ban)| (*source, ban.read())).collect()
    }

    /// As [`crate::datapath::Datapath::put_ban`].
    pub fn put_ban(&mut self, source: &Source, ban: &Ban) {
        self.bans.put(source, ban);
    }

    /// As [`crate::datapath::Datapath::unban`].
    pub fn unban(&mut self, source: &Source) -> bool {
        let bans = self.bans.by_source.get_mut().unwrap_or_else(PoisonError::into_inner);
        bans.remove(&source.trie_key()).is_some()
    }

    /// Makes an established TCP connection, as packets from its peer show it.
    pub fn connect(&mut self, flow: FlowKey) {
        self.bans.connections.insert(flow);
    }
}

/// A frame that may be changed.
struct Bytes<'m> {
    bytes: RefCell<Vec<u8>>,
    model: &'m Model,
}

impl FrameMut for Bytes<'_> {
    fn load<const N: usize>(&self, offset: u32) -> Option<[u8; N]> {
        self.bytes.borrow().get(usize::try_from(offset).ok()?..)?.first_chunk().copied()
    }

    fn store<const N: usize>(&self, offset: u32, bytes: &[u8; N]) -> bool {
        let mut frame = self.bytes.borrow_mut();
        let rest = usize::try_from(offset).ok().and_then(|offset| frame.get_mut(offset..));
        rest.and_then(|rest| rest.first_chunk_mut()).map(|place| *place = *bytes).is_some()
    }

    fn cut(&self, length: u32, _of: u32) -> bool {
        self.bytes.borrow_mut().truncate(usize::try_from(length).unwrap_or(usize::MAX));
        true
    }

    fn is_established(&self, facts: &Facts) -> bool {
        self.model.bans.connections.contains(&facts.flow())
    }
}

/// Carries out what an outcome says, and says how the frame leaves that came by a trail.
pub(super) fn carry_out(
    model: &Model,
    scratch: &Scratch,
    judged: Packed,
    frame: &[u8],
    trail: Trail,
) -> (Packed, Left) {
    let bytes = Bytes { bytes: RefCell::new(frame.to_vec()), model };
    let outcome =
        if judged.action() == 0 { judged } else { act::act(model, scratch, &bytes, judged) };
    let reason = outcome.unpack().reason;
    let way = match (reason, reason.verdict()) {
        (Reason::Rejected, _) => Way::Back,
        (Reason::Redirected, _) => redirect(model, outcome.action()),
        (_, Verdict::Pass) => Way::Pass,
        (_, Verdict::Drop) => Way::Drop,
    };
    (outcome, Left { way: Some(way), frame: bytes.bytes.into_inner(), trail })
}

fn redirect(model: &Model, action: u32) -> Way {
    let leads = model.action(action).is_some_and(|action| match action.kind() {
        ActionKind::Interface => model.tables.interfaces.contains(&action.target),
        ActionKind::Cpu => model.tables.cpus.contains(&action.target),
        _ => false,
    });
    if leads { Way::Redirect } else { Way::Pass }
}
