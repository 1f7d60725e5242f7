//! The programs of the benchmark in the kernel: what gives each run another source, and what limiter is compared with.

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, HashMap, ProgramArray};
use aya::programs::{ProgramFd, TestRun as _, TestRunOptions, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

use super::cases::Family;
use crate::netns::Netns;

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(env!("LIMITER_BENCH_OBJECT"));

/// How sources follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Order {
    /// At random.
    Random,
    /// One after the other, from this one on.
    From(u32),
}

/// `struct Bucket`, as far as the reference looks: when its time comes, in nanoseconds.
type Value = [u64; 4];

/// The programs.
pub(in crate::bench) struct Rig {
    ebpf: Ebpf,
    /// Sources that the reference has.
    filled_v4: u32,
    filled_v6: u32,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Baseline {
    /// A program that only drops.
    Empty,
    /// The least that a limiter by source does.
    Reference,
}

impl Baseline {
    const fn program(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Reference => "reference",
        }
    }
}

impl Rig {
    /// Loads them, with room for `entries` sources of each family.
    pub(in crate::bench) fn load(entries: u32) -> Result<Self> {
        ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("REFERENCE_V4", entries)
            .map_max_entries("REFERENCE_V6", entries)
            .load(&crate::program::aligned(OBJECT))?;
        for name in ["walk", "empty", "reference"] {
            program(&mut ebpf, name)?.load()?;
        }
        Ok(Self { ebpf, filled_v4: 0, filled_v6: 0 })
    }

    /// Gives the reference as many sources from `first` on. Those that it has stay where they are in the map, as in
    /// limiter's: an element that is written anew moves to the head of its chain.
    pub(in crate::bench) fn fill(
        &mut self,
        family: Family,
        first: u32,
        sources: u32,
    ) -> Result<()> {
        let filled = match family {
            Family::V4 => &mut self.filled_v4,
            Family::V6 => &mut self.filled_v6,
        };
        let missing = *filled..sources;
        *filled = sources.max(*filled);
        let value: Value = [0; 4];
        match family {
            Family::V4 => {
                let map = self.ebpf.map_mut("REFERENCE_V4").context("no REFERENCE_V4")?;
                let mut map: HashMap<_, [u8; 4], Value> = HashMap::try_from(map)?;
                for number in missing {
                    map.insert(first.wrapping_add(number).to_be_bytes(), value, 0)?;
                }
            }
            Family::V6 => {
                let map = self.ebpf.map_mut("REFERENCE_V6").context("no REFERENCE_V6")?;
                let mut map: HashMap<_, [u8; 8], Value> = HashMap::try_from(map)?;
                for number in missing {
                    let upper = u64::from(u32::from_be_bytes(super::cases::V6_PREFIX));
                    let source = upper << 32 | u64::from(first.wrapping_add(number));
                    map.insert(source.to_be_bytes(), value, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Calls a baseline from now on.
    pub(in crate::bench) fn call_baseline(&mut self, baseline: Baseline) -> Result<()> {
        let fd = program(&mut self.ebpf, baseline.program())?.fd()?.try_clone()?;
        self.call(&fd)
    }

    /// Calls a program from now on.
    pub(in crate::bench) fn call(&mut self, program: &ProgramFd) -> Result<()> {
        let map = self.ebpf.map_mut("PROGRAM").context("no PROGRAM")?;
        Ok(ProgramArray::try_from(map)?.set(0, program, 0)?)
    }

    /// Attaches the walk to a new interface that receives nothing. The kernel puts an XDP program into a dispatcher for
    /// as long as it is used, and each change of that waits for all CPUs: 30 ms for each test-run of a program that is
    /// attached nowhere.
    pub(in crate::bench) fn attach_walk(&mut self, netns: &Netns, interface: &str) -> Result<()> {
        netns.ip(["link", "add", interface, "type", "veth"])?;
        let walk = program(&mut self.ebpf, "walk")?;
        let attached = netns.enter(|| walk.attach(interface, XdpMode::Skb).map(drop))?;
        attached.with_context(|| format!("cannot attach to {interface}"))
    }

    /// Runs `packets` copies of a frame through the program that is called; says nanoseconds for each.
    pub(in crate::bench) fn run(
        &mut self,
        frame: &[u8],
        offset: u32,
        (first, sources): (u32, u32),
        order: Order,
        packets: u32,
    ) -> Result<f64> {
        let (state, in_turn) = match order {
            Order::Random => (1, 0),
            Order::From(number) => (u64::from(number).wrapping_sub(1), 1),
        };
        // `struct Walk` of the object, on a machine of little end.
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words: [u64; 3] = [state, two(sources, first), two(in_turn, offset)];
        let map = self.ebpf.map_mut("WALK").context("no WALK")?;
        let mut map: Array<_, [u64; 3]> = Array::try_from(map)?;
        map.set(0, words, 0)?;
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.repeat = packets;
        let result = program(&mut self.ebpf, "walk")?.test_run(options)?;
        // XDP_ABORTED is the walk's own: nothing was called.
        ensure!(result.return_value != 0, "the program under test was not called");
        Ok(result.duration.as_secs_f64() * 1e9)
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    Ok(ebpf.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?)
}
