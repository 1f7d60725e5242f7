//! Bans by hand, and the reports about bans.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use limiter_api::bans::BannedSource;
use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::wire::Ban;
use limiter_datapath::BANNED_BEFORE;
use limiter_datapath::{Datapath, Observed};
use limiter_decision::ban::{BanTerms, History, Strike, strike};
use limiter_rules::Selector;
use limiter_rules::model::TriePrefix;

use crate::error::ServiceError;
use crate::lists::request_bans::{self, RequestRules};
use crate::rule_sets::effective::EffectiveSet;
use crate::views::{self, Title};

/// [`Ban::rule`] of a ban by hand. Numbers of rules have 32 bits, and a record without a ban has 0.
pub(crate) const BY_HAND: u64 = u64::MAX;

/// [`Ban::rule`] of a ban that another node reported. The value between the two is
/// [`BANNED_BEFORE`].
pub(crate) const BY_NODE: u64 = u64::MAX - 2;

/// Bans a source on this node for `left` from now on, by [`BY_HAND`] or [`BY_NODE`]; a ban that
/// ends later stays.
pub(crate) fn put_ban(
    datapath: &mut dyn Datapath,
    address: IpAddr,
    left: Duration,
    by: u64,
) -> Result<Ban, ServiceError> {
    let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    let source = views::key(address);
    let before = datapath.ban(source)?.unwrap_or_default();
    let ban = lengthened(before, Ticks::from_nanos(nanos), datapath.now(), by);
    datapath.put_ban(&source, ban)?;
    Ok(ban)
}

/// Bans a source on this node by a rule for requests, in the same way as a rule for packets:
/// remembered earlier bans make the ban longer. `allowed` is called if the source is not banned
/// yet. Returns the strike instead of a ban if the source is banned already or `allowed` refuses.
pub(crate) fn strike_request(
    datapath: &mut dyn Datapath,
    address: IpAddr,
    terms: &BanTerms,
    by: u64,
    allowed: impl FnOnce(Ticks) -> bool,
) -> Result<Result<Ban, Strike>, ServiceError> {
    let source = views::key(address);
    let before = datapath.ban(source)?.unwrap_or_default();
    let (end, history) = (Ticks::new(before.until), History::from_raw(before.history));
    let now = datapath.now();
    match strike(end, history, terms, now) {
        Strike::Ban { history, until } if allowed(now) => {
            let ban = Ban { until: until.get(), history: history.raw(), rule: by };
            datapath.put_ban(&source, ban)?;
            Ok(Ok(ban))
        }
        not_made => Ok(Err(not_made)),
    }
}

/// The author of the ban of a source; `None` if the source is not banned.
pub(crate) fn author(
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    requests: &RequestRules,
    address: IpAddr,
) -> Result<Option<String>, ServiceError> {
    let now = datapath.now();
    let ban = datapath.ban(views::key(address))?;
    let Some(ban) = ban.filter(|ban| Ticks::new(ban.until) > now) else { return Ok(None) };
    let names = views::rule_names(datapath, effective);
    Ok(Some(banned_source(Selector::address(address), ban, (&names, requests), now).author()))
}

/// Number of sources whose ban has not ended.
pub(crate) fn in_force(datapath: &dyn Observed) -> Result<usize, ServiceError> {
    let now = datapath.now();
    let bans = datapath.bans()?;
    Ok(bans.iter().filter(|(_, ban)| Ticks::new(ban.until) > now).count())
}

/// Forgets a source, or all sources in a prefix, on this node; returns their number.
pub(crate) fn forget(
    datapath: &mut dyn Datapath,
    selector: Selector,
) -> Result<usize, ServiceError> {
    let mut forgotten = 0;
    for (key, _) in datapath.bans()? {
        let source = TriePrefix::of_source(key).selector();
        if source.is_some_and(|at| selector.contains(&at)) && datapath.unban(&views::of_key(key))? {
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// Returns a record with a ban of `length` from `now` on without a rule, which counts among the
/// bans of the source like a ban by a rule. A ban that ends later stays; a ban that ends earlier is
/// lengthened.
fn lengthened(before: Ban, length: Ticks, now: Ticks, by: u64) -> Ban {
    let until = now.plus(length);
    if before.until >= until.get() {
        return before;
    }
    // Earlier bans are remembered, because it is not known here which rule would forget them.
    let [first, longest] = [length.get(); 2];
    let terms = BanTerms { first, longest, memory: MAX_TICKS, strikes: 1 };
    let (end, history) = (Ticks::new(before.until), History::from_raw(before.history));
    let history = match strike(end, history, &terms, now) {
        Strike::Ban { history, .. } => history.raw(),
        Strike::Banned | Strike::Counted(_) => before.history,
    };
    Ban { until: until.get(), history, rule: by }
}

/// Describes a ban at `now`. `names` are the titles of the rules by number, and `requests` the
/// rules for requests.
pub(crate) fn banned_source(
    source: Selector,
    ban: Ban,
    (names, requests): (&BTreeMap<u32, Title>, &RequestRules),
    now: Ticks,
) -> BannedSource {
    let rule = u32::try_from(ban.rule).ok().and_then(|number| names.get(&number));
    BannedSource {
        source: source.to_string(),
        ends_in_seconds: Ticks::new(ban.until).since(now).as_nanos().div_ceil(1_000_000_000),
        bans: History::from_raw(ban.history).level(),
        rule: rule.map(|title| title.rule.clone()),
        rule_name: rule.and_then(|title| title.name.clone()),
        by_hand: ban.rule == BY_HAND,
        by_node: ban.rule == BY_NODE,
        by_requests: request_bans::number(ban.rule).is_some(),
        request_rule: requests.of(ban.rule).cloned(),
        before_upgrade: ban.rule == BANNED_BEFORE,
        warning: None,
    }
}
