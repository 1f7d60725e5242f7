//! Messages to the service manager: the daemon is ready, reloads its rules, is still alive, or
//! ends.
//!
//! The protocol of `sd_notify`(3) is one datagram of `NAME=VALUE` lines to the socket in
//! `NOTIFY_SOCKET`. Without that variable nothing is sent.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Connection to the service manager, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Time within which the manager expects a sign of life.
    watchdog: Option<Duration>,
    /// The last status sent, which need not be repeated.
    status: String,
}

impl Notifier {
    /// Reads the environment. A manager that cannot be notified does not keep the daemon from
    /// limiting.
    pub(crate) fn from_environment() -> Self {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        match Self::open(path.as_bytes()) {
            Ok(to) => {
                let watchdog = watchdog(
                    env::var("WATCHDOG_USEC").ok().as_deref(),
                    env::var("WATCHDOG_PID").ok().as_deref(),
                    std::process::id(),
                );
                Self { to: Some(to), watchdog, status: String::new() }
            }
            Err(error) => {
                tracing::warn!(
                    "the service manager is not notified: NOTIFY_SOCKET {}: {error}: check the \
                     unit",
                    path.display()
                );
                Self::default()
            }
        }
    }

    /// Notifies a given socket, for tests.
    #[cfg(test)]
    pub(crate) fn to(path: &str) -> Self {
        Self { to: Some(Self::open(path.as_bytes()).unwrap()), ..Self::default() }
    }

    fn open(path: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
        let address = match path {
            [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => return Err(io::Error::other("it begins neither with / nor with @")),
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not block the daemon.
        socket.set_nonblocking(true)?;
        Ok((socket, address))
    }

    /// Interval for calls of [`Notifier::alive`]: half of the time that the manager waits.
    pub(crate) fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Reports that the rules are in force and the socket is served.
    pub(crate) fn ready(&mut self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
        status.clone_into(&mut self.status);
    }

    /// Reports the daemon's present activity, if it has changed.
    pub(crate) fn status(&mut self, status: &str) {
        if self.status != status {
            self.send(&format!("STATUS={status}"));
            status.clone_into(&mut self.status);
        }
    }

    /// Reports that the rule files are being read again; [`Notifier::ready`] ends this.
    pub(crate) fn reloading(&self) {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1000;
        let now = seconds.saturating_mul(1_000_000).saturating_add(micros);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=reading the rule files"));
    }

    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the daemon ends, so nobody needs to wait for its socket.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=ending");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.to else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::debug!(%error, message, "the service manager was not notified");
        }
    }
}

/// The time in `WATCHDOG_USEC`, if it is meant for this process.
fn watchdog(micros: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_for_one_process() {
        let time = Some(Duration::from_secs(30));
        assert_eq!(watchdog(Some("30000000"), None, 7), time);
        assert_eq!(watchdog(Some("30000000"), Some("7"), 7), time);
        assert_eq!(watchdog(Some("30000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("30000000"), Some(""), 7), None);
        for none in [None, Some("0"), Some("-1"), Some("soon")] {
            assert_eq!(watchdog(none, Some("7"), 7), None);
        }
    }

    #[test]
    fn messages_arrive_by_path_and_by_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("@limiter-test-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        for (text, receiver) in [
            (path.to_str().unwrap(), UnixDatagram::bind(&path).unwrap()),
            (&name, UnixDatagram::bind_addr(&by_name).unwrap()),
        ] {
            let to = Some(Notifier::open(text.as_bytes()).unwrap());
            let mut notifier = Notifier { to, ..Notifier::default() };
            let mut buffer = [0; 256];
            let mut next = || {
                let length = receiver.recv(&mut buffer).unwrap();
                String::from_utf8(buffer[..length].to_vec()).unwrap()
            };
            notifier.ready("eth0 native");
            assert_eq!(next(), "READY=1\nSTATUS=eth0 native");
            notifier.reloading();
            let message = next();
            let time = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            let time = time.strip_suffix("\nSTATUS=reading the rule files").unwrap();
            assert!(time.parse::<u64>().unwrap() > 0);
            notifier.alive();
            assert_eq!(next(), "WATCHDOG=1");
            // The status is unchanged.
            notifier.status("eth0 native");
            notifier.status("eth0 gone");
            assert_eq!(next(), "STATUS=eth0 gone");
            notifier.stopping();
            assert_eq!(next(), "STOPPING=1\nSTATUS=ending");
        }
    }

    #[test]
    fn nobody_is_notified_where_there_is_no_manager() {
        let mut notifier = Notifier::default();
        notifier.ready("");
        assert_eq!(notifier.watchdog_period(), None);
        assert!(Notifier::open(b"relative/path").is_err());
        // A manager that went away is not an error of the daemon.
        let to = Some(Notifier::open(b"/nowhere/notify").unwrap());
        let notifier = Notifier { to, ..Notifier::default() };
        notifier.alive();
    }
}
