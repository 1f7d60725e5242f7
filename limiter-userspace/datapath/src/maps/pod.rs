//! Wraps the wire types for aya.

use bytemuck::Pod;

/// A value of a map.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub(crate) struct Wire<T>(pub(crate) T);

#[expect(unsafe_code, reason = "aya asks for a promise that bytemuck has proven")]
// SAFETY: `repr(transparent)` around a type that bytemuck has proven to be plain data: `Copy`,
// `'static`, without padding and valid for every bit pattern, which is all that aya requires.
unsafe impl<T: Pod> aya::Pod for Wire<T> {}
