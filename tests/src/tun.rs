//! A tun interface, which has no Ethernet headers: what is written to it arrives there. And two of
//! them, or two taps, of which each gets what the other one sends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result};

use crate::netns::Netns;

/// The path of the device that makes them.
const DEVICE: &str = "/dev/net/tun";

/// An end of a tun interface, up and with its address. It goes with this value, and with its
/// namespace.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Makes the interface `name` in a namespace, with an address and its prefix length.
    ///
    /// # Errors
    ///
    /// Without root, or without the kernel's tun driver.
    pub fn create(netns: &Netns, name: &str, address: &str) -> Result<Self> {
        let file = netns.enter(|| open(name, Layer::Three))??;
        netns.silence(name)?;
        netns.ip(["address", "add", address, "dev", name])?;
        netns.ip(["link", "set", name, "up"])?;
        Ok(Self(file))
    }

    /// Lets one packet arrive at the interface.
    ///
    /// # Errors
    ///
    /// When the kernel takes it for no packet.
    pub fn arrive(&mut self, packet: &[u8]) -> Result<()> {
        self.0.write_all(packet).context("writing to the tun interface")
    }
}

/// What the frames of an interface begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// An Ethernet header: a tap.
    Two,
    /// An IP header: a tun.
    Three,
}

impl Layer {
    const fn flag(self) -> libc::c_int {
        match self {
            Self::Two => libc::IFF_TAP,
            Self::Three => libc::IFF_TUN,
        }
    }
}

/// Makes an interface in each of two namespaces, and two threads that carry packets between them
/// until one interface is gone. False where the kernel has no tun driver.
///
/// # Errors
///
/// Without root.
pub fn joined(one: (&Netns, &str), other: (&Netns, &str), layer: Layer) -> Result<bool> {
    if !Path::new(DEVICE).exists() {
        return Ok(false);
    }
    let [near, far] = [one, other].map(|(netns, name)| netns.enter(|| open(name, layer)));
    let (near, far) = (near??, far??);
    carry(near.try_clone()?, far.try_clone()?);
    carry(far, near);
    Ok(true)
}

/// Writes to one interface what the other one sends.
fn carry(mut from: File, mut to: File) {
    thread::spawn(move || {
        let mut packet = vec![0; 64 << 10];
        // An interface that is gone has nothing to read.
        while let Ok(length @ 1..) = from.read(&mut packet) {
            // One that is down takes nothing.
            let _down = to.write_all(&packet[..length]);
        }
    });
}

fn open(name: &str, layer: Layer) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .with_context(|| format!("{DEVICE}: no tun driver in this kernel"))?;
    // SAFETY: all zeros are a value of this C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the terminator.
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(layer.flag() | libc::IFF_NO_PI).context("flags")?;
    // SAFETY: the descriptor is open, and the request is the structure that TUNSETIFF asks for.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if failed != 0 {
        return Err(io::Error::last_os_error())
            .context(format!("cannot make the interface {name}"));
    }
    Ok(file)
}
