//! `GET /v1/rules`, sent in parts: the rules of one rule set, as a rule file. The file is written
//! first: in its author's words or, if it is large, rule by rule.

use limiter_api::moment;
use limiter_rules::file::{ExactFile, Others, as_written};
use limiter_rules::model::until_text;
use limiter_rules::{Path, RuleSet};

use super::reported::Result;
use crate::control::Step;
use crate::control::parts::Parts;
use crate::rule_sets::layers::Layers;

/// Rules that are written before others have their turn.
const SLICE: usize = 256;

/// Bytes of the file that are sent before others have their turn.
const REPORTED: usize = 16 << 10;

/// Comment for a file whose author's text was not kept.
const LARGE: &str = "The rule files are large: without their comments, and written anew.";

/// Comment for files whose text cannot be used.
const ANEW: &str = "The rule files could not be joined with other rules as they are: without \
    their comments, and written anew.";

/// The rule file being written and sent.
#[derive(Debug)]
pub(crate) struct RulesText {
    /// True if only rules of `limiter set` are wanted.
    edits: bool,
    generation: u64,
    slice: usize,
    written: usize,
    /// The file, if it is rewritten rule by rule.
    file: Option<ExactFile>,
    /// The complete text, once it exists, and the number of bytes sent.
    text: Option<(String, usize)>,
    parts: Parts,
    ended: bool,
}

impl RulesText {
    pub(crate) fn new(generation: u64, edits: bool) -> Self {
        Self {
            edits,
            generation,
            slice: SLICE,
            written: 0,
            file: None,
            text: None,
            parts: Parts::default(),
            ended: false,
        }
    }

    /// Continues the file. If other rules came into force since the last slice, it begins again
    /// with them and with larger slices: so it ends however often the rules change. `max_frame` is
    /// the present one of the interfaces.
    pub(crate) fn go_on(
        &mut self,
        generation: u64,
        layers: &Layers,
        max_frame: u64,
    ) -> Result<Step> {
        if self.ended {
            return Ok(Step::Done);
        }
        let Some((text, reported)) = &mut self.text else {
            if generation != self.generation {
                let slice = self.slice.saturating_mul(4);
                *self = Self { slice, ..Self::new(generation, self.edits) };
            }
            if let Some(text) = self.write(layers, max_frame)? {
                let anew = self.file.is_some() && !self.edits;
                let of_files = layers.file.with_requests.iter().filter(|_| anew);
                let left_out: Vec<&str> = of_files.map(|name| &**name).collect();
                self.parts.member("generation", &self.generation)?;
                self.parts.member("without_requests_of", &left_out)?;
                self.parts.open_string("text")?;
                self.text = Some((text, 0));
            }
            return Ok(Step::Again);
        };
        let end = text.ceil_char_boundary(reported.saturating_add(REPORTED).min(text.len()));
        self.parts.characters(text.get(*reported..end).unwrap_or_default())?;
        *reported = end;
        if end == text.len() {
            self.parts.close_string();
            self.parts.end();
            self.ended = true;
        }
        Ok(Step::Part(self.parts.take()))
    }

    /// Writes a slice; returns the file once it is complete.
    fn write(&mut self, layers: &Layers, max_frame: u64) -> Result<Option<String>> {
        let file = match &mut self.file {
            Some(file) => file,
            none if self.edits => none.insert(ExactFile::default()),
            none => {
                let texts = layers.texts.documents();
                let written = as_written(&texts, &layers.file, &others(layers), max_frame);
                if written.is_some() {
                    return Ok(written);
                }
                none.insert(begun(layers, if texts.is_empty() { LARGE } else { ANEW })?)
            }
        };
        let of_files = if self.edits { &[][..] } else { &layers.file.rules.rules };
        // Rules that `limiter set` replaced are left out.
        let of_files = of_files.iter().filter(|rule| !layers.edits.contains_key(&rule.path));
        let mut rules = of_files.chain(layers.edits.values()).skip(self.written);
        for rule in rules.by_ref().take(self.slice) {
            if let Some(end) = end(layers, &rule.path) {
                file.comment(&end);
            }
            file.rule(rule)?;
            self.written += 1;
        }
        let whole = rules.next().is_none();
        Ok(whole.then(|| std::mem::take(file).end()))
    }
}

/// Begins a rewritten file: a comment, and everything except the rules.
fn begun(layers: &Layers, comment: &str) -> Result<ExactFile> {
    let rules = &layers.file.rules;
    let RuleSet { replies, bans, martians, .. } = *rules;
    let (budgets, lists) = (rules.budgets.clone(), rules.lists.clone());
    let head = RuleSet { budgets, replies, bans, martians, lists, rules: Vec::new() };
    Ok(ExactFile::begin(comment, layers.file.domain.as_deref(), &head)?)
}

/// The rules of `limiter set`, with comments.
fn others(layers: &Layers) -> Others<'_> {
    let mut others = Others::new();
    for (index, (path, rule)) in layers.edits.iter().enumerate() {
        let by = (index == 0).then(|| "By `limiter set`:".to_owned());
        let comments = by.into_iter().chain(end(layers, path)).collect();
        others.insert(path, (rule, comments));
    }
    others
}

/// Comment on a rule that ends by itself, which a rule file cannot express.
fn end(layers: &Layers, path: &Path) -> Option<String> {
    let end = moment::local(&until_text(*layers.ends.get(path)?));
    Some(format!("For a time: `limiter set` ends it at {end}, and a rule file does not."))
}
