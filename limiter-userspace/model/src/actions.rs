//! The actions of the model: the same logic as the kernel's on a frame in memory.

use std::cell::RefCell;
use std::sync::PoisonError;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{ActionKind, Ban, FlowKey};
use limiter_decision::act::{self, FrameMut};
use limiter_decision::maps::Maps as _;
use limiter_decision::outcome::Packed;
use limiter_decision::packet::Facts;
use limiter_decision::table::Scratch;

use super::Model;
use super::left::Left;
use super::trail::Trail;
use crate::Way;

impl Model {
    /// The steps that the last frame reached.
    pub fn trail(&self) -> &Trail {
        &self.left.trail
    }

    /// Where the last frame went.
    pub fn way(&self) -> Option<Way> {
        self.left.way
    }

    /// Bytes of the last frame as it left.
    pub fn frame(&self) -> &[u8] {
        &self.left.frame
    }

    /// The earliest time at which the last frame may be sent, if it passed under a limit whose
    /// packets wait.
    pub fn departure(&self) -> Option<Ticks> {
        self.left.departure
    }

    /// How long the last frame, which arrived at `now`, waits before it is sent.
    pub fn waited(&self, now: Ticks) -> Ticks {
        self.left.departure.map_or(Ticks::ZERO, |departure| departure.since(now))
    }

    /// See `Observed::bans` of a data path.
    pub fn bans(&self) -> Vec<([u8; 16], Ban)> {
        let bans = self.bans.by_source.read().unwrap_or_else(PoisonError::into_inner);
        bans.iter().map(|(source, ban)| (*source, ban.read())).collect()
    }

    /// See `Datapath::put_ban` of a data path.
    pub fn put_ban(&mut self, source: &Source, ban: &Ban) {
        self.bans.put(source, ban);
    }

    /// See `Datapath::unban` of a data path.
    pub fn unban(&mut self, source: &Source) -> bool {
        let bans = self.bans.by_source.get_mut().unwrap_or_else(PoisonError::into_inner);
        bans.remove(&source.trie_key()).is_some()
    }

    /// Adds an established TCP connection, as packets from its peer identify it.
    pub fn connect(&mut self, flow: FlowKey) {
        self.bans.connections.insert(flow);
    }
}

/// A frame that actions may change.
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

/// Carries out an outcome, and records how the frame leaves and by which trail it came there.
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
    let departure = scratch.departure().filter(|_| way == Way::Pass);
    (outcome, Left { way: Some(way), frame: bytes.bytes.into_inner(), trail, departure })
}

fn redirect(model: &Model, action: u32) -> Way {
    let leads = model.action(action).is_some_and(|action| match action.kind() {
        ActionKind::Interface => model.tables.interfaces.contains(&action.target),
        ActionKind::Cpu => model.tables.cpus.contains(&action.target),
        _ => false,
    });
    if leads { Way::Redirect } else { Way::Pass }
}
