//! The programs of the benchmark in the kernel: what gives each run another source, and what
//! limiter is compared with.

use anyhow::{Context as _, Result, ensure};
use aya::maps::HashMap;
use aya::programs::{ProgramFd, Xdp};
use aya::{Ebpf, EbpfLoader};
use limiter_tests::netns::Netns;
use limiter_tests::walk::{Order, Walk};

use super::cases::Family;

/// The object; empty when it was built without a BPF toolchain.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/limiter-bench"));

/// `struct Bucket`, as far as the reference looks: when its time comes, in nanoseconds.
type Value = [u64; 4];

pub(crate) struct Rig {
    walk: Walk,
    ebpf: Ebpf,
    /// Sources that the reference has.
    filled_v4: u32,
    filled_v6: u32,
    filled_keys: u32,
}

/// Program that limiter is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Baseline {
    /// A program that only drops.
    Empty,
    /// The least that a limiter by source does.
    Reference,
    /// The least that a limiter by port and source does.
    KeyedReference,
    /// The least that a limiter with so many tables by port and source does, to the charge.
    Charging(Tables),
    /// The least that a limiter does about a source that it has no entry for.
    Newcomer,
}

/// Number of tables that the charging program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    One = 1,
    Four = 4,
    Eight = 8,
}

impl Baseline {
    const ALL: [Self; 7] = [
        Self::Empty,
        Self::Reference,
        Self::KeyedReference,
        Self::Charging(Tables::One),
        Self::Charging(Tables::Four),
        Self::Charging(Tables::Eight),
        Self::Newcomer,
    ];

    const fn program(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Reference => "reference",
            Self::KeyedReference => "keyed_reference",
            Self::Charging(Tables::One) => "charging_1",
            Self::Charging(Tables::Four) => "charging_4",
            Self::Charging(Tables::Eight) => "charging_8",
            Self::Newcomer => "newcomer",
        }
    }
}

impl Rig {
    /// Loads them, with room for `entries` sources of each family.
    pub(crate) fn load(entries: u32) -> Result<Self> {
        ensure!(!OBJECT.is_empty(), "built without the BPF toolchain: run `cargo xtask setup`");
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("REFERENCE_V4", entries)
            .map_max_entries("REFERENCE_V6", entries)
            .load(&limiter_tests::program::aligned(OBJECT))?;
        for baseline in Baseline::ALL {
            program(&mut ebpf, baseline.program())?.load()?;
        }
        Ok(Self { walk: Walk::load()?, ebpf, filled_v4: 0, filled_v6: 0, filled_keys: 0 })
    }

    /// Gives the reference as many sources from `first` on. Those that it has stay where they are
    /// in the map, as in limiter's: an element that is written anew moves to the head of its chain.
    pub(crate) fn fill(&mut self, family: Family, first: u32, sources: u32) -> Result<()> {
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

    /// Gives the keyed reference keys of as many sources from `first` on, at a port.
    pub(crate) fn fill_keys(
        &mut self,
        (first, sources): (u32, u32),
        port: u16,
        protocol: u8,
    ) -> Result<()> {
        let map = self.ebpf.map_mut("REFERENCE_KEYED").context("no REFERENCE_KEYED")?;
        let mut map: HashMap<_, [u32; 4], Value> = HashMap::try_from(map)?;
        for number in self.filled_keys..sources {
            let source = u32::from_ne_bytes(first.wrapping_add(number).to_be_bytes());
            map.insert([source, port.into(), protocol.into(), 0], [0; 4], 0)?;
        }
        self.filled_keys = sources.max(self.filled_keys);
        Ok(())
    }

    /// Gives the charging programs the key of one source in all tables, at a port.
    pub(crate) fn fill_tables(
        &mut self,
        family: Family,
        source: u32,
        port: u16,
        protocol: u8,
    ) -> Result<()> {
        let map = self.ebpf.map_mut("REFERENCE_KEYED").context("no REFERENCE_KEYED")?;
        let mut map: HashMap<_, [u32; 4], Value> = HashMap::try_from(map)?;
        let source = u32::from_ne_bytes(source.to_be_bytes());
        let (port, protocol) = (u32::from(port), u32::from(protocol));
        for table in 0..Tables::Eight as u32 {
            let key = match family {
                Family::V4 => [source, port, protocol, table],
                Family::V6 => {
                    let prefix = u32::from_ne_bytes(super::cases::V6_PREFIX);
                    [prefix, source, port | protocol << 16, table]
                }
            };
            map.insert(key, [0; 4], 0)?;
        }
        Ok(())
    }

    pub(crate) fn call_baseline(&mut self, baseline: Baseline) -> Result<()> {
        let fd = program(&mut self.ebpf, baseline.program())?.fd()?.try_clone()?;
        self.call(&fd)
    }

    pub(crate) fn call(&mut self, program: &ProgramFd) -> Result<()> {
        self.walk.call(program)
    }

    /// Attaches the walk to a new interface that receives nothing.
    pub(crate) fn attach_walk(&mut self, netns: &Netns, interface: &str) -> Result<()> {
        self.walk.attach(netns, interface)
    }

    /// Runs `packets` copies of a frame through the program that is called; says nanoseconds for
    /// each.
    pub(crate) fn run(
        &mut self,
        frame: &[u8],
        offset: u32,
        (first, sources): (u32, u32),
        order: Order,
        packets: u32,
    ) -> Result<f64> {
        self.walk.set(offset, (first, sources), order)?;
        self.walk.run(frame, packets)
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    Ok(ebpf.program_mut(name).with_context(|| format!("no program {name}"))?.try_into()?)
}
