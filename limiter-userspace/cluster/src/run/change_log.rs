//! Changes of this node on their way to the store, and changes of other nodes from it, in one order
//! for all nodes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::change::Change;
use crate::membership::{ADDED, Line, Met, REPORTED, Sent};
use crate::sign::{Trust, Verdict};
use crate::status::Notice;

/// Most changes that wait for the store.
pub(crate) const WAITING: usize = 1024;
/// A gap of so many numbers means that the store lost its state, because a stream begins with the
/// time in microseconds.
const ANEW: u64 = 1_000_000;

/// Reason for rejecting a line that [`Change::parse`] cannot read.
const UNKNOWN: &str = "it is no change that this version knows";

/// A change of this node that is not known to be in the store.
#[derive(Debug)]
struct Own {
    change: Change,
    /// Time of the change, in microseconds of the node's clock.
    at: u64,
    sequence: u64,
    number: Option<u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Changes of other nodes, in order.
    pub(crate) changes: Vec<Change>,
    /// Rejected changes as text, with the daemon that made them and the reason.
    pub(crate) refused: Vec<(String, u64, &'static str)>,
    /// [`Notice::Missed`], if changes were missed.
    pub(crate) missed: Option<Notice>,
    /// True if there is more to read.
    pub(crate) more: bool,
}

#[derive(Debug)]
pub(crate) struct ChangeLog {
    instance: u64,
    /// Number of the latest processed change; `None` before the first call to the store.
    known: Option<u64>,
    own: VecDeque<Own>,
    /// Changes in the current call.
    sent: usize,
    trust: Trust,
}

impl ChangeLog {
    pub(crate) fn new(instance: u64, trust: Trust) -> Self {
        Self { instance, known: None, own: VecDeque::new(), sent: 0, trust }
    }

    /// Wall clock of the newest accepted change, if nodes have a key.
    pub(crate) fn newest(&self) -> u64 {
        self.trust.newest()
    }

    /// Number of the latest processed change.
    pub(crate) fn known(&self) -> u64 {
        self.known.unwrap_or(0)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.own.iter().filter(|own| own.number.is_none()).count()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.own.len() < WAITING
    }

    /// Queues a change of this node, at `now` of its clock.
    pub(crate) fn publish(&mut self, now: u64, change: Change) {
        let sequence = self.trust.number();
        self.own.push_back(Own { change, at: now, sequence, number: None });
    }

    /// Changes for the next call, with their remaining time at `now`. Signed with `wall`, the
    /// node's wall clock in microseconds since 1970, so that a change that waited long does not
    /// count as old.
    pub(crate) fn send(&mut self, now: u64, wall: u64) -> Vec<Sent> {
        let left = |own: &Own| {
            let passed = Duration::from_micros(now.saturating_sub(own.at));
            own.change.clone().after(passed)
        };
        self.own.retain(|own| own.number.is_some() || left(own).is_some());
        let waiting = self.own.iter().filter(|own| own.number.is_none());
        let sent = |own: &Own| {
            let change = left(own)?;
            let line = self.trust.line(self.instance, &change, own.sequence, wall);
            Some(Sent { line, left: change.left() })
        };
        let changes: Vec<Sent> = waiting.filter_map(sent).take(ADDED).collect();
        self.sent = changes.len();
        changes
    }

    /// Handles a failed call: the next call sends its changes again, even if the store already has
    /// them.
    pub(crate) fn failed(&mut self) {
        self.sent = 0;
    }

    /// Processes an answer, at `wall` of the node's wall clock. Takes at most `room` changes; the
    /// next call asks for the others again.
    pub(crate) fn met(&mut self, met: &Met, room: usize, wall: u64) -> News {
        let waiting = self.own.iter_mut().filter(|own| own.number.is_none());
        for (number, own) in (met.added..).zip(waiting.take(std::mem::take(&mut self.sent))) {
            own.number = Some(number);
        }
        let mut news = News { missed: self.missed(met), ..News::default() };
        if self.known.is_some_and(|known| met.latest < known) {
            // Numbers start again: the next call reads the existing changes.
            self.known = Some(0);
            self.own.retain(|own| own.number.is_none());
            news.more = met.latest > 0;
            return news;
        }
        let mut known = self.known();
        for entry in &met.changes {
            match &entry.line {
                Line::Change(change) if entry.instance != self.instance => {
                    if news.changes.len() >= room {
                        break;
                    }
                    match self.trust.judge(entry.instance, change, entry.proof.as_ref(), wall) {
                        Verdict::Take(change) if !self.is_superseded(entry.number, &change) => {
                            news.changes.push(change);
                        }
                        Verdict::Take(_) | Verdict::Known => {}
                        Verdict::Refused(why) => {
                            news.refused.push((change.to_string(), entry.instance, why));
                        }
                    }
                }
                Line::Unknown(text) => {
                    news.refused.push((text.clone(), entry.instance, UNKNOWN));
                }
                Line::Change(_) | Line::Ended => {}
            }
            known = entry.number;
        }
        self.known = Some(known);
        self.own.retain(|own| own.number.is_none_or(|number| number > known));
        news.more = met.changes.len() == REPORTED && room > 0;
        news
    }

    fn missed(&self, met: &Met) -> Option<Notice> {
        // A store that had no changes cannot have lost any.
        let known = self.known.filter(|known| *known > 0)?;
        if met.latest < known {
            return Some(Notice::Missed { changes: None });
        }
        let missing = met.oldest.saturating_sub(known + 1);
        let changes = Some(missing).filter(|missing| *missing < ANEW);
        (missing > 0).then_some(Notice::Missed { changes })
    }

    /// True if this node made a later change of the same subject.
    fn is_superseded(&self, number: u64, change: &Change) -> bool {
        let subject = change.subject();
        self.own.iter().any(|own| {
            own.number.is_none_or(|later| later > number) && own.change.subject().covers(&subject)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Heartbeat, Membership, Place, Presence};

    const NOW: u64 = 1_795_000_000_000_000;

    fn unlist(last: u8) -> Change {
        Change::Unlist { sources: std::net::IpAddr::from([192, 0, 2, last]).into() }
    }

    fn ban(last: u8, seconds: u64) -> Change {
        let left = Duration::from_secs(seconds);
        Change::Ban { source: std::net::IpAddr::from([192, 0, 2, last]), left }
    }

    fn change_log(instance: u64) -> ChangeLog {
        ChangeLog::new(instance, Trust::new(None, 0))
    }

    struct Two {
        place: Place,
        change_logs: [ChangeLog; 2],
    }

    impl Two {
        fn new() -> Self {
            Self { place: Place::default(), change_logs: [change_log(1), change_log(2)] }
        }

        fn meet(&mut self, of: usize, now: u64, room: usize) -> News {
            let change_log = &mut self.change_logs[of];
            let membership = Membership {
                instance: change_log.instance,
                presence: Presence::Stay,
                known: change_log.known(),
                changes: change_log.send(now, NOW),
            };
            let met = self.place.meet(NOW + now, &membership).expect("a good meeting");
            self.change_logs[of].met(&met, room, NOW)
        }
    }

    fn only(changes: &[Change]) -> News {
        News { changes: changes.to_vec(), ..News::default() }
    }

    #[test]
    fn changes_come_once_in_order_and_not_to_their_own_node() {
        let mut two = Two::new();
        assert_eq!(two.meet(0, 0, 9), News::default());
        two.change_logs[0].publish(0, unlist(1));
        two.change_logs[0].publish(0, ban(2, 60));
        assert_eq!(two.meet(0, 0, 9), News::default());
        assert_eq!(two.change_logs[0].own.len(), 0);
        assert_eq!(two.meet(1, 10_000_000, 9), only(&[unlist(1), ban(2, 50)]));
        assert_eq!(two.meet(1, 10_000_000, 9), News::default());
        two.change_logs[1].publish(0, unlist(3));
        two.meet(1, 10_000_000, 9);
        assert_eq!(two.meet(0, 10_000_000, 9), only(&[unlist(3)]));
    }

    #[test]
    fn a_change_ages_while_it_waits_and_ends() {
        let mut two = Two::new();
        two.change_logs[0].publish(0, ban(1, 60));
        two.change_logs[0].publish(0, ban(2, 10));
        // The first call is half a minute late: the second ban has ended.
        two.meet(0, 30_000_000, 9);
        assert_eq!(two.meet(1, 35_000_000, 9), only(&[ban(1, 25)]));
        let mut third = change_log(3);
        let membership =
            Membership { instance: 3, presence: Presence::Stay, known: 0, changes: Vec::new() };
        let met = two.place.meet(NOW + 90_000_000, &membership).expect("good");
        assert_eq!(
            third.met(&met, 9, NOW),
            News::default(),
            "it is over for a node that comes now"
        );
    }

    /// Two nodes make changes at the same time.
    #[test]
    fn of_two_changes_of_one_object_the_later_one_holds_on_both() {
        let mut two = Two::new();
        let deny = |last: u8| Change::List {
            list: crate::change::List::Deny,
            sources: std::net::IpAddr::from([192, 0, 2, last]).into(),
            left: None,
        };
        two.change_logs[0].publish(0, deny(1));
        two.change_logs[1].publish(0, unlist(1));
        two.meet(0, 0, 9);
        // The second node's own change comes later.
        assert_eq!(two.meet(1, 0, 9), News::default());
        assert_eq!(two.meet(0, 0, 9), only(&[unlist(1)]));
    }

    #[test]
    fn what_finds_no_room_comes_again() {
        let mut two = Two::new();
        (1..=3).for_each(|last| two.change_logs[0].publish(0, unlist(last)));
        two.meet(0, 0, 9);
        assert_eq!(two.meet(1, 0, 2).changes, [unlist(1), unlist(2)]);
        assert_eq!(two.meet(1, 0, 0).changes, []);
        assert_eq!(two.meet(1, 0, 2).changes, [unlist(3)]);
    }

    #[test]
    fn a_failed_call_is_repeated() {
        let mut two = Two::new();
        two.change_logs[0].publish(0, unlist(1));
        assert_eq!(two.change_logs[0].send(0, NOW), [Sent::from(&unlist(1))]);
        two.change_logs[0].failed();
        assert_eq!(two.change_logs[0].waiting(), 1);
        two.meet(0, 0, 9);
        assert_eq!(two.meet(1, 0, 9), only(&[unlist(1)]));
    }

    #[test]
    fn changes_that_were_dropped_or_lost_are_reported() {
        let mut two = Two::new();
        two.change_logs[0].publish(0, unlist(0));
        two.meet(0, 0, 9);
        assert_eq!(two.meet(1, 0, 9).missed, None, "a node that begins has missed nothing");
        for _ in 0..=crate::membership::KEPT.div_ceil(100) {
            (0..100).for_each(|last| two.change_logs[0].publish(0, unlist(last)));
            two.meet(0, 0, 9);
        }
        let news = two.meet(1, 0, 1000);
        let missed = |changes| Some(Notice::Missed { changes });
        assert_eq!((news.missed, news.more, news.changes.len()), (missed(Some(100)), true, 200));
        // The store forgets, and has fewer changes, none, or others.
        two.place = Place::default();
        assert_eq!(two.meet(1, 0, 1000).missed, missed(None));
        assert_eq!(two.meet(1, 0, 1000).missed, None);
        two.change_logs[0] = change_log(1);
        two.change_logs[0].publish(0, unlist(1));
        two.meet(0, 60_000_000, 9);
        assert_eq!(two.meet(1, 60_000_000, 9), only(&[unlist(1)]));
        two.place = Place::default();
        two.change_logs[0].publish(0, unlist(2));
        two.meet(0, 90_000_000, 9);
        let news = two.meet(1, 90_000_000, 9);
        assert_eq!((news.missed, news.changes), (missed(None), vec![unlist(2)]));
    }

    #[test]
    fn a_line_that_is_no_change_is_refused_in_words_and_passed_over() {
        let lines = ["pass 192.0.2.0/24", "deny 192.0.2.7", "deny 192.0.2.7/24", "\x1b[2J\n", ""];
        let raw = |(at, line): (i64, &&str)| (at, b"2".into(), -1, (*line).into());
        let mut raw: Vec<_> = (1..).zip(&lines).map(raw).collect();
        raw.push((6, b"2".into(), -1, vec![0xff; 5000]));
        raw.push((7, b"2".into(), -1, unlist(1).to_string().into()));
        let heartbeat = Heartbeat { name: "n".to_owned(), digest: 0, version: "1".to_owned() };
        let membership = Membership {
            instance: 1,
            presence: Presence::Heartbeat(heartbeat),
            known: 0,
            changes: vec![],
        };
        let met =
            crate::membership::read(&membership, &[9, 1, 7, 0], vec![], raw).expect("an answer");
        let mut change_log = change_log(1);
        let news = change_log.met(&met, 9, NOW);
        assert_eq!((news.changes, change_log.known()), (vec![unlist(1)], 7));
        let texts: Vec<&str> = news.refused.iter().map(|(text, ..)| text.as_str()).collect();
        let long = "\u{fffd}".repeat(crate::change::TEXT_MAX);
        let cleaned = ["\u{fffd}[2J\u{fffd}", "", &long];
        assert_eq!(texts, [&lines[..3], &cleaned[..]].concat());
        assert!(news.refused.iter().all(|(_, by, why)| (*by, *why) == (2, UNKNOWN)));
    }
}
