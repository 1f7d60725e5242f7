//! A BPF program that gives each run of `BPF_PROG_TEST_RUN` another source, and goes on with a
//! program as it is (`tests/ebpf/src/walk.rs`).

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, ProgramArray};
use aya::programs::{ProgramFd, TestRun as _, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

use crate::netns::Netns;

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/walk"));

/// How sources follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sources in random order.
    Random,
    /// One after the other, from this one on.
    From(u32),
}

/// The loaded program.
pub struct Walk(Ebpf);

impl Walk {
    /// Loads it.
    ///
    /// # Errors
    ///
    /// Without root or a BPF toolchain at build time.
    pub fn load() -> Result<Self> {
        ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
        let mut ebpf = EbpfLoader::new().load(&crate::program::aligned(OBJECT))?;
        let walk: &mut Xdp = ebpf.program_mut("walk").context("no program walk")?.try_into()?;
        walk.load()?;
        Ok(Self(ebpf))
    }

    /// Goes on with this program from now on.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn call(&mut self, program: &ProgramFd) -> Result<()> {
        let map = self.0.map_mut("PROGRAM").context("no PROGRAM")?;
        Ok(ProgramArray::try_from(map)?.set(0, program, 0)?)
    }

    /// Attaches it to a new interface that receives nothing. The kernel puts an XDP program into a
    /// dispatcher for as long as it is used, and each change of that waits for all CPUs: 30 ms for
    /// each test-run of a program that is attached nowhere.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach(&mut self, netns: &Netns, interface: &str) -> Result<()> {
        netns.ip(["link", "add", interface, "type", "veth"])?;
        let walk: &mut Xdp = self.0.program_mut("walk").context("no program walk")?.try_into()?;
        let attached = netns.enter(|| walk.attach(interface, XdpMode::Skb).map(drop))?;
        attached.with_context(|| format!("cannot attach to {interface}"))
    }

    /// Says where the sources stand in the frame (byte 26, or 30 behind a VLAN tag), which is the
    /// first one and how many there are, and how they follow one another.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set(&mut self, offset: u32, (first, sources): (u32, u32), order: Order) -> Result<()> {
        let (state, in_turn) = match order {
            Order::Random => (1, 0),
            Order::From(number) => (u64::from(number).wrapping_sub(1), 1),
        };
        // `struct Walk` of the object, on a machine of little end.
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words: [u64; 3] = [state, two(sources, first), two(in_turn, offset)];
        let map = self.0.map_mut("WALK").context("no WALK")?;
        let mut map: Array<_, [u64; 3]> = Array::try_from(map)?;
        Ok(map.set(0, words, 0)?)
    }

    /// Runs `packets` copies of a frame through the program that is called; says nanoseconds for
    /// each.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or no program was called.
    pub fn run(&self, frame: &[u8], packets: u32) -> Result<f64> {
        let walk: &Xdp = self.0.program("walk").context("no program walk")?.try_into()?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = packets;
        let result = walk.test_run(options)?;
        // XDP_ABORTED is the walk's own: nothing was called.
        ensure!(result.return_value != 0, "the program under test was not called");
        Ok(result.duration.as_secs_f64() * 1e9)
    }
}
