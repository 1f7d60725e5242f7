//! Budgets that nodes share, with a cluster and without one.

use limiter_api::explain::{AskExplain, Here};
use limiter_api::rules::{ApplyRules, Document};
use limiter_common::bucket::Slot;
use limiter_common::wire::{BUDGET_LEASES, KeyLeases};
use limiter_sharing::key::Words;
use limiter_sharing::{Leases, SharedTerms};

use super::*;
use crate::rule_sets::layers::Layers;

pub(super) const SHARED: &str = "budgets:
  - {name: own, rate_limit: {unit: second, requests_per_unit: 5}}
  - name: customer
    rate_limits:
      - {unit: second, requests_per_unit: 1000}
      - {unit: hour, requests_per_unit: 90000, algorithm: fixed_window}
    scope: cluster
descriptors:
  - {key: vlan, value: 6, budget: own}
  - {key: vlan, value: 7, budget: customer}
";

const WARNING: &str = "the budget customer has `scope: cluster`, but no cluster is configured \
                       (`limiter run --cluster FILE`): it is a limit of this node alone";

impl Daemon {
    /// The daemon with a number of nodes, or without a cluster.
    pub(super) fn among(cluster: Option<u64>) -> Self {
        let mut daemon = Self::start(&["203.0.113.9"]);
        daemon.service.rule_sets.layers =
            Layers { cluster, ..daemon.service.rule_sets.layers.clone() };
        daemon.write(SHARED);
        daemon.service.reload().unwrap();
        daemon
    }

    pub(super) fn leases(&self) -> Vec<(&str, u32)> {
        let shared = self.service.rule_sets.effective.shared.budgets.iter();
        shared.map(|shared| (&*shared.name, shared.lease)).collect()
    }

    fn warned(&self) -> Vec<String> {
        self.service.status().unwrap().warnings
    }
}

#[test]
fn without_a_cluster_a_shared_budget_is_this_node_s_and_that_is_reported() {
    let daemon = Daemon::among(None);
    assert_eq!(daemon.warned(), [WARNING]);
    assert_eq!(daemon.leases(), []);
    let limits = daemon.service.limits().unwrap();
    assert!(limits.budgets.iter().all(|budget| budget.sharing.is_none()));
    assert!(!limiter_api::render::text(&limits).contains("over all nodes"));
}

/// The limits are shown as those of all nodes together.
#[test]
fn a_shared_budget_is_listed_with_what_all_nodes_have() {
    let daemon = Daemon::among(Some(4));
    assert_eq!(daemon.warned(), [""; 0]);
    assert_eq!(
        daemon.leases(),
        [("0:packets:bucket:customer", 4), ("1:packets:fixed_3600s:customer", 5)]
    );
    let limits = daemon.service.limits().unwrap();
    let budget = limits.budgets.iter().find(|budget| budget.source == "customer").unwrap();
    assert_eq!(
        budget.sharing.as_deref(),
        Some("over all nodes, sync 200 ms, share 25%, share_of_burst 10%, on_partition share")
    );
    // Not the 62.5/s of the share.
    assert_eq!((budget.limit.as_str(), budget.burst), ("1000/s", Some(1000)));
    assert_eq!(budget.effective_per_second, Some(1000.0));
    let shown = limiter_api::render::text(&limits);
    assert_eq!(shown.matches("over all nodes").count(), 1, "{shown}");
}

/// The leases follow the rules in force, during any trial and after a restart.
#[test]
fn leases_go_with_the_rules_in_force() {
    let mut daemon = Daemon::among(Some(4));
    let before: Vec<_> = daemon.service.rule_sets.effective.shared.budgets.clone();
    // A reload of the same rules, more nodes: names and leases stay.
    daemon.service.reload().unwrap();
    assert_eq!(daemon.service.rule_sets.effective.shared.budgets, before);
    let text = SHARED.replace("requests_per_unit: 1000}", "requests_per_unit: 1000, count: syns}");
    let tried = ApplyRules {
        documents: vec![Document { name: "a.yaml".into(), text }],
        force: false,
        confirm_seconds: std::num::NonZeroU32::new(60),
        session: None,
    };
    daemon.service.apply_rules(&tried).unwrap();
    assert_eq!(
        daemon.leases(),
        [("0:syns:bucket:customer", 8), ("1:packets:fixed_3600s:customer", 9)]
    );
    daemon.service.revert().unwrap();
    assert_eq!(daemon.service.rule_sets.effective.shared.budgets, before);
    daemon.service.rule_sets.layers.cluster = Some(2);
    daemon.service.reload().unwrap();
    let after = &daemon.service.rule_sets.effective.shared.budgets;
    assert_eq!(after[0].lease, before[0].lease);
    let nodes = |shared: &[limiter_sharing::Shared]| match shared[0].terms {
        SharedTerms::Bucket(limit) => limit.settings().nodes,
        SharedTerms::Window { .. } => 0,
    };
    assert_eq!((nodes(&before), nodes(after)), (4, 2));
    // Refused rules change nothing.
    let kept = after.clone();
    daemon.write(&SHARED.replace("requests_per_unit: 1000}", "requests_per_unit: 1000, burst: 9}"));
    let error = daemon.service.reload().unwrap_err().to_string();
    assert!(error.contains("r.yaml:3:5") && error.contains("give at least 400"), "{error}");
    assert_eq!(daemon.service.rule_sets.effective.shared.budgets, kept);
}

const BY_SOURCE: &str = "descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 1000}
    scope: cluster
    cluster: {sync: 200ms}
";

/// For a limit over all nodes, a node knows only its own part, never the remainder of all.
#[test]
fn a_source_under_a_shared_rule_is_reported_with_what_holds_here() {
    let mut daemon = Daemon::among(Some(4));
    daemon.write(BY_SOURCE);
    daemon.service.reload().unwrap();
    daemon.fake.state().now = Ticks::from_nanos(5_000_000_000);
    let reported = |daemon: &mut Daemon| {
        let view = daemon.service.source("192.0.2.1").unwrap();
        assert_eq!((view.burst, view.remaining, view.full_in_ns), (Some(1000), None, 0));
        let asked = AskExplain { from: "192.0.2.1".into(), ..AskExplain::default() };
        let why = daemon.service.explain(&asked).unwrap();
        let shown = (limiter_api::render::text(&view), limiter_api::render::text(&why));
        (view.here, view.remaining_here, why, shown)
    };
    let (here, left, ..) = reported(&mut daemon);
    assert_eq!((here, left), (None, None), "it has no bucket");
    daemon.fake.send(Source::V4([192, 0, 2, 1]), 20, 60);
    // A tenth of the burst, over four nodes.
    let (here, left, _, (view, why)) = reported(&mut daemon);
    assert_eq!((here, left), (Some(Here::Share), Some(5)));
    assert!(view.contains("5 packets of this node's share"), "{view}");
    assert!(why.contains("over all nodes: of this node's share"), "{why}");
    let ask = daemon.fake.take_asks()[0];
    let leases = KeyLeases::new(Slot::new(ask.slot), BUDGET_LEASES);
    daemon.fake.set_leased(&ask.key, Some(leases));
    Leases::write(&mut daemon.fake, BUDGET_LEASES, Words { granted: 7, expires: 9_000_000 });
    let (here, left, _, (view, _)) = reported(&mut daemon);
    assert_eq!((here, left), (Some(Here::Lease), Some(7)));
    assert!(view.contains("7 packets leased here"), "{view}");
    daemon.fake.send(Source::V4([192, 0, 2, 1]), 7, 60);
    let (_, left, why, (_, shown)) = reported(&mut daemon);
    assert_eq!((left, why.verdict.as_str(), why.passes_in_ns), (Some(0), "drop", None));
    assert!(shown.contains("with the next lease") && !shown.contains("never"), "{shown}");
    // The lease has ended.
    daemon.fake.state().now = Ticks::from_nanos(9_000_000_000);
    assert_eq!(reported(&mut daemon).0, Some(Here::Share));
}
