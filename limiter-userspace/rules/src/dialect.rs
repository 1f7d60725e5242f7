//! The two dialects of the rule language.

use std::cell::Cell;

/// What rules are about. The dialects share their fields, except those that the table of fields
/// gives to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Rules for packets, which the daemon enforces.
    #[default]
    Packets,
    /// Rules for requests, which `limiter serve` answers by.
    Requests,
}

thread_local! {
    /// Dialect of the file that this thread reads or describes: serde and schemars pass no context
    /// down.
    static CURRENT: Cell<Dialect> = const { Cell::new(Dialect::Packets) };
}

impl Dialect {
    /// The noun for one counted unit.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Packets => "packet",
            Self::Requests => "request",
        }
    }

    /// The noun for many, in place of `packets`; other units keep their name.
    pub(crate) fn units(self, unit: &'static str) -> &'static str {
        match self {
            Self::Requests if unit == "packets" => "requests",
            _ => unit,
        }
    }

    /// Reads or describes something in this dialect.
    pub(crate) fn within<T>(self, act: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(self);
        let result = act();
        CURRENT.set(before);
        result
    }

    /// The dialect of what is read or described.
    pub(crate) fn current() -> Self {
        CURRENT.get()
    }
}

/// What rates count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub(crate) dialect: Dialect,
    /// The largest frame of the interfaces in bytes.
    pub(crate) max_frame: u64,
}

impl Units {
    /// Requests, which have no length.
    pub(crate) const REQUESTS: Self = Self { dialect: Dialect::Requests, max_frame: 1 };
}
