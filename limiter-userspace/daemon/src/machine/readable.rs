//! Descriptors that become readable when the kernel reports an event.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Reads from a descriptor. The content of the events does not matter, because the waiter checks
/// for itself.
type Read = fn(&OwnedFd) -> io::Result<usize>;

/// A descriptor in a tokio runtime.
#[derive(Debug)]
pub(crate) struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Registers a descriptor, inside a runtime.
    #[expect(
        deprecated,
        reason = "what is unsound about it are descriptors that somebody else closes; this one is \
                  owned, and what replaces it is unsafe"
    )]
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        AsyncFd::with_interest(descriptor, Interest::READABLE).map(Self)
    }

    pub(crate) fn get(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Waits for events, and takes all of them by `read`, which does not block. A loss of events
    /// (`ENOBUFS`) counts as an event. At the end of the runtime it waits for ever.
    pub(crate) async fn taken(&self, read: Read) {
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

    /// Waits for events, and leaves them there. Later events make the descriptor ready again.
    pub(crate) async fn ready(&self) {
        match self.0.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => std::future::pending().await,
        }
    }
}
