//! Hang-ups of the other end. A terminal that is closed and a reader that goes away are noticed by
//! the next read or write, which a command that follows may not do for days.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::exit;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Time that one look takes: a wait for nothing else is not woken when a terminal hangs up.
const LOOK: Duration = Duration::from_millis(100);

/// Looks for a while whether the other end of one of these is gone.
pub(crate) fn is_gone(ends: &[BorrowedFd<'_>]) -> bool {
    let mut looked: Vec<PollFd<'_>> =
        ends.iter().map(|end| PollFd::from_borrowed_fd(*end, PollFlags::empty())).collect();
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    loop {
        match poll(&mut looked, Some(&look)) {
            Ok(_) => break,
            // The hang-up itself comes with a signal, and must not hide behind it.
            Err(Errno::INTR) => {}
            Err(_) => {
                // No memory for it: the caller looks again.
                thread::sleep(LOOK);
                return false;
            }
        }
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    looked.iter().any(|end| end.revents().intersects(gone))
}

/// True if a write to standard output failed because nobody reads: a pipe without a reader, or a
/// terminal that is gone. That is no failure.
pub(crate) fn nobody_reads(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe || is_gone(&[io::stdout().as_fd()])
}

/// Ends this process once nobody reads its standard output any more, which is no failure. For
/// commands that only read.
pub(crate) fn end_with_reader() -> io::Result<()> {
    thread::Builder::new().name("reader".to_owned()).spawn(|| {
        let stdout = io::stdout();
        while !is_gone(&[stdout.as_fd()]) {}
        end()
    })?;
    Ok(())
}

/// Ends this process from a thread beside the one that does its work, which may wait for what never
/// comes.
#[expect(clippy::exit, reason = "no other way out of a read that does not return")]
pub(crate) fn end() -> ! {
    exit(0)
}
