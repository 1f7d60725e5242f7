//! Alarms: reported once when packets begin to pass over a soft limit or to find no room in a
//! table, from time to time while this goes on, and once when it has ended.

use std::collections::BTreeMap;

/// Looks without a marked packet after which an alarm ends.
const QUIET: u32 = 10;

/// Looks between two reminders of the same alarm.
const REMIND: u32 = 60;

/// The rules and budgets with soft limits, with the packets that they marked; or the tables of
/// entries, with the packets that found no room there.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    watched: BTreeMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    /// Packets marked up to the last look.
    marked: u64,
    raised: Option<Raised>,
}

#[derive(Debug)]
struct Raised {
    /// Packets marked before the alarm began.
    before: u64,
    looks: u32,
    /// Looks since the last marked packet.
    quiet: u32,
}

/// A report about an alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A rule began to mark packets; the number marked so far.
    Started(String, u64),
    /// The alarm goes on; the number of packets since it began.
    Still(String, u64),
    /// The alarm has ended; the number of packets in all.
    Ended(String, u64),
}

impl Alarms {
    /// Takes the packets that every rule with a soft limit has marked since its counters began. A
    /// rule that is seen for the first time raises no alarm, because its marks may be old.
    pub(crate) fn look(&mut self, marked: Vec<(String, u64)>) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut watched = BTreeMap::new();
        for (rule, now) in marked {
            let mut at =
                self.watched.remove(&rule).unwrap_or(Watched { marked: now, raised: None });
            notices.extend(at.look(&rule, now));
            watched.insert(rule, at);
        }
        // The rules left in the old map no longer exist, and neither do their alarms.
        for (rule, at) in std::mem::replace(&mut self.watched, watched) {
            if let Some(raised) = at.raised {
                notices.push(Notice::Ended(rule, at.marked.saturating_sub(raised.before)));
            }
        }
        notices
    }

    /// Takes the marked packets as the new starting points: under another rule set, a rule of the
    /// same name may have other counters.
    pub(crate) fn go_on_from(&mut self, marked: &[(String, u64)]) {
        for (rule, now) in marked {
            if let Some(at) = self.watched.get_mut(rule) {
                if let Some(raised) = &mut at.raised {
                    let total = at.marked.saturating_sub(raised.before);
                    raised.before = now.saturating_sub(total);
                }
                at.marked = *now;
            }
        }
    }

    /// The rules that mark packets now.
    pub(crate) fn raised(&self) -> Vec<String> {
        let raised = self.watched.iter().filter(|(_, at)| at.raised.is_some());
        raised.map(|(rule, _)| rule.clone()).collect()
    }
}

impl Watched {
    fn look(&mut self, rule: &str, now: u64) -> Option<Notice> {
        // A new rule of the same name starts its counters at zero.
        let fresh = now.checked_sub(self.marked).unwrap_or(now);
        let before = now - fresh;
        self.marked = now;
        let Some(raised) = &mut self.raised else {
            if fresh == 0 {
                return None;
            }
            self.raised = Some(Raised { before, looks: 0, quiet: 0 });
            return Some(Notice::Started(rule.to_owned(), fresh));
        };
        raised.before = raised.before.min(before);
        let total = now - raised.before;
        raised.looks += 1;
        raised.quiet = if fresh == 0 { raised.quiet + 1 } else { 0 };
        if raised.quiet >= QUIET {
            self.raised = None;
            return Some(Notice::Ended(rule.to_owned(), total));
        }
        (raised.looks % REMIND == 0).then(|| Notice::Still(rule.to_owned(), total))
    }
}

impl Notice {
    pub(crate) fn log(&self) {
        match self {
            Self::Started(rule, packets) => {
                tracing::warn!("{rule} is over its soft limit: {packets} packets passed marked");
            }
            Self::Still(rule, packets) => {
                tracing::warn!("{rule} is still over its soft limit: {packets} packets so far");
            }
            Self::Ended(rule, packets) => {
                tracing::info!("{rule} is within its soft limit again after {packets} packets");
            }
        }
    }
}

impl Notice {
    /// Writes the notice about a table of entries to the log.
    pub(crate) fn log_flood(&self) {
        match self {
            Self::Started(table, packets) => tracing::warn!(
                "no room for new {table}: {packets} packets got no entry; a flood, or too small a \
                 table"
            ),
            Self::Still(table, packets) => {
                tracing::warn!("still no room for new {table}: {packets} packets so far");
            }
            Self::Ended(table, packets) => {
                tracing::info!("there is room for new {table} again after {packets} packets");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(alarms: &mut Alarms, marked: u64) -> Vec<Notice> {
        alarms.look(vec![("dns".to_owned(), marked)])
    }

    #[test]
    fn an_alarm_is_reported_once_at_its_start_and_once_at_its_end() {
        let mut alarms = Alarms::default();
        assert_eq!(look(&mut alarms, 5), []);
        assert_eq!(look(&mut alarms, 5), []);
        assert_eq!(look(&mut alarms, 8), [Notice::Started("dns".to_owned(), 3)]);
        assert_eq!(alarms.raised(), ["dns"]);
        assert_eq!(look(&mut alarms, 20), []);
        for _ in 1..QUIET {
            assert_eq!(look(&mut alarms, 20), []);
        }
        assert_eq!(look(&mut alarms, 20), [Notice::Ended("dns".to_owned(), 15)]);
        assert!(alarms.raised().is_empty());
    }

    /// Under another rule set a rule may have another counter, as after a revert.
    #[test]
    fn another_counter_raises_no_alarm() {
        let mut alarms = Alarms::default();
        look(&mut alarms, 5);
        alarms.go_on_from(&[("dns".to_owned(), 50_000)]);
        assert_eq!(look(&mut alarms, 50_000), []);
        assert_eq!(look(&mut alarms, 50_003), [Notice::Started("dns".to_owned(), 3)]);
        alarms.go_on_from(&[("dns".to_owned(), 90_000)]);
        for _ in 1..QUIET {
            assert_eq!(look(&mut alarms, 90_002), []);
        }
        look(&mut alarms, 90_002);
        assert_eq!(look(&mut alarms, 90_002), [Notice::Ended("dns".to_owned(), 5)]);
    }

    #[test]
    fn a_long_alarm_is_repeated_once_a_minute() {
        let mut alarms = Alarms::default();
        look(&mut alarms, 0);
        let reported: Vec<_> = (1..=200).flat_map(|marked| look(&mut alarms, marked)).collect();
        let still = |packets| Notice::Still("dns".to_owned(), packets);
        let started = Notice::Started("dns".to_owned(), 1);
        assert_eq!(reported, [started, still(61), still(121), still(181)]);
    }

    #[test]
    fn counters_that_begin_anew_are_not_an_underflow() {
        let mut alarms = Alarms::default();
        look(&mut alarms, 100);
        assert_eq!(look(&mut alarms, 3), [Notice::Started("dns".to_owned(), 3)]);
        assert_eq!(look(&mut alarms, 0), []);
    }

    #[test]
    fn an_alarm_ends_with_its_rule() {
        let mut alarms = Alarms::default();
        look(&mut alarms, 0);
        look(&mut alarms, 7);
        assert_eq!(alarms.look(Vec::new()), [Notice::Ended("dns".to_owned(), 7)]);
    }
}
