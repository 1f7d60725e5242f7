//! Moments for people: in the local time of the command, with UTC beside it.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;

/// A time zone in which moments are read and shown.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

/// Side of a time span that a moment bounds. It selects the earlier or the later one of a moment
/// that clocks show twice in autumn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The begin.
    Since,
    /// The end.
    Until,
}

/// A moment in RFC 3339 for a message: in the time of this process, with UTC beside.
pub fn local(moment: &str) -> String {
    Zone::of_this_process().both(moment)
}

impl Zone {
    /// The time zone of this process: from `TZ`, or else of the machine, or else UTC.
    pub fn of_this_process() -> Self {
        Self(TimeZone::system())
    }

    /// Returns true if clocks in this zone always show UTC.
    pub fn is_utc(&self) -> bool {
        let now = Timestamp::now();
        self.0.to_offset(now).is_zero()
            && self.0.following(now).next().is_none()
            && self.0.preceding(now).next().is_none()
    }

    /// The time of day now, as clocks here show it.
    pub fn clock(&self) -> String {
        self.0.to_datetime(Timestamp::now()).strftime("%T").to_string()
    }

    /// A moment in RFC 3339 as `2026-11-27 15:05:00 (14:05:00Z)`.
    pub fn both(&self, moment: &str) -> String {
        match self.apart(moment).as_slice() {
            [local, utc] => format!("{local} ({utc})"),
            _ => self.apart(moment).concat(),
        }
    }

    /// A moment in RFC 3339 in local time and in UTC; a single text if these are the same.
    pub fn apart(&self, moment: &str) -> Vec<String> {
        let Ok(moment) = moment.parse::<Timestamp>() else { return vec![moment.to_owned()] };
        let utc = TimeZone::UTC.to_datetime(moment);
        if self.is_utc() {
            return vec![utc.strftime("%F %TZ").to_string()];
        }
        let local = self.0.to_datetime(moment);
        let form = if local.date() == utc.date() { "%TZ" } else { "%F %TZ" };
        vec![local.strftime("%F %T").to_string(), utc.strftime(form).to_string()]
    }

    /// A moment in RFC 3339 for one short column: within the last day in local time with its age,
    /// as `15:05:00 12 min ago`; otherwise with its date.
    pub fn short(&self, moment: &str) -> String {
        self.short_at(moment, Timestamp::now())
    }

    fn short_at(&self, moment: &str, now: Timestamp) -> String {
        let Ok(at) = moment.parse::<Timestamp>() else { return moment.to_owned() };
        let local = self.0.to_datetime(at);
        let age = now.as_second().saturating_sub(at.as_second()).max(0);
        let (size, unit) = match age {
            0..60 => (1, "s"),
            60..3600 => (60, "min"),
            3600..86_400 => (3600, "h"),
            _ => return local.strftime("%F %T").to_string(),
        };
        format!("{} {} {unit} ago", local.strftime("%T"), age / size)
    }

    /// Reads a moment: `14:05` (the last one), `2026-11-27 14:05`, `2026-11-27`, RFC 3339, `10m` or
    /// `2h ago`. Without a zone it is in local time.
    ///
    /// # Errors
    ///
    /// If the text is not a moment; the message says how to write one.
    pub fn read(&self, text: &str, bound: Bound) -> Result<SystemTime, String> {
        self.read_at(text.trim(), bound, Timestamp::now())
    }

    fn read_at(&self, text: &str, bound: Bound, now: Timestamp) -> Result<SystemTime, String> {
        let moment = if text == "now" {
            Some(now)
        } else if let Ok(ago) = humantime::parse_duration(text.trim_end_matches(" ago")) {
            return before(now, ago).ok_or_else(|| wrong(text));
        } else if let Ok(moment) = text.parse::<Timestamp>() {
            Some(moment)
        } else if text.contains('-') {
            text.parse::<DateTime>().ok().and_then(|at| self.local(at, bound))
        } else if text.contains(':') {
            text.parse::<Time>().ok().and_then(|time| self.last(time, bound, now))
        } else {
            None
        };
        moment.and_then(|moment| moment.try_into().ok()).ok_or_else(|| wrong(text))
    }

    /// The last moment at which local clocks showed this time.
    fn last(&self, time: Time, bound: Bound, now: Timestamp) -> Option<Timestamp> {
        let today = self.0.to_datetime(now).date();
        let at = self.local(today.to_datetime(time), bound)?;
        if at <= now {
            return Some(at);
        }
        self.local(today.yesterday().ok()?.to_datetime(time), bound)
    }

    fn local(&self, at: DateTime, bound: Bound) -> Option<Timestamp> {
        let moment = self.0.to_ambiguous_timestamp(at);
        match bound {
            Bound::Since => moment.earlier(),
            Bound::Until => moment.later(),
        }
        .ok()
    }
}

/// The beginning of a time, in UTC.
#[cfg(feature = "clap")]
pub(crate) fn since(text: &str) -> Result<String, String> {
    in_utc(text, Bound::Since)
}

/// The end of a time, in UTC.
#[cfg(feature = "clap")]
pub(crate) fn until(text: &str) -> Result<String, String> {
    in_utc(text, Bound::Until)
}

#[cfg(feature = "clap")]
fn in_utc(text: &str, bound: Bound) -> Result<String, String> {
    let moment = Zone::of_this_process().read(text, bound)?;
    Ok(humantime::format_rfc3339_millis(moment).to_string())
}

fn before(now: Timestamp, ago: Duration) -> Option<SystemTime> {
    SystemTime::try_from(now).ok()?.checked_sub(ago).filter(|at| *at >= SystemTime::UNIX_EPOCH)
}

fn wrong(text: &str) -> String {
    format!(
        "{text:?} is no moment: write 14:05, \"2026-11-27 14:05\", 2026-11-27T14:05:00Z, or 10m \
         for ten minutes ago"
    )
}

#[cfg(test)]
mod tests {
    use jiff::tz::{Offset, offset};

    use super::*;

    const NOW: &str = "2026-11-27T14:10:00Z";

    /// Central European Time, with summer time.
    fn berlin() -> Zone {
        Zone(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap())
    }

    fn read(zone: &Zone, text: &str, bound: Bound) -> Result<String, String> {
        let at = zone.read_at(text, bound, NOW.parse().unwrap())?;
        Ok(humantime::format_rfc3339_seconds(at).to_string())
    }

    #[test]
    fn moments_are_read_as_clocks_here_show_them() {
        for (text, moment) in [
            ("15:05", "2026-11-27T14:05:00Z"),
            ("15:05:30", "2026-11-27T14:05:30Z"),
            // This time of day has not come yet today.
            ("15:11", "2026-11-26T14:11:00Z"),
            ("2026-11-27 15:05", "2026-11-27T14:05:00Z"),
            ("2026-07-01 00:30", "2026-06-30T22:30:00Z"),
            ("2026-11-27", "2026-11-26T23:00:00Z"),
            ("2026-11-27T14:05:00Z", "2026-11-27T14:05:00Z"),
            ("2026-11-27T15:05:00+01:00", "2026-11-27T14:05:00Z"),
            ("10m", "2026-11-27T14:00:00Z"),
            ("2h ago", "2026-11-27T12:10:00Z"),
            ("1d", "2026-11-26T14:10:00Z"),
            ("now", NOW),
        ] {
            assert_eq!(read(&berlin(), text, Bound::Since).as_deref(), Ok(moment), "{text}");
        }
        for text in ["", "5", "1405", "25:00", "yesterday", "2026-13-01", "14.05", "99999y", "-5m"]
        {
            let refused = read(&berlin(), text, Bound::Since).unwrap_err();
            assert!(refused.contains("is no moment: write 14:05"), "{text}: {refused}");
        }
    }

    /// In autumn one hour comes twice: "since" and "until" must include both.
    #[test]
    fn an_hour_that_comes_twice_is_whole() {
        let text = "2026-10-25 02:30";
        let of = |bound| read(&berlin(), text, bound).unwrap();
        assert_eq!(of(Bound::Since), "2026-10-25T00:30:00Z");
        assert_eq!(of(Bound::Until), "2026-10-25T01:30:00Z");
    }

    #[test]
    fn moments_are_shown_with_utc_beside() {
        let zone = berlin();
        assert_eq!(zone.both("2026-11-27T14:05:03Z"), "2026-11-27 15:05:03 (14:05:03Z)");
        assert_eq!(zone.both("2026-11-27T23:05:03Z"), "2026-11-28 00:05:03 (2026-11-27 23:05:03Z)");
        assert_eq!(zone.apart("2026-07-27T14:05:03Z"), ["2026-07-27 16:05:03", "14:05:03Z"]);
        let utc = Zone(TimeZone::UTC);
        assert_eq!(utc.both("2026-11-27T14:05:03Z"), "2026-11-27 14:05:03Z");
        assert!(utc.is_utc() && !zone.is_utc() && Zone(Offset::UTC.to_time_zone()).is_utc());
        assert!(!Zone(offset(1).to_time_zone()).is_utc());
        assert_eq!(zone.both("of another daemon"), "of another daemon");
    }

    #[test]
    fn a_short_moment_has_its_age_or_its_date() {
        let now: Timestamp = "2026-11-27T14:05:00Z".parse().unwrap();
        for (moment, text) in [
            ("2026-11-27T14:04:48Z", "15:04:48 12 s ago"),
            ("2026-11-27T13:05:01Z", "14:05:01 59 min ago"),
            ("2026-11-26T23:05:00Z", "00:05:00 15 h ago"),
            ("2026-11-26T14:05:00Z", "2026-11-26 15:05:00"),
            // The time was recorded by a clock that was set back.
            ("2026-11-27T14:06:00Z", "15:06:00 0 s ago"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(berlin().short_at(moment, now), text);
        }
    }
}
