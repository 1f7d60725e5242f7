//! Random numbers from the kernel.

use super::DatapathError;

/// A random number for seeds that nobody outside can know.
pub fn random() -> Result<u64, DatapathError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|source| DatapathError::Random(source.into()))?;
    Ok(u64::from_ne_bytes(bytes))
}
