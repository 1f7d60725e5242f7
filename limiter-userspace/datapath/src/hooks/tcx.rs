//! The programs at tc of an interface (TCX). aya looks up each program by its id, which needs
//! `CAP_SYS_ADMIN`; reading only the ids needs `CAP_NET_ADMIN`.

use std::io;

use limiter_common::header::Direction;

/// `BPF_PROG_QUERY`, of `enum bpf_cmd` in `linux/bpf.h`.
const PROG_QUERY: libc::c_long = 16;

/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`, of `enum bpf_attach_type`.
const INGRESS: u32 = 46;
const EGRESS: u32 = 47;

/// Largest number of programs at one hook in the kernel (`BPF_MPROG_MAX`).
const MOST: u32 = 64;

/// The part of `union bpf_attr` for `BPF_PROG_QUERY`.
#[repr(C)]
struct Attributes {
    interface: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    program_ids: u64,
    count: u32,
    reserved: u32,
    program_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Ids of the programs at tc of an interface in a direction, in the order in which they run. `None`
/// before Linux 6.6, which has no TCX.
///
/// # Errors
///
/// The kernel's.
#[expect(unsafe_code, reason = "a system call that takes an address")]
pub(crate) fn programs(interface: u32, direction: Direction) -> io::Result<Option<Vec<u32>>> {
    let mut ids = [0_u32; MOST as usize];
    let mut attributes = Attributes {
        interface,
        attach_type: match direction {
            Direction::In => INGRESS,
            Direction::Out => EGRESS,
        },
        query_flags: 0,
        attach_flags: 0,
        program_ids: ids.as_mut_ptr().expose_provenance() as u64,
        count: MOST,
        reserved: 0,
        program_attach_flags: 0,
        link_ids: 0,
        link_attach_flags: 0,
        revision: 0,
    };
    // SAFETY: the attributes, and the memory for as many ids as they say, are borrowed until the
    // call is over; any bytes are a valid id.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_QUERY,
            std::ptr::from_mut(&mut attributes),
            size_of::<Attributes>(),
        )
    };
    if result != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            // The kernel does not know this kind of attachment.
            Some(libc::EINVAL) => Ok(None),
            Some(libc::ENOENT) => Ok(Some(Vec::new())),
            _ => Err(error),
        };
    }
    let count = usize::try_from(attributes.count.min(MOST)).unwrap_or_default();
    Ok(Some(ids.into_iter().take(count).collect()))
}
