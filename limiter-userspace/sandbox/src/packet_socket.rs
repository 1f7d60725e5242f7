//! Packet sockets (`AF_PACKET`): whole frames in and out of one interface.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::net::netdevice::name_to_index;
use socket2::{Domain, MsgHdr, Protocol, SockAddr, SockRef, Socket, Type};

/// A raw packet socket bound to one interface of the calling thread's network namespace.
#[derive(Debug)]
pub struct PacketSocket(Socket);

/// Meaning of the kernel's answer `ENOBUFS` to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The frame was never sent: the device had no room.
    Refused,
    /// The frame was sent and dropped at tc on its way out, because it was over its limit.
    Dropped,
}

/// Frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Frames that arrive.
    Incoming,
    /// Frames that arrive or leave.
    Both,
}

/// `PACKET_STATISTICS` of a socket since the last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that reached the socket, lost ones included.
    pub frames: u64,
    /// Frames that the kernel dropped because the socket's buffer was full.
    pub dropped: u64,
}

impl PacketSocket {
    /// A socket that sends on `interface` and receives nothing.
    ///
    /// # Errors
    ///
    /// Without `CAP_NET_RAW`, or when the interface does not exist.
    pub fn sender(interface: &str) -> Result<Self> {
        Self::open(interface, 0, |_| Ok(()))
    }

    /// A socket that receives every frame of a direction at `interface`, with a buffer of `buffer`
    /// bytes, and waits at most `timeout` for each.
    ///
    /// # Errors
    ///
    /// Without `CAP_NET_RAW` and `CAP_NET_ADMIN`, or when the interface does not exist.
    pub fn receiver(
        interface: &str,
        direction: Direction,
        buffer: usize,
        timeout: Duration,
    ) -> Result<Self> {
        Self::open(interface, libc::ETH_P_ALL, |socket| {
            let incoming_only = i32::from(direction == Direction::Incoming);
            // The kernel's own limit (net.core.rmem_max) only binds processes without the
            // privilege.
            set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, i32::try_from(buffer)?)?;
            set_option(socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, incoming_only)?;
            socket.set_read_timeout(Some(timeout))?;
            Ok(())
        })
        .context("cannot prepare the receiving socket")
    }

    fn open(
        interface: &str,
        protocol: i32,
        prepare: impl FnOnce(&Socket) -> Result<()>,
    ) -> Result<Self> {
        // Protocol 0 until the socket is bound: otherwise it would see frames of all interfaces.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))
            .context("cannot open a packet socket: run as root")?;
        prepare(&socket)?;
        let index = name_to_index(&socket, interface)
            .with_context(|| format!("no interface {interface} in this network namespace"))?;
        socket
            .bind(&link_address(index, protocol)?)
            .with_context(|| format!("cannot bind a packet socket to {interface}"))?;
        Ok(Self(socket))
    }

    /// Sends one frame. It has passed the other end of a veth pair's queue when this returns.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` when the device dropped the frame, `ENETDOWN` when the interface is down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.send(frame).map(|_| ())
    }

    /// Receives the beginning of one frame into `buffer`; returns its length there, or 0 when no
    /// frame came in time.
    ///
    /// # Errors
    ///
    /// When the interface went down or away.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match io::Read::read(&mut &self.0, buffer) {
            Err(error) if is_timeout(&error) => Ok(0),
            other => other,
        }
    }

    /// Reads the kernel's counts for this socket, which then start again from zero.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut stats = MaybeUninit::<libc::tpacket_stats>::zeroed();
        let mut length = socklen::<libc::tpacket_stats>();
        // SAFETY: the descriptor is open, and the pointer and length describe `stats`.
        let code = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                stats.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error()).context("cannot read PACKET_STATISTICS");
        }
        // SAFETY: all-zero bytes are a valid `tpacket_stats`, whatever the kernel wrote of it.
        let stats = unsafe { stats.assume_init() };
        Ok(Statistics { frames: stats.tp_packets.into(), dropped: stats.tp_drops.into() })
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn socklen<T>() -> libc::socklen_t {
    // No option or address is anywhere near 4 GiB.
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}

/// Makes a UDP socket divide its data into datagrams of `bytes` bytes (`UDP_SEGMENT` of
/// include/uapi/linux/udp.h): they go through the kernel as one super-frame.
///
/// # Errors
///
/// When the kernel refuses.
pub fn segment(socket: &std::net::UdpSocket, bytes: u16) -> io::Result<()> {
    const UDP_SEGMENT: i32 = 103;
    set_option(&SockRef::from(socket), libc::SOL_UDP, UDP_SEGMENT, i32::from(bytes))
}

/// Gives a UDP socket a receive buffer of `bytes` bytes, whatever the kernel's own limit.
///
/// # Errors
///
/// Without `CAP_NET_ADMIN`.
pub fn receive_buffer(socket: &std::net::UdpSocket, bytes: i32) -> io::Result<()> {
    set_option(&SockRef::from(socket), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

/// Lets a UDP socket set the time of departure of each datagram (`SO_TXTIME` of
/// `include/uapi/linux/net_tstamp.h`), on `CLOCK_MONOTONIC`, as `fq` expects it.
///
/// # Errors
///
/// Without `CAP_NET_ADMIN`.
pub fn timed(socket: &std::net::UdpSocket) -> io::Result<()> {
    // The fields of `struct sock_txtime`: the clock, and no flags.
    let value = [libc::CLOCK_MONOTONIC, 0].map(i32::to_ne_bytes).concat();
    set_bytes(&SockRef::from(socket), libc::SOL_SOCKET, libc::SO_TXTIME, &value)
}

/// Sends a datagram from a socket set up by [`timed`], to depart at `nanos` of `CLOCK_MONOTONIC`.
///
/// # Errors
///
/// When the kernel refuses.
pub fn send_at(
    socket: &std::net::UdpSocket,
    bytes: &[u8],
    to: std::net::SocketAddr,
    nanos: u64,
) -> io::Result<()> {
    // The fields of `struct cmsghdr`: length, level, type; then the time.
    let length = size_of::<usize>() + 2 * size_of::<i32>() + size_of::<u64>();
    let mut control = length.to_ne_bytes().to_vec();
    control.extend([libc::SOL_SOCKET, libc::SCM_TXTIME].map(i32::to_ne_bytes).concat());
    control.extend(nanos.to_ne_bytes());
    let (to, buffers) = (SockAddr::from(to), [IoSlice::new(bytes)]);
    let message = MsgHdr::new().with_addr(&to).with_buffers(&buffers).with_control(&control);
    SockRef::from(socket).sendmsg(&message, 0).map(drop)
}

fn set_option(socket: &Socket, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_bytes(socket, level, option, &value.to_ne_bytes())
}

fn set_bytes(socket: &Socket, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open, and the pointer and length describe `value`.
    let code = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address of an interface for a protocol (an `ETH_P_` constant).
fn link_address(index: u32, protocol: i32) -> Result<SockAddr> {
    let protocol = u16::try_from(protocol)?.to_be();
    let index = i32::try_from(index)?;
    let family = libc::sa_family_t::try_from(libc::AF_PACKET)?;
    // SAFETY: `sockaddr_ll` is a socket address and smaller than the storage; the closure fills its
    // leading fields and says its length.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = &mut *storage.cast::<libc::sockaddr_ll>();
            address.sll_family = family;
            address.sll_protocol = protocol;
            address.sll_ifindex = index;
            *length = socklen::<libc::sockaddr_ll>();
            Ok(())
        })
    }?;
    Ok(address)
}
