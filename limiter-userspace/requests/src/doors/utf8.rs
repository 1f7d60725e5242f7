//! Text that is not UTF-8. A header may hold any bytes, and proxies forward them. Readers of
//! protocol buffers and JSON reject the whole message for one such text, and the proxy then lets
//! the request pass all of its limits. Here each byte that belongs to no character is replaced by
//! `?`, and the message is decided.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame};

use crate::doors::under_way::Received;
use crate::reports::odd::Odd;
use crate::service::Service;

/// The longest message that is examined; its reader rejects a longer one.
const MAX_MESSAGE: usize = 1 << 20;

/// The prefix of a gRPC message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// The texts of a message of protocol buffers: fields that are texts, and fields that are messages.
pub(crate) struct Shape {
    texts: &'static [u64],
    messages: &'static [(u64, &'static Self)],
}

const ENTRY: Shape = Shape { texts: &[1, 2], messages: &[] };

/// `envoy.service.ratelimit.v3.RateLimitRequest`: the domain, and the entries of descriptors.
pub(crate) const REQUEST: Shape =
    Shape { texts: &[1], messages: &[(2, &Shape { texts: &[], messages: &[(1, &ENTRY)] })] };

/// `envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports`: the domain, and the entries of
/// buckets.
pub(crate) const REPORTS: Shape = Shape {
    texts: &[1],
    messages: &[(
        2,
        &Shape { texts: &[], messages: &[(1, &Shape { texts: &[], messages: &[(1, &ENTRY)] })] },
    )],
};

/// A number of the wire format and the bytes behind it.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f).checked_shl(u32::try_from(7 * index).ok()?)?;
        value |= bits;
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Calls `each` with the place of each text of a message. Ends at what is no message: its reader
/// says so.
fn texts(bytes: &[u8], begin: usize, shape: &Shape, each: &mut impl FnMut(Range<usize>)) {
    let mut at = 0;
    while let Some((key, length)) = bytes.get(at..).and_then(varint) {
        at += length;
        let rest = bytes.get(at..).unwrap_or_default();
        let (skip, content) = match key & 7 {
            0 => (varint(rest).map(|(_, length)| length), 0),
            1 => (Some(8), 0),
            2 => match varint(rest) {
                Some((content, length)) => (Some(length), usize::try_from(content).unwrap_or(0)),
                None => (None, 0),
            },
            5 => (Some(4), 0),
            _ => (None, 0),
        };
        let Some(skip) = skip else { return };
        let Some(inside) = rest.get(skip..).and_then(|rest| rest.get(..content)) else { return };
        let place = begin + at + skip;
        let field = key >> 3;
        if key & 7 == 2 {
            if shape.texts.contains(&field) {
                each(place..place + content);
            } else if let Some((_, shape)) = shape.messages.iter().find(|(of, _)| *of == field) {
                texts(inside, place, shape, each);
            }
        }
        at += skip + content;
    }
}

/// Writes `?` in the place of each byte that belongs to no character.
fn mend(text: &mut [u8]) {
    let mut at = 0;
    while let Some(Err(error)) = text.get(at..).map(std::str::from_utf8) {
        let from = at + error.valid_up_to();
        let to = error.error_len().map_or(text.len(), |length| from + length);
        text.get_mut(from..to).unwrap_or_default().fill(b'?');
        at = to;
    }
}

/// A text with `?` in the place of each byte that belongs to no character.
pub(crate) fn in_place(bytes: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    mend(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whole messages of gRPC, with texts in UTF-8; true if some were not.
fn mended(bytes: Bytes, shape: &Shape) -> (Bytes, bool) {
    let mut wrong = Vec::new();
    let mut at = 0;
    while let Some((message, length)) = message(&bytes, at) {
        // A compressed one is refused by its reader.
        if bytes.get(at) == Some(&0) {
            texts(message, at + HEAD, shape, &mut |place| {
                if bytes.get(place.clone()).is_some_and(|text| std::str::from_utf8(text).is_err()) {
                    wrong.push(place);
                }
            });
        }
        at += HEAD + length;
    }
    if wrong.is_empty() {
        return (bytes, false);
    }
    let mut all = bytes.to_vec();
    for place in wrong {
        mend(all.get_mut(place).unwrap_or_default());
    }
    (all.into(), true)
}

/// The message that begins at a place, and its length; none if not all of it is there.
fn message(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let head = bytes.get(at..)?.get(..HEAD)?;
    let length = head.get(1..)?.iter().fold(0_usize, |all, byte| all << 8 | usize::from(*byte));
    Some((bytes.get(at + HEAD..)?.get(..length)?, length))
}

/// Messages of gRPC, whose texts are UTF-8.
pub(crate) struct Mended {
    inner: Received,
    shape: &'static Shape,
    service: Arc<Service>,
    /// The beginning of an incomplete message.
    begun: Vec<u8>,
}

impl Mended {
    pub(crate) fn new(inner: Received, shape: &'static Shape, service: &Arc<Service>) -> Self {
        Self { inner, shape, service: Arc::clone(service), begun: Vec::new() }
    }

    /// The messages that these bytes complete; `None` if there is none.
    fn whole(&mut self, came: Bytes) -> Option<Bytes> {
        let mut bytes = if self.begun.is_empty() {
            came
        } else {
            self.begun.extend_from_slice(&came);
            std::mem::take(&mut self.begun).into()
        };
        let mut at = 0;
        while let Some((_, length)) = message(&bytes, at) {
            at += HEAD + length;
        }
        let rest = bytes.split_off(at);
        if rest.len() > MAX_MESSAGE + HEAD {
            // Its reader refuses it by its length.
            return Some(if bytes.is_empty() { rest } else { [bytes, rest].concat().into() });
        }
        self.begun = rest.into();
        if bytes.is_empty() {
            return None;
        }
        let (bytes, was_wrong) = mended(bytes, self.shape);
        if was_wrong {
            self.service.limiter.odd.count(Odd::NotUtf8, "a message of gRPC".to_owned());
        }
        Some(bytes)
    }
}

impl Body for Mended {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if self.begun.is_empty() => return Poll::Ready(None),
                // Its reader says that the end is missing.
                None => {
                    let rest = std::mem::take(&mut self.begun);
                    return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
                }
            };
            match frame.into_data() {
                Ok(came) => {
                    if let Some(bytes) = self.whole(came) {
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                }
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.begun.is_empty() && self.inner.is_end_stream()
    }
}

/// JSON whose texts are UTF-8: bytes that are not, and halves of characters of UTF-16, are
/// replaced.
pub(crate) fn of_json(body: &[u8]) -> Vec<u8> {
    let mut rest = body.to_vec();
    mend(&mut rest);
    let half = |bytes: &[u8]| {
        let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    while let Some(escape) = rest.get(at..).filter(|rest| !rest.is_empty()) {
        at += match half(escape) {
            Some(0xd800..=0xdbff) => match escape.get(6..).and_then(half) {
                Some(0xdc00..=0xdfff) => 12,
                _ => replaced(&mut rest, at),
            },
            Some(0xdc00..=0xdfff) => replaced(&mut rest, at),
            Some(_) => 6,
            None if escape.starts_with(b"\\") => 2,
            None => 1,
        };
    }
    rest
}

/// Overwrites the escape of half a character with one of `?`; returns its length.
fn replaced(text: &mut [u8], at: usize) -> usize {
    let escape = b"\\u003f";
    if let Some(place) = text.get_mut(at..at + escape.len()) {
        place.copy_from_slice(escape);
    }
    escape.len()
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 128);
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn framed(message: &[u8]) -> Bytes {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(message);
        bytes.into()
    }

    /// A request for one descriptor with such a value, and what does not belong to it.
    fn request(value: &[u8]) -> Vec<u8> {
        let entry = [field(1, b"key"), field(2, value)].concat();
        // Hits of the descriptor, and of the request.
        let descriptor = [field(1, &entry), field(3, &[8, 0x96, 1])].concat();
        [field(1, b"domain"), field(2, &descriptor), vec![3 << 3, 5]].concat()
    }

    #[test]
    fn what_is_no_character_becomes_question_marks() {
        for (value, wanted) in [
            (&b"abc"[..], "abc"),
            (b"\xff", "?"),
            (b"a\xe9t\xe9", "a?t?"),
            (b"\xf0\x9f\x98", "???"),
            ("\u{1f600}".as_bytes(), "\u{1f600}"),
        ] {
            let (bytes, was_wrong) = mended(framed(&request(value)), &REQUEST);
            assert_eq!(was_wrong, std::str::from_utf8(value).is_err());
            let read = RateLimitRequest::decode(bytes.slice(HEAD..)).unwrap();
            assert_eq!(read.descriptors[0].entries[0].value, wanted);
            assert_eq!((read.domain.as_str(), read.hits_addend), ("domain", 5));
            assert_eq!(read.descriptors[0].hits_addend.unwrap().value, 150);
        }
    }

    #[test]
    fn halves_of_characters_of_json_become_question_marks() {
        for (text, wanted) in [
            (&br#"["\ud800"]"#[..], "?"),
            (br#"["a\udc00b"]"#, "a?b"),
            (br#"["\ud83d\ude00"]"#, "\u{1f600}"),
            (br#"["\\ud800"]"#, "\\ud800"),
            (br#"["\ud800\ud83d\ude00"]"#, "?\u{1f600}"),
            (b"[\"\xff\"]", "?"),
        ] {
            let read: Vec<String> = serde_json::from_slice(&of_json(text)).unwrap();
            assert_eq!(read, [wanted]);
        }
    }

    proptest! {
        /// Whatever the bytes of values and whatever comes behind, the length stays, and what was a
        /// request is one.
        #[test]
        fn any_value_is_read(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let before = framed(&request(&value));
            let (bytes, _) = mended(before.clone(), &REQUEST);
            prop_assert_eq!(bytes.len(), before.len());
            prop_assert!(RateLimitRequest::decode(bytes.slice(HEAD..)).is_ok());
        }

        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let length = bytes.len();
            prop_assert_eq!(mended(bytes.clone().into(), &REPORTS).0.len(), length);
            prop_assert_eq!(of_json(&bytes).len(), length);
        }
    }
}
