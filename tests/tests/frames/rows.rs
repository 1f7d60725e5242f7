//! Every row of the table, within a limit and over it.

use std::collections::{BTreeMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use limiter_common::verdict::{Reason, Verdict};
use limiter_tests::frames::{self, Row};
use limiter_tests::receiver::Receiver;
use limiter_tests::veth::{RECEIVER, SENDER};

use super::scene::{Count, Counters, Scene};

/// More than all rows together.
const ROOM: &str = "key: remote_address, rate_limit: {unit: second, requests_per_unit: 1000}";

const ONE: &str = "key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 1}";

/// The largest there is, so that every row fits into one frame.
const MTU: u32 = 65_535;

const EACH: u64 = 2;

/// The stack takes the tag off before a packet socket sees the frame, and discards it when nothing
/// is behind: counted by the program as every other, but not seen to arrive.
const UNSEEN: [&str; 1] = ["tag and nothing more"];

#[test]
fn every_row_in_native_mode() -> Result<()> {
    every_row("native")
}

#[test]
fn every_row_in_generic_mode() -> Result<()> {
    every_row("generic")
}

fn every_row(mode: &'static str) -> Result<()> {
    let scene = Scene::start("rows", mode, MTU, ROOM)?;
    within_the_limit(&scene)?;
    over_the_limit(&scene)?;
    scene.close()
}

/// Everything passes. What is charged costs its source's bucket and nobody else's: the rule has
/// counted exactly as much.
fn within_the_limit(scene: &Scene) -> Result<()> {
    let socket = scene.socket(SENDER.interface)?;
    let receiver = Receiver::start(&scene.bed.receiver, RECEIVER.interface)?;
    let mut arrive = 0;
    for row in frames::table() {
        let before = row.expected.ok().map(|source| scene.of_source(source)).transpose()?;
        let moved = scene.send(&socket, &row.frame, EACH)?;
        let reason = row.expected.err().unwrap_or(Reason::Conforming);
        expect(scene, &row, &moved, &[(reason, EACH)])?;
        if let (Ok(source), Some([passed, dropped])) = (row.expected, before) {
            let now = scene.of_source(source)?;
            ensure!(
                now == [passed + EACH, dropped],
                "{}: {now:?} of {source:?}",
                name(scene, &row)
            );
        }
        arrive += seen(&row, EACH);
    }
    arrived(scene, receiver, arrive)
}

/// After the first packet of each source, what is charged is dropped; what is exempt passes still.
fn over_the_limit(scene: &Scene) -> Result<()> {
    scene.change(ONE)?;
    let socket = scene.socket(SENDER.interface)?;
    let receiver = Receiver::start(&scene.bed.receiver, RECEIVER.interface)?;
    let mut arrive = 0;
    let mut drained = HashSet::new();
    for row in frames::table() {
        let moved = scene.send(&socket, &row.frame, EACH)?;
        match row.expected {
            Ok(source) => {
                let first = u64::from(drained.insert(source));
                let reasons = [(Reason::Conforming, first), (Reason::OverLimit, EACH - first)];
                expect(scene, &row, &moved, &reasons)?;
                arrive += first;
            }
            Err(reason) => {
                expect(scene, &row, &moved, &[(reason, EACH)])?;
                arrive += seen(&row, EACH);
            }
        }
    }
    arrived(scene, receiver, arrive)
}

/// Exactly these packets, with all their bytes, and of them the charged ones at the rule.
fn expect(scene: &Scene, row: &Row, moved: &Counters, reasons: &[(Reason, u64)]) -> Result<()> {
    let of = |packets| Count { packets, bytes: packets * row.frame.len() as u64 };
    let of_rule = |verdict| {
        let charged = reasons.iter().filter(|(reason, _)| {
            matches!(reason, Reason::Conforming | Reason::OverLimit) && reason.verdict() == verdict
        });
        of(charged.map(|(_, packets)| packets).sum())
    };
    let expected = Counters {
        seen: reasons.iter().map(|(_, packets)| packets).sum(),
        reasons: reasons
            .iter()
            .filter(|(_, packets)| *packets > 0)
            .map(|(reason, packets)| (reason.name().to_owned(), of(*packets)))
            .collect::<BTreeMap<_, _>>(),
        passed: of_rule(Verdict::Pass),
        dropped: of_rule(Verdict::Drop),
    };
    ensure!(*moved == expected, "{}: {moved:?}, expected {expected:?}", name(scene, row));
    Ok(())
}

/// Of these that pass, how many a packet socket sees.
fn seen(row: &Row, passed: u64) -> u64 {
    if UNSEEN.contains(&row.what) { 0 } else { passed }
}

/// As many frames as should have reached the socket, and no more.
fn arrived(scene: &Scene, receiver: Receiver, expected: u64) -> Result<()> {
    let total = |counts: &limiter_tests::receiver::Counts| {
        counts.sources.values().sum::<u64>() + counts.other
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while total(&receiver.counts()) < expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    let counts = receiver.finish()?;
    counts.check_clean()?;
    let arrived = total(&counts);
    ensure!(arrived == expected, "{arrived} arrived in {} mode, not {expected}", scene.mode);
    Ok(())
}

fn name(scene: &Scene, row: &Row) -> String {
    format!("{}: {} in {} mode", row.section, row.what, scene.mode)
}
