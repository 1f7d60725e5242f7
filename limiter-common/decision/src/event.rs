//! Chooses the drops that are reported individually. All are counted; an event is sent only within
//! each CPU's budget, so that a flood of drops costs a read and an addition each.

use limiter_common::frame_size::FrameSize;
use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::wire::{Event, EventBudget};

use crate::outcome::Packed;
use crate::packet::Facts;

/// Longest time in ticks until the next event, about eight seconds. More is left only if the clock
/// ran backwards.
const FURTHEST: u64 = 1 << 38;

/// Lowest rate of events: `FURTHEST` is more than a second.
pub const MIN_PER_SECOND: u32 = 1;

/// Highest rate of events.
pub const MAX_PER_SECOND: u32 = 1_000_000;

/// The rate of events on each CPU, in two words of `CONTROL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRate {
    /// Ticks per event; 0 for no events.
    pub cost: u64,
    /// Ticks by which events may be ahead of the rate.
    pub credit: u64,
}

impl EventRate {
    /// True if no event may be sent on this CPU at `now`; the drop is then counted. Most drops of a
    /// flood end here.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn is_used_up(budget: &mut EventBudget, now: Ticks) -> bool {
        let left = budget.next.wrapping_sub(now.get());
        let used_up = left.wrapping_sub(1) < FURTHEST;
        if used_up {
            budget.over_budget = budget.over_budget.wrapping_add(1);
        }
        used_up
    }

    /// Charges an event to this CPU's budget, if [`EventRate::is_used_up`] returned false. False if
    /// the budget is used up; the drop is then counted.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn admit(self, budget: &mut EventBudget, now: Ticks) -> bool {
        let Self { cost, credit } = self;
        if cost == 0 {
            budget.over_budget = budget.over_budget.wrapping_add(1);
            return false;
        }
        // The theoretical arrival time of the token bucket is `credit` later than `next`.
        let arrival = budget.next.saturating_add(credit);
        // A TAT ahead of the clock means that the clock ran backwards: the budget starts again.
        let behind = budget.next > now.get();
        let start = if behind || arrival < now.get() { now.get() } else { arrival };
        budget.next = start.saturating_add(cost).saturating_sub(credit);
        true
    }
}

/// The event that reports a packet.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn of(facts: &Facts, outcome: Packed, size: FrameSize, now: Ticks) -> Event {
    let (protocol, has_protocol) = match facts.protocol() {
        Some(protocol) => (protocol, Event::PROTOCOL),
        None => (0, 0),
    };
    let (source_port, destination_port, has_ports) = match facts.ports() {
        Some(ports) => (ports.source, ports.destination, Event::PORTS),
        None => (0, 0, 0),
    };
    let direction = match facts.direction() {
        Direction::In => 0,
        Direction::Out => Event::OUT,
    };
    Event {
        source: facts.source().trie_key(),
        time: now.get(),
        rule: outcome.rule(),
        interface: facts.interface(),
        length: (size.bytes() & 0xffff_ffff) as u32,
        source_port,
        destination_port,
        reason: (outcome.reason_index() & 0xff) as u8,
        version: facts.version() as u8,
        protocol,
        known: has_protocol | has_ports | direction,
        packets: (size.packets() & 0xffff_ffff) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(rate: EventRate, budget: &mut EventBudget, now: u64) -> bool {
        let now = Ticks::new(now);
        !EventRate::is_used_up(budget, now) && rate.admit(budget, now)
    }

    const RATE: EventRate = EventRate { cost: 100, credit: 400 };

    fn sent(budget: &mut EventBudget, now: u64, packets: u32) -> usize {
        let reported = |_: &u32| asked(RATE, budget, now);
        (0..packets).filter(reported).count()
    }

    #[test]
    fn a_burst_is_one_more_than_the_credit_and_then_comes_the_rate() {
        let mut budget = EventBudget::default();
        assert_eq!(sent(&mut budget, 1_000, 50), 5);
        assert_eq!(budget.over_budget, 45);
        assert_eq!(sent(&mut budget, 1_099, 1), 0);
        assert_eq!(sent(&mut budget, 1_100, 50), 1);
        assert_eq!(sent(&mut budget, 1_350, 50), 2);
        // An hour saves up no more than a burst.
        assert_eq!(sent(&mut budget, 1 << 45, 50), 5);
    }

    #[test]
    fn a_clock_that_ran_backwards_is_no_silence() {
        let mut budget = EventBudget { next: 1 << 50, ..EventBudget::default() };
        assert_eq!(sent(&mut budget, 1_000, 50), 5);
    }

    #[test]
    fn no_rate_is_no_event_and_every_drop_is_counted() {
        let mut budget = EventBudget::default();
        assert!(!asked(EventRate::default(), &mut budget, 7));
        assert_eq!(budget, EventBudget { over_budget: 1, ..EventBudget::default() });
    }
}
