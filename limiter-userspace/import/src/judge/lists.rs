//! Lists of `recent` that several pairs of rules use.

use super::beside::Placed;
use super::{Fate, Judge, Step};
use crate::barrier::Gone;
use crate::firewall::Limit;

impl Judge<'_> {
    /// Rejects a pair, and the earlier one, if both could note the same packets: each of these
    /// packets counts twice there.
    pub(super) fn has_list_alone(&mut self, step: &Step<'_>, limit: &Limit) -> Result<(), String> {
        let Some(pair) = &limit.pair else { return Ok(()) };
        self.spend(self.lists.get(&pair.list).map_or(0, Vec::len))?;
        let own = Placed::new(step, None);
        let mut other = None;
        for earlier in self.lists.get(&pair.list).into_iter().flatten() {
            if earlier.rule == own.rule || !earlier.meets(&own) {
                continue;
            }
            // Packets of the earlier pair may not reach this rule.
            let Ok(both) = earlier.packets.and(&own.packets) else { continue };
            let gone = step.barriers.iter().any(|barrier| {
                matches!(barrier.gone, Gone::Accepted | Gone::Dropped)
                    && !barrier.partly
                    && barrier.packets.has_all_of(&both)
            });
            if !gone {
                other = Some(earlier.rule);
                break;
            }
        }
        self.lists.entry(pair.list.clone()).or_default().push(own);
        let Some(other) = other else { return Ok(()) };
        let why = |place: String| {
            format!("recent: {place} counts in the same list, and some packets are noted for both")
        };
        self.tables.remove(other);
        self.fate(other, Fate::Not(why(self.place(step.rule))));
        Err(why(self.place(other)))
    }
}
