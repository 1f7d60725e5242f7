//! The modules of a crate, read from its files: what each defines, imports and names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemMacro, ItemMod, ItemUse, Lit, Meta, UseTree, Visibility};

type Segments = Vec<String>;

#[derive(Default)]
pub(crate) struct Names {
    pub(crate) items: BTreeSet<String>,
    pub(crate) children: BTreeMap<String, usize>,
    pub(crate) imports: BTreeMap<String, Vec<Segments>>,
    pub(crate) globs: Vec<Segments>,
}

struct Module {
    file: usize,
    parent: Option<usize>,
    names: Names,
    /// All paths that the module names, imports included.
    uses: BTreeSet<Segments>,
    /// Macros that it calls without a path.
    calls: BTreeSet<String>,
}

/// The modules of a crate; the first is its root.
#[derive(Default)]
pub(crate) struct Crate {
    files: Vec<PathBuf>,
    modules: Vec<Module>,
    /// The files of macros by example, by their names: textual scope needs no path.
    macros: BTreeMap<String, BTreeSet<usize>>,
    /// The files of macros that are names of the root wherever they stand.
    exported: BTreeMap<String, usize>,
}

impl Crate {
    pub(crate) fn read(root: &Path) -> Self {
        let mut unit = Self::default();
        unit.file_module(root, None, root.parent().unwrap().to_owned());
        unit
    }

    pub(crate) fn uses(&self) -> impl Iterator<Item = (usize, &[String])> {
        let modules = self.modules.iter().enumerate();
        modules.flat_map(|(number, module)| module.uses.iter().map(move |path| (number, &path[..])))
    }

    pub(crate) fn names(&self, module: usize) -> &Names {
        &self.modules[module].names
    }

    pub(crate) fn parent(&self, module: usize) -> Option<usize> {
        self.modules[module].parent
    }

    pub(crate) fn file_number(&self, module: usize) -> usize {
        self.modules[module].file
    }

    pub(crate) fn file(&self, module: usize) -> &Path {
        self.path(self.file_number(module))
    }

    pub(crate) fn path(&self, file: usize) -> &Path {
        &self.files[file]
    }

    /// The file of a macro that is called without a path, where only one has such a macro.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.modules.iter().enumerate().flat_map(move |(number, module)| {
            module.calls.iter().filter_map(move |name| {
                let files = self.macros.get(name)?;
                let file = files.first().filter(|_| files.len() == 1)?;
                Some((number, *file, name.as_str()))
            })
        })
    }

    /// The file of a macro that the root exports.
    pub(crate) fn exported(&self, name: &str) -> Option<usize> {
        self.exported.get(name).copied()
    }

    /// Reads a file as a module, and the modules below it, which stand in `folder`.
    fn file_module(&mut self, path: &Path, parent: Option<usize>, folder: PathBuf) -> usize {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.files.push(path.to_owned());
        let module = self.module(self.files.len() - 1, parent);
        let beside = path.parent().unwrap().to_owned();
        Reader { unit: self, module, folder, beside, reexport: false }.visit_file(&file);
        module
    }

    fn module(&mut self, file: usize, parent: Option<usize>) -> usize {
        let names = Names::default();
        let calls = BTreeSet::new();
        self.modules.push(Module { file, parent, names, uses: BTreeSet::new(), calls });
        self.modules.len() - 1
    }
}

/// Reads one module of a file.
struct Reader<'a> {
    unit: &'a mut Crate,
    module: usize,
    /// Folder of the files of its modules.
    folder: PathBuf,
    /// The folder of the file: `#[path]` counts from here.
    beside: PathBuf,
    /// True while a `pub use` is read: it forwards names, and its file takes none of them.
    reexport: bool,
}

impl Reader<'_> {
    fn this(&mut self) -> &mut Module {
        &mut self.unit.modules[self.module]
    }

    fn name(&mut self, path: Segments) {
        self.this().uses.insert(path);
    }

    /// Notes what a `use` names, and under which names.
    fn import(&mut self, tree: &UseTree, mut before: Segments) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before.clone());
                }
            }
            UseTree::Glob(_) => self.this().names.globs.push(before),
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                if name != "self" {
                    before.push(name);
                }
                if let Some(name) = before.last().cloned() {
                    self.bind(name, before);
                }
            }
            UseTree::Rename(rename) => {
                let name = rename.ident.to_string();
                if name != "self" {
                    before.push(name);
                }
                self.bind(rename.rename.to_string(), before);
            }
        }
    }

    fn bind(&mut self, name: String, path: Segments) {
        if !self.reexport {
            self.name(path.clone());
        }
        self.this().names.imports.entry(name).or_default().push(path);
    }

    /// Notes the paths in tokens that are not parsed: those of macros and attributes.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Segments::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Punct(punct) => {
                    if let ('!', Spacing::Alone, [name]) =
                        (punct.as_char(), punct.spacing(), &path[..])
                    {
                        let name = name.clone();
                        self.this().calls.insert(name);
                    }
                    self.end(&mut path);
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(literal) => {
                    self.end(&mut path);
                    self.literal(&literal.to_string());
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Segments) {
        if !path.is_empty() {
            let path = std::mem::take(path);
            self.name(path);
        }
    }

    /// Notes a path in quotes, as serde's attributes have it.
    fn literal(&mut self, quoted: &str) {
        let text = quoted.trim_matches('"');
        let of_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if text.contains("::") && text.chars().all(of_path) {
            self.name(text.split("::").map(str::to_owned).collect());
        }
    }

    fn module_below(&mut self, item: &ItemMod) {
        let name = item.ident.to_string();
        let module = self.module;
        let folder = self.folder.join(&name);
        let child = if let Some((_, items)) = &item.content {
            let child = self.unit.module(self.unit.modules[module].file, Some(module));
            let beside = self.beside.join(&name);
            let mut below =
                Reader { unit: self.unit, module: child, folder, beside, reexport: false };
            for item in items {
                below.visit_item(item);
            }
            child
        } else {
            let named = item.attrs.iter().find_map(named_path).map(|path| self.beside.join(path));
            let own = self.folder.join(format!("{name}.rs"));
            let found = [named, Some(own), Some(folder.join("mod.rs"))].into_iter().flatten();
            let file = found.into_iter().find(|file| file.is_file());
            let file = file.unwrap_or_else(|| panic!("{}: no file", folder.display()));
            self.unit.file_module(&file, Some(module), folder)
        };
        self.this().names.children.insert(name, child);
    }

    fn macro_definition(&mut self, item: &ItemMacro) {
        let Some(name) = &item.ident else { return };
        let name = name.to_string();
        let file = self.this().file;
        self.unit.macros.entry(name.clone()).or_default().insert(file);
        if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) {
            self.unit.exported.insert(name.clone(), file);
        }
        self.this().names.items.insert(name);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if of_tests(attributes(item)) {
            return;
        }
        let defined = match item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::TraitAlias(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        if let Some(name) = defined {
            self.this().names.items.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.ident != "tests" {
            self.module_below(item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.reexport = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, Segments::new());
        }
    }

    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        self.macro_definition(item);
        visit::visit_item_macro(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            _ => return,
        };
        if !of_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string());
            self.name(segments.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(name) = call.path.get_ident() {
            self.this().calls.insert(name.to_string());
        }
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::List(list) => self.tokens(list.tokens.clone()),
            meta if !meta.path().is_ident("doc") => visit::visit_meta(self, meta),
            _ => {}
        }
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.literal(&literal.value());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// True if `#[cfg(test)]` is among the attributes, alone or in `all(..)`.
fn of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => needs_test(list.tokens.clone()),
        _ => false,
    })
}

fn needs_test(condition: TokenStream) -> bool {
    let mut tokens = condition.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(name)), None) => name == "test",
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(all))) if name == "all" => {
            let all: Vec<TokenTree> = all.stream().into_iter().collect();
            let comma =
                |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
            all.split(comma).any(|one| needs_test(one.iter().cloned().collect()))
        }
        _ => false,
    }
}

/// The file that `#[path = ".."]` names.
fn named_path(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        syn::Expr::Lit(value) if pair.path.is_ident("path") => match &value.lit {
            Lit::Str(path) => Some(path.value()),
            _ => None,
        },
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
