//! The running kernel: checks, opening, and the bypass, which needs no daemon.

use std::path::Path;
use std::time::Duration;

use limiter_rules::rate_text::MIN_FULL_FRAME;

use super::interfaces::matching::matching;
use super::pins::pinned;
use super::{
    Backend, Datapath, DatapathError, Hook, Interface, Kernel, ModeChoice, Objects, Observed,
    Options, PinDir, Wanted, capabilities, privileges,
};

/// Interval at which the program's own log is read.
const LOG_INTERVAL: Duration = Duration::from_millis(100);

/// The number of online CPUs, including those that this process may not use.
pub fn cpus() -> u32 {
    // A list of ranges: `0-3,5`. Its last number is the last CPU.
    std::fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|list| list.trim().rsplit(['-', ',']).next()?.parse::<u32>().ok())
        .map_or(1, |last| last.saturating_add(1))
}

/// Error for a missing interface: it may be limited under another name.
pub fn missing(name: String, interfaces: &[String], pin_dir: &Path) -> DatapathError {
    let mut limited = pinned::limited(pin_dir);
    limited.retain(
        |left| if left.here { !interfaces.contains(&left.name) } else { left.name == name },
    );
    // An interface that had this name before comes first.
    limited.sort_by_key(|left| left.was.as_ref() != Some(&name));
    match limited.into_iter().next() {
        Some(left) => DatapathError::Moved { interface: name, left },
        None => DatapathError::NoInterface(name),
    }
}

/// The running kernel, and the program for it.
#[derive(Clone, Copy, Debug)]
pub struct Xdp {
    objects: Objects,
}

impl Xdp {
    /// The kernel, into which these objects will be loaded.
    pub const fn new(objects: Objects) -> Self {
        Self { objects }
    }
}

impl Backend for Xdp {
    fn check(&self, wanted: &Wanted, pin_dir: &Path) -> Result<u64, DatapathError> {
        let mut frame = MIN_FULL_FRAME;
        for interface in &wanted.names {
            let found = Interface::query(interface).map_err(|error| match error {
                DatapathError::NoInterface(name) => missing(name, &wanted.names, pin_dir),
                error => error,
            })?;
            frame = frame.max(found.max_frame());
        }
        for link in matching(wanted)? {
            frame = link.interface.map_or(frame, |found| frame.max(found.max_frame()));
        }
        privileges::held()?.check()?;
        Ok(frame)
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        Interface::query(name).ok().map(|interface| interface.index)
    }

    fn cpus(&self) -> u32 {
        cpus()
    }

    fn open(
        &self,
        options: &Options,
        wanted: &Wanted,
        hooks: &[Hook],
        mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, DatapathError> {
        let found = PinDir::new(&options.pin_dir).has_parts();
        let mut kernel = Kernel::open(self.objects, options)?;
        let attached = if kernel.is_successor() {
            kernel.prepare_succession(wanted, hooks, mode)
        } else {
            kernel.attach_wanted(wanted, hooks, mode)
        };
        let attached = attached.and_then(|()| kernel.left_behind());
        let left_behind = match attached {
            Ok(left_behind) => left_behind,
            Err(error) => {
                if let Err(left) = Box::new(kernel).give_back() {
                    tracing::error!(
                        %left,
                        "what was attached could not be removed again: run `limiter detach`"
                    );
                }
                return Err(if found { error.on_found_pins(&options.pin_dir) } else { error });
            }
        };
        for left in left_behind {
            tracing::warn!("{left}: {}", left.remedy());
        }
        if let Some(mut log) = kernel.take_log() {
            tokio::spawn(async move {
                let mut tick = tokio::time::interval(LOG_INTERVAL);
                loop {
                    tick.tick().await;
                    log.flush();
                }
            });
        }
        Ok(Box::new(kernel))
    }

    fn give_up_privileges(&self) -> std::io::Result<()> {
        capabilities::keep_needed()
    }

    fn read(&self, pin_dir: &Path) -> Result<Box<dyn Observed>, DatapathError> {
        pinned::read(pin_dir)
    }

    fn set_bypass(&self, pin_dir: &Path, engaged: bool) -> Result<(), DatapathError> {
        pinned::set_bypass(pin_dir, engaged)
    }

    fn limited(&self, pin_dir: &Path) -> Vec<String> {
        match pinned::bypass(pin_dir) {
            Ok(false) => {
                let mut names: Vec<_> =
                    pinned::limited(pin_dir).into_iter().map(|link| link.name).collect();
                names.sort();
                names.dedup();
                names
            }
            Ok(true) | Err(_) => Vec::new(),
        }
    }

    fn free(&self, pin_dir: &Path, interface: &str) -> Result<(), DatapathError> {
        pinned::free(pin_dir, interface)
    }

    fn detach(&self, pin_dir: &Path) -> Result<Vec<String>, DatapathError> {
        pinned::detach(pin_dir)
    }
}
