//! The kinds of tables that can hold the buckets of sources.

use std::env::consts::ARCH;

/// Store of the buckets of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceTable {
    /// Hash maps of the kernel.
    #[default]
    Hash,
    /// Lines of an array: [`limiter_decision::line`].
    Lines,
}

impl SourceTable {
    /// Store for new maps if none is named.
    pub fn auto() -> Self {
        Self::auto_on(ARCH)
    }

    /// Store for a processor: lines where a kernel was seen to accept and run their program.
    fn auto_on(arch: &str) -> Self {
        if matches!(arch, "x86_64" | "aarch64") { Self::Lines } else { Self::Hash }
    }

    /// Name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Lines => "lines",
        }
    }

    /// Description for a message.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Hash => "hash maps",
            Self::Lines => "lines",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_lines_where_their_program_was_run() {
        let chosen = ["x86_64", "aarch64", "riscv64", "s390x"].map(SourceTable::auto_on);
        let (lines, hash) = (SourceTable::Lines, SourceTable::Hash);
        assert_eq!(chosen, [lines, lines, hash, hash]);
    }
}
