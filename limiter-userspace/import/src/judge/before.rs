//! Packets that earlier rules take away from a limit.

use ipnet::IpNet;

use super::{Judge, MOST_EXEMPT, Step};
use crate::barrier::Gone;
use crate::difference::Difference;
use crate::firewall::{Key, Limit};
use crate::packets::Packets;
use crate::taken::{is_loopback, only_established, only_related, only_sources};

impl Judge<'_> {
    /// Examines what was taken away before a limit.
    pub(super) fn before(&mut self, step: &Step<'_>, limit: &Limit) -> Result<Before, String> {
        let packets = step.packets;
        let mut before = Before::default();
        let mut dropped = Vec::new();
        for barrier in step.barriers {
            let other = &barrier.packets;
            self.spend(packets.weight().saturating_mul(other.weight()))?;
            if other.translated {
                self.spend(self.translations.len())?;
            }
            if other.is_apart(packets) || self.is_untranslated(other, packets) {
                continue;
            }
            let place = self.place(barrier.rule);
            if !barrier.partly && other.has_all_of(packets) {
                return Err(format!("no packet comes as far: {place} takes all of its packets"));
            }
            match barrier.gone {
                Gone::Dropped => {
                    let denied = self.denied.iter().any(|denied| denied.rule == barrier.rule);
                    // With a key by source, each dropped packet would be charged to a bucket that
                    // nothing else uses.
                    let own = limit.key.iter().any(|key| matches!(key, Key::Source(32 | 128)))
                        && Packets { sources: None, family: None, ..other.clone() }
                            .has_all_of(packets);
                    if !denied && !own {
                        dropped.push(place);
                    }
                }
                Gone::Maybe => {
                    return Err(format!("it is not known what {place} does to its packets before"));
                }
                Gone::Accepted | Gone::Returned => {
                    if barrier.partly {
                        return Err(format!("{place} takes some of its packets away before"));
                    }
                    if is_loopback(other) {
                        before.differences.push(Difference::Loopback);
                    } else if only_established(other, packets) {
                        before.established = true;
                        before.differences.push(Difference::Established(place));
                    } else if only_related(other, packets) {
                        before.differences.push(Difference::Related(place));
                    } else if let Some(sources) = only_sources(other, packets) {
                        if self.has_times(barrier.rule) {
                            return Err(format!(
                                "{place} accepts sources for a time, and a rule here would keep \
                                 them"
                            ));
                        }
                        before.exempt.extend(sources);
                        if before.exempt.len() > MOST_EXEMPT {
                            return Err(format!(
                                "more than {MOST_EXEMPT} sources are exempt from it"
                            ));
                        }
                    } else {
                        return Err(format!("{place} takes some of its packets away before"));
                    }
                }
            }
        }
        if !dropped.is_empty() {
            let more = dropped.len().saturating_sub(3);
            dropped.truncate(3);
            let mut places = dropped.join(", ");
            if more > 0 {
                places.push_str(", ...");
            }
            before.differences.push(Difference::DroppedBefore(places));
        }
        Ok(before)
    }

    /// True if a rule matches sources of a set that leave it after a time.
    fn has_times(&self, rule: usize) -> bool {
        let cases = self.firewall.rules.get(rule).into_iter().flat_map(|rule| &rule.cases);
        cases.into_iter().any(|case| !case.times.is_empty())
    }
}

/// The effects of what was taken away before.
#[derive(Default)]
pub(super) struct Before {
    pub(super) established: bool,
    pub(super) exempt: Vec<IpNet>,
    pub(super) differences: Vec<Difference>,
}
