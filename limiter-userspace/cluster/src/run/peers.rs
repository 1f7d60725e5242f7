//! Live nodes: their number, duplicate names, and different rule sets.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::membership::{Heard, Heartbeat};
use crate::status::{NodeStatus, Notice};

/// Time in microseconds between two heartbeats.
pub(crate) const HEARTBEAT: u64 = 1_000_000;
/// Missing heartbeats after which a node with a duplicate name is taken for the previous daemon.
const FORMER: u64 = 3 * HEARTBEAT;
/// Answers that must agree on a smaller number: a store that lost its state hears of all nodes
/// again within one heartbeat.
const AGREE: usize = 3;

/// Nodes in the store's latest report.
#[derive(Debug)]
pub(crate) struct Peers {
    heartbeat: Heartbeat,
    instance: u64,
    floor: u64,
    /// When this node was first seen, by the store's clock.
    begin: Option<u64>,
    recent: [u64; AGREE],
    count: u64,
    has_twin: bool,
    differ: Vec<String>,
    nodes: Vec<NodeStatus>,
    /// Names of all daemons in the latest report.
    names: BTreeMap<u64, String>,
}

impl Peers {
    pub(crate) fn new(name: String, instance: u64, floor: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self {
            heartbeat: Heartbeat { name, digest: 0, version },
            instance,
            floor,
            begin: None,
            recent: [floor; AGREE],
            count: floor,
            has_twin: false,
            differ: Vec::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    pub(crate) fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    pub(crate) fn set_digest(&mut self, digest: u64) {
        self.heartbeat.digest = digest;
    }

    /// Number of nodes among which shares are divided.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Live nodes, ordered by name.
    pub(crate) fn nodes(&self) -> &[NodeStatus] {
        &self.nodes
    }

    pub(crate) fn name_of(&self, instance: u64) -> Option<String> {
        self.names.get(&instance).cloned()
    }

    /// Processes the answer to a heartbeat at `now` of the store's clock. Returns notices.
    pub(crate) fn heard(&mut self, now: u64, heard: &[Heard]) -> Vec<Notice> {
        let begin = *self.begin.get_or_insert(now);
        let mut notices = Vec::new();
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for node in heard {
            let fresh = names.entry(&node.heartbeat.name).or_default();
            *fresh += u64::from(now.saturating_sub(node.at) < FORMER);
        }
        self.recent.rotate_right(1);
        self.recent[0] = names.values().map(|fresh| (*fresh).max(1)).sum();
        let live = self.recent.iter().copied().max().unwrap_or(0);
        let count = live.max(self.floor);
        if count != self.count {
            self.count = count;
            notices.push(Notice::Nodes(count));
        }
        // The previous daemon has not been heard of since this one started.
        let twin = heard.iter().any(|node| {
            node.heartbeat.name == self.heartbeat.name
                && node.instance != self.instance
                && node.at > begin
        });
        if twin && !self.has_twin {
            notices.push(Notice::SameName { name: self.heartbeat.name.clone() });
        }
        self.has_twin = twin;
        let others = heard.iter().filter(|node| node.instance != self.instance);
        let other = others.filter(|node| node.heartbeat.digest != self.heartbeat.digest);
        let mut differ: Vec<String> = other.map(|node| node.heartbeat.name.clone()).collect();
        differ.sort();
        differ.dedup();
        if differ != self.differ {
            notices.push(Notice::RuleSetsDiffer { nodes: differ.clone() });
            self.differ = differ;
        }
        let status = |node: &Heard| NodeStatus {
            name: node.heartbeat.name.clone(),
            here: node.instance == self.instance,
            digest: node.heartbeat.digest,
            version: node.heartbeat.version.clone(),
            silent: Duration::from_micros(now.saturating_sub(node.at)),
        };
        self.names =
            heard.iter().map(|node| (node.instance, node.heartbeat.name.clone())).collect();
        self.nodes = heard.iter().map(status).collect();
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(instance: u64, name: &str, at: u64, digest: u64) -> Heard {
        let heartbeat = Heartbeat { name: name.to_owned(), digest, version: "1".to_owned() };
        Heard { instance, at: at * HEARTBEAT, heartbeat }
    }

    fn peers() -> Peers {
        let mut peers = Peers::new("a".to_owned(), 1, 2);
        peers.set_digest(7);
        peers
    }

    /// Prevents fictitious nodes from counting for long.
    #[test]
    fn nodes_count_at_once_and_are_missed_after_three_answers() {
        let mut peers = peers();
        assert_eq!(peers.heard(100 * HEARTBEAT, &[node(1, "a", 100, 7)]), [], "the floor is 2");
        let three = |at| [node(1, "a", at, 7), node(2, "b", at, 7), node(3, "c", at, 7)];
        assert_eq!(peers.heard(101 * HEARTBEAT, &three(101)), [Notice::Nodes(3)]);
        for at in 102..104 {
            assert_eq!(peers.heard(at * HEARTBEAT, &[node(1, "a", at, 7)]), []);
        }
        assert_eq!(peers.heard(104 * HEARTBEAT, &three(104)), []);
        for at in 105..107 {
            assert_eq!(peers.heard(at * HEARTBEAT, &[node(1, "a", at, 7)]), []);
        }
        assert_eq!(peers.heard(107 * HEARTBEAT, &[node(1, "a", 107, 7)]), [Notice::Nodes(2)]);
        assert_eq!(peers.count(), 2);
    }

    #[test]
    fn the_daemon_before_is_no_twin_and_counts_no_more() {
        let mut peers = peers();
        for at in 100..105 {
            let heard = [node(1, "a", at, 7), node(9, "a", 99, 7), node(2, "b", at, 7)];
            let notices = peers.heard(at * HEARTBEAT, &heard);
            // Not known at first.
            let counted: &[Notice] = match at {
                100 => &[Notice::Nodes(3)],
                104 => &[Notice::Nodes(2)],
                _ => &[],
            };
            assert_eq!(notices, counted, "{at}");
        }
    }

    #[test]
    fn a_twin_is_reported_once_and_again_when_it_comes_again() {
        let mut peers = peers();
        let twin = Notice::SameName { name: "a".to_owned() };
        let heard = |at, other| [node(1, "a", at, 7), node(9, "a", other, 7)];
        assert_eq!(peers.heard(100 * HEARTBEAT, &heard(100, 100)), []);
        assert_eq!(peers.heard(101 * HEARTBEAT, &heard(101, 101)), std::slice::from_ref(&twin));
        assert_eq!(peers.heard(102 * HEARTBEAT, &heard(102, 102)), []);
        assert_eq!(peers.heard(103 * HEARTBEAT, &[node(1, "a", 103, 7)]), []);
        assert_eq!(peers.heard(104 * HEARTBEAT, &heard(104, 104)), [twin]);
    }

    #[test]
    fn nodes_with_other_rules_are_named() {
        let mut peers = peers();
        let differ = |nodes: &[&str]| Notice::RuleSetsDiffer {
            nodes: nodes.iter().map(|&n| n.into()).collect(),
        };
        let heard = [node(1, "a", 100, 7), node(2, "b", 100, 8)];
        assert_eq!(peers.heard(100 * HEARTBEAT, &heard), [differ(&["b"])]);
        assert_eq!(peers.heard(101 * HEARTBEAT, &heard), []);
        peers.set_digest(8);
        let heard = [node(1, "a", 102, 8), node(2, "b", 102, 8)];
        assert_eq!(peers.heard(102 * HEARTBEAT, &heard), [differ(&[])]);
    }
}
