//! Answers of the scripts. Nothing in them is trusted.

use redis::Value;

use crate::membership::{self, Membership, Met, RawChange, RawNode};
use crate::store::{HotKey, StoreError};

/// Answer of a script for limits: numbers, and hot keys.
pub(super) type Reply = (Vec<i64>, Vec<HotKey>);

fn number(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(StoreError::Wrong("a number")),
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.clone()),
        _ => Err(StoreError::Wrong("a text")),
    }
}

/// Parses an answer of the queue script.
pub(super) fn queue_numbers(value: &Value) -> Result<Vec<i64>, StoreError> {
    let Value::Array(values) = value else { return Err(StoreError::Wrong("its form")) };
    numbers(values)
}

fn numbers(values: &[Value]) -> Result<Vec<i64>, StoreError> {
    values.iter().map(number).collect()
}

/// Parses an answer, of which nothing is trusted.
pub(super) fn reply(value: Value) -> Result<Reply, StoreError> {
    let Value::Array(parts) = value else { return Err(StoreError::Wrong("its form")) };
    let [Value::Array(head), Value::Array(hot)] = parts.as_slice() else {
        return Err(StoreError::Wrong("its parts"));
    };
    let head = numbers(head)?;
    let (pairs, []) = hot.as_chunks::<2>() else {
        return Err(StoreError::Wrong("its list of hot keys"));
    };
    let hot = pairs.iter().map(|pair| match pair {
        [Value::BulkString(name), Value::Int(at)] if *at >= 0 => {
            Ok(HotKey { name: name.as_slice().into(), at: at.unsigned_abs() })
        }
        _ => Err(StoreError::Wrong("a hot key")),
    });
    Ok((head, hot.collect::<Result<_, _>>()?))
}

/// Parses an answer of the node script.
pub(super) fn met(membership: &Membership, value: Value) -> Result<Met, StoreError> {
    let Value::Array(parts) = value else { return Err(StoreError::Wrong("its form")) };
    let [Value::Array(head), Value::Array(nodes), Value::Array(changes)] = parts.as_slice() else {
        return Err(StoreError::Wrong("its parts"));
    };
    let (nodes, []) = nodes.as_chunks::<3>() else {
        return Err(StoreError::Wrong("its list of nodes"));
    };
    let (changes, []) = changes.as_chunks::<4>() else {
        return Err(StoreError::Wrong("its list of changes"));
    };
    let node = |[name, at, text]: &[Value; 3]| -> Result<RawNode, StoreError> {
        Ok((bytes(name)?, number(at)?, bytes(text)?))
    };
    let change = |[at, name, end, text]: &[Value; 4]| -> Result<RawChange, StoreError> {
        Ok((number(at)?, bytes(name)?, number(end)?, bytes(text)?))
    };
    let nodes = nodes.iter().map(node).collect::<Result<_, _>>()?;
    let changes = changes.iter().map(change).collect::<Result<_, _>>()?;
    membership::read(membership, &numbers(head)?, nodes, changes)
}
