//! `-m recent`: a rule that notes sources, and one that counts how often they were noted.

use std::collections::BTreeMap;

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, Period, Quota, Unit};

use crate::difference::Difference;
use crate::firewall::{ChainName, Firewall, Key, Limit, Verdict};
use crate::packets::{Family, Packets};
use crate::rate;

/// The most that `sliding_log` holds.
const MOST: u64 = 31;

/// Uses of lists, by chain and name, each with its rule.
pub(super) type Uses = BTreeMap<(ChainName, String), Vec<(usize, Use)>>;

/// Options of one rule.
#[derive(Debug, Default)]
pub(super) struct Recent {
    does: Option<Does>,
    list: Option<String>,
    seconds: Option<u64>,
    hits: Option<u64>,
}

/// Ways in which a rule uses its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Set,
    Check,
    Update,
    Remove,
}

/// Use of a list by a rule.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub(super) list: String,
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
    /// True if it is an option of this module.
    pub(super) fn has(option: &str) -> bool {
        OPTIONS.contains(&option)
    }

    /// True if the option has no value.
    pub(super) fn is_flag(option: &str) -> bool {
        !matches!(option, "--name" | "--seconds" | "--hitcount" | "--mask")
    }

    /// Reads an option.
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

    /// The use of its list.
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

/// Makes a limit of each pair of rules that note and count; marks all others.
pub(super) fn pair(firewall: &mut Firewall, uses: Uses) {
    let mut lists: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ((chain, list), _) in uses.keys().zip(0..) {
        *lists.entry((chain.0.clone(), list.clone())).or_default() += 1;
    }
    for ((chain, list), rules) in uses {
        // ufw has one list for all of its rules: each pair has conditions of its own.
        let mut groups: Vec<Vec<(usize, Use)>> = Vec::new();
        for (rule, used) in rules {
            let same = groups.iter().position(|group| {
                let first = group.first().map(|(first, _)| packets(firewall, *first));
                first == Some(packets(firewall, rule))
            });
            let held = groups.len();
            match same.and_then(|at| groups.get_mut(at)) {
                Some(group) => group.push((rule, used)),
                None if held < MOST_GROUPS => groups.push(vec![(rule, used)]),
                None => refuse(firewall, rule, "its list has more uses than are looked at"),
            }
        }
        let alone = groups.len() == 1 && lists.get(&(chain.0.clone(), list.clone())) == Some(&1);
        for group in groups {
            match limit(firewall, &group, &chain, alone) {
                Ok((rule, limit)) => {
                    if let Some(case) = case(firewall, rule) {
                        case.limit = Some(limit);
                    }
                }
                Err(reason) => {
                    for (rule, _) in group {
                        refuse(firewall, rule, reason);
                    }
                }
            }
        }
    }
}

/// Conditions of different rules that use one list, at most.
const MOST_GROUPS: usize = 64;

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

/// The limit that a pair is.
fn limit(
    firewall: &Firewall,
    group: &[(usize, Use)],
    chain: &ChainName,
    alone: bool,
) -> Result<(usize, Limit), &'static str> {
    let verdict = |rule: usize| {
        let found = firewall.rules.get(rule).and_then(|rule| rule.cases.first());
        found.map(|case| case.verdict.clone())
    };
    let mut counting = None;
    let mut noting = None;
    for (rule, used) in group {
        let twice = match used.does {
            Does::Set => noting.replace(*rule).is_some(),
            // Only tells of it.
            Does::Check if verdict(*rule) == Some(Verdict::Continue) => false,
            Does::Check | Does::Update => counting.replace((*rule, used)).is_some(),
            Does::Remove => true,
        };
        if twice {
            return Err("recent: its list is used in more ways than one pair of rules");
        }
    }
    let (Some(noting), Some((rule, used))) = (noting, counting) else {
        return Err("recent: there is no pair of rules with the same conditions, one to note and \
             one to count: a list that others fill is a ban, as in `action: {ban: ...}`");
    };
    let (Some(seconds), Some(hits)) = (used.seconds, used.hits) else {
        return Err("recent without --seconds and --hitcount is a ban, as in `action: {ban: ...}`");
    };
    // Noted before it is counted, a packet counts itself.
    let first = noting < rule;
    let most = if first { hits - 1 } else { hits };
    let multiplier = u32::try_from(seconds).unwrap_or(u32::MAX);
    if most == 0 || most > MOST || u64::from(multiplier) > Period::most(Unit::Second) {
        return Err("recent: limiter's log holds 1 to 31 packets, and at most 366 days");
    }
    let mut differences = Vec::new();
    if first || used.does == Does::Update {
        differences.push(Difference::Recent(
            "there what is refused counts as well, so who goes on trying stays out; here only what \
             passes counts",
        ));
    }
    if !alone {
        differences.push(Difference::Recent(
            "there its list is shared with other rules, and tries at those count here, too; \
             here not",
        ));
    }
    differences.push(Difference::Full("the oldest sources are forgotten"));
    let family = if chain.0.starts_with('6') { Family::V6 } else { Family::V4 };
    let bits = if family == Family::V4 { 32 } else { 128 };
    let quota = Quota {
        count: Count::Packets,
        requests_per_unit: most,
        period: Period { unit: Unit::Second, multiplier },
    };
    let meter = Meter::SlidingLog(quota);
    let key = vec![Key::Source(bits)];
    Ok((rule, Limit { meter, over: true, key, memory: None, shared: None, differences }))
}
