//! A decision of CrowdSec, as an entry of a list.

use super::{seconds, sources};
use crate::model::Selector;

/// A decision of CrowdSec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Remedy: `ban`, `captcha` or another.
    pub kind: String,
    /// `Ip`, `Range` or another; none if the value begins with it.
    pub scope: Option<String>,
    /// Address or prefix, for these two scopes.
    pub value: String,
    /// Time until it ends; negative once it has.
    pub duration: String,
    /// True if it is a trial.
    pub simulated: bool,
}

/// Why a decision makes no entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// It is for nobody's packets now.
    PassedOver(String),
    /// It cannot be read.
    Bad(String),
}

impl Decision {
    /// The sources that it bans, and the seconds for which it does.
    pub fn entry(&self) -> Result<(Vec<Selector>, Option<u64>), Unlisted> {
        let value = self.ban()?;
        if self.duration.starts_with('-') {
            return Err(Unlisted::PassedOver("it has ended".to_owned()));
        }
        let read = sources(value).and_then(|sources| Ok((sources, seconds(&self.duration)?)));
        read.map_err(Unlisted::Bad)
    }

    /// The sources that it bans, or banned before it ended.
    pub fn sources(&self) -> Result<Vec<Selector>, Unlisted> {
        sources(self.ban()?).map_err(Unlisted::Bad)
    }

    /// The value of a ban of addresses.
    fn ban(&self) -> Result<&str, Unlisted> {
        let passed_over = |problem: String| Err(Unlisted::PassedOver(problem));
        let kind = &self.kind;
        if kind != "ban" {
            return passed_over(format!("its remedy is {kind}, and a list drops"));
        }
        if self.simulated {
            return passed_over("it is simulated".to_owned());
        }
        let (scope, value) = match (self.scope.as_deref(), self.value.split_once(':')) {
            (Some(scope), _) => (scope, self.value.as_str()),
            // `Ip:192.0.2.7`: no address begins like that.
            (None, Some((scope, value))) if scope.chars().all(char::is_alphabetic) => {
                (scope, value)
            }
            (None, _) => ("Ip", self.value.as_str()),
        };
        if ["ip", "range"].contains(&scope.to_lowercase().as_str()) {
            return Ok(value);
        }
        passed_over(format!("its scope is {scope}, and a list is of addresses"))
    }
}
