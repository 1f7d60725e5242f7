//! Remarks about the times of packets, and about their lengths.

use limiter_api::render::{duration, number};

const SECOND: u64 = 1_000_000_000;

/// Bytes of a full frame of an interface without jumbo frames, with two tags.
const FULL_FRAME: u64 = limiter_rules::rate_text::MIN_FULL_FRAME;

/// Packets that were joined count once.
pub(crate) const AS_ONE: &str = "there are more packets than the numbers here say; capture with \
     `limiter observe`, or while `ethtool -K IFACE gro off lro off` holds";

/// Packets that were joined count as what they were.
pub(crate) const AS_FRAMES: &str = "each counts as the full frames that it takes";

/// Lengths of packets that no frame has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lengths {
    long: u64,
    longest: u64,
}

impl Lengths {
    pub(crate) fn add(&mut self, length: u64) {
        self.long += u64::from(length > FULL_FRAME);
        self.longest = self.longest.max(length);
    }

    /// A line for people, if packets were joined before the capture; `counted` says how these
    /// count.
    pub(crate) fn line(&self, counted: &str) -> Option<String> {
        (self.long > 0).then(|| {
            format!(
                "{} packets are longer than {} bytes, up to {}: unless the link has jumbo frames, \
                 the kernel or the card joined them before the capture (GRO, LRO), and limiter in \
                 native mode sees each by itself: {counted}",
                number(self.long),
                number(FULL_FRAME),
                number(self.longest)
            )
        })
    }
}

/// Fewer packets than this may be of one time, or of whole seconds, by chance.
const LEAST: u64 = 8;

/// Times of packets: those before one that came earlier, and those that are too coarse to give a
/// rate from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    packets: u64,
    first: u64,
    last: u64,
    late: u64,
    /// Nanoseconds by which the oldest packet was behind.
    most: u64,
    /// True if a packet was between two seconds.
    is_fine: bool,
    /// Whether two packets had the same time, and whether two had different ones.
    is_same: bool,
    is_other: bool,
}

impl Times {
    pub(crate) fn add(&mut self, nanos: u64) {
        if self.packets > 0 {
            self.is_same |= nanos == self.last;
            self.is_other |= nanos != self.first;
        } else {
            self.first = nanos;
        }
        self.packets += 1;
        self.is_fine |= !nanos.is_multiple_of(SECOND);
        if nanos < self.last {
            self.late += 1;
            self.most = self.most.max(self.last - nanos);
        }
        self.last = self.last.max(nanos);
    }

    pub(crate) const fn late(&self) -> u64 {
        self.late
    }

    /// Lines for people; empty if all packets were in order, and distinguished.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.late > 0 {
            lines.push(format!(
                "{} packets are older than one before them, by up to {}, as from several queues \
                 of a card: that makes bursts look larger; `reordercap` sorts a file",
                number(self.late),
                duration(self.most)
            ));
        }
        if self.packets >= LEAST && !self.is_other {
            lines.push(format!(
                "all {} packets have the same time, as if they came at once: nothing can be said \
                 of a rate; capture again with the time of each",
                number(self.packets)
            ));
        } else if self.packets >= LEAST && !self.is_fine && self.is_same {
            lines.push(
                "all times are whole seconds: the packets of a second count as if they came at \
                 once, which makes bursts look larger; capture with fractions of a second"
                    .to_owned(),
            );
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(times: impl IntoIterator<Item = u64>) -> Vec<String> {
        let mut all = Times::default();
        times.into_iter().for_each(|nanos| all.add(nanos));
        all.lines()
    }

    /// Packets longer than a frame were joined, and a full frame with its tags is none.
    #[test]
    fn packets_that_were_joined_are_named() {
        let mut all = Lengths::default();
        for length in [60, 1514, 1522] {
            all.add(length);
        }
        assert_eq!(all.line(AS_ONE), None);
        for length in [23_054, 1523] {
            all.add(length);
        }
        let line = all.line(AS_ONE).unwrap();
        assert!(line.starts_with("2 packets are longer than 1,522 bytes, up to 23,054"), "{line}");
    }

    /// Times that show no rate are named, and no others.
    #[test]
    fn times_that_show_no_rate_are_named() {
        for same in [0, 7, 1_700_000_000 * SECOND] {
            let said = lines([same; 100]);
            assert!(said[0].starts_with("all 100 packets have the same time"), "{said:?}");
        }
        let said = lines((0..100).map(|packet| packet / 10 * SECOND));
        assert!(said[0].starts_with("all times are whole seconds"), "{said:?}");
        assert_eq!(lines((0..100).map(|packet| packet / 10 * SECOND + packet)), [""; 0]);
        // One a second is shown well enough by seconds.
        assert_eq!(lines((0..100).map(|packet| packet * SECOND)), [""; 0]);
        assert_eq!(lines([5]), [""; 0]);
        let said = lines([10, 5, 20]);
        assert!(said.len() == 1 && said[0].starts_with("1 packets are older"), "{said:?}");
    }
}
