//! One extension header.

use super::bytes::{Bytes, low_16};
use super::protocol;
use crate::register::Register;

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The number of the header behind it.
    pub(super) following: u8,
    /// The offset of that header: at most 1,036 bytes on.
    pub(super) end: u16,
    /// Bytes 2 and 3: in a fragment header, its place and whether more follow.
    pub(super) position: u16,
}

/// The register of an extension header that is not there.
const ABSENT: u64 = u64::MAX;

impl Register for Option<Extension> {
    const LOST: Self = None;

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn to_register(self) -> u64 {
        match self {
            Some(Extension { following, end, position }) => {
                u64::from(position) << 24 | u64::from(end) << 8 | u64::from(following)
            }
            None => ABSENT,
        }
    }

    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn of_register(register: u64) -> Self {
        if register == ABSENT {
            return None;
        }
        Some(Extension {
            following: (register & 0xff) as u8,
            end: (register >> 8 & 0xffff) as u16,
            position: (register >> 24 & 0xffff) as u16,
        })
    }
}

/// Reads the extension header of a number at an offset, which is at most
/// [`super::MAX_TRANSPORT_OFFSET`]. No extension header is shorter than eight bytes.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn extension(frame: &(impl Bytes + ?Sized), number: u8, offset: usize) -> Option<Extension> {
    let [following, units, high, low] = frame.read::<4>(offset)?;
    let end = low_16(offset + length(number, units));
    Some(Extension { following, end, position: u16::from_be_bytes([high, low]) })
}

/// The length of an extension header in bytes, from its length field.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn length(kind: u8, units: u8) -> usize {
    // Lossless; `usize::from` is not const.
    let units = units as usize;
    match kind {
        protocol::FRAGMENT => 8,
        protocol::AUTHENTICATION => (units + 2) * 4,
        _ => (units + 1) * 8,
    }
}
