//! Two namespaces, a cable, a private BPF file system and a directory: what every run needs.

use std::sync::{Arc, Once};

use anyhow::Result;

use crate::bpffs::Bpffs;
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::work_dir::WorkDir;
use crate::{sweep, veth};

/// A place to measure in. Fields are dropped in this order: the file system with the pins first,
/// its directory last.
#[derive(Debug)]
pub struct Testbed {
    /// A private BPF file system.
    pub bpffs: Bpffs,
    /// Where traffic comes from.
    pub sender: Arc<Netns>,
    /// Where the limiter runs.
    pub receiver: Arc<Netns>,
    /// For everything else that needs a path.
    pub dir: WorkDir,
}

impl Testbed {
    /// Builds one.
    ///
    /// # Errors
    ///
    /// Without root or `ip`. What was made until then is removed.
    pub fn create(tag: &str) -> Result<Self> {
        sweep_once();
        let dir = WorkDir::create(tag)?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let sender = Arc::new(Netns::create(&format!("{tag}-send"))?);
        let receiver = Arc::new(Netns::create(&format!("{tag}-recv"))?);
        veth::connect(&sender, &receiver)?;
        Ok(Self { bpffs, sender, receiver, dir })
    }

    /// A limiter for the receiving end under the rules in `rules` (YAML text); not started yet.
    ///
    /// # Errors
    ///
    /// When there is no `limiter` binary, or the rule file cannot be written.
    pub fn limiter(&self, rules: &str) -> Result<Limiter> {
        let file = self.dir.write("rules.yaml", rules)?;
        let binary = crate::limiter::binary()?;
        Ok(Limiter::new(binary, &file, veth::RECEIVER.interface, self))
    }

    /// Takes everything down and checks that nothing of it is left.
    ///
    /// # Errors
    ///
    /// Names what is left.
    pub fn close(self) -> Result<()> {
        let names = [self.sender.name().to_owned(), self.receiver.name().to_owned()];
        let dir = self.dir.path().to_owned();
        drop(self);
        sweep::check_gone(&names, &dir)
    }
}

/// Removes what killed runs left, when the first testbed of this process is built.
fn sweep_once() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| match sweep::sweep() {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => eprintln!("removed what a killed run left: {}", removed.join(", ")),
        // It does not disturb us: our names are others. Another run may be sweeping, too.
        Err(error) => eprintln!("cannot remove all that a killed run left: {error:#}"),
    });
}
