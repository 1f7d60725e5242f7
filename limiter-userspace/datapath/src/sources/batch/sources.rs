//! Reads the source maps, many entries at a time.
//!
//! A batch consists of whole hash buckets, and the kernel's token is the number of the next bucket.
//! So insertions and removals move no other entries: an entry that stays in the map for a whole
//! sweep is read exactly once.

use std::io;

use aya::maps::{MapData, MapError};
use aya::sys::SyscallError;
use bytemuck::Pod;
use limiter_common::bucket::Word;
use limiter_common::bucket_key::BucketKey;
use limiter_common::source::Source;
use limiter_common::wire::{Bucket, EntryKind, KeyName, KeyedBucket, KeyedEntry, TableKey, map};

use super::{Elements, call};
use crate::{DatapathError, PinDir};

/// Largest number of entries in one hash bucket before a sweep gives up: far more than any bucket
/// has, because there are at least as many buckets as entries.
const MOST_IN_A_BUCKET: usize = 1 << 20;

/// Progress of a sweep over all sources: first IPv4, then IPv6, then a keyed table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    stage: Stage,
    /// The id of the keyed table, if there is one.
    table: Option<u32>,
    /// The kernel's token, or the data path's own count; `None` at the beginning of a map.
    token: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    V4,
    V6,
    Keyed,
    Done,
}

impl Sweep {
    /// A sweep that ends with the keys of the keyed table of this id, whose keys are sources.
    pub fn with_keyed(table: Option<u32>) -> Self {
        Self { table, ..Self::default() }
    }

    /// The id of the keyed table that is read last, if there is one.
    pub const fn table(&self) -> Option<u32> {
        self.table
    }

    /// The map to read next, and where; `None` at the end.
    pub const fn place(&self) -> Option<(EntryKind, Option<u32>)> {
        match self.stage {
            Stage::V4 => Some((EntryKind::V4, self.token)),
            Stage::V6 => Some((EntryKind::V6, self.token)),
            Stage::Keyed => Some((EntryKind::Keyed, self.token)),
            Stage::Done => None,
        }
    }

    /// True if everything has been read.
    pub const fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    /// Continues at `token`; `None` ends the map and moves on to the next.
    pub const fn go_on(&mut self, token: Option<u32>) {
        if token.is_none() {
            self.stage = match self.stage {
                Stage::V4 => Stage::V6,
                Stage::V6 if self.table.is_some() => Stage::Keyed,
                Stage::V6 | Stage::Keyed | Stage::Done => Stage::Done,
            };
        }
        self.token = token;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// So many entries were read, and more follow.
    More(usize),
    /// So many entries were read, the last ones.
    Last(usize),
    /// No entry was read: the next hash bucket does not fit.
    TooSmall,
}

/// Entries of a map, and where to continue.
pub(crate) type Slice<K, V> = (Vec<(K, V)>, Option<u32>);

/// Handles on the hash maps of sources and of compact keys for reading in batches.
pub(crate) struct SourceMaps {
    v4: MapData,
    v6: MapData,
    compact: MapData,
}

impl SourceMaps {
    pub(crate) fn open(pins: &PinDir) -> Result<Self, DatapathError> {
        let open = |name| MapData::from_pin(pins.map(name)).map_err(DatapathError::map(name));
        Ok(Self {
            v4: open(map::SOURCES_V4)?,
            v6: open(map::SOURCES_V6)?,
            compact: open(map::NARROW)?,
        })
    }

    /// Reads about `most` entries of a kind. Returns them and where to continue. Entries about to
    /// be removed are left out, so the result may be empty before the end.
    pub(crate) fn read(
        &self,
        (kind, from): (EntryKind, Option<u32>),
        most: usize,
    ) -> Result<Slice<BucketKey, Bucket>, DatapathError> {
        match kind {
            EntryKind::V4 => {
                read_map((&self.v4, map::SOURCES_V4), from, most, |key| Source::V4(key).into())
            }
            EntryKind::V6 => {
                read_map((&self.v6, map::SOURCES_V6), from, most, |key| Source::V6(key).into())
            }
            EntryKind::Compact | EntryKind::Keyed => {
                read_map((&self.compact, map::NARROW), from, most, BucketKey::compact)
            }
        }
    }
}

/// Reads on in one map.
fn read_map<K: Pod>(
    (map, name): (&MapData, &'static str),
    from: Option<u32>,
    most: usize,
    bucket_key: impl Fn(K) -> BucketKey,
) -> Result<Slice<BucketKey, Bucket>, DatapathError> {
    let (entries, next) = batch::<K, Bucket>(map, from, most).map_err(failed(name))?;
    let there = entries.filter(|(_, bucket)| is_there(bucket));
    Ok((there.map(|(key, bucket)| (bucket_key(key), bucket)).collect(), next))
}

/// A handle on the hash map of keyed tables, for reading the sources among its keys in batches.
pub(crate) struct KeyedMap(MapData);

impl KeyedMap {
    pub(crate) fn open(pins: &PinDir) -> Result<Self, DatapathError> {
        MapData::from_pin(pins.map(map::KEYED)).map(Self).map_err(DatapathError::map(map::KEYED))
    }

    /// Reads about `most` keys, and returns those of the sweep's table, each as [`of_key`] converts
    /// it.
    pub(crate) fn read(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        let Some((_, from)) = sweep.place() else {
            return Ok(Vec::new());
        };
        let (entries, next) = self.keys(from, most)?;
        sweep.go_on(next);
        let mine = entries.iter().filter(|(key, _)| Some(key.table) == sweep.table);
        Ok(mine.map(|(key, bucket)| of_key(key, bucket)).collect())
    }

    /// Reads about `most` keys of all tables. Returns them and where to continue.
    pub(crate) fn keys(
        &self,
        from: Option<u32>,
        most: usize,
    ) -> Result<Slice<TableKey, KeyedBucket>, DatapathError> {
        let read = batch::<KeyName, KeyedEntry>(&self.0, from, most);
        let (entries, next) = read.map_err(failed(map::KEYED))?;
        Ok((entries.map(|(_, KeyedEntry { bucket, key })| (key, bucket)).collect(), next))
    }
}

/// Converts a key into its source, and the parts of its state that a source's bucket has: the
/// counters, the resolved rule, and the word of the first limit.
pub fn of_key(key: &TableKey, bucket: &KeyedBucket) -> (Source, Bucket) {
    let KeyedBucket { resolved, passed, dropped, words: [word, ..], .. } = *bucket;
    let address: [u8; 16] = bytemuck::cast(key.source);
    let [prefix, _]: [[u8; 8]; 2] = bytemuck::cast(address);
    let [.., a, b, c, d] = address;
    let source = if key.version == 4 { Source::V4([a, b, c, d]) } else { Source::V6(prefix) };
    (source, Bucket { word, resolved, passed, dropped })
}

fn failed(map: &'static str) -> impl FnOnce(io::Error) -> DatapathError {
    move |io_error| {
        let source =
            MapError::SyscallError(SyscallError { call: "bpf_map_lookup_batch", io_error });
        DatapathError::Map { map, source }
    }
}

type Entries<K, V> = std::iter::Zip<std::vec::IntoIter<K>, std::vec::IntoIter<V>>;

/// Reads one batch of a map. Returns it and where the next one begins, if there is one.
fn batch<K: Pod, V: Pod>(
    map: &MapData,
    from: Option<u32>,
    most: usize,
) -> io::Result<(Entries<K, V>, Option<u32>)> {
    let mut room = most.clamp(1, MOST_IN_A_BUCKET);
    loop {
        let mut keys = vec![K::zeroed(); room];
        let mut values = vec![V::zeroed(); room];
        let mut token = 0;
        let read = look_up(map, from, &mut token, &mut keys, &mut values)?;
        let (count, next) = match read {
            Read::More(count) => (count, Some(token)),
            Read::Last(count) => (count, None),
            Read::TooSmall if room < MOST_IN_A_BUCKET => {
                room = room.saturating_mul(4).min(MOST_IN_A_BUCKET);
                continue;
            }
            Read::TooSmall => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        };
        keys.truncate(count);
        values.truncate(count);
        return Ok((keys.into_iter().zip(values), next));
    }
}

/// True unless the entry is about to be removed.
fn is_there(bucket: &Bucket) -> bool {
    !Word::from_raw(bucket.word).is_gone()
}

fn look_up<K: Pod, V: Pod>(
    map: &MapData,
    from: Option<u32>,
    next: &mut u32,
    keys: &mut [K],
    values: &mut [V],
) -> io::Result<Read> {
    let room = u32::try_from(keys.len().min(values.len())).unwrap_or(u32::MAX);
    let (count, done) = call(map, room, Elements::LookUp { from, next, keys, values });
    let count = usize::try_from(count).unwrap_or(0);
    match done {
        Ok(()) => Ok(Read::More(count)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(Read::Last(count)),
            Some(libc::ENOSPC) => Ok(Read::TooSmall),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_sweep_goes_through_both_maps_to_its_end() {
        let mut sweep = Sweep::default();
        assert_eq!(sweep.place(), Some((EntryKind::V4, None)));
        sweep.go_on(Some(7));
        assert_eq!(sweep.place(), Some((EntryKind::V4, Some(7))));
        sweep.go_on(None);
        assert_eq!(sweep.place(), Some((EntryKind::V6, None)));
        sweep.go_on(None);
        assert!(sweep.is_done());
        sweep.go_on(None);
        assert_eq!(sweep.place(), None);
    }

    #[test]
    fn a_keyed_table_of_sources_is_read_last() {
        let mut sweep = Sweep::with_keyed(Some(9));
        sweep.go_on(None);
        sweep.go_on(None);
        assert_eq!((sweep.place(), sweep.table()), (Some((EntryKind::Keyed, None)), Some(9)));
        sweep.go_on(None);
        assert!(sweep.is_done());
    }

    #[test]
    fn what_is_leaving_is_no_source() {
        let there = Bucket { word: 0, ..Bucket::default() };
        assert!(is_there(&there));
        assert!(!is_there(&Bucket { word: Word::GONE.raw(), ..there }));
    }
}
