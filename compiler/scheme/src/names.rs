//! The namespace of schemes, fields and layers: the user's file, its imports, and the library.
//!
//! Takes a parsed file and a [`Loader`]; gives definitions by name. Library schemes are parsed when they are first
//! named. A file's own definition comes before a library scheme of the same name, except in the library itself. Leaves reading files to the loader, expressions to `resolve.rs`.

use super::define::{SchemeDef, define};
use super::vocabulary::Vocabulary;
use crate::codes;
use odec_grammar::ast::{Body, Field, File, Ident, Item, Layer, SchemeItem};
use odec_grammar::diag::Diagnostic;
use odec_grammar::{Sources, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Reads what `use "…"` names. Only the command line does I/O.
pub trait Loader {
    /// The file `path` as written in the file called `from`: the name it is known by (the same for every way to
    /// write it), and its text; or a sentence why not.
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String>;
}

/// A loader for texts that import nothing.
pub struct NoFiles;

impl Loader for NoFiles {
    fn load(&mut self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("there are no files here".into())
    }
}

/// Functions from flows to fields, and words of the language that no definition may take.
const RESERVED: &[&str] = &[
    "increment",
    "map",
    "adjoint",
    "compose",
    "power",
    "extrapolate",
    "average",
    "sqrt",
    "root",
    "ceil",
    "floor",
    "h",
    "t",
    "logits",
    "tokens",
];

#[derive(Clone, Debug)]
pub enum Definition {
    Scheme(Rc<SchemeDef>),
    Field(Rc<Field>),
    Layer(Rc<Layer>),
}

impl Definition {
    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Definition::Scheme(_) => "a scheme",
            Definition::Field(_) => "a field",
            Definition::Layer(_) => "a layer",
        }
    }

    /// What is said where a scheme is expected.
    pub fn not_a_scheme(&self, name: &Ident) -> Diagnostic {
        let message = format!("`{}` is {}, not a scheme", name.name, self.kind());
        Diagnostic::error(codes::NOT_A_SCHEME, name.span, message)
    }
}

/// Most messages that are shown; no suggestions are looked for once there are as many.
pub const MAX_MESSAGES: usize = 100;
/// Most imported files.
const MAX_IMPORTS: usize = 64;

pub struct Namespace<'s> {
    sources: &'s mut Sources,
    /// The layers of fields.
    pub layers: &'static Vocabulary,
    /// By name, with the place of the name; `None`: defined, but wrongly.
    names: BTreeMap<String, (Option<Definition>, Span)>,
    /// Definitions of the library that were named, and the sources of its texts.
    library: BTreeMap<String, Option<Definition>>,
    library_sources: BTreeSet<u32>,
    /// Names of the main file's schemes, fields and layers, in order.
    pub own: Vec<Ident>,
}

impl<'s> Namespace<'s> {
    /// Collects the definitions of a file and of everything it imports.
    pub fn new(
        (main, source): (&File, u32),
        layers: &'static Vocabulary,
        sources: &'s mut Sources,
        loader: &mut dyn Loader,
        sink: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut ns = Namespace {
            sources,
            layers,
            names: BTreeMap::new(),
            library: BTreeMap::new(),
            library_sources: BTreeSet::new(),
            own: Vec::new(),
        };
        let name = ns.sources.name(source).to_string();
        let mut done = BTreeSet::new();
        ns.import(
            main,
            source,
            &mut vec![name.clone()],
            &mut done,
            loader,
            sink,
        );
        for item in &main.items {
            match item {
                Item::Scheme(s) => ns.own.push(s.name.clone()),
                Item::Field(f) => ns.own.push(f.name.clone()),
                Item::Layer(l) => ns.own.push(l.name.clone()),
                _ => {}
            }
        }
        ns
    }

    fn import(
        &mut self,
        file: &File,
        source: u32,
        chain: &mut Vec<String>,
        done: &mut BTreeSet<String>,
        loader: &mut dyn Loader,
        sink: &mut Vec<Diagnostic>,
    ) {
        for u in &file.uses {
            let from = self.sources.name(source).to_string();
            let (name, text) = match loader.load(&u.path, &from) {
                Ok(found) => found,
                Err(why) => {
                    let message = format!("cannot import \"{}\": {why}", u.path);
                    sink.push(Diagnostic::error(codes::IMPORT_FAILED, u.span, message));
                    continue;
                }
            };
            if chain.contains(&name) {
                let mut round: Vec<&str> = chain
                    .iter()
                    .skip_while(|c| **c != name)
                    .map(String::as_str)
                    .collect();
                round.push(&name);
                sink.push(
                    Diagnostic::error(codes::CYCLIC_IMPORT, u.span, "this file imports itself")
                        .label(round.join(" → "))
                        .help("move what both files need into a third one"),
                );
                continue;
            }
            if !done.insert(name.clone()) {
                continue;
            }
            if done.len() > MAX_IMPORTS {
                let message = format!("more than {MAX_IMPORTS} files are imported");
                sink.push(Diagnostic::error(codes::TOO_LARGE, u.span, message));
                return;
            }
            let id = self.sources.add(name.clone(), text.clone());
            let (imported, errors) = odec_grammar::parse(id, &text);
            sink.extend(errors);
            chain.push(name);
            self.import(&imported, id, chain, done, loader, sink);
            chain.pop();
        }
        for item in &file.items {
            match item {
                Item::Scheme(s) => {
                    let def = define(s, self.sources.text(source), sink)
                        .map(|d| Definition::Scheme(Rc::new(d)));
                    let repeats = (self.sources.library().get(&s.name.name))
                        .is_some_and(|library| repeats(item, library.text));
                    self.add(&s.name, def, repeats, sink);
                }
                Item::Field(f) => {
                    let def = Definition::Field(Rc::new(f.clone()));
                    self.add(&f.name, Some(def), false, sink);
                }
                Item::Layer(l) => {
                    let def = Definition::Layer(Rc::new(l.clone()));
                    let repeats = (self.sources.library().get(&l.name.name))
                        .is_some_and(|library| repeats(item, library.text));
                    self.add(&l.name, Some(def), repeats, sink);
                }
                _ => {}
            }
        }
    }

    /// `repeats`: this is what the library says under the same name.
    fn add(
        &mut self,
        name: &Ident,
        def: Option<Definition>,
        repeats: bool,
        sink: &mut Vec<Diagnostic>,
    ) {
        let clash = |what: String| Diagnostic::error(codes::REDEFINITION, name.span, what);
        let word = name.name.as_str();
        if self.layers.takes(word) || RESERVED.contains(&word) {
            sink.push(clash(format!("`{word}` is a reserved name")).help("choose another name"));
            // Whoever names it means this definition, of which that is said.
            self.names.insert(word.to_string(), (None, name.span));
        } else if let Some((_, first)) = self.names.get(word) {
            sink.push(
                clash(format!("`{word}` is defined twice")).also(*first, "first defined here"),
            );
        } else {
            if !repeats && let Some(library) = self.sources.library().get(word) {
                let what = if library.is_layer() {
                    "layer"
                } else {
                    "scheme"
                };
                let message = format!("`{word}` is also the name of a library {what}");
                sink.push(
                    Diagnostic::warning(codes::REDEFINITION, name.span, message)
                        .label("this definition is used instead of the library's")
                        .help(format!(
                            "the library's {what} is in {}; choose another name to use both",
                            library.path()
                        )),
                );
            }
            self.names.insert(word.to_string(), (def, name.span));
        }
    }

    /// Whether a name is defined, but wrongly: what follows from it is not said.
    pub fn is_wrong(&self, name: &Ident) -> bool {
        !self.library_sources.contains(&name.span.source)
            && matches!(self.names.get(&name.name), Some((None, _)))
    }

    /// The definition of a name. `Err(true)`: its definition is wrong, and the error was reported.
    pub fn get(&mut self, name: &Ident, sink: &mut Vec<Diagnostic>) -> Result<Definition, bool> {
        let word = name.name.as_str();
        if !self.library_sources.contains(&name.span.source)
            && let Some((def, _)) = self.names.get(word)
        {
            return def.clone().ok_or(true);
        }
        if !self.library.contains_key(word)
            && let Some(library) = self.sources.library().get(word)
        {
            let text = library.text;
            let id = self.sources.add(format!("library/{word}.ode"), text);
            self.library_sources.insert(id);
            let (file, errors) = odec_grammar::parse(id, text);
            sink.extend(errors);
            for item in file.items {
                match item {
                    Item::Scheme(s) => {
                        let def = define(&s, text, sink).map(|d| Definition::Scheme(Rc::new(d)));
                        self.library.insert(s.name.name, def);
                    }
                    Item::Layer(l) => {
                        let name = l.name.name.clone();
                        let def = Definition::Layer(Rc::new(l));
                        self.library.insert(name, Some(def));
                    }
                    _ => {}
                }
            }
        }
        match self.library.get(word) {
            Some(Some(def)) => Ok(def.clone()),
            Some(None) => Err(true),
            None => Err(false),
        }
    }

    /// What a field or a layer of this name computes, of this file or of what it imports, and the names of what it is given.
    pub fn body(&self, name: &str) -> Option<(&Body, Vec<&Ident>)> {
        match self.names.get(name)? {
            (Some(Definition::Field(f)), _) => Some((&f.body, f.params.iter().collect())),
            (Some(Definition::Layer(l)), _) => {
                Some((&l.body, l.params.iter().map(|p| &p.name).collect()))
            }
            _ => None,
        }
    }

    /// "… is not defined", with the nearest name that is. `said`: how many messages there are.
    pub fn unknown(&self, name: &Ident, said: usize) -> Diagnostic {
        let message = format!("`{}` is not defined", name.name);
        let d = Diagnostic::error(codes::UNKNOWN_NAME, name.span, message);
        if said >= MAX_MESSAGES {
            return d;
        }
        if let Some(written) = self.layers.written(&name.name) {
            return d.help(written);
        }
        // A reserved word that a definition took is no name to write.
        let own = self.names.keys().map(String::as_str);
        let own = own.filter(|n| !RESERVED.contains(n) && !self.layers.takes(n));
        let known = own
            .chain(self.sources.library().iter().map(|s| s.name))
            .chain(self.layers.names())
            .chain(self.sources.library().layers().map(|l| l.name))
            .chain(["increment", "map"]);
        match odec_grammar::nearest(&name.name, known) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None => {
                d.help("`odec help layers` lists the layers of fields, `odec schemes` the schemes")
            }
        }
    }

    /// The layer or field whose name is nearest to one that is not defined, but not one of those that are being defined.
    /// `said`: how many messages there are.
    pub fn nearest_layer(&self, name: &Ident, open: &[&str], said: usize) -> Option<String> {
        if said >= MAX_MESSAGES {
            return None;
        }
        let written = self.names.iter().filter_map(|(name, (def, _))| match def {
            Some(Definition::Layer(_) | Definition::Field(_)) => Some(name.as_str()),
            _ => None,
        });
        let library = self.sources.library().layers().map(|l| l.name);
        let known = self.layers.names().chain(written).chain(library);
        let known = known.filter(|n| !open.contains(n));
        odec_grammar::nearest(&name.name, known).map(String::from)
    }

    /// The text of a span.
    pub fn quote(&self, span: Span) -> &str {
        self.sources
            .text(span.source)
            .get(span.start as usize..span.end as usize)
            .unwrap_or("")
    }
}

/// Whether a definition is that of a library file, comments and citations aside: a file that wrote it out before the library
/// had it stays valid.
fn repeats(item: &Item, text: &str) -> bool {
    let bare = |item: &Item| {
        let mut item = item.clone();
        match &mut item {
            Item::Scheme(s) => {
                s.doc.clear();
                s.items.retain(|i| !matches!(i, SchemeItem::Cite { .. }));
            }
            Item::Layer(l) => l.doc.clear(),
            _ => {}
        }
        odec_grammar::dump(&File {
            items: vec![item],
            ..File::default()
        })
    };
    let (file, _) = odec_grammar::parse(0, text);
    file.items.iter().any(|known| bare(known) == bare(item))
}
