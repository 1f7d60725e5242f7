//! The decision: a story of rules, frames and time through the model of the data path.

mod bucket;
mod rule_sets;
mod story;

use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::ListEntry;
use limiter_datapath::Way;
use limiter_model::Model;
use limiter_rules::{Installed, RuleFile, Selector};

use crate::input::Input;
use crate::rules;
use bucket::Buckets;
pub use rule_sets::{COUNT, texts as rule_sets};
use story::{Step, step};

const MAX_STEPS: u32 = 512;

/// Prefixes that a story puts on lists.
const LISTED: [&str; 4] = ["192.0.2.1/32", "192.0.2.0/24", "2001:db8:0:1::/64", "2001:db8::/32"];

struct Maps {
    model: Model,
    installed: Installed,
    now: u64,
    frames: u64,
    bytes: u64,
    buckets: Option<Buckets>,
}

/// Plays a story and checks everything that is promised of it.
///
/// # Panics
///
/// When a promise is broken.
pub fn check(input: &[u8]) {
    let mut input = Input(input);
    let mut maps = Maps {
        model: Model::new(),
        installed: Installed::default(),
        now: 1_000_000_000,
        frames: 0,
        bytes: 0,
        buckets: None,
    };
    maps.rules(input.byte());
    let mut steps = 0;
    while !input.is_empty() && steps < MAX_STEPS {
        steps += 1;
        match step(&mut input) {
            Step::Frame(frame) => maps.frame(&frame),
            // Half of the range: past it every packet passes, which is a promise of its own.
            Step::Time(nanos) => maps.now = maps.now.saturating_add(nanos).min(1 << 59),
            Step::Rules(index) => maps.rules(index),
            Step::List(index, list, nanos) => {
                let end = nanos.map(|nanos| Ticks::from_nanos(maps.now.saturating_add(nanos)));
                maps.model.list(&selector(index), ListEntry::new(list, end));
            }
            Step::Unlist(index) => maps.model.unlist(&selector(index)),
            Step::Bypass(engaged) => maps.model.set_bypass(engaged),
        }
    }
    maps.sums();
}

fn selector(index: u8) -> Selector {
    let text = LISTED[usize::from(index) % LISTED.len()];
    let prefix = text.parse().expect("a prefix");
    Selector::prefix(prefix).expect("a prefix without host bits")
}

impl Maps {
    /// Puts another rule set in force. One that does not fit beside the one before stays out.
    fn rules(&mut self, index: u8) {
        let (text, limit) = rule_sets::of(index);
        let set = RuleFile::parse("fuzz.yaml", text.as_bytes(), 1522).expect("a rule set of ours");
        let generation = self.model.generation() + 1;
        let plan = rules::plan(&self.installed, &set.rules, generation).expect("it fits");
        self.installed = plan.installed.clone();
        self.model.commit(plan, Ticks::from_nanos(self.now));
        // A bucket never holds more than the new burst, whatever it held before.
        self.buckets = limit.map(Buckets::new);
    }

    fn frame(&mut self, frame: &[u8]) {
        let now = Ticks::from_nanos(self.now);
        let length = frame.len() as u64;
        let before = self.model.reasons();
        let outcome = self.model.judge(frame, now);
        let after = self.model.reasons();
        self.frames += 1;
        self.bytes += length;
        for (reason, (a, b)) in Reason::ALL.into_iter().zip(before.into_iter().zip(after)) {
            let moved = u64::from(reason == outcome.reason);
            assert_eq!(b.packets - a.packets, moved, "{reason:?} after {outcome:?}");
            assert_eq!(b.bytes - a.bytes, moved * length, "{reason:?} after {outcome:?}");
        }
        // Nobody else is there, and the model's maps have room.
        assert_ne!(outcome.reason, Reason::Contended, "{frame:02x?}");
        if outcome.reason == Reason::Untracked {
            assert!(now.is_past_range(), "{frame:02x?}");
        }
        let way = self.model.way().expect("a frame leaves some way");
        assert_eq!(way.verdict(), outcome.reason.verdict(), "{outcome:?} {way:?}");
        let out = self.model.frame();
        match way {
            Way::Back => {
                assert_eq!(outcome.reason, Reason::Rejected, "{outcome:?}");
                assert!(out.len() <= frame.len(), "an answer longer than its cause");
            }
            Way::Pass if outcome.reason != Reason::Marked => {
                assert_eq!(out, frame, "changed, and not marked: {outcome:?}");
            }
            Way::Pass | Way::Redirect => assert_eq!(out.len(), frame.len(), "{outcome:?}"),
            Way::Drop => {}
        }
        if outcome.reason.verdict() == Verdict::Drop && outcome.reason != Reason::Denied {
            let ours = outcome.rule >= 2 || outcome.reason == Reason::Banned;
            assert!(ours, "dropped under no rule: {outcome:?}");
        }
        if let Some(buckets) = &mut self.buckets {
            buckets.saw(frame, self.now, outcome.reason);
        }
    }

    /// Every frame is counted once.
    fn sums(&self) {
        let reasons = self.model.reasons();
        assert_eq!(reasons.iter().map(|tally| tally.packets).sum::<u64>(), self.frames);
        assert_eq!(reasons.iter().map(|tally| tally.bytes).sum::<u64>(), self.bytes);
    }
}
