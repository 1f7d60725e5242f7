//! Who is banned, for how long and by which rule; and forgetting it.

use limiter_common::ban::History;
use limiter_common::source::Source;
use limiter_common::time::Ticks;

use super::datapath::Datapath;
use super::error::ServiceError;
use super::layers::EffectiveSet;
use super::views;
use crate::control::api::bans::{BannedSource, Bans, Unbanned};
use crate::rules::Selector;
use crate::rules::model::TriePrefix;

/// The bans in force, the one that ends last first.
pub(super) fn view(
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
) -> Result<Bans, ServiceError> {
    let now = datapath.now();
    let names = views::rule_names(datapath, effective);
    let mut bans = Vec::new();
    let mut watched = 0;
    for (key, ban) in datapath.bans().map_err(ServiceError::Datapath)? {
        let until = Ticks::new(ban.until);
        if until <= now {
            watched += 1;
            continue;
        }
        let rule = u32::try_from(ban.rule).ok().and_then(|number| names.get(&number));
        let source = TriePrefix::of_source(key).selector();
        bans.push((until, source, History::from_raw(ban.history).level(), rule.cloned()));
    }
    bans.sort_unstable_by(|(a, source_a, ..), (b, source_b, ..)| {
        b.cmp(a).then_with(|| source_a.cmp(source_b))
    });
    let entries = bans
        .into_iter()
        .filter_map(|(until, source, bans, rule)| {
            let ends_in_seconds = until.since(now).as_nanos().div_ceil(1_000_000_000);
            Some(BannedSource { source: source?.to_string(), ends_in_seconds, bans, rule })
        })
        .collect();
    Ok(Bans { entries, watched })
}

/// Forgets a source, or all sources in a prefix.
pub(super) fn forget(
    datapath: &mut dyn Datapath,
    selector: Selector,
) -> Result<Unbanned, ServiceError> {
    let mut forgotten = 0;
    for (key, _) in datapath.bans().map_err(ServiceError::Datapath)? {
        let inside = TriePrefix::of_source(key).selector().is_some_and(|at| selector.contains(&at));
        if inside && datapath.unban(&source(key)).map_err(ServiceError::Datapath)? {
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
