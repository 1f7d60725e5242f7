//! A connection from a node to its store that can be cut: a socket between the two that passes
//! bytes on or holds them back. A cut closes nothing, as a loss of packets would not.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Pause between two looks whether the connection is cut or over.
const LOOK: Duration = Duration::from_millis(2);

/// A connection that passes bytes on until it is dropped.
#[derive(Debug)]
pub struct StorePath {
    cut: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StorePath {
    /// Listens at `near`, in place of any file there, and passes bytes on to the socket `far`.
    ///
    /// # Errors
    ///
    /// When listening fails.
    pub fn between(near: &Path, far: &Path) -> Result<Self> {
        if let Err(error) = std::fs::remove_file(near)
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("cannot remove {}", near.display()));
        }
        let listener = UnixListener::bind(near)
            .with_context(|| format!("cannot listen at {}", near.display()))?;
        listener.set_nonblocking(true)?;
        let (cut, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let thread = {
            let (far, state) = (far.to_owned(), State(Arc::clone(&cut), Arc::clone(&over)));
            thread::Builder::new().name("store path".into()).spawn(move || {
                accept(&listener, &far, &state);
            })?
        };
        Ok(Self { cut, over, thread: Some(thread) })
    }

    /// Cuts the connection or heals it: bytes sent during the cut then arrive late.
    pub fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }
}

impl Drop for StorePath {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the path to a store panicked");
        }
    }
}

/// Two flags: the first is true while the connection is cut, the second once it is over.
#[derive(Clone, Debug)]
struct State(Arc<AtomicBool>, Arc<AtomicBool>);

impl State {
    fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }
}

fn accept(listener: &UnixListener, far: &Path, state: &State) {
    let mut ways: Vec<JoinHandle<()>> = Vec::new();
    while !state.is_over() {
        // Nobody is accepted while the connection is cut: a client waits for its answer.
        match (!state.is_cut()).then(|| listener.accept()) {
            Some(Ok((near, _))) => ways.extend(connect(near, far.to_owned(), state)),
            _ => thread::sleep(LOOK),
        }
    }
    for way in ways {
        if way.join().is_err() {
            eprintln!("a connection to a store panicked");
        }
    }
}

/// Starts both directions of a connection. It ends if the store does not listen.
fn connect(near: UnixStream, far: PathBuf, state: &State) -> Vec<JoinHandle<()>> {
    let ends = || -> std::io::Result<_> {
        let far = UnixStream::connect(far)?;
        near.set_nonblocking(false)?;
        for end in [&near, &far] {
            end.set_read_timeout(Some(LOOK))?;
        }
        Ok([(near.try_clone()?, far.try_clone()?), (far, near)])
    };
    let Ok(ends) = ends() else { return Vec::new() };
    let directions = ends.into_iter().map(|(from, to)| {
        let state = state.clone();
        thread::Builder::new().name("store bytes".into()).spawn(move || pass(from, &to, &state))
    });
    directions.filter_map(Result::ok).collect()
}

fn pass(mut from: UnixStream, mut to: &UnixStream, state: &State) {
    let mut bytes = vec![0; 64 << 10];
    while !state.is_over() {
        if state.is_cut() {
            thread::sleep(LOOK);
            continue;
        }
        match from.read(&mut bytes) {
            Ok(count) if count > 0 => {
                if bytes.get(..count).is_none_or(|bytes| to.write_all(bytes).is_err()) {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ => break,
        }
    }
    for end in [&from, to] {
        // An end that is closed already is fine.
        let _closed = end.shutdown(std::net::Shutdown::Both);
    }
}
