//! The wire format of Redis (RESP): commands, which are arrays of bulk strings, and answers.

use std::ops::Range;

/// Most bytes of a command, and most parts.
const MOST_BYTES: usize = 64 << 10;
const MOST_PARTS: usize = 1024;

/// Most digits of a length.
const DIGITS: usize = 8;

/// Why what a client sent is no command, so that nobody knows where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lost {
    #[error(
        "expected '*', got '{}': inline commands are not taken; send an array of bulk strings",
        shown(*.0)
    )]
    NoArray(u8),
    #[error("expected '$', got '{}': a command is an array of bulk strings", shown(*.0))]
    NoBulk(u8),
    #[error("invalid multibulk length: a command has 1 to {MOST_PARTS} parts")]
    Parts,
    #[error("invalid bulk length: the command and its parts have up to {MOST_BYTES} bytes")]
    Bytes,
    #[error("a bulk string is not as long as it says")]
    Length,
    #[error("the rest of the command did not come within 5 s")]
    Late,
}

fn shown(byte: u8) -> impl std::fmt::Display {
    char::from(byte).escape_default()
}

/// A command within the bytes of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command<'a> {
    bytes: &'a [u8],
    parts: &'a [Range<usize>],
}

impl<'a> Command<'a> {
    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.bytes.get(self.parts.get(index)?.clone())
    }

    /// Its parts without the first so many.
    pub(crate) fn from(&self, index: usize) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        (index..self.parts.len()).filter_map(|index| self.get(index))
    }

    /// The number of parts behind the first one.
    pub(crate) const fn arguments(&self) -> usize {
        self.parts.len().saturating_sub(1)
    }
}

/// Reads the command at the beginning of `bytes`, and how long it is; none if not all of it is
/// there: then it is read again from its beginning. `parts` is room for the places of its parts.
pub(crate) fn command<'a>(
    bytes: &'a [u8],
    parts: &'a mut Vec<Range<usize>>,
) -> Result<Option<(Command<'a>, usize)>, Lost> {
    parts.clear();
    let Some(length) = whole(bytes, parts)? else {
        return if bytes.len() < MOST_BYTES { Ok(None) } else { Err(Lost::Bytes) };
    };
    Ok(Some((Command { bytes, parts }, length)))
}

fn whole(bytes: &[u8], parts: &mut Vec<Range<usize>>) -> Result<Option<usize>, Lost> {
    let Some((count, mut at)) = number(bytes, 0, b'*', Lost::NoArray, Lost::Parts)? else {
        return Ok(None);
    };
    if !(1..=MOST_PARTS).contains(&count) {
        return Err(Lost::Parts);
    }
    for _ in 0..count {
        let Some((length, begin)) = number(bytes, at, b'$', Lost::NoBulk, Lost::Bytes)? else {
            return Ok(None);
        };
        let end = begin + length;
        if end > MOST_BYTES {
            return Err(Lost::Bytes);
        }
        match bytes.get(end..end + 2) {
            Some(b"\r\n") => parts.push(begin..end),
            Some(_) => return Err(Lost::Length),
            None => return Ok(None),
        }
        at = end + 2;
    }
    Ok(Some(at))
}

/// The number of a line that begins with `mark`, and where the next line begins.
fn number(
    bytes: &[u8],
    at: usize,
    mark: u8,
    other: impl Fn(u8) -> Lost,
    wrong: Lost,
) -> Result<Option<(usize, usize)>, Lost> {
    let Some(([first], rest)) = bytes.get(at..).and_then(<[u8]>::split_first_chunk) else {
        return Ok(None);
    };
    if *first != mark {
        return Err(other(*first));
    }
    let mut number = 0;
    for (index, byte) in rest.iter().enumerate() {
        match byte {
            b'0'..=b'9' if index < DIGITS => number = number * 10 + usize::from(byte - b'0'),
            b'\r' if index > 0 => {
                return match rest.get(index + 1) {
                    Some(b'\n') => Ok(Some((number, at + index + 3))),
                    Some(_) => Err(wrong),
                    None => Ok(None),
                };
            }
            _ => return Err(wrong),
        }
    }
    Ok(None)
}

/// Answers that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    /// True if the client understands version 3 of the protocol.
    pub(crate) is_three: bool,
}

impl Out {
    fn line(&mut self, mark: u8, text: &[u8]) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, mark: u8, number: i64) {
        self.line(mark, itoa::Buffer::new().format(number).as_bytes());
    }

    pub(crate) fn simple(&mut self, text: &'static str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error of one line, which begins with its code.
    pub(crate) fn error(&mut self, text: &str) {
        self.line(b'-', text.replace(['\r', '\n'], " ").as_bytes());
    }

    pub(crate) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    pub(crate) fn bulk(&mut self, text: &[u8]) {
        self.number(b'$', i64::try_from(text.len()).unwrap_or(i64::MAX));
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        self.bytes.extend_from_slice(if self.is_three { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Begins an array of so many values.
    pub(crate) fn array(&mut self, length: i64) {
        self.number(b'*', length);
    }

    /// Begins a map of so many pairs, which older clients get as an array.
    pub(crate) fn map(&mut self, pairs: i64) {
        let (mark, length) = if self.is_three { (b'%', pairs) } else { (b'*', 2 * pairs) };
        self.number(mark, length);
    }

    pub(crate) fn integers<const N: usize>(&mut self, numbers: [i64; N]) {
        self.array(i64::try_from(N).unwrap_or(i64::MAX));
        for number in numbers {
            self.integer(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = (Vec<Vec<u8>>, usize);

    fn parts(bytes: &[u8]) -> Result<Option<Read>, Lost> {
        let mut parts = Vec::new();
        let read = command(bytes, &mut parts)?;
        Ok(read.map(|(command, length)| (command.from(0).map(<[u8]>::to_vec).collect(), length)))
    }

    #[test]
    fn a_command_is_read_once_all_of_it_is_there() {
        let one = b"*3\r\n$4\r\nPING\r\n$0\r\n\r\n$2\r\n\r\n\r\n";
        let two = [&one[..], b"*1\r\n"].concat();
        for length in 0..one.len() {
            assert_eq!(parts(&two[..length]), Ok(None), "{length}");
        }
        let wanted = vec![b"PING".to_vec(), Vec::new(), b"\r\n".to_vec()];
        assert_eq!(parts(&two), Ok(Some((wanted, one.len()))));
    }

    #[test]
    fn what_is_no_command_is_refused_as_soon_as_it_is_seen() {
        let long = [b"*2\r\n$65000\r\n".as_slice(), &vec![b'x'; 65_000], b"\r\n$600\r\n"].concat();
        for (bytes, lost) in [
            (b"PING\r\n".as_slice(), Lost::NoArray(b'P')),
            (b"\r\n", Lost::NoArray(b'\r')),
            (b"*0\r\n", Lost::Parts),
            (b"*-1\r\n", Lost::Parts),
            (b"*\r\n", Lost::Parts),
            (b"*1x", Lost::Parts),
            (b"*1\r\r", Lost::Parts),
            (b"*1025\r\n", Lost::Parts),
            (b"*2147483648", Lost::Parts),
            (b"*1\r\n*1\r\n", Lost::NoBulk(b'*')),
            (b"*1\r\n$-1\r\n", Lost::Bytes),
            (b"*1\r\n$536870912", Lost::Bytes),
            (b"*1\r\n$65530\r\n", Lost::Bytes),
            (b"*1\r\n$18446744073709551616", Lost::Bytes),
            (b"*1\r\n$2\r\nabc\r\n", Lost::Length),
            (b"*1\r\n$000000001", Lost::Bytes),
            (&long, Lost::Bytes),
        ] {
            assert_eq!(parts(bytes), Err(lost), "{}", bytes.escape_ascii());
        }
    }
}
