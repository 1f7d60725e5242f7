//! Signatures of changes. If the nodes have a key, a change in the store counts only if a node with
//! the key made it, only once, and only until its original end. docs/threat-model.md, "Who has the
//! store".
//!
//! A signed line contains the change, a number that counts the daemon's changes, the node's wall
//! clock when it was sent, its remaining time then, and an HMAC-SHA256 of all this and the daemon's
//! number.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ring::hmac;

use super::change::Change;

/// Shortest key, in characters: 128 bits in hexadecimal digits.
pub const KEY_MIN: usize = 32;
/// Longest key in characters, and most keys in a file.
const KEY_MAX: usize = 1024;
const KEYS_MAX: usize = 8;
/// Longest line of a signed change in bytes; limiter itself writes shorter ones.
pub const SIGNED_MAX: usize = 256;
/// Largest difference between wall clocks of nodes, in microseconds.
const LEEWAY: u64 = 60_000_000;
/// Number of daemons whose latest number is remembered.
const DAEMONS_MAX: usize = 4096;

/// Keys of the nodes. The first one signs, and all are accepted, so keys can be changed one node at
/// a time.
#[derive(Clone)]
pub struct Keys {
    keys: Arc<[hmac::Key]>,
    digest: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("count", &self.keys.len()).finish_non_exhaustive()
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Keys {}

impl Keys {
    /// Reads a key file with one key per line.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let lines: Vec<&str> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() {
            return Err("it has no key: write one of `openssl rand -hex 32`");
        }
        if lines.len() > KEYS_MAX {
            return Err("it has more than eight keys: leave those that all nodes know");
        }
        for line in &lines {
            if !(KEY_MIN..=KEY_MAX).contains(&line.len()) {
                return Err(
                    "a key has 32 to 1,024 characters in one line: write one of `openssl rand -hex \
                     32`",
                );
            }
            if !line.chars().all(|c| c.is_ascii_graphic()) {
                return Err("a key has letters, digits and signs of ASCII alone, without spaces");
            }
        }
        let key = |line: &&str| hmac::Key::new(hmac::HMAC_SHA256, line.as_bytes());
        let digest = ring::digest::digest(&ring::digest::SHA256, lines.join("\n").as_bytes());
        let mut kept = [0; 32];
        kept.copy_from_slice(digest.as_ref());
        Ok(Self { keys: lines.iter().map(key).collect(), digest: kept })
    }

    /// The line of a change that the daemon `instance` sends at `at`, in microseconds since 1970.
    fn line(&self, instance: u64, change: &Change, sequence: u64, at: u64) -> String {
        let proof = Proof { sequence, at, left: change.left().map(micros), mac: Vec::new() };
        let mac =
            self.keys.first().map(|key| hmac::sign(key, proof.signed(instance, change).as_bytes()));
        let mac = mac.as_ref().map(AsRef::as_ref).unwrap_or_default();
        let Proof { left, .. } = proof;
        format!("{change} {sequence:x} {at:x} {} {}", left_text(left), Hex(mac))
    }

    fn prove(&self, instance: u64, change: &Change, proof: &Proof) -> bool {
        let signed = proof.signed(instance, change);
        self.keys.iter().any(|key| hmac::verify(key, signed.as_bytes(), &proof.mac).is_ok())
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn left_text(left: Option<u64>) -> String {
    left.map_or_else(|| "-".to_owned(), |left| format!("{left:x}"))
}

/// The signature part of a signed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    sequence: u64,
    at: u64,
    left: Option<u64>,
    mac: Vec<u8>,
}

impl Proof {
    /// Splits a line into the change and its signature; `None` if it has neither form.
    pub(super) fn split(line: &str) -> Option<(&str, Option<Self>)> {
        if line.len() > SIGNED_MAX {
            return None;
        }
        let mut spaces = line.match_indices(' ').map(|(at, _)| at);
        let (_, Some(second)) = (spaces.next(), spaces.next()) else { return Some((line, None)) };
        let (change, rest) = (line.get(..second)?, line.get(second + 1..)?);
        let mut words = rest.split(' ');
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        let (sequence, at) = (number(words.next()?)?, number(words.next()?)?);
        let left = match words.next()? {
            "-" => None,
            left => Some(number(left)?),
        };
        let mac = words.next()?;
        let pairs = mac.as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let mac = pairs.map(byte).collect::<Option<Vec<u8>>>()?;
        let is_whole = mac.len() == 32 && words.next().is_none();
        is_whole.then_some((change, Some(Self { sequence, at, left, mac })))
    }

    fn signed(&self, instance: u64, change: &Change) -> String {
        let Self { sequence, at, left, .. } = self;
        format!(
            "limiter change 1 {instance:016x} {change} {sequence:x} {at:x} {}",
            left_text(*left)
        )
    }
}

/// Reasons for rejecting a change.
pub(super) const UNSIGNED: &str = "it is not signed with a key of the nodes";
pub(super) const FORGED: &str = "its signature is of no key of this node, or of another change";
pub(super) const FUTURE: &str =
    "it was signed more than a minute ahead of this node's clock: set the clocks of the nodes";
pub(super) const OVER: &str =
    "its time was over more than a minute ago, by this node's clock: set the clocks of the nodes";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Take(Change),
    /// This change or a later one was accepted before.
    Known,
    Refused(&'static str),
}

/// Decides which changes in the store are accepted.
#[derive(Debug)]
pub(super) struct Trust {
    keys: Option<Keys>,
    /// Latest number of each daemon.
    latest: HashMap<u64, u64>,
    /// Wall clock of the newest accepted change.
    newest: u64,
    /// Number of the latest change of this daemon.
    sent: u64,
}

impl Trust {
    /// With the keys of the nodes, if they have any, and the time of the newest change that earlier
    /// daemons of this node accepted.
    pub(super) fn new(keys: Option<Keys>, newest: u64) -> Self {
        Self { keys, latest: HashMap::new(), newest, sent: 0 }
    }

    /// Wall clock of the newest accepted change, in microseconds since 1970.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// A number for a change of this daemon. The change keeps it, however often it is sent.
    pub(super) fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// The line of a change of this daemon.
    pub(super) fn line(&self, instance: u64, change: &Change, number: u64, wall: u64) -> String {
        match &self.keys {
            Some(keys) => keys.line(instance, change, number, wall),
            None => change.to_string(),
        }
    }

    /// Judges a change of the daemon `instance` at `wall` of this node's clock. Remembers it if it
    /// is accepted.
    pub(super) fn judge(
        &mut self,
        instance: u64,
        change: &Change,
        proof: Option<&Proof>,
        wall: u64,
    ) -> Verdict {
        let Some(keys) = &self.keys else { return Verdict::Take(change.clone()) };
        let Some(proof) = proof else { return Verdict::Refused(UNSIGNED) };
        if !keys.prove(instance, change, proof) {
            return Verdict::Refused(FORGED);
        }
        let Proof { sequence, at, left, .. } = *proof;
        if at > wall.saturating_add(LEEWAY) {
            return Verdict::Refused(FUTURE);
        }
        if self.latest.get(&instance).is_some_and(|latest| sequence <= *latest) {
            return Verdict::Known;
        }
        let change = match left {
            // A change without an end could be replayed for ever.
            None if at.saturating_add(LEEWAY) < self.newest => return Verdict::Known,
            None => change.clone(),
            Some(left) => {
                let end = at.saturating_add(left).saturating_add(LEEWAY);
                let Some(until) = end.checked_sub(wall).filter(|until| *until > 0) else {
                    return Verdict::Refused(OVER);
                };
                change.clone().at_most(Duration::from_micros(left.min(until)))
            }
        };
        if self.latest.len() >= DAEMONS_MAX {
            self.latest.clear();
        }
        self.latest.insert(instance, sequence);
        self.newest = self.newest.max(at);
        Verdict::Take(change)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::change::List;

    const NOW: u64 = 1_795_000_000_000_000;
    const MINUTE: u64 = 60_000_000;
    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    fn trust(text: &str) -> Trust {
        Trust::new(Some(Keys::parse(text).expect("keys")), 0)
    }

    fn allow(left: Option<u64>) -> Change {
        let sources = IpAddr::from([192, 0, 2, 7]).into();
        Change::List { list: List::Allow, sources, left: left.map(Duration::from_secs) }
    }

    fn unlist() -> Change {
        Change::Unlist { sources: IpAddr::from([192, 0, 2, 7]).into() }
    }

    /// The change and the proof of a line, with the remaining time in the store.
    fn read(line: &str, left: Option<u64>) -> (Change, Option<Proof>) {
        let (text, proof) = Proof::split(line).expect("a form");
        let change = Change::parse(text, left.map(Duration::from_secs)).expect("a change");
        (change, proof)
    }

    fn judged(trust: &mut Trust, instance: u64, line: &str, wall: u64) -> Verdict {
        let (change, proof) = read(line, None);
        trust.judge(instance, &change, proof.as_ref(), wall)
    }

    #[test]
    fn a_signed_change_counts_once_and_no_other_does() {
        let (mut sender, mut receiver) = (trust(KEY), trust(KEY));
        let number = sender.number();
        let line = sender.line(1, &allow(None), number, NOW);
        assert!(line.len() <= SIGNED_MAX, "{line}");
        assert_eq!(judged(&mut receiver, 2, &line, NOW), Verdict::Refused(FORGED), "of another");
        assert_eq!(judged(&mut receiver, 1, &line, NOW), Verdict::Take(allow(None)));
        assert_eq!(judged(&mut receiver, 1, &line, NOW), Verdict::Known, "repeated");
        let plain = allow(None).to_string();
        assert_eq!(judged(&mut receiver, 1, &plain, NOW), Verdict::Refused(UNSIGNED));
        assert_eq!(judged(&mut trust(OTHER), 1, &line, NOW), Verdict::Refused(FORGED));
        // Without a key a node accepts what is written.
        assert_eq!(judged(&mut Trust::new(None, 0), 1, &line, NOW), Verdict::Take(allow(None)));
    }

    #[test]
    fn keys_are_changed_one_node_after_the_other() {
        let old = trust(KEY);
        let mut both = trust(&format!("{OTHER}\n{KEY}\n"));
        let mut new = trust(OTHER);
        let line = old.line(1, &unlist(), 1, NOW);
        assert_eq!(judged(&mut both, 1, &line, NOW), Verdict::Take(unlist()));
        assert_eq!(judged(&mut new, 1, &line, NOW), Verdict::Refused(FORGED));
        let line = both.line(2, &unlist(), 1, NOW);
        assert_eq!(judged(&mut new, 2, &line, NOW), Verdict::Take(unlist()));
    }

    #[test]
    fn the_store_makes_no_change_last_longer() {
        let sender = trust(KEY);
        let line = sender.line(1, &allow(Some(60)), 1, NOW);
        for of_store in [None, Some(3600)] {
            let (change, proof) = read(&line, of_store);
            let verdict = trust(KEY).judge(1, &change, proof.as_ref(), NOW);
            assert_eq!(verdict, Verdict::Take(allow(Some(60))), "{of_store:?}");
        }
        // The node's own clock decides the end, with a minute for clock differences.
        let at = |wall| judged(&mut trust(KEY), 1, &line, wall);
        assert_eq!(at(NOW + MINUTE + 30_000_000), Verdict::Take(allow(Some(30))));
        assert_eq!(at(NOW + 2 * MINUTE), Verdict::Refused(OVER));
        assert_eq!(at(NOW - MINUTE - 1), Verdict::Refused(FUTURE));
    }

    /// Prevents replaying a node's change, or extending it.
    #[test]
    fn what_was_reported_before_a_restart_is_not_reported_again() {
        let (mut sender, mut receiver) = (trust(KEY), trust(KEY));
        let line = |sender: &mut Trust, change: &Change, at| {
            let number = sender.number();
            sender.line(1, change, number, at)
        };
        let allowed = line(&mut sender, &allow(None), NOW);
        let unlisted = line(&mut sender, &unlist(), NOW + 3 * MINUTE);
        let now = NOW + 3 * MINUTE;
        for reported in [&allowed, &unlisted] {
            assert!(matches!(judged(&mut receiver, 1, reported, now), Verdict::Take(_)));
        }
        let mut again = Trust::new(receiver.keys.clone(), receiver.newest());
        assert_eq!(judged(&mut again, 1, &allowed, now), Verdict::Known);
        assert_eq!(judged(&mut again, 1, &unlisted, now), Verdict::Take(unlist()));
        // A ban ends by itself, and is needed after a reboot, so it counts again.
        let banned = line(&mut sender, &allow(Some(3600)), NOW);
        assert!(matches!(judged(&mut again, 1, &banned, now), Verdict::Take(_)));
    }

    #[test]
    fn key_files_are_read_or_refused_with_the_remedy() {
        assert_eq!(Keys::parse(&format!("\n  {KEY}  \n\n")), Keys::parse(KEY));
        for (text, reported) in [
            ("", "no key"),
            ("short", "32 to 1,024"),
            (&format!("{KEY} {KEY}"), "without spaces"),
            (&format!("{KEY}\u{e9}"), "of ASCII alone"),
            (&"x".repeat(2000), "32 to 1,024"),
            (&[KEY; 9].join("\n"), "more than eight"),
        ] {
            let refused = Keys::parse(text).expect_err(text);
            assert!(refused.contains(reported), "{refused}");
        }
        let keys = format!("{:?}", Keys::parse(KEY));
        assert!(!keys.contains(KEY), "{keys}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A line that is altered in any way, or combined with another one, is rejected or known.
        #[test]
        fn no_other_line_counts(at in 0usize..200, byte in 32u8..127, instance in 1u64..3) {
            let line = trust(KEY).line(1, &allow(Some(60)), 7, NOW);
            let mut bytes = line.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            let changed = String::from_utf8(bytes).expect("ASCII");
            prop_assume!(changed.to_lowercase() != line || instance != 1);
            if let Some((text, proof)) = Proof::split(&changed)
                && let Some(change) = Change::parse(text, None)
            {
                let verdict = trust(KEY).judge(instance, &change, proof.as_ref(), NOW);
                prop_assert!(matches!(verdict, Verdict::Refused(_)), "{changed}: {verdict:?}");
            }
        }
    }
}
