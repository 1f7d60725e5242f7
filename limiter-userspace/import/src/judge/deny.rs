//! Rules that drop sources unconditionally: entries of the deny list.

use ipnet::IpNet;
use limiter_rules::model::{LEAST, is_nearly_everybody};

use super::{Judge, Step, of_hook};
use crate::barrier::Gone;
use crate::difference::Difference;
use crate::firewall::Verdict;
use crate::lists::{Denied, listed};
use crate::packets::Packets;
use crate::taken::{is_loopback, only_established};

impl Judge<'_> {
    /// Makes the entries for a rule.
    pub(super) fn deny(&mut self, step: &Step<'_>) -> Result<(Denied, Vec<Difference>), String> {
        let packets = step.packets;
        if let Some(reason) = packets.reasons() {
            return Err(reason);
        }
        let only = Packets {
            family: packets.family,
            sources: packets.sources.clone(),
            ..Packets::default()
        };
        let Some(sources) = packets.sources.as_ref().filter(|_| *packets == only) else {
            return Err(
                "drops whatever the rate, and not by source alone: leave it in the firewall, \
                        or write a rule with `action: drop` by hand"
                    .to_owned(),
            );
        };
        if sources.iter().any(|net| net.prefix_len() == 0) {
            return Err("drops a whole address family: leave that to the firewall".to_owned());
        }
        if sources.iter().any(|net| is_nearly_everybody(&listed(*net), LEAST)) {
            return Err(
                "drops a large part of all addresses: leave that to the firewall".to_owned()
            );
        }
        let mut differences = of_hook(step.hook);
        for barrier in step.barriers {
            self.spend(packets.weight().saturating_mul(barrier.packets.weight()))?;
            if barrier.packets.translated {
                self.spend(self.translations.len())?;
            }
            if barrier.gone == Gone::Dropped
                || barrier.packets.is_apart(packets)
                || self.is_untranslated(&barrier.packets, packets)
            {
                continue;
            }
            if is_loopback(&barrier.packets) {
                differences.push(Difference::Loopback);
            } else if only_established(&barrier.packets, packets) && barrier.gone == Gone::Accepted
            {
                differences.push(Difference::DeniesOpen);
            } else {
                return Err(format!(
                    "{} lets some of its packets pass before",
                    self.place(barrier.rule)
                ));
            }
        }
        if step.case.verdict == Verdict::Reject || *step.verdict == Verdict::Reject {
            differences.push(Difference::Silent);
        }
        if sources.iter().any(|net| matches!(net, IpNet::V6(v6) if v6.prefix_len() > 64)) {
            differences.push(Difference::Prefix64);
        }
        let times = step.case.times.clone();
        if !times.is_empty() && times.len() != sources.len() {
            return Err("its sources have times, and it is for some of them only".to_owned());
        }
        Ok((Denied { rule: step.rule, sources: sources.clone(), times }, differences))
    }
}
