//! Packets as they are on the wire, if a rule sees them after address translation or after rules
//! that change their headers.

use limiter_rules::model::Fact;

use super::{Judge, Step};
use crate::difference::Difference;
use crate::firewall::{Hook, Key, Limit, Rewrite, Verdict, Written};
use crate::packets::{Packets, state};
use crate::translation::{To, Translation};

impl Judge<'_> {
    /// The packets of a limit as they are on the wire. Also returns a port that needs its own
    /// bucket here but not in the other program.
    pub(super) fn on_the_wire(
        &mut self,
        step: &Step<'_>,
        limit: &Limit,
        established: bool,
        differences: &mut Vec<Difference>,
    ) -> Result<(Packets, Option<u16>), String> {
        self.spend(self.translations.len() + self.firewall.rewrites.len())?;
        let mut packets = step.packets.clone();
        let opens = established || packets.states.is_some_and(|states| states == state::NEW);
        if packets.translated {
            return Err("is for connections whose destination was translated: write a rule for \
                 what they have on the wire by hand"
                .to_owned());
        }
        let place = (step.hook, step.priority);
        let changes = |of: &&Translation| of.changes(place, &packets, limit, opens);
        let changing: Vec<&Translation> =
            self.translations.iter().filter(changes).take(2).collect();
        let mut beside = None;
        if let Some(by) = changing.first() {
            let alone = changing.len() == 1;
            let port = self.port_before(by, step, limit, differences).filter(|_| alone);
            let (from, to) = port.ok_or_else(|| {
                format!(
                    "{} translates addresses or ports of some of its packets, and limiter sees \
                     them as they are on the wire: write a rule for those by hand, or ask for \
                     `--ctorigdstport` there",
                    self.place(by.rule)
                )
            })?;
            let one_range = from.abs_diff(to) == 1 && !limit.key.contains(&Key::Port);
            if limit.key.is_empty() || one_range {
                packets.ports = Some(vec![(from, from), (to, to)]);
            } else {
                beside = Some(from);
                let place = self.place(by.rule);
                differences.push(Difference::Redirected { place, from, to });
            }
        }
        self.is_as_sent(step, limit)?;
        let original = std::mem::take(&mut packets.original);
        let named = original.ports.is_some() || original.destinations.is_some();
        // Replies have source and destination swapped.
        if !opens && !original.way && named {
            return Err("is for a connection by its first destination, and so for its replies: \
                 `--ctdir ORIGINAL` leaves those out"
                .to_owned());
        }
        if !opens && original.way && !named {
            return Err(
                "counts by the direction of a connection, which limiter does not see".into()
            );
        }
        if (original.ports.is_some() && packets.ports.is_some())
            || (original.destinations.is_some() && packets.destinations.is_some())
        {
            return Err("names a destination both on the wire and behind its translation".into());
        }
        // Buckets use what the rule sees.
        let keyed = |key: Key| limit.key.contains(&key);
        if (original.ports.is_some() && keyed(Key::Port))
            || (original.destinations.is_some() && keyed(Key::Destination))
        {
            return Err("its buckets are by a destination that may be translated".to_owned());
        }
        packets.ports = packets.ports.or(original.ports);
        packets.destinations = packets.destinations.or(original.destinations);
        packets.settle().map_err(|_never| "its addresses are of several families".to_owned())?;
        if step.hook == Hook::Forward {
            // The time to live is decremented before forwarding is decided.
            if let Some(ranges) = packets.facts.get_mut(&Fact::Ttl) {
                for (low, high) in ranges.iter_mut() {
                    *low = (*low + 1).min(255);
                    *high = (*high + 1).min(255);
                }
            }
        }
        Ok((packets, beside))
    }

    /// The ports on the wire and after it of packets that a rule redirects to the only port of a
    /// limit; `None` if that rule has conditions, or another rule also affects these packets.
    fn port_before(
        &self,
        by: &Translation,
        step: &Step<'_>,
        limit: &Limit,
        differences: &mut Vec<Difference>,
    ) -> Option<(u16, u16)> {
        let (wire, packets) = (&by.packets, step.packets);
        let (&[(from, last)], To::One((to, end))) = (wire.ports.as_deref()?, &by.change.ports)
        else {
            return None;
        };
        let alone = Packets {
            family: packets.family.filter(|_| wire.family.is_some()),
            protocols: wire.protocols.clone().filter(|protocols| protocols.len() == 1),
            ports: Some(vec![(from, from)]),
            ..Packets::default()
        };
        let fits = by.hook == Hook::Nat
            && by.change.here
            && step.hook == Hook::Input
            && (from, to) == (last, end)
            && *wire == alone
            && packets.protocols == alone.protocols
            && packets.ports == Some(vec![(*to, *to)])
            && packets.destinations.is_none()
            && packets.original == alone.original
            && !limit.key.contains(&Key::Destination);
        let others = || {
            let others = self.translations.iter().filter(|other| other.rule != by.rule);
            let mut others = others.filter(|other| !other.change.source && other.hook == Hook::Nat);
            others.all(|other| other.packets.is_apart(wire))
                && self.firewall.untracked.iter().all(|(_, packets)| packets.is_apart(wire))
        };
        if !fits || !others() {
            return None;
        }
        let mut dropped = Vec::new();
        for chain in self.firewall.chains.values().filter(|chain| !chain.rules.is_empty()) {
            let rules = match chain.hook {
                Some(Hook::Nat) => {
                    // With several chains, their order would have to be known.
                    let at = chain.rules.iter().position(|rule| *rule == by.rule)?;
                    chain.rules.get(..at)?
                }
                Some(Hook::Prerouting) if chain.priority <= by.priority => &chain.rules,
                _ => continue,
            };
            let rules = rules.iter().filter_map(|at| Some((*at, self.firewall.rules.get(*at)?)));
            let cases = rules.flat_map(|(at, rule)| rule.cases.iter().map(move |case| (at, case)));
            for (at, case) in cases.filter(|(_, case)| !case.packets.is_apart(wire)) {
                match (&case.verdict, &case.limit) {
                    (Verdict::Continue | Verdict::Marks(_), _) => {}
                    _ if chain.hook == Some(Hook::Nat) => return None,
                    // These only end their own chain, or apply their own limit.
                    (Verdict::Accept | Verdict::Return, _) | (Verdict::Drop, Some(_)) => {}
                    (Verdict::Drop, None) if !case.packets.has_all_of(wire) => {
                        dropped.push(self.place(at));
                    }
                    _ => return None,
                }
            }
        }
        if !dropped.is_empty() {
            differences.push(Difference::DroppedBefore(dropped.join(", ")));
        }
        Some((from, *to))
    }

    /// Rejects conditions on what an earlier rule changes.
    fn is_as_sent(&self, step: &Step<'_>, limit: &Limit) -> Result<(), String> {
        let packets = step.packets;
        let addressed = packets.destinations.is_some()
            || packets.sources.is_some()
            || !packets.not_sources.is_empty()
            || packets.ports.is_some()
            || !packets.facts.is_empty()
            || !limit.key.is_empty();
        let writes = |rewrite: &&Rewrite| {
            let concerns = match rewrite.what {
                Written::Fact(fact) => packets.facts.contains_key(&fact),
                Written::Any => addressed,
            };
            let bare = |of: &Packets| Packets {
                family: of.family,
                protocols: of.protocols.clone(),
                ..Packets::default()
            };
            concerns && !bare(&rewrite.packets).is_apart(&bare(packets))
        };
        match self.firewall.rewrites.iter().find(writes) {
            Some(rewrite) => Err(format!(
                "{} writes into headers that it asks for, and limiter sees them as they were sent",
                rewrite.place
            )),
            None => Ok(()),
        }
    }

    /// True if none of `packets` match because none of them is translated.
    pub(super) fn is_untranslated(&self, meant: &Packets, packets: &Packets) -> bool {
        meant.translated && !self.translations.iter().any(|one| one.makes_some_of(packets))
    }
}
