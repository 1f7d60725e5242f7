//! How much stack the longest chain of calls takes. The verifier of Linux before 6.7 rounds the
//! frame of every function up to 32 bytes, a newer one up to 16: it would not notice what an older
//! one refuses.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::program::{OBJECT, TC_OBJECT, aligned};
use object::elf::R_BPF_64_32;
use object::{
    Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SymbolKind,
};

/// `MAX_BPF_STACK`: bytes of a chain of calls.
const MOST_BYTES: u64 = 512;

/// `MAX_CALL_FRAMES`: functions of one.
const MOST_FRAMES: usize = 8;

/// Bytes that a frame is rounded up to, by the oldest kernel.
const ROUNDED: u64 = 32;

/// Beginning of a function: its section, and its address there.
type Place = (usize, u64);

#[derive(Debug, Default)]
struct Function {
    name: String,
    /// Bytes of its frame that it touches.
    depth: u64,
    calls: Vec<Place>,
}

/// The longest chain from a function on.
#[derive(Clone, Debug, Default)]
struct Chain {
    bytes: u64,
    /// The most functions of any chain, not only of this one.
    frames: usize,
    names: Vec<String>,
}

/// `opcode`, destination and source register, offset, and immediate value.
fn decoded(raw: [u8; 8]) -> (u8, usize, usize, i64, i64) {
    let [opcode, registers, offset @ .., a, b, c, d] = raw;
    let offset = i64::from(i16::from_le_bytes(offset));
    let immediate = i64::from(i32::from_le_bytes([a, b, c, d]));
    (opcode, usize::from(registers & 15), usize::from(registers >> 4), offset, immediate)
}

/// How deep some code reaches below the frame's end, in register 10: by itself, and by addresses
/// that it makes of it. Those are made in one place, so the code is read from top to bottom.
fn depth(code: &[[u8; 8]]) -> u64 {
    let mut addresses = [None; 16];
    addresses[10] = Some(0_i64);
    let mut lowest = 0;
    let mut second_half = false;
    for raw in code {
        if std::mem::take(&mut second_half) {
            continue;
        }
        let (opcode, to, from, offset, immediate) = decoded(*raw);
        let touched = match opcode & 7 {
            // Loads, and stores.
            1 => addresses[from].map(|address| address + offset),
            2 | 3 => addresses[to].map(|address| address + offset),
            _ => None,
        };
        match opcode {
            // Two words of code for one instruction.
            0x18 => {
                second_half = true;
                addresses[to] = None;
            }
            // A 64-bit copy, and additions of a constant.
            0xbf => addresses[to] = addresses[from],
            0x07 => addresses[to] = addresses[to].map(|address| address + immediate),
            0x85 => addresses[..6].fill(None),
            _ if matches!(opcode & 7, 1 | 4 | 7) => addresses[to] = None,
            _ => {}
        }
        let made = addresses[to].filter(|_| matches!(opcode, 0x07));
        lowest = touched.into_iter().chain(made).fold(lowest, i64::min);
    }
    lowest.unsigned_abs()
}

fn functions(object: &[u8]) -> Result<HashMap<Place, Function>> {
    ensure!(!object.is_empty(), "built without the XDP program: run `cargo xtask setup`");
    let file = object::File::parse(object)?;
    let mut functions = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let (name, section) = (symbol.name()?, symbol.section_index().context("no section")?);
        let (data, relocations) = {
            let section = file.section_by_index(section)?;
            let from = usize::try_from(symbol.address())?;
            let code = section.data()?.get(from..from + usize::try_from(symbol.size())?);
            (code.with_context(|| format!("{name} is not in its section"))?, section.relocations())
        };
        let (code, rest) = data.as_chunks::<8>();
        ensure!(!code.is_empty() && rest.is_empty(), "{name}: {} bytes of code", data.len());
        let moved: HashMap<u64, RelocationTarget> = relocations
            .filter(|(_, moved)| {
                matches!(moved.flags(), RelocationFlags::Elf { r_type: R_BPF_64_32 })
            })
            .map(|(at, moved)| (at, moved.target()))
            .collect();
        let mut calls = Vec::new();
        for (at, raw) in (symbol.address()..).step_by(8).zip(code) {
            let (opcode, _, kind, _, immediate) = decoded(*raw);
            // Of a function of the program, not of the kernel.
            if opcode != 0x85 || kind != 1 {
                continue;
            }
            let place = match moved.get(&at) {
                Some(RelocationTarget::Symbol(index)) => {
                    let target = file.symbol_by_index(*index)?;
                    let section = target.section_index().context("a call of nowhere")?;
                    // Of a section, the constant says which function.
                    let ahead =
                        if target.kind() == SymbolKind::Section { immediate + 1 } else { 0 };
                    (section.0, target.address().wrapping_add_signed(8 * ahead))
                }
                Some(other) => bail!("{name} calls {other:?}"),
                None => (section.0, at.wrapping_add_signed(8 * (immediate + 1))),
            };
            calls.push(place);
        }
        let function = Function { name: name.to_owned(), depth: depth(code), calls };
        functions.insert((section.0, symbol.address()), function);
    }
    Ok(functions)
}

/// The longest chain from a function on. `known` are those that were asked before.
fn longest(
    functions: &HashMap<Place, Function>,
    place: Place,
    known: &mut HashMap<Place, Chain>,
) -> Result<Chain> {
    if let Some(chain) = known.get(&place) {
        return Ok(chain.clone());
    }
    let function = functions.get(&place).with_context(|| format!("no function at {place:?}"))?;
    let mut longest_yet = Chain::default();
    for call in &function.calls {
        let chain = longest(functions, *call, known)?;
        let frames = longest_yet.frames.max(chain.frames);
        if chain.bytes > longest_yet.bytes {
            longest_yet = chain;
        }
        longest_yet.frames = frames;
    }
    longest_yet.bytes += function.depth.max(1).next_multiple_of(ROUNDED);
    longest_yet.frames += 1;
    longest_yet.names.insert(0, format!("{} ({})", function.name, function.depth));
    known.insert(place, longest_yet.clone());
    Ok(longest_yet)
}

fn longest_of(functions: &HashMap<Place, Function>, name: &str) -> Result<Chain> {
    let first = functions.iter().find(|(_, function)| function.name == name);
    let (place, _) = first.with_context(|| format!("no function {name}"))?;
    longest(functions, *place, &mut HashMap::new())
}

/// The stack of Linux 6.1 holds the program.
#[test]
fn the_longest_chain_of_calls_fits_the_stack_of_the_oldest_kernel() -> Result<()> {
    // Those of the tests as well: other kernels are asked to load them.
    for (name, object) in [
        ("XDP", limiter_objects::program()),
        ("XDP, tests", aligned(OBJECT)),
        ("tc", limiter_objects::tc_program()),
        ("tc, tests", aligned(TC_OBJECT)),
    ] {
        the_longest_chain_fits(&object).with_context(|| format!("the program for {name}"))?;
    }
    Ok(())
}

fn the_longest_chain_fits(object: &[u8]) -> Result<()> {
    let functions = functions(object)?;
    let chain = longest_of(&functions, "limiter")?;
    println!("{} bytes, {} functions: {}", chain.bytes, chain.frames, chain.names.join(" -> "));
    ensure!(
        chain.bytes <= MOST_BYTES,
        "{} of {MOST_BYTES} bytes: {}",
        chain.bytes,
        chain.names.join(" -> ")
    );
    ensure!(chain.frames <= MOST_FRAMES, "{} of {MOST_FRAMES} functions", chain.frames);
    // The object was read at all.
    ensure!(chain.frames > 4 && functions.len() > 40, "{chain:?} of {}", functions.len());
    Ok(())
}

fn code(opcode: u8, to: u8, from: u8, offset: i16, immediate: i32) -> [u8; 8] {
    let mut raw = [opcode, from << 4 | to, 0, 0, 0, 0, 0, 0];
    raw[2..4].copy_from_slice(&offset.to_le_bytes());
    raw[4..].copy_from_slice(&immediate.to_le_bytes());
    raw
}

#[test]
fn frames_are_as_deep_as_what_is_touched() {
    let store = code(0x7b, 10, 3, -24, 0);
    assert_eq!(depth(&[store]), 24);
    assert_eq!(depth(&[code(0x79, 3, 10, -40, 0), store]), 40);
    // The address of a key, and a store by such an address.
    let copy = code(0xbf, 2, 10, 0, 0);
    assert_eq!(depth(&[copy, code(0x07, 2, 0, 0, -56)]), 56);
    assert_eq!(depth(&[copy, code(0x07, 2, 0, 0, -56), code(0x7b, 2, 3, -8, 0)]), 64);
    // A register that has another value by now, or never had an address.
    assert_eq!(depth(&[copy, code(0x79, 2, 1, 0, 0), code(0x07, 2, 0, 0, -56)]), 0);
    assert_eq!(depth(&[code(0x07, 3, 0, 0, -56), code(0x85, 0, 1, 0, -1)]), 0);
    // The second half of a constant is no instruction.
    assert_eq!(depth(&[code(0x18, 1, 0, 0, 0), store]), 0);
}

#[test]
fn the_longest_chain_is_found() -> Result<()> {
    let function = |name: &str, depth, calls: &[u64]| Function {
        name: name.to_owned(),
        depth,
        calls: calls.iter().map(|at| (0, *at)).collect(),
    };
    let functions = HashMap::from([
        ((0, 0), function("main", 0, &[8, 16])),
        ((0, 8), function("deep", 200, &[])),
        ((0, 16), function("a", 32, &[24, 24])),
        ((0, 24), function("b", 33, &[])),
    ]);
    let chain = longest_of(&functions, "main")?;
    assert_eq!((chain.bytes, chain.frames), (32 + 224, 3));
    assert_eq!(chain.names, ["main (0)", "deep (200)"]);
    Ok(())
}
