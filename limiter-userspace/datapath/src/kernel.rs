//! Loading or adopting the data path, and what is set in it.

pub(crate) mod changes;
mod in_daemon;
pub(crate) mod on_trial;
mod rule_set;
pub(crate) mod trial;

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

use super::hooks::hook::Hook;
use super::hooks::programs;
use super::hooks::programs::HookProgram;
use super::hooks::then::ThenMap;
use super::interfaces::own_links;
use super::interfaces::retry::Retries;
use super::load::{Objects, load, warn_of_size};
use super::log::KernelLog;
use super::maps::capture::CaptureMaps;
use super::maps::events::EventMaps;
use super::maps::open_maps::{HasMaps, OpenMaps};
use super::maps::{PinnedControl, capacity, of_object};
use super::pins::pin_lock::PinLock;
use super::pins::predecessor::Predecessor;
use super::sources::source_store::SourceStore;
use super::{
    Datapath as _, DatapathError, LeaseMemory, LeftBehind, ModeChoice, Options, PinDir, Wanted,
    features,
};
use on_trial::Trial;

/// A loaded program and its pinned maps.
pub struct Kernel {
    objects: Objects,
    pub(super) options: Options,
    pub(super) ebpf: Ebpf,
    /// The programs for tc that are loaded, by direction.
    tc: BTreeMap<Direction, Ebpf>,
    /// Held until this is dropped.
    lock: Arc<PinLock>,
    pub(super) held: OpenMaps,
    /// The interfaces that it was asked to limit.
    pub(super) wanted: Wanted,
    /// Wanted hooks that could not be attached to.
    pub(super) retries: Retries,
    pub(super) events: EventMaps,
    pub(super) captures: CaptureMaps,
    pub(super) then: ThenMap,
    pub(super) trial: Option<Trial>,
    /// Maps of another layout that these maps will replace.
    pub(super) predecessor: Option<Box<Predecessor>>,
    pub(super) choice: ModeChoice,
    /// How many incoming packets of a flow may wait, if a rule lets any wait.
    pub(super) held_back: Option<u64>,
    /// Indices of the bond members that the program knows, each with the index of its bond.
    pub(super) members: Vec<(u32, u32)>,
    logging: bool,
    /// True if this opening made the maps.
    is_new: bool,
    /// True if the maps are new or unused, so that a failed start may remove them.
    pub(super) fresh: bool,
}

/// What is found in the directory of the maps.
enum Found {
    Ours,
    /// No maps in use.
    None,
    Others(Box<Predecessor>),
}

impl Kernel {
    /// Loads the program, with new maps or with pinned ones of the same ABI. Attaches nothing and
    /// changes no rule. Beside maps of another ABI it makes new ones;
    /// [`Datapath::take_over`](super::Datapath::take_over) then attaches the program for them.
    pub fn open(objects: Objects, options: &Options) -> Result<Self, DatapathError> {
        if (objects.xdp)().is_empty() {
            return Err(DatapathError::NoObject);
        }
        features::check()?;
        let pins = PinDir::new(&options.pin_dir);
        // Lock before looking: what another daemon is still making could be mistaken for the
        // remains of an interrupted start.
        let lock = Arc::new(PinLock::take(&pins)?);
        let mut made = None;
        let found = pins.has_parts();
        pins.create_parts()
            // An interrupted change of the layout may have left this.
            .and_then(|()| pins.remove_next())
            .and_then(|()| Self::open_at(objects, options, &pins, &lock, &mut made))
            .inspect_err(|_| {
                if let Some(made) = made {
                    // Nothing is attached to these maps, and nothing can use them.
                    if let Err(error) = made.remove_maps() {
                        tracing::warn!(%error, "half-made maps are left: the next start removes them");
                    }
                }
                pins.remove_if_empty();
            })
            .map_err(|error| if found { error.on_found_pins(&options.pin_dir) } else { error })
    }

    /// A second handle on the same maps, under the same lock. To the maps it looks like a restart,
    /// and it can make changes while this handle processes packets.
    pub fn open_again(&self, objects: Objects, options: &Options) -> Result<Self, DatapathError> {
        Self::open_at(objects, options, &self.held.pins, &self.lock, &mut None)
    }

    /// Sets `made` to the directory of new maps.
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
        // Must come before any packet can pass without it. Which programs the kernel allows in the
        // array depends on the program that was loaded with it.
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
        // The daemon that read captured packets is gone.
        held.maps.set_control(Control::CaptureEnd, 0)?;
        // The members known to an earlier start may have changed.
        held.maps.set_members(&[])?;
        // This comes last: from here on, a restart adopts the maps.
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

    /// Interfaces that an earlier start attached and this one was not asked to. Removes the pins of
    /// interfaces that are gone. Excludes other hooks of interfaces that were asked for:
    /// [`Datapath::take_over`](super::Datapath::take_over) ends those.
    pub fn left_behind(&self) -> Result<Vec<LeftBehind>, DatapathError> {
        own_links::left_behind(&self.held.pins, &self.held.attachments)
    }

    /// Ends the links of earlier starts at hooks that this start was not asked for, on the
    /// interfaces that it was asked for: a packet that meets two of them is charged twice. Their
    /// replacements are already in force.
    pub(super) fn end_other_hooks(&self) -> Result<(), DatapathError> {
        own_links::end_other_hooks(&self.held.pins, &self.held.attachments)
    }

    /// Fails if its pins are gone, before anything is pinned: another daemon may own the directory
    /// now.
    pub(super) fn check_pinned(&self) -> Result<(), DatapathError> {
        if self.is_pinned() {
            return Ok(());
        }
        Err(DatapathError::PinsGone(self.held.pins.path().to_owned()))
    }

    /// Changes the settings of an entry table. The size stays, and the lines of sources stay until
    /// the program is loaded again.
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

    /// Sets the time from which the daemon counts as lost, so that its rules only count. Must be
    /// later than 0.
    pub fn set_daemon_lost(&mut self, from: Ticks) -> Result<(), DatapathError> {
        self.held.maps.set_control(Control::DaemonLost, from.get())
    }

    /// Takes the program's own log; `None` if the level is off, or on a second call.
    pub fn take_log(&mut self) -> Option<KernelLog> {
        if self.logging { KernelLog::take(&mut self.ebpf) } else { None }
    }

    /// The kernel's id of the program for a hook and framing. Loads the program if necessary.
    pub fn program_id(&mut self, hook: Hook, framing: Framing) -> Result<u32, DatapathError> {
        let id = self.program(hook, framing)?.id();
        id.map_err(|error| DatapathError::Verify(Box::new(error)))
    }

    /// The program for a hook and framing. Loads it if necessary.
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

    /// The leases of shared limits.
    pub fn leases(&self) -> Result<&LeaseMemory, DatapathError> {
        Ok(self.held.leases()?)
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
            // An interrupted start: nothing is attached to these maps yet.
            Ok((0, _)) | Err(_) if !pins.has_links()? => Ok(Self::None),
            Ok((abi, control)) => Ok(Self::Others(Box::new(Predecessor::open(pins, abi, control)))),
            Err(error) => Err(error),
        }
    }
}
