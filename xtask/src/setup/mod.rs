//! `cargo xtask setup`, and the same as the first step of the other commands: finds what is needed,
//! installs what is missing where it may, and otherwise names the missing thing and its remedy.

mod apt;
mod choice;
mod facts;
mod linker;
mod os_release;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use self::choice::{Choice, Plan};
use self::facts::Facts;
use crate::failure::Refused;
use crate::privilege::Privilege;
use crate::process;

/// Options of `setup`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only report: exit code 2 and the remedy when something is missing
    #[arg(long)]
    check: bool,
}

/// The programs a command needs beside the toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tools {
    /// None: building.
    None,
    /// Those of the sandbox.
    Run,
    /// Tools of the sandbox, and the store of limits over many nodes.
    Cluster,
    /// Tools of the sandbox, and the proxy that asks about requests.
    Requests,
    /// Tools of the sandbox, the traffic tools of the end-to-end tests, and the limiters that the
    /// bench's tests compare with.
    Test,
    /// Tools that the tests beside real partners call; the partners are unpacked.
    Partners,
    /// Tools of the sandbox, and the limiters that the measurements compare with.
    Peers,
    /// Tools that the kernel tests call on other kernels.
    Vm,
    /// Tools of [`Tools::Vm`], for kernels of another architecture.
    VmCross,
    /// Tools of [`Tools::Vm`], and those that make devices.
    VmDevices,
    /// Tools that make a whole system for an emulated machine, and a package to install there.
    System,
    /// Tools that make packages, for other architectures too.
    Dist,
    /// Tools of [`Tools::Dist`], and those that check packages.
    DistCheck,
    /// Tools of the tests, and those that record captures and have an opinion on them.
    Captures,
}

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tool {
    program: &'static str,
    package: &'static str,
}

const SANDBOX: &[Tool] = &[Tool { program: "ip", package: "iproute2" }];
const TRAFFIC: &[Tool] = &[
    Tool { program: "ping", package: "iputils-ping" },
    Tool { program: "ethtool", package: "ethtool" },
    Tool { program: "iperf3", package: "iperf3" },
    Tool { program: "hping3", package: "hping3" },
    // A client of gRPC, which a long test makes an environment for.
    Tool { program: "python3", package: "python3-venv" },
];
/// For the tests of the unit, and of a daemon that is killed anywhere.
const SERVICE: &[Tool] = &[
    Tool { program: "systemd-analyze", package: "systemd" },
    Tool { program: "strace", package: "strace" },
];
/// The proxy that asks about requests.
const PROXY: &[Tool] = &[Tool { program: "nginx", package: "nginx-light" }];
/// Tools that unpack packages and ask what is in them.
const UNPACK: &[Tool] = &[
    Tool { program: "curl", package: "curl" },
    Tool { program: "pip3", package: "python3-pip" },
    Tool { program: "strip", package: "binutils" },
    // Which docker needs and Debian's package only recommends.
    Tool { program: "iptables", package: "iptables" },
];
/// The store of limits over many nodes.
const STORE: &[Tool] = &[Tool { program: "redis-server", package: "redis-server" }];
/// For the tests of its TLS.
const TLS: &[Tool] = &[Tool { program: "openssl", package: "openssl" }];
/// For the package of Debian, which the tests make, too.
const DEB: &[Tool] = &[Tool { program: "dpkg-shlibdeps", package: "dpkg-dev" }];
/// For the alerts and the queries of the dashboard.
const ALERTS: &[Tool] = &[Tool { program: "promtool", package: "prometheus" }];
/// For the page, as a browser shows it.
const BROWSER: &[Tool] = &[
    Tool { program: "chromium", package: "chromium" },
    Tool { program: "chromedriver", package: "chromium-driver" },
];
const PACKAGES: &[Tool] = &[Tool { program: "rpmbuild", package: "rpm" }];
/// Tools that build and run programs for arm64.
const CROSS: &[Tool] = &[
    Tool { program: "aarch64-linux-gnu-gcc", package: "gcc-aarch64-linux-gnu" },
    // Recommended by it, so not installed with it.
    Tool { program: "aarch64-linux-gnu-gcc", package: "libc6-dev-arm64-cross" },
    Tool { program: "qemu-aarch64-static", package: "qemu-user-static" },
];
const OPINIONS: &[Tool] = &[
    Tool { program: "lintian", package: "lintian" },
    Tool { program: "shellcheck", package: "shellcheck" },
    Tool { program: "skopeo", package: "skopeo" },
    Tool { program: "umoci", package: "umoci" },
];
const SYSTEM: &[Tool] = &[
    Tool { program: "debootstrap", package: "debootstrap" },
    Tool { program: "mke2fs", package: "e2fsprogs" },
];
/// Tools that the tests call in an emulated machine.
const GUEST: &[Tool] = &[Tool { program: "ping", package: "iputils-ping" }];
/// Tools that the tests of devices call.
const DEVICES: &[Tool] = &[
    Tool { program: "ethtool", package: "ethtool" },
    Tool { program: "wg", package: "wireguard-tools" },
];
const PEERS: &[Tool] = &[
    Tool { program: "ethtool", package: "ethtool" },
    Tool { program: "iptables", package: "iptables" },
    Tool { program: "nft", package: "nftables" },
];
/// What cargo builds throttlecrab-server with.
const PROTOC: &[Tool] = &[Tool { program: "protoc", package: "protobuf-compiler" }];
const CAPTURES: &[Tool] = &[
    Tool { program: "tshark", package: "tshark" },
    Tool { program: "scapy", package: "python3-scapy" },
    Tool { program: "dig", package: "bind9-dnsutils" },
];

impl Tools {
    fn missing(self) -> Vec<Tool> {
        let wanted: &[&[Tool]] = match self {
            Self::None => &[],
            Self::Run => &[SANDBOX],
            Self::Cluster => &[SANDBOX, STORE],
            Self::Requests => &[SANDBOX, PROXY],
            Self::Test => {
                &[SANDBOX, TRAFFIC, PROXY, PEERS, SERVICE, STORE, TLS, DEB, ALERTS, BROWSER]
            }
            Self::Partners => &[SANDBOX, GUEST, UNPACK],
            Self::Peers => &[SANDBOX, PEERS, STORE, PROTOC],
            Self::Vm => &[SANDBOX, GUEST],
            Self::VmCross => &[SANDBOX, GUEST, CROSS],
            Self::VmDevices => &[SANDBOX, GUEST, DEVICES],
            Self::System => &[DEB, SYSTEM],
            Self::Dist => &[DEB, PACKAGES, CROSS],
            Self::DistCheck => &[DEB, PACKAGES, CROSS, OPINIONS],
            Self::Captures => &[SANDBOX, TRAFFIC, PROXY, PEERS, SERVICE, CAPTURES],
        };
        let mut missing = Vec::new();
        for tool in wanted.iter().copied().flatten() {
            if !missing.contains(tool) && process::find(tool.program).is_none() {
                missing.push(*tool);
            }
        }
        missing
    }
}

/// The command by itself: everything that `run` and `test` need.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let start = Instant::now();
    let toolchain = if arguments.check {
        let facts = Facts::gather();
        let plan = plan(&facts, Tools::Test)?;
        for note in &facts.notes {
            eprintln!("xtask: {note}");
        }
        match plan {
            Step::Ready(toolchain) => toolchain,
            Step::Install(plan) => {
                return Err(Refused::new(
                    format!("not installed: {plan}"),
                    "run `cargo xtask setup`, which installs it",
                )
                .into());
            }
        }
    } else {
        ensure(Tools::Test)?
    };
    let seconds = start.elapsed().as_secs_f32();
    eprintln!("xtask: set up: BPF toolchain {toolchain}, tools ({seconds:.1} s)");
    Ok(ExitCode::SUCCESS)
}

/// Sees to the toolchain and the tools, and gives the toolchain's name for rustup.
pub fn ensure(tools: Tools) -> Result<String> {
    let facts = Facts::gather();
    let plan = match plan(&facts, tools)? {
        Step::Ready(toolchain) => return Ok(toolchain),
        Step::Install(plan) => plan,
    };
    for note in &facts.notes {
        eprintln!("xtask: {note}");
    }
    plan.may(&facts)?;
    eprintln!("xtask: set-up installs: {plan}");
    plan.carry_out(&facts)?;
    match self::plan(&Facts::gather(), tools)? {
        Step::Ready(toolchain) => Ok(toolchain),
        Step::Install(rest) => Err(Refused::new(
            format!("still missing after the installation: {rest}"),
            "read the output of apt-get and cargo above",
        )
        .into()),
    }
}

/// Reads the lists of Debian's packages again, where this process may.
pub(crate) fn update_package_lists() -> Result<()> {
    apt::update(Privilege::find())
}

pub(crate) fn installed_version(package: &str) -> Option<String> {
    apt::installed(package)
}

/// The version of a package that apt would install, if there is apt and it has one.
pub(crate) fn offered_version(package: &str) -> Option<String> {
    apt::offered(package)
}

/// Result of a plan, toolchain and tools together: one installation, not two.
enum Step {
    Ready(String),
    Install(Plan),
}

fn plan(facts: &Facts, tools: Tools) -> Result<Step> {
    let (ready, mut plan) = match choice::choose(facts) {
        Choice::Use(toolchain) => (Some(toolchain), Plan::default()),
        Choice::Install(plan) => (None, plan),
        Choice::Blocked(refused) => return Err(refused.into()),
    };
    plan.packages.extend(tools.missing().iter().map(|tool| tool.package.to_owned()));
    Ok(match ready {
        Some(toolchain) if plan.is_empty() => Step::Ready(toolchain),
        _ => Step::Install(plan),
    })
}
