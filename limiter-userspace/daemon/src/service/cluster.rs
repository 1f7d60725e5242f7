//! Work of the service for the node: its start, and what it orders.

use std::error::Error;

use ipnet::IpNet;
use limiter_cluster::{Change, Cluster, Config, List, Notice, Notices};
use limiter_rules::Selector;

use super::Service;
use crate::api::lists::{ListName, SetList, Skipped, UnsetList};
use crate::bans::{self, BY_NODE};
use crate::cluster::Order;
use crate::control::Refusal;
use crate::error::ServiceError;
use crate::lists::{self, CLUSTER};

impl Service {
    /// Starts the thread that keeps shared limits. Where that fails, they do what `on_partition`
    /// says.
    pub(crate) fn start_node(&mut self, config: Config) -> Option<Notices> {
        let failed = |error: &dyn Error| {
            tracing::error!(%error, "shared limits do what `on_partition` says");
        };
        let leases = self.datapath.get().ok()?.leases().inspect_err(|error| failed(error)).ok()?;
        let (cluster, notices) =
            Cluster::start(config, leases).inspect_err(|error| failed(error)).ok()?;
        self.join(cluster);
        Some(notices)
    }

    /// Takes the thread that keeps shared limits, and gives it those in force.
    pub(crate) fn join(&mut self, cluster: Cluster) {
        self.cluster.join(cluster, &self.rule_sets.layers, &self.rule_sets.effective);
    }

    /// Does what the node tells.
    pub(crate) fn heed(&mut self, notice: Notice) {
        match self.cluster.heed(notice) {
            None => {}
            Some(Order::CatchUp) => {
                self.rule_sets.replan = true;
                self.catch_up();
            }
            Some(Order::TakeOver(change)) => {
                let told = change.to_string();
                match self.take_over(&change) {
                    Ok(()) => tracing::info!("by another node: {told}"),
                    Err(error) => {
                        tracing::warn!(%error, "not taken over from another node: {told}");
                    }
                }
            }
        }
    }

    /// Takes over another node's change. Management prefixes of this node are not touched.
    fn take_over(&mut self, change: &Change) -> Result<(), Refusal> {
        match change {
            Change::Ban { source, left } => {
                let selector = Selector::address(*source);
                if let Some(prefix) = self.rule_sets.layers.managed(&selector) {
                    return Err(ServiceError::Management { selector, prefix }.into());
                }
                if let Some(why) = self.hazard_of_ban(&selector)? {
                    return Err(Refusal::Conflict(format!("{selector}: {why} on this node")));
                }
                bans::put_ban(self.datapath.get_mut()?, *source, *left, BY_NODE).map(drop)?;
            }
            Change::Unban { sources } => {
                bans::forget(self.datapath.get_mut()?, selector_of(*sources)?).map(drop)?;
            }
            Change::List { list, sources, left } => {
                let list = match list {
                    List::Allow => ListName::Allow,
                    List::Deny => ListName::Deny,
                };
                // A part of a second is one: an entry never ends before it ends elsewhere.
                let seconds = left.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
                let sources = vec![selector_of(*sources)?.to_string()];
                let request =
                    SetList { list, sources, seconds, strict: true, ..SetList::default() };
                let wanted = self.wanted(&request, Some(&CLUSTER.into()))?;
                refuse(self.change_lists(wanted)?.skipped)?;
            }
            Change::Unlist { sources } => {
                let source = Some(selector_of(*sources)?.to_string());
                let named = lists::named(&UnsetList { source, ..UnsetList::default() })?;
                let (own, skipped) = self.lists.own(&named, Some(CLUSTER));
                self.take_off_lists(&own)?;
                refuse(skipped)?;
            }
        }
        Ok(())
    }
}

/// Another node does not change what somebody here wrote.
fn refuse(skipped: Vec<Skipped>) -> Result<(), Refusal> {
    match skipped.into_iter().next() {
        Some(Skipped { source, why }) => {
            Err(Refusal::Conflict(format!("{source}: {why} on this node")))
        }
        None => Ok(()),
    }
}

fn selector_of(sources: IpNet) -> Result<Selector, Refusal> {
    Selector::prefix(sources).map_err(|error| Refusal::Invalid(error.to_string()))
}
