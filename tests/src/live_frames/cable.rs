//! Sending over the cable of a testbed, and what both of its ends count meanwhile.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::generator::{LiveFrames, Load, Sent};
use crate::cpu;
use crate::netns::Netns;
use crate::testbed::Testbed;
use crate::veth::{RECEIVER, SENDER};

/// Real-time priority of what ends a step: before what sends, or it would not end in time.
pub const WATCHING: i32 = 2;

/// Real-time priority of what sends.
pub const SENDING: i32 = 1;

/// How long frames may be under way.
pub const UNDER_WAY: Duration = Duration::from_millis(50);

/// What both ends of the cable have counted.
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
    /// When `ip` does not tell.
    pub fn read(bed: &Testbed) -> Result<Self> {
        let received = packets(&bed.receiver, RECEIVER.interface, "/stats64/rx/packets")?;
        Ok(Self { received, lost: packets(&bed.sender, SENDER.interface, "/stats64/tx/dropped")? })
    }
}

fn packets(netns: &Netns, interface: &str, pointer: &str) -> Result<u64> {
    let link = netns.link(interface)?;
    let count = link.pointer(pointer).and_then(Value::as_u64);
    count.with_context(|| format!("{interface} has no {pointer}"))
}

/// Sends a load, to its end. Nothing at the machine's usual priority can be relied on to end it in time.
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

/// Lets something be sent; says what it says that it sent, and what the ends counted since. These must have seen all
/// of it, and nothing else.
///
/// # Errors
///
/// When they have not, or sending failed.
pub fn measured(bed: &Testbed, work: impl FnOnce() -> Result<Sent>) -> Result<(Sent, Link)> {
    let before = Link::read(bed)?;
    let sent = work()?;
    thread::sleep(UNDER_WAY);
    let after = Link::read(bed)?;
    let received = after.received - before.received;
    let link = Link { received, lost: after.lost - before.lost };
    let seen = received + link.lost;
    let all = sent.frames + sent.regular.iter().sum::<u64>();
    ensure!(
        seen == all,
        "{all} frames were sent, and the link has seen {seen}, {} lost",
        link.lost
    );
    Ok((sent, link))
}
