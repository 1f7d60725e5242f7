//! Descriptors that become readable when something happened, as the kernel reports it.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A read of a descriptor. The events that it takes do not matter: the waiter looks for himself.
type Read = fn(&OwnedFd) -> io::Result<usize>;

/// A descriptor in a tokio runtime.
#[derive(Debug)]
pub(super) struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Registers a descriptor, inside a runtime.
    #[expect(
        deprecated,
        reason = "what is unsound about it are descriptors that somebody else closes; this one is \
                  owned, and what replaces it is unsafe"
    )]
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        AsyncFd::with_interest(descriptor, Interest::READABLE).map(Self)
    }

    pub(super) fn get(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Waits until there is something, and takes all of it by `read`, which does not block. That
    /// some was lost (`ENOBUFS`) is something, too. At the end of the runtime it waits for
    /// ever.
    pub(super) async fn taken(&self, read: Read) {
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                return std::future::pending().await;
            };
            let mut any = false;
            while let Ok(read) = ready.try_io(|descriptor| read(descriptor.get_ref())) {
                any = true;
                if read.is_err() {
                    break;
                }
            }
            if any {
                return;
            }
        }
    }

    /// Waits until there is something, and leaves it there. What comes from now on makes it ready
    /// again.
    pub(super) async fn ready(&self) {
        match self.0.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
        }
    }
}
