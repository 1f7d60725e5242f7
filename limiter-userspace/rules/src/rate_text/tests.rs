//! Texts with what they mean, and what is wrong with others.

use proptest::prelude::*;

use super::*;
use crate::compile::display_rate;

fn rate(count: Count, requests_per_unit: u64, unit: Unit) -> RateText {
    every(count, requests_per_unit, unit, 1)
}

fn every(count: Count, requests_per_unit: u64, unit: Unit, multiplier: u32) -> RateText {
    let period = Period { unit, multiplier };
    RateText::Rate { count, requests_per_unit, period, byte_units: ByteUnits::default() }
}

#[test]
fn rates_are_read() {
    use Count::{Bytes, Packets};
    for (text, wanted) in [
        ("100/s", rate(Packets, 100, Unit::Second)),
        ("10k/s", rate(Packets, 10_000, Unit::Second)),
        ("1.5k/s", rate(Packets, 1_500, Unit::Second)),
        ("2M/s", rate(Packets, 2_000_000, Unit::Second)),
        ("5/day", rate(Packets, 5, Unit::Day)),
        ("600/min", rate(Packets, 600, Unit::Minute)),
        ("3/week", rate(Packets, 3, Unit::Week)),
        ("10/hour", rate(Packets, 10, Unit::Hour)),
        ("10mbit/s", rate(Bytes, 1_250_000, Unit::Second)),
        ("1Gbit/s", rate(Bytes, 125_000_000, Unit::Second)),
        ("64kbit/s", rate(Bytes, 8_000, Unit::Second)),
        ("500kB/s", rate(Bytes, 500_000, Unit::Second)),
        ("1MB/s", rate(Bytes, 1_000_000, Unit::Second)),
        ("1MiB/s", rate(Bytes, 1 << 20, Unit::Second)),
        ("1GiB/day", rate(Bytes, 1 << 30, Unit::Day)),
        ("18446744073709551615/s", rate(Packets, u64::MAX, Unit::Second)),
        ("100/5min", every(Packets, 100, Unit::Minute, 5)),
        ("10/2week", every(Packets, 10, Unit::Week, 2)),
        ("1MB/30s", every(Bytes, 1_000_000, Unit::Second, 30)),
        ("7/1day", rate(Packets, 7, Unit::Day)),
        ("1/366d", every(Packets, 1, Unit::Day, 366)),
        ("10 syns/min", rate(Count::Syns, 10, Unit::Minute)),
        ("1k/s", rate(Packets, 1_000, Unit::Second)),
        ("5 flows/30s", every(Count::Flows, 5, Unit::Second, 30)),
        ("2 mbit/s", rate(Bytes, 250_000, Unit::Second)),
        ("unlimited", RateText::Unlimited),
    ] {
        assert_eq!(RateText::parse(text), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_no_rate_is_refused_with_its_remedy() {
    let syntax =
        "is not a rate: write one like 100/s, 10k/s, 5/day, 10mbit/s, 500kB/s or unlimited";
    let size = "is not a size: use k, M, G (packets), bit, kbit, mbit, gbit, B, kB, MB, GB, KiB, \
                MiB or GiB";
    for (text, message) in [
        ("", format!("\"\" {syntax}")),
        ("/s", format!("\"/s\" {syntax}")),
        ("1./s", format!("\"1./s\" {syntax}")),
        ("1.2.3/s", format!("\"1.2.3/s\" {syntax}")),
        ("10x/s", format!("\"10x/s\": \"x\" {size}")),
        (
            "10/fortnight",
            "\"10/fortnight\": \"fortnight\" is not a unit of time: use s, min, hour, day or week"
                .to_owned(),
        ),
        ("10/5", "\"10/5\": \"5\" is not a unit of time: use s, min, hour, day or week".to_owned()),
        ("10/0min", "\"10/0min\": \"0\" does not fit: give 1 to 527040 times a minute".to_owned()),
        ("10/53week", "\"10/53week\": \"53\" does not fit: give 1 to 52 times a week".to_owned()),
        (
            "1bit/30s",
            "\"1bit/30s\" is not a whole number of bytes per 30s: a byte is 8 bits, so round it \
             or use a longer unit of time"
                .to_owned(),
        ),
        (
            "1bit/s",
            "\"1bit/s\" is not a whole number of bytes per second: a byte is 8 bits, so round it \
             or use a longer unit of time"
                .to_owned(),
        ),
        (
            "0.5/s",
            "\"0.5/s\" is not a whole number of packets per second: use a longer unit of time"
                .to_owned(),
        ),
        (
            "18446744073709551616/s",
            "\"18446744073709551616/s\" is more than 2^64 - 1: lower it".to_owned(),
        ),
        ("-1/s", "\"-1/s\" is negative: give a rate of at least 1 per week".to_owned()),
        ("0/s", ZERO.to_owned()),
        ("1,000/s", "\"1,000/s\" is not a rate: did you mean 1000/s?".to_owned()),
        ("1_000_000/s", "\"1_000_000/s\" is not a rate: did you mean 1000000/s?".to_owned()),
        ("12'500kB/s", "\"12'500kB/s\" is not a rate: did you mean 12500kB/s?".to_owned()),
        (
            "1,5/s",
            "\"1,5/s\": \",5\" is not a size: use k, M, G (packets), bit, kbit, mbit, gbit, B, \
             kB, MB, GB, KiB, MiB or GiB"
                .to_owned(),
        ),
    ] {
        assert_eq!(RateText::parse(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn the_rate_that_was_meant_is_named() {
    for (text, meant) in [
        ("100", "100/s"),
        ("5k", "5k/s"),
        ("100 pps", "100/s"),
        ("1000pps", "1000/s"),
        ("1.5kpps", "1.5k/s"),
        ("2mbit", "2mbit/s"),
        ("2Mbps", "2mbit/s or 2MB/s"),
        ("1mbps", "1mbit/s or 1MB/s"),
        ("800kbps", "800kbit/s or 800kB/s"),
        ("2MBps", "2MB/s"),
        ("10m/s", "10M/s"),
        ("10mb/s", "10mbit/s or 10MB/s"),
        ("100 packets/s", "100/s"),
        ("5 per minute", "5/min"),
        ("5/minutes", "5/min"),
        ("5/30seconds", "5/30s"),
        ("10r/s", "10/s"),
        ("120r/m", "120/min"),
        ("3 hits/s", "3/s"),
        ("10 connections/min", "10 syns/min or 10 flows/min"),
    ] {
        let error = RateText::parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("{text:?} is not a rate: did you mean {meant}?"));
    }
}

#[test]
fn a_burst_has_the_unit_of_its_rate() {
    use Count::{Bytes, Packets, Syns};
    for (text, count, wanted) in [
        ("200", Packets, 200),
        ("10k", Packets, 10_000),
        ("1.5k", Syns, 1_500),
        ("60000", Bytes, 60_000),
        ("60k", Bytes, 60_000),
        ("60kB", Bytes, 60_000),
        ("1 MiB", Bytes, 1 << 20),
        ("80kbit", Bytes, 10_000),
    ] {
        assert_eq!(burst(text, count), Ok(wanted), "{text}");
    }
    let write = "is not a burst: write one like 200, 10k, 60kB or 1MiB";
    for (text, count, message) in [
        ("", Packets, format!("\"\" {write}")),
        ("-1", Packets, format!("\"-1\" {write}")),
        ("60/s", Packets, format!("\"60/s\" {write}")),
        ("10 syns", Packets, format!("\"10 syns\" {write}")),
        ("0", Packets, "a burst of 0 lets no packet pass: give at least 1".to_owned()),
        (
            "60kB",
            Packets,
            "\"60kB\" is in bytes, and the rate counts packets: give a number of packets"
                .to_owned(),
        ),
        ("1bit", Bytes, "\"1bit\" is not a whole number of bytes: round it".to_owned()),
        ("1.5", Packets, "\"1.5\" is not a whole number of packets: round it".to_owned()),
        (
            "18446744073709551616",
            Packets,
            "\"18446744073709551616\" is more than 2^64 - 1: lower it".to_owned(),
        ),
    ] {
        assert_eq!(burst(text, count).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn a_burst_is_one_unit_s_worth_and_at_least_a_frame() {
    let burst = |text: &str, frame| match RateText::parse(text).unwrap().terms(None, frame) {
        Ok(Terms::Limits(limits)) => limits.plain().unwrap().burst,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(burst("100/min", 9022), 100);
    assert_eq!(burst("64kbit/s", 1522), 8_000);
    assert_eq!(burst("64kbit/s", 9022), 9_022);
    assert_eq!(burst("8kbit/s", 0), 1_522);
}

/// A rate of bytes is shown in the units that it was written in.
#[test]
fn rates_of_bytes_keep_their_units() {
    for text in
        ["1MB/s", "8mbit/s", "64kbit/s", "8kB/s", "1MiB/s", "1024KiB/min", "10GB/day", "7B/s"]
    {
        let shown = if text == "1024KiB/min" { "1MiB/min" } else { text };
        let quota = RateText::parse(text).unwrap().quota(None, text).unwrap().unwrap();
        assert_eq!(display_rate(&quota.with_burst(1)), shown);
        // And means the same as in other units.
        assert_eq!(quota, Quota { byte_units: ByteUnits::Binary, ..quota });
    }
    let shortest =
        [(1_250_000, "10mbit/s"), (1_000_000, "1MB/s"), (1 << 20, "1MiB/s"), (7, "7B/s")];
    for (bytes, shown) in shortest {
        let quota = Quota::new(Count::Bytes, bytes, Period::one(Unit::Second));
        assert_eq!(display_rate(&quota.with_burst(1)), shown);
    }
}

fn byte_units() -> impl Strategy<Value = ByteUnits> {
    prop_oneof![
        Just(ByteUnits::Shortest),
        Just(ByteUnits::Bits),
        Just(ByteUnits::Decimal),
        Just(ByteUnits::Binary)
    ]
}

proptest! {
    #[test]
    fn what_is_displayed_is_read_back(
        kind in 0u8..4, requests in 1u64.., unit in 0usize..5, multiplier: u64, shift in 0u32..64,
        byte_units in byte_units(),
    ) {
        let count = Count::from_raw(kind);
        let (requests_per_unit, unit) = ((requests >> shift).max(1), Unit::ALL[unit]);
        let multiplier = u32::try_from((multiplier >> shift) % Period::most(unit) + 1).unwrap();
        let period = Period { unit, multiplier };
        let rate = Quota { byte_units, ..Quota::new(count, requests_per_unit, period) }.with_burst(1);
        let text = display_rate(&rate);
        prop_assert_eq!(
            RateText::parse(&text),
            Ok(every(count, requests_per_unit, unit, multiplier))
        );
    }

    #[test]
    fn round_bit_rates_are_read_back(
        bytes in 1u64..1 << 50, scale in 0u32..4, byte_units in byte_units(),
    ) {
        let requests_per_unit = bytes.saturating_mul(125 * 1000u64.pow(scale)).max(1);
        let unit = Unit::Second;
        let period = Period::one(unit);
        let quota = Quota { byte_units, ..Quota::new(Count::Bytes, requests_per_unit, period) };
        let text = display_rate(&quota.with_burst(1));
        prop_assert_eq!(RateText::parse(&text), Ok(rate(Count::Bytes, requests_per_unit, unit)));
    }

    #[test]
    fn any_text_is_answered(text: String) {
        drop(RateText::parse(&text));
        drop(burst(&text, Count::Bytes));
    }
}
