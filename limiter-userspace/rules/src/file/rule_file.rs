//! The content of a rule file.

use std::collections::BTreeMap;

use super::place::Place;
use crate::model::{RuleSet, Subject};

/// A rule file that passed every check that needs no kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFile {
    /// Domain of the file, and the place of it.
    pub domain: Option<(String, Place)>,
    /// Rules of the file.
    pub rules: RuleSet,
    /// Places where each rule and each budget begins, for errors that are found later.
    pub places: BTreeMap<Subject, Place>,
    /// True if the file says outright that it has no rules: `descriptors: []`.
    pub no_rules_meant: bool,
    /// True if it has rules for requests beside these.
    pub has_requests: bool,
}
