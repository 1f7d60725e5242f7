//! `GET /v1/rules`, told in parts: the rules of one rule set, as a rule file. The file is written
//! first, rule by rule.

use limiter_rules::RuleSet;
use limiter_rules::file::ExactFile;

use super::told::Result;
use crate::control::Step;
use crate::control::parts::Parts;
use crate::layers::Layers;

/// Rules that are written before others have their turn.
const SLICE: usize = 256;

/// Bytes of the file that are told before others have their turn.
const TOLD: usize = 16 << 10;

/// The rule file under way.
#[derive(Debug)]
pub(crate) struct RulesText {
    /// True if only rules of `limiter set` are wanted.
    edits: bool,
    generation: u64,
    slice: usize,
    /// Rules that were written.
    written: usize,
    file: ExactFile,
    /// All of the file, once it is there, and how much of it was told.
    text: Option<(String, usize)>,
    parts: Parts,
    ended: bool,
}

impl RulesText {
    pub(crate) fn new(generation: u64, layers: &Layers, edits: bool) -> Result<Self> {
        let rules = &layers.file.rules;
        let (domain, head) = if edits {
            (None, RuleSet::default())
        } else {
            let budgets = rules.budgets.clone();
            let RuleSet { replies, bans, martians, .. } = *rules;
            let lists = rules.lists.clone();
            let head = RuleSet { budgets, replies, bans, martians, lists, rules: Vec::new() };
            (layers.file.domain.as_deref(), head)
        };
        Ok(Self {
            edits,
            generation,
            slice: SLICE,
            written: 0,
            file: ExactFile::begin(domain, &head)?,
            text: None,
            parts: Parts::default(),
            ended: false,
        })
    }

    /// Goes on with it. If other rules came into force since the last slice, it begins again with
    /// them, and with larger slices: so it comes to an end however often they change.
    pub(crate) fn go_on(&mut self, generation: u64, layers: &Layers) -> Result<Step> {
        if self.ended {
            return Ok(Step::Done);
        }
        let Some((text, told)) = &mut self.text else {
            if generation != self.generation {
                let slice = self.slice.saturating_mul(4);
                *self = Self { slice, ..Self::new(generation, layers, self.edits)? };
            }
            if self.write(layers)? {
                self.parts.member("generation", &self.generation)?;
                self.parts.open_string("text")?;
                self.text = Some((std::mem::take(&mut self.file).end(), 0));
            }
            return Ok(Step::Again);
        };
        let end = text.ceil_char_boundary(told.saturating_add(TOLD).min(text.len()));
        self.parts.characters(text.get(*told..end).unwrap_or_default())?;
        *told = end;
        if end == text.len() {
            self.parts.close_string();
            self.parts.end();
            self.ended = true;
        }
        Ok(Step::Part(self.parts.take()))
    }

    /// Writes a slice; says whether the file is whole.
    fn write(&mut self, layers: &Layers) -> Result<bool> {
        let of_files = if self.edits { &[][..] } else { &layers.file.rules.rules };
        // Rules that `limiter set` replaced are left out.
        let of_files = of_files.iter().filter(|rule| !layers.edits.contains_key(&rule.path));
        let mut rules = of_files.chain(layers.edits.values()).skip(self.written);
        for rule in rules.by_ref().take(self.slice) {
            self.file.rule(rule)?;
            self.written += 1;
        }
        Ok(rules.next().is_none())
    }
}
