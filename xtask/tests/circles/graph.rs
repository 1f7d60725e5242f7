//! The files of a package, who imports whom, and the circles of that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::names;
use super::read::Crate;

/// The files of a package, and what each takes from which other.
#[derive(Default)]
pub(crate) struct Graph {
    edges: BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>,
}

/// Files each of which imports, by others of them, each other.
pub(crate) struct Circle<'a> {
    pub(crate) files: Vec<&'a Path>,
    pub(crate) edges: Vec<Edge<'a>>,
}

/// The names that one file takes from another.
pub(crate) struct Edge<'a> {
    pub(crate) from: &'a Path,
    pub(crate) to: &'a Path,
    pub(crate) names: Vec<&'a str>,
}

impl Graph {
    /// Reads the crates of one package: several programs may share files.
    pub(crate) fn read(roots: &[PathBuf]) -> Self {
        let mut graph = Self::default();
        for root in roots {
            let unit = Crate::read(root);
            for (module, path) in unit.uses() {
                for (file, name) in names::definitions(&unit, module, path) {
                    graph.add(unit.file(module), unit.path(file), name);
                }
            }
            for (module, file, name) in unit.calls() {
                graph.add(unit.file(module), unit.path(file), name);
            }
        }
        graph
    }

    fn add(&mut self, from: &Path, to: &Path, name: &str) {
        if from == to {
            return;
        }
        let targets = self.edges.entry(from.to_owned()).or_default();
        targets.entry(to.to_owned()).or_default().insert(name.to_owned());
    }

    pub(crate) fn circles(&self) -> Vec<Circle<'_>> {
        let mut walk = Walk { graph: self, seen: BTreeMap::new(), open: Vec::new(), found: vec![] };
        for file in self.edges.keys() {
            if !walk.seen.contains_key(file.as_path()) {
                walk.visit(file);
            }
        }
        let mut circles: Vec<_> = walk.found.into_iter().map(|files| self.circle(files)).collect();
        circles.sort_by(|a, b| b.files.len().cmp(&a.files.len()).then(a.files.cmp(&b.files)));
        circles
    }

    fn circle<'a>(&'a self, mut files: Vec<&'a Path>) -> Circle<'a> {
        files.sort();
        let mut edges = Vec::new();
        for &from in &files {
            for (to, names) in &self.edges[from] {
                if files.contains(&to.as_path()) {
                    let names = names.iter().map(String::as_str).collect();
                    edges.push(Edge { from, to, names });
                }
            }
        }
        Circle { files, edges }
    }
}

/// Tarjan's search for strongly connected components.
struct Walk<'a> {
    graph: &'a Graph,
    /// For each file that was entered its number; `None` once its component is complete.
    seen: BTreeMap<&'a Path, Option<usize>>,
    open: Vec<&'a Path>,
    found: Vec<Vec<&'a Path>>,
}

impl<'a> Walk<'a> {
    /// Enters a file, and returns the lowest number that it reaches.
    fn visit(&mut self, file: &'a Path) -> usize {
        let number = self.seen.len();
        let start = self.open.len();
        self.seen.insert(file, Some(number));
        self.open.push(file);
        let mut lowest = number;
        for to in self.graph.edges.get(file).into_iter().flat_map(BTreeMap::keys) {
            match self.seen.get(to.as_path()) {
                None => lowest = lowest.min(self.visit(to)),
                Some(&Some(other)) => lowest = lowest.min(other),
                Some(None) => {}
            }
        }
        if lowest == number {
            let component = self.open.split_off(start);
            for file in &component {
                self.seen.insert(file, None);
            }
            if component.len() > 1 {
                self.found.push(component);
            }
        }
        lowest
    }
}
