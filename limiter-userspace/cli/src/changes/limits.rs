//! `limiter set` and `unset`.

use limiter_api::client::Client;
use limiter_api::limits::{SetLimit, UnsetLimit};
use limiter_api::rules::{Changed, Session};
use limiter_daemon::ssh;
use limiter_rules::model::Direction;
use limiter_rules::{RateText, RateTextError, Target, rate_text, source_text};

use crate::args::set::Set;
use crate::failure::Failure;

/// Sets a limit. All words are checked here as well, so that a typing error needs no daemon to be
/// reported.
pub(crate) fn set(client: &Client, set: &Set) -> Result<Changed, Failure> {
    let limit = set.limit();
    let SetLimit { source, rate: words, .. } = &limit;
    if source.is_none() && source_text::parse(words).is_ok() {
        return Err(RateTextError::Missing(words.clone()).into());
    }
    let direction = direction(limit.direction.as_deref());
    let target = Target::parse(limit.words(direction))?;
    let count = limit.count.as_deref().and_then(rate_text::count_named);
    let rate = RateText::parse(words)?;
    target.ask(rate, count, words)?;
    let rate = rate.counting(count, words)?;
    let burst = match (set.burst.as_deref(), rate) {
        (None, _) => None,
        (Some(_), RateText::Unlimited) => return Err(RateTextError::UnlimitedBurst.into()),
        (Some(text), RateText::Rate { count, .. }) => Some(rate_text::burst(text, count)?),
    };
    let terms = rate.terms(burst, 0)?;
    let terms = rate_text::rejecting(rate_text::shadowed(terms, limit.shadow)?, limit.reject)?;
    rate_text::delaying(terms, limit.delay_ms)?;
    let limit = SetLimit { burst, session: ssh::own_session(), ..limit };
    Ok(client.put("/v1/limits", &limit)?)
}

pub(crate) fn unset(client: &Client, unset: &UnsetLimit) -> Result<Changed, Failure> {
    if !unset.all {
        Target::parse(unset.words(direction(unset.direction.as_deref())))?;
    }
    let (peer, port) = Session::words(ssh::own_session());
    Ok(client.delete("/v1/limits", &UnsetLimit { peer, port, ..unset.clone() })?)
}

/// The direction that the arguments name: one of their words, or none.
fn direction(word: Option<&str>) -> Direction {
    word.and_then(Direction::named).unwrap_or_default()
}
