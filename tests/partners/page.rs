//! The blocks of a page.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A page of `docs`, or another file of the repository.
pub(crate) struct Page(String);

impl Page {
    /// Reads `docs/behind-a-proxy.md`, say.
    pub(crate) fn read(path: &str) -> Result<Self> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        Ok(Self(fs::read_to_string(&file).with_context(|| file.display().to_string())?))
    }

    /// What follows a text, up to the end of the block.
    pub(crate) fn block(&self, begins: &str) -> Result<&str> {
        let (_, rest) = self.0.split_once(begins).with_context(|| format!("no {begins:?}"))?;
        let (block, _) = rest.split_once("```").with_context(|| format!("{begins:?} ends"))?;
        Ok(block)
    }

    /// The block that begins with the path of a file.
    pub(crate) fn file(&self, path: &str) -> Result<&str> {
        self.block(&format!("# {path}\n"))
    }

    /// A cell of the row of a table that begins with a text, by the number of its column.
    pub(crate) fn cell(&self, row: &str, column: usize) -> Result<&str> {
        let begin = format!("| {row} |");
        let line = self.0.lines().find(|line| line.starts_with(&begin));
        let cell = line.and_then(|line| line.split('|').nth(column + 1));
        Ok(cell.with_context(|| format!("no row {row:?}, or no column {column}"))?.trim())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}
