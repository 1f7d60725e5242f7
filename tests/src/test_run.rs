//! Running limiter's program on a frame of one's own, in the kernel, without an interface
//! (`BPF_PROG_TEST_RUN`). Maps really change; the frame goes nowhere.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use aya::Pod;
use aya::maps::{Array, Map, MapData, MapInfo, PerCpuArray, PerCpuValues};
use aya::programs::{ProgramInfo, TestRun as _, TestRunOptions, Xdp, XdpMode, loaded_programs};
use aya_obj::programs::XdpAttachType;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_datapath::{Framing, Hook, Kernel, Way};
use limiter_decision::packet::Facts;

use crate::netns::Netns;

/// `enum xdp_action` of include/uapi/linux/bpf.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

/// Room that a frame gets to come back in.
pub(crate) const MARGIN: usize = 256;

/// The value in `EXEMPT` for a frame with facts.
const NO_REASON: u64 = u64::MAX;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRun {
    /// Way of the frame, `None` for any other XDP action, of which the program has none.
    pub way: Option<Way>,
    /// The frame as it leaves; empty after several runs.
    pub frame: Vec<u8>,
    /// The instant before which an skb may not go on, in nanoseconds of the monotonic clock.
    pub departure: Option<u64>,
    /// Mean time of one run.
    pub duration: Duration,
}

/// A program of a [`Kernel`], by an open descriptor of its own.
#[derive(Debug)]
pub struct Runner(Xdp);

impl Runner {
    /// Opens the program for such frames, which is loaded first if it is not yet.
    ///
    /// # Errors
    ///
    /// Without root, or when the program does not load.
    pub fn open(kernel: &mut Kernel, framing: Framing) -> Result<Self> {
        let info = program_info(kernel.program_id(Hook::Xdp, framing)?)?;
        Ok(Self(Xdp::from_program_info(info, framing.program().into(), XdpAttachType::Interface)?))
    }

    /// Attaches the program to the loopback interface of a namespace in which nobody sends. The
    /// kernel puts an XDP program into a dispatcher for as long as it is used, and each change of
    /// that waits for all CPUs: 30 ms for each run of several frames, of a program that is attached
    /// nowhere.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach(&mut self, netns: &Netns) -> Result<()> {
        let attached = netns.enter(|| self.0.attach("lo", XdpMode::Skb).map(drop))?;
        attached.context("cannot attach to the loopback interface")
    }

    /// Runs the program `repeat` times on a frame of at least 14 bytes.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Result<TestRun> {
        self.run_with(frame, repeat, None)
    }

    /// Runs the program on a frame of which only the first `linear` bytes, at least 14, are in the
    /// linear part and the others in fragments. Linux 6.18 has this; older ones answer `EINVAL`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn run_split(&self, frame: &[u8], linear: u32) -> Result<TestRun> {
        // `struct xdp_md`: data, data_end, data_meta, two about the receiving queue, and a device
        // map's.
        let context = [0, linear, 0, 0, 0, 0].map(u32::to_ne_bytes).concat();
        self.run_with(frame, 1, Some(&context))
    }

    fn run_with(&self, frame: &[u8], repeat: u32, context: Option<&[u8]>) -> Result<TestRun> {
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.ctx_in = context;
        options.repeat = repeat;
        // One that is run several times is measured, and nobody asks for its bytes.
        let mut out = if repeat == 1 { vec![0; frame.len() + MARGIN] } else { Vec::new() };
        if repeat == 1 {
            options.data_out = Some(&mut out);
        }
        let result = self.0.test_run(options)?;
        let way = match result.return_value {
            XDP_PASS => Some(Way::Pass),
            XDP_DROP => Some(Way::Drop),
            XDP_TX => Some(Way::Back),
            XDP_REDIRECT => Some(Way::Redirect),
            _ => None,
        };
        out.truncate(usize::try_from(result.data_size_out)?);
        Ok(TestRun { way, frame: out, departure: None, duration: result.duration })
    }

    /// A map of the program, by its name of at most 15 bytes.
    fn map(&self, name: &str) -> Result<Map> {
        Self::map_of(&self.0.info()?, name)
    }

    /// A map of a program, by its name of at most 15 bytes.
    pub(crate) fn map_of(program: &ProgramInfo, name: &str) -> Result<Map> {
        let ids = program.map_ids()?.context("the kernel does not report a program's maps")?;
        for id in ids {
            if MapInfo::from_id(id)?.name_as_str() == Some(name) {
                return Ok(Map::from_map_data(MapData::from_id(id)?)?);
            }
        }
        bail!("the program has no map {name}: it is not the test program")
    }
}

/// Instructions that the verifier walked through for a program that is loaded, by its id, where the
/// kernel reports (Linux 5.16).
///
/// # Errors
///
/// When there is no such program, or the kernel does not report it.
pub fn verified_instructions(program: u32) -> Result<u32> {
    let count = program_info(program)?.verified_instruction_count();
    count.context("the kernel does not report how many instructions were verified")
}

pub(crate) fn program_info(id: u32) -> Result<ProgramInfo> {
    let found = loaded_programs().filter_map(Result::ok).find(|info| info.id() == id);
    found.with_context(|| format!("the kernel has no program {id}"))
}

/// The clock of the test program.
pub struct TestClock(Mutex<Array<MapData, u64>>);

impl TestClock {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// When it is not the test program.
    pub fn of(runner: &Runner) -> Result<Self> {
        Self::of_map(runner.map("CLOCK")?)
    }

    pub(crate) fn of_map(map: Map) -> Result<Self> {
        Ok(Self(Mutex::new(Array::try_from(map)?)))
    }

    /// Sets the time, to the nanosecond below; past the range, to the end of all clocks.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set(&self, now: Ticks) -> Result<()> {
        let nanos = if now.is_past_range() { u64::MAX } else { now.as_nanos() };
        let mut clock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(clock.set(0, nanos, 0)?)
    }
}

/// The flood of one CPU: the layout of the test program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Flood {
    /// Packets left.
    pub packets: u64,
    /// The time before the first one, in nanoseconds.
    pub now: u64,
    /// Nanoseconds from one to the next.
    pub step: u64,
    /// The number of the last packet before them.
    pub number: u64,
    /// Sources that send in turn, one packet each, and then again. At least 1.
    pub block: u64,
    /// Packets of each source, after which others come. At least 1.
    pub times: u64,
    /// Bytes of the IPv4 address that all sources have.
    pub net: [u8; 4],
    /// Bits of the address in which sources differ. With all of them, each of 2^32 sources has
    /// another address.
    pub hosts: [u8; 4],
}

// SAFETY: integers and bytes without padding, valid for every bit pattern.
unsafe impl Pod for Flood {}

/// The floods that the test program makes of one frame.
pub struct TestFlood(Mutex<PerCpuArray<MapData, Flood>>);

impl TestFlood {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// When it is not the test program.
    pub fn of(runner: &Runner) -> Result<Self> {
        Ok(Self(Mutex::new(PerCpuArray::try_from(runner.map("FLOOD")?)?)))
    }

    /// From now on the next packets on these CPUs, by index, are floods.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn begin(&self, cpus: &[Flood]) -> Result<()> {
        let mut flood = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = flood.get(&0, 0)?.len();
        let value = |cpu| cpus.get(cpu).copied().unwrap_or_default();
        let values = PerCpuValues::try_from((0..count).map(value).collect::<Vec<_>>())?;
        Ok(flood.set(0, values, 0)?)
    }
}

/// A value of `FACTS`.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Parsed(Facts);

// SAFETY: `repr(transparent)` around a type that bytemuck has proven to be plain data.
unsafe impl Pod for Parsed {}

/// The facts that the test program parsed last.
pub struct TestFacts {
    facts: PerCpuArray<MapData, Parsed>,
    exempt: PerCpuArray<MapData, u64>,
}

impl TestFacts {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// When it is not the test program.
    pub fn of(runner: &Runner) -> Result<Self> {
        let facts = PerCpuArray::try_from(runner.map("FACTS")?)?;
        let exempt = PerCpuArray::try_from(runner.map("EXEMPT")?)?;
        Ok(Self { facts, exempt })
    }

    /// The facts of the last frame on a CPU, or the reason why it has none.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, has no such CPU, or the program left no reason's number.
    pub fn last(&self, cpu: usize) -> Result<Result<Facts, Reason>> {
        let exempt = self.exempt.get(&0, 0)?;
        let exempt = *exempt.get(cpu).with_context(|| format!("no CPU {cpu}"))?;
        if exempt != NO_REASON {
            let reason = Reason::ALL.into_iter().find(|it| u64::from(it.index()) == exempt);
            return Ok(Err(reason.with_context(|| format!("no reason {exempt}"))?));
        }
        let facts = self.facts.get(&0, 0)?;
        let Parsed(facts) = facts.get(cpu).with_context(|| format!("no CPU {cpu}"))?;
        Ok(Ok(*facts))
    }
}
