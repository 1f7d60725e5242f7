//! Reads and writes many map entries in one system call, which aya does not support.

mod sources;
mod update;

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::maps::{MapData, MapType};

pub(crate) use sources::{KeyedMap, Slice, SourceMaps};
pub use sources::{Sweep, of_key};
pub(crate) use update::update;

/// The commands, of `enum bpf_cmd` in `linux/bpf.h`.
const LOOKUP_BATCH: libc::c_long = 24;
const UPDATE_BATCH: libc::c_long = 26;

/// The part of `union bpf_attr` for the commands on batches.
#[repr(C)]
struct Attributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

const _: () = assert!(size_of::<Attributes>() == 56);

/// The keys and values of a call. Both are plain data: without padding, and valid for any bytes.
enum Elements<'a, K, V> {
    /// Read from the kernel's token `from` on, or from the start; the kernel sets `next`.
    LookUp {
        from: Option<u32>,
        next: &'a mut u32,
        keys: &'a mut [K],
        values: &'a mut [V],
    },
    Update {
        keys: &'a [K],
        values: &'a [V],
    },
}

/// Makes the kernel read or write `count` elements of a hash map, an array or a trie. Returns the
/// number of elements done, also after an error.
///
/// # Errors
///
/// The kernel's, and `EINVAL` if keys and values do not have the size of `count` elements of the
/// map.
#[expect(unsafe_code, reason = "a system call that takes addresses")]
fn call<K, V>(map: &MapData, count: u32, elements: Elements<'_, K, V>) -> (u32, io::Result<()>) {
    let invalid = || (0, Err(io::Error::from_raw_os_error(libc::EINVAL)));
    let (Some((key, value)), Ok(fd)) = (sizes(map), u32::try_from(map.fd().as_fd().as_raw_fd()))
    else {
        return invalid();
    };
    let of = |size: usize| usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
    let whole = |keys: &[K], values: &[V]| {
        of(key) == Some(size_of_val(keys)) && of(value) == Some(size_of_val(values))
    };
    let mut attributes = Attributes {
        in_batch: 0,
        out_batch: 0,
        keys: 0,
        values: 0,
        count,
        map: fd,
        element_flags: 0,
        flags: 0,
    };
    let from_token;
    let command = match elements {
        Elements::LookUp { from, next, keys, values } if whole(keys, values) => {
            from_token = from;
            if let Some(from) = &from_token {
                attributes.in_batch = std::ptr::from_ref(from).expose_provenance() as u64;
            }
            attributes.out_batch = std::ptr::from_mut(next).expose_provenance() as u64;
            attributes.keys = keys.as_mut_ptr().expose_provenance() as u64;
            attributes.values = values.as_mut_ptr().expose_provenance() as u64;
            LOOKUP_BATCH
        }
        Elements::Update { keys, values } if whole(keys, values) => {
            attributes.keys = keys.as_ptr().expose_provenance() as u64;
            attributes.values = values.as_ptr().expose_provenance() as u64;
            UPDATE_BATCH
        }
        Elements::LookUp { .. } | Elements::Update { .. } => return invalid(),
    };
    // SAFETY: every address is of memory that is borrowed until the call is over. The tokens are
    // words of 32 bits, as in hash maps. Keys and values are `count` elements of the map's sizes,
    // as compared above; the kernel writes those of a look-up, for which any bytes are valid, and
    // `count`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(&mut attributes),
            size_of::<Attributes>(),
        )
    };
    let done = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    (attributes.count.min(count), done)
}

/// Sizes in bytes of a key and of a value, as the kernel reads and writes them. A per-CPU map has
/// one value per CPU, each rounded up to eight bytes.
fn sizes(map: &MapData) -> Option<(usize, usize)> {
    let info = map.info().ok()?;
    let key = usize::try_from(info.key_size()).ok()?;
    let value = usize::try_from(info.value_size()).ok()?;
    match info.map_type().ok()? {
        MapType::Hash | MapType::Array | MapType::LpmTrie => Some((key, value)),
        MapType::PerCpuArray => {
            let cpus = aya::util::nr_cpus().ok()?;
            Some((key, value.checked_next_multiple_of(8)?.checked_mul(cpus)?))
        }
        _ => None,
    }
}
