//! Loading or adopting the data path, and what is set in it.

mod in_daemon;
mod rule_set;
mod state;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use aya::Ebpf;
use aya::programs::Xdp;
use limiter_common::header::Direction;
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{ABI_VERSION, Control, EntryKind, EntryTable, map};
use limiter_model::Framing;

use super::capture::CaptureMaps;
use super::events::EventMaps;
use super::hook::Hook;
use super::load::{Objects, load, warn_of_size};
use super::log::KernelLog;
use super::maps::{PinnedControl, capacity, of_object};
use super::on_trial::{self, Trial};
use super::open_maps::{HasMaps, OpenMaps};
use super::own_links;
use super::pin_lock::PinLock;
use super::predecessor::Predecessor;
use super::programs::{self, HookProgram};
use super::retry::Retries;
use super::source_store::SourceStore;
use super::then::ThenMap;
use super::{
    Datapath as _, DatapathError, LeftBehind, ModeChoice, Options, PinDir, Wanted, features,
};

/// A loaded program and its pinned maps.
pub struct Kernel {
    objects: Objects,
    pub(super) options: Options,
    pub(super) ebpf: Ebpf,
    /// The programs for tc that are loaded, by direction.
    tc: BTreeMap<Direction, Ebpf>,
    /// Held as long as this lives.
    lock: Arc<PinLock>,
    pub(super) held: OpenMaps,
    /// The interfaces that it was asked to limit.
    pub(super) wanted: Wanted,
    /// Hooks of interfaces that are wanted and could not be attached to.
    pub(super) retries: Retries,
    pub(super) events: EventMaps,
    pub(super) captures: CaptureMaps,
    pub(super) then: ThenMap,
    pub(super) trial: Option<Trial>,
    /// Maps of another layout that these are to replace.
    pub(super) predecessor: Option<Box<Predecessor>>,
    pub(super) choice: ModeChoice,
    /// Packets of a flow that come in and may wait, if rules let any wait.
    pub(super) held_back: Option<u64>,
    /// Members of bonds that the program knows, and their bonds, by their indices.
    pub(super) members: Vec<(u32, u32)>,
    logging: bool,
    /// True if this opening made the maps.
    is_new: bool,
    /// True if the maps are new or unused, so that a failed start may remove them.
    pub(super) fresh: bool,
}

/// Finding in the place of the maps.
enum Found {
    Ours,
    /// No maps that anybody uses.
    None,
    Others(Box<Predecessor>),
}

impl Kernel {
    /// Loads the program, with new maps or with the pinned ones of the same ABI. Nothing is
    /// attached and no rule changes. Beside maps of another ABI it makes new ones, for which the
    /// program is attached by [`Datapath::take_over`](super::Datapath::take_over).
    pub fn open(objects: Objects, options: &Options) -> Result<Self, DatapathError> {
        if (objects.xdp)().is_empty() {
            return Err(DatapathError::NoObject);
        }
        features::check()?;
        let pins = PinDir::new(&options.pin_dir);
        // Before anything of it is looked at: what another daemon is making is no rest of a start
        // that was cut short.
        let lock = Arc::new(PinLock::take(&pins)?);
        let mut made = None;
        let found = pins.has_parts();
        pins.create_parts()
            // Left by a change of the layout that was cut short.
            .and_then(|()| pins.remove_next())
            .and_then(|()| Self::open_at(objects, options, &pins, &lock, &mut made))
            .inspect_err(|_| {
                if let Some(made) = made {
                    // Nothing is attached to these maps, and nobody can use them.
                    if let Err(error) = made.remove_maps() {
                        tracing::warn!(%error, "half-made maps are left: the next start removes them");
                    }
                }
                pins.remove_if_empty();
            })
            .map_err(|error| if found { error.on_found_pins(&options.pin_dir) } else { error })
    }

    /// A second handle on the same maps, under the same lock: a restart as the maps see it, and
    /// changes beside packets that are run by this one.
    pub fn open_again(&self, objects: Objects, options: &Options) -> Result<Self, DatapathError> {
        Self::open_at(objects, options, &self.held.pins, &self.lock, &mut None)
    }

    /// Says in `made` where new maps are.
    fn open_at(
        objects: Objects,
        options: &Options,
        pins: &PinDir,
        lock: &Arc<PinLock>,
        made: &mut Option<PinDir>,
    ) -> Result<Self, DatapathError> {
        let (pins, predecessor) = match Found::at(pins)? {
            Found::Ours => (pins.clone(), None),
            Found::None => {
                pins.remove_maps()?;
                (made.insert(pins.clone()).clone(), None)
            }
            Found::Others(predecessor) => {
                let next = made.insert(pins.next());
                next.create_parts()?;
                (next.clone(), Some(predecessor))
            }
        };
        let (pins, is_new) = (&pins, made.is_some());
        let source_store =
            if is_new { SourceStore::new(options)? } else { SourceStore::adopted(pins)? };
        let mut ebpf = load(objects, Hook::Xdp, options, &source_store, pins)?;
        let mut of_object = of_object(&mut ebpf);
        let mut held = OpenMaps::take(&mut of_object, pins, source_store)?;
        let events = EventMaps::take(&mut of_object)?;
        let captures = CaptureMaps::take(&mut of_object)?;
        let mut then = ThenMap::take(&mut of_object)?;
        drop(of_object);
        let max_keys = capacity(pins, map::KEYED)?;
        held.entries.begin(&source_store, max_keys)?;
        programs::loaded::<Xdp>(&mut ebpf, Framing::Ethernet)?;
        // Before a packet could pass without it. What the kernel lets be called depends on the
        // program that was loaded with the array.
        if let Some(pin) = &options.then {
            then.set(pin)?;
        }
        let in_force = held.maps.control(Control::Generation)?;
        let generation = on_trial::settle(&mut held.maps, in_force)?;
        let again = held.adopt(generation)?;
        let fresh = is_new || held.installed.is_empty() && !pins.has_links()?;
        held.maps.set_limits(&again.limits)?;
        held.tables.set_records(&again.records)?;
        held.lists.settle()?;
        if let Some(before) = &predecessor {
            before.carry_lists(&mut held.lists)?;
        }
        held.maps.set_control(Control::Lists, held.lists.word())?;
        // A daemon that is gone reads no packets any more.
        held.maps.set_control(Control::CaptureEnd, 0)?;
        // Those of an earlier start may be others by now.
        held.maps.set_members(&[])?;
        // The last step: from here on a restart adopts.
        held.maps.set_control(Control::Abi, ABI_VERSION)?;
        warn_of_size("--max-keys", options.max_keys, max_keys);
        warn_of_size("--max-sources", options.max_sources, source_store.sources);
        warn_of_size("--max-rules", options.max_rules, held.maps.capacity());
        Ok(Self {
            objects,
            options: options.clone(),
            ebpf,
            tc: BTreeMap::new(),
            lock: Arc::clone(lock),
            held,
            wanted: Wanted::default(),
            retries: Retries::default(),
            events,
            captures,
            then,
            trial: None,
            predecessor,
            choice: ModeChoice::Native,
            held_back: None,
            members: Vec::new(),
            logging: options.kernel_log > 0,
            is_new,
            fresh,
        })
    }

    /// Interfaces that an earlier start attached and this one was not asked to. Pins of interfaces
    /// that are gone leave. Of an interface that was asked for, other hooks are not among them:
    /// they are to be ended by [`Datapath::take_over`](super::Datapath::take_over).
    pub fn left_behind(&self) -> Result<Vec<LeftBehind>, DatapathError> {
        own_links::left_behind(&self.held.pins, &self.held.attachments)
    }

    /// Ends the links of earlier starts at hooks that this start was not asked for, of the
    /// interfaces that it was asked for: a packet that meets two of them is charged twice. What
    /// replaces them is in force by now.
    pub(super) fn end_other_hooks(&self) -> Result<(), DatapathError> {
        own_links::end_other_hooks(&self.held.pins, &self.held.attachments)
    }

    /// Fails without its pins, before something is pinned: the directory may be another daemon's by
    /// now.
    pub(super) fn check_pinned(&self) -> Result<(), DatapathError> {
        if self.is_pinned() {
            return Ok(());
        }
        Err(DatapathError::PinsGone(self.held.pins.path().to_owned()))
    }

    /// Changes the settings of a table of entries. The size stays, and so do the lines of sources
    /// until the program is loaded anew.
    pub fn set_entry_table(
        &mut self,
        kind: EntryKind,
        entry_table: EntryTable,
    ) -> Result<(), DatapathError> {
        self.held.entries.set_entry_table(kind, entry_table)
    }

    /// Sets where the windows of the wall clock begin.
    pub fn set_wall_offset(&mut self, offset: WallOffset) -> Result<(), DatapathError> {
        self.held.maps.set_control(Control::WallOffset, offset.nanos())
    }

    /// Says from when on the daemon counts as lost, for rules that then only count. Later than 0.
    pub fn set_daemon_lost(&mut self, from: Ticks) -> Result<(), DatapathError> {
        self.held.maps.set_control(Control::DaemonLost, from.get())
    }

    /// The program's own log, once; `None` when the level is off.
    pub fn take_log(&mut self) -> Option<KernelLog> {
        if self.logging { KernelLog::take(&mut self.ebpf) } else { None }
    }

    /// The kernel's id of the program for such frames at a hook, which is loaded first if it is not
    /// yet.
    pub fn program_id(&mut self, hook: Hook, framing: Framing) -> Result<u32, DatapathError> {
        let id = self.program(hook, framing)?.id();
        id.map_err(|error| DatapathError::Verify(Box::new(error)))
    }

    /// The program for such frames at a hook, loaded if it was not yet.
    pub(super) fn program(
        &mut self,
        hook: Hook,
        framing: Framing,
    ) -> Result<HookProgram<'_>, DatapathError> {
        let (Hook::Tc(direction), Some(place)) = (hook, hook.tc()) else {
            return programs::loaded(&mut self.ebpf, framing).map(HookProgram::Xdp);
        };
        let ebpf = match self.tc.entry(direction) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let (store, pins) = (&self.held.source_store, &self.held.pins);
                entry.insert(load(self.objects, hook, &self.options, store, pins)?)
            }
        };
        programs::loaded(ebpf, framing).map(|program| HookProgram::Tc(program, place))
    }
}

impl HasMaps for Kernel {
    fn held(&self) -> &OpenMaps {
        &self.held
    }
}

impl Found {
    fn at(pins: &PinDir) -> Result<Self, DatapathError> {
        let found =
            PinnedControl::open(pins).and_then(|control| Ok((control.get(Control::Abi)?, control)));
        match found {
            Ok((ABI_VERSION, _)) => Ok(Self::Ours),
            // A start that was cut short: nothing is attached to these maps yet.
            Ok((0, _)) | Err(_) if !pins.has_links()? => Ok(Self::None),
            Ok((abi, control)) => Ok(Self::Others(Box::new(Predecessor::open(pins, abi, control)))),
            Err(error) => Err(error),
        }
    }
}
