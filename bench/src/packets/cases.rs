//! The cases that are measured: rules, sources, frames.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use limiter_common::verdict::Reason;
use limiter_common::wire::CaptureFilter;
use limiter_datapath::SourceTable;
use limiter_tests::packet::{Frame, Transport};

use super::rig::{Baseline, Tables};

/// The upper half of the /64 of every IPv6 source.
pub(super) const V6_PREFIX: [u8; 4] = [0x20, 0x01, 0x0d, 0xb8];

/// The first source: 11.0.0.0, which no rule of a case names.
pub(crate) const FIRST: u32 = 0x0b00_0000;

/// The port that the frames are sent to.
pub(super) const PORT: u16 = 53;

/// Heading of rules by port and source.
pub(super) const KEYED: &str = "Keyed rules";

/// Heading of rules by port and source beside programs that charge as many keys.
pub(super) const CHARGED: &str = "Keyed rules, beside charging by hand";

/// Sources that were never seen begin here: 64.0.0.0.
pub(crate) const NEW: u32 = 0x4000_0000;

/// Sources of the small table, which new ones fill.
pub(super) const SMALL: u32 = 16_384;

/// Nobody is over it at the rate of a test-run.
pub(crate) const WIDE: &str =
    "rate_limit: {unit: second, requests_per_unit: 100000000, burst: 1000000}";

/// Everybody is over it from the second packet on.
pub(crate) const NARROW: &str = "rate_limit: {unit: week, requests_per_unit: 1}";

/// Nobody is over it either, and it has the burst that nodes need to share it.
const SHARED: &str = "rate_limit: {unit: second, requests_per_unit: 100000000, burst: 50000000}";

/// Fields of a limit that nodes share and that nothing passes but by its lease.
const CLOSED: &str = ", cluster: {on_partition: closed}";

pub(super) const CAPTURES: &str = "Captures";

/// Heading of the rules by key that nodes share.
pub(super) const SHARED_KEYS: &str = "Shared keys";

/// Limit that everybody is over at times, and nobody for long.
const BRISK: &str = "rate_limit: {unit: second, requests_per_unit: 1000, burst: 1000}";

/// The IP version of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sources {
    /// Number of sources, all known.
    Known(u32),
    /// Each packet is another one's.
    New,
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) group: &'static str,
    pub(super) name: String,
    pub(super) rules: String,
    pub(super) family: Family,
    pub(super) tagged: bool,
    pub(super) sources: Sources,
    /// Reason that nearly all packets have.
    pub(super) reason: Reason,
    /// True if the small table is used, which new sources fill.
    pub(super) small: bool,
    pub(super) source_store: SourceTable,
    /// Drops that are reported a second on each CPU.
    pub(super) reported: u32,
    pub(super) captured: Option<CaptureFilter>,
    /// The least that a program could do.
    pub(super) least: Baseline,
}

impl Case {
    fn in_lines(self) -> Self {
        Self { source_store: SourceTable::Lines, name: format!("in lines: {}", self.name), ..self }
    }

    fn new(group: &'static str, name: impl Into<String>, rules: String, reason: Reason) -> Self {
        Self {
            group,
            name: name.into(),
            rules,
            family: Family::V4,
            tagged: false,
            sources: Sources::Known(1),
            reason,
            small: false,
            source_store: SourceTable::Hash,
            reported: 200,
            captured: None,
            least: Baseline::Reference,
        }
    }

    /// The frame: 64 bytes and more, UDP.
    pub(super) fn frame(&self) -> Vec<u8> {
        let transport = Transport::Udp { source: 40_000, destination: PORT };
        let frame = match self.family {
            Family::V4 => Frame::ipv4([11, 0, 0, 0], [198, 51, 100, 1]),
            Family::V6 => {
                let source = Ipv6Addr::new(0x2001, 0xdb8, 0x0b00, 0, 0, 0, 0, 1);
                Frame::ipv6(source.octets(), Ipv6Addr::LOCALHOST.octets())
            }
        };
        let frame = frame.transport(transport).payload(&[0; 32]);
        if self.tagged { frame.vlan(7).build() } else { frame.build() }
    }

    /// Offset of the source address in the frame.
    pub(super) const fn offset(&self) -> u32 {
        if self.tagged { 30 } else { 26 }
    }
}

fn descriptors(lines: &str) -> String {
    format!("descriptors:\n{lines}")
}

fn every(does: &str) -> String {
    descriptors(&format!("  - {{key: remote_address, {does}}}\n"))
}

/// All rows; few of them for a quick look.
pub(super) fn all(quick: bool) -> Vec<Case> {
    let mut cases = sources(quick);
    cases.extend(frames());
    cases.extend(new_sources());
    cases.extend(rules(quick));
    cases.extend(keyed(quick));
    cases.extend(charged());
    cases.extend(tables(quick));
    if !quick {
        cases.extend(algorithms());
        cases.extend(limits());
    }
    cases.extend(budgets());
    cases.extend(shared_keys(quick));
    cases.extend(actions());
    cases.extend(events());
    cases.extend(captures());
    // The last one: its source stays banned.
    cases.push(ban());
    cases
}

fn sources(quick: bool) -> Vec<Case> {
    const GROUP: &str = "Sources";
    let known = |count: u32, name: &str, (does, reason, verdict): (&str, Reason, &str)| {
        let (name, sources) = (format!("{name}, {verdict}"), Sources::Known(count));
        let case = Case { sources, ..Case::new(GROUP, name, every(does), reason) };
        [case.clone(), case.in_lines()]
    };
    let over = (NARROW, Reason::OverLimit, "over its limit");
    let within = (WIDE, Reason::Conforming, "within it");
    // Few sources before many: those stay in the table, which a look-up among few is not to meet.
    let counts: &[u32] = if quick { &[1, 10_000] } else { &[1, 10_000, 1_000_000] };
    let mut cases = Vec::new();
    for &count in counts {
        let name = format!("{count} known");
        cases.extend(known(count, &name, over));
        cases.extend(known(count, &name, within));
    }
    if !quick {
        cases.extend(known(10_000, "10000 of 1000000 known", within));
    }
    let name = "1 known, over 1,000 a second";
    cases.push(Case::new(GROUP, name, every(BRISK), Reason::OverLimit));
    cases
}

fn frames() -> Vec<Case> {
    let case = |name: &str| Case::new("Frames", name, every(NARROW), Reason::OverLimit);
    vec![
        case("IPv4"),
        Case { tagged: true, ..case("IPv4 behind a VLAN tag") },
        Case { family: Family::V6, ..case("IPv6") },
    ]
}

fn new_sources() -> Vec<Case> {
    const GROUP: &str = "New sources";
    let cases = [
        Case {
            small: true,
            ..Case::new(GROUP, "a known one, for comparison", every(WIDE), Reason::Conforming)
        },
        Case {
            small: true,
            sources: Sources::Known(SMALL),
            ..Case::new(GROUP, "known ones that fill the table", every(WIDE), Reason::Conforming)
        },
        // The table has no room for them, and their number is bounded: most share a bucket.
        Case {
            small: true,
            sources: Sources::New,
            least: Baseline::Newcomer,
            ..Case::new(
                GROUP,
                "each packet another, table full",
                every(NARROW),
                Reason::OverAggregate,
            )
        },
    ];
    cases.into_iter().flat_map(|case| [case.clone(), case.in_lines()]).collect()
}

/// Prefixes that no packet comes from, and one for all.
fn prefixes(count: u32, does: &str) -> String {
    let mut lines = format!("  - {{key: remote_address, {does}}}\n");
    for number in 1..count {
        let [_, a, b, c] = number.to_be_bytes();
        // Writing to a string cannot fail.
        let _ = writeln!(
            lines,
            "  - {{key: remote_address, value: 172.{a}.{b}.{c}, rate_limit: {{unit: second, \
             requests_per_unit: 5}}}}"
        );
    }
    descriptors(&lines)
}

fn rules(quick: bool) -> Vec<Case> {
    let counts: &[u32] = if quick { &[1, 1_000] } else { &[1, 1_000, 10_000, 100_000] };
    let case = |count: &u32| Case {
        sources: Sources::Known(10_000),
        ..Case::new("Rules", format!("{count}"), prefixes(*count, NARROW), Reason::OverLimit)
    };
    counts.iter().map(case).collect()
}

/// Rules by port and source, as people write them, and no rule on the source alone.
fn keyed(quick: bool) -> Vec<Case> {
    let case = |name: String, rules: String, reason| Case {
        least: Baseline::KeyedReference,
        ..Case::new(KEYED, name, rules, reason)
    };
    let at_port = |port: u16, does: &str| {
        descriptors(&format!(
            "  - {{key: destination_port, value: {port}, descriptors: [{{key: remote_address, \
             {does}}}]}}\n"
        ))
    };
    let many = if quick { 1_000 } else { 10_000 };
    let mut cases = Vec::new();
    for (does, reason) in [(NARROW, Reason::OverLimit), (WIDE, Reason::Conforming)] {
        let verdict = if reason == Reason::OverLimit { "over its limit" } else { "within it" };
        for count in [1, many] {
            let name = format!("one rule, {count} known, {verdict}");
            let sources = Sources::Known(count);
            cases.push(Case { sources, ..case(name, at_port(PORT, does), reason) });
        }
    }
    for (name, count) in [("four", 4), ("eight", 8)] {
        cases.push(case(format!("{name} rules, within them"), several(count), Reason::Conforming));
    }
    let wide = WIDE.trim_start_matches("rate_limit: ");
    let two =
        at_port(PORT, &format!("rate_limits: [{wide}, {}]", wide.replace("1000000}", "900000}")));
    cases.push(case("one rule of two limits, within them".to_owned(), two, Reason::Conforming));
    // Packets that the rule is not for.
    cases.push(case("a rule for another port".to_owned(), at_port(22, WIDE), Reason::NoRule));
    cases.into_iter().flat_map(|case| [case.clone(), case.in_lines()]).collect()
}

/// Rules by source and one key more, each of which makes a table of its own.
fn several(count: usize) -> String {
    let keys = [
        "destination_port, value: 53",
        "protocol, value: udp",
        "dscp, value: 0",
        "fragment, value: whole",
        "ttl, value: 64",
        "interface",
        "source_port, value: 40000",
        "packet_length",
    ];
    let nested = |key: &&str| {
        format!("  - {{key: {key}, descriptors: [{{key: remote_address, {WIDE}}}]}}\n")
    };
    descriptors(&keys.iter().take(count).map(nested).collect::<String>())
}

/// Some of the keyed rules, beside a program that charges as many keys and does nothing else.
fn charged() -> Vec<Case> {
    let case = |(name, tables): (&str, Tables)| Case {
        least: Baseline::Charging(tables),
        ..Case::new(
            CHARGED,
            format!("{name}, within"),
            several(tables as usize),
            Reason::Conforming,
        )
    };
    let all =
        [("one rule", Tables::One), ("four rules", Tables::Four), ("eight rules", Tables::Eight)];
    let v6 = |(name, tables)| {
        let case = case((name, tables));
        Case { family: Family::V6, name: format!("IPv6: {}", case.name), ..case }
    };
    all.map(case)
        .into_iter()
        .chain(all.map(v6))
        .flat_map(|case| [case.clone(), case.in_lines()])
        .collect()
}

fn tables(quick: bool) -> Vec<Case> {
    // Each key makes a table of its own.
    let keys = [
        "{key: destination_port, rate_limit: W}",
        "{key: protocol, rate_limit: W}",
        "{key: destination_port, descriptors: [{key: remote_address, rate_limit: W}]}",
        "{key: protocol, descriptors: [{key: remote_address, rate_limit: W}]}",
        "{key: interface, rate_limit: W}",
        "{key: dscp, rate_limit: W}",
        "{key: destination_address, rate_limit: W}",
        "{key: interface, descriptors: [{key: remote_address, rate_limit: W}]}",
    ];
    let wide = WIDE.trim_start_matches("rate_limit: ");
    let counts: &[usize] = if quick { &[1, 8] } else { &[1, 2, 4, 8] };
    let case = |count: &usize| {
        let mut lines = format!("  - {{key: remote_address, {WIDE}}}\n");
        for key in keys.iter().take(*count) {
            let _ = writeln!(lines, "  - {}", key.replace('W', wide));
        }
        let name = format!("{count} beside the source table, all within");
        Case::new("Tables", name, descriptors(&lines), Reason::Conforming)
    };
    counts.iter().map(case).collect()
}

fn algorithms() -> Vec<Case> {
    let names = [
        ("token_bucket", ""),
        ("leaky_bucket", ""),
        ("fixed_window", ""),
        ("sliding_counter", ""),
        ("sliding_slots", ", slots: 4"),
        ("sliding_log", ""),
    ];
    let mut cases = Vec::new();
    for (name, more) in names {
        // By the port, so that the token bucket is in a table as well. A log holds few packets.
        let limit = format!("{{unit: hour, requests_per_unit: 5, algorithm: {name}{more}}}");
        let rules = descriptors(&format!("  - {{key: destination_port, rate_limit: {limit}}}\n"));
        cases.push(Case::new(
            "Algorithms",
            format!("{name}, over its limit"),
            rules,
            Reason::OverLimit,
        ));
    }
    cases
}

fn limits() -> Vec<Case> {
    let limit = |millions: u32| {
        format!("{{unit: second, requests_per_unit: {millions}000000, burst: 1000000}}")
    };
    let four = [100, 90, 80, 70].map(limit).join(", ");
    let one = descriptors(&format!("  - {{key: destination_port, {WIDE}}}\n"));
    let four = descriptors(&format!("  - {{key: destination_port, rate_limits: [{four}]}}\n"));
    let case = |name: &str, rules| Case::new("Limits in a rule", name, rules, Reason::Conforming);
    vec![case("one", one), case("four", four)]
}

/// A budget with a token bucket, of this node alone and of several.
fn budgets() -> Vec<Case> {
    let case = |scope: &str, more: &str| {
        let rules = format!(
            "budgets:\n  - {{name: b, scope: {scope}, {SHARED}{more}}}\n{}",
            descriptors("  - {key: destination_port, budget: b}\n")
        );
        let name = format!("`scope: {scope}`");
        Case::new("Shared budgets", name, rules, Reason::Conforming)
    };
    // Nothing passes but by the lease.
    vec![case("node", ""), case("cluster", CLOSED)]
}

/// A rule by key with a token bucket, of this node alone and of several.
fn shared_keys(quick: bool) -> Vec<Case> {
    let case = |keys: &str, sources: u32, scope: &str, more: &str| {
        let nested = if keys == "source" {
            format!("  - {{key: remote_address, scope: {scope}, {SHARED}{more}}}\n")
        } else {
            format!(
                "  - key: destination_port\n    descriptors:\n      - {{key: remote_address, \
                 scope: {scope}, {SHARED}{more}}}\n"
            )
        };
        let name = format!("{keys}, {sources} known, `scope: {scope}`");
        let case = Case::new(SHARED_KEYS, name, descriptors(&nested), Reason::Conforming);
        Case { sources: Sources::Known(sources), ..case }
    };
    let many = if quick { 1_000 } else { 10_000 };
    let pairs = [("source", 1), ("port and source", 1), ("port and source", many)];
    let pair =
        |(keys, sources)| [case(keys, sources, "node", ""), case(keys, sources, "cluster", CLOSED)];
    pairs.into_iter().flat_map(pair).collect()
}

fn actions() -> Vec<Case> {
    const GROUP: &str = "Actions";
    let over = |name: &str, action: &str, reason| {
        Case::new(GROUP, name, every(&format!("{NARROW}, {action}")), reason)
    };
    vec![
        Case::new(GROUP, "drop", every(NARROW), Reason::OverLimit),
        over("shadow", "shadow_mode: true", Reason::Shadow),
        over("mark", "action: {mark: {dscp: cs1}}", Reason::Marked),
        over("reject, no replies allowed", "action: reject", Reason::OverLimit),
    ]
}

fn ban() -> Case {
    let rules = every(&format!("{NARROW}, action: {{ban: {{evidence: none, strikes: 1}}}}"));
    Case::new("Bans", "a banned source", rules, Reason::Banned)
}

fn events() -> Vec<Case> {
    let case = |name: &str, reported| Case {
        reported,
        ..Case::new("Events", name, every(NARROW), Reason::OverLimit)
    };
    vec![
        case("none", 0),
        case("20 drops reported a second", 20),
        case("1,000 reported a second", 1_000),
    ]
}

/// Captures and observations, with the budget that they have without another word: 10,000 packets a
/// second on each CPU.
fn captures() -> Vec<Case> {
    let all = CaptureFilter {
        cost: 3_200_000,
        credit: 2_499 * 3_200_000,
        snap: 96,
        ..CaptureFilter::EVERYTHING
    };
    let case = |name: &str, captured, does, reason| Case {
        captured,
        ..Case::new(CAPTURES, name, every(does), reason)
    };
    // The source of the packets has no such level.
    let others = Some(CaptureFilter { level: 63, ..all });
    let whole = Some(CaptureFilter { level: 0, ..all });
    [("passes", WIDE, Reason::Conforming), ("is over its limit", NARROW, Reason::OverLimit)]
        .into_iter()
        .flat_map(|(what, does, reason)| {
            [
                case(&format!("a source that {what}, no capture"), None, does, reason),
                case(&format!("a source that {what}, others are observed"), others, does, reason),
                case(&format!("a source that {what}, and is observed"), whole, does, reason),
            ]
        })
        .collect()
}
