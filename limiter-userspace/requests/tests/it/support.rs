//! A limiter with a clock of the test.

use limiter_requests::{Answer, Asked, Descriptor, Detail, Limiter, Moment};
use limiter_rules::file::requests::RequestFile;
use smallvec::{SmallVec, smallvec};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// Monday, 2 November 2026, 00:00 UTC.
pub(crate) const MONDAY: u64 = 1_793_577_600 * SECOND;

/// A moment so many nanoseconds after [`MONDAY`], on a machine that booted an hour before.
pub(crate) fn at(nanos: u64) -> Moment {
    Moment::of_nanos(3600 * SECOND + nanos, MONDAY + nanos)
}

pub(crate) fn file(text: &str) -> RequestFile {
    let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
    assert!(errors.is_empty(), "{text}\n{errors:?}");
    file
}

/// A limiter with the rules of a file, and room for so many keys.
pub(crate) fn limiter(text: &str, keys: usize) -> Limiter {
    let limiter = Limiter::new(keys).unwrap();
    limiter.apply(&[("r.yaml".to_owned(), file(text))], &at(0)).unwrap();
    limiter
}

/// A limiter with one rule for each value of `k`.
pub(crate) fn with_limit(limit: &str) -> Limiter {
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]\n");
    limiter(&text, 1000)
}

/// `a=b c=d` is one descriptor of two entries.
pub(crate) fn descriptors<'a>(texts: &[&'a str]) -> SmallVec<[Descriptor<'a>; 1]> {
    let entry = |entry: &'a str| entry.split_once('=').unwrap();
    let one = |text: &&'a str| Descriptor {
        entries: text.split(' ').map(entry).collect(),
        ..Descriptor::default()
    };
    texts.iter().map(one).collect()
}

/// Asks the domain `d` about descriptors.
pub(crate) fn ask(limiter: &Limiter, texts: &[&str], hits: u64, nanos: u64) -> Answer {
    ask_at(limiter, texts, hits, &at(nanos))
}

/// [`ask`] at a moment of both clocks.
pub(crate) fn ask_at(limiter: &Limiter, texts: &[&str], hits: u64, moment: &Moment) -> Answer {
    // One hit is the default.
    let hits = if hits == 1 { 0 } else { hits };
    let asked = Asked { domain: "d", descriptors: descriptors(texts), hits };
    limiter.decide(&limiter.rules(), &asked, moment, Detail::Left).unwrap()
}

/// A look at what is left for one descriptor.
pub(crate) fn look(limiter: &Limiter, text: &str, nanos: u64) -> Answer {
    let descriptor = Descriptor { hits: Some(0), ..descriptors(&[text])[0].clone() };
    let asked = Asked { domain: "d", descriptors: smallvec![descriptor], hits: 0 };
    limiter.decide(&limiter.rules(), &asked, &at(nanos), Detail::Left).unwrap()
}

/// Whether a request passes.
pub(crate) fn passes(limiter: &Limiter, texts: &[&str], nanos: u64) -> bool {
    !ask(limiter, texts, 1, nanos).over
}
