//! What a trial is known by: a hash of what decides how its training goes.
//!
//! Takes a file with its settings, the files that it reads, and data files; gives a hash. Of the file its syntax tree counts, without the explore block: layout, comments and
//! the other trials change nothing. Files that it imports, the library's among them, and data count with all their bytes.

use odec_driver::fail::{Done, Failure};
use odec_driver::source::Parsed;
use odec_grammar::ast::{File, Item};
use odec_grammar::dump;
use odec_program::manifest::{Tokenizer, Train};
use odec_runtime::data::identity::DataFile;
use odec_runtime::system::hash::sha256;
use std::path::{Path, PathBuf};

/// How many digits of a hash name a trial.
const DIGITS: usize = 16;

/// Of a file with its settings.
pub fn source(parsed: &Parsed) -> String {
    let kept = parsed.file.items.iter();
    let kept = kept.filter(|item| !matches!(item, Item::Explore(_)));
    let file = File {
        uses: parsed.file.uses.clone(),
        items: kept.cloned().collect(),
    };
    sha256(dump(&file).as_bytes())
}

/// Of all files that a file reads, after its names were resolved.
pub fn imports(parsed: &Parsed) -> String {
    let mut all = String::new();
    // Settings are in the tree.
    let typed = |n: &u32| parsed.sources.text(*n).starts_with("--set ");
    let others = (0..parsed.sources.len() as u32).filter(|n| *n != parsed.main && !typed(n));
    for n in others {
        let text = parsed.sources.text(n);
        all += &format!("\n{} bytes\n{text}", text.len());
    }
    sha256(all.as_bytes())
}

/// Of everything that training reads from files.
///
/// # Errors
/// When one of them cannot be read.
pub fn data(train: &Train) -> Done<String> {
    let tokenizer = match train.data.form.tokenizer() {
        Some(Tokenizer::File(path)) => Some(path.clone()),
        _ => None,
    };
    let from = train.from.iter();
    let from = from.flat_map(|f| std::iter::once(f.path.clone()).chain(f.map.clone()));
    let named = train.data.files.iter().cloned().chain(tokenizer);
    let mut all = String::new();
    for file in named.chain(from) {
        contents(Path::new(&file), &mut all)?;
    }
    Ok(sha256(all.as_bytes()))
}

/// Adds what a file holds, or all files below a folder, by their names.
fn contents(path: &Path, all: &mut String) -> Done {
    if !path.is_dir() {
        let known = DataFile::open(path).and_then(|f| f.identity());
        *all += &known.map_err(Failure::input)?.contents();
        all.push('\n');
        return Ok(());
    }
    let read = |e: std::io::Error| Failure::Input(format!("cannot read {}: {e}", path.display()));
    let entries = std::fs::read_dir(path).map_err(read)?;
    let mut below: Vec<PathBuf> = Vec::new();
    for e in entries {
        below.push(e.map_err(read)?.path());
    }
    below.sort();
    for path in below {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // What odec keeps beside data, and what editors do, is none of it.
        if !name.starts_with('.') {
            all.push_str(&name);
            all.push(' ');
            contents(&path, all)?;
        }
    }
    Ok(())
}

/// Of a trial: what its source, its imports and its data are known by.
pub fn trial(source: &str, imports: &str, data: &str) -> String {
    let mut hash = sha256(format!("odec trial 1 {source} {imports} {data}").as_bytes());
    hash.truncate(DIGITS);
    hash
}
