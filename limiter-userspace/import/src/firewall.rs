//! The common form of rule sets of all other programs: chains of rules, each with the packets that
//! it matches, an optional limit, and a verdict.

use std::collections::BTreeMap;

use limiter_rules::model::{Fact, Meter};

use super::difference::Difference;
use super::packets::Packets;
use super::translation::Change;

/// Hook of the kernel where a chain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// Every incoming packet, before routing.
    Prerouting,
    Input,
    Forward,
    Outgoing,
    /// Address translation before routing: sees only the first packet of each connection.
    Nat,
    /// Address translation after routing, and of packets that this host sends.
    NatLater,
    /// Frames of a bridge, ARP, and everything else that rules on IP do not cover.
    Other,
}

/// What happens to a packet that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Reject,
    /// Returns to the calling chain.
    Return,
    /// Continues with the next rule: the rule only logs or counts.
    Continue,
    /// Continues with the next rule, after setting something that others can check: a mark, an
    /// entry of a set.
    Marks(String),
    /// Ends a chain of the address translation.
    Translates(Change),
    Jump(String),
    /// Like [`Verdict::Jump`], but without returning.
    Goto(String),
    /// Something else, named by the text.
    Unknown(String),
}

/// Part of the key of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// So many bits of the source; for IPv6, 128 means the whole address.
    Source(u8),
    Destination,
    Port,
    Protocol,
    Interface,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) meter: Meter,
    /// True if packets over the limit match, instead of those within it.
    pub(super) over: bool,
    /// Key of the buckets; empty for a single bucket.
    pub(super) key: Vec<Key>,
    /// Name of the memory that holds the buckets. Two rules with the same memory share it.
    pub(super) memory: Option<String>,
    /// Name of a limit that several rules charge.
    pub(super) shared: Option<String>,
    /// The rule that notes what this one counts, if the limit consists of two rules.
    pub(super) pair: Option<Pair>,
    /// Differences of the limit itself.
    pub(super) differences: Vec<Difference>,
}

/// A list that one rule fills and another one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Name of the list, within an address family.
    pub(super) list: String,
    /// Index of the noting rule, which has the chain and conditions of the counting one.
    pub(super) notes: usize,
    /// True if the noting rule comes first.
    pub(super) first: bool,
}

/// One case of a rule: a verdict map has several, other rules one or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) packets: Packets,
    pub(super) limit: Option<Limit>,
    pub(super) verdict: Verdict,
    /// Seconds for which each source is listed, if `packets` are the sources of a set with times.
    pub(super) times: Vec<Option<u64>>,
}

impl Case {
    pub(super) const fn new(packets: Packets, verdict: Verdict) -> Self {
        Self { packets, limit: None, verdict, times: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Place of the rule: a line, or a handle.
    pub(super) place: String,
    /// The rule as it was read.
    pub(super) text: String,
    /// The rule's own comment.
    pub(super) name: Option<String>,
    pub(super) cases: Vec<Case>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Hook where it begins; `None` if rules jump to it.
    pub(super) hook: Option<Hook>,
    /// Order among the chains of a hook: lower priorities come first.
    pub(super) priority: i64,
    /// True if its policy drops.
    pub(super) drops: bool,
    /// Packets that it sees, if it has a hook.
    pub(super) packets: Packets,
    pub(super) rules: Vec<usize>,
}

/// A rule that changes headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rewrite {
    pub(super) place: String,
    pub(super) packets: Packets,
    pub(super) what: Written,
}

/// The part of headers that a rule changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Fact(Fact),
    /// Addresses, ports, or anything else.
    Any,
}

/// Name of a chain: its table's name, and its own.
pub(super) type ChainName = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Firewall {
    pub(super) rules: Vec<Rule>,
    pub(super) chains: BTreeMap<ChainName, Chain>,
    /// Packets that rules exempt from connection tracking, each with the place of its rule.
    pub(super) untracked: Vec<(String, Packets)>,
    /// Headers that rules change before later rules see them.
    pub(super) rewrites: Vec<Rewrite>,
    /// Remarks about the whole rule set.
    pub(super) remarks: Vec<String>,
}

impl Firewall {
    pub(super) fn push(&mut self, chain: ChainName, rule: Rule) {
        self.insert(chain, None, rule);
    }

    /// Inserts a rule into a chain, at an index if one is given, otherwise at the end.
    pub(super) fn insert(&mut self, chain: ChainName, at: Option<usize>, rule: Rule) {
        let rules = &mut self.chains.entry(chain).or_default().rules;
        rules.insert(at.unwrap_or(usize::MAX).min(rules.len()), self.rules.len());
        self.rules.push(rule);
    }

    /// The cases with a limit, for a first look at all of them.
    pub(super) fn limits(&self) -> impl Iterator<Item = &Case> {
        let cases = self.rules.iter().flat_map(|rule| &rule.cases);
        cases.filter(|case| case.limit.is_some())
    }
}
