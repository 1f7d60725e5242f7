//! A rule set of another program in one form, whatever the program: chains of rules, each with the
//! packets that it is for, a limit if it has one, and a verdict.

use std::collections::BTreeMap;

use limiter_rules::model::{Fact, Meter};

use super::difference::Difference;
use super::packets::Packets;
use super::translation::Change;

/// Place in the kernel where a chain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// Every packet that comes in, before routing.
    Prerouting,
    Input,
    /// Packets that go through this host.
    Forward,
    Outgoing,
    /// Packets of the address translation before routing: only the first of each connection.
    Nat,
    /// Packets of the address translation behind routing, and of those that this host sends.
    NatLater,
    /// Frames of a bridge, ARP, and whatever else is not meant by rules on IP.
    Other,
}

/// Fate of a packet that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Reject,
    /// Back to the chain that jumped here.
    Return,
    /// On to the next rule: the rule logs or counts.
    Continue,
    /// On to the next rule, after something that others can ask for: a mark, an entry of a set.
    Marks(String),
    /// Ends the way through a chain of the address translation.
    Translates(Change),
    Jump(String),
    /// As [`Verdict::Jump`], and never back here.
    Goto(String),
    /// Something else; the text names it.
    Unknown(String),
}

/// Part of the key of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// So many bits of the source; of IPv6, 128 means the address.
    Source(u8),
    Destination,
    Port,
    Protocol,
    Interface,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) meter: Meter,
    /// True if packets over the limit match, and not those within it.
    pub(super) over: bool,
    /// Key of a bucket; empty for one bucket.
    pub(super) key: Vec<Key>,
    /// Name of the memory that holds the buckets. Two rules with one memory share it.
    pub(super) memory: Option<String>,
    /// Name of a limit that several rules charge.
    pub(super) shared: Option<String>,
    /// The rule that notes what this one counts, if a limit is made of two.
    pub(super) pair: Option<Pair>,
    /// Differences that are the limit's own.
    pub(super) differences: Vec<Difference>,
}

/// A list that one rule fills and another one counts in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// Name of the list, of an address family.
    pub(super) list: String,
    /// Index of the rule that notes, in the chain and with the conditions of the one that counts.
    pub(super) notes: usize,
    /// True if it comes before the rule that counts.
    pub(super) first: bool,
}

/// One case of a rule: a verdict map has several, any other rule one or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) packets: Packets,
    pub(super) limit: Option<Limit>,
    pub(super) verdict: Verdict,
    /// Seconds for which each source is listed, where `packets` are sources of a set with times.
    pub(super) times: Vec<Option<u64>>,
}

impl Case {
    /// A case without a limit.
    pub(super) const fn new(packets: Packets, verdict: Verdict) -> Self {
        Self { packets, limit: None, verdict, times: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Place of it: a line, or a handle.
    pub(super) place: String,
    /// The rule as it was read.
    pub(super) text: String,
    /// The comment that it has.
    pub(super) name: Option<String>,
    pub(super) cases: Vec<Case>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Place where it begins; none for one that rules jump to.
    pub(super) hook: Option<Hook>,
    /// Place among the chains of a hook: lower ones come first.
    pub(super) priority: i64,
    /// True if what no rule decided is dropped.
    pub(super) drops: bool,
    /// Packets that it is for, where it has a hook.
    pub(super) packets: Packets,
    pub(super) rules: Vec<usize>,
}

/// A rule that writes into headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rewrite {
    pub(super) place: String,
    pub(super) packets: Packets,
    pub(super) what: Written,
}

/// The part of headers that a rule writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Fact(Fact),
    /// Addresses, ports, or whatever else.
    Any,
}

/// Chains by the name of their table, and their own.
pub(super) type ChainName = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Firewall {
    pub(super) rules: Vec<Rule>,
    pub(super) chains: BTreeMap<ChainName, Chain>,
    /// Packets that rules take out of connection tracking, each with the place of its rule.
    pub(super) untracked: Vec<(String, Packets)>,
    /// Headers that rules write anew before the others see them.
    pub(super) rewrites: Vec<Rewrite>,
    /// Things to say of the whole.
    pub(super) remarks: Vec<String>,
}

impl Firewall {
    /// Adds a rule to the end of a chain.
    pub(super) fn push(&mut self, chain: ChainName, rule: Rule) {
        self.insert(chain, None, rule);
    }

    /// Adds a rule to a chain, at a place of it if one is named.
    pub(super) fn insert(&mut self, chain: ChainName, at: Option<usize>, rule: Rule) {
        let rules = &mut self.chains.entry(chain).or_default().rules;
        rules.insert(at.unwrap_or(usize::MAX).min(rules.len()), self.rules.len());
        self.rules.push(rule);
    }

    /// The cases that have a limit, for a first look at all of them.
    pub(super) fn limits(&self) -> impl Iterator<Item = &Case> {
        let cases = self.rules.iter().flat_map(|rule| &rule.cases);
        cases.filter(|case| case.limit.is_some())
    }
}
