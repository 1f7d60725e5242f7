//! Sending over the cable of a testbed, and what both of its ends count meanwhile.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::generator::{LiveFrames, Load, Sent};
use crate::cpu;
use crate::testbed::Testbed;
use crate::veth::{RECEIVER, SENDER};

/// Real-time priority of what ends a step: before what sends, or it would not end in time.
pub const WATCHING: i32 = 2;

/// Real-time priority of what sends.
pub const SENDING: i32 = 1;

/// How long frames are under way on an idle machine.
pub const UNDER_WAY: Duration = Duration::from_millis(50);

/// Counts of both ends of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Frames that the receiving end took.
    pub received: u64,
    /// Frames that its queue had no room for.
    pub lost: u64,
}

impl Link {
    /// Since the interfaces were made.
    ///
    /// # Errors
    ///
    /// When `ip` does not report it.
    pub fn read(bed: &Testbed) -> Result<Self> {
        let [_, received] = bed.receiver.carried(RECEIVER.interface)?;
        Ok(Self { received, lost: bed.lost_on_link()? })
    }
}

/// Sends a load, to its end. Nothing at the machine's usual priority can be relied on to end it in
/// time.
///
/// # Errors
///
/// As [`LiveFrames::start`] and [`LiveFrames::finish`].
pub fn send(bed: &Testbed, load: &Load) -> Result<Sent> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cpu::real_time(None, WATCHING)?;
            LiveFrames::start(&bed.sender, SENDER.interface, load)?.finish()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets something be sent; says what it says that it sent, and what the ends counted since. These
/// must have seen all of it, and nothing else.
///
/// # Errors
///
/// When they have not, or sending failed.
pub fn measured(bed: &Testbed, work: impl FnOnce() -> Result<Sent>) -> Result<(Sent, Link)> {
    let before = Link::read(bed)?;
    let sent = work()?;
    let all = sent.frames + sent.regular.iter().sum::<u64>();
    thread::sleep(UNDER_WAY);
    // A busy machine takes longer.
    bed.wait_until_met(before.received + before.lost + all)?;
    let after = Link::read(bed)?;
    let received = after.received - before.received;
    let link = Link { received, lost: after.lost - before.lost };
    let seen = received + link.lost;
    ensure!(
        seen == all,
        "{all} frames were sent, and the link has seen {seen}, {} lost",
        link.lost
    );
    Ok((sent, link))
}
