//! The rules between the two rules of a pair, one of which notes sources while the other counts how
//! often they were noted. A pair is a limit if the same packets reach both.

use super::{DEEPEST, Here, Walk};
use crate::barrier::Between;
use crate::firewall::{Pair, Verdict};
use crate::packets::Packets;
use crate::taken::{is_loopback, only_sources};

/// Maximum number of rules to examine between the two.
const MOST_LOOKED_AT: usize = 1024;

struct Looking<'p> {
    packets: &'p Packets,
    between: Between,
    looked: usize,
}

impl<'a> Walk<'a> {
    /// Examines what is between the counting rule, at a position of a chain, and the noting one.
    pub(super) fn between(
        &self,
        here: Here<'a>,
        counts: usize,
        pair: &Pair,
        context: &Packets,
        packets: &Packets,
    ) -> Result<Between, String> {
        let rules = &here.chain.rules;
        let noting = self.firewall.rules.get(pair.notes);
        let place = noting.map_or("a rule", |rule| &rule.place);
        let inner = if pair.first {
            let before = rules.get(..counts).unwrap_or_default().iter().rev().take(MOST_LOOKED_AT);
            let at = before.clone().position(|at| *at == pair.notes);
            at.and_then(|at| rules.get(counts - at..counts))
        } else {
            let behind = rules.get(counts + 1..).unwrap_or_default();
            let at = behind.iter().take(MOST_LOOKED_AT).position(|at| *at == pair.notes);
            at.and_then(|at| behind.get(..at))
        };
        let Some(inner) = inner else {
            return Err(format!(
                "recent: {place} notes for it, and is too far from it in its chain"
            ));
        };
        let case = noting.and_then(|rule| rule.cases.first());
        match case.map(|case| self.ends(here.table, &case.verdict)) {
            Some(Verdict::Continue | Verdict::Marks(_)) => {}
            Some(Verdict::Accept | Verdict::Return) if !pair.first => {}
            Some(Verdict::Drop | Verdict::Reject) => {
                return Err(format!(
                    "recent: {place} drops what it notes: that is a ban, as in \
                     `action: {{ban: ...}}`"
                ));
            }
            _ => {
                return Err(format!(
                    "recent: {place} notes packets, and it is not known that they go on"
                ));
            }
        }
        let mut looking = Looking { packets, between: Between::default(), looked: 0 };
        self.look((here.table, inner), context, 0, &mut looking)?;
        Ok(looking.between)
    }

    fn look(
        &self,
        (table, rules): (&str, &[usize]),
        context: &Packets,
        depth: usize,
        looking: &mut Looking<'_>,
    ) -> Result<(), String> {
        let mut some_back = false;
        let rules = rules.iter().filter_map(|at| self.firewall.rules.get(*at));
        for (rule, case) in rules.flat_map(|rule| rule.cases.iter().map(move |case| (rule, case))) {
            looking.looked += 1;
            let takes = || {
                Err(format!(
                    "recent: {} stands between the rule that notes and the one that counts, and \
                     decides on some of their packets",
                    rule.place
                ))
            };
            if looking.looked > MOST_LOOKED_AT || !self.looks() {
                return takes();
            }
            let Ok(own) = context.and(&case.packets) else { continue };
            if own.is_apart(looking.packets) {
                continue;
            }
            if is_loopback(&own) && case.limit.is_none() {
                looking.between.loopback = true;
                continue;
            }
            let sources = only_sources(&own, looking.packets).filter(|_| !some_back);
            match (&case.limit, &case.verdict) {
                (None, Verdict::Jump(to)) if depth < DEEPEST => {
                    let chain = self.firewall.chains.get(&(table.to_owned(), to.clone()));
                    let Some(chain) = chain else { return takes() };
                    self.look((table, &chain.rules), &own, depth + 1, looking)?;
                }
                // It returns to after the jump, past the rules between.
                (_, Verdict::Return) if depth > 0 => some_back = true,
                (None, Verdict::Accept) => match sources {
                    Some(sources) => looking.between.exempt.extend(sources),
                    None => return takes(),
                },
                // Sources that never pass need not be counted.
                (None, Verdict::Drop | Verdict::Reject) if sources.is_some() => {}
                (_, verdict) => match self.ends(table, verdict) {
                    Verdict::Continue | Verdict::Marks(_) => {}
                    _ => return takes(),
                },
            }
        }
        Ok(())
    }
}
