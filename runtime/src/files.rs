//! Files that are there whole or not at all.
//!
//! Takes contents; writes them beside their destination, flushes them to the disk, renames, and flushes the folder, so
//! that neither a killed process nor a power cut leaves half a file. A killed process may leave files beside the
//! destination; [`remove_leftovers`] takes them away.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The folder a path lies in.
pub fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Makes a folder and those above it, durably.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = parent(path);
    create_folder(above)?;
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(e),
        _ => sync_folder(above),
    }
}

/// Removes what killed processes left half written in a folder. Only for a folder that no other process writes to.
pub fn remove_leftovers(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !is_temporary(&path) {
            continue;
        }
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether a name is one that [`beside`] makes.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
    let number = kind.strip_prefix("new-").or(kind.strip_prefix("old-"));
    name.starts_with('.') && number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

/// A name beside `path` that no other process uses.
fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    parent(path).join(format!(".{name}.{what}-{}", std::process::id()))
}

/// Writes a file through `fill`; on failure the old one stays.
pub fn write_file(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = beside(path, "new");
    let write = || {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
        fill(&mut out)?;
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&temporary, path)?;
        sync_folder(parent(path))
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Writes a folder of files, replacing an older one.
pub fn write_folder(path: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    let temporary = beside(path, "new");
    let old = beside(path, "old");
    let write = || {
        create_folder(parent(path))?;
        // A killed process may have had our number.
        for left in [&temporary, &old] {
            if left.exists() {
                fs::remove_dir_all(left)?;
            }
        }
        fs::create_dir(&temporary)?;
        for (name, bytes) in files {
            let mut f = File::create(temporary.join(name))?;
            f.write_all(bytes)?;
            f.sync_all()?;
        }
        sync_folder(&temporary)?;
        let replaced = path.exists();
        if replaced {
            fs::rename(path, &old)?;
        }
        if let Err(e) = fs::rename(&temporary, path) {
            if replaced {
                fs::rename(&old, path)?;
            }
            return Err(e);
        }
        sync_folder(parent(path))?;
        if replaced {
            fs::remove_dir_all(&old)?;
        }
        Ok(())
    };
    write().inspect_err(|_| drop(fs::remove_dir_all(&temporary)))
}

/// Makes renames in a folder durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(path)?.sync_all()
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write_file(&path, |w| w.write_all(b"old")).unwrap();
        let failed = write_file(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn folders_are_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/m.odex");
        write_folder(&path, &[("a", b"1"), ("b", b"2")]).unwrap();
        write_folder(&path, &[("a", b"3")]).unwrap();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"3");
        assert!(!path.join("b").exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(write_folder(&path, &[("no/such", b"")]).is_err());
        assert_eq!(fs::read(path.join("a")).unwrap(), b"3");
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at(".model.odex.old-17/deep")).unwrap();
        for name in [".a.new-1", "a.new-1", ".new-x", ".hidden", "kept"] {
            fs::write(at(name), "x").unwrap();
        }
        remove_leftovers(dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, [".hidden", ".new-x", "a.new-1", "kept"]);
        // A folder left by a process of our number is no obstacle.
        fs::create_dir(beside(&at("m"), "new")).unwrap();
        write_folder(&at("m"), &[("a", b"1")]).unwrap();
        assert_eq!(fs::read(at("m/a")).unwrap(), b"1");
    }
}
