//! `-m recent`: one rule notes sources, and another counts how often they were noted.

use std::collections::BTreeMap;

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, Period, Quota, Unit};

use crate::difference::Difference;
use crate::firewall::{ChainName, Firewall, Key, Limit, Pair, Verdict};
use crate::packets::{Family, Packets};
use crate::rate;

/// The largest count that `sliding_log` holds.
const MOST: u64 = 31;

/// The use of a list by a rule in a chain.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) chain: ChainName,
    pub(super) rule: usize,
    pub(super) how: Use,
    /// True if it notes, and its rule only reports what it counts, like a log.
    pub(super) reports: bool,
}

#[derive(Debug, Default)]
pub(super) struct Recent {
    does: Option<Does>,
    list: Option<String>,
    seconds: Option<u64>,
    hits: Option<u64>,
}

/// How a rule uses its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Set,
    Check,
    Update,
    Remove,
}

/// A rule's use of a list.
#[derive(Clone, Debug)]
pub(super) struct Use {
    list: String,
    does: Does,
    seconds: Option<u64>,
    hits: Option<u64>,
}

const OPTIONS: [&str; 12] = [
    "--set",
    "--rcheck",
    "--update",
    "--remove",
    "--name",
    "--seconds",
    "--hitcount",
    "--reap",
    "--rttl",
    "--rsource",
    "--rdest",
    "--mask",
];

impl Recent {
    pub(super) fn has(option: &str) -> bool {
        OPTIONS.contains(&option)
    }

    /// True if the option has no value.
    pub(super) fn is_flag(option: &str) -> bool {
        !matches!(option, "--name" | "--seconds" | "--hitcount" | "--mask")
    }

    pub(super) fn option(
        &mut self,
        option: &str,
        value: Option<String>,
        not: bool,
        packets: &mut Packets,
    ) {
        let value = value.unwrap_or_default();
        let does = match option {
            "--set" => Some(Does::Set),
            "--rcheck" => Some(Does::Check),
            "--update" => Some(Does::Update),
            "--remove" => Some(Does::Remove),
            _ => None,
        };
        if not || (does.is_some() && self.does.is_some()) {
            packets.lacks_limit(format!("`{option}` of recent is negated, or one of two"));
        }
        match option {
            _ if does.is_some() => self.does = does,
            "--name" => self.list = Some(value),
            "--seconds" => self.seconds = rate::number(&value),
            "--hitcount" => self.hits = rate::number(&value),
            "--rsource" | "--reap" => {}
            "--mask"
                if matches!(
                    value.as_str(),
                    "255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
                ) => {}
            _ => packets.lacks_limit(format!("{option} of recent")),
        }
    }

    pub(super) fn used(self, packets: &mut Packets) -> Option<Use> {
        let Self { does, list, seconds, hits } = self;
        let Some(does) = does else {
            packets.lacks_limit("recent without what it is to do");
            return None;
        };
        let list = list.unwrap_or_else(|| "DEFAULT".to_owned());
        Some(Use { list, does, seconds, hits })
    }
}

/// Makes a limit of each pair of a noting and a counting rule, and marks all other uses. If a list
/// is used in any other way, its rules are not limits.
pub(super) fn pair(firewall: &mut Firewall, uses: Vec<Used>) {
    // All tables share the lists; each list belongs to one address family.
    let places = places(firewall);
    let mut lists: BTreeMap<String, Vec<Used>> = BTreeMap::new();
    for mut used in uses {
        let case = firewall.rules.get(used.rule).and_then(|rule| rule.cases.first());
        let reports = case.is_some_and(|case| case.verdict == Verdict::Continue);
        used.reports = reports && used.how.does == Does::Update;
        // A rule that only reports changes nothing.
        if used.how.does != Does::Check || !reports {
            let family = if used.chain.0.starts_with('6') { 6 } else { 4 };
            let list = format!("{} of IPv{family}", used.how.list);
            lists.entry(list).or_default().push(used);
        }
    }
    for (list, uses) in lists {
        let groups = groups(firewall, &uses);
        let alone = groups.len() == 1;
        let limits: Vec<_> =
            groups.iter().map(|group| limit(group, &places, &list, alone)).collect();
        let broken = limits.iter().zip(&groups).find(|(limit, _)| limit.is_err());
        let broken = broken.and_then(|(_, group)| group.first()).map(|used| used.rule);
        let place = broken.and_then(|rule| firewall.rules.get(rule)).map(|rule| rule.place.clone());
        for (limit, group) in limits.into_iter().zip(groups) {
            let reason = match (limit, &place) {
                (Ok((rule, limit)), None) => {
                    if let Some(case) = case(firewall, rule) {
                        case.limit = Some(limit);
                    }
                    continue;
                }
                (Ok(_), Some(place)) => format!(
                    "recent: {place} uses its list as well, and not as one of a pair: what that \
                     notes, or takes off, is not counted here"
                ),
                (Err(reason), _) => reason.to_owned(),
            };
            for used in group {
                refuse(firewall, used.rule, &reason);
            }
        }
    }
}

/// Groups the uses of one list by chain and conditions.
fn groups<'a>(firewall: &Firewall, uses: &'a [Used]) -> Vec<Vec<&'a Used>> {
    let mut groups: Vec<Vec<&Used>> = Vec::new();
    for used in uses {
        // ufw has one list for all of its rules: each pair has its own conditions.
        let is_same = |group: &Vec<&Used>| {
            group.first().is_some_and(|first| {
                first.chain == used.chain
                    && packets(firewall, first.rule) == packets(firewall, used.rule)
            })
        };
        // Uses beyond the maximum belong to no group that is a pair.
        let same = if groups.len() < MOST_GROUPS { groups.iter().position(is_same) } else { None };
        match same.and_then(|at| groups.get_mut(at)) {
            Some(group) => group.push(used),
            None => groups.push(vec![used]),
        }
    }
    groups
}

/// The most different conditions of rules that use one list.
const MOST_GROUPS: usize = 256;

fn packets(firewall: &Firewall, rule: usize) -> Option<&Packets> {
    firewall.rules.get(rule)?.cases.first().map(|case| &case.packets)
}

fn case(firewall: &mut Firewall, rule: usize) -> Option<&mut crate::firewall::Case> {
    firewall.rules.get_mut(rule)?.cases.first_mut()
}

fn refuse(firewall: &mut Firewall, rule: usize, reason: &str) {
    if let Some(case) = case(firewall, rule) {
        case.packets.lacks_limit(reason);
    }
}

/// Positions of rules in their chains.
fn places(firewall: &Firewall) -> BTreeMap<usize, usize> {
    let chains = firewall.chains.values();
    chains.flat_map(|chain| chain.rules.iter().copied().zip(0..)).collect()
}

/// The limit that a pair stands for.
fn limit(
    group: &[&Used],
    places: &BTreeMap<usize, usize>,
    list: &str,
    alone: bool,
) -> Result<(usize, Limit), &'static str> {
    let mut counting = None;
    let mut noting = None;
    let reported: Vec<&&Used> = group.iter().filter(|used| used.reports).collect();
    for Used { chain, rule, how: used, .. } in group.iter().copied().filter(|used| !used.reports) {
        let twice = match used.does {
            Does::Set => noting.replace(*rule).is_some(),
            Does::Check | Does::Update => counting.replace((chain, *rule, used)).is_some(),
            Does::Remove => true,
        };
        if twice {
            return Err("recent: its list is used in more ways than one pair of rules");
        }
    }
    let (Some(noting), Some((chain, rule, used))) = (noting, counting) else {
        return Err("recent: there is no pair of rules with the same conditions, one to note and \
             one to count: a list that others fill is a ban, as in `action: {ban: ...}`");
    };
    let (Some(seconds), Some(hits)) = (used.seconds, used.hits) else {
        return Err("recent without --seconds and --hitcount is a ban, as in `action: {ban: ...}`");
    };
    // A log of rejected packets with the numbers of the rejecting rule notes nothing else.
    if reported.iter().any(|log| (log.how.seconds, log.how.hits) != (used.seconds, used.hits)) {
        return Err(
            "recent: a rule that logs notes in its list as well, by other numbers than the \
             rule that drops: what that notes is not counted here",
        );
    }
    // If it is noted before it is counted, a packet counts itself.
    let first = places.get(&noting) < places.get(&rule);
    let most = if first { hits - 1 } else { hits };
    let multiplier = u32::try_from(seconds).unwrap_or(u32::MAX);
    if u64::from(multiplier) > Period::most(Unit::Second) {
        return Err("recent: limiter counts within 366 days at most");
    }
    if most == 0 {
        return Err(
            "recent: it lets nothing pass: leave it in the firewall, or write a rule with \
             `action: drop` by hand",
        );
    }
    if most > MOST {
        return Err("recent: a log of limiter's holds at most 31 packets: write a rule with \
             `algorithm: sliding_counter` by hand, which holds any number, weighted");
    }
    let mut differences = Vec::new();
    if first || used.does == Does::Update || !reported.is_empty() {
        differences.push(Difference::Refused);
    }
    if !alone {
        differences.push(Difference::Shared);
    }
    differences.push(Difference::Full("the oldest sources are forgotten"));
    let family = if chain.0.starts_with('6') { Family::V6 } else { Family::V4 };
    let bits = if family == Family::V4 { 32 } else { 128 };
    let quota = Quota::new(Count::Packets, most, Period { unit: Unit::Second, multiplier });
    let meter = Meter::SlidingLog(quota);
    let key = vec![Key::Source(bits)];
    let pair = Some(Pair { list: list.to_owned(), notes: noting, first });
    Ok((rule, Limit { meter, over: true, key, memory: None, shared: None, pair, differences }))
}
