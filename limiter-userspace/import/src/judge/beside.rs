//! Limits that the same packets reach one after the other, and packets that connection tracking
//! does not see.

use std::collections::BTreeSet;

use limiter_text::plain::clean;

use super::{Fate, Judge, MOST_EFFORT, Step};
use crate::firewall::{Hook, Limit};
use crate::packets::{Original, Packets};

/// Priority at which connection tracking sees packets.
const TRACKING: i64 = -200;

/// A translated limit.
pub(super) struct Placed {
    pub(super) rule: usize,
    hook: Hook,
    pub(super) packets: Packets,
    /// Name of the limit, if several rules charge it.
    shared: Option<String>,
}

impl Placed {
    pub(super) fn new(step: &Step<'_>, shared: Option<String>) -> Self {
        Self { rule: step.rule, hook: step.hook, packets: step.packets.clone(), shared }
    }

    /// A limit, and the same limit for the port on the wire if that is another one.
    pub(super) fn of(step: &Step<'_>, shared: Option<String>, port: Option<u16>) -> Vec<Self> {
        let own = Self::new(step, shared);
        let wire = port.map(|port| {
            let mut wire = Self::new(step, own.shared.clone());
            wire.packets.ports = Some(vec![(port, port)]);
            wire
        });
        wire.into_iter().chain([own]).collect()
    }

    /// True if a packet can reach both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let ways = [self.hook, other.hook];
        let apart = ways.contains(&Hook::Input) && ways.contains(&Hook::Forward);
        !apart && !self.packets.is_apart(&other.packets)
    }
}

impl Judge<'_> {
    /// Rejects a rule that charges a limit for packets for which an earlier rule already charged
    /// it.
    pub(super) fn charges_once(&self, step: &Step<'_>, limit: &Limit) -> Result<(), String> {
        let Some(name) = &limit.shared else { return Ok(()) };
        let own = Placed::new(step, Some(clean(name)));
        let again = |other: &&Placed| other.shared == own.shared && other.meets(&own);
        match self.placed.iter().find(again) {
            Some(other) => Err(format!(
                "{} charges the same limit, and some packets are charged by both",
                self.place(other.rule)
            )),
            None => Ok(()),
        }
    }

    /// Rejects conditions on connection states for packets without connection tracking.
    pub(super) fn is_tracked(&self, step: &Step<'_>, established: bool) -> Result<(), String> {
        let packets = step.packets;
        let asks = packets.states.is_some() || packets.original != Original::default();
        if !established && !asks && !packets.translated {
            return Ok(());
        }
        if step.hook == Hook::Prerouting && step.priority <= TRACKING {
            return Err("asks for states of connections before connection tracking, where there \
                 are none"
                .to_owned());
        }
        let untracked = &self.firewall.untracked;
        match untracked.iter().find(|(_, packets)| !packets.is_apart(step.packets)) {
            Some((place, _)) => Err(format!(
                "{place} takes some of its packets out of connection tracking: they are never new \
                 nor established there"
            )),
            None => Ok(()),
        }
    }

    /// Rules with a limit that some packets reach in addition to another limit.
    pub(crate) fn beside(&self) -> BTreeSet<usize> {
        let translated = |placed: &&Placed| self.fates.get(placed.rule) == Some(&Fate::Translated);
        let placed: Vec<&Placed> = self.placed.iter().filter(translated).collect();
        let mut effort = 0;
        let mut beside = BTreeSet::new();
        for (index, one) in placed.iter().enumerate() {
            for other in placed.iter().take(index) {
                effort += one.packets.weight().saturating_mul(other.packets.weight());
                // If there are too many to compare, assume that they meet.
                if one.rule != other.rule && (effort > MOST_EFFORT || one.meets(other)) {
                    beside.extend([one.rule, other.rule]);
                }
            }
        }
        beside
    }
}
