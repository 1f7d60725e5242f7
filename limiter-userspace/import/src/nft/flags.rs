//! Conditions on TCP flags that mean an attempt to open a connection.

use serde_json::Value;

use crate::iptables::is_opening;

/// True for `tcp flags & (fin|syn|rst|ack) == syn`, in each of its spellings.
pub(super) fn opens(left: &Value, op: &str, right: &Value) -> bool {
    let Some([payload, mask]) = left.get("&").and_then(Value::as_array).map(Vec::as_slice) else {
        return false;
    };
    let of_flags = payload.get("payload").is_some_and(|payload| {
        payload.get("protocol").and_then(Value::as_str) == Some("tcp")
            && payload.get("field").and_then(Value::as_str) == Some("flags")
    });
    let mut flags = Vec::new();
    let read = all_flags(mask, &mut flags);
    flags.sort_unstable();
    of_flags
        && read
        && op == "=="
        && right.as_str() == Some("syn")
        && is_opening(&flags.join(",").to_ascii_uppercase(), "SYN")
}

/// Reads flags of a list, or of `a | b | c`.
fn all_flags<'a>(mask: &'a Value, flags: &mut Vec<&'a str>) -> bool {
    let parts = match mask {
        Value::String(flag) => {
            flags.push(flag);
            return true;
        }
        Value::Array(parts) => Some(parts),
        other => other.get("|").and_then(Value::as_array),
    };
    parts.is_some_and(|parts| parts.iter().all(|part| all_flags(part, flags)))
}
