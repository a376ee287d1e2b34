//! Objects to a shared object.
//!
//! Takes checked [`Object`]s; writes one `.so` that refers to nothing but `memcpy`, `memmove` and
//! `memset`. The first linker that can links. Equal objects and linkers give equal files.

use crate::error::CodegenError;
use crate::object::Object;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

/// Linkers in order of preference, with the arguments that are theirs alone. GNU's starts in a seventh of the time that LLD's takes, which loads LLVM.
const LINKERS: [(&str, &[&str]); 5] = [
    ("ld", &["--build-id=none"]),
    ("ld.lld-22", &["--build-id=none"]),
    ("ld.lld", &["--build-id=none"]),
    ("/usr/lib/llvm-22/bin/ld.lld", &["--build-id=none"]),
    ("cc", &["-nostdlib", "-Wl,--build-id=none"]),
];

/// Links objects, in their order, into the shared object `out`.
///
/// # Errors
/// No linker, a linker that fails, files that cannot be written.
pub fn link(objects: &[Object], out: &Path) -> Result<(), CodegenError> {
    let folder = tempfile::tempdir().map_err(|source| CodegenError::Io {
        path: std::env::temp_dir(),
        source,
    })?;
    let mut files = Vec::new();
    for (n, object) in objects.iter().enumerate() {
        let path = folder.path().join(format!("{n:04}.o"));
        std::fs::write(&path, &object.bytes).map_err(|source| CodegenError::Io {
            path: path.clone(),
            source,
        })?;
        files.push(path);
    }
    let mut failed = None;
    for (linker, own) in LINKERS {
        let mut command = Command::new(linker);
        command
            .arg("-shared")
            .args(own)
            .args(["-z", "noexecstack", "-z", "now"]);
        command.arg("-o").arg(out).args(&files);
        match command.output() {
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => {
                room(objects, out)?;
                let output = String::from_utf8_lossy(&done.stderr).trim().to_string();
                failed.get_or_insert(CodegenError::Link {
                    command: format!("{linker} -shared … -o {}", out.display()),
                    output,
                });
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => {
                return Err(CodegenError::Io {
                    path: linker.into(),
                    source,
                });
            }
        }
    }
    let tried = || LINKERS.iter().map(|l| l.0.to_string()).collect();
    Err(failed.unwrap_or_else(|| CodegenError::NoLinker { tried: tried() }))
}

/// Whether a file as large as the objects can be written there: linkers say in words of their own why they cannot.
fn room(objects: &[Object], out: &Path) -> Result<(), CodegenError> {
    let Some(folder) = out.parent() else {
        return Ok(());
    };
    let bytes = objects.iter().map(|o| o.bytes.len()).sum();
    let file = tempfile::tempfile_in(folder);
    let written = file.and_then(|mut f| f.write_all(&vec![0; bytes]));
    written.map_err(|source| CodegenError::Io {
        path: out.into(),
        source,
    })
}
