//! Running the program on a frame of one's own, in the kernel, without an interface
//! (`BPF_PROG_TEST_RUN`). Maps really change; the frame goes nowhere.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;

use super::{DatapathError, Kernel};

/// `enum xdp_action` of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// Name of the map with the time in the test program.
const CLOCK: &str = "CLOCK";

/// What a run returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// The verdict, `None` for any other XDP action: promise P7 says that there is none.
    pub verdict: Option<Verdict>,
    /// Mean time of one run.
    pub duration: Duration,
}

/// The clock of the test program.
pub struct TestClock(Mutex<Array<MapData, u64>>);

impl TestClock {
    /// Sets the time, to the nanosecond below.
    pub fn set(&self, now: Ticks) -> Result<(), DatapathError> {
        let mut clock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clock.set(0, now.as_nanos(), 0).map_err(DatapathError::map(CLOCK))
    }
}

impl Kernel {
    /// Runs the program `repeat` times on a frame of at least 14 bytes.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, DatapathError> {
        let failed = |error| DatapathError::Verify(Box::new(error));
        let program: &Xdp = self
            .ebpf
            .program(super::kernel::PROGRAM)
            .ok_or(aya::programs::ProgramError::UnexpectedProgramType)
            .and_then(TryInto::try_into)
            .map_err(failed)?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = repeat;
        let result = program.test_run(options).map_err(failed)?;
        let verdict = match result.return_value {
            XDP_PASS => Some(Verdict::Pass),
            XDP_DROP => Some(Verdict::Drop),
            _ => None,
        };
        Ok(TestRun { verdict, duration: result.duration })
    }

    /// The clock of the test program; the shipped one has none.
    pub fn take_test_clock(&mut self) -> Option<TestClock> {
        let map: Map = self.ebpf.take_map(CLOCK)?;
        Array::try_from(map).ok().map(|clock| TestClock(Mutex::new(clock)))
    }

    /// Instructions that the verifier walked through, where the kernel tells (Linux 5.16).
    pub fn verified_instructions(&mut self) -> Option<u32> {
        self.program().ok()?.info().ok()?.verified_instruction_count()
    }
}
