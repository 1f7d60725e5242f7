//! The way of a packet through the chains: for each rule, which packets come as far, and what
//! became of the others before.

use std::collections::BTreeMap;

use super::barrier::{Barrier, Gone};
use super::firewall::{Chain, ChainName, Firewall, Hook, Verdict};
use super::judge::{Fate, Judge, Step};
use super::packets::Packets;

/// How deep chains may jump: as many as nftables allows.
const DEEPEST: usize = 16;

/// The most rules that are walked, those of a chain counted at each jump to it.
const MOST_STEPS: usize = 400_000;

/// Most comparisons with what returned from a chain.
const MOST_EFFORT: usize = 10_000_000;

/// A chain on the way.
#[derive(Clone, Copy)]
struct Here<'a> {
    chain: &'a Chain,
    table: &'a str,
    hook: Hook,
    depth: usize,
    /// True if several rules jump to it.
    shared: bool,
}

/// Walks through a rule set.
pub(super) struct Walk<'a> {
    firewall: &'a Firewall,
    jumps: BTreeMap<ChainName, usize>,
    barriers: Vec<Barrier>,
    /// Number of barriers that returned.
    returned: usize,
    /// Chains on the way.
    way: Vec<ChainName>,
    steps: usize,
    effort: usize,
}

impl<'a> Walk<'a> {
    /// Walks from every chain with a hook, and has every rule judged.
    pub(super) fn all(firewall: &'a Firewall, judge: &mut Judge<'a>) {
        let mut jumps: BTreeMap<ChainName, usize> = BTreeMap::new();
        for ((table, _), chain) in &firewall.chains {
            for case in
                chain.rules.iter().filter_map(|at| firewall.rules.get(*at)).flat_map(|r| &r.cases)
            {
                if let Verdict::Jump(to) | Verdict::Goto(to) = &case.verdict {
                    *jumps.entry((table.clone(), to.clone())).or_default() += 1;
                }
            }
        }
        let mut walk = Walk {
            firewall,
            jumps,
            barriers: Vec::new(),
            returned: 0,
            way: Vec::new(),
            steps: 0,
            effort: 0,
        };
        let hooked = |(name, chain): (&'a ChainName, &'a Chain)| Some((chain.hook?, name, chain));
        let mut hooked: Vec<_> = firewall.chains.iter().filter_map(hooked).collect();
        hooked.sort_by_key(|(hook, _, chain)| (*hook != Hook::Prerouting, chain.priority));
        // Chains drop for those behind them, and accept for themselves alone.
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
            let here = Here { chain, table, hook, depth: 0, shared: false };
            walk.chain(here, &chain.packets, judge);
            let own = walk.barriers.drain(..).skip(carried);
            let own = own.filter(|barrier| barrier.gone == Gone::Dropped && !barrier.partly);
            dropped.extend(own.map(|barrier| (hook, barrier)));
        }
        if walk.steps > MOST_STEPS || walk.effort > MOST_EFFORT {
            judge.cut_short();
        }
    }

    fn chain(&mut self, here: Here<'a>, context: &Packets, judge: &mut Judge<'a>) {
        let firewall = self.firewall;
        for (position, at) in here.chain.rules.iter().enumerate() {
            let Some(rule) = firewall.rules.get(*at) else { continue };
            for (number, case) in rule.cases.iter().enumerate() {
                self.steps += 1;
                if self.steps > MOST_STEPS || self.effort > MOST_EFFORT {
                    return;
                }
                let Ok(packets) = context.and(&case.packets) else {
                    judge.never(*at, case);
                    continue;
                };
                let ends = self.ends(here.table, &case.verdict, 0);
                if let (None, Verdict::Jump(to) | Verdict::Goto(to)) = (&case.limit, &case.verdict)
                {
                    judge.jump(*at, &packets);
                    self.jump(here, to, &packets, *at, judge);
                    if matches!(case.verdict, Verdict::Goto(_)) {
                        let gone = if here.depth == 0 { Gone::Maybe } else { Gone::Returned };
                        self.bar(packets, gone, false, *at);
                    }
                    continue;
                }
                if let Verdict::Jump(to) | Verdict::Goto(to) = &case.verdict {
                    self.stands_for(here.table, to, 0, judge);
                }
                let over =
                    |packets: &Packets| self.over(here, (position, number), context, packets);
                let step = Step {
                    rule: *at,
                    case,
                    packets: &packets,
                    verdict: &ends,
                    hook: here.hook,
                    shared: here.shared,
                    base: here.depth == 0,
                    drops: here.chain.drops,
                    barriers: &self.barriers,
                    over: &over,
                };
                if let Some(gone) = judge.step(&step) {
                    self.bar(packets, gone, case.limit.is_some(), *at);
                }
            }
        }
    }

    /// Packets that are gone from here, but for those that returned from a chain before.
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
        to: &str,
        packets: &Packets,
        rule: usize,
        judge: &mut Judge<'a>,
    ) {
        let name = (here.table.to_owned(), to.to_owned());
        let known = self.firewall.chains.get(&name);
        let follows = here.depth < DEEPEST && !self.way.contains(&name);
        let Some(chain) = known.filter(|_| follows) else {
            judge.fate(rule, Fate::Not(format!("{to} is no chain or target that can be followed")));
            self.bar(packets.clone(), Gone::Maybe, false, rule);
            return;
        };
        let shared = here.shared || self.jumps.get(&name).is_some_and(|jumps| *jumps > 1);
        let before = self.barriers.len();
        self.effort += before;
        let there = Here { chain, depth: here.depth + 1, shared, ..here };
        self.way.push(name);
        self.chain(there, packets, judge);
        self.way.pop();
        // Packets that returned come on here.
        let mut at = 0;
        self.barriers.retain(|barrier| {
            at += 1;
            at <= before || barrier.gone != Gone::Returned
        });
        self.returned = self.barriers.iter().filter(|b| b.gone == Gone::Returned).count();
    }

    /// Marks the rules of a chain to which only what is over a limit comes, or what is within.
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

    /// The verdict that a verdict comes to: that of a chain which decides on everything.
    fn ends(&self, table: &str, verdict: &Verdict, depth: usize) -> Verdict {
        let (Verdict::Jump(to) | Verdict::Goto(to)) = verdict else { return verdict.clone() };
        let unknown = || Verdict::Unknown(format!("chain {to}"));
        let name = (table.to_owned(), to.clone());
        let Some(chain) = self.firewall.chains.get(&name).filter(|_| depth < DEEPEST) else {
            return unknown();
        };
        let mut went_on = Verdict::Continue;
        for rule in chain.rules.iter().take(DEEPEST).filter_map(|at| self.firewall.rules.get(*at)) {
            for case in &rule.cases {
                match self.ends(table, &case.verdict, depth + 1) {
                    Verdict::Continue => {}
                    marks @ Verdict::Marks(_) => went_on = marks,
                    end @ (Verdict::Accept | Verdict::Drop | Verdict::Reject | Verdict::Return)
                        if case.limit.is_none() && case.packets == Packets::default() =>
                    {
                        return if end == Verdict::Return { went_on } else { end };
                    }
                    _ => return unknown(),
                }
            }
        }
        if chain.rules.len() > DEEPEST || matches!(verdict, Verdict::Goto(_)) {
            return unknown();
        }
        went_on
    }

    /// The rule that drops what is over a limit whose rule accepts what is within it; none where
    /// the chain drops what no rule decides. True beside it if it drops nothing else.
    fn over(
        &self,
        here: Here<'_>,
        (position, number): (usize, usize),
        context: &Packets,
        packets: &Packets,
    ) -> Result<Option<(usize, bool)>, String> {
        let later = here.chain.rules.iter().enumerate().skip(position).take(MOST_LOOKED_AT);
        for (index, at) in later {
            let Some(rule) = self.firewall.rules.get(*at) else { continue };
            for (other, case) in rule.cases.iter().enumerate() {
                if index == position && other <= number {
                    continue;
                }
                let Ok(own) = context.and(&case.packets) else { continue };
                if own.is_apart(packets) {
                    continue;
                }
                let place = &rule.place;
                match self.ends(here.table, &case.verdict, 0) {
                    Verdict::Continue | Verdict::Marks(_) => {}
                    Verdict::Drop | Verdict::Reject if case.limit.is_none() => {
                        if own.has_all_of(packets) {
                            return Ok(Some((*at, packets.has_all_of(&own))));
                        }
                        return Err(format!("{place} drops only a part of what is over it"));
                    }
                    _ => {
                        return Err(format!(
                            "what is over it goes on to {place}, which does not drop all of it"
                        ));
                    }
                }
            }
        }
        if here.depth == 0 && here.chain.drops && here.chain.rules.len() < position + MOST_LOOKED_AT
        {
            return Ok(None);
        }
        Err("no rule behind it in its chain drops what is over it".to_owned())
    }
}

/// Rules behind a limit that are looked at.
const MOST_LOOKED_AT: usize = 512;
