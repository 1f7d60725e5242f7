//! The socket file: created with its mode in one step, and taken over only from a dead daemon.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use limiter_sharing::socket_file::SocketFile;
use limiter_text::second_daemon::SECOND_DAEMON;

/// Read and write for owner and group.
const MODE: u32 = 0o660;

/// Reason why the daemon cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A process listens there already.
    #[error("{}: another daemon listens there: {SECOND_DAEMON}", .0.display())]
    InUse(PathBuf),
    /// The file there is not a socket.
    #[error("{}: is not a socket: remove it, or give --socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("{}: cannot {what}: {source}: check the directory, or give --socket", path.display())]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Path that it failed on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// Listens at `path`; returns the socket file as well. A socket that nobody listens at is replaced.
pub(super) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let failed = |what, source| BindError::System { what, path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at the socket", error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(BindError::InUse(path.to_owned())),
            // The socket was left behind by a killed daemon.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(failed("ask who listens", error)),
        },
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)
            .map_err(|error| failed("make the directory", error))?;
    }
    // The socket has another name until its mode is right, so nobody can connect in between.
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(".new");
    let hidden = PathBuf::from(hidden);
    match fs::remove_file(&hidden) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove the half-made socket beside it", error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&hidden).map_err(|error| failed("bind", error))?;
    let published = fs::set_permissions(&hidden, Permissions::from_mode(MODE))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| SocketFile::at(&hidden))
        .and_then(|file| fs::rename(&hidden, path).map(|()| file));
    published.map(|file| (listener, file)).map_err(|error| {
        if let Err(left) = fs::remove_file(&hidden) {
            tracing::warn!(%left, socket = %hidden.display(), "a half-made socket is left");
        }
        failed("publish the socket", error)
    })
}
