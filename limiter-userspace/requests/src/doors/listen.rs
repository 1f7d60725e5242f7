//! Where the server listens: TCP, and unix sockets.

use std::env;
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use limiter_sharing::socket_file::SocketFile;
use listenfd::ListenFd;

/// An address to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path, as in unix:/run/limiter/requests.sock".to_owned())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        text.parse().map(Self::Tcp).map_err(|error| {
            format!("{error}: write an address and a port, as in 127.0.0.1:8081, or unix:PATH")
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// HTTP, and gRPC.
    Http,
    /// The protocol of Redis.
    Resp,
}

impl Speaks {
    /// The option that gives addresses for it.
    pub(crate) const fn option(self) -> &'static str {
        match self {
            Self::Http => "--listen",
            Self::Resp => "--resp",
        }
    }

    /// How a client names an address.
    pub(crate) fn at(self, listen: &Listen) -> String {
        match (self, listen) {
            (Self::Http, _) => listen.to_string(),
            (Self::Resp, Listen::Tcp(address)) => format!("redis://{address}"),
            (Self::Resp, Listen::Unix(path)) => format!("redis+unix://{}", path.display()),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens, and returns the file of a unix socket. A socket at which nobody listens is
    /// replaced.
    pub(crate) fn bind(listen: &Listen) -> io::Result<(Self, Option<SocketFile>)> {
        Ok(match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                (Self::Tcp(listener), None)
            }
            Listen::Unix(path) => {
                let (listener, file) = unix(path)?;
                (Self::Unix(listener), Some(file))
            }
        })
    }

    /// The address, with the port that the system chose.
    pub(crate) fn address(&self, asked: &Listen) -> Listen {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| asked.clone(), Listen::Tcp)
            }
            Self::Unix(_) => asked.clone(),
        }
    }

    /// A second handle on the same socket, for another thread.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
        })
    }
}

/// The name of sockets that the service manager passes for the protocol of Redis
/// (`FileDescriptorName=` of the unit).
const OF_RESP: &str = "resp";

/// Listeners that the service manager passes to this process, as `sd_listen_fds`(3) says, with what
/// is spoken there; none if it passes none. Each may be passed once.
pub(crate) fn inherited() -> io::Result<Vec<(Speaks, Listener, Listen)>> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..passed.len() {
        let speaks = if names.next() == Some(OF_RESP) { Speaks::Resp } else { Speaks::Http };
        // What is no TCP listener stays where it is.
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            listener.set_nonblocking(true)?;
            let address = Listen::Tcp(listener.local_addr()?);
            listeners.push((speaks, Listener::Tcp(listener), address));
        } else if let Some(listener) = passed.take_unix_listener(index)? {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let path = address.as_pathname().map(Path::to_owned).unwrap_or_default();
            listeners.push((speaks, Listener::Unix(listener), Listen::Unix(path)));
        }
    }
    Ok(listeners)
}

/// Readable and writable for everybody: the directory controls who may ask. Over TCP every user of
/// the machine may ask, too.
const MODE: u32 = 0o666;

fn unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::other("a file is there that is no socket"));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::other("somebody listens there already")),
            // Left behind by a killed process.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        },
    }
    // Under another name until it is ready: the rename replaces an old socket at once.
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(".new");
    let hidden = PathBuf::from(hidden);
    match fs::remove_file(&hidden) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&hidden)?;
    let file = fs::set_permissions(&hidden, Permissions::from_mode(MODE))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| SocketFile::at(&hidden))
        .and_then(|file| fs::rename(&hidden, path).map(|()| file))
        .inspect_err(|_| {
            if let Err(error) = fs::remove_file(&hidden) {
                tracing::debug!(%error, "a half-made socket is left");
            }
        })?;
    Ok((listener, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!("127.0.0.1:8081".parse(), Ok(Listen::Tcp("127.0.0.1:8081".parse().unwrap())));
        assert_eq!("unix:/x/y".parse(), Ok(Listen::Unix("/x/y".into())));
        for wrong in ["", "unix:", "8081", "localhost:8081", "/x/y"] {
            assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_socket_of_a_dead_process_is_replaced_and_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = Listener::bind(&Listen::Unix(path.clone())).unwrap();
        let error = Listener::bind(&Listen::Unix(path.clone())).unwrap_err();
        assert!(error.to_string().contains("somebody listens there"), "{error}");
        drop(first);
        let (_second, own) = Listener::bind(&Listen::Unix(path.clone())).unwrap();
        let own = own.unwrap();
        // Another process took the place of that socket: it is not removed by this one.
        fs::remove_file(&path).unwrap();
        let _third = UnixListener::bind(&path).unwrap();
        assert!(!own.remove(&path).unwrap());
        assert!(SocketFile::at(&path).unwrap().remove(&path).unwrap() && !path.exists());
        let file = directory.path().join("f");
        fs::write(&file, "mine").unwrap();
        assert!(Listener::bind(&Listen::Unix(file.clone())).is_err());
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }
}
