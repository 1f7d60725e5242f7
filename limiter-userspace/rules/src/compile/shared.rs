//! Limits that nodes share: the numbers of each for the store, and what holds on this node while
//! its lease does not live.

use std::time::Duration;

use limiter_common::wire::{Algorithm, Count, Limit, LimitSpec, Record, Role};
use limiter_sharing::limit::{self, SYNC_MAX, SYNC_MIN};
use limiter_sharing::rate::Rate;
use limiter_sharing::window::{LENGTH_MAX, QUOTA_MAX, Window, WindowKind};
use limiter_sharing::{OnPartition, Settings, SharedLimit, SharedTerms};

use super::error::LimitError;
use super::record::{Failure, spec};
use super::{Environment, Pace, Quota, display_quota, paced};
use crate::dialect::Dialect;
use crate::model::{LimitList, Meter, Period, RuleLimit, Sharing, Unit};

/// Shortest window, in seconds, that nodes share.
const SHORTEST_WINDOW: u64 = 60;

/// A limit over several nodes.
#[derive(Clone, Copy, Debug)]
struct SharedSpec {
    terms: SharedTerms,
    /// Limit of this node without a living lease.
    fallback: LimitSpec,
    /// True if nothing passes without a lease. The fallback then only names the limit.
    closed: bool,
    /// True if nothing passes for a key that has no lease at all.
    keyless: bool,
}

/// Nodes, and the largest frame of this one.
#[derive(Clone, Copy, Debug)]
struct Among {
    /// Number of nodes, 1 to 65,535.
    nodes: u64,
    /// The largest frame of the interfaces in bytes.
    max_frame: u64,
    /// True if there are always leases.
    always: bool,
}

/// Makes a record of limits this node's part of what nodes share; gives the numbers of each limit.
/// Without a cluster the record stays the whole of them, and there are none. `always` says that
/// they have leases all the time, as those of a budget do.
///
/// # Errors
///
/// Every limit that cannot be shared, by its number from 0. Without a cluster as well: the file is
/// for all nodes.
pub(super) fn share(
    limits: &LimitList,
    record: &mut Record,
    sharing: &Sharing,
    always: bool,
    environment: &Environment<'_>,
) -> Result<Vec<SharedTerms>, Vec<Failure>> {
    let Environment { max_frame, cluster, .. } = *environment;
    let among = Among { nodes: cluster.unwrap_or(1), max_frame, always };
    let (mut own, mut first) = (*record, 0_u8);
    let (mut terms, mut failures) = (Vec::new(), Vec::new());
    // A limit that can be shared has nothing above it, so its place is its number.
    for (limit, (place, spec)) in limits.iter().zip(own.limits.iter_mut().enumerate()) {
        match share_limit(&limit, *spec, sharing, among) {
            Ok(shared) => {
                *spec = shared.fallback.at(first);
                first = first.saturating_add(spec.words);
                own.leased |= 1 << place;
                own.closed |= u8::from(shared.closed) << place;
                own.closed |= u8::from(shared.keyless) << place << Record::KEYLESS;
                terms.push(shared.terms);
            }
            Err(error) => failures.push((place, error)),
        }
    }
    if !failures.is_empty() {
        return Err(failures);
    }
    if cluster.is_none() {
        return Ok(Vec::new());
    }
    *record = own;
    Ok(terms)
}

/// Compiles a limit that nodes share; `whole` is the same limit for one node. No error depends on
/// the number of nodes, unless that is out of range.
fn share_limit(
    limit: &RuleLimit,
    whole: LimitSpec,
    sharing: &Sharing,
    among: Among,
) -> Result<SharedSpec, LimitError> {
    if let Some(upper) = &limit.upper {
        return Err(LimitError::SharedSoft { upper: upper.name() });
    }
    let quota = limit.meter.quota();
    let terms = terms(&limit.meter, sharing, among)?;
    let (part, keyless) = match &terms {
        SharedTerms::Bucket(_) if sharing.on_partition == OnPartition::Open && !among.always => {
            return Err(LimitError::SharedOpenKeys(display_quota(quota)));
        }
        // Among many nodes one may be too slow to be held, and then is none.
        SharedTerms::Bucket(of) => {
            (part(&limit.meter, of, among.max_frame).and_then(Result::ok), None)
        }
        SharedTerms::Window { window, .. } => {
            let part = part_of_window(&limit.meter, window, among.nodes);
            let part = part.and_then(|meter| spec(&meter, Role::Hard, among.max_frame).ok());
            // The store counts all of the quota: a part that passed beside it would come on top.
            (part, Some(!among.always))
        }
    };
    let (fallback, closed) = fallback(whole, part, sharing.on_partition);
    let keyless = keyless.unwrap_or(closed && !among.always);
    Ok(SharedSpec { terms, fallback, closed, keyless })
}

/// The numbers of a limit that nodes share. No error depends on the number of nodes, unless that is
/// out of range.
fn terms(meter: &Meter, sharing: &Sharing, among: Among) -> Result<SharedTerms, LimitError> {
    let quota = meter.quota();
    let sync = u64::try_from(sharing.sync.as_micros()).unwrap_or(u64::MAX);
    if !(SYNC_MIN..=SYNC_MAX).contains(&sync) {
        return Err(limit::LimitError::Sync(sync).into());
    }
    let largest = match quota.count {
        Count::Bytes => among.max_frame,
        Count::Packets | Count::Syns | Count::Flows => 1,
    };
    let kind = match meter {
        Meter::TokenBucket(_) | Meter::LeakyBucket { .. } => {
            let settings = |burst| {
                let settings = settings(quota, burst, largest, sync, sharing)?;
                Ok(Settings { always: among.always, ..settings })
            };
            return bucket(meter, among, settings).map(SharedTerms::Bucket);
        }
        Meter::FixedWindow(_) => WindowKind::Fixed,
        Meter::SlidingCounter(_) => WindowKind::SlidingCounter,
        Meter::SlidingLog(_) => WindowKind::SlidingLog,
        Meter::SlidingSlots { .. } => return Err(LimitError::SharedSlots),
    };
    let window = window(kind, quota, largest, sync, sharing)?;
    Ok(SharedTerms::Window { window, sync })
}

/// The part of a window that one of `nodes` has without a lease; `None` if that holds no packet.
/// The quota of `window` is what the nodes have together.
fn part_of_window(meter: &Meter, window: &Window, nodes: u64) -> Option<Meter> {
    let units = window.quota / nodes.max(1);
    (units >= window.largest).then(|| with_units(meter, units))
}

/// A limit of requests that nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRequests {
    /// Numbers for the store.
    pub terms: SharedTerms,
    /// What this node has of it without a lease; `None` if that holds no request, or is too slow.
    pub share: Option<Meter>,
}

/// Compiles a limit of requests, which counts them, for one of `nodes` (1 to 65,535).
///
/// # Errors
///
/// Why nodes cannot share it. None depends on the number of nodes, but where that is out of range.
pub fn share_of_requests(
    meter: &Meter,
    sharing: &Sharing,
    nodes: u64,
) -> Result<SharedRequests, LimitError> {
    let among = Among { nodes, max_frame: 1, always: false };
    let terms = terms(meter, sharing, among).map_err(|error| error.of(Dialect::Requests))?;
    let share = match &terms {
        SharedTerms::Bucket(limit) => share_of_bucket(meter, limit),
        SharedTerms::Window { window, .. } => part_of_window(meter, window, nodes),
    };
    let share = share.filter(|meter| spec(meter, Role::Hard, among.max_frame).is_ok());
    Ok(SharedRequests { terms, share })
}

/// A node's share of a bucket, as a limit of that node.
fn share_of_bucket(meter: &Meter, limit: &SharedLimit) -> Option<Meter> {
    let (rate, burst) = limit.cold()?;
    // `units` every `micros`, in whole seconds.
    let (units, micros) = (u128::from(rate.units()) * 1_000_000, u128::from(rate.micros()));
    let divisor = greatest_divisor(units, micros);
    let multiplier = u32::try_from(micros / divisor).ok()?;
    let period = Period { unit: Unit::Second, multiplier };
    let quota = Quota::new(meter.quota().count, u64::try_from(units / divisor).ok()?, period);
    Some(match meter {
        // As in a token bucket, except that the request itself needs no room.
        Meter::LeakyBucket { .. } => {
            let ahead = burst.saturating_sub(limit.settings().largest);
            // What is rounded up there would be more than the share.
            let micros = rate.micros_of(ahead).saturating_sub(1);
            Meter::LeakyBucket { quota, backlog: Duration::from_micros(micros) }
        }
        _ => Meter::TokenBucket(quota.with_burst(burst)),
    })
}

const fn greatest_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The limit that holds without a lease: `part` is the share, `None` if that holds no packet.
fn fallback(whole: LimitSpec, part: Option<LimitSpec>, on: OnPartition) -> (LimitSpec, bool) {
    match (on, part) {
        (OnPartition::Share, Some(part)) => (part, false),
        (OnPartition::Open, _) => (whole, false),
        (OnPartition::Share, None) | (OnPartition::Closed, _) => (whole, true),
    }
}

fn settings(
    quota: Quota,
    burst: u64,
    largest: u64,
    sync: u64,
    sharing: &Sharing,
) -> Result<Settings, LimitError> {
    let micros = quota.period.seconds() * 1_000_000;
    let rate = Rate::new(quota.requests_per_unit, micros)
        .ok_or_else(|| LimitError::SharedRate(display_quota(quota)))?;
    Ok(Settings {
        rate,
        burst,
        largest,
        sync,
        nodes: 1,
        share_of_rate: sharing.share.thousandths(),
        share_of_burst: sharing.share_of_burst.thousandths(),
        lease_cap: sharing.lease_cap.thousandths(),
        on_partition: sharing.on_partition,
        strict: sharing.strict,
        always: true,
    })
}

fn bucket(
    meter: &Meter,
    among: Among,
    settings: impl Fn(u64) -> Result<Settings, LimitError>,
) -> Result<SharedLimit, LimitError> {
    let quota = meter.quota();
    let settings = match meter {
        Meter::TokenBucket(rate) => settings(rate.burst)?,
        Meter::LeakyBucket { backlog, .. } => {
            // After a pause, a source may send one packet and what the backlog holds.
            let at_once = units_in(quota, *backlog);
            let settings = settings(1)?;
            Settings { burst: at_once.saturating_add(settings.largest), ..settings }
        }
        _ => return Err(LimitError::SharedSlots),
    };
    let limit = checked(settings).map_err(|error| refused(meter, settings, error))?;
    // Nodes come and go while a rule set is in force: if there ever is a share, one node has it.
    part(meter, &limit, among.max_frame).transpose()?;
    Ok(limit.among(among.nodes)?)
}

/// A node's share of a bucket; `None` if it holds no packet.
fn part(
    meter: &Meter,
    limit: &SharedLimit,
    max_frame: u64,
) -> Option<Result<LimitSpec, LimitError>> {
    let (rate, burst) = limit.cold()?;
    let quota = meter.quota();
    let nanos = rate.micros().saturating_mul(1_000);
    let pace = Pace { count: quota.count, units: rate.units(), nanos, burst };
    let share = paced(pace, max_frame, || format!("the share of {}", display_quota(quota)));
    Some(share.map(|share| match meter {
        Meter::LeakyBucket { .. } => {
            // As in a token bucket, except that the packet itself needs no room.
            let packet = u128::from(limit.settings().largest) * u128::from(share.increment);
            let packet = u64::try_from(packet >> share.shift).unwrap_or(u64::MAX);
            let tolerance = share.tolerance.saturating_sub(packet);
            LimitSpec::of_rate(Algorithm::LeakyBucket, &Limit { tolerance, ..share }, Role::Hard)
        }
        _ => LimitSpec::of_rate(Algorithm::TokenBucket, &share, Role::Hard),
    }))
}

/// Checks settings for any number of nodes. A strict limit loses its shares, the most with one
/// node, and none where a node's share holds no packet, as among many.
fn checked(settings: Settings) -> Result<SharedLimit, limit::LimitError> {
    let limit = SharedLimit::new(settings)?;
    if settings.strict {
        SharedLimit::new(Settings { strict: false, ..settings })?;
    }
    Ok(limit)
}

fn refused(meter: &Meter, settings: Settings, error: limit::LimitError) -> LimitError {
    match error {
        limit::LimitError::BurstOfSync { .. } | limit::LimitError::Packet { .. } => match meter {
            Meter::LeakyBucket { quota, .. } => {
                let needed = least_burst(settings).saturating_sub(settings.largest);
                let micros = settings.rate.micros_of(needed);
                let needed = Duration::from_millis(micros.div_ceil(1_000));
                LimitError::SharedBacklog { rate: display_quota(*quota), least: needed }
            }
            _ => LimitError::SharedBurst {
                burst: settings.burst,
                least: least_burst(settings),
                count: meter.quota().count,
                dialect: Dialect::Packets,
            },
        },
        limit::LimitError::Burst(burst) => LimitError::SharedBurstTooLarge(burst),
        limit::LimitError::Share(_) => LimitError::SharedWhole,
        other => other.into(),
    }
}

/// The least burst that is enough, as long as a node's share of it holds a packet.
fn least_burst(settings: Settings) -> u64 {
    let Settings { rate, largest, sync, share_of_rate, share_of_burst, .. } = settings;
    let whole = rate.units_in(2 * sync).max(largest);
    if !settings.strict || rate.share(share_of_rate, 1).is_none() {
        return whole;
    }
    let left = rate.share(1000_u64.saturating_sub(share_of_rate), 1).unwrap_or(rate);
    let central = left.units_in(2 * sync).max(largest);
    // The shares take the burst's part, rounded down.
    let left = 1000_u64.saturating_sub(share_of_burst).max(1);
    whole.max((central - 1).saturating_mul(1000) / left + 1)
}

fn window(
    kind: WindowKind,
    quota: Quota,
    largest: u64,
    sync: u64,
    sharing: &Sharing,
) -> Result<Window, LimitError> {
    let rate = || display_quota(quota);
    if quota.period.seconds() < SHORTEST_WINDOW {
        return Err(LimitError::SharedShortWindow(rate()));
    }
    let length = quota.period.seconds() * 1_000_000;
    if length > LENGTH_MAX {
        return Err(LimitError::SharedLongWindow(rate()));
    }
    if quota.requests_per_unit > QUOTA_MAX {
        return Err(LimitError::WindowTooLarge { rate: rate(), most: QUOTA_MAX });
    }
    if sharing.strict && sharing.on_partition != OnPartition::Closed {
        return Err(LimitError::SharedStrictWindow(rate()));
    }
    let (quota, lease_cap) = (quota.requests_per_unit, sharing.lease_cap.thousandths());
    Ok(Window { kind, length, quota, largest, life: 4 * sync, lease_cap })
}

/// Units that a rate lets pass in a time, rounded down.
fn units_in(quota: Quota, time: Duration) -> u64 {
    let units = u128::from(quota.requests_per_unit) * time.as_nanos();
    u64::try_from(units / u128::from(quota.period.nanos())).unwrap_or(u64::MAX)
}

/// The same windows with another quota.
fn with_units(meter: &Meter, requests_per_unit: u64) -> Meter {
    let quota = Quota { requests_per_unit, ..meter.quota() };
    match meter {
        Meter::FixedWindow(_) => Meter::FixedWindow(quota),
        Meter::SlidingLog(_) => Meter::SlidingLog(quota),
        Meter::SlidingCounter(_) => Meter::SlidingCounter(quota),
        other => *other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of a limit of requests, written as a limit, is the share that packets have.
    #[test]
    fn requests_and_packets_have_the_same_share() {
        let sharing = Sharing::default();
        let mut shares = 0;
        for (requests, multiplier, burst) in [
            (1000, 1, 1000),
            (7, 3600, 90),
            (5, 60, 200),
            (1, 86_400, 1000),
            (1_000_003, 1, 500_000),
        ] {
            let period = Period { unit: Unit::Second, multiplier };
            let quota = Quota::new(Count::Packets, requests, period);
            let micros = burst * 1_000_000 * u64::from(multiplier) / requests;
            let backlog = Duration::from_micros(micros);
            let meters = [
                Meter::TokenBucket(quota.with_burst(burst)),
                Meter::LeakyBucket { quota, backlog },
            ];
            for (meter, nodes) in meters.iter().flat_map(|meter| [1, 3, 64].map(|n| (meter, n))) {
                let SharedRequests { terms, share } =
                    share_of_requests(meter, &sharing, nodes).expect("good");
                let SharedTerms::Bucket(limit) = terms else { panic!("{terms:?}") };
                let packets = part(meter, &limit, 1).and_then(Result::ok);
                assert_eq!(share.is_some(), packets.is_some(), "{meter:?} {nodes}");
                let (Some(share), Some(packets)) = (share, packets) else { continue };
                let own = spec(&share, Role::Hard, 1).expect("good").rate();
                assert_eq!(own.increment, packets.rate().increment, "{meter:?} {nodes}");
                // A microsecond less, where a leaky bucket rounds.
                let less = packets.rate().tolerance - own.tolerance;
                assert!(
                    less <= 2_000 << limiter_common::time::TICK_BITS,
                    "{meter:?} {nodes}: {less}"
                );
                shares += 1;
            }
        }
        assert!(shares > 20, "{shares}");
    }

    #[test]
    fn a_window_has_its_part_and_a_share_without_a_request_is_none() {
        let quota = Quota::new(Count::Packets, 10, Period::one(Unit::Day));
        let share = |meter: Meter, nodes| {
            share_of_requests(&meter, &Sharing::default(), nodes).expect("good").share
        };
        let part = Quota { requests_per_unit: 3, ..quota };
        assert_eq!(share(Meter::FixedWindow(quota), 3), Some(Meter::FixedWindow(part)));
        assert_eq!(share(Meter::SlidingLog(quota), 11), None);
        assert_eq!(share(Meter::TokenBucket(quota.with_burst(10)), 2), None);
    }
}
