//! From a path on the command line to a checked file.

use crate::artifact::{assembled, target};
use crate::fail::{Done, Failure};
use crate::library::LIBRARY;
use crate::terminal;
use odec_compiler::analysis::claims::Instance;
use odec_compiler::codes;
use odec_compiler::cost::{Cost, of_assembled};
use odec_compiler::model::sources::{Tokenized, too_many};
use odec_compiler::model::{Built, Checked, CompileError, compile, schemes};
use odec_compiler::passes::budget::resolve;
use odec_compiler::passes::{Assembled, Options};
use odec_compiler::scheme::names::Loader;
use odec_grammar::ast::File;
use odec_grammar::{Diagnostic, MAX_BYTES, Severity, Sources, parse, render, set};
use odec_program::Target;
use odec_program::manifest::{Import, Manifest};
use odec_runtime::data::tokenizer::TokenizerError;
use odec_runtime::errln;
use odec_runtime::parameters::import::Init;
use odec_runtime::system::input;
use odec_runtime::system::known::{self, Kind};
use odec_runtime::{Shown, Tokenizer};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

/// A parsed file, with the texts its places point into.
#[derive(Clone)]
pub struct Parsed {
    pub sources: Sources,
    pub main: u32,
    pub file: File,
    /// What `--set` replaced, as it was given.
    pub settings: Vec<String>,
    /// The files that it imports, from its folder; known when it was checked.
    pub imports: Vec<Import>,
}

/// Reads a file.
pub fn read(path: &Path) -> Done<String> {
    let name = path.shown();
    if let Some(what) = known::instead(path, &[Kind::Source]) {
        return Err(Failure::Input(format!(
            "{name} is not a .ode file: it {what}"
        )));
    }
    let opened = input::open(path).map_err(|e| match path.to_str().and_then(|p| LIBRARY.get(p)) {
        Some(known) if e.kind() == ErrorKind::NotFound => match known.is_layer() {
            true => format!("there is no such file; the library has a layer of this name, which `odec help {name}` describes"),
            false => format!(
                "there is no such file; the library has a scheme of this name: `odec help {name}` prints it, `odec schemes {name}` what is proved of it"
            ),
        },
        None if e.kind() == ErrorKind::NotFound => "there is no such file".into(),
        _ => e.to_string(),
    });
    opened
        .and_then(source_text)
        .map_err(|why| Failure::Input(format!("{name}: {why}")))
}

/// Everything that is to be read, unless it is longer than any source (or never ends), or no text.
pub fn source_text(from: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let most = MAX_BYTES as u64 + 1;
    let read = from.take(most).read_to_end(&mut bytes);
    read.map_err(|e| e.to_string())?;
    if bytes.len() > MAX_BYTES {
        let most = terminal::thousands(MAX_BYTES as u64);
        return Err(format!("more than {most} bytes; .ode files are shorter"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        format!("byte {at} is not UTF-8; .ode files are text")
    })
}

/// Reads, parses and overrides a file.
pub fn parsed(path: &Path, overrides: &[String]) -> Done<Parsed> {
    let read = changed(path.display().to_string(), read(path)?, overrides);
    let (parsed, messages) = read.map_err(Failure::Input)?;
    report(&messages, &parsed.sources)?;
    Ok(parsed)
}

/// A text with some of its values replaced, and what is wrong with that.
fn changed(
    name: String,
    text: String,
    overrides: &[String],
) -> Result<(Parsed, Vec<Diagnostic>), String> {
    let mut sources = Sources::with(LIBRARY);
    let main = sources.add(name, text);
    let (mut file, mut messages) = parse(main, sources.text(main));
    for given in overrides {
        let Some((name, value)) = given.split_once('=') else {
            return Err(format!(
                "--set {given}: expected PATH=VALUE, such as model.width=256"
            ));
        };
        if let Err(d) = set(&mut file, &mut sources, name.trim(), value.trim()) {
            messages.push(d);
        }
    }
    let parsed = Parsed {
        sources,
        main,
        file,
        settings: overrides.to_vec(),
        imports: Vec::new(),
    };
    Ok((parsed, messages))
}

/// What an artifact was built from, checked again without a word: by the library of this odec, which may be another than the one it was
/// built by.
///
/// # Errors
/// The first thing that is wrong, in a sentence.
pub fn of_artifact(m: &Manifest) -> Result<(Parsed, Checked), String> {
    let first = |messages: &[Diagnostic]| {
        let error = messages.iter().find(|d| d.severity == Severity::Error);
        error.map(|d| d.message.clone())
    };
    let texts = m.imports.iter().map(|i| &i.text).chain([&m.source]);
    if texts.map(String::len).any(|bytes| bytes > MAX_BYTES) {
        return Err("a text in it is longer than any source".into());
    }
    let name = format!("{}.ode", m.name);
    let (mut parsed, messages) = changed(name, m.source.clone(), &m.settings)?;
    if let Some(why) = first(&messages) {
        return Err(why);
    }
    parsed.imports.clone_from(&m.imports);
    let mut kept = Kept(&m.imports);
    match compile(&parsed.file, parsed.main, &mut parsed.sources, &mut kept) {
        Ok(checked) => Ok((parsed, checked)),
        Err(CompileError::Source(messages)) => Err(first(&messages).unwrap_or_default()),
        Err(CompileError::Internal(e)) => Err(e.to_string()),
    }
}

/// Imports that an artifact holds.
struct Kept<'a>(&'a [Import]);

impl Loader for Kept<'_> {
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
        let base = Path::new(from).parent().unwrap_or(Path::new(""));
        let wanted = plain(&base.join(path));
        let mut all = self.0.iter();
        let found = all.find(|i| plain(Path::new(&i.path)) == wanted);
        let found = found.ok_or_else(|| format!("the artifact does not hold {path}"))?;
        Ok((found.path.clone(), found.text.clone()))
    }
}

/// A path without `.` and, where something stands before it, `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(out.components().next_back(), Some(Component::Normal(_))) =>
            {
                _ = out.pop()
            }
            part => out.push(part),
        }
    }
    out
}

/// What reads the files that a file imports.
pub fn folder(main: &str) -> impl Loader {
    Folder::new(main)
}

/// A file that odec wrote itself: a mistake in it is none of the user's.
pub fn written(name: &str, text: &str) -> Done<Parsed> {
    let mut sources = Sources::with(LIBRARY);
    let main = sources.add(name.to_string(), text.to_string());
    let (file, messages) = parse(main, text);
    match messages.first() {
        None => Ok(Parsed {
            sources,
            main,
            file,
            settings: Vec::new(),
            imports: Vec::new(),
        }),
        Some(first) => Err(Failure::internal(render(first, &sources, false))),
    }
}

/// Prints messages; fails when one is an error.
pub fn report(messages: &[Diagnostic], sources: &Sources) -> Done {
    for d in messages {
        errln!("{}", render(d, sources, terminal::colour()));
    }
    let errors = messages.iter().filter(|d| d.severity == Severity::Error);
    match errors.count() {
        0 => Ok(()),
        errors => Err(Failure::Reported { errors }),
    }
}

/// Whether there is an error among messages.
pub fn has_errors(messages: &[Diagnostic]) -> bool {
    messages.iter().any(|d| d.severity == Severity::Error)
}

/// Imports are read from the folder of the file that names them. A file is known by the path it was first reached by.
struct Folder {
    known: BTreeMap<PathBuf, String>,
    /// What was read, by the names it is known by.
    read: BTreeMap<String, String>,
}

impl Folder {
    /// `main` is the file that everything starts from.
    fn new(main: &str) -> Folder {
        let path = Path::new(main).canonicalize();
        let known = path.into_iter().map(|p| (p, main.to_string())).collect();
        Folder {
            known,
            read: BTreeMap::new(),
        }
    }

    /// What was read, by paths from the folder of the file that everything starts from.
    fn imports(self, main: &str) -> Vec<Import> {
        let base = Path::new(main).parent().unwrap_or(Path::new(""));
        let within = |name: &str| {
            let path = Path::new(name).strip_prefix(base);
            path.map_or(name.to_string(), |path| path.display().to_string())
        };
        let read = self.read.into_iter();
        let read = read.map(|(name, text)| Import {
            path: within(&name),
            text,
        });
        read.collect()
    }
}

impl Loader for Folder {
    fn load(&mut self, path: &str, from: &str) -> Result<(String, String), String> {
        let base = Path::new(from).parent().unwrap_or(Path::new(""));
        let file = base.join(path);
        // Known by its path, and printed without what a terminal would obey.
        let (name, shown) = (file.display().to_string(), file.shown());
        let real = file.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
        if !is_source(&real) {
            return Err(format!(
                "{shown} is not a .ode file; `use` reads only those"
            ));
        }
        let text = input::open(&real)
            .map_err(|e| e.to_string())
            .and_then(source_text)
            .map_err(|why| format!("{shown}: {why}"))?;
        let name = self.known.entry(real).or_insert(name);
        self.read.insert(name.clone(), text.clone());
        Ok((name.clone(), text))
    }
}

impl Parsed {
    /// Resolves names and builds the model, if there is one. Prints warnings and errors.
    pub fn checked(&mut self) -> Done<Checked> {
        let (checked, messages) = self.examined()?;
        report(&messages, &self.sources)?;
        checked.ok_or_else(|| Failure::internal("compilation failed without an error"))
    }

    /// The same without printing: what was found, and all messages. What has errors may not be there.
    pub fn examined(&mut self) -> Done<(Option<Checked>, Vec<Diagnostic>)> {
        let main = self.sources.name(self.main).to_string();
        let mut folder = Folder::new(&main);
        let found = compile(&self.file, self.main, &mut self.sources, &mut folder);
        self.imports = folder.imports(&main);
        let mut checked = match found {
            Ok(checked) => checked,
            Err(CompileError::Source(messages)) => return Ok((None, messages)),
            Err(CompileError::Internal(e)) => return Err(Failure::internal(e)),
        };
        let mut messages = checked.warnings.clone();
        if let Some(built) = &mut checked.built {
            messages.extend(tokenizer_fits(built));
            messages.extend(parameters_fit(built));
            if built.named.budget.is_some() && !has_errors(&messages) {
                let target = target("cpu", built.precision())?;
                let settled = resolve(built, Options::of(target, built.real()));
                messages.extend(settled.map_err(Failure::internal)?.err());
            }
        }
        Ok((Some(checked), messages))
    }

    /// The schemes of a file of which nothing is wrong but what they claim; `None` where something else is.
    pub fn schemes(&mut self, messages: &[Diagnostic]) -> Option<Vec<Instance>> {
        let errors = || messages.iter().filter(|d| d.severity == Severity::Error);
        let claims = [
            codes::FALSE_CLAIM,
            codes::FALSE_ORDER,
            codes::UNPROVED_CLAIM,
            codes::KEEP_ORDER,
        ];
        let only = errors().count() > 0 && errors().all(|d| claims.contains(&d.code));
        let mut folder = Folder::new(self.sources.name(self.main));
        only.then(|| schemes(&self.file, self.main, &mut self.sources, &mut folder))
    }

    /// Says what is wrong with the file, and nothing else.
    pub fn sound(&mut self) -> Done {
        let mut folder = Folder::new(self.sources.name(self.main));
        match compile(&self.file, self.main, &mut self.sources, &mut folder) {
            Ok(_) => Ok(()),
            Err(e) => self.wrong(e),
        }
    }

    fn wrong<T>(&self, e: CompileError) -> Done<T> {
        match e {
            CompileError::Source(messages) => {
                report(&messages, &self.sources)?;
                Err(Failure::internal("compilation failed without an error"))
            }
            CompileError::Internal(e) => Err(Failure::internal(e)),
        }
    }

    /// What the model costs, if there is one, planned for this machine.
    pub fn cost(&self, checked: &Checked) -> Done<Option<Cost>> {
        let Some(built) = &checked.built else {
            return Ok(None);
        };
        let target = target("cpu", built.precision())?;
        let planned = assembled(built, self.sources.text(self.main), target)?;
        self.cost_of(built, &planned).map(Some)
    }

    /// The same of a program that is planned.
    pub fn cost_of(&self, built: &Built, planned: &Assembled) -> Done<Cost> {
        let target = target("cpu", built.precision())?;
        let options = Options::of(target, built.real());
        of_assembled(built, planned, options).map_err(Failure::internal)
    }

    /// Finds the memory policy of a model that says a budget, for a target.
    pub fn resolve_memory(&self, built: &mut Built, target: Target) -> Done<()> {
        let settled = resolve(built, Options::of(target, built.real()));
        let fits = settled.map_err(Failure::internal)?;
        report(&fits.err().into_iter().collect::<Vec<_>>(), &self.sources)
    }

    /// The same, for commands that need a model.
    pub fn built(&mut self) -> Done<Built> {
        let name = self.sources.name(self.main).to_string();
        let built = self.checked()?.built;
        built.ok_or_else(|| {
            Failure::Input(format!(
                "{name}: this file has no model; add `model name {{ … }}`"
            ))
        })
    }
}

/// What is wrong with the tokenizer file of a train block. That it is missing is for the run to say: it may be elsewhere.
fn tokenizer_fits(built: &Built) -> Vec<Diagnostic> {
    let Some(Tokenized { path, span, more }) = &built.named.tokenizer else {
        return vec![];
    };
    let vocab = built.config.vocab;
    let which = match more {
        0 => "this tokenizer has".to_string(),
        n => format!("with {n} special ones this tokenizer has"),
    };
    match Tokenizer::open(Path::new(path)) {
        Ok(t) if t.vocabulary() + more > vocab => {
            vec![too_many(*span, &which, t.vocabulary() + more, vocab)]
        }
        Ok(_) | Err(TokenizerError::Read { .. }) => vec![],
        Err(e) => vec![Diagnostic::error(
            codes::INVALID_VALUE,
            *span,
            e.to_string(),
        )],
    }
}

/// What is wrong with the parameters that a train block starts from. That they are missing is a warning: they may be
/// made later, or be elsewhere.
fn parameters_fit(built: &Built) -> Vec<Diagnostic> {
    let Some((from, span)) = &built.named.from else {
        return vec![];
    };
    let (path, map) = (Path::new(&from.path), from.map.as_deref().map(Path::new));
    if let Some(missing) = [Some(path), map]
        .into_iter()
        .flatten()
        .find(|p| !p.exists())
    {
        let message = format!("there is no {}", missing.shown());
        return vec![
            Diagnostic::warning(codes::IMPORT_FAILED, *span, message)
                .label("training would start from there"),
        ];
    }
    let params = built.params.iter().map(|p| (p.path.as_str(), &p.shape[..]));
    let checked = Init::open(path, map).and_then(|init| init.check(params));
    let Err(why) = checked else { return vec![] };
    let d = Diagnostic::error(codes::IMPORT_FAILED, *span, why.to_string());
    vec![d.help(
        "a step takes the parameters of the step with the same number; a map of names can choose others: \
         `from \"runs/a\", \"names.json\"`",
    )]
}

/// Files of a train block that are not there, or are folders: no mistake, for they may be made later, be elsewhere, or be named with `--data`.
pub fn missing_files(built: &Built) -> Vec<Diagnostic> {
    let (Some(train), Some(span)) = (&built.train, built.named.data) else {
        return vec![];
    };
    let folders = train.data.form.reads_folders();
    let note = |path: &str, span, what, help: &str| {
        let found = Path::new(path);
        let message = match found.exists() {
            false => format!("there is no {path} here"),
            true if found.is_dir() && !folders => format!("{path} is a folder, not a file"),
            true => return None,
        };
        let d = Diagnostic::note(codes::IMPORT_FAILED, span, message);
        Some(d.label(what).help(help))
    };
    let mut notes: Vec<Diagnostic> = Vec::new();
    let help = "paths are relative to the directory where odec is started; `odec train … --data FILE` names another file";
    for path in &train.data.files {
        notes.extend(note(path, span, "training reads it", help));
    }
    if let Some(Tokenized { path, span, .. }) = &built.named.tokenizer {
        let help = "paths are relative to the directory where odec is started";
        notes.extend(note(path, *span, "tokens are made with it", help));
    }
    notes
}

/// Whether a path names a source file.
pub fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "ode")
}
