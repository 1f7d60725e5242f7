//! Guards against lock-out by a change: of the management prefixes, and of the person who makes it.
//!
//! Management prefixes are on the lists that the program checks before any rule, so no table limits
//! them, and a rule for sources inside one cannot have its effect. An SSH session from another
//! address is an ordinary source, whose packets any table and the deny list may drop. So a change
//! is refused, unless forced, if it puts a new barrier in the way of the session in which it is
//! typed. A limit on the source that is no tighter than the previous one is not new. A session has
//! two halves: rules for outgoing packets may drop its answers. A ban is not part of a change; it
//! counts when a change makes it effective again.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use limiter_api::lists::ListName;
use limiter_api::rules::Session;
use limiter_common::time::Ticks;
use limiter_datapath::Observed;
use limiter_rules::compile::{RuleId, TableForm};
pub(crate) use limiter_rules::model::LEAST;
use limiter_rules::model::is_nearly_everybody;
use limiter_rules::model::key::Overlap;
use limiter_rules::{Path, RateLimit, Rule, Selector, Terms};

use super::effective::{Effective, EffectiveSet};
use super::layers::Layers;
use crate::error::ServiceError;
use crate::lists::{Changes, Laid, ListStore, Standing};
use crate::views::key;

/// The author of a change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    /// The SSH session in which the change is typed, if any.
    pub(crate) session: Option<Session>,
    /// True if the change must be made even if it locks that session out.
    pub(crate) force: bool,
}

impl Caller {
    /// Refuses a change with an objection, unless it is forced.
    pub(crate) fn authorize(self, objection: Option<String>) -> Result<(), ServiceError> {
        match objection {
            Some(objection) if self.force => {
                tracing::warn!("done by force: {objection}");
                Ok(())
            }
            Some(objection) => Err(ServiceError::Objection(objection)),
            None => Ok(()),
        }
    }
}

/// Rules and lists, as they are or as they would be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) layers: &'a Layers,
    pub(crate) effective: &'a EffectiveSet,
    pub(crate) lists: &'a ListStore,
    /// Assumed changes of `lists`: an entry here replaces the one there.
    pub(crate) changes: &'a Changes,
    /// Assumed entries of rule files, which replace those of `lists`.
    pub(crate) laid: Option<&'a Laid>,
    pub(crate) bans: Bans<'a>,
    pub(crate) now: Ticks,
}

/// The bans on record.
#[derive(Clone, Copy)]
pub(crate) struct Bans<'a>(pub(crate) &'a dyn Observed);

impl fmt::Debug for Bans<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bans")
    }
}

impl Bans<'_> {
    fn has(self, session: &Session, now: Ticks) -> bool {
        let ban = self.0.ban(key(session.peer.to_canonical()));
        // An unreadable map must not cause refusals.
        ban.ok().flatten().is_some_and(|ban| Ticks::new(ban.until) > now)
    }
}

/// A deny entry, a ban or a rule that may drop packets of a session.
#[derive(Clone, Debug, PartialEq)]
enum Barrier {
    /// An entry of the deny list.
    Denied(Selector),
    /// The ban of its client.
    Banned,
    Limited(Path, Terms),
}

impl Barrier {
    /// Returns true if it passes everything that `before` passes: an equal barrier, or a limit on
    /// the source with at least the same rate and burst and the same action over it.
    fn is_no_tighter(&self, before: &Self) -> bool {
        let (Self::Limited(new, Terms::Limits(now)), Self::Limited(old, Terms::Limits(then))) =
            (self, before)
        else {
            return self == before;
        };
        let alike = new.direction == old.direction;
        if !alike || new.other_end().is_none() || old.other_end().is_none() {
            return self == before;
        }
        let (Some(new), Some(old)) = (now.plain(), then.plain()) else {
            return self == before;
        };
        let rate = |limit: &RateLimit, other: &RateLimit| {
            u128::from(limit.requests_per_unit) * u128::from(other.period.seconds())
        };
        self == before
            || now.over == then.over
                && new.count == old.count
                && new.burst >= old.burst
                && rate(&new, &old) >= rate(&old, &new)
    }
}

/// Objection to a whole rule set, if any.
pub(crate) fn objection_to_rules(scene: Scene<'_>, session: Option<&Session>) -> Option<String> {
    if let Some((rule, prefix)) = scene.layers.kept_out().first() {
        return Some(format!(
            "the rule for {rule} is inside the management prefix {prefix}, which is never limited: \
             remove the rule, or leave it out of force with --force"
        ));
    }
    if let Some(objection) = scene.laid.and_then(Laid::objection) {
        return Some(objection);
    }
    let session = session?;
    let mut barriers = scene.barriers(session).into_iter();
    let of_file =
        |entry: &Selector| scene.laid.is_some_and(|laid| laid.entries.contains_key(entry));
    barriers.find_map(|barrier| match barrier {
        Barrier::Limited(rule, _) => Some(limited(&rule, session)),
        Barrier::Denied(entry) if of_file(&entry) => Some(denied_by_file(&entry, session)),
        // These barriers do not come from the rules.
        Barrier::Denied(_) | Barrier::Banned => None,
    })
}

/// Objection to putting the present rules and lists in force again, if any: the barrier that may
/// drop packets of the session.
pub(crate) fn objection_to_present(scene: Scene<'_>, session: Option<&Session>) -> Option<String> {
    let session = session?;
    Some(match scene.barriers(session).into_iter().next()? {
        Barrier::Limited(rule, _) => limited(&rule, session),
        Barrier::Denied(entry) => denied(&entry, session),
        Barrier::Banned => banned(session),
    })
}

/// Barrier that may drop packets of the session of the person who keeps the rules as they are, if
/// any.
pub(crate) fn in_the_way(scene: Scene<'_>, session: Option<&Session>) -> Option<String> {
    let session = session?;
    let peer = Selector::address(session.peer);
    let what = match scene.barriers(session).into_iter().next()? {
        Barrier::Limited(rule, _) => may_limit(&rule, session),
        Barrier::Denied(entry) => would_drop(&entry, session),
        Barrier::Banned => would_drop_banned(session),
    };
    Some(format!("{what}: `limiter allow {peer}` spares it"))
}

/// Objection to setting or removing a limit, if any.
pub(crate) fn objection_to_edit(
    before: Scene<'_>,
    after: Scene<'_>,
    session: Option<&Session>,
) -> Option<String> {
    if let Some(objection) = after.laid.and_then(Laid::objection) {
        return Some(objection);
    }
    let session = session?;
    Some(match after.new_barrier(before, session)? {
        Barrier::Limited(rule, _) => limited(&rule, session),
        Barrier::Denied(entry) => denied_by_file(&entry, session),
        Barrier::Banned => banned(session),
    })
}

/// Objection to an entry of a rule file that would deny the session, by itself or because another
/// entry is gone.
fn denied_by_file(entry: &Selector, session: &Session) -> String {
    let peer = Selector::address(session.peer);
    format!(
        "the entry {entry} of the deny list would drop your own SSH session from {peer}: put \
         {peer} under `allow`, start the daemon with --management {peer}, or use --force"
    )
}

pub(crate) fn objection_to_lists(
    before: Scene<'_>,
    after: Scene<'_>,
    session: Option<&Session>,
) -> Option<String> {
    let session = session?;
    let peer = Selector::address(session.peer);
    let otherwise = format!("start the daemon with --management {peer}, or use --force");
    Some(match after.new_barrier(before, session)? {
        Barrier::Denied(entry) if !after.changes.get(&entry).is_some_and(Option::is_some) => {
            format!(
                "the entry {entry} of the deny list would drop your own SSH session from {peer}, \
                 which would not be allowed any more: run `limiter unlist {entry}` before, \
                 {otherwise}"
            )
        }
        Barrier::Denied(entry) if entry == peer => format!(
            "{peer} is where your own SSH session comes from, and all of it would be dropped: \
             log in from elsewhere to deny it, or use --force"
        ),
        Barrier::Denied(entry) => denied(&entry, session),
        Barrier::Banned => format!(
            "{}, which would not be allowed any more: run `limiter unban {peer}` before, \
             {otherwise}",
            would_drop_banned(session)
        ),
        Barrier::Limited(rule, _) => format!(
            "the rule for {rule} {} limit your own SSH session from {peer}, which would not be \
             allowed any more: {otherwise}",
            verb(&rule, session)
        ),
    })
}

/// The same for entries of other nodes, which nobody on this node can review.
pub(crate) const LEAST_OF_OTHERS: [u8; 2] = [8, 16];

/// Reason why a source must not be on a list, if any: it covers nearly all addresses, or, on the
/// deny list, this machine and its network. The store of a cluster is a management prefix.
pub(crate) fn hazard(
    selector: &Selector,
    list: ListName,
    own: &[(String, IpNet)],
    least: [u8; 2],
) -> Option<String> {
    if is_nearly_everybody(selector, least) {
        return Some("it is a large part of all addresses".to_owned());
    }
    let around = |net: &IpNet| selector.contains(&Selector::address(net.addr()));
    let (interface, net) = own.iter().find(|(_, net)| list == ListName::Deny && around(net))?;
    Some(format!("it has {}, the own address of {interface}, in it", net.addr()))
}

/// Objection to a rule that limits the session, or may limit it: some keys, such as the client's
/// port, cannot be compared with the known facts about the session.
fn limited(rule: &Path, session: &Session) -> String {
    spared(&may_limit(rule, session), session)
}

fn denied(entry: &Selector, session: &Session) -> String {
    spared(&would_drop(entry, session), session)
}

/// Objection to a ban that would become effective again.
fn banned(session: &Session) -> String {
    let (what, peer) = (would_drop_banned(session), Selector::address(session.peer));
    format!(
        "{what}: run `limiter unban {peer}` before, start the daemon with --management {peer}, or \
         use --force"
    )
}

/// Describes a barrier in the way of a session, with the remedies.
fn spared(what: &str, session: &Session) -> String {
    let peer = Selector::address(session.peer);
    format!(
        "{what}: run `limiter allow {peer}` before, start the daemon with --management {peer}, or \
         use --force"
    )
}

fn may_limit(rule: &Path, session: &Session) -> String {
    let (verb, peer) = (verb(rule, session), Selector::address(session.peer));
    format!("the rule for {rule} {verb} limit your own SSH session from {peer}")
}

fn would_drop(entry: &Selector, session: &Session) -> String {
    let peer = Selector::address(session.peer);
    format!("the entry {entry} of the deny list would drop your own SSH session from {peer}")
}

fn would_drop_banned(session: &Session) -> String {
    let peer = Selector::address(session.peer);
    format!("the ban of {peer} would drop your own SSH session from {peer}")
}

/// Says whether a rule would limit the session or only may.
fn verb(rule: &Path, session: &Session) -> &'static str {
    match rule.overlap(&Selector::address(session.peer), session.port) {
        Overlap::All => "would",
        Overlap::Some | Overlap::None => "may",
    }
}

impl Scene<'_> {
    /// A barrier that may drop packets of the session and did not exist before.
    fn new_barrier(self, before: Scene<'_>, session: &Session) -> Option<Barrier> {
        let barriers = self.barriers(session);
        if barriers.is_empty() {
            return None;
        }
        let known = before.barriers(session);
        // A limit is better than a denial. After a ban, which ends, limits count as usual.
        let denied = matches!(known.as_slice(), [Barrier::Denied(_)]);
        barriers.into_iter().find(|barrier| {
            let better = denied && matches!(barrier, Barrier::Limited(..));
            !better && !known.iter().any(|before| barrier.is_no_tighter(before))
        })
    }

    /// All barriers that may drop packets of the session. A barrier before the rules hides those of
    /// the rules.
    fn barriers(self, session: &Session) -> Vec<Barrier> {
        let peer = Selector::address(session.peer);
        if self.layers.managed(&peer).is_some() {
            return Vec::new();
        }
        match self.lists.standing(&peer, self.now, (self.changes, self.laid)) {
            Standing::Safe => Vec::new(),
            Standing::Denied(entry) => vec![Barrier::Denied(entry)],
            Standing::Open => {
                let banned = self.bans.has(session, self.now).then_some(Barrier::Banned);
                let limiting = limiting(self.effective, &peer, session);
                banned.into_iter().chain(limiting).collect()
            }
        }
    }
}

/// The rules that may drop packets of the session: at most one of each table.
fn limiting(effective: &EffectiveSet, peer: &Selector, session: &Session) -> Vec<Barrier> {
    let drops = |terms: &Terms| match terms {
        Terms::Unlimited => false,
        Terms::Limits(limits) => !limits.shadow,
        Terms::Budget(name) => {
            let budget = effective.budgets.iter().find(|budget| budget.name == *name);
            budget.is_none_or(|budget| !budget.limits.shadow)
        }
    };
    // When a temporary exception ends, the rules around it apply to the session.
    let lasts = |of: &&Effective| of.end.is_none() || drops(&of.rule.terms);
    let mut barriers = Vec::new();
    let mut around =
        std::iter::once(*peer).chain(peer.wider()).filter_map(|at| effective.by_source(&at));
    if let Some(found) = around.find(lasts) {
        let Rule { path, terms, .. } = &*found.rule;
        if drops(terms) {
            barriers.push(Barrier::Limited(path.clone(), terms.clone()));
        }
    }
    let mut tables: BTreeMap<TableForm, Vec<(u32, &Rule)>> = BTreeMap::new();
    let overlap = |rule: &Rule| rule.path.overlap(peer, session.port);
    for rule in effective
        .on_other_keys()
        .filter(lasts)
        .map(|effective| &*effective.rule)
        .filter(|rule| overlap(rule) != Overlap::None)
    {
        // The number of the interface does not affect how specific the rule is.
        if let Ok(id) = RuleId::new(&rule.path, &|_name| Some(1)) {
            tables.entry(id.form).or_default().push((id.rank_of(&rule.path), rule));
        }
    }
    for rules in tables.values() {
        // A more specific rule that certainly matches decides alone.
        let sure = rules.iter().filter(|(_, rule)| overlap(rule) == Overlap::All);
        let least = sure.map(|(rank, _)| *rank).max().unwrap_or(0);
        let may = rules.iter().filter(|(rank, rule)| *rank >= least && drops(&rule.terms));
        if let Some((_, rule)) = may.max_by_key(|(rank, _)| *rank) {
            barriers.push(Barrier::Limited(rule.path.clone(), rule.terms.clone()));
        }
    }
    barriers
}
