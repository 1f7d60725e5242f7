//! Banned addresses of fail2ban: `fail2ban-client banned`, `status JAIL` and `get JAIL banip`.

use serde_json::Value;

use super::Elements;
use crate::error::ImportError;
use crate::iptables::net;

/// Beginning of the line with a jail's addresses.
const LIST: &str = "Banned IP list:";

const COMMAND: &str = "`fail2ban-client get JAIL banip --with-time`, `banned` or `status JAIL`";

/// Reads the jails of a text. With `wanted`, only this one.
pub(crate) fn read(text: &str, wanted: Option<&str>) -> Result<Vec<Elements>, ImportError> {
    let jails = if text.trim_start().starts_with('[') {
        banned(text)?
    } else if text.contains("Status for the jail") || text.contains(LIST) {
        status(text)
    } else {
        vec![addresses(text)]
    };
    let Some(wanted) = wanted else { return Ok(jails) };
    let names: Vec<&str> = jails.iter().map(|jail| jail.name.as_str()).collect();
    let names = limiter_text::plain::clean(&names.join(", "));
    let jail = jails.into_iter().find(|jail| jail.name.strip_prefix("jail ") == Some(wanted));
    jail.map(|jail| vec![jail]).ok_or_else(|| ImportError::NoSet(wanted.to_owned(), names))
}

/// Duration of a ban in seconds.
#[derive(Clone, Copy)]
enum For {
    Seconds(u64),
    Ever,
    /// The text does not contain it.
    Unsaid,
}

fn add(jail: &mut Elements, place: &str, text: &str, time: For) {
    match net(text).filter(|net| net.prefix_len() > 0) {
        Some(net) => {
            jail.timeless |= matches!(time, For::Unsaid);
            jail.add(net, if let For::Seconds(seconds) = time { Some(seconds) } else { None });
        }
        None => jail.refuse(place.to_owned(), text, "it is no address or prefix"),
    }
}

/// Reads `[{'sshd': ['192.0.2.1']}, {'nginx': []}]`, in Python's notation.
fn banned(text: &str) -> Result<Vec<Elements>, ImportError> {
    // Valid JSON comes from another program.
    let value: Value = serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&text.replace('\'', "\"")))
        .map_err(|error| ImportError::Json(error.to_string(), COMMAND))?;
    let is_crowdsec = |alert: &Value| alert.get("decisions").is_some();
    if value.as_array().is_some_and(|alerts| alerts.iter().any(is_crowdsec)) {
        return Err(ImportError::Shape(
            "of CrowdSec, which `limiter import crowdsec` reads",
            COMMAND,
        ));
    }
    let shape = || ImportError::Shape("is no list of jails", COMMAND);
    let mut jails = Vec::new();
    for jail in value.as_array().ok_or_else(shape)? {
        for (name, addresses) in jail.as_object().ok_or_else(shape)? {
            let mut jail = Elements::named(&format!("jail {name}"));
            for address in addresses.as_array().ok_or_else(shape)? {
                let address = address.as_str().ok_or_else(shape)?;
                add(&mut jail, &format!("jail {name}"), address, For::Unsaid);
            }
            jails.push(jail);
        }
    }
    Ok(jails)
}

fn status(text: &str) -> Vec<Elements> {
    let mut jails: Vec<Elements> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some((_, name)) = line.split_once("Status for the jail:") {
            jails.push(Elements::named(&format!("jail {}", name.trim())));
        }
        let Some((_, list)) = line.split_once(LIST) else { continue };
        if jails.is_empty() {
            jails.push(Elements::named("a jail"));
        }
        for address in list.split_whitespace() {
            if let Some(jail) = jails.last_mut() {
                add(jail, &format!("line {}", index + 1), address, For::Unsaid);
            }
        }
    }
    jails
}

/// Reads addresses, or lines of `--with-time`:
/// `192.0.2.1 <tab>2026-11-23 10:00:00 + 600 = 2026-11-23 10:10:00`.
fn addresses(text: &str) -> Elements {
    let mut jail = Elements::named("banned addresses");
    for (index, line) in text.lines().enumerate() {
        let place = format!("line {}", index + 1);
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [address, _, _, "+", seconds, "=", ..] => match seconds.parse::<i64>() {
                // A negative time means for ever.
                Ok(0) => jail.refuse(place, line, "its time is over"),
                Ok(seconds) => {
                    jail.from_now |= seconds > 0;
                    let time = u64::try_from(seconds).map_or(For::Ever, For::Seconds);
                    add(&mut jail, &place, address, time);
                }
                Err(_) => jail.refuse(place, line, "its time cannot be read"),
            },
            words => {
                for address in words {
                    add(&mut jail, &place, address, For::Unsaid);
                }
            }
        }
    }
    jail
}
