//! `limiter-cni`, a chained plugin of CNI: what a container may send and get, which container
//! runtimes pass on as the capability `bandwidth`, becomes limits of the daemon on the container's
//! cable. <https://github.com/containernetworking/cni/blob/main/SPEC.md>, version 1.1.
//!
//! The plugin keeps nothing. The name of each limit says whose it is, so DEL and GC find it by what
//! the daemon has, whatever became of the container.

mod call;
mod commands;
mod config;
mod daemon;
mod failure;
#[cfg(test)]
mod tests;

use std::io::{self, Read as _};
use std::process::ExitCode;

use crate::call::Call;
use crate::failure::{Failure, code};

/// Most bytes of a network configuration: far more than any has.
const MOST: u64 = 1 << 20;

fn main() -> ExitCode {
    let mut input = Vec::new();
    let answer = Call::read(&|name| std::env::var(name).ok()).and_then(|call| {
        let read = io::stdin().take(MOST + 1).read_to_end(&mut input);
        read.map_err(|error| Failure::new(code::IO, format!("standard input: {error}")))?;
        if input.len() as u64 > MOST {
            let text = "the network configuration has more than 1 MiB: give a shorter one";
            return Err(Failure::new(code::DECODE, text));
        }
        commands::answer(&call, &input)
    });
    match answer {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(document)) => {
            println!("{document}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}", failure.document(&config::version_of(&input)));
            ExitCode::FAILURE
        }
    }
}
