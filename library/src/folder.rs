//! The files of `schemes/`: one scheme, layer or model each, in folders by family.
//!
//! Takes the folder; gives its files sorted by name, which is unique over all families.
//!
//! A new scheme is one file in the folder of its family and its line in docs/schemes.md (`make pages`). No snapshot changes: tests over the library
//! check what must hold of every file.

use crate::{Library, LibraryScheme};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// A file of `schemes/`.
#[derive(Clone, Debug)]
pub struct SchemeFile {
    /// The file's name without `.ode`.
    pub name: String,
    /// Its folder under `schemes/`, with `/` between parts.
    pub family: String,
    pub path: PathBuf,
    pub text: String,
}

impl SchemeFile {
    /// Whether it describes a model. Other files are schemes and layers of the library.
    pub fn is_model(&self) -> bool {
        self.text.lines().any(|line| line.starts_with("model "))
    }
}

/// All `.ode` files under a folder, sorted by name, and those of one name by path.
///
/// # Errors
/// When a file cannot be read, or two have the same name.
pub fn files(folder: &Path) -> Result<Vec<SchemeFile>> {
    let mut found = Vec::new();
    collect(folder, "", &mut found)?;
    found.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    match found.windows(2).find(|two| two[0].name == two[1].name) {
        None => Ok(found),
        Some(two) => {
            let (first, second) = (two[0].path.display(), two[1].path.display());
            let why = format!("{first} and {second} have the same name");
            Err(Error::other(format!(
                "{why}; schemes are named without their folder"
            )))
        }
    }
}

fn collect(folder: &Path, family: &str, found: &mut Vec<SchemeFile>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            let below = match family {
                "" => name.into_owned(),
                above => format!("{above}/{name}"),
            };
            collect(&path, &below, found)?;
        } else if path.extension().is_some_and(|end| end == "ode") {
            found.push(SchemeFile {
                name: name.into_owned(),
                family: family.to_string(),
                text: std::fs::read_to_string(&path)?,
                path,
            });
        }
    }
    Ok(())
}

/// The library of a folder, for tests: the program embeds it. The texts live as long as the process.
///
/// # Errors
/// Those of [`files`].
pub fn read(folder: &Path) -> Result<Library> {
    let schemes = files(folder)?.into_iter().filter(|file| !file.is_model());
    let kept = |file: SchemeFile| LibraryScheme {
        name: file.name.leak(),
        family: file.family.leak(),
        text: file.text.leak(),
    };
    Ok(Library::new(Vec::leak(schemes.map(kept).collect())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemes")
    }

    #[test]
    fn every_scheme_is_found_by_its_name() {
        let all = files(&library()).unwrap();
        let table = read(&library()).unwrap();
        let models = all.iter().filter(|file| file.is_model()).count();
        assert_eq!(table.len() + table.layers().count() + models, all.len());
        for scheme in table.iter().chain(table.layers()) {
            assert_eq!(table.get(scheme.name), Some(scheme));
            let path = library().join("..").join(scheme.path());
            assert_eq!(std::fs::read_to_string(path).unwrap(), scheme.text);
        }
        assert_eq!(table.get("prenorm"), None, "a model is no scheme");
        assert_eq!(Library::default().get("rk4"), None);
    }

    #[test]
    fn two_files_of_one_name_are_refused() {
        let folder = std::env::temp_dir().join(format!("odec-twice-{}", std::process::id()));
        for family in ["one", "two/deeper"] {
            std::fs::create_dir_all(folder.join(family)).unwrap();
            std::fs::write(folder.join(family).join("same.ode"), "scheme same { }\n").unwrap();
        }
        let why = files(&folder).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(
            why.contains("one/same.ode and ") && why.contains("two/deeper/same.ode"),
            "{why}"
        );
    }
}
