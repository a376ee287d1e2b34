//! Embeds the scheme library: every file of `schemes/` that describes no model, sorted by name.
//! A new scheme is a new file there and nothing else.

use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    // Paths are relative to the crate, wherever that is now: a target folder may serve several checkouts, or move with its own.
    let folder = Path::new("../schemes");
    println!("cargo:rerun-if-changed=../schemes");
    let mut table = String::from("&[\n");
    for file in odec_library::files(folder)? {
        if file.is_model() {
            continue;
        }
        let (name, family) = (&file.name, &file.family);
        let path = file.path.display();
        table += &format!(
            "    LibraryScheme {{ name: {name:?}, family: {family:?}, text: include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{path}\")) }},\n"
        );
    }
    table += "]\n";
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("library.rs"), table)
}
