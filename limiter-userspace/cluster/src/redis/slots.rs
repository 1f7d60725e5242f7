//! Slots of a Redis Cluster: the slot of a key, and the server of a slot, from the answer to
//! `CLUSTER SLOTS`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use redis::Value;

use super::settings::Address;
use crate::store::StoreError;

pub(super) const SLOTS: u16 = 16_384;
pub(super) const SERVERS_MAX: usize = 2000;
/// Longest name of a host, in bytes.
const HOST_MAX: usize = 255;

/// Slot of a key: CRC-16/XMODEM of the text in its first braces, or of the whole key.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % SLOTS
}

impl Address {
    /// Name or address of its host; `None` for a unix socket.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp { host, .. } | Self::Tls { host, .. } => Some(host),
        }
    }

    /// Address of another server of the same cluster, with the same kind of connection.
    pub(super) fn of_peer(&self, host: String, port: u16) -> Self {
        match self {
            Self::Tls { authority, .. } => Self::Tls { host, port, authority: authority.clone() },
            Self::Tcp { .. } | Self::Unix(_) => Self::Tcp { host, port },
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotMap {
    /// For the first slot of each range: its last slot, and its server.
    ranges: BTreeMap<u16, (u16, Address)>,
    /// Servers without slots: replicas, which may take over.
    replicas: BTreeSet<Address>,
}

impl SlotMap {
    /// Reads the answer of the server at `asked` to `CLUSTER SLOTS`.
    pub(super) fn read(answer: &Value, asked: &Address) -> Result<Self, StoreError> {
        let wrong = || StoreError::Wrong("its slots of the cluster");
        let Value::Array(rows) = answer else { return Err(wrong()) };
        let mut map = Self::default();
        for row in rows {
            let Value::Array(parts) = row else { return Err(wrong()) };
            let [Value::Int(first), Value::Int(last), master, replicas @ ..] = parts.as_slice()
            else {
                return Err(wrong());
            };
            let slot = |number: i64| u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
            let (first, last) = (slot(*first).ok_or_else(wrong)?, slot(*last).ok_or_else(wrong)?);
            let overlaps = map.ranges.range(..=last).next_back().is_some_and(|(_, r)| r.0 >= first);
            if first > last || overlaps {
                return Err(wrong());
            }
            let master = server(master, asked).ok_or_else(wrong)?;
            map.ranges.insert(first, (last, master));
            // A replica without a known name cannot be asked.
            map.replicas.extend(replicas.iter().filter_map(|replica| server(replica, asked)));
        }
        if map.masters().len() + map.replicas.len() > SERVERS_MAX {
            return Err(wrong());
        }
        Ok(map)
    }

    pub(super) fn server_of(&self, slot: u16) -> Option<&Address> {
        let (_, (last, server)) = self.ranges.range(..=slot).next_back()?;
        (slot <= *last).then_some(server)
    }

    /// True if no server has a slot.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Servers with slots, and their number of slots.
    pub(super) fn masters(&self) -> BTreeMap<&Address, u16> {
        let mut masters = BTreeMap::new();
        for (first, (last, server)) in &self.ranges {
            *masters.entry(server).or_default() += last - first + 1;
        }
        masters
    }

    /// Servers that may take over.
    pub(super) fn replicas(&self) -> impl Iterator<Item = &Address> {
        self.replicas.iter()
    }
}

/// A server in an answer to `CLUSTER SLOTS`: host, port, and fields that do not matter here.
fn server(value: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = value else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = match host {
        // A server that does not know its own name has the address where it was asked.
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        _ => return None,
    };
    peer(host, u16::try_from(*port).ok()?, asked)
}

/// The server that `HOST:PORT` in a `MOVED` or `ASK` answer names.
pub(super) fn redirect(place: &str, asked: &Address) -> Option<Address> {
    let (host, port) = place.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    peer(bare, port.parse().ok()?, asked)
}

/// Another server of the same cluster as the one at `asked`.
fn peer(host: &str, port: u16, asked: &Address) -> Option<Address> {
    let host = if host.is_empty() { asked.host()? } else { host };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_good = host.len() <= HOST_MAX && host.chars().all(plain);
    let is_host = is_good || host.parse::<Ipv6Addr>().is_ok();
    (is_host && port > 0).then(|| asked.of_peer(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn row(first: i64, last: i64, servers: &[(Value, i64)]) -> Value {
        let servers = servers.iter().map(|(host, port)| {
            Value::Array(vec![host.clone(), Value::Int(*port), text("id"), Value::Array(vec![])])
        });
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(servers).collect())
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b""), 0);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        // Empty or unclosed braces are not a tag.
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_ne!(slot_of(b"foo{bar"), slot_of(b"bar"));
    }

    #[test]
    fn servers_have_their_ranges() {
        let asked = at("192.0.2.1", 7000);
        let rows = vec![
            row(0, 5, &[(text("192.0.2.2"), 7001), (text("?"), 7003)]),
            row(8, 8, &[(Value::Nil, 7000), (text("2001:db8::1"), 7004)]),
            row(100, 16_383, &[(text("192.0.2.2"), 7001)]),
        ];
        let map = SlotMap::read(&Value::Array(rows), &asked).expect("good");
        let of = |slot| map.server_of(slot).cloned();
        let (one, two) = (at("192.0.2.1", 7000), at("192.0.2.2", 7001));
        assert_eq!((of(0), of(5), of(6), of(7)), (Some(two.clone()), of(0), None, None));
        assert_eq!((of(8), of(9), of(16_383)), (Some(one.clone()), None, of(0)));
        assert_eq!(map.masters(), BTreeMap::from([(&one, 1), (&two, 6 + 16_284)]));
        let replicas: Vec<_> = map.replicas().map(Address::to_string).collect();
        assert_eq!(replicas, ["[2001:db8::1]:7004"]);
    }

    #[test]
    fn a_map_that_no_cluster_has_is_refused() {
        let asked = at("192.0.2.1", 7000);
        let good = || vec![(text("192.0.2.2"), 7001)];
        for rows in [
            Value::Okay,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(1)])]),
            Value::Array(vec![row(0, 16_384, &good())]),
            Value::Array(vec![row(-1, 5, &good())]),
            Value::Array(vec![row(6, 5, &good())]),
            Value::Array(vec![row(0, 5, &good()), row(5, 9, &good())]),
            Value::Array(vec![row(5, 5, &good()), row(0, 9, &good())]),
            Value::Array(vec![row(0, 5, &[(text("?"), 7001)])]),
            Value::Array(vec![row(0, 5, &[(text("192.0.2.2"), 0)])]),
            Value::Array(vec![row(0, 5, &[(text("a b"), 7001)])]),
            Value::Array(vec![row(0, 5, &[(Value::Okay, 7001)])]),
        ] {
            let error = SlotMap::read(&rows, &asked).expect_err("wrong");
            assert_eq!(error, StoreError::Wrong("its slots of the cluster"), "{rows:?}");
        }
        assert_eq!(SlotMap::read(&Value::Array(vec![]), &asked), Ok(SlotMap::default()));
    }

    #[test]
    fn a_call_is_sent_on_in_the_way_it_came() {
        let asked = at("a.example", 7000);
        let tls = Address::Tls { host: "a.example".to_owned(), port: 7000, authority: None };
        assert_eq!(redirect("192.0.2.1:7001", &asked), Some(at("192.0.2.1", 7001)));
        assert_eq!(redirect(":7001", &asked), Some(at("a.example", 7001)));
        assert_eq!(redirect("2001:db8::1:7001", &asked), Some(at("2001:db8::1", 7001)));
        let there = Address::Tls { host: "b.example".to_owned(), port: 7001, authority: None };
        assert_eq!(redirect("b.example:7001", &tls), Some(there));
        for wrong in ["?:7001", "7001", "a:b", "a:0", "a:70000", "a b:1", "\r\n:1"] {
            assert_eq!(redirect(wrong, &asked), None, "{wrong}");
        }
    }
}
