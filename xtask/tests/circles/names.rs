//! The files that define the names of a path.

use std::collections::BTreeSet;

use super::read::Crate;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target<'a> {
    Module(usize),
    /// The number of the file that defines the item, and its name there.
    Item(usize, &'a str),
}

/// Modules whose names are being looked up: re-exports may name each other.
type Asked<'a> = Vec<(usize, &'a str)>;

/// The files that define the item that a path of a module names, with its name there. Of a path
/// like `Type::function` the type counts. A module alone is no item, nor is a name of another
/// crate.
pub(crate) fn definitions<'a>(
    unit: &'a Crate,
    module: usize,
    path: &'a [String],
) -> BTreeSet<(usize, &'a str)> {
    let mut items = BTreeSet::new();
    follow(unit, module, path, &mut Vec::new(), &mut |target| {
        if let Target::Item(file, name) = target {
            items.insert((file, name));
        }
    });
    items
}

/// Follows a path to its end, or to the first item in it.
fn follow<'a>(
    unit: &'a Crate,
    module: usize,
    path: &'a [String],
    asked: &mut Asked<'a>,
    end: &mut dyn FnMut(Target<'a>),
) {
    let mut at = module;
    let mut rest = path;
    let mut relative = false;
    while let Some((first, after)) = rest.split_first() {
        at = match first.as_str() {
            "crate" => 0,
            "self" => at,
            "super" => match unit.parent(at) {
                Some(parent) => parent,
                None => return,
            },
            _ => break,
        };
        rest = after;
        relative = true;
    }
    let mut modules = vec![at];
    for (place, name) in rest.iter().enumerate() {
        let last = place + 1 == rest.len();
        let mut next = Vec::new();
        for &module in &modules {
            let mut found = lookup(unit, module, name, asked);
            if found.is_empty() {
                if place == 0 && !relative {
                    continue;
                }
                // A macro makes it there.
                found.insert(Target::Item(unit.file_number(module), name));
            }
            // A function may have the name of a module; what follows is then the module's.
            let through = |target: &Target<'_>| matches!(target, Target::Module(_));
            let on = !last && found.iter().any(through);
            for target in found {
                match target {
                    Target::Module(module) if !last => next.push(module),
                    _ if on => {}
                    _ => end(target),
                }
            }
        }
        modules = next;
    }
    if rest.is_empty() {
        end(Target::Module(at));
    }
}

/// All that a name means in a module: items, modules, imports.
fn lookup<'a>(
    unit: &'a Crate,
    module: usize,
    name: &'a str,
    asked: &mut Asked<'a>,
) -> BTreeSet<Target<'a>> {
    let mut found = BTreeSet::new();
    if asked.contains(&(module, name)) {
        return found;
    }
    asked.push((module, name));
    let names = unit.names(module);
    if names.items.contains(name) {
        found.insert(Target::Item(unit.file_number(module), name));
    }
    if let Some(file) = unit.exported(name).filter(|_| module == 0) {
        found.insert(Target::Item(file, name));
    }
    if let Some(&child) = names.children.get(name) {
        found.insert(Target::Module(child));
    }
    for path in names.imports.get(name).into_iter().flatten() {
        follow(unit, module, path, asked, &mut |target| {
            found.insert(target);
        });
    }
    if found.is_empty() {
        for path in &names.globs {
            let mut globbed = Vec::new();
            follow(unit, module, path, asked, &mut |target| {
                if let Target::Module(module) = target {
                    globbed.push(module);
                }
            });
            for module in globbed {
                found.extend(lookup(unit, module, name, asked));
            }
        }
    }
    asked.pop();
    found
}
