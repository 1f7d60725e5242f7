//! Rates and bursts that TCP cannot live with.

use std::time::Duration;

use limiter_common::wire::Count;
use limiter_text::spoken::exact;

use crate::compile::display_rate;
use crate::model::{Meeting, Meter, Part, Path, Quota, RateLimit, RuleLimit, Traffic, Upper};

/// Packets a second that a TCP session needs: somebody who types five keys a second sends a packet
/// for each, and one for each echo.
const SESSION_PACKETS: u64 = 10;

/// Bytes a second that a session needs: a full packet.
const SESSION_BYTES: u64 = 1_500;

/// Bytes at once with which a slow rate is a quota.
const QUOTA_BYTES: u64 = 1_000_000;

/// Most bytes that a TCP sender has under way, with the default buffers of Linux: 6 MB, and twice
/// that for both ends, and again.
const MOST_UNDER_WAY: u64 = 32 << 20;

/// The same in full packets.
const MOST_PACKETS: u64 = MOST_UNDER_WAY / 1_500;

/// Parts of a second of its rate that a burst must hold: a quarter.
const BURST_PARTS: u128 = 4;

/// True for a rate of packets with which a TCP session hangs.
pub const fn is_slow(quota: &Quota) -> bool {
    is_below(quota, SESSION_PACKETS)
}

/// True if a rate is less than so much a second.
const fn is_below(quota: &Quota, per_second: u64) -> bool {
    (quota.requests_per_unit as u128) < per_second as u128 * quota.period.seconds() as u128
}

/// The bound of a limit: what is over it is dropped.
struct Bound {
    quota: Quota,
    /// Units at once.
    burst: u128,
    /// A limit of the same rate, as its author writes how much passes at once.
    written: Written,
}

enum Written {
    Burst,
    Backlog,
    Window,
}

impl Bound {
    fn of(limit: &RuleLimit) -> Self {
        match &limit.upper {
            Some(Upper::Ceiling(rate) | Upper::Peak(rate) | Upper::Excess(rate)) => {
                Self::bucket(rate)
            }
            None => Self::meter(&limit.meter),
        }
    }

    fn meter(meter: &Meter) -> Self {
        match meter {
            Meter::TokenBucket(rate) => Self::bucket(rate),
            Meter::LeakyBucket { quota, backlog } => {
                let ahead = u128::from(quota.requests_per_unit) * backlog.as_nanos();
                let burst = ahead / u128::from(quota.period.nanos()) + 1;
                Self { quota: *quota, burst, written: Written::Backlog }
            }
            Meter::FixedWindow(quota)
            | Meter::SlidingLog(quota)
            | Meter::SlidingCounter(quota)
            | Meter::SlidingSlots { quota, .. } => Self {
                quota: *quota,
                burst: quota.requests_per_unit.into(),
                written: Written::Window,
            },
        }
    }

    fn bucket(rate: &RateLimit) -> Self {
        Self { quota: rate.quota(), burst: rate.burst.into(), written: Written::Burst }
    }
}

/// Says why no TCP session lives with a limit, and what to write; `None` if one does.
pub(super) fn session(
    limit: &RuleLimit,
    path: &Path,
    traffic: &Traffic,
    meeting: Meeting,
) -> Option<String> {
    let bound = Bound::of(limit);
    let Quota { count, requests_per_unit, period, .. } = bound.quota;
    let slow = match count {
        Count::Packets if traffic.names_service() => is_slow(&bound.quota),
        // A slow rate for a source, or for some, is mostly what is meant.
        Count::Packets => is_for_everybody(path) && is_below(&bound.quota, 2),
        Count::Bytes => is_below(&bound.quota, SESSION_BYTES) && bound.burst < QUOTA_BYTES.into(),
        Count::Syns | Count::Flows => false,
    };
    if !slow {
        return None;
    }
    let rate = display_rate(&bound.quota.with_burst(0));
    let wait = Duration::from_nanos(period.nanos() / requests_per_unit.max(1));
    let wait = exact(rounded(wait));
    let after = match (&bound.written, bound.burst) {
        // What a window has used up comes back with another window, and not bit by bit.
        (Written::Window, units) => {
            let length = exact(Duration::from_nanos(period.nanos()));
            format!("after {units} {} in {length} no more pass", count.name())
        }
        (_, bytes) if count == Count::Bytes => format!("after {bytes} bytes there is {rate}"),
        (_, 0 | 1) => format!("one passes every {wait}"),
        (_, packets) => format!("after {packets} packets one more passes every {wait}"),
    };
    let remedy = if count == Count::Packets && meeting.syns {
        let syns = display_rate(&Quota { count: Count::Syns, ..bound.quota }.with_burst(0));
        format!(
            "to limit connections, write `rate: {syns}` (`limiter set`: --count syns); to limit \
             packets, at least {SESSION_PACKETS}/s"
        )
    } else {
        "give it more".to_owned()
    };
    Some(format!("it counts {}, and {after}, so an open one hangs; {remedy}", count.name()))
}

/// Whole seconds from ten seconds on, otherwise milliseconds.
fn rounded(time: Duration) -> Duration {
    if time.as_secs() >= 10 {
        Duration::from_secs(time.as_secs())
    } else {
        Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Says how much less a ceiling lets come at once than the limit below it, and what to write;
/// `None` if it is no less.
pub fn low_ceiling(meter: &Meter, ceiling: &RateLimit) -> Option<String> {
    let below = Bound::meter(meter).burst;
    if u128::from(ceiling.burst) >= below {
        return None;
    }
    Some(format!(
        "{below} may come at once by its limit, and {} by its ceiling, which holds; give the \
         ceiling `burst: {below}` or more, or the limit less",
        ceiling.burst
    ))
}

/// Says how much smaller a window is than a super-frame may be, and what to write; `None` if it is
/// not, and for buckets, which owe what does not fit.
pub(super) fn super_frame(limit: &RuleLimit) -> Option<String> {
    let Bound { quota, burst, written } = Bound::of(limit);
    let most: u32 = match quota.count {
        // The kernel's 64 kB, in packets of about a kilobyte.
        Count::Packets => 64,
        Count::Bytes => 64 << 10,
        Count::Syns | Count::Flows => return None,
    };
    (matches!(written, Written::Window) && burst < most.into()).then(|| {
        let what = quota.count.name();
        format!(
            "it has {burst} {what}, and the kernel sends up to {most} as one frame; write \
             `algorithm: token_bucket`, which owes the rest, or {most} or more"
        )
    })
}

/// True if every source has the limit.
fn is_for_everybody(path: &Path) -> bool {
    path.parts.iter().any(|part| matches!(part, Part::Source(_, None)))
}

/// The least burst of a rate of bytes with which a TCP stream gets about the rate.
pub fn burst_for_tcp(quota: &Quota) -> u64 {
    // At most what is under way.
    u64::try_from(a_part_of(quota, MOST_UNDER_WAY)).unwrap_or(MOST_UNDER_WAY)
}

/// A quarter of a second of a rate, but no more than is ever under way.
fn a_part_of(quota: &Quota, most: u64) -> u128 {
    let per = u128::from(quota.period.seconds()) * BURST_PARTS;
    u128::from(quota.requests_per_unit).div_ceil(per).min(most.into())
}

/// The shortest wait, with what passes at once, that TCP gets about its rate with, in nanoseconds:
/// the table in docs/shaping-figures.md.
const WAIT: u128 = 50_000_000;

/// Full packets that the same must have room for.
const WAITING_PACKETS: u64 = 5;

/// True if waiting does not help a session: one more packet would pass later than any may wait.
pub(super) fn waits_in_vain(limit: &RuleLimit, longest: Duration) -> bool {
    let Quota { count, requests_per_unit, period, .. } = Bound::of(limit).quota;
    let full = if count == Count::Bytes { SESSION_BYTES } else { 1 };
    let each = u128::from(period.nanos()) * u128::from(full);
    each > longest.as_nanos() * u128::from(requests_per_unit)
}

/// Says how short a wait is, and what to write; `None` if TCP can live with it.
pub(super) fn wait(limit: &RuleLimit, traffic: &Traffic, longest: Duration) -> Option<String> {
    let bound = Bound::of(limit);
    let Quota { count, requests_per_unit, period, .. } = bound.quota;
    let full = match count {
        Count::Bytes => SESSION_BYTES,
        Count::Packets if traffic.names_tcp() => 1,
        Count::Packets | Count::Syns | Count::Flows => return None,
    };
    // A burst that is enough for a limit that drops is enough.
    if bound.burst >= a_part_of(&bound.quota, MOST_UNDER_WAY / if full == 1 { 1_500 } else { 1 }) {
        return None;
    }
    let (rate, per) = (u128::from(requests_per_unit.max(1)), u128::from(period.nanos()));
    let wanted = (WAIT * rate).div_ceil(per).max(u128::from(WAITING_PACKETS * full));
    let room = bound.burst + longest.as_nanos() * rate / per;
    if room >= wanted {
        return None;
    }
    // Less than a second: of slower rates the smallest burst is a quarter of a second.
    let millis = ((wanted - bound.burst.min(wanted)) * per).div_ceil(rate * 1_000_000);
    let (what, rate) = (count.name(), display_rate(&bound.quota.with_burst(0)));
    Some(format!(
        "with {} at once it has room for {room} {what} of {rate}, and a stream that is alone gets a \
         part of it; write `longest: {millis}ms` or more",
        bound.burst
    ))
}

/// Says how short a burst is, and what to write; `None` if TCP can live with it. `waits` is true if
/// the packets could wait instead.
pub(super) fn burst(limit: &RuleLimit, traffic: &Traffic, waits: bool) -> Option<String> {
    let waits = match (waits, traffic.only_goes_out()) {
        (false, _) => "",
        (true, true) => ", or let packets wait: `action: {delay: {longest: 200ms}}`",
        (true, false) => {
            ", or let packets wait, with `limiter run --hook tc` and Linux 6.6: \
             `action: {delay: {longest: 200ms}}`"
        }
    };
    let bound = Bound::of(limit);
    let Quota { count, requests_per_unit, period, .. } = bound.quota;
    let most = match count {
        Count::Bytes => MOST_UNDER_WAY,
        // Packets are limited against floods as well, whose senders do not wait.
        Count::Packets if traffic.names_tcp() => MOST_PACKETS,
        Count::Packets | Count::Syns | Count::Flows => return None,
    };
    let wanted = a_part_of(&bound.quota, most);
    if bound.burst >= wanted {
        return None;
    }
    let long = bound.burst * u128::from(period.nanos()) / u128::from(requests_per_unit.max(1));
    let long = exact(rounded(Duration::from_nanos(u64::try_from(long).unwrap_or(u64::MAX))));
    let rate = display_rate(&bound.quota.with_burst(0));
    let what = count.name();
    let has = format!("{} {what} are {long} of {rate}", bound.burst);
    Some(match bound.written {
        Written::Burst => {
            let burst = match count {
                Count::Bytes => format!("{}kB", wanted.div_ceil(1_000)),
                _ => wanted.to_string(),
            };
            format!(
                "{has}, and a stream that is alone gets a part of it; write `burst: {burst}` or \
                 more, a quarter of a second{waits}"
            )
        }
        Written::Backlog => format!(
            "{has}, and a stream that is alone gets a part of it; write `backlog: 250ms` or more{waits}"
        ),
        Written::Window => return None,
    })
}
