//! The bucket of a source, in either store of them: a hash map, or lines.

use crate::line::{Line, LineBucket};
use crate::maps::Maps;

/// The bucket of a source, as an implementation of [`Maps`] stores it.
pub type StoredIn<W> = Stored<<W as Maps>::Hashed, <W as Maps>::Line>;

/// The bucket of a source, in either store.
#[derive(Clone)]
pub enum Stored<H, L: Line> {
    /// A value of a hash map.
    Hashed(H),
    /// A way of a line.
    Lined(LineBucket<L>),
}

/// Does the same to a bucket in either store, with separate code for each: so the verifier removes
/// one of them from the XDP program, and the compiler reserves no space for both.
macro_rules! either {
    ($stored:expr, $bucket:ident => $done:expr) => {
        match $stored {
            $crate::stored::Stored::Hashed($bucket) => $done,
            $crate::stored::Stored::Lined($bucket) => $done,
        }
    };
}

pub(crate) use either;
