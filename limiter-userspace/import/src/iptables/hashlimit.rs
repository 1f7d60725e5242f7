//! `-m hashlimit`.

use limiter_common::wire::Count;
use limiter_rules::model::{Period, Unit};

use crate::difference::Difference;
use crate::firewall::{Key, Limit};
use crate::packets::{Family, Packets};
use crate::rate;

/// Default milliseconds after which an entry that counts bytes expires.
const BYTE_EXPIRE: u64 = 15_000;

/// Entries expire so many milliseconds after their last packet.
const fn forgotten(milliseconds: u64) -> Difference {
    Difference::Forgotten { milliseconds, always: false }
}

#[derive(Debug, Default)]
pub(super) struct HashLimit {
    /// The rate, and true if packets over it match.
    rate: Option<(String, bool)>,
    burst: Option<String>,
    mode: Option<String>,
    name: Option<String>,
    source_bits: Option<u8>,
    destination_bits: Option<u8>,
    /// Milliseconds.
    expire: Option<u64>,
}

impl HashLimit {
    /// True if the option has no value.
    pub(super) fn is_flag(option: &str) -> bool {
        option == "--hashlimit-rate-match"
    }

    pub(super) fn option(
        &mut self,
        option: &str,
        value: Option<String>,
        not: bool,
        packets: &mut Packets,
    ) {
        let is_rate = matches!(option, "--hashlimit" | "--hashlimit-upto" | "--hashlimit-above");
        if not && !is_rate {
            packets.lacks_limit(format!("`! {option}` is not known"));
        }
        let bits = |value: &Option<String>| value.as_deref().and_then(|bits| bits.parse().ok());
        let known = match option {
            "--hashlimit" | "--hashlimit-upto" | "--hashlimit-above" => {
                let over = (option == "--hashlimit-above") != not;
                let before = self.rate.replace((value.unwrap_or_default(), over));
                before.is_none()
            }
            "--hashlimit-burst" => {
                self.burst = value;
                true
            }
            "--hashlimit-mode" => {
                self.mode = value;
                true
            }
            "--hashlimit-name" => {
                self.name = value;
                true
            }
            "--hashlimit-srcmask" => {
                self.source_bits = bits(&value);
                self.source_bits.is_some_and(|bits| (1..=128).contains(&bits))
            }
            "--hashlimit-dstmask" => {
                self.destination_bits = bits(&value);
                self.destination_bits.is_some()
            }
            "--hashlimit-htable-expire" => {
                self.expire = value.as_deref().and_then(rate::number);
                self.expire.is_some()
            }
            // The size of the table and how often it is cleaned do not change verdicts.
            "--hashlimit-htable-size"
            | "--hashlimit-htable-max"
            | "--hashlimit-htable-gcinterval" => true,
            "--hashlimit-rate-match" | "--hashlimit-rate-interval" => {
                packets.lacks_limit("rate-match estimates a rate, and has no bucket");
                true
            }
            _ => false,
        };
        if !known {
            packets.lacks_limit(format!("{option} cannot be read"));
        }
    }

    pub(super) fn limit(&self, family: Family, packets: &mut Packets) -> Option<Limit> {
        let Some((text, over)) = &self.rate else {
            packets.lacks_limit("hashlimit without a rate");
            return None;
        };
        let mut differences = vec![Difference::Ticks];
        let key = self.key(family, packets)?;
        let meter = if text.to_ascii_lowercase().ends_with("b/s") {
            let amount = text.get(..text.len() - 2).and_then(rate::bytes);
            let extra = match &self.burst {
                None => Some(0),
                Some(burst) => rate::bytes(burst).or_else(|| rate::number(burst)),
            };
            let burst = amount.zip(extra).and_then(|(amount, extra)| amount.checked_add(extra));
            // A new entry starts full, which gives back more than the rate does.
            let expire = self.expire.unwrap_or(BYTE_EXPIRE);
            if extra.is_some_and(|extra| extra > 0) || expire < 1000 {
                differences.push(forgotten(expire));
            }
            let whole = amount
                .zip(extra)
                .map(|(amount, extra)| amount.saturating_mul(1 + extra.div_ceil(amount.max(1))));
            differences.push(Difference::Bytes {
                what: "of IP packets, merged by GRO, in pieces of 16",
                piece: 16,
                most: whole.unwrap_or(0),
            });
            differences.push(Difference::ByteBurst(
                "there one second of the rate, and --hashlimit-burst once in whole seconds; \
                 here both, \
                 filled at the rate",
            ));
            amount.zip(burst).map(|(amount, burst)| {
                rate::bucket(Count::Bytes, amount, Period::one(Unit::Second), burst)
            })
        } else {
            let burst = match self.burst.as_deref() {
                None | Some("5") => {
                    differences.push(Difference::DefaultBurst);
                    Some(5)
                }
                Some(burst) => rate::number(burst),
            };
            let read = rate::packets(text).zip(burst);
            if let Some(((amount, unit), burst)) = read {
                // The default is the unit of time.
                let expire = self.expire.unwrap_or(unit.seconds() * 1000);
                if rate::fills_slower(amount, unit, burst, expire) {
                    differences.push(forgotten(expire));
                }
            }
            read.map(|((amount, unit), burst)| {
                rate::bucket(Count::Packets, amount, Period::one(unit), burst)
            })
        };
        let Some(meter) = meter else {
            packets.lacks_limit(format!("the rate {text} or its burst cannot be read"));
            return None;
        };
        if !key.is_empty() {
            differences.push(Difference::Full("packets of new keys are dropped"));
        }
        let number = if family == Family::V4 { 4 } else { 6 };
        let memory =
            self.name.as_ref().map(|name| format!("the hashlimit {name:?} of IPv{number}"));
        Some(Limit { meter, over: *over, key, memory, shared: None, pair: None, differences })
    }

    fn key(&self, family: Family, packets: &mut Packets) -> Option<Vec<Key>> {
        let whole = if family == Family::V4 { 32 } else { 128 };
        let mut key = Vec::new();
        for mode in self.mode.iter().flat_map(|mode| mode.split(',')) {
            let part = match mode.to_ascii_lowercase().as_str() {
                "srcip" => Key::Source(self.source_bits.unwrap_or(whole)),
                "dstip" => Key::Destination,
                "dstport" => Key::Port,
                "srcport" => {
                    packets.lacks_limit(
                        "it has a bucket for each source port, of which an attacker \
                         has 65,536: leave `srcport` out of the mode",
                    );
                    return None;
                }
                _ => {
                    packets.lacks_limit(format!("the mode {mode} is not known"));
                    return None;
                }
            };
            key.push(part);
        }
        let too_long = matches!(self.source_bits, Some(bits) if bits > whole);
        if too_long
            || (key.contains(&Key::Destination)
                && self.destination_bits.is_some_and(|bits| bits != whole))
        {
            packets.lacks_limit(
                "limiter has no masks of destinations, nor longer ones than addresses",
            );
            return None;
        }
        Some(key)
    }
}
