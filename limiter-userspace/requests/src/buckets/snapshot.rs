//! Buckets in a file, so that a restart grants nothing.
//!
//! A snapshot has the secret of the keys, the limits in use as they were written, and the words of
//! all keys of which something is used, behind a head and before a digest of it all. Its moment is
//! one of the clock since boot, as the words have it:
//!
//! * on the same clock they mean what they meant, whatever was done to the wall clock;
//! * on another one, after a reboot, what was used counts as used when that boot began. That is the
//!   earliest it can be: how long the machine was off only the wall clock could say, which may have
//!   been set;
//! * if it is not known which clock it is, what was used counts as used now.
//!
//! Fixed windows are of the wall clock, and keep their numbers.

use std::fmt;
use std::hash::Hasher as _;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use limiter_common::time::Ticks;
use limiter_common::wire::Count;
use limiter_rules::file::requests::{Calendar, RequestLimit};
use limiter_rules::model::{Meter, Period, Quota, Unit};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::buckets::arithmetic::Limits;
use crate::buckets::key::{Key, Secret};
use crate::buckets::looks::Looks;
use crate::buckets::store::{LimitsId, Store};
use crate::clock::Moment;

/// The first bytes of every snapshot.
const MAGIC: [u8; 16] = *b"limiter requests";

/// The form of a snapshot, and the meaning of the words in it: another number for any other. The
/// one before had no looks, and so zeros in their place.
const VERSION: u32 = 2;

/// Bytes of the digest at the end.
const DIGEST: u64 = 16;

/// Bytes of the name of a clock.
const MAX_NAME: u64 = 256;

/// Limits of one key: those of a rule.
const MAX_LIMITS: u64 = 4;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file is no snapshot.
    #[error("it is no snapshot of `limiter serve`")]
    Foreign,
    /// Its version is unknown to this build.
    #[error("it has form {0}, and this version of limiter reads form {VERSION}")]
    Version(u32),
    /// Its content is not what was written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// What came of the keys of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that have their buckets again.
    pub keys: u64,
    /// Keys that there was no room for.
    pub no_room: u64,
    /// True if they were on the clock that is running.
    pub same_clock: bool,
}

/// The moment of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Then {
    clock: Option<String>,
    now: Ticks,
}

impl Then {
    /// The moment on this clock at which what was used counts as used; `None` if the clock is the
    /// same.
    fn on(&self, clock: Option<&str>, now: Ticks) -> Option<Ticks> {
        match (self.clock.as_deref(), clock) {
            (Some(then), Some(clock)) if then != clock => Some(Ticks::ZERO),
            // A clock does not go back: a later one is another.
            (Some(_), Some(_)) if self.now <= now => None,
            _ => Some(now),
        }
    }
}

/// Data that is digested while it is written or read.
struct Digesting<T> {
    of: T,
    digest: SipHasher13,
}

impl<T> Digesting<T> {
    fn new(of: T) -> Self {
        Self { of, digest: SipHasher13::new() }
    }

    fn finish(&self) -> [u8; 16] {
        self.digest.finish128().as_bytes()
    }
}

impl<T: Write> Write for Digesting<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.of.write(bytes)?;
        self.digest.write(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.of.flush()
    }
}

/// Writes a snapshot; returns how many keys it has.
pub(crate) fn write(
    to: &mut dyn Write,
    (store, secret): (&Store, &Secret),
    moment: &Moment,
    clock: Option<&str>,
) -> io::Result<u64> {
    let mut to = Digesting::new(to);
    to.write_all(&MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    to.write_all(&secret.bytes())?;
    let clock = clock.unwrap_or_default();
    number(&mut to, length(clock.len()))?;
    to.write_all(clock.as_bytes())?;
    number(&mut to, moment.now.get())?;
    // The wall clock only for the windows that are over.
    let moment = moment.with_wall();
    let mut limits = store.all_limits();
    limits.sort_by_key(|(limits, _)| limits.id);
    number(&mut to, length(limits.len()))?;
    for (limits, brought) in &limits {
        number(&mut to, u64::from(*brought))?;
        let written = limits.limits.written();
        number(&mut to, length(written.len()))?;
        for limit in &written {
            parts(limit).into_iter().try_for_each(|part| number(&mut to, part))?;
        }
    }
    let mut keys = 0;
    // Written when nobody waits for the keys.
    let mut block = Vec::new();
    store.each_shard(|of_shard| {
        let mut count = 0;
        block.clear();
        for (key, words, id, looks) in of_shard {
            let Ok(index) = limits.binary_search_by_key(&id, |(limits, _)| limits.id) else {
                // Limits that a request has just brought: the next snapshot has them.
                continue;
            };
            let Some((known, _)) = limits.get(index) else { continue };
            let waits = looks.are_there(moment.now.as_nanos());
            if !waits && known.limits.is_drained(words, &moment) {
                continue;
            }
            count += 1;
            let [high, low] = key.raw();
            let of = length(index) | u64::from(looks.raw()) << u32::BITS;
            block.extend([high, low, of].map(u64::to_le_bytes).as_flattened());
            for word in words {
                block.extend(word.load(Ordering::Acquire).to_le_bytes());
            }
        }
        keys += count;
        if count > 0 {
            number(&mut to, count)?;
            to.write_all(&block)?;
        }
        Ok::<_, io::Error>(())
    })?;
    number(&mut to, 0)?;
    let digest = to.finish();
    to.of.write_all(&digest)?;
    Ok(keys)
}

/// A snapshot whose digest is right.
pub struct Snapshot<R> {
    from: R,
    secret: Secret,
    then: Then,
    limits: Vec<(Limits, bool)>,
}

impl<R> fmt::Debug for Snapshot<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("then", &self.then).finish_non_exhaustive()
    }
}

impl<R: Read + Seek> Snapshot<R> {
    /// Reads all of a snapshot but its keys.
    ///
    /// # Errors
    ///
    /// Why it cannot be used.
    pub fn open(mut from: R) -> Result<Self, Unusable> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            Ok(()) if magic == MAGIC => {}
            _ => return Err(Unusable::Foreign),
        }
        check_digest(&mut from)?;
        from.seek(SeekFrom::Start(length(MAGIC.len())))?;
        let [version] = array::<1>(&mut from)?.map(u32::from_le_bytes);
        if !(1..=VERSION).contains(&version) {
            return Err(Unusable::Version(version));
        }
        let mut secret = [0; 16];
        from.read_exact(&mut secret)?;
        let mut clock = vec![0; size(read(&mut from)?, MAX_NAME)?];
        from.read_exact(&mut clock)?;
        let clock =
            String::from_utf8(clock).map_err(|_error| Unusable::Damaged("no name of a clock"))?;
        let now = Ticks::new(read(&mut from)?);
        let mut limits = Vec::new();
        for _ in 0..read(&mut from)? {
            let brought = read(&mut from)? != 0;
            let count = size(read(&mut from)?, MAX_LIMITS)?;
            let mut written = Vec::with_capacity(count);
            for _ in 0..count {
                written.push(read_limit(&mut from)?);
            }
            let compiled = Limits::compile(&written);
            limits.push((compiled.map_err(|_error| Unusable::Damaged("no limit"))?, brought));
        }
        let then = Then { clock: Some(clock).filter(|clock| !clock.is_empty()), now };
        Ok(Self { from, secret: Secret::from_bytes(secret), then, limits })
    }

    pub(crate) const fn secret(&self) -> Secret {
        self.secret
    }

    /// Gives keys the buckets that they had.
    pub(crate) fn load(
        mut self,
        store: &Store,
        moment: &Moment,
        clock: Option<&str>,
    ) -> Result<Loaded, Unusable> {
        let from = self.then.on(clock, moment.now);
        let mut known: Vec<Option<LimitsId>> = Vec::with_capacity(self.limits.len());
        let mut loaded = Loaded { same_clock: from.is_none(), ..Loaded::default() };
        let moment = moment.with_wall();
        let now = moment.now.as_nanos();
        loop {
            let count = read(&mut self.from)?;
            if count == 0 {
                return Ok(loaded);
            }
            for _ in 0..count {
                let key = Key::from_raw([read(&mut self.from)?, read(&mut self.from)?]);
                let of = read(&mut self.from)?;
                let index = usize::try_from(of & u64::from(u32::MAX)).unwrap_or(usize::MAX);
                let mut looks = Looks::from_raw(u32::try_from(of >> u32::BITS).unwrap_or_default());
                let (limits, brought) =
                    self.limits.get(index).ok_or(Unusable::Damaged("a key without limits"))?;
                let word = |_| Ok(AtomicU64::new(read(&mut self.from)?));
                let words = (0..limits.words()).map(word);
                let mut words: Box<[AtomicU64]> = words.collect::<Result<_, Unusable>>()?;
                if let Some(from) = from {
                    words = limits.on_another_clock(&words, self.then.now, from);
                    looks = looks.at(now);
                }
                if limits.is_drained(&words, &moment) && !looks.are_there(now) {
                    continue;
                }
                if known.len() <= index {
                    known.resize(index + 1, None);
                }
                let slot = known.get_mut(index).ok_or(Unusable::Damaged("a key without limits"))?;
                if slot.is_none() {
                    *slot = store.of_before(limits, *brought);
                }
                match slot.filter(|id| store.put(key, words, *id, looks)) {
                    Some(_) => loaded.keys += 1,
                    None => loaded.no_room += 1,
                }
            }
        }
    }
}

/// Reads the rest but for the digest, and compares it with that.
fn check_digest(from: &mut (impl Read + Seek)) -> Result<(), Unusable> {
    let begin = from.stream_position()?;
    let end = from.seek(SeekFrom::End(0))?;
    let too_short = Unusable::Damaged("its end is missing");
    let Some(content) = end.checked_sub(DIGEST).filter(|content| *content > begin) else {
        return Err(too_short);
    };
    from.seek(SeekFrom::Start(0))?;
    let mut digesting = Digesting::new(io::sink());
    io::copy(&mut from.by_ref().take(content), &mut digesting)?;
    let mut digest = [0; 16];
    from.read_exact(&mut digest)?;
    if digest == digesting.finish() {
        Ok(())
    } else {
        Err(Unusable::Damaged("its digest is of other content"))
    }
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn number(to: &mut impl Write, number: u64) -> io::Result<()> {
    to.write_all(&number.to_le_bytes())
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[[u8; 4]; N]> {
    let mut bytes = [[0; 4]; N];
    from.read_exact(bytes.as_flattened_mut())?;
    Ok(bytes)
}

fn read(from: &mut impl Read) -> Result<u64, Unusable> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A number of things, at most `most`.
fn size(number: u64, most: u64) -> Result<usize, Unusable> {
    let size = usize::try_from(number).ok().filter(|_| number <= most);
    size.ok_or(Unusable::Damaged("a number is too large"))
}

/// Beside the number of the algorithm: the limit is soft.
const SOFT: u64 = 1 << 8;

/// A limit in numbers: what it is, how many, the unit of time and how often, and what else its
/// algorithm has.
pub(crate) fn parts(limit: &RequestLimit) -> [u64; 6] {
    let Quota { requests_per_unit, period, .. } = limit.meter.quota();
    let (algorithm, more) = match limit.meter {
        Meter::TokenBucket(rate) => (0, rate.burst),
        Meter::LeakyBucket { backlog, .. } => {
            (1, u64::try_from(backlog.as_nanos()).unwrap_or(u64::MAX))
        }
        Meter::FixedWindow(_) => (2, 0),
        Meter::SlidingLog(_) => (3, 0),
        Meter::SlidingCounter(_) => (4, 0),
        Meter::SlidingSlots { slots, strict: false, .. } => (5, slots.into()),
        Meter::SlidingSlots { slots, strict: true, .. } => (6, slots.into()),
    };
    let months = limit.calendar.map_or(0, |calendar| calendar.months);
    let unit = period.unit.seconds();
    let algorithm = algorithm | if limit.is_soft { SOFT } else { 0 };
    [algorithm, requests_per_unit, unit, period.multiplier.into(), more, months.into()]
}

fn read_limit(from: &mut impl Read) -> Result<RequestLimit, Unusable> {
    let mut next = || read(from);
    let (algorithm, requests_per_unit, unit, multiplier) = (next()?, next()?, next()?, next()?);
    let (more, months) = (next()?, next()?);
    let wrong = || Unusable::Damaged("no limit");
    let unit = Unit::ALL.into_iter().find(|known| known.seconds() == unit).ok_or_else(wrong)?;
    let most = Period::most(unit);
    let multiplier =
        u32::try_from(multiplier).ok().filter(|of| (1..=most).contains(&u64::from(*of)));
    let period = Period { unit, multiplier: multiplier.ok_or_else(wrong)? };
    let quota = Quota::new(Count::Packets, requests_per_unit, period);
    let slots = || u8::try_from(more).map_err(|_error| wrong());
    let meter = match algorithm & !SOFT {
        0 => Meter::TokenBucket(quota.with_burst(more)),
        1 => Meter::LeakyBucket { quota, backlog: Duration::from_nanos(more) },
        2 => Meter::FixedWindow(quota),
        3 => Meter::SlidingLog(quota),
        4 => Meter::SlidingCounter(quota),
        5 => Meter::SlidingSlots { quota, slots: slots()?, strict: false },
        6 => Meter::SlidingSlots { quota, slots: slots()?, strict: true },
        _ => return Err(wrong()),
    };
    let calendar = match months {
        0 => None,
        1 | 2 | 3 | 4 | 6 | 12 => u8::try_from(months).ok().map(|months| Calendar { months }),
        _ => return Err(wrong()),
    };
    Ok(RequestLimit { meter, calendar, is_soft: algorithm & SOFT != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::arithmetic::Places;

    fn then(clock: Option<&str>) -> Then {
        Then { clock: clock.map(str::to_owned), now: Ticks::new(100) }
    }

    #[test]
    fn what_was_used_counts_from_the_earliest_moment_that_is_certain() {
        let later = Ticks::new(150);
        assert_eq!(then(Some("a")).on(Some("a"), later), None);
        assert_eq!(then(Some("a")).on(Some("b"), later), Some(Ticks::ZERO));
        // Not known, or a clock of this name that is not the same one.
        for clock in [None, Some("a")] {
            assert_eq!(then(None).on(clock, later), Some(later));
        }
        assert_eq!(then(Some("a")).on(None, later), Some(later));
        assert_eq!(then(Some("a")).on(Some("a"), Ticks::new(99)), Some(Ticks::new(99)));
    }

    #[test]
    fn limits_are_read_as_they_were_written() {
        let period = Period { unit: Unit::Hour, multiplier: 5 };
        let quota = Quota::new(Count::Packets, 1 << 40, period);
        let months = Quota::new(Count::Packets, 9, Period { unit: Unit::Day, multiplier: 93 });
        let mut meters = vec![
            Meter::TokenBucket(quota.with_burst(7)),
            Meter::LeakyBucket { quota, backlog: Duration::from_nanos(1_234_567_891) },
            Meter::FixedWindow(quota),
            Meter::SlidingLog(quota),
            Meter::SlidingCounter(quota),
        ];
        for strict in [false, true] {
            meters.push(Meter::SlidingSlots { quota, slots: 4, strict });
        }
        let soft = RequestLimit { is_soft: true, ..RequestLimit::hard(meters[0]) };
        let plain = meters.into_iter().map(RequestLimit::hard);
        let calendar = Some(Calendar { months: 3 });
        let months = RequestLimit { calendar, ..RequestLimit::hard(Meter::FixedWindow(months)) };
        let all = plain.chain([months, soft]);
        for limit in all {
            let bytes = parts(&limit).map(u64::to_le_bytes);
            assert_eq!(read_limit(&mut bytes.as_flattened()).unwrap(), limit);
        }
    }

    /// A snapshot of another form, of which the digest is right.
    #[test]
    fn another_form_is_named() {
        let mut to = Digesting::new(Vec::new());
        to.write_all(&MAGIC).unwrap();
        to.write_all(&3_u32.to_le_bytes()).unwrap();
        to.write_all(&[0; 64]).unwrap();
        let digest = to.finish();
        to.of.extend(digest);
        let error = Snapshot::open(io::Cursor::new(to.of)).unwrap_err();
        assert!(matches!(error, Unusable::Version(3)), "{error}");
    }

    /// If this fails, words have another meaning than in snapshots that are there: give them
    /// another [`VERSION`], and this test the new words.
    #[test]
    fn words_mean_what_they_meant_in_this_form() {
        let period = Period::one(Unit::Minute);
        let quota = Quota::new(Count::Packets, 3, period);
        let backlog = Duration::from_secs(40);
        let slots = |strict| Meter::SlidingSlots { quota, slots: 4, strict };
        let meters = [
            Meter::TokenBucket(quota.with_burst(3)),
            Meter::LeakyBucket { quota, backlog },
            Meter::FixedWindow(quota),
            Meter::SlidingLog(quota),
            Meter::SlidingCounter(quota),
            slots(false),
            slots(true),
        ];
        let all = meters.map(|meter| {
            let limits = Limits::compile(&[RequestLimit::hard(meter)]).unwrap();
            let words: Vec<_> = (0..limits.words()).map(|_| AtomicU64::new(0)).collect();
            for second in [100, 101] {
                let nanos = |seconds: u64| seconds * 1_000_000_000;
                let moment = Moment::of_nanos(nanos(second), nanos(1_793_577_600 + second));
                limits.charge(Places::ALL, &words, &moment, (1, 0)).unwrap();
            }
            let words = words.into_iter().map(AtomicU64::into_inner);
            words.map(|word| format!("{word:x}")).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(all, WORDS_OF_FORM_1);
    }

    const WORDS_OF_FORM_1: [&str; 7] = [
        "826299e0000",
        "826299e0000",
        "f3cf820000000004",
        "4 5d21dba0002 5e1046c8002 0",
        "0 20000000004",
        "0 0 30000000004 0",
        "0 50000000004 0 0",
    ];
}
