//! The memory of a key, and of its name.

use core::cell::Cell;

use limiter_common::wire::{KeyName, TableKey};

/// A key in the memory of the current packet, with the name by which its bucket is looked up. On
/// the host, buckets are looked up by the keys themselves, and names are unused.
#[derive(Debug)]
#[repr(C)]
pub struct KeyCell {
    key: Cell<TableKey>,
    name: Cell<KeyName>,
}

impl KeyCell {
    /// Memory with a key that has no name yet.
    #[cfg(not(target_arch = "bpf"))]
    pub fn new(key: TableKey) -> Self {
        Self { key: Cell::new(key), name: Cell::default() }
    }

    /// A copy of the key.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn get(&self) -> TableKey {
        self.key.get()
    }

    /// Replaces the key and its name ([`crate::maps::Maps::key_name`]).
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn set(&self, key: TableKey, name: impl FnOnce(&TableKey) -> KeyName) {
        self.key.set(key);
        self.name.set(name(&key));
    }

    /// Replaces only the name: [`KeyCell::get`] then returns another key.
    #[cfg(target_arch = "bpf")]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn set_name(&self, name: KeyName) {
        self.name.set(name);
    }

    /// The key in place.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn key(&self) -> &Cell<TableKey> {
        &self.key
    }

    /// The name in place.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn name(&self) -> &Cell<KeyName> {
        &self.name
    }
}
