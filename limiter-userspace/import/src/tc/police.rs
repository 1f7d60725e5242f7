//! The numbers of a policer.

use limiter_common::wire::Count;
use limiter_rules::model::{Meter, Period, Unit};

use crate::difference::Difference;
use crate::rate;

/// A policer as read.
#[derive(Debug, Default)]
pub(super) struct Police {
    /// Bytes per second.
    pub(super) rate: Option<u64>,
    /// Bytes.
    pub(super) burst: Option<u64>,
    /// Packets per second.
    pub(super) packets: Option<u64>,
    pub(super) packets_burst: Option<u64>,
    /// Action on packets over the rate.
    pub(super) exceed: Option<String>,
    /// True if packets within the rate continue with the next filter.
    pub(super) goes_on: bool,
    /// Number of the policer: filters with the same number share it.
    pub(super) index: Option<u64>,
    /// The reason why it is not translated.
    pub(super) refused: Option<String>,
}

impl Police {
    pub(super) fn meter(self) -> Result<(Meter, Vec<Difference>), String> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        match self.exceed.as_deref() {
            Some("drop" | "shot") => {}
            Some(other) => return Err(format!("what is over it is not dropped: {other}")),
            None => return Err("what becomes of packets over it is not in the text".to_owned()),
        }
        let second = Period::one(Unit::Second);
        match (self.rate.filter(|rate| *rate > 0), self.packets.filter(|rate| *rate > 0)) {
            (Some(_), Some(_)) => Err("it has two rates".to_owned()),
            (None, None) => {
                Err("its rate is not in the text: give `tc filter show` without -j".into())
            }
            (Some(rate), None) => {
                let burst = self.burst.ok_or("its burst is not in the text")?;
                let differences = vec![
                    Difference::Bytes { what: "of IP packets, merged by GRO", piece: 1, most: 0 },
                    Difference::Policed(
                        "burst and rate are as tc prints them, rounded; packets longer than its \
                         mtu are \
                         dropped there",
                    ),
                ];
                Ok((rate::bucket(Count::Bytes, rate, second, burst), differences))
            }
            (None, Some(rate)) => {
                let burst = self.packets_burst.filter(|burst| *burst > 0);
                let burst = burst.ok_or("its burst is not in the text")?;
                Ok((rate::bucket(Count::Packets, rate, second, burst), Vec::new()))
            }
        }
    }
}

/// Reads a rate in tc's notation, in bytes per second: `1Mbit`, `800Kbit`, `1Gibit`.
pub(super) fn bytes_a_second(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let amount = text.strip_suffix("bit")?;
    let bits = sized(amount, [("ki", 1 << 10), ("mi", 1 << 20), ("gi", 1 << 30), ("ti", 1 << 40)])
        .or_else(|| {
            let sizes =
                [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000), ("t", 1_000_000_000_000)];
            sized(amount, sizes)
        })
        .or_else(|| decimal(amount, 1))?;
    Some(bits / 8)
}

/// Reads a size in tc's notation, in bytes: `10Kb`, `1Mb`, `1600b`.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let amount = text.strip_suffix('b')?;
    sized(amount, [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)])
        .or_else(|| decimal(amount, 1))
}

fn sized(amount: &str, sizes: [(&str, u64); 4]) -> Option<u64> {
    let (amount, factor) =
        sizes.into_iter().find_map(|(name, factor)| Some((amount.strip_suffix(name)?, factor)))?;
    decimal(amount, factor)
}

/// A number with at most six decimals, times a factor; `None` if it is not a number of this form.
fn decimal(text: &str, factor: u64) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 6 {
        return None;
    }
    let scale = 10u64.pow(u32::try_from(decimals.len()).ok()?);
    let number: u64 = format!("{whole}{decimals}").parse().ok()?;
    let scaled = u128::from(number) * u128::from(factor);
    u64::try_from(scaled / u128::from(scale)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_are_read_as_tc_prints_them() {
        assert_eq!(bytes_a_second("1Mbit"), Some(125_000));
        assert_eq!(bytes_a_second("800Kbit"), Some(100_000));
        assert_eq!(bytes_a_second("1.5Gbit"), Some(187_500_000));
        assert_eq!(bytes_a_second("1Mibit"), Some(131_072));
        assert_eq!(bytes_a_second("8bit"), Some(1));
        assert_eq!(
            (bytes_a_second("1Mbps"), bytes_a_second("x"), bytes_a_second("bit")),
            (None, None, None)
        );
        assert_eq!(size("10Kb"), Some(10_240));
        assert_eq!(size("1600b"), Some(1600));
        assert_eq!(size("2Mb"), Some(2 << 20));
        assert_eq!((size("2"), size("-1b"), size("1..2b")), (None, None, None));
    }
}
