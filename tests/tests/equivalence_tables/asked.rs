//! Questions about a frame: what the program would do with it now.

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_userspace::datapath::model::rehearsal::{Judged, Looked, Packet, Seen};
use limiter_userspace::datapath::{Framing, Reading, Way};

/// Where every frame of a test run comes in.
const INTERFACE: u32 = 1;

/// What was asked.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) stopped_by_a_table: u64,
    pub(crate) over_in_the_source_table: u64,
    /// Charged to one budget at two places: no look alone finds that.
    pub(crate) charged_twice: u64,
    pub(crate) passed: u64,
}

impl Asked {
    /// Asks the kernel's maps and the model; the answers are the same.
    pub(crate) fn ask(
        &mut self,
        maps: [&dyn Reading; 2],
        frame: &[u8],
        now: Ticks,
    ) -> (Reason, u32, Option<Way>) {
        let length = u64::try_from(frame.len()).unwrap();
        let packet = Packet { framing: Framing::Ethernet, frame, length, interface: INTERFACE };
        let [kernel, model] = maps.map(|maps| {
            let seen = Seen::new(maps, u32::MAX);
            let looked = seen.look(&packet, now);
            let judged = seen.judge(&packet, now);
            seen.sound((looked, judged)).unwrap()
        });
        assert_eq!(kernel.1, model.1);
        assert_eq!(format!("{:?}", kernel.0.tables), format!("{:?}", model.0.tables));
        assert_eq!(format!("{:?}", kernel.0.rule), format!("{:?}", model.0.rule));
        self.holds_together(&kernel.0, &kernel.1);
        let outcome = kernel.1.outcome;
        (outcome.reason, outcome.rule, kernel.1.way)
    }

    /// What is listed of each table is what the verdict says.
    fn holds_together(&mut self, looked: &Looked, judged: &Judged) {
        let reason = judged.outcome.reason;
        // An answer to the sender is what an action makes of it.
        let is = |told| reason == told || reason == Reason::Rejected && told == Reason::OverLimit;
        let dropped = reason.verdict() == Verdict::Drop;
        let first = looked.tables.iter().find(|table| table.stops);
        let conforms = looked.rule.as_ref().and_then(|rule| rule.meter);
        let conforms = conforms.is_none_or(|meter| meter.conforms_in == Some(Ticks::ZERO));
        if let Some(table) = first {
            let (told, rule) = table.told.unwrap();
            assert!(dropped && is(told), "{looked:?} {judged:?}");
            assert_eq!(rule, judged.outcome.rule);
            self.stopped_by_a_table += 1;
        } else if dropped && conforms {
            let budgets = looked.tables.iter().flat_map(|table| [&table.held, &table.class]);
            let source = looked.rule.iter().map(|rule| &rule.class);
            let mut budgets: Vec<_> = budgets
                .chain(source)
                .flatten()
                .map(|held| held.record.budget)
                .filter(|budget| *budget != 0)
                .collect();
            let all = budgets.len();
            budgets.sort_unstable();
            budgets.dedup();
            assert!(budgets.len() < all, "{looked:?} {judged:?}");
            self.charged_twice += 1;
        } else if dropped {
            self.over_in_the_source_table += 1;
        } else {
            // Who is over the limit of the source table passes by an action, or in shadow mode.
            assert!(conforms || reason != Reason::Conforming, "{looked:?} {judged:?}");
            self.passed += 1;
        }
    }
}
