//! Sources by address, and by their keys in the maps.

use std::net::IpAddr;

use limiter_common::source::Source;

/// The source to which packets from an address are charged.
pub fn key(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(v4) => Source::V4(v4.octets()),
        IpAddr::V6(v6) => {
            let [prefix, _host]: [[u8; 8]; 2] = bytemuck::cast(v6.octets());
            Source::V6(prefix)
        }
    }
}

/// The source of a key in the trie.
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
pub(crate) const fn of_key(key: [u8; 16]) -> Source {
    match key {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Source::V4([a, b, c, d]),
        [a, b, c, d, e, f, g, h, ..] => Source::V6([a, b, c, d, e, f, g, h]),
    }
}
