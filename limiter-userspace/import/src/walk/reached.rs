//! A first walk, before anything is judged: counts the jumps by which packets reach each rule, and
//! finds where their addresses are translated.

use std::collections::BTreeMap;

use super::{DEEPEST, MOST_STEPS, cases, is_said_again};
use crate::firewall::{Chain, ChainName, Firewall, Hook, Verdict};
use crate::packets::Packets;
use crate::translation::Translation;

/// Results of the first walk.
pub(super) struct Found {
    /// Number of jumps by which packets reach each case; unreachable cases are missing.
    pub(super) reached: BTreeMap<(usize, usize), usize>,
    pub(super) translations: Vec<Translation>,
    /// True if the walk was completed.
    pub(super) whole: bool,
}

struct Look<'a> {
    firewall: &'a Firewall,
    found: Found,
    way: Vec<ChainName>,
    steps: usize,
}

/// Walks from every chain with a hook.
pub(super) fn look(firewall: &Firewall) -> Found {
    let found = Found { reached: BTreeMap::new(), translations: Vec::new(), whole: true };
    let mut look = Look { firewall, found, way: Vec::new(), steps: 0 };
    for (name, chain) in &firewall.chains {
        if let Some(hook) = chain.hook {
            look.way = vec![name.clone()];
            look.chain(chain, &name.0, (hook, chain.priority), &chain.packets);
        }
    }
    Found { whole: look.steps <= MOST_STEPS, ..look.found }
}

impl Look<'_> {
    fn chain(&mut self, chain: &Chain, table: &str, hook: (Hook, i64), context: &Packets) {
        let firewall = self.firewall;
        for (at, index, _, case) in cases(firewall, chain, None) {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return;
            }
            let Ok(packets) = context.and(&case.packets) else { continue };
            if is_said_again(firewall, chain, at) {
                continue;
            }
            *self.found.reached.entry((index, at.1)).or_default() += 1;
            match &case.verdict {
                Verdict::Translates(change) => {
                    let (change, (hook, priority)) = (change.clone(), hook);
                    let own = Translation { rule: index, hook, priority, packets, change };
                    self.found.translations.push(own);
                }
                Verdict::Jump(to) | Verdict::Goto(to) if case.limit.is_none() => {
                    let name = (table.to_owned(), to.clone());
                    let follows = self.way.len() <= DEEPEST && !self.way.contains(&name);
                    if let Some(chain) = firewall.chains.get(&name).filter(|_| follows) {
                        self.way.push(name);
                        self.chain(chain, table, hook, &packets);
                        self.way.pop();
                    }
                }
                _ => {}
            }
        }
    }
}
