//! An XDP program that is not limiter's, for tests of what limiter does about it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// `BPF_PROG_LOAD` and `BPF_OBJ_PIN` of `linux/bpf.h`.
const PROG_LOAD: libc::c_int = 5;
const OBJ_PIN: libc::c_int = 6;
const PROG_TYPE_XDP: u32 = 6;

/// `r0 = 2 (XDP_PASS); exit`
const PASS: [u64; 2] = [0x0000_0002_0000_00b7, 0x0000_0000_0000_0095];

/// The part of `union bpf_attr` for `BPF_PROG_LOAD` up to `prog_name`.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The part of `union bpf_attr` for `BPF_OBJ_PIN`.
#[repr(C)]
struct Pin {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Loads a program named `foreign` that passes everything, and pins it at `path` on a BPF file
/// system, from where `ip link set dev X xdp pinned PATH` takes it.
///
/// # Errors
///
/// Without root, or when `path` is not on a BPF file system.
pub fn pin_pass_program(path: &Path) -> Result<()> {
    let license = c"Dual MIT/GPL";
    let mut name = [0; 16];
    name[..7].copy_from_slice(b"foreign");
    let load = Load {
        kind: PROG_TYPE_XDP,
        instructions: u32::try_from(PASS.len())?,
        code: PASS.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
    };
    // SAFETY: the instructions and the licence live until the call returns.
    let program = unsafe { bpf(PROG_LOAD, &load) }.context("cannot load a program: run as root")?;
    // SAFETY: a successful BPF_PROG_LOAD returns a descriptor that nobody else has.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let target = CString::new(path.as_os_str().as_bytes())?;
    let fd = program.as_raw_fd().cast_unsigned();
    let pin = Pin { path: target.as_ptr() as u64, fd, flags: 0 };
    // SAFETY: the path and the descriptor live until the call returns.
    unsafe { bpf(OBJ_PIN, &pin) }.with_context(|| format!("cannot pin {}", path.display()))?;
    Ok(())
}

/// The system call `bpf`.
///
/// # Safety
///
/// What the attributes point at must be valid for the command.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<i32> {
    // SAFETY: the pointer and the size describe `attributes`, the kernel copies from there only.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>())
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
