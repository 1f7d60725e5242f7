//! Who is banned, for how long and by which rule; and forgetting it.

use std::collections::BTreeMap;

use limiter_common::ban::History;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::Ban;

use super::error::ServiceError;
use super::layers::EffectiveSet;
use super::views;
use crate::control::api::bans::{BannedSource, Unbanned};
use crate::control::parts::Parts;
use crate::control::server::Step;
use crate::datapath::Datapath;
use crate::rules::Selector;
use crate::rules::model::TriePrefix;

/// `GET /v1/bans`, told in parts: the bans in force when it was asked for, the one that ends last first.
#[derive(Debug)]
pub(super) struct BansText {
    parts: Parts,
    bans: std::vec::IntoIter<(Ticks, Ban, Option<Selector>)>,
    names: BTreeMap<u32, String>,
    watched: usize,
    now: Ticks,
    ended: bool,
}

impl BansText {
    pub(super) fn new(
        datapath: &dyn Datapath,
        effective: &EffectiveSet,
    ) -> Result<Self, ServiceError> {
        let now = datapath.now();
        let mut bans = datapath.bans()?;
        let known = bans.len();
        bans.retain(|(_, ban)| Ticks::new(ban.until) > now);
        let watched = known - bans.len();
        let mut bans: Vec<_> = bans
            .into_iter()
            .map(|(key, ban)| (Ticks::new(ban.until), ban, TriePrefix::of_source(key).selector()))
            .collect();
        bans.sort_unstable_by(|(a, _, source_a), (b, _, source_b)| {
            b.cmp(a).then_with(|| source_a.cmp(source_b))
        });
        let mut parts = Parts::default();
        parts.open_array("entries")?;
        let names = views::rule_names(datapath, effective);
        Ok(Self { parts, bans: bans.into_iter(), names, watched, now, ended: false })
    }

    /// Goes on with it.
    pub(super) fn step(&mut self) -> Result<Step, ServiceError> {
        if self.ended {
            return Ok(Step::Done);
        }
        while !self.parts.is_part() {
            let Some((until, ban, source)) = self.bans.next() else {
                self.parts.close_array();
                self.parts.member("watched", &self.watched)?;
                self.parts.end();
                self.ended = true;
                break;
            };
            let Some(source) = source else { continue };
            let rule = u32::try_from(ban.rule).ok().and_then(|number| self.names.get(&number));
            self.parts.item(&BannedSource {
                source: source.to_string(),
                ends_in_seconds: until.since(self.now).as_nanos().div_ceil(1_000_000_000),
                bans: History::from_raw(ban.history).level(),
                rule: rule.cloned(),
            })?;
        }
        Ok(Step::Part(self.parts.take()))
    }
}

/// Forgets a source, or all sources in a prefix.
pub(super) fn forget(
    datapath: &mut dyn Datapath,
    selector: Selector,
) -> Result<Unbanned, ServiceError> {
    let mut forgotten = 0;
    for (key, _) in datapath.bans()? {
        let inside = TriePrefix::of_source(key).selector().is_some_and(|at| selector.contains(&at));
        if inside && datapath.unban(&source(key))? {
            forgotten += 1;
        }
    }
    if forgotten == 0 {
        return Err(ServiceError::NotBanned(selector));
    }
    Ok(Unbanned { forgotten })
}

/// The source with a key of the trie.
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
pub(super) const fn source(key: [u8; 16]) -> Source {
    match key {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Source::V4([a, b, c, d]),
        [a, b, c, d, e, f, g, h, ..] => Source::V6([a, b, c, d, e, f, g, h]),
    }
}
