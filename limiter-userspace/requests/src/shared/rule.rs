//! Rules whose limits nodes share: what decides a request, and when it waits.
//!
//! While the lease of a key lives, that decides. In contact to the store, a key without one has
//! this node's share; where that holds no request, the first one waits for the lease. Without
//! contact, or where no answer comes in time, `on_partition` says what passes.

use std::sync::Arc;

use limiter_common::bucket::Slot;
use limiter_common::wire::TableKey;
use limiter_rules::compile::{LimitError, share_of_requests};
use limiter_rules::file::requests::{ReadyLimit, RequestLimit};
use limiter_rules::model::Sharing;
use limiter_sharing::fnv::Fnv;
use limiter_sharing::{OnPartition, SharedPlace, SharedRule, SharedTerms};

use crate::buckets::arithmetic::{Limits, Places};
use crate::buckets::key::digest;
use crate::buckets::store::KeyLimits;
use crate::reports::counters::Unanswered;
use crate::shared::leases::{KeyView, LeaseCharge, LeaseOutcome, LeaseTable, Standing};

/// The part of a rule that nodes share.
#[derive(Debug)]
pub(crate) struct RuleShared {
    /// The rule, as the node asks the store for its keys.
    pub(crate) rule: SharedRule,
    /// What this node has without a lease: of a limit without a share, the whole of it, which is
    /// never asked for.
    pub(crate) own: KeyLimits,
    /// Limits whose share decides also in contact to the store.
    cold: Places,
    /// Limits that have a share.
    parts: Places,
    pub(crate) on_partition: OnPartition,
    /// What decides whether two nodes have the same rule.
    written: Box<str>,
}

/// Limits of this node that decide where a lease does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// The share of this node.
    Share,
    /// The whole limit.
    Whole,
}

/// What limits of this node decided.
pub(crate) enum Decided<T> {
    /// It passes; true if the share is at least half used.
    Within(T, bool),
    Over,
}

/// What came of a request at a rule.
#[derive(Debug)]
pub(crate) enum Judged<T> {
    Within(Option<LeaseCharge>, Option<T>),
    /// Over a lease, or a limit of this node. What that charged is to be taken back.
    Over(Option<T>),
    /// The store is asked.
    Waits(Option<T>),
}

/// Willingness of a request to wait for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It has not waited yet.
    Begins,
    /// It has.
    Waits,
    /// It cannot, for this reason.
    None(Unanswered),
}

pub(crate) struct Making<'a> {
    pub(crate) domain: &'a str,
    pub(crate) path: &'a str,
    pub(crate) slot: u32,
    pub(crate) nodes: u64,
}

impl RuleShared {
    /// Makes the part of a rule that nodes share. `known` makes the limits of this node known.
    pub(crate) fn new(
        of: &Making<'_>,
        limits: &[ReadyLimit],
        sharing: &Sharing,
        known: impl FnOnce(Limits) -> KeyLimits,
    ) -> Result<Self, LimitError> {
        let Making { domain, path, slot, nodes } = *of;
        let limits: Vec<RequestLimit> = limits.iter().map(|limit| limit.written).collect();
        let (mut own, mut places) = (Vec::new(), Vec::new());
        let (mut cold, mut parts) = (Places::NONE, Places::NONE);
        for (number, limit) in limits.iter().enumerate() {
            let shared = share_of_requests(&limit.meter, sharing, nodes)?;
            if shared.share.is_some() {
                parts.add(number);
                // The store counts all of a window: its parts would come on top.
                let is_bucket = matches!(shared.terms, SharedTerms::Bucket(_));
                if is_bucket && sharing.on_partition != OnPartition::Closed {
                    cold.add(number);
                }
            }
            own.push(RequestLimit { meter: shared.share.unwrap_or(limit.meter), ..*limit });
            let place = u32::try_from(number).unwrap_or(u32::MAX);
            let mut tag = Fnv::default();
            tag.add(format!("requests:{place}:{}", kind(&shared.terms)).as_bytes());
            tag.add(format!("{}:{domain}{path}", domain.len()).as_bytes());
            places.push(SharedPlace { place, tag: tag.finish(), terms: shared.terms });
        }
        let own = known(Limits::compile(&own).map_err(|(_, error)| error)?);
        let mut id = Fnv::default();
        id.add(format!("{}:{domain}{path}", domain.len()).as_bytes());
        let table = u32::try_from(id.finish() & 0xffff_ffff).unwrap_or_default();
        let name: Arc<str> = format!("{domain}: {path}").into();
        Ok(Self {
            written: format!("{name}: {limits:?} {sharing:?}").into(),
            rule: SharedRule { name, slot, table, limits: places },
            own,
            cold,
            parts,
            on_partition: sharing.on_partition,
        })
    }

    /// The rule as all nodes have it that agree.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    fn slot(&self) -> Slot {
        Slot::new(self.rule.slot)
    }

    /// The key of a bucket on all nodes: a digest of the rule and of the values, for which nobody
    /// finds two lists of values.
    pub(crate) fn key(&self, values: impl Iterator<Item: AsRef<str>>) -> TableKey {
        let digest = digest(&["limiter requests", &self.rule.name], values);
        let mut words = digest
            .as_ref()
            .chunks_exact(8)
            .map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or_default();
        TableKey {
            table: self.rule.table,
            source: [next(), next()],
            destination: [next(), next()],
            ..TableKey::EMPTY
        }
    }

    /// Judges a request, and charges it unless it only looks. `local` decides by limits of this
    /// node at some places. The reason is there if `on_partition` decided.
    pub(crate) fn judge<T>(
        &self,
        table: &LeaseTable,
        key: &TableKey,
        hits: u64,
        (patience, look): (Patience, bool),
        local: impl FnOnce(Local, Places) -> Decided<T>,
    ) -> (Judged<T>, Option<Unanswered>) {
        let (judged, reason, asks) = table.with(key, self.slot(), |view| {
            let (leased, rest, reason) = match self.ways(table, view, patience) {
                Ok(ways) => ways,
                Err(rest) => {
                    // Each request is demand once, however often it looks again.
                    if patience == Patience::Begins {
                        view.deny(rest, hits);
                    }
                    return (Judged::Waits(None), None, view.may_ask());
                }
            };
            let may_ask = view.may_ask();
            let mut asks = view.is_elsewhere();
            let by = match (reason, self.on_partition) {
                _ if rest.is_empty() => None,
                (None, _) => Some(Local::Share),
                (Some(_), OnPartition::Share) if rest.are_in(self.parts) => Some(Local::Share),
                (Some(_), OnPartition::Open) => Some(Local::Whole),
                (Some(_), OnPartition::Share | OnPartition::Closed) => {
                    view.deny(rest, hits);
                    return (Judged::Over(None), reason, may_ask);
                }
            };
            let mut charged = None;
            match by.map(|by| local(by, rest)) {
                None => {}
                Some(Decided::Within(charge, half)) => {
                    asks |= half || !rest.are_in(self.cold);
                    charged = Some(charge);
                }
                Some(Decided::Over) => {
                    view.deny(rest, hits);
                    return (Judged::Over(None), reason, may_ask);
                }
            }
            let judged = match view.charge(leased, hits, patience, look) {
                LeaseOutcome::Within(lease) => {
                    Judged::Within((!leased.is_empty()).then_some(lease), charged)
                }
                LeaseOutcome::Waits => Judged::Waits(charged),
                LeaseOutcome::Over => Judged::Over(charged),
            };
            (judged, reason, asks && may_ask)
        });
        if asks {
            let count = u32::try_from(self.rule.limits.len()).unwrap_or(0);
            table.ask(key, self.slot(), count);
        }
        (judged, reason)
    }

    /// Limits that leases decide, and others, with the reason for which `on_partition` decides
    /// those; or the limits for which the request waits.
    fn ways(
        &self,
        table: &LeaseTable,
        view: &KeyView<'_>,
        patience: Patience,
    ) -> Result<(Places, Places, Option<Unanswered>), Places> {
        let (mut leased, mut rest, mut ended) = (Places::NONE, Places::NONE, false);
        for place in 0..self.rule.limits.len() {
            match view.standing(place) {
                Standing::Lives => leased.add(place),
                Standing::Ended => {
                    ended = true;
                    rest.add(place);
                }
                Standing::None => rest.add(place),
            }
        }
        let reason = match patience {
            _ if rest.is_empty() => None,
            _ if ended || table.is_cut_off() => Some(Unanswered::NoContact),
            _ if rest.are_in(self.cold) => None,
            Patience::Begins | Patience::Waits => return Err(rest),
            Patience::None(reason) => Some(reason),
        };
        Ok((leased, rest, reason))
    }

    /// Units that this node may pass now by its lease, at a place; none if the share decides.
    pub(crate) fn leased(&self, table: &LeaseTable, key: &TableKey, place: usize) -> Option<u64> {
        table.with(key, self.slot(), |view| {
            (view.standing(place) == Standing::Lives).then(|| view.left(place))
        })
    }
}

/// What the store counts by: limits of another kind have accounts of their own.
fn kind(terms: &SharedTerms) -> String {
    match terms {
        SharedTerms::Bucket(_) => "bucket".to_owned(),
        SharedTerms::Window { window, .. } => format!("{:?}:{}", window.kind, window.length),
    }
}
