//! Packets as they are on the wire, where a rule sees them behind a translation of addresses, or
//! behind rules that write into their headers.

use limiter_rules::model::Fact;

use super::{Judge, Step};
use crate::firewall::{Hook, Key, Limit, Rewrite, Written};
use crate::packets::{Packets, state};
use crate::translation::Translation;

impl Judge<'_> {
    /// The packets of a limit as they are on the wire.
    pub(super) fn on_the_wire(
        &mut self,
        step: &Step<'_>,
        limit: &Limit,
        established: bool,
    ) -> Result<Packets, String> {
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
        if let Some(by) = self.translations.iter().find(changes) {
            return Err(format!(
                "{} translates addresses or ports of some of its packets, and limiter sees them \
                 as they are on the wire: write a rule for those by hand, or ask for \
                 `--ctorigdstport` there",
                self.place(by.rule)
            ));
        }
        self.is_as_sent(step, limit)?;
        let original = std::mem::take(&mut packets.original);
        let named = original.ports.is_some() || original.destinations.is_some();
        // Replies have the two ends changed over.
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
        // Buckets are by what the rule sees.
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
            // One is taken off before forwarding is decided on.
            if let Some(ranges) = packets.facts.get_mut(&Fact::Ttl) {
                for (low, high) in ranges.iter_mut() {
                    *low = (*low + 1).min(255);
                    *high = (*high + 1).min(255);
                }
            }
        }
        Ok(packets)
    }

    /// Refuses conditions on what an earlier rule writes.
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

    /// True if of `packets` none are meant because none of them is translated.
    pub(super) fn is_untranslated(&self, meant: &Packets, packets: &Packets) -> bool {
        meant.translated && !self.translations.iter().any(|one| one.makes_some_of(packets))
    }
}
