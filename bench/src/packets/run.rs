//! Measuring, round by round, so that what is compared ran side by side.

use anyhow::{Context as _, Result, ensure};
use limiter_common::verdict::Reason;
use limiter_datapath::SourceTable;
use limiter_tests::netns::Netns;
use limiter_tests::subject::Subject;
use limiter_tests::walk::Order;

use super::cases::{self, Case, FIRST, NEW, PORT, SMALL, Sources};
use super::page;
use super::ratios;
use super::rig::{Baseline, Rig};
use crate::group::{Measured, Options};
use crate::spread::Spread;

/// The protocol of the frames.
const UDP: u8 = 17;

/// Packets of one run that count: the most of them must have the reason of the case.
const MOST: f64 = 0.99;

/// Share of them in lines: the last free ways are taken slowly, by the first sources of each /24,
/// before their neighbours owe for them in the bucket that they share.
const MOST_IN_LINES: f64 = 0.95;

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) name: String,
    pub(super) reason: Reason,
    /// Nanoseconds a packet: the empty program, the reference, limiter.
    pub(super) empty: Spread,
    pub(super) reference: Spread,
    pub(super) limiter: Spread,
    /// Of each round: limiter over the reference.
    pub(super) ratio: Spread,
}

impl Row {
    /// Limiter's nanoseconds over those of another row: of the medians, and the widest that the two
    /// spreads allow. The rows ran one after the other.
    pub(super) fn over(&self, other: &Self) -> Spread {
        over(self.limiter, other.limiter)
    }

    /// The reference's nanoseconds over those of another row, likewise.
    pub(super) fn least_over(&self, other: &Self) -> Spread {
        over(self.reference, other.reference)
    }
}

fn over(ours: Spread, theirs: Spread) -> Spread {
    Spread {
        median: ours.median / theirs.median,
        low: ours.low / theirs.high,
        high: ours.high / theirs.low,
    }
}

#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) rounds: usize,
    pub(super) packets: u32,
    pub(super) rows: Vec<Row>,
}

/// Measures everything.
///
/// # Errors
///
/// When the kernel refuses, or packets did not meet what the case says.
pub fn run(options: &Options) -> Result<Measured> {
    let quick = options.quick;
    let (rounds, packets) = if quick { (7, 200_000) } else { (9, 1_000_000) };
    let entries = if quick { 65_536 } else { 1 << 20 };
    let netns = Netns::create("bench-walk")?;
    let mut rig = Rig::load(entries)?;
    rig.attach_walk(&netns, "walk")?;
    let mut bench = Bench {
        rig,
        large: Subject::load(entries, 65_536, if quick { 4_096 } else { 262_144 })?,
        small: Subject::load(SMALL, 1_024, 1_024)?,
        // Twice as many: of so many that owe for a week, some would find their line full, and their
        // neighbours would share their bucket.
        large_lines: Subject::load_in(SourceTable::Lines, 2 * entries, 65_536, 1_024)?,
        small_lines: Subject::load_in(SourceTable::Lines, SMALL, 1_024, 1_024)?,
        next_new: NEW,
        rounds,
        packets,
    };
    let mut rows = Vec::new();
    let wanted = |case: &Case| options.only.as_ref().is_none_or(|only| case.group == only);
    for case in cases::all(quick).into_iter().filter(wanted) {
        let row = bench.measure(&case).with_context(|| format!("{}: {}", case.group, case.name))?;
        eprintln!(
            "{}: {}: {:.0} ns, the reference {:.0}, nothing {:.0}",
            row.group, row.name, row.limiter.median, row.reference.median, row.empty.median
        );
        rows.push(row);
    }
    let results = Results { rounds, packets, rows };
    Ok(Measured { page: page::markdown(&results), figures: ratios::of(&results) })
}

struct Bench {
    rig: Rig,
    large: Subject,
    small: Subject,
    large_lines: Subject,
    small_lines: Subject,
    /// The next source that was never seen.
    next_new: u32,
    rounds: usize,
    packets: u32,
}

impl Bench {
    fn measure(&mut self, case: &Case) -> Result<Row> {
        let known = match case.sources {
            Sources::Known(count) => count,
            Sources::New => 1,
        };
        match case.least {
            Baseline::KeyedReference => self.rig.fill_keys((FIRST, known), PORT, UDP)?,
            Baseline::Charging(_) => self.rig.fill_tables(case.family, FIRST, PORT, UDP)?,
            Baseline::Empty | Baseline::Reference => self.rig.fill(case.family, FIRST, known)?,
            Baseline::Newcomer => {}
        }
        self.prepare(case, known)?;
        let (mut empty, mut reference, mut limiter) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            self.rig.call_baseline(Baseline::Empty)?;
            empty.push(self.once(case)?);
            self.rig.call_baseline(case.least)?;
            reference.push(self.once(case)?);
            let subject = self.subject(case);
            let fd = subject.fd().try_clone()?;
            self.rig.call(&fd)?;
            limiter.push(self.judged(case)?);
        }
        let ratio = limiter.iter().zip(&reference).map(|(ours, least)| ours / least);
        let spread = |values: &[f64]| Spread::of(values.iter().copied()).context("no rounds");
        Ok(Row {
            group: case.group,
            name: case.name.clone(),
            reason: case.reason,
            ratio: Spread::of(ratio).context("no rounds")?,
            empty: spread(&empty)?,
            reference: spread(&reference)?,
            limiter: spread(&limiter)?,
        })
    }

    fn subject(&self, case: &Case) -> &Subject {
        match (case.source_store, case.small) {
            (SourceTable::Hash, false) => &self.large,
            (SourceTable::Hash, true) => &self.small,
            (SourceTable::Lines, false) => &self.large_lines,
            (SourceTable::Lines, true) => &self.small_lines,
        }
    }

    fn subject_mut(&mut self, case: &Case) -> &mut Subject {
        match (case.source_store, case.small) {
            (SourceTable::Hash, false) => &mut self.large,
            (SourceTable::Hash, true) => &mut self.small,
            (SourceTable::Lines, false) => &mut self.large_lines,
            (SourceTable::Lines, true) => &mut self.small_lines,
        }
    }

    /// Rules in force, and every known source seen; a table that new ones are to find full is full.
    fn prepare(&mut self, case: &Case, known: u32) -> Result<()> {
        let subject = self.subject_mut(case);
        subject.apply(&case.rules)?;
        subject.grant()?;
        subject.report(case.reported)?;
        subject.capture(case.captured.as_ref())?;
        subject.open_doors(true)?;
        let subject = self.subject(case);
        let fd = subject.fd().try_clone()?;
        self.rig.call(&fd)?;
        let frame = case.frame();
        let warm = (FIRST, u32::MAX);
        // Twice: a source that is over its limit of one packet is so from the second on.
        for _ in 0..2 {
            self.rig.run(&frame, case.offset(), warm, Order::From(0), known)?;
        }
        let mut leased = 0;
        loop {
            let more = self.subject(case).answer(leased)?;
            if more == 0 {
                break;
            }
            leased += more;
            self.rig.run(&frame, case.offset(), warm, Order::From(0), known)?;
        }
        if case.sources == Sources::New {
            self.rig.run(
                &frame,
                case.offset(),
                (self.next_new, u32::MAX),
                Order::From(0),
                16 * SMALL,
            )?;
            self.next_new = self.next_new.wrapping_add(16 * SMALL);
        }
        let subject = self.subject_mut(case);
        subject.open_doors(false)
    }

    fn once(&mut self, case: &Case) -> Result<f64> {
        let frame = case.frame();
        let (sources, order) = match case.sources {
            Sources::Known(count) => ((FIRST, count), Order::Random),
            Sources::New => {
                let first = self.next_new;
                self.next_new = self.next_new.wrapping_add(self.packets);
                ((first, u32::MAX), Order::From(0))
            }
        };
        self.rig.run(&frame, case.offset(), sources, order, self.packets)
    }

    /// One run of limiter, and whether it was what the case says.
    fn judged(&mut self, case: &Case) -> Result<f64> {
        let subject = self.subject_mut(case);
        subject.drain();
        let before = subject.reasons()?;
        let nanos = self.once(case)?;
        let after = self.subject(case).reasons()?;
        let index = usize::try_from(case.reason.index())?;
        let count = |counts: &[u64; Reason::COUNT]| counts.get(index).copied().unwrap_or_default();
        let met = count(&after).saturating_sub(count(&before));
        let most = match case.source_store {
            SourceTable::Hash => MOST,
            SourceTable::Lines => MOST_IN_LINES,
        };
        let expected = f64::from(self.packets) * most;
        #[expect(clippy::cast_precision_loss, reason = "a million")]
        let enough = met as f64 >= expected;
        ensure!(
            enough,
            "{met} of {} packets were {}: the case does not measure what it says",
            self.packets,
            case.reason.name()
        );
        Ok(nanos)
    }
}
