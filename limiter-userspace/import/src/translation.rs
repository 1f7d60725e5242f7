//! Translation of addresses: rules that give packets another destination or source on their way.
//! limiter sees packets as they are on the wire, before all of them.

use ipnet::IpNet;

use super::firewall::{Hook, Key, Limit};
use super::packets::Packets;

/// Priority at which destinations are translated, and those of what comes back.
const DESTINATIONS: i64 = -100;

/// A part of the address that a rule writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum To<T> {
    #[default]
    Same,
    One(T),
    /// One that the text does not say.
    Any,
}

/// New addresses and ports of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// True for the source, and not the destination.
    pub(super) source: bool,
    /// True if the new address is this host's.
    pub(super) here: bool,
    pub(super) addresses: To<Vec<IpNet>>,
    pub(super) ports: To<(u16, u16)>,
}

impl Change {
    /// A change to something that the text does not say.
    pub(super) const fn any(source: bool) -> Self {
        Self { source, here: false, addresses: To::Any, ports: To::Any }
    }
}

impl Change {
    /// Itself with what follows from its addresses: those of loopback are this host's.
    pub(super) fn settled(mut self) -> Self {
        if let To::One(nets) = &self.addresses {
            self.here |= !self.source && nets.iter().all(|net| net.addr().is_loopback());
        }
        self
    }
}

/// A rule that translates, with the packets that come to it.
#[derive(Clone, Debug)]
pub(super) struct Translation {
    pub(super) rule: usize,
    pub(super) hook: Hook,
    pub(super) priority: i64,
    pub(super) packets: Packets,
    pub(super) change: Change,
}

impl Translation {
    /// True if packets come to it before they come to a place.
    fn is_before(&self, hook: Hook, priority: i64) -> bool {
        // Of what this host sends itself, nothing comes in.
        if !self.change.source && self.hook != Hook::Nat {
            return false;
        }
        match hook {
            // Sources are translated back there.
            Hook::Prerouting if self.change.source => DESTINATIONS <= priority,
            Hook::Prerouting => self.priority <= priority,
            Hook::Input | Hook::Forward => true,
            Hook::Nat | Hook::NatLater | Hook::Outgoing | Hook::Other => false,
        }
    }

    /// True if packets of a rule, as it sees them, may be of those that were translated here.
    pub(super) fn makes_some_of(&self, packets: &Packets) -> bool {
        !self.change.source && self.hook == Hook::Nat && !self.made().is_apart(packets)
    }

    fn made(&self) -> Packets {
        let mut made = self.packets.clone();
        match &self.change.addresses {
            To::Same => {}
            To::One(nets) => made.destinations = Some(nets.clone()),
            To::Any => made.destinations = None,
        }
        match self.change.ports {
            To::Same => {}
            To::One(ports) => made.ports = Some(vec![ports]),
            To::Any => made.ports = None,
        }
        made
    }

    /// True if a limit, said for packets on the wire, would be for others than it is for there.
    /// `opens` says that only first packets of connections come to the limit.
    pub(super) fn changes(
        &self,
        (hook, priority): (Hook, i64),
        packets: &Packets,
        limit: &Limit,
        opens: bool,
    ) -> bool {
        if !self.is_before(hook, priority) {
            return false;
        }
        let by_address = packets.destinations.is_some() || limit.key.contains(&Key::Destination);
        let by_port = packets.ports.is_some() || limit.key.contains(&Key::Port);
        if self.change.source {
            // Replies have on the wire the source that was written.
            let to_these = Packets {
                destinations: self.packets.sources.clone(),
                family: self.packets.family,
                ..Packets::default()
            };
            return by_address && !opens && hook != Hook::Input && !to_these.is_apart(packets);
        }
        let address = self.change.addresses != To::Same;
        let takes = !self.packets.is_apart(packets);
        let concerns = (by_address && address) || (by_port && self.change.ports != To::Same);
        // They go another way: to this host, or through it.
        let other_way = match hook {
            Hook::Input => !self.change.here,
            Hook::Forward => self.change.here,
            _ => false,
        };
        (concerns && (takes || self.makes_some_of(packets))) || (address && other_way && takes)
    }
}
