//! Errors between user space and the kernel.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;
use limiter_common::wire::ABI_VERSION;
use limiter_text::second_daemon::SECOND_DAEMON;

use super::hooks::hook::is_limiter;
use super::hooks::tc_order::TcOrder;
use super::hooks::then_fault::ThenFault;
use super::interfaces::left_behind::LeftBehind;
use super::pins::other_pins::OtherPins;
use super::remedy::Reported;

/// Every variant names the object and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// The binary has no program in it.
    #[error("this limiter was built without its XDP program: build it with `cargo xtask build`")]
    NoObject,
    /// `CAP_BPF` or `CAP_NET_ADMIN` is missing.
    #[error("not allowed to {action}: run as root, or with CAP_BPF and CAP_NET_ADMIN")]
    NotPermitted {
        /// Action that was tried.
        action: &'static str,
    },
    /// The process lacks the privileges to load or attach.
    #[error("no privilege to limit interfaces: run as root, or with CAP_BPF and CAP_NET_ADMIN")]
    NoPrivilege,
    /// The system does not report the capabilities of this process.
    #[error("cannot read this process's capabilities: {0}: check its sandbox")]
    Capabilities(io::Error),
    /// The kernel lacks a feature that the program needs.
    #[error(
        "this kernel, Linux {release}, lacks {lacking}: run a newer one, or one configured with \
         BPF and XDP"
    )]
    OldKernel {
        /// Release of the kernel, by `uname -r`.
        release: String,
        /// Features that are missing, and the first Linux that has each.
        lacking: String,
    },
    /// The pin directory is on another file system, and mounting failed.
    #[error(
        "{path} is not on a BPF file system ({source}): run `mount -t bpf bpf /sys/fs/bpf`, or \
         name another directory with --pin-dir"
    )]
    NoBpffs {
        /// The directory.
        path: PathBuf,
        /// Why it could not be mounted.
        source: io::Error,
    },
    /// The BPF file system does not allow a dot in a name.
    #[error("{0}: a BPF file system takes no name with a dot: name another --pin-dir")]
    DottedPin(PathBuf),
    /// A file operation failed.
    #[error("{action} {path}: {}", Reported(source))]
    Path {
        /// Action that was tried.
        action: &'static str,
        /// Path of the action.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The object did not load.
    #[error("the XDP program did not load: {}", Reported(.0.as_ref()))]
    Load(#[source] Box<EbpfError>),
    /// The kernel refused the program.
    #[error("the kernel refused the XDP program: {}", Reported(.0.as_ref()))]
    Verify(#[source] Box<ProgramError>),
    /// The kernel gave no random number.
    #[error("no random number from the kernel: {}", Reported(.0))]
    Random(#[source] io::Error),
    /// A map operation failed.
    #[error("map {map}: {}", Reported(source))]
    Map {
        /// Map that could not be used.
        map: &'static str,
        /// Why it failed.
        source: MapError,
    },
    /// The process has no file descriptor left for the map.
    #[error("map {map}: cannot wait for it: {source}: check the limit of open files")]
    Descriptor {
        /// Map that could not be used.
        map: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// No such interface here.
    #[error("there is no interface {0} in this network namespace: {way}", way = names(.0))]
    NoInterface(String),
    /// No interface has this name, but another interface that is limited may be meant.
    #[error(
        "there is no interface {interface} in this network namespace, but {left}: {}",
        way_on(interface, left)
    )]
    Moved {
        /// The name that was asked for.
        interface: String,
        /// The interface that may be meant.
        left: LeftBehind,
    },
    /// Somebody else's XDP program is there.
    #[error(
        "{interface} already runs the XDP program {name:?} (id {id}), which is not ours: remove it \
         first ({}){}",
        removal(name, interface, other.as_ref()),
        beside(name, other.as_ref())
    )]
    Foreign {
        /// Interface that the error is about.
        interface: String,
        /// The program's name, as the kernel has it.
        name: String,
        /// The kernel's id of the program.
        id: u32,
        /// The pins that keep the program there, if it belongs to another limiter and they are
        /// found.
        other: Option<OtherPins>,
    },
    /// Another daemon uses the pin directory.
    #[error(
        "{}: another daemon{} uses this pin directory: {SECOND_DAEMON}", path.display(), pid_text(*pid)
    )]
    PinsInUse {
        /// The directory.
        path: PathBuf,
        /// Process of the other daemon, if visible.
        pid: Option<u32>,
    },
    /// Somebody removed the pins.
    #[error("{0}: the pins are not there any more: start the daemon again")]
    PinsGone(PathBuf),
    /// The driver has no native mode, or not for this MTU.
    #[error(
        "{interface} takes no native XDP ({source}): allow the slower generic mode with --mode auto"
    )]
    NoNative {
        /// Interface that the error is about.
        interface: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Attaching failed for another reason.
    #[error("attaching to {interface}: {}", Reported(source.as_ref()))]
    Attach {
        /// Interface that the error is about.
        interface: String,
        /// Error of the kernel.
        source: Box<ProgramError>,
    },
    /// The kernel made an attachment that ends with the process.
    #[error(
        "{interface}: this kernel makes no XDP link, so the limits would end with the daemon: \
         Linux 5.9 or newer is needed"
    )]
    NoLink {
        /// Interface that the error is about.
        interface: String,
        /// Error of aya for the attachment.
        source: LinkError,
    },
    /// The program beside which limiter's program should be placed is not there.
    #[error(
        "{interface}: --tc-order {order}: no program of that id is at {hook} ({}): give the id of \
         one that is, or first or last",
        programs_there(there)
    )]
    NoSuchPlace {
        /// Interface that the error is about.
        interface: String,
        /// Name of the hook.
        hook: &'static str,
        /// The place that was asked for.
        order: TcOrder,
        /// Ids and names of the programs that are at the hook, in the order in which they run.
        there: Vec<(u32, Option<String>)>,
    },
    /// Filters of clsact can only be placed first.
    #[error(
        "{interface}: --tc-order {order} takes Linux 6.6: before, limiter is a filter of clsact, \
         and the first one: leave --tc-order out"
    )]
    FirstAlone {
        /// Interface that the error is about.
        interface: String,
        /// The place that was asked for.
        order: TcOrder,
    },
    /// The program that should continue with the packets that pass cannot do so.
    #[error("--then {}: {fault}", pin.display())]
    Then {
        /// The pin that was named.
        pin: PathBuf,
        /// The reason.
        fault: ThenFault,
    },
    /// The kernel did not answer about an interface.
    #[error("asking the kernel about {interface}: {}", Reported(source))]
    Netlink {
        /// Interface that the error is about.
        interface: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The interface's frames begin with neither an Ethernet nor an IP header, as far as is known.
    #[error(
        "{interface} is of a kind ({kind}) whose frames limiter cannot read: limit the interface \
         that its packets come in by"
    )]
    Framing {
        /// Interface that the error is about.
        interface: String,
        /// Type of the device: `ARPHRD_...` of `include/uapi/linux/if_arp.h`.
        kind: String,
    },
    /// The device in which incoming packets wait could not be made or removed.
    #[error(
        "the device {name} (ifb with fq), in which packets that come in wait: {}",
        Reported(source)
    )]
    Ifb {
        /// Name of the device.
        name: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel has no fq for the device in which incoming packets wait.
    #[error(
        "the device {name} (ifb with fq), in which packets that come in wait: {}",
        super::netlink::queueing::NO_FQ
    )]
    NoFq {
        /// Name of the device.
        name: String,
    },
    /// A pin could not be made or opened.
    #[error("the pin {path}: {}", Reported(source.as_ref()))]
    Pin {
        /// Path of the pin.
        path: PathBuf,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel refused maps or programs that were pinned before.
    #[error(
        "{source}, or, if somebody has changed the pins in {path}, `limiter detach --pin-dir \
         {path}`, which ends the limits, and start again"
    )]
    FoundPins {
        /// The pin directory.
        path: PathBuf,
        /// Answer of the kernel.
        source: Box<Self>,
    },
    /// There is no rule set on trial.
    #[error("no rule set is on trial: there is nothing to confirm or to take back")]
    NoTrial,
    /// A rule set is on trial.
    #[error("a rule set is on trial: `limiter confirm` or `limiter revert` it first")]
    OnTrial,
    /// The interface to be freed is not limited.
    #[error("{name} is not limited by this limiter: limited are {}", list(limited))]
    NotLimited {
        /// The interface that was named.
        name: String,
        /// Interfaces that are limited.
        limited: Vec<String>,
    },
    /// The pin directory has no maps: limiter does not run there.
    #[error("nothing is pinned under {0}: limiter is not attached (or used another --pin-dir)")]
    NothingPinned(PathBuf),
    /// The maps are another version's.
    #[error(
        "the maps in {path} are of another version (layout {found}; this limiter reads layout \
         {ABI_VERSION}): {}; ask with that version, or start this one, which takes them over",
        in_force(*bypass, limited)
    )]
    OtherLayout {
        /// The pin directory.
        path: PathBuf,
        /// ABI number of the maps.
        found: u64,
        /// True if the bypass lets every packet pass.
        bypass: bool,
        /// Interfaces that the program is on.
        limited: Vec<String>,
    },
    /// A daemon changed the maps during every attempt to read them.
    #[error("a daemon changes the rules in {0} at this moment: try again")]
    Changing(PathBuf),
}

/// The programs at a hook, by id and name.
fn programs_there(there: &[(u32, Option<String>)]) -> String {
    let named = |(id, name): &(u32, Option<String>)| match name {
        Some(name) => format!("{id} ({name})"),
        None => id.to_string(),
    };
    let named: Vec<String> = there.iter().map(named).collect();
    format!("there: {}", list(&named))
}

/// Names with commas between them.
fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl DatapathError {
    /// True if the user can fix it: exit code 2 instead of 1.
    pub fn is_refusal(&self) -> bool {
        if let Self::FoundPins { source, .. } = self {
            return source.is_refusal();
        }
        !matches!(
            self,
            Self::Load(_)
                | Self::Verify(_)
                | Self::Map { .. }
                | Self::Pin { .. }
                | Self::Netlink { .. }
        )
    }

    /// True if the error is about the program of another limiter.
    pub fn is_of_limiter(&self) -> bool {
        matches!(self, Self::Foreign { name, .. } if is_limiter(name))
    }

    /// Splits the text into the problem and the remedy.
    pub fn parts(&self) -> (String, String) {
        let text = self.to_string();
        // The remedy for a foreign program contains colons of its own.
        let parts = match self {
            Self::Foreign { .. } => {
                text.split_once("ours: ").map(|(what, how)| (format!("{what}ours"), how))
            }
            _ => text.rsplit_once(": ").map(|(what, how)| (what.to_owned(), how)),
        };
        parts.map_or_else(|| (text.clone(), String::new()), |(what, how)| (what, how.to_owned()))
    }

    /// Wraps an error of a start on existing pins: the pins themselves may be the cause.
    #[must_use]
    pub(super) fn on_found_pins(self, path: &std::path::Path) -> Self {
        match self {
            Self::Load(_) | Self::Verify(_) | Self::Map { .. } | Self::Pin { .. } => {
                Self::FoundPins { path: path.to_owned(), source: Box::new(self) }
            }
            other => other,
        }
    }

    pub(super) fn map(map: &'static str) -> impl FnOnce(MapError) -> Self {
        move |source| Self::Map { map, source }
    }

    pub(super) fn pin(
        path: impl Into<PathBuf>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Pin { path: path.into(), source: Box::new(source) }
    }

    pub(super) fn path(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Path { action, path: path.into(), source }
    }
}

/// Describes whether limits are in force in maps of any layout.
fn in_force(bypass: bool, limited: &[String]) -> String {
    match (limited, bypass) {
        ([], _) => "no interface is limited by them".to_owned(),
        (_, true) => "the bypass lets every packet pass".to_owned(),
        (limited, false) => format!("their limits are in force on {}", limited.join(", ")),
    }
}

fn pid_text(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// How to remove another program from the interface. `xdp off` fails for a program behind a pinned
/// link, such as a limiter's.
fn removal(name: &str, interface: &str, other: Option<&OtherPins>) -> String {
    match other {
        Some(other) => format!("another limiter: {other}"),
        None if is_limiter(name) => {
            "a limiter of which the pins are not found: `limiter detach --pin-dir THAT`, where \
             THAT is the --pin-dir that it was started with"
                .to_owned()
        }
        // The dispatcher of libxdp, which calls the programs of others.
        None if name == "xdp_dispatcher" => {
            format!("`xdp-loader unload {interface} --all`, with all programs that it calls")
        }
        None => format!(
            "the tool that attached it, or `ip link set dev {interface} xdp off`, which ends what \
             the program does"
        ),
    }
}

/// How to limit an interface that has a program of something other than limiter.
fn beside(name: &str, other: Option<&OtherPins>) -> &'static str {
    if other.is_some() || is_limiter(name) {
        return "";
    }
    ", limit behind it with --hook tc, or pin it, detach it, and have it go on behind limiter with \
     --then PIN"
}

/// The remedy for a missing interface name.
fn names(interface: &str) -> &'static str {
    if interface.contains(',') {
        "give --iface once for each"
    } else if interface.contains('+') || matches!(interface, "any" | "all") {
        "give a pattern with `*` or `?`, or name each one that is meant with an --iface of its own: \
         `ip link` lists them"
    } else {
        "`ip link` lists them"
    }
}

/// The remedy if another interface may be meant.
fn way_on(interface: &str, left: &LeftBehind) -> String {
    if left.here {
        format!("if that is the one, give --iface {}", left.name)
    } else {
        format!(
            "move {interface} back, run the daemon in that namespace, or remove the pin {} to end \
             it",
            left.pin.display()
        )
    }
}
