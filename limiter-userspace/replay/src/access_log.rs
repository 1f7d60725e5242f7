//! Requests of access logs: lines in the combined format of nginx and Apache, and JSON lines, as of
//! Envoy, Caddy, Traefik and nginx.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use jiff::Timestamp;
use jiff::fmt::strtime;
use limiter_common::source::Source;
use serde_json::Value;

/// Longest line that is read, in bytes.
pub const MAX_LINE: usize = 1 << 16;

/// Facts of a request, and the fields of JSON lines that have them: of Caddy, Envoy, Traefik, and
/// nginx by its variables. Of several, the first that a line has counts.
const FACTS: [(&str, &[&str]); 9] = [
    ("time", &["ts", "start_time", "StartUTC", "time", "time_iso8601", "msec", "@timestamp"]),
    (
        "client",
        &[
            "request.client_ip",
            "request.remote_ip",
            "downstream_remote_address",
            "ClientHost",
            "remote_addr",
        ],
    ),
    ("user", &["user_id", "ClientUsername", "remote_user"]),
    ("method", &["request.method", "method", "RequestMethod", "request_method"]),
    ("path", &["request.uri", "path", "RequestPath", "request_uri", "uri"]),
    ("host", &["request.host", "authority", "RequestHost", "host"]),
    ("agent", &["request.headers.User-Agent", "user_agent", "request_User-Agent"]),
    ("referer", &["request.headers.Referer", "referer", "request_Referer", "http_referer"]),
    ("bytes", &["size", "bytes_sent", "DownstreamContentSize", "body_bytes_sent"]),
];

/// Headers that proxies ask by, and the facts that they have.
const HEADERS: [(&str, &str); 13] = [
    ("x-real-ip", "client"),
    ("x-forwarded-for", "client"),
    ("x-forwarded-user", "user"),
    ("remote-user", "user"),
    ("x-forwarded-method", "method"),
    ("x-original-method", "method"),
    ("x-forwarded-uri", "path"),
    ("x-original-uri", "path"),
    ("x-original-url", "path"),
    ("x-forwarded-host", "host"),
    ("host", "host"),
    ("user-agent", "agent"),
    ("referer", "referer"),
];

/// Fields that the user names: of a fact or a header, in small letters, and of the line.
pub type Names = [(String, String)];

/// A request of a log.
#[derive(Clone, Debug)]
pub struct Logged<'a> {
    /// Nanoseconds since 1970. Many logs have whole seconds.
    pub nanos: u64,
    line: Line<'a>,
    names: &'a Names,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack")]
enum Line<'a> {
    /// Facts by name.
    Combined([(&'static str, &'a str); 8]),
    Json(Value),
}

impl Logged<'_> {
    /// A fact (`client`, `user`, `method`, `path`, `host`, `agent`, `referer`, `bytes`), or what a
    /// header of this name had; `None` if the line does not say.
    pub fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let named = self.names.iter().find(|(wanted, _)| wanted == name);
        if let Some((_, field)) = named {
            return self.field(field);
        }
        let fact =
            HEADERS.iter().find(|(header, _)| *header == name).map_or(name, |(_, fact)| fact);
        if fact != name && self.names.iter().any(|(wanted, _)| wanted == fact) {
            return self.get(fact);
        }
        match &self.line {
            Line::Combined(_) => self.field(fact),
            Line::Json(_) => {
                let (_, fields) = FACTS.iter().find(|(name, _)| *name == fact)?;
                fields.iter().find_map(|field| self.field(field))
            }
        }
    }

    /// The client as a source, an IPv6 one as its /64; `None` if the log has no address.
    pub fn source(&self) -> Option<Source> {
        Some(match address(&self.get("client")?)? {
            IpAddr::V4(v4) => Source::V4(v4.octets()),
            IpAddr::V6(v6) => Source::V6(*v6.octets().first_chunk()?),
        })
    }

    /// A field of the line. In JSON a dot leads into an object, and of a list the first counts.
    fn field(&self, field: &str) -> Option<Cow<'_, str>> {
        match &self.line {
            Line::Combined(facts) => {
                let (_, value) = facts.iter().find(|(name, _)| *name == field)?;
                (!matches!(*value, "" | "-")).then_some(Cow::Borrowed(*value))
            }
            Line::Json(line) => {
                let inner = || field.split('.').try_fold(line, |at, name| at.get(name));
                let found = line.get(field).or_else(inner)?;
                match found.as_array().map_or(Some(found), |all| all.first())? {
                    Value::String(text) if !matches!(&**text, "" | "-") => {
                        Some(Cow::Borrowed(&**text))
                    }
                    Value::Number(number) => Some(Cow::Owned(number.to_string())),
                    _ => None,
                }
            }
        }
    }
}

/// An address, with or without a port, brackets and a zone.
fn address(text: &str) -> Option<IpAddr> {
    let plain = || text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let without_zone = || {
        let text = text.trim_start_matches('[').split(['%', ']']).next()?;
        text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
    };
    plain().or_else(with_port).or_else(without_zone).map(|address| address.to_canonical())
}

/// Why a line is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRequest {
    /// It begins like neither format, or breaks off.
    #[error("it is neither in the combined format nor a JSON object")]
    Unknown,
    /// No time, or one that cannot be read.
    #[error("it has no time that can be read: name its field with `--field time=FIELD`")]
    NoTime,
    /// It is longer than [`MAX_LINE`].
    #[error("it is longer than 65536 bytes")]
    Long,
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    NoText,
}

/// Reads a line without its end.
///
/// # Errors
///
/// If it is no request.
pub fn parse<'a>(line: &'a [u8], names: &'a Names) -> Result<Logged<'a>, NoRequest> {
    let line = line.trim_ascii();
    if line.len() > MAX_LINE {
        return Err(NoRequest::Long);
    }
    let line = std::str::from_utf8(line).map_err(|_other| NoRequest::NoText)?;
    let (line, time) = if line.starts_with('{') {
        let value: Value = serde_json::from_str(line).map_err(|_wrong| NoRequest::Unknown)?;
        (Line::Json(value), None)
    } else {
        let (facts, time) = combined(line).ok_or(NoRequest::Unknown)?;
        (Line::Combined(facts), Some(time))
    };
    let mut logged = Logged { nanos: 0, line, names };
    let nanos = match time {
        Some(time) => common_time(time),
        None => logged.get("time").and_then(|time| json_time(&time)),
    };
    logged.nanos = nanos.ok_or(NoRequest::NoTime)?;
    Ok(logged)
}

/// `CLIENT IDENT USER [TIME] "METHOD PATH PROTOCOL" STATUS BYTES "REFERER" "AGENT"`, of which the
/// last two may be missing; `vhost_combined` has the host before. Facts, and the time.
fn combined(line: &str) -> Option<([(&'static str, &str); 8], &str)> {
    let (before, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let (first, others) = before.split_once(' ')?;
    let of_host = others
        .split_once(' ')
        .filter(|(second, _)| address(first).is_none() && address(second).is_some());
    let (host, client, others) =
        of_host.map_or(("", first, others), |(client, others)| (first, client, others));
    // A name may have spaces in it.
    let (_, user) = others.split_once(' ')?;
    let (request, rest) = quoted(rest)?;
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut numbers = rest.trim_start().splitn(3, ' ');
    numbers.next()?;
    let bytes = numbers.next()?;
    let mut more = numbers.next().unwrap_or_default().split_once('"').map(|(_, rest)| rest);
    let mut next = || {
        let (text, rest) = quoted(more?)?;
        more = rest.split_once('"').map(|(_, rest)| rest);
        Some(text)
    };
    let (referer, agent) = (next().unwrap_or_default(), next().unwrap_or_default());
    let facts = [
        ("client", client),
        ("user", user),
        ("method", method),
        ("path", path),
        ("host", host.split(':').next().unwrap_or_default()),
        ("bytes", bytes),
        ("referer", referer),
        ("agent", agent),
    ];
    Some((facts, time))
}

/// Text up to the quote that ends it, and what follows. A quote within has a backslash before it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

/// `10/Oct/2026:13:55:36 -0700`.
fn common_time(text: &str) -> Option<u64> {
    let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    u64::try_from(time.to_timestamp().ok()?.as_nanosecond()).ok()
}

/// RFC 3339, or a number since 1970: of seconds, or by its size of milli-, micro- or nanoseconds.
fn json_time(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse::<f64>() {
        let scale = match number {
            ..0.0 => return None,
            ..1e11 => 1e9,
            ..1e14 => 1e6,
            ..1e17 => 1e3,
            _ => 1.0,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        return Some((number * scale) as u64);
    }
    let time = text.parse::<Timestamp>().ok();
    time.and_then(|time| u64::try_from(time.as_nanosecond()).ok()).or_else(|| common_time(text))
}

/// Reads the next line into `line`, and no more than [`MAX_LINE`] bytes of it; what is longer is
/// skipped. Returns the bytes that were read, 0 at the end.
///
/// # Errors
///
/// Of the input.
pub fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<u64> {
    line.clear();
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX) + 1;
    let mut read = input.take(most).read_until(b'\n', line)?;
    if line.len() > MAX_LINE && line.last() != Some(&b'\n') {
        read += input.skip_until(b'\n')?;
    }
    Ok(u64::try_from(read).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
