//! Follows packets through the chains: for each rule, which packets reach it, and what became of
//! the others.

mod between;
mod fate;
mod reached;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::barrier::{Barrier, Gone};
use super::firewall::{Case, Chain, ChainName, Firewall, Hook, Pair, Rule, Verdict};
use super::judge::{Fate, Judge, Kind, Step};
use super::packets::Packets;

/// Maximum depth of jumps, as in nftables.
const DEEPEST: usize = 16;

/// Maximum number of rules to walk; those of a chain count at each jump to it.
const MOST_STEPS: usize = 400_000;

/// Maximum number of comparisons with packets that returned from a chain.
const MOST_EFFORT: usize = 10_000_000;

/// A chain during the walk.
#[derive(Clone, Copy)]
struct Here<'a> {
    chain: &'a Chain,
    table: &'a str,
    hook: Hook,
    priority: i64,
    depth: usize,
    kind: Kind,
}

/// A rule that jumped, and its position.
struct Caller<'a> {
    here: Here<'a>,
    /// Position of the rule in its chain, and of the case in the rule.
    at: (usize, usize),
    /// Packets that reached its chain.
    context: Packets,
    /// True if nothing returns to it.
    goes: bool,
}

pub(super) struct Walk<'a> {
    firewall: &'a Firewall,
    /// Number of jumps by which packets reach each case.
    reached: BTreeMap<(usize, usize), usize>,
    /// Ends of chains found so far.
    ends: RefCell<BTreeMap<ChainName, Verdict>>,
    /// Number of rules that were examined on behalf of others.
    looked: Cell<usize>,
    barriers: Vec<Barrier>,
    /// Number of barriers of returned packets.
    returned: usize,
    way: Vec<ChainName>,
    callers: Vec<Caller<'a>>,
    steps: usize,
    effort: usize,
}

impl<'a> Walk<'a> {
    /// Walks from every chain with a hook, and judges every rule.
    pub(super) fn all(firewall: &'a Firewall, judge: &mut Judge<'a>) {
        let found = reached::look(firewall);
        judge.translations = found.translations;
        let mut walk = Walk {
            firewall,
            reached: found.reached,
            ends: RefCell::default(),
            looked: Cell::new(0),
            barriers: Vec::new(),
            returned: 0,
            way: Vec::new(),
            callers: Vec::new(),
            steps: if found.whole { 0 } else { MOST_STEPS },
            effort: 0,
        };
        let hooked = |(name, chain): (&'a ChainName, &'a Chain)| Some((chain.hook?, name, chain));
        let mut hooked: Vec<_> = firewall.chains.iter().filter_map(hooked).collect();
        hooked.sort_by_key(|(hook, _, chain)| (*hook != Hook::Prerouting, chain.priority));
        // A chain's drops are final for later chains; its accepts count only for itself.
        let mut dropped: Vec<(Hook, Barrier)> = Vec::new();
        for (hook, name, chain) in hooked {
            let before = |of: Hook| of == Hook::Prerouting || of == hook;
            let before = dropped.iter().filter(|(of, _)| before(*of));
            walk.barriers = before.map(|(_, barrier)| barrier.clone()).collect();
            let carried = walk.barriers.len();
            walk.effort += carried;
            walk.returned = 0;
            walk.way = vec![name.clone()];
            let (table, _) = name;
            let priority = chain.priority;
            let kind = Kind::Base { drops: chain.drops };
            let here = Here { chain, table, hook, priority, depth: 0, kind };
            walk.chain(here, &chain.packets, judge);
            let own = walk.barriers.drain(..).skip(carried);
            let own = own.filter(|barrier| barrier.gone == Gone::Dropped && !barrier.partly);
            dropped.extend(own.map(|barrier| (hook, barrier)));
        }
        if walk.steps > MOST_STEPS || walk.effort > MOST_EFFORT {
            judge.cut_short();
        }
        walk.unseen(judge);
    }

    /// Judges the rules of unreachable chains that would decide nothing anyway.
    fn unseen(&self, judge: &mut Judge<'a>) {
        let firewall = self.firewall;
        for ((table, name), chain) in &firewall.chains {
            let end = self.ends(table, &Verdict::Jump(name.clone()));
            if chain.hook.is_none() && end == Verdict::Continue {
                for (_, index, _, case) in cases(firewall, chain, None) {
                    let limits = case.packets.unknown.iter().any(|unknown| unknown.limits);
                    let fate = match case.packets.reasons() {
                        Some(reason) if limits => Fate::Not(reason),
                        _ => Fate::Left("is in a chain that only logs and returns".to_owned()),
                    };
                    judge.fate(index, fate);
                }
            }
        }
    }

    fn chain(&mut self, here: Here<'a>, context: &Packets, judge: &mut Judge<'a>) {
        for (at, index, _, case) in cases(self.firewall, here.chain, None) {
            self.steps += 1;
            if self.steps > MOST_STEPS || self.effort > MOST_EFFORT {
                return;
            }
            let Ok(packets) = context.and(&case.packets) else {
                if !self.reached.contains_key(&(index, at.1)) {
                    judge.never(index, case);
                }
                continue;
            };
            if is_said_again(self.firewall, here.chain, at) {
                judge.jump(index, &packets);
                continue;
            }
            let ends = self.ends(here.table, &case.verdict);
            if let (None, Verdict::Jump(to) | Verdict::Goto(to)) = (&case.limit, &case.verdict) {
                judge.jump(index, &packets);
                self.jump(here, context, at, to, &packets, judge);
                if matches!(case.verdict, Verdict::Goto(_)) {
                    let gone = if here.depth == 0 { Gone::Maybe } else { Gone::Returned };
                    self.bar(packets, gone, false, index);
                }
                continue;
            }
            if let Verdict::Jump(to) | Verdict::Goto(to) = &case.verdict {
                self.stands_for(here.table, to, 0, judge);
            }
            let over = |packets: &Packets| self.over(here, at, context, packets);
            let between = |pair: &Pair| self.between(here, at.0, pair, context, &packets);
            let step = Step {
                rule: index,
                case,
                packets: &packets,
                verdict: &ends,
                hook: here.hook,
                priority: here.priority,
                shared: self.reached.get(&(index, at.1)).is_some_and(|jumps| *jumps > 1),
                kind: here.kind,
                barriers: &self.barriers,
                over: &over,
                between: &between,
            };
            if let Some(gone) = judge.step(&step) {
                self.bar(packets, gone, case.limit.is_some(), index);
            }
        }
    }

    /// Records packets that are gone from here, except those that returned from a chain earlier.
    fn bar(&mut self, packets: Packets, gone: Gone, partly: bool, rule: usize) {
        let mut partly = partly;
        if self.returned > 0 && !partly {
            self.effort += self.barriers.len();
            partly = self.barriers.iter().any(|barrier| {
                barrier.gone == Gone::Returned && !barrier.packets.is_apart(&packets)
            });
        }
        self.returned += usize::from(gone == Gone::Returned);
        self.barriers.push(Barrier { packets, gone, partly, rule });
    }

    fn jump(
        &mut self,
        here: Here<'a>,
        context: &Packets,
        at: (usize, usize),
        to: &str,
        packets: &Packets,
        judge: &mut Judge<'a>,
    ) {
        let firewall = self.firewall;
        let rule = here.chain.rules.get(at.0).copied().unwrap_or_default();
        let name = (here.table.to_owned(), to.to_owned());
        let known = firewall.chains.get(&name);
        let follows = here.depth < DEEPEST && !self.way.contains(&name);
        let Some(chain) = known.filter(|_| follows) else {
            judge.fate(rule, Fate::Not(format!("{to} is no chain or target that can be followed")));
            self.bar(packets.clone(), Gone::Maybe, false, rule);
            return;
        };
        let before = self.barriers.len();
        self.effort += before;
        let quiet = matches!(
            self.ends(here.table, &Verdict::Jump(to.to_owned())),
            Verdict::Continue | Verdict::Marks(_)
        );
        let kind = if quiet { Kind::Quiet } else { Kind::Inner };
        let there = Here { chain, depth: here.depth + 1, kind, ..here };
        let case = firewall.rules.get(rule).and_then(|rule| rule.cases.get(at.1));
        let goes = case.is_some_and(|case| matches!(case.verdict, Verdict::Goto(_)));
        self.callers.push(Caller { here, at, context: context.clone(), goes });
        self.way.push(name);
        self.chain(there, packets, judge);
        self.way.pop();
        self.callers.pop();
        // Packets that returned continue here.
        let mut at = 0;
        self.barriers.retain(|barrier| {
            at += 1;
            at <= before || barrier.gone != Gone::Returned
        });
        self.returned = self.barriers.iter().filter(|b| b.gone == Gone::Returned).count();
    }

    /// True unless too many rules were examined on behalf of others.
    fn looks(&self) -> bool {
        self.looked.set(self.looked.get() + 1);
        self.looked.get() < MOST_EFFORT
    }

    /// Marks the rules of a chain that only receives what is over a limit, or what is within it.
    fn stands_for(&self, table: &str, chain: &str, depth: usize, judge: &mut Judge<'a>) {
        let name = (table.to_owned(), chain.to_owned());
        let Some(chain) = self.firewall.chains.get(&name).filter(|_| depth < DEEPEST) else {
            return;
        };
        for at in chain.rules.iter().take(DEEPEST) {
            judge
                .fate(*at, Fate::Left("is the verdict of rules that jump to its chain".to_owned()));
            for case in self.firewall.rules.get(*at).iter().flat_map(|rule| &rule.cases).take(1) {
                if let Verdict::Jump(to) | Verdict::Goto(to) = &case.verdict {
                    self.stands_for(table, to, depth + 1, judge);
                }
            }
        }
    }
}

/// Cases of a chain in order, all or those after one: the position of each, and the index of its
/// rule.
fn cases<'a>(
    firewall: &'a Firewall,
    chain: &'a Chain,
    behind: Option<(usize, usize)>,
) -> impl Iterator<Item = ((usize, usize), usize, &'a Rule, &'a Case)> {
    let first = behind.map_or(0, |(position, _)| position);
    let cases = chain.rules.iter().enumerate().skip(first).flat_map(|(position, index)| {
        let rule = firewall.rules.get(*index);
        rule.into_iter().flat_map(move |rule| {
            let cases = rule.cases.iter().enumerate();
            cases.map(move |(number, case)| ((position, number), *index, rule, case))
        })
    });
    cases.filter(move |(at, ..)| behind.is_none_or(|of| *at > of))
}

/// True if a later case sends everything that this one matches to the same chain, and no case in
/// between matches any of it: firewalld sends interfaces, and then everything, to one zone.
fn is_said_again(firewall: &Firewall, chain: &Chain, at: (usize, usize)) -> bool {
    let case = |at: (usize, usize)| {
        let rule = chain.rules.get(at.0).and_then(|index| firewall.rules.get(*index));
        rule.and_then(|rule| rule.cases.get(at.1))
    };
    let Some(own) = case(at).filter(|own| matches!(own.verdict, Verdict::Goto(_))) else {
        return false;
    };
    for (.., later) in cases(firewall, chain, Some(at)).take(MOST_ZONES) {
        if later.packets.is_apart(&own.packets) {
            continue;
        }
        if later.verdict != own.verdict || later.limit.is_some() || own.limit.is_some() {
            return false;
        }
        if later.packets.has_all_of(&own.packets) {
            return true;
        }
    }
    false
}

/// Number of cases that are examined for one with the same chain.
const MOST_ZONES: usize = 64;
