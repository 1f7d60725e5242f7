//! Named network namespaces, as `ip netns` makes them.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{command, names};

/// Directory in which `ip netns` keeps the names.
pub const NAMES_DIR: &str = "/run/netns";

/// A network namespace, removed on drop.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes a namespace named after `tag`, with its loopback up.
    ///
    /// # Errors
    ///
    /// Without root or without `ip`.
    pub fn create(tag: &str) -> Result<Self> {
        let name = names::unique(tag);
        command::run("ip", ["netns", "add", &name])?;
        let netns = Self { name };
        netns.ip(["link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// Name of the namespace, as `ip netns` has it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new(NAMES_DIR).join(&self.name)
    }

    /// Runs `work` on a fresh thread inside the namespace. A panic in it goes on in the caller.
    ///
    /// # Errors
    ///
    /// When the namespace cannot be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.move_in()?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace, for good.
    ///
    /// # Errors
    ///
    /// When the namespace is gone or may not be entered.
    pub fn move_in(&self) -> Result<()> {
        let path = self.path();
        let file = fs::File::open(&path)
            .with_context(|| format!("cannot open the network namespace {}", path.display()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).with_context(
            || format!("cannot enter the network namespace {}: run as root", self.name),
        )
    }

    /// Starts a command inside. Unlike `ip netns exec`, this leaves the mounts as they are, so the
    /// command sees `/sys/fs/bpf`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        // A child is born into the namespace of the thread that starts it.
        self.enter(|| command.spawn().map_err(|error| command::cannot_start(command, &error)))?
    }

    /// Runs a command inside to its end, whatever its exit code.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn output(&self, command: &mut Command) -> Result<Output> {
        self.enter(|| command::output(command))?
    }

    /// Runs a command inside; returns its standard output.
    ///
    /// # Errors
    ///
    /// When it cannot be started or its exit code is not 0.
    pub fn run<S: AsRef<OsStr> + Send>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = S> + Send,
    ) -> Result<String> {
        self.enter(|| command::run(program, args))?
    }

    /// Runs `ip` on the namespace; returns its standard output.
    ///
    /// # Errors
    ///
    /// As [`Netns::run`].
    pub fn ip<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        command::checked(Command::new("ip").args(["-n", &self.name]).args(args))
    }

    /// Sets a variable of the namespace under `/proc/sys/net`, such as
    /// `ipv4/conf/all/rp_filter`.
    ///
    /// # Errors
    ///
    /// When there is no such variable.
    pub fn sysctl(&self, variable: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys/net").join(variable);
        self.enter(|| fs::write(&path, value))?
            .with_context(|| format!("cannot write {value} to {} in {}", path.display(), self.name))
    }

    /// Silences an interface before it is up, so that all its frames are frames that a test sent.
    /// It does not ask for neighbours, so they must be set; it has no link-local address, and joins
    /// only groups that no host reports.
    ///
    /// # Errors
    ///
    /// When there is no such interface.
    pub fn silence(&self, interface: &str) -> Result<()> {
        // Without ARP there are no solicited-node groups either, and so no multicast listener
        // reports: the first of those would come a while after the interface is up, which on a busy
        // machine is when a test counts.
        self.ip(["link", "set", interface, "arp", "off", "addrgenmode", "none"])?;
        for variable in ["accept_ra", "router_solicitations"] {
            self.sysctl(&format!("ipv6/conf/{interface}/{variable}"), "0")?;
        }
        Ok(())
    }

    /// Frames that the interface has sent and received since it was made, in this order.
    ///
    /// # Errors
    ///
    /// When there is no such interface.
    pub fn carried(&self, interface: &str) -> Result<[u64; 2]> {
        let link = self.link(interface)?;
        let count = |pointer| link.pointer(pointer).and_then(serde_json::Value::as_u64);
        let counts = [count("/stats64/tx/packets"), count("/stats64/rx/packets")];
        let [Some(out), Some(into)] = counts else {
            bail!("`ip -statistics link show` counts no packets of {interface}: {link}");
        };
        Ok([out, into])
    }

    /// Output of `ip -json -details -statistics link show dev INTERFACE`.
    ///
    /// # Errors
    ///
    /// When there is no such interface.
    pub fn link(&self, interface: &str) -> Result<serde_json::Value> {
        let text =
            self.ip(["-json", "-details", "-statistics", "link", "show", "dev", interface])?;
        let mut links: Vec<serde_json::Value> =
            serde_json::from_str(&text).context("`ip -json link show`: not JSON")?;
        links.pop().ok_or_else(|| anyhow!("no interface {interface} in {}", self.name))
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Err(error) = command::run("ip", ["netns", "delete", &self.name]) {
            eprintln!("{error:#}: remove it with `ip netns delete {}`", self.name);
        }
    }
}

/// The names of all namespaces on the machine.
///
/// # Errors
///
/// When the directory of names cannot be read.
pub fn all() -> Result<Vec<String>> {
    let entries = match fs::read_dir(NAMES_DIR) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {NAMES_DIR}")),
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()
        .with_context(|| format!("cannot read {NAMES_DIR}"))
}
