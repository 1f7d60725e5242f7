//! Reads the daemon's counts through the commands that a user has.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use crate::limiter::Limiter;
use crate::sandbox::plan::{Direction, Role, Sender};

/// Packets of one source, or of all sources of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// Packets passed on to the network stack.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
}

/// Packets on the whole interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All packets.
    pub seen: u64,
    /// Packets passed on.
    pub passed: u64,
    /// Packets dropped.
    pub dropped: u64,
}

/// Counts of a sender by `limiter show`, or by `limiter stats` for the flood and for outgoing
/// packets: each of their rules has one sender.
///
/// # Errors
///
/// When the command fails or its answer does not have the published form.
pub fn counted(limiter: &Limiter, sender: &Sender) -> Result<Counted> {
    if sender.role != Role::Flood && sender.direction == Direction::In {
        let source = sender.sources.first().context("a sender has a source")?;
        let answer = limiter.json(&["show", &source.to_string()])?;
        return Ok(Counted {
            passed: number(&answer, "/passed")?,
            dropped: number(&answer, "/dropped")?,
        });
    }
    let prefix = sender.rule.prefix.map(|prefix| match sender.direction {
        Direction::In => prefix.to_string(),
        Direction::Out => {
            let prefix = prefix.to_string();
            // A single address stands without its prefix length.
            let value = prefix.strip_suffix("/32").unwrap_or(&prefix);
            format!("direction=out remote_address={value}")
        }
    });
    let answer = limiter.json(&["stats"])?;
    let rules = answer["rules"].as_array().context("`limiter stats`: no `rules`")?;
    let Some(rule) = rules.iter().find(|rule| rule["rule"].as_str() == prefix.as_deref()) else {
        return Ok(Counted::default());
    };
    Ok(Counted {
        passed: number(rule, "/passed/packets")?,
        dropped: number(rule, "/dropped/packets")?,
    })
}

/// Counts of the whole interface by `limiter stats`.
///
/// # Errors
///
/// As [`counted`].
pub fn totals(limiter: &Limiter) -> Result<Totals> {
    let answer = limiter.json(&["stats"])?;
    Ok(Totals {
        seen: number(&answer, "/seen/packets")?,
        passed: number(&answer, "/passed/packets")?,
        dropped: number(&answer, "/dropped/packets")?,
    })
}

fn number(answer: &Value, pointer: &str) -> Result<u64> {
    answer
        .pointer(pointer)
        .and_then(Value::as_u64)
        .with_context(|| format!("limiter's answer has no number at {pointer}: {answer}"))
}
