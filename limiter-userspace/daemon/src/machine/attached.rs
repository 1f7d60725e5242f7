//! The data path of a daemon, until it is detached.

use limiter_datapath::Datapath;

use crate::error::ServiceError;

/// The data path; `None` once detached.
pub(crate) struct Attached(Option<Box<dyn Datapath>>);

impl Attached {
    pub(crate) fn new(datapath: Box<dyn Datapath>) -> Self {
        Self(Some(datapath))
    }

    pub(crate) fn get(&self) -> Result<&dyn Datapath, ServiceError> {
        self.0.as_deref().ok_or(ServiceError::Detached)
    }

    pub(crate) fn get_mut(&mut self) -> Result<&mut dyn Datapath, ServiceError> {
        match self.0.as_deref_mut() {
            Some(datapath) => Ok(datapath),
            None => Err(ServiceError::Detached),
        }
    }

    /// Takes the data path, to end it.
    pub(crate) fn take(&mut self) -> Option<Box<dyn Datapath>> {
        self.0.take()
    }
}
