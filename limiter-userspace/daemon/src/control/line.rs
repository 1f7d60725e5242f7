//! A connection of the control socket that can be looked at while it is served: whether somebody is
//! still there.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// The stream, for anybody who serves it and for anybody who looks.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<UnixStream>);

impl Line {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(stream))
    }

    /// True if the other end was closed: then nobody will read an answer. A client that only sends
    /// no more is still there.
    pub(super) fn is_closed(&self) -> bool {
        is_closed(&self.0)
    }
}

/// True if the other end of a stream that nobody serves yet was closed.
pub(super) fn is_closed(stream: &UnixStream) -> bool {
    has(stream, PollFlags::HUP)
}

/// True if somebody waits at a listener. Without a free descriptor accepting fails also if nobody
/// does.
pub(super) fn is_waited_at(listener: &impl AsFd) -> bool {
    has(listener, PollFlags::IN)
}

fn has(socket: &impl AsFd, state: PollFlags) -> bool {
    let mut asked = [PollFd::new(socket, state)];
    // An error is no answer: then it has not.
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
