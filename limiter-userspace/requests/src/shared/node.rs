//! This node among those that share limits: the thread that asks the store, and what it reports.

use std::sync::{Arc, Mutex, PoisonError};

use limiter_cluster::{Cluster, Status};
use limiter_sharing::SharedSet;
use limiter_sharing::fnv::Fnv;

use crate::rules::Rules;

/// The thread that asks the store; none of a process that counts for itself.
#[derive(Debug, Default)]
pub(crate) struct Node {
    cluster: Mutex<Option<Cluster>>,
    /// Why there is no contact to the store.
    cut_off: Mutex<Option<String>>,
}

impl Node {
    pub(crate) fn join(&self, cluster: Cluster) {
        *self.cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(cluster);
    }

    /// Gives the thread the rules in force.
    pub(crate) fn set_rules(&self, rules: &Rules) {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cluster) = cluster.as_ref() else { return };
        let all = rules.shared();
        let mut digest = Fnv::default();
        for text in rules.written() {
            digest.add(text.as_bytes());
        }
        let rules = all.map(|shared| shared.rule.clone()).collect();
        cluster.set_rules(SharedSet { rules, ..SharedSet::default() }, digest.finish());
    }

    /// Ends the thread: units that it holds are given back.
    pub(crate) fn stop(&self) {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cluster) = cluster {
            cluster.stop();
        }
    }

    /// State of the node, at most a second old; none of a process that counts for itself.
    pub(crate) fn status(&self) -> Option<Arc<Status>> {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.as_ref().map(Cluster::status)
    }

    /// Notes why there is no contact to the store, or that there is.
    pub(crate) fn set_cut_off(&self, error: Option<String>) {
        *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Why there is no contact to the store; none if there is, or none is needed.
    pub(crate) fn cut_off(&self) -> Option<String> {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
