//! Ctrl-C and similar signals, as a flag that long work looks at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Flag that a signal asked this process to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches SIGINT, SIGTERM and SIGHUP: they set the flag and do nothing else.
    ///
    /// # Errors
    ///
    /// When a handler cannot be installed.
    pub fn watch() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .with_context(|| format!("cannot install a handler for signal {signal}"))?;
        }
        Ok(Self(flag))
    }

    /// Returns true if one of the signals came.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
