//! Address translation: rules that change the destination or source of packets. limiter sees
//! packets as they are on the wire, before these rules.

use ipnet::IpNet;

use super::firewall::{Hook, Key, Limit};
use super::packets::Packets;

/// Priority at which destinations are translated, and the translation of sources is undone for
/// replies.
const DESTINATIONS: i64 = -100;

/// What a rule writes to a part of the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum To<T> {
    #[default]
    Same,
    One(T),
    /// The text does not tell.
    Any,
}

/// New addresses and ports of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// True if it changes the source, false for the destination.
    pub(super) source: bool,
    /// True if the new address belongs to this host.
    pub(super) here: bool,
    pub(super) addresses: To<Vec<IpNet>>,
    pub(super) ports: To<(u16, u16)>,
}

impl Change {
    /// A change to something that the text does not contain.
    pub(super) const fn any(source: bool) -> Self {
        Self { source, here: false, addresses: To::Any, ports: To::Any }
    }
}

impl Change {
    /// Completes the change: loopback addresses belong to this host.
    pub(super) fn settled(mut self) -> Self {
        if let To::One(nets) = &self.addresses {
            self.here |= !self.source && nets.iter().all(|net| net.addr().is_loopback());
        }
        self
    }
}

/// A translating rule, with the packets that reach it.
#[derive(Clone, Debug)]
pub(super) struct Translation {
    pub(super) rule: usize,
    pub(super) hook: Hook,
    pub(super) priority: i64,
    pub(super) packets: Packets,
    pub(super) change: Change,
}

impl Translation {
    /// True if packets reach it before they reach a place.
    fn is_before(&self, hook: Hook, priority: i64) -> bool {
        // Packets that this host sends do not come in.
        if !self.change.source && self.hook != Hook::Nat {
            return false;
        }
        match hook {
            // The translation of sources is undone there.
            Hook::Prerouting if self.change.source => DESTINATIONS <= priority,
            Hook::Prerouting => self.priority <= priority,
            Hook::Input | Hook::Forward => true,
            Hook::Nat | Hook::NatLater | Hook::Outgoing | Hook::Other => false,
        }
    }

    /// True if a rule's packets, as it sees them, may have been translated here.
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

    /// True if a limit on the packets on the wire would apply to other packets than the original.
    /// `opens` means that only first packets of connections reach the limit.
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
            // On the wire, replies have the source that was written.
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
        // They take another way: to this host, or through it.
        let other_way = match hook {
            Hook::Input => !self.change.here,
            Hook::Forward => self.change.here,
            _ => false,
        };
        (concerns && (takes || self.makes_some_of(packets))) || (address && other_way && takes)
    }
}
