//! `limiter completions` and `limiter man`: from the definition of the arguments, as `--help` is.

use std::fs;
use std::path::Path;

use clap::{Command, ValueEnum};
use clap_complete::env;

use super::completion_values;
use crate::answer::Answer;
use crate::failure::Failure;

/// Shells whose completions there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
}

/// The completions of a shell, as a script for it.
pub(crate) fn completions(shell: Shell) -> Answer {
    match shell {
        Shell::Bash => completion_values::script(&env::Bash),
        Shell::Zsh => completion_values::script(&env::Zsh),
        Shell::Fish => completion_values::script(&env::Fish),
        Shell::Elvish => completion_values::script(&env::Elvish),
    }
    .into()
}

/// The page of `limiter`; with a directory, which is made, a file there for it and for every
/// command.
pub(crate) fn man(arguments: Command, directory: Option<&Path>) -> Result<Answer, Failure> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(arguments).render(&mut page).map_err(Failure::Output)?;
        return Ok(String::from_utf8_lossy(&page).into_owned().into());
    };
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(arguments, directory))
        .map_err(|error| Failure::Man(format!("{}: {error}", directory.display())))?;
    Ok(Answer::default())
}
