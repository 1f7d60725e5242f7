//! Random rule files, and which rule a descriptor falls under.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::select;

use super::bucket::{Algorithm, Limit};

/// What the values of a level match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Any,
    Exact(&'static str),
    /// A pattern, and whether all that it matches is one.
    Pattern(&'static str, bool),
    List([&'static str; 2]),
}

pub(super) type Level = (&'static str, Value);

pub(super) const KEYS: [&str; 3] = ["a", "b", "remote_address"];

/// Values of requests, by key.
pub(super) fn values(key: &str) -> &'static [&'static str] {
    if key == "remote_address" {
        &[
            "192.0.2.7",
            "192.0.2.8",
            "::ffff:192.0.2.8",
            "192.0.3.1",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8:0:1::1",
            "2001:db9::1",
            "pipe",
        ]
    } else {
        &["x", "xy", "xyz", "p", "q", "other", "z"]
    }
}

#[derive(Clone, Debug)]
pub(super) enum Terms {
    Limits(Vec<Limit>),
    Budget(usize),
    Block,
    Unlimited,
    /// An exception, where it has a value.
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) path: Vec<Level>,
    pub(super) terms: Terms,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) name: Option<&'static str>,
    pub(super) replaces: Option<&'static str>,
    /// Limits of the /24 or /48 of a source, and of its /16 alone.
    pub(super) wider: [Option<Limit>; 2],
}

#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) rules: Vec<Rule>,
    pub(super) budgets: Vec<Vec<Limit>>,
}

#[derive(Debug)]
struct Node {
    level: Level,
    rule: Option<usize>,
    nested: Vec<Self>,
}

/// Puts a rule into the tree, if nothing there has its place.
fn insert(nodes: &mut Vec<Node>, path: &[Level], rule: usize) -> bool {
    let [level, rest @ ..] = path else { return false };
    let same = |node: &Node| node.level.0 == level.0 && like(node.level.1) == like(level.1);
    let index = nodes.iter().position(same).unwrap_or_else(|| {
        nodes.push(Node { level: *level, rule: None, nested: Vec::new() });
        nodes.len() - 1
    });
    if !rest.is_empty() {
        return insert(&mut nodes[index].nested, rest, rule);
    }
    let free = nodes[index].rule.is_none();
    nodes[index].rule.get_or_insert(rule);
    free
}

/// A value reduced to what distinguishes it from others.
fn like(value: Value) -> Value {
    if let Value::Pattern(pattern, _) = value { Value::Pattern(pattern, false) } else { value }
}

fn matches(pattern: &str, value: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == value,
        Some((begin, rest)) => value.strip_prefix(begin).is_some_and(|value| {
            (0..=value.len()).any(|at| value.is_char_boundary(at) && matches(rest, &value[at..]))
        }),
    }
}

/// The address of a value, as it counts: IPv6 by its /64.
pub(super) fn address(value: &str) -> Option<IpNet> {
    let address: IpAddr = value.parse().ok()?;
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { 32 } else { 64 };
    Some(IpNet::new(address, bits).unwrap().trunc())
}

impl Node {
    /// How well it matches; `None` if not at all.
    fn fit(&self, value: &str) -> Option<(usize, usize)> {
        let (key, own) = self.level;
        let of_address = key == "remote_address";
        match own {
            Value::Any => Some((0, 0)),
            Value::Exact(own) if of_address => {
                let net: IpNet =
                    own.parse().or_else(|_| own.parse::<IpAddr>().map(IpNet::from)).ok()?;
                let inside = net.contains(&address(value)?);
                inside.then_some((2, usize::from(net.prefix_len())))
            }
            Value::Exact(own) => (own == value).then_some((2, 0)),
            Value::List(own) => own.contains(&value).then_some((2, 0)),
            Value::Pattern(own, _) => {
                matches(own, value).then(|| (1, own.chars().filter(|c| *c != '*').count()))
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Tree(Vec<Node>);

impl Tree {
    pub(super) fn new(file: &File) -> Self {
        let mut nodes = Vec::new();
        for (number, rule) in file.rules.iter().enumerate() {
            insert(&mut nodes, &rule.path, number);
        }
        Self(nodes)
    }

    /// The rule of a descriptor, and the values that have buckets of their own.
    pub(super) fn find(&self, entries: &[(&str, &str)]) -> Option<(usize, Vec<String>)> {
        let (mut nodes, mut rule, mut own) = (&self.0, None, Vec::new());
        for (key, value) in entries {
            let of_key = nodes.iter().filter(|node| node.level.0 == *key);
            let fitting = of_key.filter(|node| node.fit(value).is_some());
            let node = fitting.max_by_key(|node| node.fit(value))?;
            (nodes, rule) = (&node.nested, node.rule);
            own.push(match (node.level.1, address(value)) {
                (Value::Pattern(_, true), _) => String::new(),
                (_, Some(address)) if *key == "remote_address" => address.to_string(),
                _ => (*value).to_owned(),
            });
        }
        Some((rule?, own))
    }
}

/// The field of so many limits, of which the first has more.
fn limits(limits: &[Limit], first: &str) -> String {
    let shown: Vec<String> = limits.iter().map(Limit::to_string).collect();
    match &shown[..] {
        [one] => format!(", rate_limit: {{{first}{one}}}"),
        _ => format!(", rate_limits: [{{{first}{}}}]", shown.join("}, {")),
    }
}

/// The fields of a rule.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.map(|name| format!("name: {name}, "));
        let replaces = self.replaces.map(|name| format!("replaces: [{{name: {name}}}], "));
        let first = name.unwrap_or_default() + &replaces.unwrap_or_default();
        match &self.terms {
            Terms::Nothing => {}
            Terms::Budget(number) => write!(f, ", budget: budget{number}")?,
            Terms::Block => {
                write!(f, ", rate_limit: {{{first}unit: day, requests_per_unit: 0}}")?;
            }
            Terms::Unlimited => write!(f, ", rate_limit: {{{first}unlimited: true}}")?,
            Terms::Limits(all) => f.write_str(&limits(all, &first))?,
        }
        for (field, set) in [("shadow_mode", self.shadow), ("quota_mode", self.quota)] {
            f.write_str(&if set { format!(", {field}: true") } else { String::new() })?;
        }
        let lengths = ["v4_prefix_mask_len: 24, v6_prefix_mask_len: 48", "v4_prefix_mask_len: 16"];
        let wider = self.wider.iter().zip(lengths).filter_map(|(limit, lengths)| {
            Some(format!("{{{lengths}{}}}", limits(&[(*limit)?], "")))
        });
        let wider: Vec<_> = wider.collect();
        if wider.is_empty() { Ok(()) } else { write!(f, ", aggregates: [{}]", wider.join(", ")) }
    }
}

impl Node {
    /// As in a file.
    fn written(&self, rules: &[Rule]) -> String {
        let (key, value) = self.level;
        let value = match value {
            Value::Any => String::new(),
            Value::Exact(value) => format!(", value: '{value}'"),
            Value::Pattern(value, shared) => {
                format!(", value: '{value}', share_threshold: {shared}")
            }
            Value::List([one, other]) => format!(", value: [{one}, {other}]"),
        };
        let rule = self.rule.map_or_else(String::new, |number| rules[number].to_string());
        let nested: Vec<_> = self.nested.iter().map(|node| node.written(rules)).collect();
        let nested = match &nested[..] {
            [] => String::new(),
            _ => format!(", descriptors: [{}]", nested.join(", ")),
        };
        format!("{{key: {key}{value}{rule}{nested}}}")
    }
}

impl File {
    /// Takes a token bucket in the place of what cannot say when a request may go.
    fn only_rates(&mut self) {
        let limits = self.rules.iter_mut().flat_map(|rule| {
            let own =
                if let Terms::Limits(limits) = &mut rule.terms { &mut limits[..] } else { &mut [] };
            own.iter_mut().chain(rule.wider.iter_mut().flatten())
        });
        for limit in
            limits.chain(self.budgets.iter_mut().flatten()).filter(|limit| !limit.is_rate())
        {
            limit.unit = limit.unit.min(4);
            limit.algorithm = Algorithm::Token { burst: limit.amount };
        }
    }
}

/// The file as it is read.
impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "domain: d\nbudgets:")?;
        for (number, all) in self.budgets.iter().enumerate() {
            writeln!(f, "  - {{name: budget{number}{}}}", limits(all, ""))?;
        }
        let Tree(nodes) = Tree::new(self);
        f.write_str(if nodes.is_empty() { "descriptors: []\n" } else { "descriptors:\n" })?;
        nodes.iter().try_for_each(|node| writeln!(f, "  - {}", node.written(&self.rules)))
    }
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        4 => (1..9_u64).prop_map(|burst| Algorithm::Token { burst }),
        2 => select(vec![0, 1, 300, 2000, 70_000])
            .prop_map(|millis| Algorithm::Leaky { backlog: millis * 1_000_000 }),
        2 => Just(Algorithm::Fixed),
        2 => Just(Algorithm::Log),
        1 => Just(Algorithm::Counter),
        1 => (select(vec![2, 4, 8_u64]), any::<bool>())
            .prop_map(|(slots, strict)| Algorithm::Slots { slots, strict }),
    ]
}

pub(super) fn limit() -> impl Strategy<Value = Limit> {
    let units = select(vec![0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6_usize]);
    let ceiling = prop_oneof![
        4 => Just(None),
        1 => (0..3_u64, 1..6_u64).prop_map(Some),
    ];
    let multiplier = select(vec![1, 1, 1, 2, 3_u64]);
    (1..7_u64, units, multiplier, algorithm(), ceiling).prop_map(
        |(amount, unit, multiplier, algorithm, ceiling)| {
            let of_calendar = unit > 4;
            Limit {
                amount,
                unit,
                multiplier: if unit == 6 { 1 } else { multiplier },
                algorithm: if of_calendar { Algorithm::Fixed } else { algorithm },
                ceiling: ceiling
                    .filter(|_| !of_calendar)
                    .map(|(more, burst)| (amount + more, burst)),
            }
        },
    )
}

fn level() -> impl Strategy<Value = Level> {
    let of_text = || {
        prop_oneof![
            4 => Just(Value::Any),
            1 => select(vec!["x", "xy", "other"]).prop_map(Value::Exact),
            1 => (select(vec!["x*", "xy*", "*", "x*y*z"]), any::<bool>())
                .prop_map(|(pattern, shared)| Value::Pattern(pattern, shared)),
            1 => Just(Value::List(["p", "q"])),
        ]
    };
    let of_address = prop_oneof![
        2 => Just(Value::Any),
        1 => select(vec!["192.0.2.0/24", "192.0.2.7", "2001:db8::/32", "2001:db8:0:1::/64"])
            .prop_map(Value::Exact),
    ];
    prop_oneof![
        of_text().prop_map(|value| ("a", value)),
        of_text().prop_map(|value| ("b", value)),
        of_address.prop_map(|value| ("remote_address", value)),
    ]
}

/// Limits of a rule, one of which may have a ceiling, which counts as a limit.
fn limits_of_a_rule() -> impl Strategy<Value = Vec<Limit>> {
    prop::collection::vec(limit(), 1..=3).prop_map(|mut limits| {
        limits.iter_mut().skip(1).for_each(|limit| limit.ceiling = None);
        limits
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let terms = prop_oneof![
        12 => limits_of_a_rule().prop_map(Terms::Limits),
        2 => (0..2_usize).prop_map(Terms::Budget),
        1 => Just(Terms::Block),
        1 => Just(Terms::Unlimited),
        1 => Just(Terms::Nothing),
    ];
    let rarely = || prop::bool::weighted(0.15);
    let name = || prop_oneof![3 => Just(None), 1 => select(vec!["n", "m"]).prop_map(Some)];
    let wider = (prop::option::weighted(0.5, limit()), prop::option::weighted(0.3, limit()));
    let path = prop::collection::vec(level(), 1..=3);
    (path, terms, rarely(), rarely(), name(), name(), wider).prop_map(
        |(mut path, mut terms, shadow, quota, name, replaces, wider)| {
            let mut keys = BTreeSet::new();
            path.retain(|(key, _)| keys.insert(*key));
            if matches!(terms, Terms::Nothing) && path.last().unwrap().1 == Value::Any {
                terms = Terms::Unlimited;
            }
            let limited = matches!(terms, Terms::Limits(_) | Terms::Budget(_));
            let named = !matches!(terms, Terms::Nothing | Terms::Budget(_));
            let of_source = limited && path.contains(&("remote_address", Value::Any));
            let wider = if of_source { [wider.0, wider.1] } else { [None; 2] };
            let wider = wider.map(|limit| limit.map(|limit| Limit { ceiling: None, ..limit }));
            Rule {
                shadow: shadow && limited,
                quota: quota && limited && wider == [None; 2],
                name: name.filter(|_| named),
                replaces: replaces.filter(|other| named && Some(*other) != name),
                path,
                terms,
                wider,
            }
        },
    )
}

pub(super) fn file() -> impl Strategy<Value = File> {
    let budgets = prop::collection::vec(prop::collection::vec(limit(), 1..=2), 2);
    (prop::collection::vec(rule(), 1..=6), budgets, any::<bool>()).prop_map(
        |(rules, budgets, rates)| {
            let mut file = File { rules, budgets };
            if rates {
                file.only_rates();
            }
            file
        },
    )
}
