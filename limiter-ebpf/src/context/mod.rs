//! The context that the kernel passes to the program: the frame, and its socket. The maps do not
//! need it.

pub(crate) mod frame;
pub(crate) mod socket;

pub(crate) use self::frame::Frame;
