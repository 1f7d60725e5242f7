//! A program in a terminal of its own (a pseudoterminal), with somebody who types and looks.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use vt100::Parser;

use crate::netns::Netns;

/// How long something may take to be seen.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the screen is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The program at work. Dropping it ends it.
pub struct Session {
    child: Child,
    ours: File,
    /// The program's end, to see its modes.
    theirs: OwnedFd,
    parser: Arc<Mutex<Parser>>,
    reader: Option<JoinHandle<()>>,
    /// Tells the reader to end.
    closed: Arc<AtomicBool>,
}

impl Session {
    /// Starts a command inside `netns` on a terminal of so many rows and columns.
    ///
    /// # Errors
    ///
    /// When there is no terminal to be had, or the command cannot be started.
    pub fn start(
        netns: &Arc<Netns>,
        command: &mut Command,
        rows: u16,
        columns: u16,
    ) -> Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(name, flags, Mode::empty())?;
        tcsetwinsize(&ours, size(rows, columns))?;
        command.env("TERM", "xterm-256color");
        command
            .stdin(Stdio::from(theirs.try_clone()?))
            .stdout(Stdio::from(theirs.try_clone()?))
            .stderr(Stdio::from(theirs.try_clone()?));
        let child = netns.spawn(command)?;
        // The command has copies of the descriptors, which would keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let ours = File::from(ours);
        let parser = Arc::new(Mutex::new(Parser::new(some(rows), some(columns), 0)));
        let closed = Arc::new(AtomicBool::new(false));
        let reader = {
            let (mut ours, parser) = (ours.try_clone()?, Arc::clone(&parser));
            let closed = Arc::clone(&closed);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while !closed.load(Ordering::Relaxed) {
                    if !is_readable(&ours) {
                        continue;
                    }
                    // The other end is gone when there is an error.
                    let Ok(count @ 1..) = ours.read(&mut bytes) else { break };
                    let read = bytes.get(..count).unwrap_or_default();
                    parser.lock().unwrap_or_else(PoisonError::into_inner).process(read);
                }
            })
        };
        Ok(Self { child, ours, theirs, parser, reader: Some(reader), closed })
    }

    /// Closes the terminal: the kernel hangs it up, the one that has it open.
    ///
    /// # Errors
    ///
    /// When nothing else can be opened in its place.
    pub fn hang_up(&mut self) -> Result<()> {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            ensure!(reader.join().is_ok(), "the terminal's reader panicked");
        }
        drop(std::mem::replace(&mut self.ours, File::open("/dev/null")?));
        Ok(())
    }

    /// The program's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types keys.
    ///
    /// # Errors
    ///
    /// When the terminal takes nothing.
    pub fn keys(&mut self, keys: &str) -> Result<()> {
        self.ours.write_all(keys.as_bytes()).context("cannot type")
    }

    /// Text of the screen, line by line.
    pub fn text(&self) -> String {
        self.with_screen(vt100::Screen::contents)
    }

    /// Passes the screen as it is now to a function.
    pub fn with_screen<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen())
    }

    /// Waits until the screen is as wanted; returns its text.
    ///
    /// # Errors
    ///
    /// When it is not within half a minute; with what is on it.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if wanted(&text) {
                return Ok(text);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}) before there was {what}:\n{}", self.text());
            }
            ensure!(Instant::now() < deadline, "there is no {what}:\n{text}");
            thread::sleep(LOOK);
        }
    }

    /// Gives the terminal another size.
    ///
    /// # Errors
    ///
    /// When the program has ended.
    pub fn resize(&mut self, rows: u16, columns: u16) -> Result<()> {
        self.parser
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .screen_mut()
            .set_size(some(rows), some(columns));
        tcsetwinsize(&self.ours, size(rows, columns))?;
        // The terminal is not the program's controlling one, so the kernel does not send the
        // signal.
        self.signal(Signal::WINCH)
    }

    /// Sends the program a signal.
    ///
    /// # Errors
    ///
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("not a process id")?, signal).context("cannot send a signal")
    }

    /// The modes of the terminal.
    ///
    /// # Errors
    ///
    /// When the system does not report it.
    pub fn modes(&self) -> Result<Termios> {
        Ok(tcgetattr(&self.theirs)?)
    }

    /// True if the program still runs.
    ///
    /// # Errors
    ///
    /// When the system does not report it.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    ///
    /// When it does not within half a minute.
    pub fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                // The last output of the program is on its way.
                thread::sleep(5 * LOOK);
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // An error means that it has ended.
            let _ended = self.child.kill().and_then(|()| self.child.wait());
        }
        // The reader ends with the last handle on the other end, which is ours.
        drop(self.reader.take());
    }
}

/// Waits a little for something to read, which may be that there will be nothing more.
fn is_readable(file: &File) -> bool {
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&look)).is_ok_and(|ready| ready > 0)
}

/// A terminal has at least one of each.
fn some(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap_or(NonZero::<u16>::MIN)
}

const fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
