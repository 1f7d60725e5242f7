//! The curve against sums over all pairs of packets, and proposals against what they promise.

use std::collections::BTreeMap;

use limiter_rules::model::Terms;
use limiter_rules::warnings::Warnings;
use limiter_rules::{Path, RateLimit, Rule, RuleFile, Selector, compile};
use proptest::prelude::*;

use super::*;
use crate::explain;
use crate::{load, simulate::Simulation};

const SECOND: u64 = 1_000_000_000;
const BEGAN: u64 = load::BEGAN;

fn source(host: u32) -> Source {
    Source::V4((0x0a00_0000 + host).to_be_bytes())
}

fn tuner(settings: Settings) -> Tuner {
    Tuner::new(settings).unwrap()
}

fn packets(tuner: &mut Tuner, times: &[(u64, u32, u64)]) {
    for (nanos, host, bytes) in times {
        let source = source(*host);
        tuner.observe(&Observation { nanos: BEGAN + nanos, source, bytes: *bytes });
    }
}

/// The largest of cost(s..=t) less the time from s to t, over all pairs, in ticks.
fn naive(rate: &Rate, times: &[(u64, u64)]) -> u64 {
    let mut most = 0;
    for (from, (first, _)) in times.iter().enumerate() {
        let mut cost = 0i128;
        for (last, units) in &times[from..] {
            cost += i128::from(rate.cost(*units).get());
            let time = (i128::from(*last) - i128::from(*first)) * 32;
            most = most.max(u64::try_from(cost - time).unwrap_or(0));
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// One pass gives the same curve as all pairs, for packets and bytes, in order or not.
    #[test]
    fn the_curve_is_that_of_all_pairs(
        gaps in prop::collection::vec((0u64..3 * SECOND, 0u8..4, 60u64..1500), 1..40),
        bytes in any::<bool>(),
        unordered in any::<bool>(),
    ) {
        let count = if bytes { Count::Bytes } else { Count::Packets };
        let mut tuner = tuner(Settings { count, ..Settings::default() });
        let mut now = 0;
        let times: Vec<_> = gaps.into_iter().map(|(gap, scale, length)| {
            now += gap >> (scale * 8);
            // Some are older than the one before, as from another queue of a card.
            let at = if unordered && length % 3 == 0 { now.saturating_sub(gap) } else { now };
            (at, 1, length)
        }).collect();
        packets(&mut tuner, &times);
        let units: Vec<_> =
            times.iter().map(|(at, _, length)| (*at, if bytes { *length } else { 1 })).collect();
        for (place, rate) in tuner.rates.iter().enumerate() {
            let need = tuner.need(&tuner.kept[&source(1)], place);
            prop_assert_eq!(need, naive(rate, &units), "{}", rate.per_second());
            if let Some(burst) = rate.burst(need) {
                prop_assert!(rate.allows(burst).unwrap() >= need);
                let less = burst.checked_sub(1).and_then(|less| rate.allows(less));
                prop_assert!(less.is_none_or(|allowed| allowed < need));
            }
        }
    }
}

/// A proposal in bytes has a burst with which a TCP stream reaches its rate.
#[test]
fn a_proposal_in_bytes_has_a_burst_for_tcp() {
    let mut tuner = tuner(Settings { count: Count::Bytes, ..Settings::default() });
    // 30 sources with a packet each 10 ms: no burst at all is needed for them.
    for packet in 0..2_000u64 {
        for host in 0..30 {
            let nanos = BEGAN + packet * SECOND / 100;
            tuner.observe(&Observation { nanos, source: source(host), bytes: 1_000 });
        }
    }
    let report = tuner.report();
    let proposal = report.proposal.unwrap();
    assert!(proposal.burst * 4 >= proposal.limit.requests_per_unit, "{proposal:?}");
    assert_eq!(proposal.sources_hit, 0);
    let rule = Rule::new(Path::of_source(&Selector::Every), proposal.limit);
    assert_eq!(Warnings::of_rule(&rule), Vec::new());
}

/// A rate below the average of the sources to be spared would finally drop their packets with any
/// burst; packets that came at once count in full.
#[test]
fn no_rate_below_the_average_is_proposed() {
    for (rate, least) in [("205/s", 205), ("22/s", 22), ("1050/s", 1_050)] {
        let load = format!(
            "duration: 60s\nseed: 3\nsenders:\n  - {{pattern: steady, rate: {rate}, sources: 20}}\n"
        );
        let (tuner, _) = tuned(&load, Settings { spare: 0.99, ..Settings::default() });
        let proposal = tuner.report().proposal.unwrap();
        assert!(proposal.limit.requests_per_unit > least, "{rate}: {proposal:?}");
    }
    let [mut many, mut each] = [(); 2].map(|()| tuner(Settings::default()));
    for second in 1..60 {
        many.observe_many(BEGAN + second * SECOND, source(1), 30);
        (0..30).for_each(|_| {
            let nanos = BEGAN + second * SECOND;
            each.observe(&Observation { nanos, source: source(1), bytes: 0 });
        });
    }
    let [many, each] = [many.report(), each.report()];
    assert_eq!(format!("{:?}", many.rates), format!("{:?}", each.rates));
}

/// Packets that were joined before the capture are the frames that they take.
#[test]
fn what_was_joined_counts_as_its_frames() {
    for (count, times) in [(Count::Packets, 16), (Count::Bytes, 1)] {
        let [mut joined, mut each] =
            [(); 2].map(|()| tuner(Settings { count, ..Settings::default() }));
        for number in 0..200_u64 {
            let nanos = BEGAN + number * 20_000_000;
            let of = |bytes| Observation { nanos, source: source(1), bytes };
            joined.observe_joined(&of(24_352));
            (0..times).for_each(|_| each.observe(&of(24_352 / times)));
        }
        let [joined, each] = [joined.report(), each.report()];
        assert_eq!(format!("{:?}", joined.rates), format!("{:?}", each.rates), "{count:?}");
        assert_eq!((joined.packets, joined.bytes), (3_200, 200 * 24_352));
    }
}

/// A load as packets, with its settings.
fn tuned(load: &str, settings: Settings) -> (Tuner, Vec<explain::Captured>) {
    let all: Vec<_> = load::parse("l.yaml", load).unwrap().packets().collect();
    let mut tuner = tuner(settings);
    for packet in &all {
        let (nanos, bytes) = (packet.nanos, packet.length);
        tuner.observe(&Observation { nanos, source: packet.source().unwrap(), bytes });
    }
    (tuner, all)
}

/// The proposal in force hits exactly the predicted sources and packets.
#[test]
fn a_proposal_in_force_hits_whom_it_promised() {
    let load = "duration: 30s\nseed: 5\nsenders:\n  - {pattern: poisson, rate: 3/s, sources: \
                60}\n  - {pattern: onoff, rate: 40/s, on_for: 1s, off_for: 9s, sources: 20, size: \
                900}\n  - {pattern: poisson, rate: 200/s, sources: 2}\n  - {pattern: ramp, rate: \
                1/s, rate_at_end: 30/s, sources: 3}\n";
    for (count, spare) in [
        (Count::Packets, 0.5),
        (Count::Packets, 0.9),
        (Count::Packets, 0.97),
        (Count::Packets, 1.0),
        (Count::Bytes, 0.9),
    ] {
        let (tuner, all) = tuned(load, Settings { count, spare, ..Settings::default() });
        let report = tuner.report();
        let proposal = report.proposal.as_ref().unwrap();
        assert!(proposal.share_hit <= 1.0 - spare + 1e-9, "{proposal:?}");
        let text = rule_file(&report, SOURCE_MASKS, "a load").unwrap().unwrap();
        let in_force = text.replace("shadow_mode: true", "shadow_mode: false");
        assert_ne!(text, in_force);
        let set = RuleFile::parse("tuned.yaml", in_force.as_bytes(), 1522).unwrap().rules;
        let settings = explain::Settings { interface: None, max_frame: 1522 };
        let mut simulation = Simulation::new(&[("tuned".to_owned(), set)], &settings).unwrap();
        for packet in &all {
            simulation.packet(packet).unwrap();
        }
        let row = simulation.report().candidates.remove(0);
        assert_eq!(row.sources_hit, proposal.sources_hit, "{spare} {proposal:?}");
        #[expect(clippy::cast_precision_loss, reason = "few packets")]
        let share = row.packets_of_hit as f64 / report.packets as f64;
        assert!((share - proposal.packets_of_hit).abs() < 1e-12, "{spare} {proposal:?}");
    }
}

/// A mix with a known answer: a thousand sources of ten a second each, and one source of a
/// thousand.
#[test]
fn a_mix_is_tuned_to_its_users() {
    let load = "duration: 20s\nsenders:\n  - {pattern: steady, rate: 10/s, sources: 1000}\n  \
                - {pattern: steady, rate: 1000/s, address: 203.0.113.66}\n";
    let (tuner, _) = tuned(load, Settings::default());
    let report = tuner.report();
    let proposal = report.proposal.clone().unwrap();
    // Times are cut to a nanosecond, so a packet may be that much early: two at once, and the
    // margin.
    assert_eq!((proposal.rate.as_str(), proposal.burst), ("10/s", 3));
    assert_eq!((proposal.sources_hit, &proposal.hit), (1, &vec!["203.0.113.66".to_owned()]));
    assert_eq!((report.sources, report.one_of), (1001, 1));
    assert!(report.top[0].hit && !report.top[1].hit);
    assert_eq!(report.top[0].most, [10, 1000, 20_000, 20_000]);
    // The curve of each source contains its burst at the proposed rate, and needs none at the
    // source's own rate and above, except for the early nanosecond.
    assert_eq!(report.top.len(), 20);
    for top in &report.top {
        assert_eq!(top.bursts.len(), RATES);
        let at = |rate: &str| report.rates.iter().position(|at| at.rate == rate).unwrap();
        assert_eq!(top.bursts[at(&proposal.rate)], top.burst);
        assert!(top.bursts.windows(2).all(|pair| pair[0] >= pair[1]), "{top:?}");
        let own = if top.hit { "1000/s" } else { "10/s" };
        assert!(top.bursts[at(own)] <= Some(2) && top.bursts[RATES - 1] == Some(1), "{top:?}");
    }
    // Without that source, nobody is hit.
    let excluded = vec!["203.0.113.64/26".parse().unwrap()];
    let (tuner, _) = tuned(load, Settings { excluded, ..Settings::default() });
    let report = tuner.report();
    assert_eq!((report.sources, report.excluded), (1000, 20_000));
    assert_eq!(report.proposal.unwrap().sources_hit, 0);
}

#[test]
fn buckets_may_be_prefixes() {
    let masks = SourceMasks { v4: Some(24), v6: Some(48) };
    let load = "duration: 4s\nsenders:\n  - {pattern: steady, rate: 5/s, sources: 200, address: \
                198.51.100.0/24}\n  - {pattern: steady, rate: 5/s, sources: 9, address: \
                \"2001:db8::/48\"}\n";
    let (tuner, _) = tuned(load, Settings { masks, ..Settings::default() });
    let report = tuner.report();
    let names: Vec<_> = report.top.iter().map(|top| top.source.as_str()).collect();
    assert_eq!(names, ["198.51.100.0/24", "2001:db8::/48"]);
    let text = rule_file(&report, masks, "a\u{1b}[31m\nb").unwrap().unwrap();
    assert!(!text.contains('\u{1b}') && !text.contains("\nb"), "{text}");
    let rules = RuleFile::parse("t.yaml", text.as_bytes(), 1522).unwrap().rules;
    assert_eq!(rules.rules[0].path, Path::of([limiter_rules::model::Part::Source(masks, None)]));
    assert!(rules.rules[0].terms.is_shadow());
}

#[test]
fn too_little_gives_no_proposal() {
    for times in [&[][..], &[(0, 1, 60)], &[(0, 1, 60), (0, 1, 60), (SECOND / 2, 2, 60)]] {
        let mut tuner = tuner(Settings::default());
        packets(&mut tuner, times);
        let report = tuner.report();
        assert_eq!((report.packets, &report.proposal), (times.len() as u64, &None));
        assert_eq!(report.rates.len(), RATES);
        assert!(rule_file(&report, SOURCE_MASKS, "x").unwrap().is_none());
    }
    // A single source gives a proposal whose confidence shows how little it is worth.
    let mut tuner = tuner(Settings::default());
    packets(&mut tuner, &[0, 1, 2, 3].map(|second| (second * SECOND, 1, 60)));
    let proposal = tuner.report().proposal.unwrap();
    assert!(proposal.share_at_most > 0.94, "{proposal:?}");
}

/// 1.8 million sources of one packet are all kept; beyond the room, a share is kept that does not
/// depend on what the sources send.
#[test]
fn many_sources_are_sampled_without_bias() {
    let mut all = tuner(Settings::default());
    for host in 0..1_800_000 {
        all.observe(&Observation {
            nanos: BEGAN + u64::from(host),
            source: source(host),
            bytes: 60,
        });
    }
    assert_eq!((all.kept.len(), all.level, all.curves), (1_800_000, 0, 0));
    let mut few = tuner(Settings::default());
    few.room = [1000, 4000];
    let mut sent: BTreeMap<u32, u64> = BTreeMap::new();
    for round in 0..3u64 {
        for host in 0..20_000u32 {
            // One source in ten sends ten times as much.
            for packet in 0..if host % 10 == 0 { 10 } else { 1 } {
                let nanos = BEGAN + round * SECOND + packet;
                few.observe(&Observation { nanos, source: source(host), bytes: 60 });
                *sent.entry(host).or_default() += 1;
            }
        }
    }
    assert!(few.curves <= 1000 && few.level >= 4, "{} {}", few.curves, few.level);
    assert_eq!(few.packets, sent.values().sum::<u64>());
    // The kept sources have all of their packets.
    for (host, packets) in sent {
        if let Some(kept) = few.kept.get(&source(host)) {
            assert_eq!(kept.packets, packets);
        }
    }
    let heavy = few.kept.values().filter(|kept| kept.packets == 30).count();
    // A tenth of some 600 to 1,000, with five standard deviations.
    assert!((15..175).contains(&heavy), "{heavy} of {}", few.kept.len());
    assert_eq!(few.report().one_of, 1 << few.level);
}

/// Readers who load pages of about a hundred packets, each within a second, every `every` seconds
/// or so, for so many seconds.
fn readers(every: u64, seconds: u64) -> Vec<(u64, u32, u64)> {
    let mut random = fastrand::Rng::with_seed(every);
    let mut all = Vec::new();
    for reader in 0..60 {
        let mut page = random.u64(..every * SECOND);
        while page < seconds * SECOND {
            for _ in 0..random.u64(80..120) {
                all.push((page + random.u64(..SECOND), reader, 200));
            }
            page += every * SECOND / 2 + random.u64(..every * SECOND);
        }
    }
    all.sort_unstable();
    all.retain(|(nanos, ..)| *nanos < seconds * SECOND);
    all
}

/// Packets that a limit drops, in hundredths of all.
fn lost(limit: &RateLimit, times: &[(u64, u32, u64)]) -> usize {
    let compiled = compile::limit(&Terms::from(*limit), 1522).unwrap();
    let mut tats: BTreeMap<u32, Ticks> = BTreeMap::new();
    let mut dropped = 0;
    for (nanos, host, bytes) in times {
        let units = if limit.count == Count::Bytes { *bytes } else { 1 };
        let now = Ticks::from_nanos(FIRST + nanos);
        let tat = tats.entry(*host).or_default();
        let charged = (*tat).max(now).plus(limiter_decision::gcra::cost(&compiled, units));
        if charged.since(now).get() <= compiled.tolerance { *tat = charged } else { dropped += 1 }
    }
    dropped * 100 / times.len().max(1)
}

/// However short the observation, the proposed limit spares the same users for an hour, or there is
/// no proposal.
#[test]
fn a_proposal_holds_for_longer_than_was_seen() {
    for every in [20, 120, 600] {
        let hour = readers(every, 3600);
        for seconds in [2, 5, 10, 27, 60, 120, 300, 1200] {
            for count in [Count::Packets, Count::Bytes] {
                let mut tuner = tuner(Settings { count, spare: 0.99, ..Settings::default() });
                let seen: Vec<_> =
                    hour.iter().copied().filter(|(at, ..)| *at < seconds * SECOND).collect();
                packets(&mut tuner, &seen);
                let report = tuner.report();
                assert_eq!(report.proposal.is_none(), report.no_proposal.is_some());
                let Some(proposal) = report.proposal else { continue };
                let lost = lost(&proposal.limit, &hour);
                assert!(lost <= 3, "{every} {seconds} {count:?}: {lost} % of {proposal:?}");
            }
        }
    }
    // Half a minute is enough for the users who come in it.
    let mut tuner = tuner(Settings { spare: 0.99, ..Settings::default() });
    packets(&mut tuner, &readers(20, 27));
    assert!(tuner.report().proposal.is_some());
}

/// A source that sends steadily a little more than a rate is over it in the end, with any burst.
#[test]
fn a_debt_that_grows_is_no_burst() {
    for per_second in [10, 11, 21, 33] {
        let steady = |seconds: u64| {
            let times = (0..seconds * per_second).map(|n| (n * SECOND / per_second, 1, 60));
            times.collect::<Vec<_>>()
        };
        for seconds in [5, 20, 100] {
            let mut tuner = tuner(Settings::default());
            packets(&mut tuner, &steady(seconds));
            let proposal = tuner.report().proposal.unwrap();
            assert_eq!(lost(&proposal.limit, &steady(2000)), 0, "{per_second} {proposal:?}");
        }
    }
}

/// Forged addresses do not come back: alone they give no limit by source, and beside users they do
/// not count as users that a limit could spare.
#[test]
fn a_flood_of_forged_addresses_gives_no_limit_by_source() {
    for each in 1..FEW_PACKETS {
        let mut tuner = tuner(Settings { spare: 0.99, ..Settings::default() });
        for packet in 0..30_000u64 {
            let host = u32::try_from(packet / each).unwrap();
            packets(&mut tuner, &[(packet * 700_000, 1000 + host, 60)]);
        }
        let report = tuner.report();
        assert_eq!((report.proposal, report.seldom.packets), (None, 30_000));
        let why = report.no_proposal.unwrap();
        assert!(why.contains("a limit by source does not hold them"), "{why}");
    }
    // A tenth of the packets, from most of the sources.
    let mut all = readers(20, 60);
    let users = all.len() as u64;
    all.extend(
        (0..users / 10).map(|packet| {
            (packet * 60 * SECOND / users, 10_000 + u32::try_from(packet).unwrap(), 60)
        }),
    );
    let mut tuner = tuner(Settings { spare: 0.99, ..Settings::default() });
    packets(&mut tuner, &all);
    let report = tuner.report();
    assert!(report.seldom.sources * 2 > report.sources, "{:?}", report.seldom);
    let proposal = report.proposal.unwrap();
    assert_eq!(proposal.sources_hit, 0, "{proposal:?}");
    assert!(lost(&proposal.limit, &readers(20, 3600)) <= 3, "{proposal:?}");
}

/// Two captures with a day between them are no day that was seen.
#[test]
fn a_pause_in_which_nobody_looked_was_not_seen() {
    let part = readers(120, 27);
    let mut both = part.clone();
    both.extend(part.iter().map(|(at, host, bytes)| (at + 86_400 * SECOND, host + 100, *bytes)));
    let mut tuner = tuner(Settings { spare: 0.99, ..Settings::default() });
    packets(&mut tuner, &both);
    let report = tuner.report();
    assert!(report.seconds > 86_000.0 && report.seen_seconds < 70.0, "{}", report.seen_seconds);
    if let Some(proposal) = report.proposal {
        assert!(lost(&proposal.limit, &readers(120, 3600)) <= 3, "{proposal:?}");
    }
}
