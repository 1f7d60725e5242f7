//! Arrays taken apart and put together.
//!
//! A part that would not fit does not compile. Arrays move as a whole: byte by byte, each would
//! take a register of its own in BPF, of which there are ten.

/// The `N` bytes from `AT` on.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn part<const AT: usize, const N: usize, const OF: usize>(bytes: &[u8; OF]) -> [u8; N] {
    const { assert!(AT + N <= OF, "a part is inside") };
    match bytes.get(AT..).and_then(|rest| rest.first_chunk()) {
        Some(part) => *part,
        // Not reached: the assertion above has it inside.
        None => [0; N],
    }
}

/// One array behind the other.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(super) fn join<const A: usize, const B: usize, const N: usize>(
    first: &[u8; A],
    second: &[u8; B],
) -> [u8; N] {
    const { assert!(A + B == N, "nothing is left out, and nothing stays zero") };
    let mut joined = [0; N];
    if let Some((start, rest)) = joined.split_first_chunk_mut() {
        *start = *first;
        if let Some(end) = rest.first_chunk_mut() {
            *end = *second;
        }
    }
    joined
}
