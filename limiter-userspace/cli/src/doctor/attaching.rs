//! Programs on an interface, and whether its driver takes ours.

use limiter_common::header::Direction;
use limiter_datapath::machine::{Link, NativeMode};
use limiter_datapath::{DatapathError, Interface, Mode};

use super::finding::Finding;
use super::kinds::{self, Native};

/// Largest MTU of which a frame is in one buffer for sure: a page of 4096 bytes without the room
/// before and behind the frame, less Ethernet with two VLAN tags.
const ONE_BUFFER: u32 = 4096 - 256 - 320 - 22;

/// Owner of the XDP program on an interface.
#[derive(Debug)]
pub(super) enum Owner {
    /// There is no program.
    Nobody,
    /// These pins or the daemon that answers own it, in a mode.
    Ours(Mode),
    /// Somebody else: the error of a start.
    Other(DatapathError),
    /// A program of this number, which this process may not look at.
    Unseen(u32),
}

/// Judges the program that is there. `at_tc` has the directions in which the interface is limited
/// at tc, where somebody else's program is no obstacle.
pub(super) fn program(name: &str, owner: &Owner, at_tc: &[Direction]) -> Finding {
    let check = "other-xdp";
    match owner {
        Owner::Other(error) if !at_tc.is_empty() => {
            let (seen, _) = error.parts();
            Finding::note(check, format!("{seen}: {}", beside(at_tc)))
        }
        Owner::Nobody => Finding::ok(check, "no XDP program is on it"),
        Owner::Ours(_) => Finding::ok(
            check,
            "it is under the limits of these pins, or of the daemon that answers",
        ),
        Owner::Unseen(id) => {
            Finding::unprivileged(check, &format!("whose XDP program (id {id}) is on it"))
        }
        Owner::Other(error) => {
            let finding = Finding::refused(check, error);
            match error {
                DatapathError::Foreign { other: Some(other), .. } => finding
                    .command(format!("limiter detach --pin-dir {}", other.directory.display())),
                // What somebody else runs stays, unless the remedy is read.
                DatapathError::Foreign { .. } if !error.is_of_limiter() => {
                    finding.command(format!("limiter run --iface {name} --hook tc --rules FILE"))
                }
                _ => finding,
            }
        }
    }
    .on(name)
}

/// What an XDP program of somebody else means for limits at tc.
fn beside(at_tc: &[Direction]) -> &'static str {
    if at_tc.contains(&Direction::In) {
        "the limits at tc see what it lets pass, and what it drops they do not count"
    } else {
        "it sees what comes in, and the limits at tc what goes out"
    }
}

/// True if the program runs in generic mode, or could run in no other.
pub(super) fn is_generic(
    owner: &Owner,
    native: &Result<Option<NativeMode>, DatapathError>,
) -> bool {
    match (owner, native) {
        (Owner::Ours(mode), _) => *mode == Mode::Generic,
        (_, Ok(Some(native))) => !native.is_there,
        _ => false,
    }
}

/// Judges whether the driver takes the program itself. Only an interface that was asked for has to.
pub(super) fn native(
    link: &Link,
    owner: &Owner,
    native: &Result<Option<NativeMode>, DatapathError>,
    asked: bool,
    at_tc: &[Direction],
) -> Finding {
    let check = "native-mode";
    let who = driver(link);
    let finding = match (owner, native) {
        (Owner::Nobody | Owner::Other(_) | Owner::Unseen(_), _) if !at_tc.is_empty() => {
            Finding::ok(check, "it is limited at tc, which takes no native XDP")
        }
        (Owner::Nobody, Ok(Some(NativeMode { is_there: true, .. }))) if kinds::forgets(link) => {
            Finding::ok(
                check,
                format!(
                    "{who} forgets a program in native mode when the link is set down, so limiter \
                     chooses generic mode"
                ),
            )
        }
        (Owner::Ours(Mode::Native), _) if kinds::forgets(link) => Finding::warning(
            check,
            format!(
                "{who} forgets a program in native mode when the link is set down: once it is \
                     up again every packet passes, and the kernel still says that the program is \
                     attached"
            ),
        )
        .remedy("limit it in generic mode, with --mode generic, or at tc, with --hook tc"),
        (Owner::Ours(Mode::Native), _) => {
            Finding::ok(check, format!("{who} runs the program itself"))
        }
        (Owner::Ours(Mode::Generic), _) => Finding::note(
            check,
            "it is limited in generic mode: slower, and on virtual interfaces segments of a \
             connection that the sender keeps together count as one packet",
        )
        .remedy("limit bytes, where that matters"),
        (_, Ok(Some(NativeMode { is_there: true, .. }))) => {
            Finding::ok(check, format!("{who} takes native XDP"))
        }
        (_, Ok(Some(_))) => no_native(link, format!("{who} takes no native XDP"), asked),
        (_, Ok(None)) if kinds::native(link) == Some(Native::No) => {
            no_native(link, format!("no kernel has native XDP for {who}"), asked)
        }
        (_, Ok(None)) => Finding::unknown(
            check,
            format!("Linux before 6.3 does not say whether {who} takes native XDP"),
        )
        .remedy("`limiter run` tries; --mode auto allows generic mode where it fails"),
        (_, Err(error)) => Finding::unseen(check, error),
    };
    finding.on(&link.name)
}

/// A device without native mode, and what works on it.
fn no_native(link: &Link, seen: String, asked: bool) -> Finding {
    let check = "native-mode";
    let seen = if asked { Finding::problem(check, seen) } else { Finding::note(check, seen) };
    let remedy = match (link.kind.as_deref(), kinds::native(link)) {
        (Some("bond"), _) => {
            "a bond takes it when each member's driver does, in the modes active-backup, \
             balance-rr, balance-xor and 802.3ad, without the hash policy vlan+srcmac; otherwise \
             allow the slower generic mode with --mode auto"
        }
        (_, Some(_)) => {
            "allow the slower generic mode with --mode auto, or limit it at tc with --hook tc"
        }
        (_, None) => "allow the slower generic mode with --mode auto",
    };
    seen.remedy(remedy)
        .command(format!("limiter run --iface {} --mode auto --rules FILE", link.name))
}

/// Judges whether a frame of the MTU fits.
pub(super) fn mtu(
    interface: &Interface,
    owner: &Owner,
    native: &Result<Option<NativeMode>, DatapathError>,
    at_tc: &[Direction],
) -> Finding {
    let check = "mtu";
    let (name, mtu) = (&interface.name, interface.mtu);
    let takes_buffers = match native {
        Ok(Some(native)) => !native.is_there || native.takes_buffers,
        Ok(None) | Err(_) => false,
    };
    let is_attached = matches!(owner, Owner::Ours(_)) || !at_tc.is_empty();
    if mtu <= ONE_BUFFER || takes_buffers || is_attached {
        return Finding::ok(check, format!("the program gets whole frames of MTU {mtu}")).on(name);
    }
    let seen = format!(
        "a frame of MTU {mtu} is in several buffers, and the driver does not say that it gives \
         those to a program in native mode: it may refuse"
    );
    Finding::warning(check, seen)
        .remedy("allow generic mode with --mode auto, or make the MTU smaller")
        .command(format!("ip link set dev {name} mtu 1500"))
        .on(name)
}

/// Driver of an interface, in words.
fn driver(link: &Link) -> String {
    match link.driver.as_ref().or(link.kind.as_ref()) {
        Some(driver) => format!("its driver, {driver},"),
        None => "its driver".to_owned(),
    }
}
