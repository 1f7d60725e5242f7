//! Running the program on a frame of one's own, in the kernel, without an interface
//! (`BPF_PROG_TEST_RUN`). Maps really change; the frame goes nowhere.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use bytemuck::{Pod, Zeroable};
use limiter_common::packet::Facts;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};

use super::pod::Wire;
use super::{DatapathError, Framing, Kernel};

/// `enum xdp_action` of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

/// Room that a frame gets to come back in.
const MARGIN: usize = 256;

/// Name of the map with the time in the test program.
const CLOCK: &str = "CLOCK";

/// Names of the maps with what the test program parsed last.
const FACTS: &str = "FACTS";

/// Name of the map with the floods.
const FLOOD: &str = "FLOOD";
const EXEMPT: &str = "EXEMPT";

/// The value in `EXEMPT` for a frame with facts.
const NO_REASON: u64 = u64::MAX;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the network stack.
    Pass,
    /// Nowhere.
    Drop,
    /// Back where it came from, with the answer in it.
    Back,
    /// To another interface or CPU.
    Redirect,
}

impl Way {
    /// What happened to the frame that came in: an answer means that it was dropped.
    pub const fn verdict(self) -> Verdict {
        match self {
            Self::Pass | Self::Redirect => Verdict::Pass,
            Self::Drop | Self::Back => Verdict::Drop,
        }
    }
}

/// What a run returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// Where the frame goes, `None` for any other XDP action: promise P7 says that there is none.
    pub way: Option<Way>,
    /// The frame as it leaves; empty after several runs.
    pub frame: Vec<u8>,
    /// Mean time of one run.
    pub duration: Duration,
}

/// The clock of the test program.
pub struct TestClock(Mutex<Array<MapData, u64>>);

impl TestClock {
    /// Sets the time, to the nanosecond below; past the range, to the end of all clocks.
    pub fn set(&self, now: Ticks) -> Result<(), DatapathError> {
        let nanos = if now.is_past_range() { u64::MAX } else { now.as_nanos() };
        let mut clock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clock.set(0, nanos, 0).map_err(DatapathError::map(CLOCK))
    }
}

/// A flood that the test program makes of one frame; see [`TestFlood::begin`].
pub struct TestFlood(Mutex<PerCpuArray<MapData, Wire<Flood>>>);

/// The flood of one CPU: the layout of the test program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Flood {
    /// Packets left.
    pub packets: u64,
    /// The time before the first one, in nanoseconds.
    pub now: u64,
    /// Nanoseconds from one to the next.
    pub step: u64,
    /// The number of the last source before them. Each of 2^32 numbers is another IPv4 address.
    pub number: u64,
}

impl TestFlood {
    /// From now on the next packets on these CPUs, by index, are floods.
    pub fn begin(&self, cpus: &[Flood]) -> Result<(), DatapathError> {
        let failed = |source| DatapathError::Map { map: FLOOD, source };
        let mut flood = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = flood.get(&0, 0).map_err(failed)?.len();
        let value = |cpu| Wire(cpus.get(cpu).copied().unwrap_or_default());
        let values = PerCpuValues::try_from((0..count).map(value).collect::<Vec<_>>())
            .map_err(|source| failed(source.into()))?;
        flood.set(0, values, 0).map_err(failed)
    }
}

/// What the test program parsed last.
pub struct TestFacts {
    facts: PerCpuArray<MapData, Wire<Facts>>,
    exempt: PerCpuArray<MapData, u64>,
}

impl TestFacts {
    /// The facts of the last frame on a CPU, or the reason why it has none.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, has no such CPU, or the program left no reason's number.
    pub fn last(&self, cpu: usize) -> Result<Result<Facts, Reason>, DatapathError> {
        let missing = |map| DatapathError::Map { map, source: MapError::KeyNotFound };
        let exempt = self.exempt.get(&0, 0).map_err(DatapathError::map(EXEMPT))?;
        let exempt = *exempt.get(cpu).ok_or_else(|| missing(EXEMPT))?;
        if exempt != NO_REASON {
            let number = |reason: &Reason| u64::from(reason.index()) == exempt;
            return Ok(Err(Reason::ALL.into_iter().find(number).ok_or_else(|| missing(EXEMPT))?));
        }
        let facts = self.facts.get(&0, 0).map_err(DatapathError::map(FACTS))?;
        Ok(Ok(facts.get(cpu).ok_or_else(|| missing(FACTS))?.0))
    }
}

impl Kernel {
    /// Runs the program `repeat` times on a frame of at least 14 bytes.
    pub fn test_run(&self, frame: &[u8], repeat: u32) -> Result<TestRun, DatapathError> {
        self.run(Framing::Ethernet, frame, repeat, None)
    }

    /// The same once with the program for frames that begin otherwise. It is loaded first:
    /// [`Kernel::verified_instructions`] does that.
    pub fn test_run_of(&self, framing: Framing, frame: &[u8]) -> Result<TestRun, DatapathError> {
        self.run(framing, frame, 1, None)
    }

    /// Runs the program on a frame of which only the first `linear` bytes, at least 14, are in the linear
    /// part and the others in fragments. Linux 6.18 has this; older ones answer `EINVAL`.
    pub fn test_run_split(&self, frame: &[u8], linear: u32) -> Result<TestRun, DatapathError> {
        // `struct xdp_md`: data, data_end, data_meta, two about the receiving queue, and a device map's.
        let context: [u32; 6] = [0, linear, 0, 0, 0, 0];
        self.run(Framing::Ethernet, frame, 1, Some(bytemuck::bytes_of(&context)))
    }

    fn run(
        &self,
        framing: Framing,
        frame: &[u8],
        repeat: u32,
        context: Option<&[u8]>,
    ) -> Result<TestRun, DatapathError> {
        let failed = |error| DatapathError::Verify(Box::new(error));
        let program: &Xdp = self
            .ebpf
            .program(framing.program())
            .ok_or(aya::programs::ProgramError::UnexpectedProgramType)
            .and_then(TryInto::try_into)
            .map_err(failed)?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.ctx_in = context;
        options.repeat = repeat;
        // One that is run several times is measured, and nobody asks for its bytes.
        let mut out = if repeat == 1 { vec![0; frame.len() + MARGIN] } else { Vec::new() };
        if repeat == 1 {
            options.data_out = Some(&mut out);
        }
        let result = program.test_run(options).map_err(failed)?;
        let way = match result.return_value {
            XDP_PASS => Some(Way::Pass),
            XDP_DROP => Some(Way::Drop),
            XDP_TX => Some(Way::Back),
            XDP_REDIRECT => Some(Way::Redirect),
            _ => None,
        };
        out.truncate(usize::try_from(result.data_size_out).unwrap_or(0));
        Ok(TestRun { way, frame: out, duration: result.duration })
    }

    /// The clock of the test program; the shipped one has none.
    pub fn take_test_clock(&mut self) -> Option<TestClock> {
        let map: Map = self.ebpf.take_map(CLOCK)?;
        Array::try_from(map).ok().map(|clock| TestClock(Mutex::new(clock)))
    }

    /// Floods of the test program; the shipped one has none.
    pub fn take_test_flood(&mut self) -> Option<TestFlood> {
        let map = PerCpuArray::try_from(self.ebpf.take_map(FLOOD)?).ok()?;
        Some(TestFlood(Mutex::new(map)))
    }

    /// What the test program parsed; the shipped one does not tell.
    pub fn take_test_facts(&mut self) -> Option<TestFacts> {
        let facts = PerCpuArray::try_from(self.ebpf.take_map(FACTS)?).ok()?;
        let exempt = PerCpuArray::try_from(self.ebpf.take_map(EXEMPT)?).ok()?;
        Some(TestFacts { facts, exempt })
    }

    /// Instructions that the verifier walked through, where the kernel tells (Linux 5.16).
    pub fn verified_instructions(&mut self, framing: Framing) -> Option<u32> {
        self.program(framing).ok()?.info().ok()?.verified_instruction_count()
    }
}
