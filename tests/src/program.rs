//! The test program in the kernel: rules committed, clock held, frames judged by
//! `BPF_PROG_TEST_RUN`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Admission, Bucket, EntryKind, EntryTable, HostLease, InterfaceCounters, KeyedBucket, ListEntry,
    RuleCounters, TableKey, Tally,
};
use limiter_datapath::{
    Datapath as _, DatapathError, Framing, Kernel, LeaseMemory, Objects, Observed as _, Options,
    Reading, SourceTable, TcOrder, TrialOutcome,
};
use limiter_rules::{Environment, Installed, Plan, RuleFile, RuleSet, Selector};

use crate::bpffs::Bpffs;
use crate::netns::Netns;
use crate::packet::MAX_FRAME;
use crate::tc_run::TcRunner;
use crate::test_run::{Flood, Runner, TestClock, TestFacts, TestFlood};
use crate::work_dir::WorkDir;

mod judge;

/// The object with the clock in a map; empty when it was built without a BPF toolchain.
pub static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/limiter-test"));

/// The same for tc.
pub static TC_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/limiter-tc-test"));

/// The programs that ship.
pub const SHIPPED: Objects =
    Objects { xdp: limiter_objects::program, tc: limiter_objects::tc_program };

/// Stores that the buckets of sources may have.
pub const SOURCE_STORES: [SourceTable; 2] = [SourceTable::Hash, SourceTable::Lines];

/// Seed that decides, in tests, which prefixes share a bucket when they get none of their own.
pub const SEED: u64 = 0;

/// The loaded test program, unattached. Its pins go with it.
pub struct Program {
    kernel: Kernel,
    hooks: Hooks,
    /// The program for packets without an Ethernet header, once one was sent.
    layer3: Option<Runner>,
    /// The programs for tc, by direction, once a packet was sent there.
    tc: BTreeMap<Direction, TcHooks>,
    options: Options,
    /// Time of the clock, in ticks.
    now: AtomicU64,
    /// Number of nodes that share limits; none without a cluster.
    nodes: Option<u64>,
    /// Namespace that the program is attached in, if it is to run many frames.
    idle: Option<Netns>,
    // Dropped in this order: the pins, then the directory that they are mounted on.
    _bpffs: Bpffs,
    _dir: WorkDir,
}

/// The test program for tc, and the clock of it.
struct TcHooks {
    runner: TcRunner,
    clock: TestClock,
}

/// The test program as tests hold it: to be run, and its maps beside limiter's.
struct Hooks {
    runner: Runner,
    clock: TestClock,
    facts: TestFacts,
    flood: TestFlood,
}

impl Hooks {
    fn of(kernel: &mut Kernel) -> Result<Self> {
        let runner = Runner::open(kernel, Framing::Ethernet)?;
        let (clock, facts) = (TestClock::of(&runner)?, TestFacts::of(&runner)?);
        Ok(Self { flood: TestFlood::of(&runner)?, runner, clock, facts })
    }
}

impl Program {
    /// Loads the program with room for `max_sources` sources a family and `max_rules` rules.
    ///
    /// # Errors
    ///
    /// Without root or a BPF toolchain at build time.
    pub fn load(max_sources: u32, max_rules: u32) -> Result<Self> {
        Self::load_in(SourceTable::Hash, max_sources, max_rules)
    }

    /// Loads the program as [`Program::load`] does, with the buckets of sources in a store.
    ///
    /// # Errors
    ///
    /// Without root or a BPF toolchain at build time.
    pub fn load_in(source_table: SourceTable, max_sources: u32, max_rules: u32) -> Result<Self> {
        Self::load_sized(source_table, max_sources, max_sources, max_rules)
    }

    /// As [`Program::load_in`], with room for `max_keys` keys of tables.
    ///
    /// # Errors
    ///
    /// Without root or a BPF toolchain at build time.
    pub fn load_sized(
        source_table: SourceTable,
        max_sources: u32,
        max_keys: u32,
        max_rules: u32,
    ) -> Result<Self> {
        let dir = WorkDir::create("program")?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let pin_dir = bpffs.path().join("limiter");
        let options = Options {
            pin_dir,
            max_sources,
            max_rules,
            max_keys,
            source_table,
            kernel_log: 0,
            tc_order: TcOrder::First,
            then: None,
        };
        let mut kernel = open(&options)?;
        for kind in EntryKind::ALL {
            // As in the model.
            let (entry_table, _) = kernel.entries(kind)?;
            kernel.set_entry_table(kind, EntryTable { seed: SEED, ..entry_table })?;
        }
        if source_table == SourceTable::Lines {
            // The program gets the seed of its lines when it is loaded.
            kernel = open_again(&kernel, &options)?;
        }
        let hooks = Hooks::of(&mut kernel)?;
        let (now, layer3, tc) = (AtomicU64::new(0), None, BTreeMap::new());
        let nodes = None;
        let idle = None;
        Ok(Self { kernel, hooks, layer3, tc, options, now, nodes, idle, _bpffs: bpffs, _dir: dir })
    }

    /// The program for runs of many frames, one after the other: see [`Runner::attach`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn for_floods(mut self) -> Result<Self> {
        let idle = Netns::create("idle")?;
        self.hooks.runner.attach(&idle)?;
        self.idle = Some(idle);
        Ok(self)
    }

    /// Makes rule sets that come from now on those of one of [`NODES`] nodes.
    pub fn among_nodes(&mut self) {
        self.nodes = Some(NODES);
    }

    /// Maps of the program, as questions about a packet read them.
    pub fn reading(&self) -> &dyn Reading<Error = DatapathError> {
        &self.kernel
    }

    /// The time that the clock says.
    fn now(&self) -> Ticks {
        Ticks::new(self.now.load(Ordering::Acquire))
    }

    /// Sets the time; whole nanoseconds.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_time(&self, now: Ticks) -> Result<()> {
        self.now.store(now.get(), Ordering::Release);
        self.hooks.clock.set(now)
    }

    /// From now on the next packets on these CPUs, by index, are floods: run an untagged IPv4 frame
    /// as many times.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn begin_flood(&self, cpus: &[Flood]) -> Result<()> {
        self.hooks.flood.begin(cpus)
    }

    /// A second handle on the same pinned maps, to change rules while this one runs frames.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn changer(&self) -> Result<Changer> {
        Ok(Changer { kernel: open_again(&self.kernel, &self.options)?, now: self.now() })
    }

    /// Plans and commits a rule set; the plan is returned for the model.
    ///
    /// # Errors
    ///
    /// When the rule set is wrong or the kernel refuses.
    pub fn apply(&mut self, set: &RuleSet) -> Result<Plan> {
        let (now, machine) = (self.now(), environment(self.nodes));
        apply(&mut self.kernel, set, &machine, now)
    }

    /// As [`Program::apply`], on a machine that has more than frames.
    ///
    /// # Errors
    ///
    /// When the rule set is wrong or the kernel refuses.
    pub fn apply_on(&mut self, set: &RuleSet, machine: &Environment<'_>) -> Result<Plan> {
        let now = self.now();
        apply(&mut self.kernel, set, machine, now)
    }

    /// As [`Program::apply`], of a rule file.
    ///
    /// # Errors
    ///
    /// When the rule file or the rule set is wrong, or the kernel refuses.
    pub fn apply_file(&mut self, yaml: &str) -> Result<Plan> {
        self.apply(&rule_set(yaml)?)
    }

    /// As [`Program::apply`], on trial until `end`.
    ///
    /// # Errors
    ///
    /// As [`Program::apply`], and when a rule set is on trial already.
    pub fn apply_on_trial(&mut self, set: &RuleSet, end: Ticks) -> Result<Plan> {
        let plan = plan(&self.kernel, set, &environment(self.nodes))?;
        let now = self.now();
        self.kernel.commit_on_trial(plan.clone(), end, |_| now)?;
        Ok(plan)
    }

    /// Confirms a rule set on trial at a time, which is the test's.
    ///
    /// # Errors
    ///
    /// When none is on trial, or the kernel refuses.
    pub fn confirm(&mut self, now: Ticks) -> Result<TrialOutcome> {
        Ok(self.kernel.confirm_by(|_| now)?)
    }

    /// Takes a rule set on trial back.
    ///
    /// # Errors
    ///
    /// When none is on trial, or the kernel refuses.
    pub fn revert(&mut self) -> Result<TrialOutcome> {
        let now = self.now();
        Ok(self.kernel.revert_by(|_| now)?)
    }

    /// Leaves the maps to a second [`Kernel`] on the same pins, as a restart of the daemon does.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn restart(&mut self) -> Result<()> {
        let mut kernel = open_again(&self.kernel, &self.options)?;
        self.hooks = Hooks::of(&mut kernel)?;
        if let Some(idle) = &self.idle {
            self.hooks.runner.attach(idle)?;
        }
        self.layer3 = None;
        self.tc.clear();
        self.kernel = kernel;
        Ok(())
    }

    /// A table of entries, and what became of new ones.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn entries(&self, kind: EntryKind) -> Result<(EntryTable, Admission)> {
        Ok(self.kernel.entries(kind)?)
    }

    /// Changes the settings of a table of entries.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_entry_table(&mut self, kind: EntryKind, entry_table: EntryTable) -> Result<()> {
        Ok(self.kernel.set_entry_table(kind, entry_table)?)
    }

    /// The state of a key of a table.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn keyed(&self, key: &TableKey) -> Result<Option<KeyedBucket>> {
        Ok(self.kernel.keyed(*key)?)
    }

    /// The state of a shared budget.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn budget(&self, index: u32) -> Result<KeyedBucket> {
        self.kernel.budget(index)?.context("no such budget")
    }

    /// Sets where the windows of the wall clock begin.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_wall_offset(&mut self, offset: WallOffset) -> Result<()> {
        Ok(self.kernel.set_wall_offset(offset)?)
    }

    /// A lease of a shared limit.
    ///
    /// # Errors
    ///
    /// When there is no such lease.
    pub fn lease(&mut self, index: u32) -> Result<&HostLease> {
        let lease = self.kernel.leases()?.all().get(usize::try_from(index)?);
        lease.context("no such lease")
    }

    /// The leases of shared limits, and the keys that have some.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to map them.
    pub fn leases(&self) -> Result<&LeaseMemory> {
        Ok(self.kernel.leases()?)
    }

    /// Puts a prefix on a list.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<()> {
        Ok(self.kernel.list(selector, entry)?)
    }

    /// Takes a prefix off its list.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn unlist(&mut self, selector: &Selector) -> Result<bool> {
        Ok(self.kernel.unlist(selector)?)
    }

    /// All reason counters.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn reasons(&self) -> Result<[Tally; Reason::COUNT]> {
        Ok(self.kernel.reasons()?)
    }

    /// Counters of an interface, by its index.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn interface_counters(
        &self,
        index: u32,
        direction: Direction,
    ) -> Result<InterfaceCounters> {
        Ok(self.kernel.interface_counters(index, direction)?)
    }

    /// The state of a source.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn bucket(&self, source: Source) -> Result<Option<Bucket>> {
        Ok(self.kernel.bucket(source)?)
    }

    /// Counters of a rule, by its number.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn rule_counters(&self, number: u32) -> Result<RuleCounters> {
        Ok(self.kernel.rule_counters(number)?)
    }

    /// The rules in force.
    pub fn installed(&self) -> &Installed {
        self.kernel.installed()
    }

    /// The data path itself.
    pub fn kernel(&mut self) -> &mut Kernel {
        &mut self.kernel
    }
}

/// Changes the rules of a [`Program`] that runs, whose clock stands still.
pub struct Changer {
    kernel: Kernel,
    now: Ticks,
}

impl Changer {
    /// As [`Program::apply`].
    ///
    /// # Errors
    ///
    /// When the rule set is wrong or the kernel refuses.
    pub fn apply(&mut self, set: &RuleSet) -> Result<Plan> {
        apply(&mut self.kernel, set, &environment(None), self.now)
    }
}

/// The rules of a file.
///
/// # Errors
///
/// When the file is wrong.
pub fn rule_set(yaml: &str) -> Result<RuleSet> {
    Ok(RuleFile::parse("test.yaml", yaml.as_bytes(), MAX_FRAME)?.rules)
}

/// Number of nodes that share limits with the one under test.
pub const NODES: u64 = 3;

/// The machine as test runs see it: every frame comes in by the loopback interface.
fn environment(cluster: Option<u64>) -> Environment<'static> {
    fn index(name: &str) -> Option<u32> {
        match name {
            "lo" => Some(1),
            "other" => Some(2),
            _ => None,
        }
    }
    Environment {
        max_frame: MAX_FRAME,
        interface_index: &index,
        cpus: 1,
        cluster,
        in_at_tc: Some(false),
    }
}

fn plan(kernel: &Kernel, set: &RuleSet, machine: &Environment<'_>) -> Result<Plan> {
    let generation = kernel.generation() + 1;
    Ok(kernel.installed().plan(set, generation, kernel.capacity(), machine)?)
}

fn apply(
    kernel: &mut Kernel,
    set: &RuleSet,
    machine: &Environment<'_>,
    now: Ticks,
) -> Result<Plan> {
    let plan = plan(kernel, set, machine)?;
    kernel.commit(plan.clone(), |_| now)?;
    Ok(plan)
}

/// Plans and commits a rule set on any data path.
///
/// # Errors
///
/// When the rule set is wrong or the kernel refuses.
pub fn commit(kernel: &mut Kernel, set: &RuleSet) -> Result<()> {
    let now = kernel.now();
    apply(kernel, set, &environment(None), now).map(drop)
}

/// That of the test program.
const TEST: Objects = Objects { xdp: || aligned(OBJECT), tc: || aligned(TC_OBJECT) };

fn open(options: &Options) -> Result<Kernel> {
    Ok(Kernel::open(TEST, options)?)
}

/// Opens the program again, on the pins of one that is there.
fn open_again(kernel: &Kernel, options: &Options) -> Result<Kernel> {
    Ok(kernel.open_again(TEST, options)?)
}

/// An object file, where the ELF reader takes it.
pub fn aligned(object: &[u8]) -> Vec<u8> {
    // The allocator aligns to 8 bytes at least, which is what the ELF reader asks for.
    object.to_vec()
}
