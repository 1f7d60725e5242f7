//! Checksums of state files: a last line with the digest of all bytes before it, a digest after
//! each line of a journal, or a member of a JSON object. A bit that flips on a disk is noticed even
//! if the rest can be parsed. Files of earlier versions have no checksum and are read unchecked.

use std::io::{self, Write};

use limiter_sharing::fnv::Fnv;

/// Beginning of the last line: a comment for readers that parse the file as YAML.
const MARK: &str = "# checksum ";

/// Separator of a line and its digest: JSON never contains this character.
const BEHIND: char = '\t';

/// Message about a digest that does not match.
const OTHER: &str = "its checksum is of other content: it was damaged, or changed by hand";

/// Computes the digest of a file while it is written.
struct Sealing<'a> {
    to: &'a mut dyn Write,
    digest: Fnv,
}

impl Write for Sealing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest = self.digest.with(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes a file with its checksum.
pub(crate) fn seal(
    to: &mut dyn Write,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut sealing = Sealing { to, digest: Fnv::new() };
    content(&mut sealing)?;
    sealing.write_all(b"\n")?;
    let digest = sealing.digest.finish();
    writeln!(to, "{MARK}{digest:016x}")
}

/// The content of a file, if its checksum matches.
pub(crate) fn unsealed(bytes: &[u8]) -> Result<&[u8], String> {
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let from = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (content, last) = lines.split_at_checked(from).unwrap_or((lines, &[]));
    let Some(reported) = last.strip_prefix(MARK.as_bytes()) else { return Ok(bytes) };
    if format!("{:016x}", Fnv::new().with(content).finish()).as_bytes() == reported {
        Ok(content)
    } else {
        Err(OTHER.to_owned())
    }
}

/// A line with its checksum, without the line break.
pub(crate) fn sealed_line(line: &str) -> String {
    format!("{line}{BEHIND}{:016x}", Fnv::new().with(line.as_bytes()).finish())
}

/// The content of a line, if its checksum matches.
pub(crate) fn unsealed_line(line: &[u8]) -> Result<&[u8], String> {
    let whole = line.strip_suffix(b"\n").unwrap_or(line);
    let Some(at) = whole.iter().rposition(|byte| *byte == BEHIND as u8) else { return Ok(line) };
    let (content, reported) = whole.split_at_checked(at).unwrap_or((whole, &[]));
    let digest = format!("{BEHIND}{:016x}", Fnv::new().with(content).finish());
    if digest.as_bytes() == reported { Ok(content) } else { Err(OTHER.to_owned()) }
}

/// Length of the member that [`sealed_object`] adds, including the closing brace.
const SUM: usize = r#","sum":"0123456789abcdef"}"#.len();

/// A JSON object of at least one member with its checksum added as the last member, so that it
/// stays JSON for other programs.
pub(crate) fn sealed_object(json: &str) -> String {
    let digest = Fnv::new().with(json.as_bytes()).finish();
    let members = json.strip_suffix('}').unwrap_or(json);
    format!(r#"{members},"sum":"{digest:016x}"}}"#)
}

/// Returns true if a line is such an object and its checksum matches.
pub(crate) fn is_sealed_object(line: &[u8]) -> bool {
    let at = line.len().saturating_sub(SUM);
    let Some((members, sum)) = line.split_at_checked(at) else { return false };
    let digest = Fnv::new().with(members).with(b"}").finish();
    format!(r#","sum":"{digest:016x}"}}"#).as_bytes() == sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects stay JSON, and every bit of them is covered.
    #[test]
    fn an_object_has_its_checksum_as_a_member() {
        let sealed = sealed_object(r#"{"source":"192.0.2.1","sampled":7}"#);
        let read: serde_json::Value = serde_json::from_str(&sealed).unwrap();
        assert_eq!((&read["source"], &read["sampled"]), (&"192.0.2.1".into(), &7.into()));
        assert!(is_sealed_object(sealed.as_bytes()));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sealed_object(&flipped), "{bit}");
        }
        for end in 0..sealed.len() {
            assert!(!is_sealed_object(&sealed.as_bytes()[..end]), "{end}");
        }
    }

    /// Every bit of content and checksum is covered; truncation is noticed where the rest could be
    /// misread.
    #[test]
    fn a_bit_that_flips_is_noticed() {
        let content = b"{\"entries\":[{\"source\":\"192.0.2.1\"}]}";
        let mut file = Vec::new();
        seal(&mut file, |to| to.write_all(content)).unwrap();
        let whole = [content.as_slice(), b"\n"].concat();
        assert_eq!(unsealed(&file), Ok(whole.as_slice()));
        let line = sealed_line("{\"at\":7}");
        assert_eq!(unsealed_line(format!("{line}\n").as_bytes()), Ok(&b"{\"at\":7}"[..]));
        for bit in 0..content.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unsealed(&flipped).is_err(), "{bit}");
        }
        for bit in 0..7 * 8 {
            let mut flipped = line.clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unsealed_line(&flipped).is_err(), "{bit}");
        }
        assert!(unsealed(b"").is_err());
        // The form of an earlier version.
        assert_eq!(unsealed(content), Ok(&content[..]));
        assert_eq!(unsealed_line(b"{\"at\":7}\n"), Ok(&b"{\"at\":7}\n"[..]));
    }
}
