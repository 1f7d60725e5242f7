//! `action` of a rule for requests, and the ban of a source that is over the limits.

use limiter_common::wire::Evidence;

use super::super::check::Failure;
use super::super::check::actions;
use super::super::check::scalar::at;
use super::super::error::Problem;
use super::super::one_or_many::WordOr;
use super::super::placed::Placed;
use super::super::shape::{self, ANSWERED, Action};
use super::model::LevelValue;
use crate::model::Ban;

/// The key whose values are sources, as they are for packets.
pub const SOURCE: &str = "remote_address";

/// What the keys of a rule say of the source of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sources {
    /// Nothing: the rule does not ask for it.
    #[default]
    Unknown,
    /// Several sources share the buckets of the rule.
    Together,
    /// A text that is no address.
    NoAddress,
    /// Each source has buckets of its own.
    Apart,
}

impl Sources {
    /// With a key and its values inside of this.
    pub(super) fn with(self, key: &str, values: &[LevelValue], shared: bool) -> Self {
        if key != SOURCE || self != Self::Unknown {
            return self;
        }
        if values.iter().any(|value| matches!(value, LevelValue::Exact(_))) {
            Self::NoAddress
        } else if shared {
            Self::Together
        } else {
            Self::Apart
        }
    }
}

/// Checks `action` for what requests do not have. One of its two fields is there.
pub(super) fn action(raw: &Placed<WordOr<Action>>) -> Result<&Action, Failure> {
    let remedy = "write `action: {ban: {first: 10min}}` or `action: {queue: NAME}`, or remove the \
                  field";
    let empty = || at(raw.referenced, Problem::Empty { field: "action", remedy });
    let action = match &raw.value {
        WordOr::Map(map) => map,
        WordOr::Word(None) => return Err(empty()),
        WordOr::Word(Some(word)) => {
            let like = [("ban", "{ban: {first: 10min}}"), ("queue", "{queue: NAME}")];
            return Err(match like.into_iter().find(|(name, _)| name == word) {
                Some((name, like)) => at(raw.referenced, Problem::NeedsMore { name, like }),
                None => {
                    let (what, reason) = (word.clone(), ANSWERED);
                    at(raw.referenced, Problem::NotSupported { what, reason })
                }
            });
        }
    };
    match (&action.ban, &action.queue) {
        (None, None) => Err(empty()),
        (Some(_), Some(queue)) => Err(at(queue.referenced, Problem::Beside("queue", "ban"))),
        (Some(_), None) | (None, Some(_)) => Ok(action),
    }
}

/// Reads `ban`. One refused request is enough unless the file says otherwise: the limit itself says
/// how many are too many.
pub(super) fn ban(raw: &Placed<WordOr<shape::Ban>>, sources: Sources) -> Result<Ban, Failure> {
    let unsaid = Ban { strikes: 1, evidence: Evidence::None, ..Ban::default() };
    let ban = actions::ban(raw, unsaid)?;
    let refused =
        |reason| Err(at(raw.referenced, Problem::NotSupported { what: "ban".to_owned(), reason }));
    match sources {
        Sources::Apart => Ok(ban),
        Sources::Unknown => {
            let (field, needs) = ("ban", "`remote_address` among the keys of its rule");
            let remedy = "nest the rule, as in `descriptors: [{key: remote_address, rate_limit: \
                          {rate: 5/min}, action: {ban: {first: 10min}}}]`";
            Err(at(raw.referenced, Problem::Without { field, needs, remedy }))
        }
        Sources::Together => refused(
            "the sources share one limit, and one of them would be banned for the others: remove \
             `share_threshold`, or `action`",
        ),
        Sources::NoAddress => refused(
            "the value of `remote_address` is no address: write an address or a prefix, remove \
             the value, or remove `action`",
        ),
    }
}
