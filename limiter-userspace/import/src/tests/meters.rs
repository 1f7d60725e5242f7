//! Compares limits of the kernel, by its own arithmetic, with limiter's decisions under the
//! translated rules: the same packets, one after another.

use std::collections::VecDeque;

use fastrand::Rng;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_model::Model;
use limiter_rules::{Environment, Installed, RuleFile};

use super::*;

const HZ: u64 = 250;

/// UDP from 192.0.2.1 to port 53, so long as a frame.
fn frame(length: usize) -> Vec<u8> {
    let ip = u16::try_from(length - 14).unwrap().to_be_bytes();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, ip[0], ip[1], 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
    let udp = u16::try_from(length - 34).unwrap().to_be_bytes();
    frame.extend([4, 210, 0, 53, udp[0], udp[1], 0, 0]);
    frame.resize(length, 0);
    frame
}

/// The decision by an imported rule file.
struct Here(Model);

impl Here {
    fn of(imported: &Imported) -> Self {
        assert_eq!(imported.count(Outcome::NotTranslated), 0, "{}", imported.text);
        let file = RuleFile::parse("x", imported.text.as_bytes(), 1522).unwrap();
        let plan = Installed::default().plan(&file.rules, 1, 64, &Environment::of_frame(1522));
        let mut model = Model::new();
        model.commit(plan.unwrap(), Ticks::ZERO);
        Self(model)
    }

    fn passes(&mut self, length: usize, nanos: u64) -> bool {
        self.0.judge(&frame(length), Ticks::from_nanos(nanos)).reason.verdict() == Verdict::Pass
    }
}

/// `xt_hashlimit` and `xt_limit`: credits by ticks of the clock.
struct Credits {
    credit: u64,
    cap: u64,
    cost: u64,
    last: u64,
}

/// Credits of a tick: the power of two below what a day of ticks may have.
const PER_JIFFY: u64 = 1 << (u64::MAX / (HZ * 60 * 60 * 24)).ilog2();

impl Credits {
    /// `seconds` for `rate` packets.
    fn new(rate: u64, seconds: u64, burst: u64) -> Self {
        const SCALE: u64 = 1_000_000;
        let average = SCALE * seconds / rate;
        let credits = |user: u64| {
            u64::try_from(u128::from(user) * u128::from(HZ * PER_JIFFY) / u128::from(SCALE))
                .unwrap()
        };
        let cap = credits(average * burst);
        Self { credit: cap, cap, cost: credits(average), last: 0 }
    }

    fn passes(&mut self, nanos: u64) -> bool {
        let jiffies = nanos / (1_000_000_000 / HZ);
        let more = (jiffies - self.last).saturating_mul(PER_JIFFY);
        self.credit = self.credit.saturating_add(more).min(self.cap);
        self.last = jiffies;
        let passes = self.credit >= self.cost;
        if passes {
            self.credit -= self.cost;
        }
        passes
    }
}

/// `nft_limit`: tokens are nanoseconds.
struct Tokens {
    left: u64,
    most: u64,
    last: u64,
    rate: u64,
    nanos: u64,
}

impl Tokens {
    fn packets(rate: u64, seconds: u64, burst: u64) -> Self {
        let nanos = seconds * 1_000_000_000;
        let most = nanos / rate * burst;
        Self { left: most, most, last: 0, rate, nanos }
    }

    fn bytes(rate: u64, seconds: u64, burst: u64) -> Self {
        let nanos = seconds * 1_000_000_000;
        let most =
            u64::try_from(u128::from(nanos) * u128::from(rate + burst) / u128::from(rate)).unwrap();
        Self { left: most, most, last: 0, rate, nanos }
    }

    fn passes(&mut self, units: u64, now: u64) -> bool {
        let cost = self.nanos * units / self.rate;
        self.left = (self.left + now - self.last).min(self.most);
        self.last = now;
        let passes = self.left >= cost;
        if passes {
            self.left -= cost;
        }
        passes
    }
}

/// Arrivals at random around a rate, with bursts and silence.
fn arrivals(random: &mut Rng, per_second: u64, count: usize) -> Vec<u64> {
    let mean = 1_000_000_000 / per_second;
    let mut now = random.u64(1..mean.max(2));
    (0..count)
        .map(|_| {
            now += match random.u8(..20) {
                0..=4 => 1,
                5 => random.u64(1..mean * 20),
                _ => random.u64(1..mean * 2),
            };
            now
        })
        .collect()
}

#[test]
fn hashlimit_passes_what_its_rule_here_passes_but_for_the_ticks() {
    let mut random = Rng::with_seed(1);
    for (rate, unit, seconds, burst) in [
        (10, "sec", 1, 5),
        (100, "sec", 1, 20),
        (7, "min", 60, 5),
        (30, "hour", 3600, 9),
        (1000, "sec", 1, 100),
    ] {
        for load in [1, 2, 10] {
            let imported = iptables(&format!(
                "-A INPUT -m hashlimit --hashlimit-above {rate}/{unit} --hashlimit-burst {burst} \
                 --hashlimit-mode srcip --hashlimit-name a -j DROP"
            ));
            let (mut here, mut there) = (Here::of(&imported), Credits::new(rate, seconds, burst));
            let (mut passed_here, mut kernel_passed) = (0u64, 0u64);
            // Faster than in reality if a rate is by the hour.
            let squeeze = seconds;
            for at in arrivals(&mut random, rate * load, 3_000) {
                passed_here += u64::from(here.passes(60, at * squeeze));
                kernel_passed += u64::from(there.passes(at * squeeze));
            }
            // A tick later, and the rounding of a millionth of a second for each packet.
            let ticks = rate / seconds / HZ + 1;
            let slack = 1 + ticks + passed_here / 500;
            assert!(
                passed_here.abs_diff(kernel_passed) <= slack,
                "{rate}/{unit} burst {burst}, {load} times: {passed_here} here, {kernel_passed} \
                 there"
            );
            assert!(passed_here > burst, "{passed_here}");
        }
    }
    // The difference B: what a tick brings is more than the burst holds.
    let (mut there, mut passed) = (Credits::new(10_000, 1, 5), 0u64);
    for n in 0..20_000u64 {
        passed += u64::from(there.passes(n * 50_000));
    }
    assert!((1_200..1_300).contains(&passed), "{passed} of 10,000 in a second");
}

#[test]
fn packets_of_nft_are_judged_alike_one_by_one() {
    let mut random = Rng::with_seed(2);
    // Rates by which a second can be divided: there the cost of a packet is rounded.
    for (rate, unit, seconds, burst) in
        [(10, "second", 1, 5), (100, "second", 1, 1), (6, "minute", 60, 3), (2500, "second", 1, 50)]
    {
        let rule = format!(
            r#"[{{"set": {{"op": "add", "elem": {{"payload": {{"protocol": "ip", "field": "saddr"}}}},
                "set": "@s", "stmt": [{{"limit": {{"rate": {rate}, "per": "{unit}",
                "burst": {burst}, "inv": true}}}}]}}}}, {{"drop": null}}]"#
        );
        let imported = nft(&[&rule]);
        let (mut here, mut there) = (Here::of(&imported), Tokens::packets(rate, seconds, burst));
        let mut passed = 0;
        for at in arrivals(&mut random, rate * 2, 4_000) {
            let at = at * seconds;
            let (own, other) = (here.passes(60, at), there.passes(1, at));
            assert_eq!(own, other, "{rate}/{unit} burst {burst} at {at}");
            passed += u32::from(own);
        }
        assert!((200..3_900).contains(&passed), "{passed}");
    }
}

#[test]
fn bytes_of_nft_are_those_of_the_frame_here() {
    let mut random = Rng::with_seed(3);
    let rule = r#"[{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}},
        "right": 53}}, {"limit": {"rate": 100, "rate_unit": "kbytes", "per": "second", "burst": 10,
        "burst_unit": "kbytes", "inv": true}}, {"drop": null}]"#;
    let imported = nft(&[rule]);
    let (mut here, mut there) = (Here::of(&imported), Tokens::bytes(100 << 10, 1, 10 << 10));
    let (mut passed_here, mut kernel_passed, mut sent) = (0u64, 0u64, 0u64);
    for at in arrivals(&mut random, 400, 5_000) {
        let length = random.usize(60..1500);
        let bytes = u64::try_from(length).unwrap();
        sent += bytes;
        // Each side counts its own way: here the Ethernet header counts.
        passed_here += u64::from(here.passes(length, at)) * bytes;
        kernel_passed += u64::from(there.passes(bytes, at)) * bytes;
    }
    let slack = 3_000 + passed_here / 200;
    assert!(
        passed_here.abs_diff(kernel_passed) <= slack,
        "{passed_here} here, {kernel_passed} there"
    );
    assert!(passed_here * 2 < sent, "{passed_here} of {sent}");
}

#[test]
fn recent_is_judged_alike_where_refused_packets_are_not_noted() {
    let imported = iptables(
        "-A INPUT -p udp --dport 53 -m recent --rcheck --seconds 30 --hitcount 6 -j DROP\n\
         -A INPUT -p udp --dport 53 -m recent --set -j ACCEPT",
    );
    let mut here = Here::of(&imported);
    let mut noted: VecDeque<u64> = VecDeque::new();
    let mut random = Rng::with_seed(4);
    let mut passed = 0;
    for at in arrivals(&mut random, 1, 4_000) {
        while noted.front().is_some_and(|first| at - first >= 30_000_000_000) {
            noted.pop_front();
        }
        let other = noted.len() < 6;
        if other {
            noted.push_back(at);
        }
        assert_eq!(here.passes(60, at), other, "at {at}");
        passed += u32::from(other);
    }
    assert!((200..3_900).contains(&passed), "{passed}");
}
