//! Units of one shared limit that a node holds: their grants, how long they may be used, and what
//! became of them. The oldest grant is used first.

use std::collections::VecDeque;

use super::account::Report;
use super::window::Back;

/// Remaining units of one grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    dies: u64,
    epoch: u64,
    count: u64,
}

/// Held units, and what is to be reported about others.
///
/// Returning takes two steps, because a packet in progress may already have read the line: first
/// the line's `granted` is lowered; later, what is still unused is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Oldest first.
    alive: VecDeque<Grant>,
    /// No longer in the line's `granted`, but possibly used.
    lowered: VecDeque<Grant>,
    lowered_at: u64,
    /// Total of used units at the last reading.
    settled: u64,
    reports: Vec<(u64, Report)>,
}

impl Ledger {
    /// The total that the line may reach: used plus held units.
    pub fn granted(&self) -> u64 {
        self.settled.saturating_add(self.left())
    }

    /// Held units.
    pub fn left(&self) -> u64 {
        self.alive.iter().map(|grant| grant.count).sum()
    }

    /// Units that packets may still use: held units, and those taken out of the line that a packet
    /// in progress may still use.
    pub fn outstanding(&self) -> u64 {
        self.left() + self.lowered.iter().map(|grant| grant.count).sum::<u64>()
    }

    /// Held units that live until `time` or longer.
    pub fn left_at(&self, time: u64) -> u64 {
        self.alive.iter().filter(|grant| grant.dies >= time).map(|grant| grant.count).sum()
    }

    /// Time at which the first unit dies.
    pub fn dies(&self) -> Option<u64> {
        self.alive.front().map(|grant| grant.dies)
    }

    /// True if units were lowered, or there is something to report.
    pub fn has_news(&self) -> bool {
        !self.lowered.is_empty() || !self.reports.is_empty()
    }

    /// Updates the line's total of used units. Returns how many are new.
    pub fn settle(&mut self, used: u64) -> u64 {
        let new = used.saturating_sub(self.settled);
        self.settled += new;
        let mut left = new;
        for grants in [&mut self.alive, &mut self.lowered] {
            while left > 0 {
                let Some(grant) = grants.front_mut() else { break };
                let spent = grant.count.min(left);
                left -= spent;
                grant.count -= spent;
                let epoch = grant.epoch;
                if grant.count == 0 {
                    grants.pop_front();
                }
                report(&mut self.reports, epoch).used += spent;
            }
        }
        new
    }

    /// Adds a grant.
    pub fn add(&mut self, count: u64, dies: u64, epoch: u64) {
        if count > 0 {
            self.alive.push_back(Grant { dies, epoch, count });
        }
    }

    /// Returns granted units that were never in the line.
    pub fn refuse(&mut self, count: u64, epoch: u64) {
        if count > 0 {
            report(&mut self.reports, epoch).back += count;
        }
    }

    /// Takes units out of the line that would die before `time`.
    pub fn retire(&mut self, now: u64, time: u64) {
        while let Some(grant) = self.alive.pop_front_if(|grant| grant.dies < time) {
            self.lowered.push_back(grant);
            self.lowered_at = now;
        }
    }

    /// Takes `count` units out of the line, beginning with those that die first.
    pub fn lower(&mut self, now: u64, mut count: u64) {
        while count > 0 {
            let Some(grant) = self.alive.front_mut() else { break };
            let taken = grant.count.min(count);
            count -= taken;
            grant.count -= taken;
            self.lowered.push_back(Grant { count: taken, ..*grant });
            self.lowered_at = now;
            if grant.count == 0 {
                self.alive.pop_front();
            }
        }
    }

    /// Takes the reports of the latest two epochs. Nothing is reported twice: if the call is lost,
    /// the store lets the units expire. Units lowered at least `grace` microseconds ago are
    /// returned.
    pub fn take_reports(&mut self, now: u64, grace: u64) -> (u64, Report, Report) {
        self.report_lowered(now, grace);
        let latest = self.reports.iter().map(|(epoch, _)| *epoch).max().unwrap_or(0);
        let of = |wanted: Option<u64>| {
            let mut found = self.reports.iter().filter(|(epoch, _)| Some(*epoch) == wanted);
            found.next().map_or_else(Report::default, |(_, report)| *report)
        };
        let reported = (latest, of(Some(latest)), of(latest.checked_sub(1)));
        self.reports.clear();
        reported
    }

    /// Takes the units to return of each epoch. Nothing is reported twice.
    pub fn take_backs(&mut self, now: u64, grace: u64) -> Vec<Back> {
        self.report_lowered(now, grace);
        let backs = self.reports.drain(..).filter(|(_, report)| report.back > 0);
        backs.map(|(epoch, report)| Back { epoch, units: report.back }).collect()
    }

    fn report_lowered(&mut self, now: u64, grace: u64) {
        if now >= self.lowered_at.saturating_add(grace) {
            for grant in self.lowered.drain(..) {
                report(&mut self.reports, grant.epoch).back += grant.count;
            }
        }
    }

    /// Forgets all held units. Only what packets have used remains.
    pub fn clear(&mut self) {
        self.alive.clear();
        self.lowered.clear();
        self.reports.clear();
    }
}

fn report(reports: &mut Vec<(u64, Report)>, epoch: u64) -> &mut Report {
    let at = reports.iter().position(|(of, _)| *of == epoch).unwrap_or_else(|| {
        reports.push((epoch, Report::default()));
        reports.len() - 1
    });
    &mut reports[at].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_units_are_used_first() {
        let mut ledger = Ledger::default();
        ledger.add(5, 100, 1);
        ledger.add(5, 200, 2);
        assert_eq!(ledger.settle(7), 7);
        assert_eq!((ledger.granted(), ledger.left(), ledger.dies()), (10, 3, Some(200)));
        let used = |used| Report { used, back: 0 };
        assert_eq!(ledger.take_reports(0, 0), (2, used(2), used(5)));
        assert_eq!(ledger.take_reports(0, 0), (0, used(0), used(0)));
    }

    #[test]
    fn a_packet_under_way_uses_what_was_lowered() {
        let mut ledger = Ledger::default();
        ledger.add(10, 100, 1);
        ledger.lower(50, 4);
        assert_eq!((ledger.granted(), ledger.left()), (6, 6));
        // Eight pass although six were left: two of the lowered units.
        ledger.settle(8);
        assert_eq!((ledger.granted(), ledger.left()), (8, 0));
        assert_eq!(ledger.take_reports(51, 5), (1, Report { used: 8, back: 0 }, Report::default()));
        assert!(ledger.has_news());
        assert_eq!(ledger.take_reports(55, 5), (1, Report { used: 0, back: 2 }, Report::default()));
    }

    #[test]
    fn what_dies_is_lowered_and_given_back() {
        let mut ledger = Ledger::default();
        ledger.add(3, 100, 7);
        ledger.add(3, 200, 7);
        ledger.retire(90, 150);
        assert_eq!((ledger.left(), ledger.left_at(150), ledger.left_at(201)), (3, 3, 0));
        assert_eq!(ledger.take_reports(95, 5).1, Report { used: 0, back: 3 });
    }

    #[test]
    fn units_of_each_epoch_are_given_back_once() {
        let mut ledger = Ledger::default();
        for epoch in [7, 8, 9] {
            ledger.add(3, 100 * epoch, epoch);
        }
        ledger.settle(4);
        ledger.retire(890, 900);
        assert_eq!(ledger.take_backs(892, 5), []);
        assert_eq!(ledger.take_backs(895, 5), [Back { epoch: 8, units: 2 }]);
        ledger.lower(900, u64::MAX);
        assert_eq!(ledger.take_backs(905, 5), [Back { epoch: 9, units: 3 }]);
        assert_eq!(ledger.take_backs(999, 5), []);
    }

    #[test]
    fn more_used_than_held_is_not_reported() {
        let mut ledger = Ledger::default();
        ledger.add(3, 100, 7);
        ledger.settle(1000);
        assert_eq!((ledger.granted(), ledger.left()), (1000, 0));
        assert_eq!(ledger.take_reports(0, 0).1, Report { used: 3, back: 0 });
    }
}
