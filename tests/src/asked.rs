//! Questions about a frame before it comes: what the program would do with it.

use anyhow::{Context as _, Result, ensure};
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_datapath::DatapathError;
use limiter_model::{Excerpt, Framing, Judged, Looked, Model, Packet, Reading, Step, Way};

/// Interface that every frame of a test run comes in by.
const INTERFACE: u32 = 1;

fn answer<E>(
    maps: &dyn Reading<Error = E>,
    packet: &Packet<'_>,
    now: Ticks,
) -> Result<(Looked, Judged), E> {
    let mut excerpt = Excerpt::new(maps, u32::MAX)?;
    Ok((excerpt.look(packet, now)?, excerpt.judge(packet, now)?))
}

/// Counts of questions, by their outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Frames that a table stops.
    pub by_a_table: u64,
    /// Frames that the source table stops.
    pub by_the_source_table: u64,
    /// Frames that are charged to one budget at two places, and only that is over it.
    pub by_charging_twice: u64,
    /// Frames that do not come as far as to the rules.
    pub before_the_rules: u64,
    /// Frames that pass the rules.
    pub passed: u64,
}

impl Asked {
    /// Asks the kernel's maps and the model. The answers must be the same, and what is reported
    /// about each rule must be what the verdict says.
    ///
    /// # Errors
    ///
    /// When they are not, or the kernel refuses.
    pub fn ask(
        &mut self,
        maps: &dyn Reading<Error = DatapathError>,
        model: &Model,
        frame: &[u8],
        now: Ticks,
    ) -> Result<(Reason, u32, Option<Way>)> {
        let length = u64::try_from(frame.len())?;
        let packet = Packet::received(Framing::Ethernet, frame, length, INTERFACE);
        let ((looked, judged), model) = (answer(maps, &packet, now)?, answer(model, &packet, now)?);
        ensure!(judged == model.1, "kernel {judged:?}, model {:?}", model.1);
        let rules = |looked: &Looked| format!("{:?} {:?}", looked.rule, looked.tables);
        ensure!(rules(&looked) == rules(&model.0), "kernel {looked:?}, model {:?}", model.0);
        self.holds_together(&looked, &judged).with_context(|| format!("{looked:?} {judged:?}"))?;
        Ok((judged.outcome.reason, judged.outcome.rule, judged.way))
    }

    fn holds_together(&mut self, looked: &Looked, judged: &Judged) -> Result<()> {
        let reason = judged.outcome.reason;
        // An answer to the sender is what an action makes of it.
        let is = |reported| {
            reason == reported || reason == Reason::Rejected && reported == Reason::OverLimit
        };
        let dropped = reason.verdict() == Verdict::Drop;
        let settled = [
            Reason::Bypass,
            Reason::NotIp,
            Reason::NeighbourDiscovery,
            Reason::DeepVlan,
            Reason::Truncated,
            Reason::Malformed,
            Reason::Allowed,
            Reason::Denied,
            Reason::Banned,
            Reason::Martian,
        ];
        let meter = looked.rule.as_ref().and_then(|rule| rule.meter);
        let conforms = meter.is_none_or(|meter| meter.conforms_in == Some(Ticks::ZERO));
        let stops = |reported: Option<(Reason, u32)>| {
            reported.is_some_and(|(reason, _)| reason.verdict() == Verdict::Drop)
        };
        ensure!(judged.trail.stopped().is_some() == dropped, "the trail has another end");
        ensure!(
            judged.trail.reaches_rules() != settled.contains(&reason),
            "the trail goes another way"
        );
        if settled.contains(&reason) {
            self.before_the_rules += 1;
        } else if let Some(table) = looked.tables.iter().find(|table| stops(table.reported)) {
            let (reported, rule) =
                table.reported.context("a table stops it and does not say why")?;
            ensure!(dropped && is(reported), "the table reports something else");
            ensure!(rule == judged.outcome.rule, "the table has another rule");
            let stopped = judged.trail.stopped();
            ensure!(stopped == Some(Step::Table(table.index)), "the trail ends elsewhere");
            self.by_a_table += 1;
        } else if dropped && conforms {
            let tables = looked.tables.iter().flat_map(|table| [&table.held, &table.class]);
            let source = looked.rule.iter().map(|rule| &rule.class);
            let held = tables.chain(source).flatten();
            let mut budgets: Vec<_> =
                held.map(|held| held.record.budget).filter(|budget| *budget != 0).collect();
            let all = budgets.len();
            budgets.sort_unstable();
            budgets.dedup();
            ensure!(budgets.len() < all, "nothing is asked to stop it");
            self.by_charging_twice += 1;
        } else if dropped {
            ensure!(judged.trail.stopped() == Some(Step::Sources), "the trail ends elsewhere");
            let reported = looked.rule.as_ref().map(|rule| rule.reason);
            ensure!(reported.is_some_and(is), "the source table reports something else");
            self.by_the_source_table += 1;
        } else {
            // A packet over the limit of the source table passes by an action, or in shadow mode.
            ensure!(conforms || reason != Reason::Conforming, "it is asked to be over");
            self.passed += 1;
        }
        Ok(())
    }
}
