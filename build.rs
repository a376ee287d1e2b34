//! Lists the files that give each error, which `odec explain` shows: `tests/errors` of grammar and compiler, embedded by name.
//! A new example is a new file there and nothing else. Lists the pages that `odec help` looks words up in. And says how the program is linked.

use std::path::PathBuf;
use std::process::Command;

/// A folder, and what the names of its files begin with.
const FOLDERS: [(&str, &str); 3] = [
    ("grammar/tests/errors", ""),
    ("compiler/tests/errors", ""),
    ("compiler/tests/errors/parts", "parts/"),
];

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(llvm_waits)");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    let with_llvm = std::env::var_os("CARGO_FEATURE_MLIR").is_some();
    let system = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if with_llvm && system && takes_scripts() {
        link();
    }
    examples()?;
    pages()
}

/// A command that generates no code is not to take the memory that LLVM's constructors touch: they wait (`constructors.ld`). And the addresses that are
/// adjusted when a program starts are listed in a twentieth of the bytes where this machine's loader can read that (glibc 2.36). Programs without
/// LLVM have few of them, and are carried to other machines.
fn link() {
    let script = "compiler/mlir/constructors.ld";
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{root}/{script}");
    println!("cargo:rustc-cfg=llvm_waits");
    if glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// LLD, which Rust links with, and GNU's linker take linker scripts; others that a user may have chosen, such as mold, do not.
fn takes_scripts() -> bool {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let chosen = flags.split("fuse-ld=").nth(1);
    chosen.is_none_or(|linker| linker.starts_with("lld") || linker.starts_with("bfd"))
}

/// The version of this machine's C library.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn examples() -> std::io::Result<()> {
    let mut all = Vec::new();
    for (folder, prefix) in FOLDERS {
        let named = files(folder, "ode")?;
        all.extend(
            named
                .into_iter()
                .map(|name| (format!("{prefix}{name}"), folder, name)),
        );
    }
    embed("examples.rs", &all)
}

/// The pages that `odec help` looks words up in: the reference first, then what it sends its readers to.
fn pages() -> std::io::Result<()> {
    let mut all = Vec::new();
    for page in ["reference.md", "training.md"] {
        all.push((format!("docs/{page}"), "docs", page.to_string()));
    }
    for name in files("docs/guide", "md")? {
        all.push((format!("docs/guide/{name}"), "docs/guide", name));
    }
    embed("pages.rs", &all)
}

/// Writes a list of names and texts: of each the folder and the name of its file.
fn embed(list: &str, files: &[(String, &str, String)]) -> std::io::Result<()> {
    let mut text = String::from("&[\n");
    for (known, folder, name) in files {
        text += &format!(
            "    (\"{known}\", include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{folder}/{name}\"))),\n"
        );
    }
    text += "]\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join(list), text)
}

/// The names of a folder's files of a kind, sorted.
fn files(folder: &str, ending: &str) -> std::io::Result<Vec<String>> {
    println!("cargo:rerun-if-changed={folder}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == ending) {
            let name = path.file_name().unwrap_or_default();
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
