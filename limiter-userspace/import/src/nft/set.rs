//! Sets of nft, and JSON that stands for one or several values.

use ipnet::IpNet;
use serde_json::Value;

use crate::iptables::net;

/// The most elements that are read of a set.
const MOST: usize = 1 << 18;

/// The most prefixes for a range of addresses.
const MOST_OF_RANGE: usize = 256;

/// Fields of an element that change no verdict, except by its time.
const OF_ELEMENTS: [&str; 5] = ["val", "timeout", "expires", "comment", "counter"];

/// True if any of the statements is more than a counter.
fn decides(statements: &Value) -> bool {
    statements.as_array().is_some_and(|statements| {
        statements.iter().any(|statement| statement.get("counter").is_none())
    })
}

/// A set, or a map.
#[derive(Clone, Debug, Default)]
pub(super) struct Set<'a> {
    elements: Vec<&'a Value>,
    /// The time of elements without their own, in seconds.
    pub(super) timeout: Option<u64>,
    /// Statements of each element, such as a limit.
    pub(super) statements: Option<&'a Value>,
}

impl<'a> Set<'a> {
    pub(super) fn of(body: &'a Value) -> Self {
        let mut set = Self {
            timeout: body.get("timeout").and_then(Value::as_u64),
            statements: body.get("stmt").filter(|statements| decides(statements)),
            ..Self::default()
        };
        set.add(body);
        set
    }

    pub(super) fn add(&mut self, body: &'a Value) {
        let elements = body.get("elem").and_then(Value::as_array);
        self.elements.extend(elements.into_iter().flatten().take(MOST + 1));
    }

    /// The set of values inside a rule.
    pub(super) fn anonymous(values: &'a Value) -> Self {
        let elements = match values {
            Value::Array(values) => values.iter().take(MOST + 1).collect(),
            value => vec![value],
        };
        Self { elements, ..Self::default() }
    }

    /// True if an element has more than its presence and time.
    pub(super) fn has_limits(&self) -> bool {
        let more = |element: &&Value| {
            element
                .get("elem")
                .and_then(Value::as_object)
                .is_some_and(|inner| inner.keys().any(|key| !OF_ELEMENTS.contains(&key.as_str())))
        };
        self.statements.is_some() || self.elements.iter().any(more)
    }

    /// The elements without their details: value, and remaining seconds.
    pub(super) fn values(&self) -> Option<Vec<(&'a Value, Option<u64>)>> {
        if self.elements.len() > MOST {
            return None;
        }
        let of = |element: &&'a Value| match element.get("elem") {
            None => (*element, self.timeout),
            Some(inner) => {
                let left = inner.get("expires").or_else(|| inner.get("timeout"));
                let value = inner.get("val").unwrap_or(&Value::Null);
                (value, left.and_then(Value::as_u64).or(self.timeout))
            }
        };
        Some(self.elements.iter().map(of).collect())
    }
}

/// Reads the prefixes of a value: an address, a prefix, or a range.
pub(super) fn nets(value: &Value) -> Option<Vec<IpNet>> {
    if let Some(text) = value.as_str() {
        return net(text).map(|net| vec![net]);
    }
    if let Some(prefix) = value.get("prefix") {
        let length = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
        let address = prefix.get("addr")?.as_str()?.parse().ok()?;
        return IpNet::new(address, length).ok().map(|net| vec![net.trunc()]);
    }
    let [low, high] = value.get("range")?.as_array()?.as_slice() else { return None };
    let (low, high) = (low.as_str()?, high.as_str()?);
    let range = match (low.parse().ok()?, high.parse().ok()?) {
        (std::net::IpAddr::V4(low), std::net::IpAddr::V4(high)) => {
            ipnet::IpSubnets::from(ipnet::Ipv4Subnets::new(low, high, 0))
        }
        (std::net::IpAddr::V6(low), std::net::IpAddr::V6(high)) => {
            ipnet::IpSubnets::from(ipnet::Ipv6Subnets::new(low, high, 0))
        }
        _ => return None,
    };
    let nets: Vec<IpNet> = range.take(MOST_OF_RANGE + 1).collect();
    (nets.len() <= MOST_OF_RANGE && !nets.is_empty()).then_some(nets)
}

/// Reads the ports of a value: a number or a range.
pub(super) fn ports(value: &Value) -> Option<(u16, u16)> {
    let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
    if let Some(port) = number(value) {
        return Some((port, port));
    }
    let [low, high] = value.get("range")?.as_array()?.as_slice() else { return None };
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}
