//! Sends packets into both cables, and through the model.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_common::wire::ListEntry;
use limiter_model::{Framing, Model, Packet};
use limiter_rules::{Environment, Installed, RuleSet};

use super::load::Schedule;
use crate::interrupt::Interrupt;
use crate::packet::MAX_FRAME;
use crate::packet_socket::PacketSocket;

/// Sends each frame into both cables until an interrupt; returns the time of each since the first.
pub(super) fn send(
    frames: &Schedule,
    cables: [&PacketSocket; 2],
    interrupt: &Interrupt,
) -> Result<Vec<Duration>> {
    let begin = Instant::now();
    let mut times = Vec::with_capacity(frames.len());
    for (at, frame) in frames {
        if interrupt.is_set() {
            break;
        }
        let wait = at.saturating_sub(begin.elapsed());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        times.push(begin.elapsed());
        for cable in cables {
            cable.send(frame)?;
        }
    }
    Ok(times)
}

/// Packets that a rule set passes if they come at these times.
pub(super) fn arithmetic(set: &RuleSet, frames: &Schedule, times: &[Duration]) -> Result<u64> {
    const INTERFACE: u32 = 7;
    let environment = Environment {
        max_frame: MAX_FRAME,
        interface_index: &|_| Some(INTERFACE),
        cpus: 1,
        cluster: None,
        in_at_tc: Some(false),
    };
    let mut model = Model::new();
    model.commit(Installed::default().plan(set, 1, 16_384, &environment)?, Ticks::ZERO);
    for (selector, entry) in &set.lists {
        model.list(selector, ListEntry::of_rule_file(entry.verdict(), None));
    }
    let mut passed = 0;
    for ((_, frame), time) in frames.iter().zip(times) {
        let nanos = u64::try_from(time.as_nanos())? + 3_600_000_000_000;
        let (length, now) = (u64::try_from(frame.len())?, Ticks::from_nanos(nanos));
        let packet = Packet::received(Framing::Ethernet, frame, length, INTERFACE);
        let outcome = model.judge_packet(&packet, now);
        passed += u64::from(outcome.reason.verdict() == Verdict::Pass);
    }
    Ok(passed)
}
