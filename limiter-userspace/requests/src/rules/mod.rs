//! The rules in force.

mod domain;
pub(crate) mod files;
mod making;
mod rule;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::buckets::store::LimitsId;
use crate::queue::rule::InForce;
use crate::shared::rule::RuleShared;

pub use domain::Domain;
pub(crate) use rule::EntryOf;
pub use rule::{Rule, Terms};

/// Rules of all files.
#[derive(Debug, Default)]
pub struct Rules {
    domains: BTreeMap<Box<str>, Domain>,
    /// The domain that a check without one is about, if that is clear.
    checked: Option<Box<str>>,
    /// Queues, with those that no rule fills.
    queues: Vec<Arc<InForce>>,
}

impl Rules {
    /// Domains with `check`, by their names.
    pub(crate) fn with_check(&self) -> Vec<&str> {
        let domains = self.domains().into_iter();
        domains.filter(|(_, of)| !of.check.is_empty()).map(|(name, _)| name).collect()
    }

    /// The domain that a check without one is about, if that is clear.
    pub(crate) fn checked(&self) -> Option<&str> {
        self.checked.as_deref()
    }

    pub(crate) fn queues(&self) -> &[Arc<InForce>] {
        &self.queues
    }

    /// What decides whether two nodes have the same rules, for each rule that nodes share.
    pub(crate) fn written(&self) -> Vec<String> {
        let shared = self.shared().map(|shared| shared.written().to_owned());
        let queue = |queue: &Arc<InForce>| {
            let InForce { settings, rules, .. } = &**queue;
            format!(
                "{:?} {rules:?}",
                limiter_rules::file::requests::Queue { place: None, ..settings.clone() }
            )
        };
        let mut written: Vec<String> = shared.chain(self.queues.iter().map(queue)).collect();
        written.sort_unstable();
        written
    }

    /// The rules of a domain.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// All domains, by their names.
    pub fn domains(&self) -> Vec<(&str, &Domain)> {
        self.domains.iter().map(|(name, of)| (&**name, of)).collect()
    }

    /// Limits that keys may have.
    pub(crate) fn limits(&self) -> Vec<LimitsId> {
        let rules = self.domains.values().flat_map(|domain| &domain.rules);
        rules.flat_map(|rule| rule.limits()).map(|limits| limits.id).collect()
    }

    /// Rules whose limits nodes share.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &RuleShared> + Clone {
        let rules = self.domains.values().flat_map(|domain| &domain.rules);
        rules.filter_map(|rule| rule.shared.as_ref())
    }
}
