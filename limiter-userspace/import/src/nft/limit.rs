//! Limits of nft: `limit`, named limits, and limits of set elements.

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, Period, Unit};
use serde_json::Value;

use super::field::{Field, field, implied};
use crate::difference::Difference;
use crate::firewall::{Key, Limit};
use crate::packets::{Family, Packets};
use crate::rate;

/// Reads `{"rate": 10, "per": "second", "burst": 5, "inv": true}`.
pub(super) fn limit(body: &Value) -> Result<Limit, &'static str> {
    let known = ["rate", "per", "burst", "inv", "rate_unit", "burst_unit"];
    let of_object = ["family", "name", "table", "handle", "comment"];
    let Some(fields) = body.as_object() else { return Err("a limit cannot be read") };
    if fields.keys().any(|key| !known.contains(&key.as_str()) && !of_object.contains(&key.as_str()))
    {
        return Err("a limit has a field that is not known");
    }
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let word = |name: &str| fields.get(name).and_then(Value::as_str);
    let amount = number("rate").filter(|rate| *rate > 0).ok_or("a limit has no rate")?;
    let unit = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week]
        .into_iter()
        .find(|unit| word("per") == Some(unit.name()))
        .ok_or("a limit is for no unit of time that is known")?;
    let burst = match fields.get("burst") {
        None => 0,
        Some(burst) => burst.as_u64().ok_or("the burst of a limit cannot be read")?,
    };
    let over = match fields.get("inv") {
        None => false,
        Some(inv) => inv.as_bool().ok_or("a limit cannot be read")?,
    };
    let mut differences = Vec::new();
    let meter = match word("rate_unit") {
        None | Some("packets") => {
            if burst == 0 || burst == 5 {
                differences.push(Difference::DefaultBurst);
            }
            let burst = if burst == 0 { 5 } else { burst };
            rate::bucket(Count::Packets, amount, Period::one(unit), burst)
        }
        Some(size) => {
            let amount = bytes(amount, size)?;
            let burst = bytes(burst, word("burst_unit").unwrap_or("bytes"))?;
            differences.push(Difference::ByteBurst(
                "there one whole unit of time of the rate beside it; here both are the burst",
            ));
            let burst = amount.checked_add(burst).ok_or("a limit is too large")?;
            let what = "of IP packets, merged by GRO";
            differences.push(Difference::Bytes { what, piece: 1, most: burst });
            rate::bucket(Count::Bytes, amount, Period::one(unit), burst)
        }
    };
    Ok(Limit { meter, over, key: vec![], memory: None, shared: None, pair: None, differences })
}

fn bytes(amount: u64, unit: &str) -> Result<u64, &'static str> {
    let factor = match unit {
        "bytes" => 1,
        "kbytes" => 1 << 10,
        "mbytes" => 1 << 20,
        _ => return Err("a limit counts in a unit that is not known"),
    };
    amount.checked_mul(factor).ok_or("a limit is too large")
}

/// Reads the limit of each element, from `{"set": ...}` with statements or from `{"meter": ...}`.
///
/// `keeps` means that elements expire after their time since they were made instead of since their
/// last use; `timeout` are the seconds of elements without their own time.
pub(super) fn of_elements(
    key: &Value,
    statements: &Value,
    keeps: bool,
    timeout: Option<u64>,
    packets: &mut Packets,
) -> Result<Limit, String> {
    let statements: Vec<&Value> = match statements {
        Value::Array(statements) => statements.iter().collect(),
        one => vec![one],
    };
    let mut found = None;
    for statement in statements {
        if let Some(body) = statement.get("limit") {
            let limit = limit(body)?;
            if found.replace(limit).is_some() {
                return Err("its elements have several limits".to_owned());
            }
        } else if statement.get("counter").is_none() {
            return Err(if statement.get("ct count").is_some() {
                OPEN_CONNECTIONS.to_owned()
            } else if statement.get("quota").is_some() {
                format!("quota: {}", rate::QUOTA)
            } else {
                "its elements have a statement that is not known".to_owned()
            });
        }
    }
    let mut limit = found.ok_or("its elements have no limit")?;
    let (key, timeout) = match key.get("elem") {
        Some(element) => {
            let own = element.get("timeout").and_then(Value::as_u64);
            (element.get("val").unwrap_or(&Value::Null), own.or(timeout))
        }
        None => (key, timeout),
    };
    if let Some(seconds) = timeout.filter(|seconds| *seconds > 0)
        && let Meter::TokenBucket(rate) = limit.meter
    {
        let (amount, unit) = (rate.requests_per_unit, rate.period.unit);
        let milliseconds = seconds.saturating_mul(1000);
        if keeps || rate::fills_slower(amount, unit, rate.burst, milliseconds) {
            limit.differences.push(Difference::Forgotten { milliseconds, always: keeps });
        }
    }
    let parts = match key.get("concat").and_then(Value::as_array) {
        Some(parts) => parts.iter().collect(),
        None => vec![key],
    };
    for part in parts {
        let (expression, bits) = masked(part)?;
        let field =
            field(expression).ok_or_else(|| format!("limiter has no buckets by {expression}"))?;
        if !implied(field, packets) {
            return Err("its key excludes its conditions".to_owned());
        }
        let part = match (field, bits) {
            (Field::Source(family), bits) => {
                Key::Source(bits.unwrap_or(if family == Family::V4 { 32 } else { 128 }))
            }
            (_, Some(_)) => return Err("limiter masks sources only".to_owned()),
            (Field::Destination(_), None) => Key::Destination,
            (Field::Port(_), None) => Key::Port,
            (Field::Protocol(_), None) => Key::Protocol,
            (Field::Interface, None) => Key::Interface,
            (_, None) => {
                return Err(format!("limiter has no buckets by {expression}"));
            }
        };
        if limit.key.contains(&part) {
            return Err("its key names one field twice".to_owned());
        }
        limit.key.push(part);
    }
    limit.differences.push(Difference::Full(if limit.over {
        "packets of new keys are not limited"
    } else {
        "packets of new keys are taken to be over the limit"
    }));
    Ok(limit)
}

/// The reason why connections are not limited.
pub(super) const OPEN_CONNECTIONS: &str = "ct count: connections that are open are not counted";

/// An expression, and how many of its bits count if it is masked.
fn masked(part: &Value) -> Result<(&Value, Option<u8>), String> {
    if let Some(prefix) = part.get("prefix") {
        let length = prefix.get("len").and_then(Value::as_u64).and_then(|l| u8::try_from(l).ok());
        return match (prefix.get("addr"), length) {
            (Some(address), Some(length)) if length > 0 => Ok((address, Some(length))),
            _ => Err("a mask of its key cannot be read".to_owned()),
        };
    }
    let Some(both) = part.get("&").and_then(Value::as_array) else { return Ok((part, None)) };
    let [expression, mask] = both.as_slice() else {
        return Err("a mask of its key cannot be read".to_owned());
    };
    let address = mask.as_str().and_then(|mask| mask.parse::<std::net::IpAddr>().ok());
    let length = address.and_then(|mask| ipnet::ip_mask_to_prefix(mask).ok());
    match length.filter(|length| *length > 0) {
        Some(length) => Ok((expression, Some(length))),
        None => Err("a mask of its key is no prefix".to_owned()),
    }
}
