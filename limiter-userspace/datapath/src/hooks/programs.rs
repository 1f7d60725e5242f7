//! The programs of the object: one for each framing.

use aya::Ebpf;
use aya::programs::tc::TcAttachType;
use aya::programs::{Program, ProgramError, SchedClassifier, Xdp, loaded_programs};
use limiter_model::Framing;

use crate::DatapathError;

pub(crate) enum HookProgram<'a> {
    Xdp(&'a mut Xdp),
    /// The program, and where it is attached.
    Tc(&'a mut SchedClassifier, TcAttachType),
}

impl HookProgram<'_> {
    pub(crate) fn id(&self) -> Result<u32, ProgramError> {
        let info = match self {
            Self::Xdp(program) => program.info(),
            Self::Tc(program, _) => program.info(),
        };
        Ok(info?.id())
    }
}

pub(crate) trait Load {
    fn load(&mut self) -> Result<(), ProgramError>;
}

impl Load for Xdp {
    fn load(&mut self) -> Result<(), ProgramError> {
        Self::load(self)
    }
}

impl Load for SchedClassifier {
    fn load(&mut self) -> Result<(), ProgramError> {
        Self::load(self)
    }
}

/// The program for a framing. Loads it if necessary.
pub(crate) fn loaded<'a, P>(
    ebpf: &'a mut Ebpf,
    framing: Framing,
) -> Result<&'a mut P, DatapathError>
where
    P: Load,
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(framing.program()).ok_or(ProgramError::UnexpectedProgramType);
    let program: &mut P = program
        .and_then(TryInto::try_into)
        .map_err(|error| DatapathError::Verify(Box::new(error)))?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => Ok(program),
        Err(error) => {
            // Logs the whole verifier log; the error contains its first line.
            tracing::debug!(%error, "the program is not loaded");
            Err(refused_or(error, |error| DatapathError::Verify(Box::new(error))))
        }
    }
}

/// Maps EPERM anywhere in the chain of causes to missing capabilities.
pub(crate) fn refused_or<E: std::error::Error + 'static>(
    error: E,
    other: impl FnOnce(E) -> DatapathError,
) -> DatapathError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>()
            // EACCES does not count: it means that the verifier rejected the program.
            && io.raw_os_error() == Some(libc::EPERM)
        {
            return DatapathError::NotPermitted { action: "load the XDP program and its maps" };
        }
        cause = current.source();
    }
    other(error)
}

/// The kernel's name of a program; `None` if it has none, or this process may not ask.
pub fn name_of(id: u32) -> Option<String> {
    let program = loaded_programs().filter_map(Result::ok).find(|program| program.id() == id)?;
    program.name_as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}
