//! Lists the library: every `schemes/*.ode` that describes no model, embedded in the crate in the order of its names.
//! A new scheme is a new file there and nothing else.

use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    // asked when it runs, not when it is compiled: a target folder may serve several checkouts
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&here).join("../schemes").canonicalize()?;
    println!("cargo:rerun-if-changed={}", folder.display());
    println!("cargo:rerun-if-changed=odec.pest");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "ode"));
    files.sort();
    let mut list = String::from("&[\n");
    for path in files {
        println!("cargo:rerun-if-changed={}", path.display());
        let text = std::fs::read_to_string(&path)?;
        if text.lines().any(|line| line.starts_with("model ")) {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        list += &format!(
            "    ({name:?}, include_str!({:?})),\n",
            path.display().to_string()
        );
    }
    list += "]\n";
    std::fs::write(
        PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default()).join("library.rs"),
        list,
    )
}
