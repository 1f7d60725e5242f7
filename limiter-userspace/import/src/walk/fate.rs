//! What happens to packets in a chain, and to packets over a limit.

use super::{Caller, DEEPEST, Here, Walk, cases};
use crate::firewall::{Chain, Verdict};
use crate::packets::Packets;

/// Maximum number of rules to examine after a limit.
const MOST_LOOKED_AT: usize = 1024;

/// Maximum number of rules in a chain for which one end is searched.
const MOST_OF_CHAIN: usize = 16;

/// What happens to packets in a chain.
enum Way {
    /// A rule drops all of them; true if it drops nothing else.
    Dropped(usize, bool),
    /// All that are not dropped reach its end, or return.
    Ends,
}

/// Number of examined rules, and the current depth of chains.
#[derive(Default)]
struct Looked {
    rules: usize,
    depth: usize,
}

impl<'a> Walk<'a> {
    /// Resolves a verdict: a jump to a chain that decides everything, or nothing, becomes that
    /// chain's verdict.
    pub(super) fn ends(&self, table: &str, verdict: &Verdict) -> Verdict {
        self.ends_from(0, table, verdict)
    }

    fn ends_from(&self, depth: usize, table: &str, verdict: &Verdict) -> Verdict {
        let (Verdict::Jump(to) | Verdict::Goto(to)) = verdict else { return verdict.clone() };
        match self.of_chain(depth, table, to) {
            // It continues at a place that this search does not follow.
            Verdict::Continue | Verdict::Marks(_) if matches!(verdict, Verdict::Goto(_)) => {
                Verdict::Unknown(format!("chain {to}"))
            }
            end => end,
        }
    }

    fn of_chain(&self, depth: usize, table: &str, name: &str) -> Verdict {
        let unknown = || Verdict::Unknown(format!("chain {name}"));
        let key = (table.to_owned(), name.to_owned());
        if let Some(known) = self.ends.borrow().get(&key) {
            return known.clone();
        }
        let known = self.firewall.chains.get(&key).filter(|_| depth < DEEPEST);
        let Some(chain) = known else { return unknown() };
        // A walk that returns here is a cycle.
        self.ends.borrow_mut().insert(key.clone(), unknown());
        let end = self.of_rules(depth + 1, table, chain).unwrap_or_else(unknown);
        self.ends.borrow_mut().insert(key, end.clone());
        end
    }

    /// The single end of everything that enters a chain; `None` if there is more than one.
    fn of_rules(&self, depth: usize, table: &str, chain: &Chain) -> Option<Verdict> {
        if chain.rules.len() > MOST_OF_CHAIN {
            return None;
        }
        let mut went_on = Verdict::Continue;
        // Some returned, as from chains that log.
        let mut some_back = false;
        for (.., case) in cases(self.firewall, chain, None) {
            let all = case.limit.is_none() && case.packets == Packets::default();
            match self.ends_from(depth, table, &case.verdict) {
                Verdict::Continue => {}
                marks @ Verdict::Marks(_) => went_on = marks,
                Verdict::Return if all => return Some(went_on),
                Verdict::Return => some_back = true,
                end @ (Verdict::Accept | Verdict::Drop | Verdict::Reject) if all && !some_back => {
                    return Some(end);
                }
                _ => return None,
            }
        }
        Some(went_on)
    }

    /// The rule that drops what is over a limit whose rule accepts what is within it; `None` if the
    /// policy drops the rest. The boolean tells whether it drops nothing else.
    pub(super) fn over(
        &self,
        here: Here<'a>,
        at: (usize, usize),
        context: &Packets,
        packets: &Packets,
    ) -> Result<Option<(usize, bool)>, String> {
        let mut looked = Looked::default();
        let mut callers = self.callers.iter().rev();
        let (mut here, mut at, mut context) = (here, at, context);
        loop {
            let (chain, behind) = ((here.table, here.chain), Some(at));
            let way = self.down(chain, behind, context, packets, &mut looked)?;
            if let Way::Dropped(rule, only) = way {
                return Ok(Some((rule, only)));
            }
            // After the jump, or after the previous one if nothing returns to it.
            let back: Option<&Caller<'a>> = callers.find(|caller| !caller.goes);
            let Some(caller) = back.filter(|_| here.depth > 0) else { break };
            (here, at, context) = (caller.here, caller.at, &caller.context);
        }
        let base = self.callers.first().map_or(here, |caller| caller.here);
        if base.chain.drops {
            return Ok(None);
        }
        Err("no rule behind it drops what is over it".to_owned())
    }

    /// Follows packets through a chain, from after a case if one is given.
    fn down(
        &self,
        (table, chain): (&str, &Chain),
        behind: Option<(usize, usize)>,
        context: &Packets,
        packets: &Packets,
        looked: &mut Looked,
    ) -> Result<Way, String> {
        let mut some_back = false;
        for (_, index, rule, case) in cases(self.firewall, chain, behind) {
            looked.rules += 1;
            if looked.rules > MOST_LOOKED_AT || looked.depth > DEEPEST || !self.looks() {
                return Err("there are too many rules behind it to follow what is over it".into());
            }
            let Ok(own) = context.and(&case.packets) else { continue };
            if own.is_apart(packets) {
                continue;
            }
            let all = own.has_all_of(packets);
            let on = || {
                let place = &rule.place;
                Err(format!("what is over it goes on to {place}, which does not drop all of it"))
            };
            match (&case.limit, &case.verdict) {
                (_, Verdict::Continue | Verdict::Marks(_)) => {}
                (Some(limit), verdict) => match self.ends(table, verdict) {
                    Verdict::Continue | Verdict::Marks(_) => {}
                    // It drops some packets, and the rest continue.
                    Verdict::Drop | Verdict::Reject if limit.over => {}
                    _ => return on(),
                },
                (None, Verdict::Drop | Verdict::Reject) if all => {
                    let only = packets.has_all_of(&own);
                    return Ok(if some_back { Way::Ends } else { Way::Dropped(index, only) });
                }
                (None, Verdict::Drop | Verdict::Reject) => {}
                (None, Verdict::Return) if all => return Ok(Way::Ends),
                (None, Verdict::Return) => some_back = true,
                (None, verdict @ (Verdict::Jump(to) | Verdict::Goto(to))) => {
                    let name = (table.to_owned(), to.clone());
                    let Some(chain) = self.firewall.chains.get(&name) else { return on() };
                    let goes = matches!(verdict, Verdict::Goto(_));
                    looked.depth += 1;
                    let way = self.down((table, chain), None, &own, packets, looked)?;
                    looked.depth -= 1;
                    match (way, all, goes) {
                        (Way::Dropped(..), true, _) if some_back => return Ok(Way::Ends),
                        (dropped @ Way::Dropped(..), true, _) => return Ok(dropped),
                        (Way::Ends, true, true) => return Ok(Way::Ends),
                        (Way::Ends, false, true) => some_back = true,
                        _ => {}
                    }
                }
                _ => return on(),
            }
        }
        Ok(Way::Ends)
    }
}
