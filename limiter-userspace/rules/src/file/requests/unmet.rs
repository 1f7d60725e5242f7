//! Holes of a file that is good: rules that nothing meets, and requests that no rule is for.

use std::collections::HashSet;
use std::fmt::Write as _;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::super::place::Place;
use super::levels::SOURCE;
use super::model::{
    Entry, EntryValue, Level, LevelValue, Node, Note, RequestFile, RequestRule, RequestTerms,
};
use crate::model::Meter;

/// Notes of one kind; of more of them it is only said how many there are.
const MOST: usize = 3;

/// Siblings that a value is compared with.
const MOST_WIDER: usize = 16;

/// Notes about the holes of a file.
pub(super) fn notes(file: &RequestFile) -> Vec<Note> {
    let names: HashSet<&str> =
        file.rules().iter().filter_map(|(_, rule)| rule.name.as_deref()).collect();
    let mut found = Found::default();
    found.checks(file);
    found.families(&file.nodes);
    found.left_out(&file.nodes, &mut Vec::new());
    for (path, rule) in file.rules() {
        found.rule(&path, rule, &names);
    }
    found.into_notes()
}

/// Notes by their kind.
#[derive(Default)]
struct Found([Vec<Note>; 8]);

impl Found {
    fn add(&mut self, kind: usize, place: Option<Place>, text: impl FnOnce() -> String) {
        let Some(notes) = self.0.get_mut(kind) else { return };
        // What is not shown is counted.
        let text = if notes.len() < MOST { text() } else { String::new() };
        notes.push(Note { place, text });
    }

    fn into_notes(self) -> Vec<Note> {
        let mut all = Vec::new();
        for mut notes in self.0 {
            let more = notes.len().saturating_sub(MOST);
            notes.truncate(MOST);
            if let (Some(last), 1..) = (notes.last_mut(), more) {
                // Strings take everything.
                let _: std::fmt::Result = write!(last.text, " (and {more} more)");
            }
            all.append(&mut notes);
        }
        all
    }

    /// What `check` asks for and no rule is for, and the rules that it does not ask for.
    fn checks(&mut self, file: &RequestFile) {
        if file.check.is_empty() {
            return;
        }
        let (mut met, mut meters) = (HashSet::new(), Vec::new());
        for entries in &file.check {
            let before = met.len();
            if !meets(&file.nodes, entries, &mut |rule| {
                if met.insert(std::ptr::from_ref(rule)) {
                    meters.push(rule);
                }
            }) && met.len() == before
            {
                self.add(0, None, || no_rule(file, entries));
            }
        }
        for (path, rule) in file.rules() {
            if !met.contains(&std::ptr::from_ref(rule)) {
                self.add(1, rule.place, || {
                    let entry = |level: &&Level| match &level.value {
                        LevelValue::Exact(value) => format!("{{key: {}, value: {value}}}", level.key),
                        _ => format!("{{key: {}, header: NAME}}", level.key),
                    };
                    let entries: Vec<String> = path.iter().map(entry).collect();
                    format!(
                        "no check meets the rule `{}`, because `check` makes no descriptor of these \
                         keys: add `- [{}]` to `check`, unless the rule is for programs or Envoy",
                        shown(&path),
                        entries.join(", ")
                    )
                });
            }
        }
        // A limit that cannot wait beside one that can.
        let waits = |rule: &&&RequestRule| matches!(&rule.terms, RequestTerms::Limits(_));
        let (can, cannot): (Vec<&RequestRule>, Vec<&RequestRule>) =
            meters.iter().filter(waits).partition(|rule| can_wait(rule));
        if let (Some(_), Some(rule)) = (can.first(), cannot.first()) {
            self.add(2, rule.place, || {
                "a check meets this rule, whose limits cannot say when a request may go (they are \
                 windows, of a queue, or shared by nodes): with ?wait it is answered at once"
                    .to_owned()
            });
        }
    }

    /// All sources of one family, and none of the other.
    fn families(&mut self, nodes: &[Node]) {
        let (mut nets, mut any, mut place) = (Vec::new(), false, None);
        for node in nodes {
            self.families(&node.nested);
            match &node.level.value {
                _ if &*node.level.key != SOURCE => {}
                LevelValue::Source(net) => {
                    nets.push(*net);
                    if net.prefix_len() == 0 {
                        place = place.or(node.rule.as_ref().and_then(|rule| rule.place));
                    }
                }
                LevelValue::Exact(_) => {}
                LevelValue::Any | LevelValue::Pattern(_) => any = true,
            }
        }
        let nets = IpNet::aggregate(&nets);
        let v4 = nets.contains(&IpNet::V4(Ipv4Net::default()));
        let v6 = nets.contains(&IpNet::V6(Ipv6Net::default()));
        if !any && v4 != v6 {
            self.add(3, place, || {
                let (all, none, other) =
                    if v4 { ("0.0.0.0/0", "IPv6", "::/0") } else { ("::/0", "IPv4", "0.0.0.0/0") };
                format!(
                    "sources of {none} are not in `{all}` and meet no rule here: leave `value` out \
                     to mean both, or list both, as in `value: [{all}, {other:?}]`"
                )
            });
        }
    }

    /// Rules that are not for a value because a more specific one is there, under which nothing
    /// takes their place.
    fn left_out<'a>(&mut self, nodes: &'a [Node], outer: &mut Vec<&'a Level>) {
        for node in nodes {
            let limits = |rule: &RequestRule| rule.terms != RequestTerms::Unlimited;
            // Nothing but an exemption means all that is behind it.
            let is_meant = node.nested.is_empty() && !node.rule.as_ref().is_some_and(limits);
            if !is_meant && node.level.value != LevelValue::Any {
                let wider = nodes.iter().filter(|wider| is_in(&node.level, &wider.level));
                for wider in wider.take(MOST_WIDER) {
                    self.left_out_of(node, wider, outer);
                }
            }
            outer.push(&node.level);
            self.left_out(&node.nested, outer);
            outer.pop();
        }
    }

    fn left_out_of<'a>(&mut self, node: &'a Node, wider: &'a Node, outer: &[&'a Level]) {
        let of = RequestFile { nodes: vec![wider.clone()], ..RequestFile::default() };
        for (path, rule) in of.rules() {
            let ends = path.len() == 1 && (node.rule.is_some() || node.nested.is_empty());
            let is_there = ends || covers(&node.nested, path.get(1..).unwrap_or_default());
            if is_there || rule.terms == RequestTerms::Unlimited {
                continue;
            }
            let place = node.rule.as_ref().and_then(|rule| rule.place).or(rule.place);
            self.add(4, place, || {
                let all: Vec<&Level> = outer.iter().copied().chain(path.iter().copied()).collect();
                let own: Vec<&Level> = outer.iter().copied().chain([&node.level]).collect();
                format!(
                    "the rule `{}` is not for `{}`, which has descriptors of its own, and none of \
                     them takes its place: such requests have no limit; write it there, too, unless \
                     that is meant",
                    shown(&all),
                    shown(&own)
                )
            });
        }
    }

    fn rule(&mut self, path: &[&Level], rule: &RequestRule, names: &HashSet<&str>) {
        for name in rule.replaces.iter().filter(|name| !names.contains(&***name)) {
            self.add(5, rule.place, || {
                format!("`replaces` names {name:?}, and no rule of the file has this name")
            });
        }
        let text = path.iter().find_map(|level| match &level.value {
            LevelValue::Exact(value) if &*level.key == SOURCE => Some(value),
            _ => None,
        });
        if let Some(text) = text {
            self.add(6, rule.place, || {
                format!("{text:?} is no address, so no source meets `{}`", shown(path))
            });
        }
        if rule.shadow && rule.ban.is_some() {
            self.add(7, rule.place, || {
                "`shadow_mode` refuses nobody, so `ban` bans nobody".to_owned()
            });
        }
        for wider in &rule.aggregates {
            if wider.v4.is_some() != wider.v6.is_some() {
                self.add(3, rule.place, || {
                    let (none, field) = if wider.v4.is_some() {
                        ("IPv6", "v6_prefix_mask_len")
                    } else {
                        ("IPv4", "v4_prefix_mask_len")
                    };
                    format!("an aggregate is not for sources of {none}: add `{field}` to mean both")
                });
            }
        }
    }
}

fn shown(path: &[&Level]) -> String {
    path.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Why no rule is for a descriptor of a check.
fn no_rule(file: &RequestFile, entries: &[Entry]) -> String {
    let sorted = |keys: &mut dyn Iterator<Item = &str>| {
        let mut keys: Vec<String> = keys.map(str::to_ascii_lowercase).collect();
        keys.sort_unstable();
        keys
    };
    let keys: Vec<&str> = entries.iter().map(|entry| &*entry.key).collect();
    let asked = sorted(&mut keys.iter().copied());
    let rules = file.rules();
    let alike = rules.iter().find(|(path, _)| {
        sorted(&mut path.iter().map(|level| &*level.key)) == asked
            && path.iter().zip(&keys).any(|(level, key)| &*level.key != *key)
    });
    let keys = keys.join(" ");
    match alike {
        Some((path, _)) => format!(
            "`check` makes descriptors of {keys}, and no rule has these keys: they pass; `{}` has \
             them in another order or other letters",
            shown(path)
        ),
        None => {
            format!("`check` makes descriptors of {keys}, and no rule has these keys: they pass")
        }
    }
}

/// True if a descriptor of a check may fall under something in the file; `met` gets the rules.
fn meets<'a>(nodes: &'a [Node], entries: &[Entry], met: &mut dyn FnMut(&'a RequestRule)) -> bool {
    let Some((entry, rest)) = entries.split_first() else { return false };
    let of_key = || nodes.iter().filter(|node| node.level.key == entry.key);
    // Of a value that is always the same the most specific one is taken, and no other.
    let only = match &entry.value {
        EntryValue::Header(_) => None,
        EntryValue::Fixed(value) => Some(most_specific(of_key(), value)),
    };
    let mut meets_any = false;
    for node in of_key() {
        if only.is_some_and(|only| only.is_none_or(|only| !std::ptr::eq(only, node))) {
            continue;
        }
        // A key with nothing behind it lets its requests pass, as its author says.
        meets_any |= if rest.is_empty() {
            node.rule.iter().for_each(&mut *met);
            node.rule.is_some() || node.nested.is_empty()
        } else {
            meets(&node.nested, rest, met)
        };
    }
    meets_any
}

fn most_specific<'a>(nodes: impl Iterator<Item = &'a Node>, value: &str) -> Option<&'a Node> {
    let rank = |node: &&Node| match &node.level.value {
        LevelValue::Exact(exact) if **exact == *value => Some((3, 0)),
        LevelValue::Source(net) => {
            let source = value.parse().ok()?;
            net.contains::<&std::net::IpAddr>(&source).then_some((2, net.prefix_len().into()))
        }
        LevelValue::Pattern(pattern) => pattern.matches(value).then(|| (1, pattern.literal())),
        LevelValue::Any => Some((0, 0)),
        LevelValue::Exact(_) => None,
    };
    nodes
        .filter_map(|node| Some((rank(&node)?, node)))
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, n)| n)
}

/// True if all values of a level are values of another one, which is wider.
fn is_in(one: &Level, wider: &Level) -> bool {
    one.key == wider.key && one.value != wider.value && takes(&wider.value, &one.value)
}

/// True if a level takes all values of another one.
fn takes(wider: &LevelValue, value: &LevelValue) -> bool {
    match (wider, value) {
        (LevelValue::Any, _) => true,
        (LevelValue::Source(wider), LevelValue::Source(net)) => wider.contains(net),
        (LevelValue::Pattern(pattern), LevelValue::Exact(value)) => pattern.matches(value),
        (wider, value) => wider == value,
    }
}

/// True if nodes have a rule, or nothing on purpose, for all descriptors of a path.
fn covers(nodes: &[Node], path: &[&Level]) -> bool {
    let Some((level, rest)) = path.split_first() else { return false };
    let takes =
        |node: &&Node| node.level.key == level.key && takes(&node.level.value, &level.value);
    nodes.iter().filter(takes).any(|node| {
        let ends = node.rule.is_some() || node.nested.is_empty();
        if rest.is_empty() { ends } else { covers(&node.nested, rest) }
    })
}

/// True if the limits of a rule say when a request may go.
fn can_wait(rule: &RequestRule) -> bool {
    let RequestTerms::Limits(limits) = &rule.terms else { return true };
    let is_rate =
        |meter: &Meter| matches!(meter, Meter::TokenBucket(_) | Meter::LeakyBucket { .. });
    rule.queue.is_none()
        && rule.sharing.is_none()
        && limits.iter().all(|one| is_rate(&one.written.meter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes_of(text: &str) -> Vec<String> {
        let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
        assert!(errors.is_empty(), "{text}\n{errors:?}");
        let own = |note: &Note| !note.text.contains("token bucket");
        file.notes.into_iter().filter(own).map(|note| note.text).collect()
    }

    /// Each file has a hole, and one note that names it; with the hole closed there is none.
    #[test]
    fn a_hole_of_a_file_is_noted_and_only_that() {
        let limit = "rate_limit: {rate: 2/min}";
        let free = "rate_limit: {unlimited: true}";
        let address = "key: remote_address";
        for (rules, closed, words) in [
            // Not all of both families.
            (
                format!("{{{address}, value: 0.0.0.0/0, {limit}}}"),
                format!("{{{address}, value: [0.0.0.0/0, '::/0'], {limit}}}"),
                "sources of IPv6",
            ),
            (
                format!("{{{address}, value: [0.0.0.0/1, 128.0.0.0/1], {limit}}}"),
                format!("{{{address}, value: 128.0.0.0/1, {limit}}}"),
                "sources of IPv6",
            ),
            (
                format!("{{key: k, descriptors: [{{{address}, value: '::/0', {limit}}}]}}"),
                format!("{{key: k, descriptors: [{{{address}, {limit}}}]}}"),
                "sources of IPv4",
            ),
            (
                format!(
                    "{{{address}, {limit}, aggregates: [{{v4_prefix_mask_len: 24, {limit}}}]}}"
                ),
                format!(
                    "{{{address}, {limit}, aggregates: [{{v4_prefix_mask_len: 24, \
                     v6_prefix_mask_len: 48, {limit}}}]}}"
                ),
                "not for sources of IPv6",
            ),
            // An exemption from more than it says.
            (
                format!(
                    "{{{address}, value: 192.0.2.7, descriptors: [{{key: path, value: /api, {free}}}]}}, \
                     {{{address}, descriptors: [{{key: path, value: /api, {limit}}}, {{key: path, {limit}}}]}}"
                ),
                format!(
                    "{{{address}, value: 192.0.2.7, descriptors: [{{key: path, value: /api, {free}}}, \
                     {{key: path, {limit}}}]}}, {{{address}, descriptors: [{{key: path, {limit}}}]}}"
                ),
                "`remote_address path` is not for `remote_address=192.0.2.7/32`",
            ),
            (
                format!(
                    "{{key: tier, value: paid, {limit}}}, {{key: tier, descriptors: [{{key: u, {limit}}}]}}"
                ),
                format!(
                    "{{key: tier, value: paid, {free}}}, {{key: tier, descriptors: [{{key: u, {limit}}}]}}"
                ),
                "`tier u` is not for `tier=paid`",
            ),
            (
                format!(
                    "{{{address}, value: 10.0.0.0/8, descriptors: [{{key: u, {limit}}}]}}, {{{address}, {limit}}}"
                ),
                format!(
                    "{{{address}, value: 10.0.0.0/8, {limit}, descriptors: [{{key: u, {limit}}}]}}, {{{address}, {limit}}}"
                ),
                "`remote_address` is not for `remote_address=10.0.0.0/8`",
            ),
            // Names and values that nothing has.
            (
                "{key: k, rate_limit: {rate: 2/min, replaces: [{name: other}]}}".to_owned(),
                "{key: k, rate_limit: {rate: 2/min, replaces: [{name: other}]}}, \
                 {key: l, rate_limit: {name: other, rate: 2/min}}"
                    .to_owned(),
                "no rule of the file has this name",
            ),
            (
                format!("{{{address}, value: 10.0.0.256, {limit}}}"),
                format!("{{{address}, value: 10.0.0.255, {limit}}}"),
                "no source meets",
            ),
            (
                format!(
                    "{{{address}, {limit}, shadow_mode: true, action: {{ban: {{first: 1min}}}}}}"
                ),
                format!("{{{address}, {limit}, action: {{ban: {{first: 1min}}}}}}"),
                "bans nobody",
            ),
        ] {
            let notes = notes_of(&format!("domain: d\ndescriptors: [{rules}]\n"));
            let [note] = &notes[..] else { panic!("{rules}: {notes:?}") };
            assert!(note.contains(words), "{rules}: {note}");
            let notes = notes_of(&format!("domain: d\ndescriptors: [{closed}]\n"));
            assert!(notes.is_empty(), "{closed}: {notes:?}");
        }
    }

    /// Rules that no check meets, checks that meet no rule, and those that cannot wait.
    #[test]
    fn checks_and_rules_that_do_not_meet_are_noted() {
        let rules = "domain: d\ndescriptors:\n  - key: form\n    value: login\n    rate_limit: \
                     {rate: 5/min}\n    descriptors:\n      - {key: remote_address, rate_limit: \
                     {rate: 3/min}}\n";
        let with = |check: &str| notes_of(&format!("check: [{check}]\n{rules}"));
        let both = "[{key: form, value: login}, {key: remote_address, header: X-Real-IP}]";
        let outer = "[{key: form, value: login}]";
        let notes = with(both);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("no check meets the rule `form=login`"), "{note}");
        assert!(note.contains("add `- [{key: form, value: login}]`"), "{note}");
        assert!(with(&format!("{both}, {outer}")).is_empty());
        let any =
            "[{key: form, header: X}], [{key: form, header: X}, {key: remote_address, header: Y}]";
        assert!(with(any).is_empty());
        // A file whose rules programs ask for.
        assert!(notes_of(rules).is_empty());
        for (check, hint) in [
            ("[{key: remote_address, header: X-Real-IP}, {key: form, value: login}]", true),
            ("[{key: Form, value: login}, {key: remote_address, header: X-Real-IP}]", true),
            ("[{key: form, value: login}, {key: user, header: X-User}]", false),
            ("[{key: form, value: Login}]", false),
        ] {
            let notes = with(&format!("{both}, {outer}, {check}"));
            let [note] = &notes[..] else { panic!("{check}: {notes:?}") };
            assert!(note.contains("no rule has these keys: they pass"), "{check}: {note}");
            assert_eq!(note.contains("another order or other letters"), hint, "{check}: {note}");
        }
        let window = "rate_limit: {unit: hour, requests_per_unit: 9, algorithm: fixed_window}";
        let beside = |other: &str| {
            notes_of(&format!(
                "domain: d\ncheck: [[{{key: a, header: A}}], [{{key: b, header: B}}]]\n\
                 descriptors: [{{key: a, {window}}}, {{key: b, {other}}}]\n"
            ))
        };
        assert!(beside(window).is_empty());
        assert!(beside("rate_limit: {unlimited: true}").is_empty());
        assert!(beside("rate_limit: {rate: 1/s}")[0].contains("?wait"));
    }

    /// Many holes of one kind are three notes.
    #[test]
    fn many_holes_are_few_notes() {
        let rule = |n: u32| {
            format!(
                "  - {{key: k, rate_limit: {{rate: 1/s}}, descriptors: [{{key: n{n}, \
                 rate_limit: {{rate: 1/s}}}}]}}\n"
            )
            .replace("key: k", &format!("key: k{n}"))
        };
        let rules: String = (0..50).map(rule).collect();
        let notes = notes_of(&format!(
            "domain: d\ncheck: [[{{key: k0, header: K}}]]\ndescriptors:\n{rules}"
        ));
        assert_eq!(notes.len(), 3);
        assert!(notes[2].ends_with("(and 96 more)"), "{notes:?}");
    }
}
