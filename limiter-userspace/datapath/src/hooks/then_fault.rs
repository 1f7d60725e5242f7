//! Why a program cannot continue with the packets that pass.

use std::error::Error;
use std::{fmt, io};

use aya::maps::MapError;
use aya::programs::ProgramError;

/// Why a program cannot continue.
#[derive(Debug)]
pub enum ThenFault {
    /// There is no pin, or it cannot be opened.
    Open(Box<ProgramError>),
    /// The file is not a pin.
    Elsewhere,
    /// The pin is of a program of another kind, or of none.
    NoXdp,
    /// The kernel does not allow limiter's program to call it.
    Refused(MapError),
}

impl fmt::Display for ThenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => {
                let cause = cause(error);
                write!(
                    f,
                    "{cause}: pin an XDP program there, and let the daemon's user read and write \
                     the pin"
                )
            }
            Self::Elsewhere => f.write_str(
                "this is no pin, for it is on no BPF file system: name one below /sys/fs/bpf",
            ),
            Self::NoXdp => f.write_str("that is no XDP program: pin one there"),
            Self::Refused(error) => write!(
                f,
                "the kernel does not let limiter's program call it ({}): both have to take frames \
                 in several buffers, and to be loaded for the attach type of XDP; load it so, as \
                 SEC(\"xdp.frags\") does, and pin it again",
                cause(error)
            ),
        }
    }
}

/// The last cause of an error, which is the kernel's answer.
fn cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    match last.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
        Some(libc::ENOENT) => "there is no such pin".to_owned(),
        _ => last.to_string(),
    }
}
