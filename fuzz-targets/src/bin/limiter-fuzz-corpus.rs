//! Between the committed corpora, which are one file each, and the directories of libFuzzer, which
//! have one file an input: `limiter-fuzz-corpus unpack|pack TARGET DIRECTORY`. What is unpacked has
//! the captures and examples, too.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use limiter_fuzz_targets::corpus::{self, Entry};
use limiter_fuzz_targets::{Target, seeds};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let [what, name, directory] = args.as_slice() else {
        eprintln!("limiter-fuzz-corpus: give unpack or pack, a target and a directory");
        return ExitCode::from(2);
    };
    let Some(target) = Target::ALL.into_iter().find(|target| target.name() == name) else {
        eprintln!("limiter-fuzz-corpus: there is no target {name}");
        return ExitCode::from(2);
    };
    let directory = Path::new(directory);
    let done = match what.as_str() {
        "unpack" => unpack(target, directory),
        "pack" => pack(target, directory),
        _ => Err(io::Error::other(format!("{what}: give unpack or pack"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limiter-fuzz-corpus: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn unpack(target: Target, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut entries = seeds::of(target)?;
    entries.extend(corpus::read(target)?);
    for Entry { name, bytes } in &entries {
        fs::write(directory.join(name), bytes)?;
    }
    println!("{}: {} inputs to begin with", target.name(), entries.len());
    Ok(())
}

fn pack(target: Target, directory: &Path) -> io::Result<()> {
    let mut inputs = Vec::new();
    for file in fs::read_dir(directory)? {
        inputs.push(fs::read(file?.path())?);
    }
    let kept = corpus::write(target, inputs)?;
    println!("{}: {kept} inputs in {}", target.name(), corpus::file(target).display());
    Ok(())
}
