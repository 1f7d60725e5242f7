//! `limiter set` and `unset`.

use std::fmt::Write as _;

use limiter_api::client::Client;
use limiter_api::limits::SetLimit;
use limiter_api::rules::Changed;
use limiter_daemon::ssh;
use limiter_rules::model::Direction;
use limiter_rules::{RateText, RateTextError, Target, rate_text, source_text};

use super::caller;
use crate::args::set::{Set, Unset};
use crate::failure::Failure;

/// Sets a limit. All words are checked here as well, so that a typing error needs no daemon to be
/// reported.
pub(crate) fn set(client: &Client, set: &Set) -> Result<Changed, Failure> {
    let (port, shared) = (set.whom.port.as_deref(), set.whom.shared);
    if set.source().is_none() && source_text::parse(set.rate()).is_ok() {
        return Err(RateTextError::Missing(set.rate().to_owned()).into());
    }
    let direction = set.whom.direction.into();
    let target = Target::parse(set.source(), port, shared, direction)?;
    let count = set.count.map(limiter_common::wire::Count::from);
    let rate = RateText::parse(set.rate())?;
    target.ask(rate, count, set.rate())?;
    let rate = rate.counting(count, set.rate())?;
    let burst = match (set.burst.as_deref(), rate) {
        (None, _) => None,
        (Some(_), RateText::Unlimited) => return Err(RateTextError::UnlimitedBurst.into()),
        (Some(text), RateText::Rate { count, .. }) => Some(rate_text::burst(text, count)?),
    };
    let terms = rate.terms(burst, 0)?;
    rate_text::rejecting(rate_text::shadowed(terms, set.shadow)?, set.reject)?;
    let limit = SetLimit {
        source: set.source().map(str::to_owned),
        to: set.whom.port.clone(),
        shared,
        direction: Some(direction.name().to_owned()).filter(|_| direction != Direction::In),
        name: set.name.clone(),
        count: count.map(|count| count.name().to_owned()),
        // Rounded up: a part of a second more does no harm; less would.
        seconds: set.time.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0)),
        rate: set.rate().to_owned(),
        burst,
        shadow: set.shadow,
        reject: set.reject,
        force: set.force,
        session: ssh::own_session(),
    };
    Ok(client.put("/v1/limits", &limit)?)
}

pub(crate) fn unset(client: &Client, unset: &Unset) -> Result<Changed, Failure> {
    let (port, shared) = (unset.whom.port.as_deref(), unset.whom.shared);
    let direction = unset.whom.direction.into();
    let target = Target::parse(unset.source.as_deref(), port, shared, direction)?;
    // The words were read: they have nothing in them that a URL would have to escape.
    let mut query = format!("shared={shared}");
    // Writing to a `String` cannot fail.
    if let Some(selector) = target.selector {
        let _: std::fmt::Result = write!(query, "&source={selector}");
    }
    if let Some(port) = port {
        let _: std::fmt::Result = write!(query, "&to={port}");
    }
    if direction != Direction::In {
        let _: std::fmt::Result = write!(query, "&direction={}", direction.name());
    }
    query.push_str(&caller::query(unset.force));
    Ok(client.delete(&format!("/v1/limits?{query}"))?)
}
