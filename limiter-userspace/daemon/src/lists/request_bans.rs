//! Bans requested by rules for requests: the names of these rules, and the rate of new bans.
//!
//! The maps hold a number for the author of a ban; the names are on disk, so that a daemon that
//! takes over the maps knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use limiter_api::bans::RequestRule;
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{LimitSpec, WORDS};
use limiter_datapath::Observed;
use limiter_decision::meter::{self, Arrival, Charged, Undo};
use limiter_rules::RateLimit;
use limiter_rules::compile::compile;
use limiter_rules::model::LimitList;
use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};

use crate::disk::state_dir::{Damage, Prepared, StateDir, StateError};
use crate::error::ServiceError;

/// Offset of [`limiter_common::wire::Ban::rule`] for bans by rules for requests; the rest is the
/// rule's number. Rules for packets have 32-bit numbers; number 0 is a rule that is no longer
/// known.
const FIRST: u64 = 1 << 32;

/// Most rules for requests whose names are kept.
const MOST_RULES: usize = 4096;

/// Most characters of a domain, and of the keys and values of a rule.
const MOST_TEXT: usize = 300;

const FILE: &str = "request-rules.json";

const LOST: &str = "which rules for requests made the bans in force is not known";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    rules: BTreeMap<u32, RequestRule>,
}

/// Number of the rule for requests that made a ban; 0 if that rule is unknown.
pub(crate) fn number(rule: u64) -> Option<u32> {
    u32::try_from(rule.checked_sub(FIRST)?).ok()
}

/// Rules for requests that made bans, by number. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRules(Arc<BTreeMap<u32, RequestRule>>);

impl RequestRules {
    /// Reads the rules stored by the previous daemon.
    pub(crate) fn load(state: &StateDir, damages: &mut Vec<Damage>) -> Self {
        let parsed = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
        match state.read_whole(FILE, parsed, LOST, damages) {
            Ok(kept) => Self(Arc::new(kept.map_or_else(BTreeMap::new, |Kept { rules }| rules))),
            Err(error) => {
                tracing::warn!("{LOST}: {error}");
                Self::default()
            }
        }
    }

    /// The rule for requests that made a ban, if one did and it is known.
    pub(crate) fn of(&self, rule: u64) -> Option<&RequestRule> {
        self.0.get(&number(rule)?)
    }

    /// The value of [`limiter_common::wire::Ban::rule`] for bans by a rule. A new rule is on disk
    /// before any ban by it.
    pub(crate) fn author(
        &mut self,
        rule: &RequestRule,
        datapath: &dyn Observed,
        state: &StateDir,
    ) -> Result<u64, ServiceError> {
        let known = self.0.iter().find(|(_, known)| *known == rule);
        if let Some((number, _)) = known {
            return Ok(FIRST | u64::from(*number));
        }
        // Bans whose names were lost keep their numbers, which must not get another name.
        let in_maps: BTreeSet<u32> =
            datapath.bans()?.iter().filter_map(|(_, ban)| number(ban.rule)).collect();
        let mut rules = (*self.0).clone();
        if rules.len() >= MOST_RULES {
            rules.retain(|number, _| in_maps.contains(number));
        }
        let last = rules.keys().chain(&in_maps).max().copied().unwrap_or_default();
        let Some(number) = last.checked_add(1).filter(|_| rules.len() < MOST_RULES) else {
            return Ok(FIRST);
        };
        rules.insert(number, rule.clone());
        let kept = Kept { rules };
        if let Err(error) = store(state, &kept) {
            tracing::warn!("a daemon that is started later does not know all rules: {error}");
        }
        self.0 = Arc::new(kept.rules);
        Ok(FIRST | u64::from(number))
    }
}

fn store(state: &StateDir, kept: &Kept) -> Result<(), StateError> {
    // Texts and numbers can always be serialized.
    let text = serde_json::to_string(kept).unwrap_or_default();
    state.prepare(FILE, &text).and_then(Prepared::publish)
}

/// A rule as named by `limiter serve`, in plain text of bounded length.
pub(crate) fn named(domain: &str, rule: &str) -> RequestRule {
    let bounded = |text: &str| clean(&text.chars().take(MOST_TEXT).collect::<String>());
    RequestRule { domain: bounded(domain), rule: bounded(rule) }
}

/// Budget for new bans by rules for requests: the same rate as for packets.
#[derive(Debug, Default)]
pub(crate) struct BanBudget {
    spec: LimitSpec,
    words: [AtomicU64; WORDS],
}

impl BanBudget {
    /// Returns true if another ban may be made now.
    pub(crate) fn spend(&mut self, rate: RateLimit, now: Ticks) -> bool {
        // A rate in force has been compiled before.
        let Ok(compiled) = compile(&LimitList::from(rate), false, 1) else { return false };
        let [spec, ..] = compiled.record.limits;
        if spec != self.spec {
            *self = Self { spec, words: Default::default() };
        }
        let arrival =
            Arrival { now, units: 1, offset: WallOffset::default(), is_super_frame: false };
        let charged =
            meter::charge(&self.spec, &&self.words, false, &arrival, &mut Undo::default());
        matches!(charged, Charged::Conforming)
    }
}
