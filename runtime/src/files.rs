//! Files that are there whole or not at all.
//!
//! Takes contents; writes them beside their destination, flushes them to the disk, and renames.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The folder a path lies in.
fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
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
        fs::create_dir_all(parent(path))?;
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
}
