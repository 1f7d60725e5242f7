//! The program in the kernel and the model on the host under the same rules: every frame goes
//! through both, and must leave both alike.

use anyhow::{Context as _, Result, ensure};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Ask, Ban, KeyLeases, Lease, ListEntry, TableKey};
use limiter_datapath::{Observed as _, Way};
use limiter_model::Model;
use limiter_rules::{Environment, RuleFile, Selector};

use crate::packet::MAX_FRAME;
use crate::program::{NODES, Program};

/// State in which a frame left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Reason that the frame was counted under.
    pub reason: Reason,
    /// Way that the frame went.
    pub way: Way,
    /// Bytes of the frame as it left.
    pub frame: Vec<u8>,
}

/// The XDP program and the model, which get the same packets.
pub struct Pair {
    /// The program in the kernel.
    pub program: Program,
    /// The decision over ordinary collections.
    pub model: Model,
    now: Ticks,
}

impl Pair {
    /// Both under the rules in `rules` (YAML text), a second after boot.
    ///
    /// # Errors
    ///
    /// As [`Program::load`] and [`Pair::apply`].
    pub fn load(rules: &str) -> Result<Self> {
        Self::with_room(rules, 1024)
    }

    /// As [`Pair::load`], with room for `max_sources` sources and keys in the kernel. The model has
    /// room for all.
    ///
    /// # Errors
    ///
    /// As [`Pair::load`].
    pub fn with_room(rules: &str, max_sources: u32) -> Result<Self> {
        let program = Program::load(max_sources, 64)?;
        let mut pair = Self { program, model: Model::new(), now: Ticks::ZERO };
        pair.apply(rules)?;
        pair.at(Ticks::from_nanos(1_000_000_000))?;
        Ok(pair)
    }

    /// Changes the rules, on a machine with the interface `lo` and one CPU.
    ///
    /// # Errors
    ///
    /// When the rules are wrong or the kernel refuses.
    pub fn apply(&mut self, rules: &str) -> Result<()> {
        let set = RuleFile::parse("r.yaml", rules.as_bytes(), MAX_FRAME)?.rules;
        let loopback = |name: &str| (name == "lo").then_some(1);
        let machine = Environment {
            max_frame: MAX_FRAME,
            interface_index: &loopback,
            cpus: 1,
            cluster: Some(NODES),
            in_at_tc: Some(false),
        };
        let plan = self.program.apply_on(&set, &machine)?;
        self.model.commit(plan, self.now);
        Ok(())
    }

    /// Sets the time; whole nanoseconds.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn at(&mut self, now: Ticks) -> Result<()> {
        self.now = now;
        self.program.set_time(now)
    }

    /// The time.
    pub fn now(&self) -> Ticks {
        self.now
    }

    /// Lets `nanos` go by.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn after(&mut self, nanos: u64) -> Result<()> {
        self.at(Ticks::from_nanos(self.now.as_nanos() + nanos))
    }

    /// Grants a lease in both: units beside those that were used, until a time.
    ///
    /// # Errors
    ///
    /// When there is no such lease, or both do not show the same used units.
    pub fn grant(&mut self, lease: u32, units: u64, until: Ticks) -> Result<()> {
        let used = self.lease(lease)?.used;
        let model = self.model.lease(lease);
        for lease in [self.program.lease(lease)?, &*model] {
            lease.grant(used + units, until);
        }
        Ok(())
    }

    /// A lease as it stands in both.
    ///
    /// # Errors
    ///
    /// When there is no such lease, or both do not show the same.
    pub fn lease(&mut self, lease: u32) -> Result<Lease> {
        let model = self.model.lease(lease).read();
        let program = self.program.lease(lease)?.read();
        ensure!(program == model, "{program:?}, the model {model:?}");
        Ok(program)
    }

    /// Takes the keys that have asked for leases in both since the last time.
    ///
    /// # Errors
    ///
    /// When both do not report the same.
    pub fn take_asks(&self) -> Result<Vec<Ask>> {
        let (program, model) = (self.program.leases()?.take_asks(), self.model.take_asks());
        ensure!(program == model, "{program:?}, the model {model:?}");
        Ok(program)
    }

    /// Gives a key leases in both, or takes them away.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set_leased(&self, key: &TableKey, leases: Option<KeyLeases>) -> Result<()> {
        self.model.set_leased(key, leases);
        Ok(self.program.leases()?.set_leased(key, leases)?)
    }

    /// Puts a prefix on a list of both.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<()> {
        self.model.list(selector, entry);
        self.program.list(selector, entry)
    }

    /// Sends a frame through both.
    ///
    /// # Errors
    ///
    /// When they do not agree on the reason, on the way, on any byte or on any ban.
    pub fn send(&mut self, frame: &[u8]) -> Result<Sent> {
        let before = self.program.reasons()?;
        let (way, out) = self.program.send(frame)?;
        let after = self.program.reasons()?;
        let mut moved =
            Reason::ALL.into_iter().zip(before.iter().zip(&after)).filter(|(_, (a, b))| a != b);
        let (reason, _) = moved.next().context("no counter moved")?;
        ensure!(moved.next().is_none(), "two counters moved");
        let outcome = self.model.judge(frame, self.now);
        let model = (outcome.reason, self.model.way());
        ensure!(model == (reason, Some(way)), "{reason:?} {way:?}, the model {model:?}");
        // A dropped frame may be half rewritten: nobody sees it.
        if way != Way::Drop {
            ensure!(out == self.model.frame(), "{out:02x?}\nmodel: {:02x?}", self.model.frame());
        }
        let bans = self.bans()?;
        let mut of_model = self.model.bans();
        of_model.sort_unstable_by_key(|(source, _)| *source);
        ensure!(bans == of_model, "{bans:?}, the model {of_model:?}");
        Ok(Sent { reason, way, frame: out })
    }

    /// The reasons of a frame sent `count` times.
    ///
    /// # Errors
    ///
    /// As [`Pair::send`].
    pub fn reasons_of(&mut self, frame: &[u8], count: usize) -> Result<Vec<Reason>> {
        (0..count).map(|_| Ok(self.send(frame)?.reason)).collect()
    }

    /// Sources on record, in order.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn bans(&mut self) -> Result<Vec<([u8; 16], Ban)>> {
        let mut bans = self.program.kernel().bans()?;
        bans.sort_unstable_by_key(|(source, _)| *source);
        Ok(bans)
    }

    /// When the ban of a source ends or has ended.
    ///
    /// # Errors
    ///
    /// When there is none on record.
    pub fn banned_until(&mut self, source: Source) -> Result<Ticks> {
        let key = source.trie_key();
        let bans = self.bans()?;
        let (_, ban) = bans.iter().find(|(at, _)| *at == key).context("no ban on record")?;
        Ok(Ticks::new(ban.until))
    }
}
