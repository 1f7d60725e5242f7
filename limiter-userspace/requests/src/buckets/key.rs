//! The key of a bucket: a hash under a secret of this process, and of those that go on with its
//! buckets.
//!
//! 128 bits take the place of values of any length, so that a key costs the same whatever a request
//! says. Nobody outside knows the secret, so nobody can make two values that share a bucket; of a
//! million keys two are the same by chance once in 10^27 times.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};
use ring::digest::{Context, Digest, SHA256};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// The secret of a process. Those who know it can make values that share a bucket.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u8; 16]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Self(bytes))
    }

    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// The key of a further bucket of something that has the key `of`.
    pub(crate) fn other(&self, of: Key) -> Key {
        let mut key = self.begin_with(of);
        key.text("other");
        key.end()
    }

    /// A key that parts are added to.
    pub(crate) fn begin(&self) -> Begun {
        Begun(SipHasher13::new_with_key(&self.0))
    }

    /// A key that begins with another one.
    pub(crate) fn begin_with(&self, of: Key) -> Begun {
        let mut key = self.begin();
        key.key(of);
        key
    }
}

/// A key that is not whole yet. Like the secret, it is shown to nobody.
#[derive(Clone)]
pub(crate) struct Begun(SipHasher13);

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun")
    }
}

impl Begun {
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        // The length as well, so that no two lists of texts are the same.
        self.0.write_usize(bytes.len());
        self.0.write(bytes);
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.0.write_u64(number);
    }

    pub(crate) fn key(&mut self, Key([high, low]): Key) {
        self.0.write_u64(high);
        self.0.write_u64(low);
    }

    pub(crate) fn end(self) -> Key {
        let hash = self.0.finish128();
        Key([hash.h1, hash.h2])
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _: fmt::Result = write!(text, "{byte:02x}");
    }
    text
}

/// A digest of texts that is the same on all nodes, and for which nobody finds two lists of texts.
pub(crate) fn digest(first: &[&str], rest: impl Iterator<Item: AsRef<str>>) -> Digest {
    let mut digest = Context::new(&SHA256);
    let mut add = |text: &str| {
        digest.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        digest.update(text.as_bytes());
    };
    first.iter().copied().for_each(&mut add);
    rest.for_each(|text| add(text.as_ref()));
    digest.finish()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key([u64; 2]);

impl Key {
    pub(crate) const fn from_raw(raw: [u64; 2]) -> Self {
        Self(raw)
    }

    pub(crate) const fn raw(self) -> [u64; 2] {
        self.0
    }

    /// A number below `of`, which is a power of two.
    pub(crate) fn shard(self, of: usize) -> usize {
        let Self([high, _]) = self;
        usize::try_from(high >> 32).unwrap_or_default() & of.saturating_sub(1)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([high, low]) = self;
        write!(f, "{high:016x}{low:016x}")
    }
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self([_, low]) = self;
        state.write_u64(*low);
    }
}

/// Keys are hashes already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AsItIs;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken(u64);

impl BuildHasher for AsItIs {
    type Hasher = Taken;

    fn build_hasher(&self) -> Taken {
        Taken(0)
    }
}

impl Hasher for Taken {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The address that a proxy names, possibly with a port, in brackets or with a zone. The port is
/// ignored: it differs for each connection of one source.
fn address(value: &str) -> Option<IpAddr> {
    if let Ok(address) = value.parse() {
        return Some(address);
    }
    if let Ok(with_port) = value.parse::<SocketAddr>() {
        return Some(with_port.ip());
    }
    let bare = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(value);
    let (before, _zone) = bare.split_once('%').unwrap_or((bare, ""));
    before.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// The source that a value of `remote_address` is: an IPv4 address, or an IPv6 /64.
pub(crate) fn source(value: &str) -> Option<IpNet> {
    match address(value)? {
        IpAddr::V4(address) => Some(IpNet::from(IpAddr::V4(address))),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => Some(IpNet::from(IpAddr::V4(mapped))),
            None => Ipv6Net::new(address, 64).ok().map(|net| IpNet::V6(net.trunc())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Snapshots have keys, so that they are the same in all versions.
    #[test]
    fn a_key_that_was_begun_earlier_is_the_hash_of_the_whole() {
        let bytes = std::array::from_fn(|index| u8::try_from(7 * index).unwrap());
        let secret = Secret::from_bytes(bytes);
        let begun = secret.begin_with(Key::from_raw([1, 2]));
        for text in ["", "a", "user-00000001", "a text of more than one block of the hash"] {
            let length = u64::try_from(text.len()).unwrap();
            let mut whole = [1, 2, length].map(u64::to_le_bytes).concat();
            whole.extend_from_slice(text.as_bytes());
            let hash = SipHasher13::new_with_key(&secret.bytes()).hash(&whole);
            let mut key = begun.clone();
            key.text(text);
            assert_eq!(key.end().raw(), [hash.h1, hash.h2], "{text}");
        }
        assert_eq!(format!("{begun:?} {secret:?}"), "Begun Secret");
    }

    /// In each spelling in which proxies name a client.
    #[test]
    fn a_source_is_an_address_without_its_port() {
        for value in ["192.0.2.7", "192.0.2.7:51234", "::ffff:192.0.2.7", "[::ffff:192.0.2.7]:5"] {
            assert_eq!(source(value), Some("192.0.2.7/32".parse().unwrap()), "{value}");
        }
        for value in ["2001:db8::7", "[2001:db8::8]", "[2001:db8::7]:443", "2001:DB8::9%eth0"] {
            assert_eq!(source(value), Some("2001:db8::/64".parse().unwrap()), "{value}");
        }
        for value in ["", "unknown", "192.0.2.7, 10.0.0.1", "[192.0.2.7]x", "192.0.2.7:x", "%1"] {
            assert_eq!(source(value), None, "{value}");
        }
    }
}
