//! Frames through the program, one by one.

use std::collections::btree_map::Entry;

use anyhow::{Context as _, Result, ensure};
use limiter_common::header::Direction;
use limiter_common::verdict::{Reason, Verdict};
use limiter_datapath::{Framing, Observed as _, Way};
use limiter_decision::packet::{Facts, Segments};

use super::{Program, TcHooks};
use crate::tc_run::TcRunner;
use crate::test_run::{Runner, TestClock, TestRun};

impl Program {
    /// Judges a frame `repeat` times and returns the verdict of the last.
    ///
    /// # Errors
    ///
    /// When the program returned `XDP_ABORTED` or a number that is no action.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<Verdict> {
        let run = self.hooks.runner.run(frame, repeat)?;
        run.way.map(Way::verdict).context("the program returned no action, or XDP_ABORTED")
    }

    /// Judges a frame, and says where it goes and how it looks then.
    ///
    /// # Errors
    ///
    /// As [`Program::run`].
    pub fn send(&self, frame: &[u8]) -> Result<(Way, Vec<u8>)> {
        let run = self.hooks.runner.run(frame, 1)?;
        let way = run.way.context("the program returned no action, or XDP_ABORTED")?;
        Ok((way, run.frame))
    }

    /// Judges a frame and says why, from the counters: exactly one reason must have moved, by
    /// one packet of the frame's length.
    ///
    /// # Errors
    ///
    /// When the counters say otherwise, or the verdict is not the reason's.
    pub fn judge(&self, frame: &[u8]) -> Result<Reason> {
        self.judged(frame, || self.hooks.runner.run(frame, 1))
    }

    /// As [`Program::judge`], of a packet without an Ethernet header.
    ///
    /// # Errors
    ///
    /// As [`Program::judge`].
    pub fn judge_layer3(&mut self, packet: &[u8]) -> Result<Reason> {
        self.load_layer3()?;
        self.judged(packet, || self.run_layer3(packet))
    }

    /// As [`Program::send`], of a packet without an Ethernet header.
    ///
    /// # Errors
    ///
    /// As [`Program::send`].
    pub fn send_layer3(&mut self, packet: &[u8]) -> Result<(Way, Vec<u8>)> {
        self.load_layer3()?;
        let run = self.run_layer3(packet)?;
        let way = run.way.context("the program returned no action, or XDP_ABORTED")?;
        Ok((way, run.frame))
    }

    /// Judges a packet at tc, which is a super-frame if it has segments, and says how it left.
    ///
    /// # Errors
    ///
    /// Without root.
    pub fn run_at_tc(
        &mut self,
        frame: &[u8],
        direction: Direction,
        segments: Option<Segments>,
    ) -> Result<TestRun> {
        let now = self.now();
        let hooks = match self.tc.entry(direction) {
            Entry::Occupied(hooks) => hooks.into_mut(),
            Entry::Vacant(room) => {
                let runner = TcRunner::open(&mut self.kernel, direction, Framing::Ethernet)?;
                let clock = TestClock::of_map(runner.map("CLOCK")?)?;
                room.insert(TcHooks { runner, clock })
            }
        };
        hooks.clock.set(now)?;
        hooks.runner.run(frame, segments)
    }

    fn load_layer3(&mut self) -> Result<()> {
        if self.layer3.is_none() {
            self.layer3 = Some(Runner::open(&mut self.kernel, Framing::Layer3)?);
        }
        Ok(())
    }

    fn run_layer3(&self, packet: &[u8]) -> Result<TestRun> {
        self.layer3.as_ref().context("the program is not loaded")?.run(packet, 1)
    }

    /// As [`Program::judge`], with only the first `linear` bytes in the linear part of the frame.
    ///
    /// # Errors
    ///
    /// As [`Program::judge`], and on Linux before 6.18, which has no such test run.
    pub fn judge_split(&self, frame: &[u8], linear: usize) -> Result<Reason> {
        let linear = u32::try_from(linear)?;
        self.judged(frame, || self.hooks.runner.run_split(frame, linear))
    }

    fn judged(&self, frame: &[u8], run: impl FnOnce() -> Result<TestRun>) -> Result<Reason> {
        let before = self.kernel.reasons()?;
        let way = run()?.way.context("the program returned no action, or XDP_ABORTED")?;
        let verdict = way.verdict();
        let after = self.kernel.reasons()?;
        let mut moved =
            Reason::ALL.into_iter().zip(before.iter().zip(&after)).filter(|(_, (a, b))| a != b);
        let (reason, (a, b)) = moved.next().context("no counter moved")?;
        ensure!(moved.next().is_none(), "two counters moved");
        ensure!(b.packets == a.packets + 1, "{}: {a:?} to {b:?}", reason.name());
        ensure!(b.bytes == a.bytes + frame.len() as u64, "{}: {a:?} to {b:?}", reason.name());
        ensure!(verdict == reason.verdict(), "{verdict:?} for {}", reason.name());
        Ok(reason)
    }

    /// Judges a frame and returns what the parser in the kernel made of it. The calling thread must
    /// be bound to `cpu`, where the program leaves its facts.
    ///
    /// # Errors
    ///
    /// When the program returned anything but pass or drop, or the kernel refuses.
    pub fn facts(&self, frame: &[u8], cpu: usize) -> Result<Result<Facts, Reason>> {
        self.run(frame, 1)?;
        self.hooks.facts.last(cpu)
    }
}
