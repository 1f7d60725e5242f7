//! Warns while the program finds no IP header in most packets, because no limit applies to these.
//!
//! A few such packets are normal (ARP, LLDP). On the port under a `PPPoE` session, an MPLS path or
//! `MACsec` all packets are like this, and their content may come from anywhere.

use std::collections::VecDeque;

use limiter_common::verdict::Reason;
use limiter_common::wire::Tally;
use limiter_datapath::{Datapath, interfaces_of};

use super::alarm::{Alarms, Notice};

/// Number of looks, one a second, over which packets are counted.
const LOOKS: usize = 10;

/// Number of such packets from which on a warning is due: much more than ARP sends on an idle link.
const LEAST: u64 = 1_000;

/// Reasons under which packets without an IP header are counted.
const UNCHARGED: [Reason; 2] = [Reason::NotIp, Reason::DeepVlan];

/// Packets since the maps were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    all: u64,
    uncharged: u64,
}

impl Seen {
    fn of(tallies: &[Tally; Reason::COUNT]) -> Self {
        let uncharged = UNCHARGED.map(|reason| tallies[reason.index() as usize].packets);
        let all = tallies.iter().map(|tally| tally.packets).sum();
        Self { all, uncharged: uncharged.into_iter().sum() }
    }

    /// Packets counted after `before`; zero if the maps are new.
    const fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            uncharged: self.uncharged.saturating_sub(before.uncharged),
        }
    }

    const fn is_mostly_uncharged(self) -> bool {
        self.all >= LEAST && self.uncharged > self.all / 2
    }
}

/// Packets of the last looks, and the present warning.
#[derive(Debug, Default)]
pub(crate) struct NotIp {
    looks: VecDeque<Seen>,
    /// Uncharged packets counted while they were the majority.
    counted: u64,
    alarm: Alarms,
    warning: Option<String>,
}

impl NotIp {
    /// Takes the program's counts by reason; logs changes.
    pub(crate) fn look(&mut self, tallies: &[Tally; Reason::COUNT], datapath: &dyn Datapath) {
        let now = Seen::of(tallies);
        let recent = self.looks.front().map_or(Seen::default(), |first| now.since(*first));
        let last = self.looks.back().map_or(Seen::default(), |last| now.since(*last));
        if recent.is_mostly_uncharged() {
            self.counted += last.uncharged.max(1);
            let interfaces = interfaces_of(datapath.attachments()).join(", ");
            self.warning = Some(text(recent, &interfaces));
        }
        self.looks.push_back(now);
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        for notice in self.alarm.look(vec![(String::new(), self.counted)]) {
            match notice {
                Notice::Started(..) | Notice::Still(..) => {
                    if let Some(warning) = &self.warning {
                        tracing::warn!("{warning}");
                    }
                }
                Notice::Ended(..) => tracing::info!("most packets are IP again, or there are few"),
            }
        }
        if self.alarm.raised().is_empty() {
            self.warning = None;
        }
    }

    /// The line for `limiter status`, while there is a warning.
    pub(crate) fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

fn text(recent: Seen, interfaces: &str) -> String {
    let Seen { all, uncharged } = recent;
    format!(
        "{uncharged} of the last {all} packets on {interfaces} have no IP header that limiter \
         finds, and passed unlimited (`not-ip` and `deep-vlan` in `limiter stats`); if they carry \
         IP, as PPPoE, MPLS, MACsec and three VLAN tags do, limit it on an interface that gets it \
         without those: see docs/packets.md"
    )
}

#[cfg(test)]
mod tests {
    use limiter_datapath::fake::Fake;

    use super::*;

    /// Looks after the given further packets, by reason.
    fn look(not_ip: &mut NotIp, sum: &mut [Tally; Reason::COUNT], more: &[(Reason, u64)]) -> bool {
        for (reason, packets) in more {
            sum[reason.index() as usize].packets += packets;
        }
        not_ip.look(sum, &*Fake::default().open_now());
        not_ip.warning().is_some()
    }

    #[test]
    fn most_packets_must_be_without_ip_for_a_warning() {
        let (mut not_ip, mut sum) = (NotIp::default(), [Tally::default(); Reason::COUNT]);
        sum[Reason::NotIp.index() as usize].packets = 1 << 40;
        assert!(!look(&mut not_ip, &mut sum, &[]), "what was before nobody saw");
        for _ in 0..100 {
            assert!(!look(&mut not_ip, &mut sum, &[(Reason::NotIp, 90)]), "ARP on an idle link");
        }
        for _ in 0..100 {
            let more = [(Reason::NotIp, 5_000), (Reason::Conforming, 6_000)];
            assert!(!look(&mut not_ip, &mut sum, &more), "a half");
        }
        let mut looks = 0;
        while !look(&mut not_ip, &mut sum, &[(Reason::DeepVlan, 3_000), (Reason::OverLimit, 1_000)])
        {
            looks += 1;
            assert!(looks < LOOKS);
        }
        let warning = not_ip.warning().unwrap_or_default();
        for words in ["fake0", "packets on", "`deep-vlan`", "docs/packets.md"] {
            assert!(warning.contains(words), "{warning}");
        }
    }

    #[test]
    fn the_warning_ends_when_packets_are_ip_again_or_there_are_none() {
        for after in [&[(Reason::Conforming, 9_000)][..], &[]] {
            let (mut not_ip, mut sum) = (NotIp::default(), [Tally::default(); Reason::COUNT]);
            look(&mut not_ip, &mut sum, &[]);
            assert!(look(&mut not_ip, &mut sum, &[(Reason::NotIp, LEAST)]));
            let looks = (0..100).take_while(|_| look(&mut not_ip, &mut sum, after)).count();
            assert!((5..50).contains(&looks), "{after:?}: {looks} looks");
        }
    }

    #[test]
    fn new_maps_are_no_underflow() {
        let (mut not_ip, mut sum) = (NotIp::default(), [Tally::default(); Reason::COUNT]);
        look(&mut not_ip, &mut sum, &[(Reason::NotIp, 1 << 20)]);
        sum = [Tally::default(); Reason::COUNT];
        assert!(!look(&mut not_ip, &mut sum, &[(Reason::NotIp, 5)]));
    }
}
