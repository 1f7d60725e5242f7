//! Writes what fuzzing begins with, one file an input: `limiter-fuzz-seed TARGET DIRECTORY`.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use limiter_fuzz_targets::{Target, seeds};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, directory] = args.as_slice() else {
        eprintln!("limiter-fuzz-seed: give a target and a directory");
        return ExitCode::from(2);
    };
    let Some(target) = Target::ALL.into_iter().find(|target| target.name() == name) else {
        eprintln!("limiter-fuzz-seed: there is no target {name}");
        return ExitCode::from(2);
    };
    match write(target, Path::new(directory)) {
        Ok(count) => {
            println!("{count} inputs for {name} from captures and examples");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("limiter-fuzz-seed: {directory}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(target: Target, directory: &Path) -> io::Result<usize> {
    fs::create_dir_all(directory)?;
    let seeds = seeds::of(target)?;
    for (name, bytes) in &seeds {
        fs::write(directory.join(format!("seed-{name}")), bytes)?;
    }
    Ok(seeds.len())
}
