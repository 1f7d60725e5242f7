//! Limiter as it is shipped, without an interface.

use std::num::NonZero;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use aya::programs::{ProgramFd, loaded_programs};
use limiter_common::verdict::Reason;
use limiter_common::wire::{Lane, Space};
use limiter_userspace::datapath::{Kernel, Options};

use crate::bpffs::Bpffs;
use crate::program;
use crate::work_dir::WorkDir;

/// The name of the XDP program, as the kernel tells it.
const NAME: &str = "limiter";

/// The loaded program. Its pins go with it.
pub(in crate::bench) struct Subject {
    kernel: Kernel,
    fd: ProgramFd,
    /// How new entries are let in as shipped.
    spaces: Vec<(Lane, Space)>,
    // Dropped in this order: the pins, then the directory that they are mounted on.
    bpffs: Bpffs,
    _dir: WorkDir,
}

impl Subject {
    /// Loads it.
    pub(in crate::bench) fn load(max_sources: u32, max_keys: u32, max_rules: u32) -> Result<Self> {
        let dir = WorkDir::create("bench")?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let pin_dir = bpffs.path().join("limiter");
        let options = Options { pin_dir, max_sources, max_rules, max_keys, kernel_log: 0 };
        let kernel = Kernel::open(&options)?;
        let mut newest = None;
        for info in loaded_programs() {
            let info = info?;
            if info.name_as_str() == Some(NAME) {
                newest = newest.max(Some(info.id()));
            }
        }
        let id = newest.context("the kernel lists no program of limiter")?;
        let found = loaded_programs().filter_map(Result::ok).find(|info| info.id() == id);
        let fd = found.context("the program of limiter is gone")?.fd()?;
        let spaces = Lane::ALL
            .into_iter()
            .map(|lane| Ok((lane, kernel.room(lane)?.0)))
            .collect::<Result<_>>()?;
        Ok(Self { kernel, fd, spaces, bpffs, _dir: dir })
    }

    /// The program.
    pub(in crate::bench) const fn fd(&self) -> &ProgramFd {
        &self.fd
    }

    /// Where its maps are pinned.
    pub(in crate::bench) fn map_pins(&self) -> PathBuf {
        self.bpffs.path().join("limiter/maps")
    }

    /// Puts a rule file in force.
    pub(in crate::bench) fn apply(&mut self, rules: &str) -> Result<()> {
        program::commit(&mut self.kernel, &program::rule_set(rules)?)
    }

    /// Lets in any number of new entries, or as many as shipped.
    pub(in crate::bench) fn open_doors(&mut self, open: bool) -> Result<()> {
        for (lane, shipped) in &self.spaces {
            let (now, _) = self.kernel.room(*lane)?;
            let (cost, tolerance) = if open { (0, 0) } else { (shipped.cost, shipped.tolerance) };
            self.kernel.set_space(*lane, Space { cost, tolerance, ..now })?;
        }
        Ok(())
    }

    /// Tells so many drops a second on each CPU, or none.
    pub(in crate::bench) fn tell(&mut self, per_second: u32) -> Result<()> {
        let rate = NonZero::new(per_second);
        Ok(self.kernel.set_event_rate(rate, rate.unwrap_or(NonZero::<u32>::MIN))?)
    }

    /// Packets so far by reason.
    pub(in crate::bench) fn reasons(&self) -> Result<[u64; Reason::COUNT]> {
        Ok(self.kernel.reasons()?.map(|tally| tally.packets))
    }

    /// Takes what was told, so that the ring does not fill up.
    pub(in crate::bench) fn drain(&mut self) {
        while self.kernel.next_event().is_some() {}
    }
}
