//! Lists the files that give each error, which `odec explain` shows: `tests/errors` of grammar and compiler, embedded by name.
//! A new example is a new file there and nothing else.

use std::path::{Path, PathBuf};

/// A folder, and what the names of its files begin with.
const FOLDERS: [(&str, &str); 3] = [
    ("grammar/tests/errors", ""),
    ("compiler/tests/errors", ""),
    ("compiler/tests/errors/parts", "parts/"),
];

fn main() -> std::io::Result<()> {
    let mut list = String::from("&[\n");
    for (folder, prefix) in FOLDERS {
        println!("cargo:rerun-if-changed={folder}");
        for file in files(Path::new(folder))? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            list += &format!(
                "    (\"{prefix}{name}\", include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{folder}/{name}\"))),\n"
            );
        }
    }
    list += "]\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("examples.rs"), list)
}

fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "ode"));
    files.sort();
    Ok(files)
}
