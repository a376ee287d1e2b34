//! Lists the library: every `schemes/*.ode` that describes no model, embedded in the crate in the order of its names.
//! A new scheme is a new file there and nothing else.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    // Paths are relative to the crate, wherever that is now: a target folder may serve several checkouts, or move with its own.
    println!("cargo:rerun-if-changed=../schemes");
    println!("cargo:rerun-if-changed=odec.pest");
    let mut files: Vec<PathBuf> = std::fs::read_dir("../schemes")?
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
            "    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../schemes/{name}.ode\"))),\n"
        );
    }
    list += "]\n";
    std::fs::write(
        PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default()).join("library.rs"),
        list,
    )
}
