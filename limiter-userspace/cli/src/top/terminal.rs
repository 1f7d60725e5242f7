//! The terminal while it is ours. It is restored after an error, a panic or a signal, too. When it
//! is gone, the program ends.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossterm::cursor::Show;
use crossterm::terminal::disable_raw_mode;
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::shell::hangup;

/// Time that the view may take to end by itself after a signal.
const GRACE: Duration = Duration::from_millis(400);

/// Time that the terminal may take to be given back: one that is stopped takes nothing.
const LAST: Duration = Duration::from_millis(200);

/// The whole terminal, in raw mode, on its other screen.
pub(super) struct Terminal {
    /// Never dropped: that would write to standard error if the cursor cannot be shown, and panic
    /// where standard error is the terminal that is gone. The cursor is shown here.
    screen: ManuallyDrop<DefaultTerminal>,
    end: Arc<AtomicBool>,
    open: bool,
}

impl Terminal {
    /// Takes the terminal. A panic gives it back before it is reported.
    pub(super) fn open() -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&end))?;
        }
        let reported = Arc::clone(&end);
        let watcher = thread::Builder::new().name("terminal".to_owned());
        match ratatui::try_init().and_then(|screen| {
            watcher.spawn(move || watch(&reported))?;
            Ok(screen)
        }) {
            Ok(screen) => Ok(Self { screen: ManuallyDrop::new(screen), end, open: true }),
            Err(error) => {
                // The start may have come half the way.
                ratatui::try_restore().unwrap_or_default();
                Err(error)
            }
        }
    }

    /// True if a signal came that ends programs.
    pub(super) fn is_asked_to_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.screen.draw(draw).map(drop)
    }

    pub(super) fn close(mut self) -> io::Result<()> {
        self.open = false;
        self.screen.show_cursor()?;
        ratatui::try_restore()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.open {
            // Nobody is left to be notified.
            self.screen.show_cursor().and_then(|()| ratatui::try_restore()).unwrap_or_default();
        }
    }
}

/// Looks for a while whether the terminal is gone.
pub(super) fn is_gone() -> bool {
    hangup::is_gone(&[io::stdin().as_fd(), io::stdout().as_fd()])
}

/// Ends the program when the terminal is gone, or when a signal has come and it does not end by
/// itself. Its other thread may be in a read that does not come back: of a terminal that is gone,
/// of the second half of a key, of a daemon's answer.
fn watch(reported: &AtomicBool) {
    while !is_gone() {
        if reported.load(Ordering::Relaxed) {
            thread::sleep(GRACE);
            break;
        }
    }
    // First, because it waits for nothing. Nobody is left to be notified of an error.
    disable_raw_mode().unwrap_or_default();
    let restoring = thread::Builder::new().spawn(|| {
        crossterm::execute!(io::stdout(), Show)
            .and_then(|()| ratatui::try_restore())
            .unwrap_or_default();
    });
    if let Ok(restoring) = restoring {
        const PARTS: u32 = 20;
        for _part in 0..PARTS {
            if restoring.is_finished() {
                break;
            }
            thread::sleep(LAST / PARTS);
        }
    }
    hangup::end()
}
