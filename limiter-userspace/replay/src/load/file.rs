//! Load files: YAML with a list of senders.

use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use limiter_common::wire::Count;
use limiter_rules::Dialect;
use limiter_rules::RateText;
use limiter_rules::file::{Place, Problem};
use limiter_rules::source_text;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Spanned, options};

use super::frame::{HEADERS, Port};
use super::pattern::Pattern;
use super::schema;
use super::{Load, Sender};

const MAX_DURATION: Duration = Duration::from_hours(31 * 24);
/// Most sources in one entry of a load.
const MAX_SOURCES: u64 = 100_000;
const MAX_SENDERS: usize = 100;
/// Approximate maximum of packets in a load.
const MAX_PACKETS: f64 = 1e9;
/// The smallest and the largest frame.
const SIZES: [u64; 2] = [HEADERS, 65_535];
/// Addresses of senders that name none: the range for measurements (RFC 2544).
const PREFIX: [u8; 4] = [198, 18, 0, 0];

/// A rejected load file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{}{what}", .place.map_or_else(|| " ".to_owned(), |place| format!("{place}: ")))]
pub struct LoadError {
    file: String,
    place: Option<Place>,
    what: String,
}

type Refused = (Option<Place>, String);

/// A load for `limiter simulate` and `limiter tune`: docs/tuning.md says what the fields mean.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "A load of limiter")]
struct File {
    /// Number from which all that is random is drawn: 0 if nothing is said.
    #[serde(default)]
    seed: u64,
    /// Length of the load, as in 10s, up to 31d.
    #[schemars(with = "String")]
    duration: Spanned<String>,
    /// Senders: from one to 100.
    #[schemars(with = "Vec<RawSender>", length(min = 1))]
    senders: Vec<Spanned<RawSender>>,
}

/// Sources that send in one way.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "sender", extend("allOf" = schema::of_sender()))]
struct RawSender {
    /// A name for people. It changes nothing.
    #[serde(default, rename = "name")]
    #[schemars(with = "Option<String>")]
    _name: Option<String>,
    /// The way in which they send.
    #[schemars(schema_with = "schema::pattern")]
    pattern: Spanned<String>,
    /// Rate of each source, as in 50/s or 5/min; of a flood, of all.
    #[schemars(with = "String")]
    rate: Spanned<String>,
    /// Number of sources: 1 if nothing is said; not of a flood.
    #[schemars(with = "Option<u64>", range(min = 1, max = 100_000))]
    sources: Option<Spanned<u64>>,
    /// Address or prefix of the sources; others than those of the senders before if nothing is
    /// said.
    #[schemars(with = "Option<String>")]
    address: Option<Spanned<String>>,
    /// When they begin, as in 2s.
    #[schemars(with = "Option<String>")]
    from: Option<Spanned<String>>,
    /// When they end.
    #[schemars(with = "Option<String>")]
    to: Option<Spanned<String>>,
    /// Bytes of a frame: 100 if nothing is said.
    #[schemars(with = "Option<u64>", range(min = HEADERS, max = 65_535))]
    size: Option<Spanned<u64>>,
    /// Port and protocol: 53/udp, 443/tcp, or 22/syn for packets that open connections; 9/udp if
    /// nothing is said.
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]+/(udp|tcp|syn)$"))]
    port: Option<Spanned<String>>,
    /// With onoff: how long they send.
    #[schemars(with = "Option<String>")]
    on_for: Option<Spanned<String>>,
    /// With onoff: how long they are quiet then.
    #[schemars(with = "Option<String>")]
    off_for: Option<Spanned<String>>,
    /// With ramp: rate of each source at the end.
    #[schemars(with = "Option<String>")]
    rate_at_end: Option<Spanned<String>>,
    /// With stall: when it begins, counted from the sender's beginning.
    #[schemars(with = "Option<String>")]
    stall_from: Option<Spanned<String>>,
    /// With stall: how long it lasts; what is sent meanwhile comes at once at its end.
    #[schemars(with = "Option<String>")]
    stall_for: Option<Spanned<String>>,
}

/// The JSON schema of load files, of the draft 2020-12.
pub fn schema() -> Value {
    schemars::schema_for!(File).to_value()
}

fn at<T>(of: &Spanned<T>, what: impl Into<String>) -> Refused {
    let place = Place { line: of.referenced.line(), column: of.referenced.column() };
    (Some(place).filter(|place| place.line > 0), what.into())
}

/// Reads a load file; `file` is its name in errors.
///
/// # Errors
///
/// The first mistake with its line and its correction.
pub fn parse(file: &str, text: &str) -> Result<Load, LoadError> {
    read(text).map_err(|(place, what)| LoadError { file: file.to_owned(), place, what })
}

fn read(text: &str) -> Result<Load, Refused> {
    let options = options! { strict_booleans: true, with_snippet: false };
    let raw: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let (place, problem) = Problem::from_yaml(&error, Dialect::Packets);
        (place, problem.to_string().replacen("not a rule file", "not a load", 1))
    })?;
    let duration = time(&raw.duration, "duration")?;
    if duration == 0 || duration > nanos(MAX_DURATION) {
        return Err(at(&raw.duration, "duration: give from 1ns to 31d"));
    }
    if raw.senders.is_empty() || raw.senders.len() > MAX_SENDERS {
        let what = format!("senders: give from one to {MAX_SENDERS} of them");
        return Err((None, what));
    }
    let mut senders = Vec::with_capacity(raw.senders.len());
    let (mut free, mut packets) = (0u32, 0.0);
    for spanned in &raw.senders {
        let (sender, most) = sender(spanned, duration, &mut free)?;
        packets += most;
        if packets > MAX_PACKETS {
            let what = "with these senders the load has more than 1,000,000,000 packets: make it \
                        shorter, or the rates lower";
            return Err(at(spanned, what));
        }
        senders.push(sender);
    }
    Ok(Load { seed: raw.seed, senders })
}

/// Checks a sender. Also returns the approximate maximum of its packets. `free` is the next unused
/// address of [`PREFIX`].
fn sender(
    spanned: &Spanned<RawSender>,
    duration: u64,
    free: &mut u32,
) -> Result<(Sender, f64), Refused> {
    let raw = &spanned.value;
    let bound = |field: Option<&Spanned<String>>, name, or: u64| match field {
        None => Ok(or),
        Some(text) => match time(text, name)? {
            time if time <= duration => Ok(time),
            _ => Err(at(text, format!("{name}: it is after the end of the load"))),
        },
    };
    let from = bound(raw.from.as_ref(), "from", 0)?;
    let to = bound(raw.to.as_ref(), "to", duration)?;
    if from >= to {
        return Err(at(spanned, "the sender ends before it begins: give a `to` after `from`"));
    }
    let (pattern, fastest) = pattern(spanned)?;
    let flood = matches!(pattern, Pattern::Flood { .. });
    let sources = match &raw.sources {
        None => 1,
        Some(_) if flood => {
            let what = "sources: every packet of a flood has another source: remove the field; \
                        `address` is the prefix that they are of";
            return Err(at(spanned, what));
        }
        Some(sources) if (1..=MAX_SOURCES).contains(&sources.value) => sources.value,
        Some(sources) => {
            return Err(at(sources, format!("sources: give from 1 to {MAX_SOURCES}")));
        }
    };
    let sources = u32::try_from(sources).unwrap_or(1);
    let size = match &raw.size {
        None => 100,
        Some(size) if (SIZES[0]..=SIZES[1]).contains(&size.value) => size.value,
        Some(size) => {
            return Err(at(size, format!("size: give from {} to {} bytes", SIZES[0], SIZES[1])));
        }
    };
    let port = raw.port.as_ref().map_or(Ok(Port::Udp(9)), port)?;
    let prefix = match &raw.address {
        Some(address) => prefix(address, sources)?,
        None if flood => net([100, 64, 0, 0], 10),
        None => {
            let [a, b, c, d] = PREFIX;
            let first = u32::from_be_bytes([a, b, c, d]).wrapping_add(*free);
            let bits = 32 - sources.next_power_of_two().trailing_zeros();
            // Prefixes begin at multiples of their sizes.
            let size = sources.next_power_of_two();
            let first = first.next_multiple_of(size);
            *free = first.wrapping_add(size).wrapping_sub(u32::from_be_bytes(PREFIX));
            net(first.to_be_bytes(), u8::try_from(bits).unwrap_or(32))
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "for a bound")]
    let seconds = (to - from) as f64 / 1e9;
    let most = fastest * seconds * f64::from(sources);
    Ok((Sender { sources, prefix, pattern, from, to, size, port }, most))
}

fn net(address: [u8; 4], bits: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(address.into(), bits))
}

/// The pattern and its highest rate.
fn pattern(spanned: &Spanned<RawSender>) -> Result<(Pattern, f64), Refused> {
    let raw = &spanned.value;
    let rate = per_second(&raw.rate, "rate")?;
    let name = raw.pattern.value.as_str();
    let given = |field: &Option<Spanned<String>>, field_name: &'static str| match field {
        Some(text) => time(text, field_name).and_then(|time| match time {
            0 => Err(at(text, format!("{field_name}: give more than no time"))),
            time => Ok(time),
        }),
        None => {
            Err(at(&raw.pattern, format!("the pattern {name} needs {field_name}, as in 500ms")))
        }
    };
    let fields = [
        ("on_for", &raw.on_for, "onoff"),
        ("off_for", &raw.off_for, "onoff"),
        ("rate_at_end", &raw.rate_at_end, "ramp"),
        ("stall_from", &raw.stall_from, "stall"),
        ("stall_for", &raw.stall_for, "stall"),
    ];
    for (field, value, needs) in fields {
        if let Some(value) = value
            && name != needs
        {
            let what =
                format!("{field}: it belongs to the pattern {needs}: write that, or remove it");
            return Err(at(value, what));
        }
    }
    let pattern = match name {
        "steady" => Pattern::Steady { rate },
        "poisson" => Pattern::Poisson { rate },
        "flood" => Pattern::Flood { rate },
        "onoff" => Pattern::OnOff {
            rate,
            on: given(&raw.on_for, "on_for")?,
            off: given(&raw.off_for, "off_for")?,
        },
        "ramp" => {
            let Some(last) = &raw.rate_at_end else {
                let what = "the pattern ramp needs rate_at_end, as in 100/s";
                return Err(at(&raw.pattern, what));
            };
            let last = per_second(last, "rate_at_end")?;
            return Ok((Pattern::Ramp { rate, last }, rate.max(last)));
        }
        "stall" => Pattern::Stall {
            rate,
            from: given(&raw.stall_from, "stall_from")?,
            time: given(&raw.stall_for, "stall_for")?,
        },
        other => {
            let what = format!(
                "pattern: {other:?} is not known: write steady, poisson, onoff, ramp, flood or \
                 stall"
            );
            return Err(at(&raw.pattern, what));
        }
    };
    Ok((pattern, rate))
}

fn prefix(text: &Spanned<String>, sources: u32) -> Result<IpNet, Refused> {
    let parsed = source_text::parse(&text.value);
    let selector = parsed.map_err(|error| at(text, format!("address: {error}")))?;
    let limiter_rules::Selector::Prefix(net) = selector else {
        return Err(at(text, "address: give an address or a prefix"));
    };
    let longest = if matches!(net, IpNet::V4(_)) { 32 } else { 64 };
    let room = 1u64.checked_shl(longest - u32::from(net.prefix_len())).unwrap_or(u64::MAX);
    if u64::from(sources) > room {
        let what = format!("address: it has {room} sources, and {sources} are asked for");
        return Err(at(text, what));
    }
    Ok(net)
}

fn port(text: &Spanned<String>) -> Result<Port, Refused> {
    let parts = text.value.split_once('/');
    let parsed = parts.and_then(|(number, protocol)| {
        let number = number.parse().ok()?;
        match protocol {
            "udp" => Some(Port::Udp(number)),
            "tcp" => Some(Port::Tcp(number)),
            "syn" => Some(Port::Syn(number)),
            _ => None,
        }
    });
    parsed.ok_or_else(|| {
        at(text, "port: write 53/udp, 443/tcp, or 22/syn for packets that open connections")
    })
}

fn per_second(text: &Spanned<String>, field: &str) -> Result<f64, Refused> {
    let parsed =
        RateText::parse(&text.value).map_err(|error| at(text, format!("{field}: {error}")))?;
    match parsed {
        #[expect(clippy::cast_precision_loss, reason = "rates are below 2^53 packets")]
        RateText::Rate { count: Count::Packets, requests_per_unit, period, .. }
            if requests_per_unit <= 100_000_000 =>
        {
            Ok(requests_per_unit as f64 / period.seconds() as f64)
        }
        _ => Err(at(text, format!("{field}: write packets, as in 100/s or 5/min, up to 100M"))),
    }
}

fn time(text: &Spanned<String>, field: &str) -> Result<u64, Refused> {
    let time = humantime::parse_duration(&text.value)
        .map_err(|error| at(text, format!("{field}: {error}: write one like 500ms or 10s")))?;
    Ok(nanos(time))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
