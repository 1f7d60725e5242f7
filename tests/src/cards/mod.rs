//! Cards of the machine that runs this, in pairs with a cable between them: `cargo xtask bench
//! cards` has an emulator make them, and names them in a variable.

mod offloads;
mod queues;
mod stream;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

pub use self::offloads::{JOINED, KEPT_TOGETHER, Offload, switched};
pub use self::queues::{is_one, used};
pub use self::stream::{STREAM, streamed};

use crate::command;
use crate::netns::Netns;

/// `DRIVER=ADDRESS,ADDRESS` of each pair: of the card for limiter, and of the other one.
const VARIABLE: &str = "LIMITER_CARDS";

/// Interfaces of the namespace that the file system of the kernel was mounted in: that of this
/// process, whatever namespace a thread is in.
const INTERFACES: &str = "/sys/class/net";

/// The longest until a card is there: one of a namespace that is gone comes back a while later.
const THERE_WITHIN: Duration = Duration::from_mins(1);

/// A pair of cards.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The driver of the card for limiter.
    pub driver: String,
    /// Hardware addresses of this card and of the other one.
    ends: [String; 2],
}

/// All pairs; none on a machine that was not made for them.
///
/// # Errors
///
/// When the variable is not as described.
pub fn pairs() -> Result<Option<Vec<Pair>>> {
    let Ok(words) = env::var(VARIABLE) else { return Ok(None) };
    let pair = |word: &str| {
        let ends = word.split_once('=').and_then(|(driver, ends)| {
            let (near, far) = ends.split_once(',')?;
            Some(Pair { driver: driver.to_owned(), ends: [near.to_owned(), far.to_owned()] })
        });
        ends.with_context(|| format!("not `DRIVER=ADDRESS,ADDRESS`: {word}"))
    };
    words.split(' ').map(pair).collect::<Result<_>>().map(Some)
}

impl Pair {
    /// Both cards, the one for limiter first; none if the kernel has no driver for it.
    ///
    /// # Errors
    ///
    /// When one that must be there does not appear within a minute.
    pub fn found(&self) -> Result<Option<[Card; 2]>> {
        let [near, far] = &self.ends;
        if !Path::new("/sys/module").join(&self.driver).exists() {
            return Ok(None);
        }
        Ok(Some([Card::find(near)?, Card::find(far)?]))
    }
}

/// A card. [`Card::give`] takes it to a namespace, and it is back in that of this process after
/// [`Card::take_back`], [`Card::unbind`] with [`Card::bind`], or when the other namespace is gone.
#[derive(Debug)]
pub struct Card {
    mac: String,
    /// The device, and its driver, in the file system of the kernel.
    device: PathBuf,
    driver: PathBuf,
}

impl Card {
    fn find(mac: &str) -> Result<Self> {
        let interface = wait_for(mac)?;
        let device = Path::new(INTERFACES).join(interface).join("device").canonicalize()?;
        let driver = device.join("driver").canonicalize()?;
        Ok(Self { mac: mac.to_owned(), device, driver })
    }

    /// Moves the card to a namespace, under a name. It is down there.
    ///
    /// # Errors
    ///
    /// When it is not in the namespace of this process.
    pub fn give(&self, netns: &Netns, name: &str) -> Result<()> {
        let interface = wait_for(&self.mac)?;
        command::run("ip", ["link", "set", &interface, "down"])?;
        command::run("ip", ["link", "set", &interface, "netns", netns.name(), "name", name])?;
        Ok(())
    }

    /// Moves the card back from a namespace where it has this name.
    ///
    /// # Errors
    ///
    /// When it is not there.
    pub fn take_back(&self, netns: &Netns, name: &str) -> Result<()> {
        // No other card has it.
        let own = format!("card{}", self.mac.replace(':', "").split_off(8));
        netns.ip(["link", "set", name, "down"])?;
        netns.ip(["link", "set", name, "netns", "1", "name", &own])?;
        Ok(())
    }

    /// Takes the card from its driver: its interface is gone, wherever it was.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it.
    pub fn unbind(&self) -> Result<()> {
        self.tell("unbind")
    }

    /// Gives the card back to its driver, which makes a new interface.
    ///
    /// # Errors
    ///
    /// When the kernel refuses it.
    pub fn bind(&self) -> Result<()> {
        self.tell("bind")
    }

    /// The name of the device on its bus.
    fn device_name(&self) -> Result<&str> {
        self.device.file_name().and_then(OsStr::to_str).context("a device without a name")
    }

    fn tell(&self, what: &str) -> Result<()> {
        let path = self.driver.join(what);
        fs::write(&path, self.device_name()?).with_context(|| path.display().to_string())
    }
}

/// The interface with a hardware address, once it is there.
fn wait_for(mac: &str) -> Result<String> {
    let deadline = Instant::now() + THERE_WITHIN;
    loop {
        if let Some(interface) = with_address(mac)? {
            return Ok(interface);
        }
        ensure!(Instant::now() < deadline, "no card has the address {mac}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn with_address(mac: &str) -> Result<Option<String>> {
    for entry in fs::read_dir(INTERFACES).context(INTERFACES)? {
        let path = entry?.path();
        // One may go meanwhile.
        let Ok(address) = fs::read_to_string(path.join("address")) else { continue };
        if address.trim() == mac && path.join("device").exists() {
            let name = path.file_name().context("an interface without a name")?;
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
