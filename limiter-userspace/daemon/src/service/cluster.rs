//! Work of the service for the node: its start, and the tasks that it gives.

use std::error::Error;

use ipnet::IpNet;
use limiter_api::lists::{ListName, SetList, Skipped, UnsetList};
use limiter_cluster::{Change, Cluster, Config, List, Notice, Notices};
use limiter_rules::Selector;

use super::Service;
use super::lists::{hazard_of_ban, own_addresses};
use crate::cluster::Order;
use crate::control::Refusal;
use crate::error::ServiceError;
use crate::lists::bans::{self, BY_NODE};
use crate::lists::{self, CLUSTER};
use crate::rule_sets::guard::{LEAST_OF_OTHERS, hazard};

/// Most changes of other nodes in one batch that get a log line each.
const LOGGED: usize = 10;

impl Service {
    /// Handles the node's notices. Changes of lists are stored at the end, all together.
    pub(crate) fn handle_notices(&mut self, notices: impl IntoIterator<Item = Notice>) {
        let mut taken = Vec::new();
        // The kernel is asked once for all changes.
        let mut own = None;
        for notice in notices {
            match self.cluster.handle_notices(notice) {
                None => {}
                Some(Order::CatchUp) => {
                    self.rule_sets.replan = true;
                    self.catch_up();
                }
                Some(Order::TakeOver(change)) => {
                    let reported = change.to_string();
                    let own = own.get_or_insert_with(|| own_addresses(&self.datapath));
                    match take_over(self, &change, own) {
                        Ok(()) => taken.push(reported),
                        Err(error) => self.cluster.refuse(reported, error.to_string()),
                    }
                }
            }
        }
        if !taken.is_empty() {
            self.at_lists().store();
        }
        for reported in taken.iter().take(LOGGED) {
            tracing::info!("by another node: {reported}");
        }
        if taken.len() > LOGGED {
            tracing::info!("by another node: {} changes more", taken.len() - LOGGED);
        }
        self.cluster.log_refusals();
    }
}

/// Starts the thread that keeps shared limits. If that fails, the limits follow `on_partition`.
pub(crate) fn start(service: &mut Service, config: Config) -> Option<Notices> {
    let failed = |error: &dyn Error| {
        tracing::error!(%error, "shared limits do what `on_partition` says");
    };
    let leases = service.datapath.get().ok()?.leases().inspect_err(|error| failed(error)).ok()?;
    let (cluster, notices) =
        Cluster::start(config, leases).inspect_err(|error| failed(error)).ok()?;
    join(service, cluster);
    Some(notices)
}

/// Takes the thread that keeps shared limits, and gives it the limits in force.
pub(crate) fn join(service: &mut Service, cluster: Cluster) {
    service.cluster.join(cluster, &service.rule_sets.layers, &service.rule_sets.effective);
}

/// Takes over another node's change. Management prefixes of this node are never affected.
fn take_over(
    service: &mut Service,
    change: &Change,
    own: &[(String, IpNet)],
) -> Result<(), Refusal> {
    match change {
        Change::Ban { source, left } => {
            let selector = Selector::address(*source);
            if let Some(prefix) = service.rule_sets.layers.managed(&selector) {
                return Err(ServiceError::Management { selector, prefix }.into());
            }
            if let Some(why) = hazard_of_ban(&service.datapath, &selector) {
                return Err(Refusal::Conflict(format!("{selector}: {why} on this node")));
            }
            bans::put_ban(service.datapath.get_mut()?, *source, *left, BY_NODE).map(drop)?;
        }
        Change::Unban { sources } => {
            let selector = selector_of(*sources)?;
            if let Some(why) = hazard(&selector, ListName::Allow, own, LEAST_OF_OTHERS) {
                return Err(Refusal::Conflict(format!("{selector}: {why}")));
            }
            bans::forget(service.datapath.get_mut()?, selector).map(drop)?;
        }
        Change::List { list, sources, left } => {
            let list = match list {
                List::Allow => ListName::Allow,
                List::Deny => ListName::Deny,
            };
            // A fraction counts as a whole second, so that an entry never ends before it ends
            // elsewhere.
            let seconds = left.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
            let sources = vec![selector_of(*sources)?.to_string()];
            let request = SetList { list, sources, seconds, strict: true, ..SetList::default() };
            let wanted = service.at_lists().wanted_beside(&request, Some(&CLUSTER.into()), own)?;
            refuse(service.at_lists().make(wanted)?.skipped)?;
        }
        Change::Unlist { sources } => {
            let source = Some(selector_of(*sources)?.to_string());
            let named = lists::named(&UnsetList { source, ..UnsetList::default() })?;
            let (theirs, skipped) = service.lists.own(&named, Some(CLUSTER));
            service.at_lists().unmake(&theirs)?;
            refuse(skipped)?;
        }
    }
    Ok(())
}

/// Refuses a change by another node of entries written here.
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
