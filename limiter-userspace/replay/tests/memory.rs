//! The bound of memory, held by what the system says of this process. One test: others of the same
//! process would count.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use limiter_replay::explain::{Captured, ExplainError, MAX_MEGABYTES, Settings};
use limiter_replay::simulate::Simulation;
use limiter_rules::RuleFile;

/// A SYN of an address to a port.
fn packet(number: u64, source: u32, port: u16) -> Captured {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0];
    frame.extend([64, 6, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend([192, 0, 2, 254, 156, 64]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
    let length = frame.len() as u64;
    Captured { number, nanos: number * 10_000, frame, length, ..Captured::default() }
}

/// Kilobytes that this process had at most.
fn most() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Every sort of state, of sources without an end, in several rule sets: it is refused with its
/// remedy, and before there is more than is said.
#[test]
fn what_is_kept_of_a_flood_stays_within_what_is_said() {
    let by_source = "{key: remote_address, rate_limit: {rate: 20/s, burst: 5}}";
    let keyed = "{key: destination_port, descriptors: [{key: remote_address, rate_limit: {rate: \
                 9 flows/day, algorithm: sliding_slots}}]}";
    let sets: Vec<_> = [by_source, keyed, &format!("{by_source}, {keyed}")]
        .into_iter()
        .map(|rules| {
            let text = format!("descriptors: [{rules}]");
            let set = RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap().rules;
            (rules.to_owned(), set)
        })
        .collect();
    let settings = Settings { interface: None, max_frame: 1522 };
    let mut simulation = Simulation::new(&sets, &settings).unwrap();
    let mut refused = None;
    for number in 1..6_000_000u64 {
        // Each source sends twice.
        let source = 0x0b00_0000 + u32::try_from(number / 2).unwrap();
        let port = if number % 3 == 0 { 80 } else { 443 };
        if let Err(error) = simulation.packet(&packet(number, source, port)) {
            refused = Some((number, error));
            break;
        }
    }
    let (number, error) = refused.unwrap();
    assert!(matches!(error, ExplainError::Full { packet, candidates: 3 } if packet == number));
    let text = error.to_string();
    assert!(text.contains("with 3 rule sets side by side"), "{text}");
    assert!(text.contains("give fewer rule sets, or a part of the capture"), "{text}");
    assert!(simulation.report().packets > 100_000, "{number}");
    assert!(most() < MAX_MEGABYTES * 1000, "{} kB", most());
}
