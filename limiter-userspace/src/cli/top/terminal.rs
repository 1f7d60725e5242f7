//! The terminal while it is ours; it is given back as it was, also after an error, a panic or a signal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The whole terminal, in raw mode, on its other screen.
pub(super) struct Terminal {
    screen: DefaultTerminal,
    end: Arc<AtomicBool>,
    open: bool,
}

impl Terminal {
    /// Takes it. A panic gives it back before it is told.
    pub(super) fn open() -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&end))?;
        }
        match ratatui::try_init() {
            Ok(screen) => Ok(Self { screen, end, open: true }),
            Err(error) => {
                // It may have come half the way.
                ratatui::try_restore().unwrap_or_default();
                Err(error)
            }
        }
    }

    /// Whether a signal came that ends programs.
    pub(super) fn is_told_to_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Draws a frame.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.screen.draw(draw).map(drop)
    }

    /// Gives it back.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.open = false;
        self.screen.show_cursor()?;
        ratatui::try_restore()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.open {
            // Nobody is left to be told.
            self.screen.show_cursor().and_then(|()| ratatui::try_restore()).unwrap_or_default();
        }
    }
}
