//! Random numbers that need not be secret: seeded by the system once per thread.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

pub(super) fn number() -> u64 {
    RandomState::new().build_hasher().finish()
}
