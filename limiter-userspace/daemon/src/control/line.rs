//! A connection of the control socket that can be checked while it is served: whether the client is
//! still there.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// The stream, shared between the task that serves it and those that check it.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<UnixStream>);

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Returns true if the other end was closed, so nobody will read an answer. A client that only
    /// finished sending is still there.
    pub(super) fn is_closed(&self) -> bool {
        is_closed(&self.0)
    }
}

/// Returns true if the other end was closed, for a stream that is not served yet.
pub(super) fn is_closed(stream: &UnixStream) -> bool {
    has(stream, PollFlags::HUP)
}

/// Returns true if a client waits at a listener. Without a free descriptor, accepting fails even if
/// nobody waits.
pub(super) fn is_waited_at(listener: &impl AsFd) -> bool {
    has(listener, PollFlags::IN)
}

fn has(socket: &impl AsFd, state: PollFlags) -> bool {
    let mut asked = [PollFd::new(socket, state)];
    // An error tells nothing, so it counts as "no".
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        && asked.iter().any(|asked| asked.revents().contains(state))
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write)?))
    }
}
