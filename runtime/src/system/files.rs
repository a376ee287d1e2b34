//! Writes files atomically: a file is there whole or not at all.
//!
//! Takes contents; writes them in a working folder beside their destination, flushes them to the disk, renames, and flushes
//! the folder, so that neither a killed process nor a power cut leaves half a file. The name of a working folder cannot be
//! foretold, and a marker in it is locked as long as its process lives. So what a killed process left is known by its
//! contents, whatever the number of that process was, and the next write into the same folder removes it.

use super::shown::Shown;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;

/// How names of working folders begin.
pub const PREFIX: &str = ".odec-";
/// What a working folder holds: its marker, what is being written, and what that replaces.
const MARKER: &str = "odec-working-folder";
const NEW: &str = "new";
const OLD: &str = "old";
/// How a marker begins; the rest of it is the name of the destination.
const MAGIC: &[u8] = b"odec working folder 1\n";
/// Other processes may take a folder of ours for a leftover while it has no marker, or take a lock for a moment.
const TRIES: usize = 16;

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

/// Whether a file is there and may not be used so.
pub fn is_denied(e: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(e.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// The folder that is not there and that a path leaves by `..`: once it is made, the path is another place than it was before.
pub fn left_but_missing(path: &Path) -> Option<PathBuf> {
    let mut so_far = PathBuf::new();
    for part in path.components() {
        let inside = so_far.components().next().is_some();
        if part == Component::ParentDir && inside && !so_far.is_dir() {
            return Some(so_far);
        }
        so_far.push(part);
    }
    None
}

/// Whether something has this name, be it a link to nothing.
pub fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Where a link points that leads to nothing.
pub fn missing_target(path: &Path) -> Option<PathBuf> {
    let to = fs::read_link(path).ok()?;
    let leads = fs::metadata(path);
    leads
        .is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        .then_some(to)
}

/// Why a path cannot be opened, where it is a link to nothing: that. Such an error is not of the kind `NotFound`, for something is there.
pub fn at_link(path: &Path, e: io::Error) -> io::Error {
    match missing_target(path) {
        Some(to) => io::Error::other(format!("it is a link to {}, where nothing is", to.shown())),
        None => e,
    }
}

/// Whether a path leads to this very file.
pub fn is_same(path: &Path, file: &File) -> bool {
    let known = |m: io::Result<fs::Metadata>| m.ok().map(|m| identity(&m));
    let there = known(fs::symlink_metadata(path));
    there.is_some() && there == known(file.metadata())
}

/// What tells a file from any other on this machine.
#[cfg(unix)]
pub fn identity(m: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (m.dev(), m.ino())
}

/// Opens a file that is no link and no device, to read, write and lock it.
pub fn open_own(path: &Path) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    let file = how.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}

/// Writes a file through `fill`; on failure the old one stays.
pub fn write_file(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    replace_file(path, None, fill)
}

/// The same, with the permissions that the new file has.
pub fn replace_file(
    path: &Path,
    permissions: Option<Permissions>,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let working = Working::beside(path)?;
    let new = working.file(fill)?;
    if let Some(permissions) = permissions {
        fs::set_permissions(&new, permissions)?;
    }
    fs::rename(&new, path)?;
    sync_folder(parent(path))
}

/// Writes a file where there is none; anything of that name stays, and is an error.
pub fn create_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    let working = Working::beside(path)?;
    let new = working.file(|out| out.write_all(contents))?;
    match fs::hard_link(&new, path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            // A file system without links.
            File::create_new(path)?.write_all(contents)?;
        }
        linked => linked?,
    }
    sync_folder(parent(path))
}

/// Writes a folder of files, replacing an older one. A link to a folder keeps leading to it.
pub fn write_folder(path: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    let path = &match is_taken(path) {
        true => path.canonicalize()?,
        false => path.to_path_buf(),
    };
    create_folder(parent(path))?;
    let working = Working::beside(path)?;
    let new = working.at(NEW);
    fs::create_dir(&new)?;
    for (name, bytes) in files {
        let mut f = File::create_new(new.join(name))?;
        f.write_all(bytes)?;
        f.sync_all()?;
    }
    sync_folder(&new)?;
    working.put_folder(path, exchange)?;
    sync_folder(parent(path))
}

/// A folder of this process, removed when it is dropped.
struct Working {
    folder: TempDir,
    _lock: File,
}

impl Working {
    /// Makes one in the folder of `path`, and removes those that killed processes left there.
    fn beside(path: &Path) -> io::Result<Working> {
        remove_leftovers(parent(path));
        let mut refused = io::Error::other("another process removes our files");
        for _ in 0..TRIES {
            match Working::marked(path) {
                Ok(Some(working)) => return Ok(working),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => refused = e,
                Err(e) => return Err(e),
            }
        }
        Err(refused)
    }

    /// One with its marker; none where another process took it for a leftover before the marker was there.
    fn marked(path: &Path) -> io::Result<Option<Working>> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).rand_bytes(16);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(Permissions::from_mode(0o777));
        }
        let folder = parent(path);
        let folder = builder
            .tempdir_in(folder)
            .map_err(|e| unmade(folder, e.kind()))?;
        let marker = folder.path().join(MARKER);
        let mut file = File::create_new(&marker)?;
        // Where a file system has no locks, leftovers stay: nothing tells that their processes are gone.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(None);
        }
        let name = path.file_name().unwrap_or_default();
        file.write_all(&[MAGIC, name.as_encoded_bytes()].concat())?;
        let ours = is_same(&marker, &file);
        Ok(ours.then_some(Working {
            folder,
            _lock: file,
        }))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the new file, and flushes it.
    fn file(
        &self,
        fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<PathBuf> {
        let new = self.at(NEW);
        let mut out = BufWriter::with_capacity(1 << 20, File::create_new(&new)?);
        fill(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(new)
    }

    /// Puts the new folder in its place. What it replaces goes with the working folder. Where the file system cannot exchange
    /// two names at once, a process killed between the two renames leaves the old folder here, and [`remove_leftovers`]
    /// puts it back.
    fn put_folder(&self, path: &Path, exchange: Exchange) -> io::Result<()> {
        let (new, old) = (self.at(NEW), self.at(OLD));
        if !is_taken(path) {
            return fs::rename(&new, path);
        }
        if exchange(&new, path)? {
            return Ok(());
        }
        fs::rename(path, &old)?;
        let placed = fs::rename(&new, path);
        if placed.is_err() {
            fs::rename(&old, path)?;
        }
        placed
    }
}

/// Exchanges two names; says whether the file system can.
type Exchange = fn(&Path, &Path) -> io::Result<bool>;

#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Removes the working folders of processes that have ended. One that cannot be removed is no error.
fn remove_leftovers(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let named = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        if named && entry.file_type().is_ok_and(|t| t.is_dir()) {
            let _ = remove_leftover(&entry.path());
        }
    }
}

/// Removes a folder if it is a working folder whose process is gone.
fn remove_leftover(folder: &Path) -> io::Result<()> {
    let mut marker = match open_own(&folder.join(MARKER)) {
        Ok(file) => file,
        // Killed before the marker was there: only an empty folder can be removed so.
        Err(_) => return fs::remove_dir(folder),
    };
    let gone = marker.try_lock().is_ok();
    let mut text = Vec::new();
    let most = MAGIC.len() as u64 + 4096;
    Read::take(&mut marker, most).read_to_end(&mut text)?;
    let names: io::Result<Vec<_>> = fs::read_dir(folder)?.map(|e| Ok(e?.file_name())).collect();
    let names = names?;
    let ours = match text.strip_prefix(MAGIC) {
        Some(_) => names.iter().all(|n| n == MARKER || n == NEW || n == OLD),
        // Killed before the marker was written: there is nothing else yet.
        None => text.is_empty() && names.len() == 1,
    };
    if !gone || !ours {
        return Ok(());
    }
    let old = folder.join(OLD);
    if is_taken(&old) {
        let name = text.strip_prefix(MAGIC).unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let place = parent(folder).join(&name);
        if place.file_name().is_some_and(|n| *n == *name) && !is_taken(&place) {
            fs::rename(&old, &place)?;
        }
    }
    fs::remove_dir_all(folder)
}

/// Why no working folder could be made in a folder, without a name that nobody has seen.
fn unmade(folder: &Path, kind: io::ErrorKind) -> io::Error {
    let why = match kind {
        io::ErrorKind::NotFound if !folder.is_dir() => {
            format!("there is no folder {}", folder.shown())
        }
        _ => format!("nothing can be made in {}: {kind}", folder.shown()),
    };
    io::Error::new(kind, why)
}

/// Makes renames in a folder durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(path)?.sync_all()
    } else {
        Ok(())
    }
}

/// What helps when the disk refuses.
pub fn remedy(e: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match e.kind() {
        StorageFull | QuotaExceeded => "make room on the disk",
        FileTooLarge => "allow larger files (`ulimit -f`)",
        PermissionDenied | ReadOnlyFilesystem => "make the folder writable",
        NotFound => "put the folder back",
        _ => "mend that",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// What a killed process leaves: the folder without its lock.
    fn killed(working: Working) -> PathBuf {
        working.folder.keep()
    }

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
        assert_eq!(names(dir.path()), ["a"]);
        assert!(create_file(&path, b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("none");
        let said = create_file(&folder.join("a"), b"").unwrap_err();
        assert_eq!(said.kind(), io::ErrorKind::NotFound);
        let folder = folder.shown();
        assert_eq!(said.to_string(), format!("there is no folder {folder}"));
    }

    /// Two containers write the same file, and both are process 1.
    #[test]
    fn two_writers_of_one_number_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write_file(&path, |w| {
            w.write_all(b"first ")?;
            w.flush()?;
            write_file(&path, |w| w.write_all(b"second"))?;
            assert_eq!(fs::read(&path).unwrap(), b"second");
            w.write_all(b"writer")
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first writer");
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn folders_are_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/m.odex");
        write_folder(&path, &[("a", b"1"), ("b", b"2")]).unwrap();
        write_folder(&path, &[("a", b"3")]).unwrap();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"3");
        assert_eq!(names(&path), ["a"]);
        assert_eq!(names(path.parent().unwrap()), ["m.odex"]);
        assert!(write_folder(&path, &[("no/such", b"")]).is_err());
        assert_eq!(fs::read(path.join("a")).unwrap(), b"3");
    }

    /// A name is never without its folder: where names can be exchanged, both are there in between.
    #[test]
    fn a_replaced_folder_is_never_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.odex");
        write_folder(&path, &[("a", b"1")]).unwrap();
        let new_folder = || {
            let working = Working::beside(&path).unwrap();
            fs::create_dir(working.at(NEW)).unwrap();
            fs::write(working.at(NEW).join("a"), "2").unwrap();
            working
        };
        let working = new_folder();
        working
            .put_folder(&path, |new, path| {
                assert!(new.join("a").exists() && path.join("a").exists());
                fs::rename(new, path.with_extension("x"))?;
                fs::rename(path, new)?;
                fs::rename(path.with_extension("x"), path)?;
                Ok(true)
            })
            .unwrap();
        drop(working);
        assert_eq!(fs::read(path.join("a")).unwrap(), b"2");
        assert_eq!(names(dir.path()), ["m.odex"]);

        // Without exchange, a process killed between the renames leaves the old one, which comes back.
        let working = new_folder();
        fs::rename(&path, working.at(OLD)).unwrap();
        killed(working);
        assert!(!path.exists());
        remove_leftovers(dir.path());
        assert_eq!(fs::read(path.join("a")).unwrap(), b"2");
        assert_eq!(names(dir.path()), ["m.odex"]);
        // One that was not killed replaces it.
        let working = new_folder();
        working.put_folder(&path, |_, _| Ok(false)).unwrap();
        drop(working);
        assert_eq!(names(dir.path()), ["m.odex"]);
    }

    #[test]
    fn leftovers_of_killed_processes_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let theirs = [
            ".a.new-1",
            ".config.old-7/deep",
            ".odec-file",
            ".odec-notes/deep",
            ".odec-other/odec-working-folder",
            ".ssh.old-2024/id",
            "x.new-17",
        ];
        for name in theirs {
            fs::create_dir_all(parent(&at(name))).unwrap();
            fs::write(at(name), "precious").unwrap();
        }
        // A working folder in which somebody put something of his own.
        let kept = killed(Working::beside(&at("a")).unwrap());
        fs::write(kept.join("mine"), "precious").unwrap();
        let before = names(dir.path());
        // A living process, and three that were killed at different times.
        let alive = Working::beside(&at("a")).unwrap();
        fs::write(killed(Working::beside(&at("a")).unwrap()).join(NEW), "half").unwrap();
        fs::create_dir_all(at(".odec-empty")).unwrap();
        fs::create_dir_all(at(".odec-marked")).unwrap();
        fs::write(at(".odec-marked").join(MARKER), "").unwrap();
        write_file(&at("a"), |w| w.write_all(b"1")).unwrap();
        assert!(alive.at(MARKER).exists());
        drop(alive);
        let mut after = names(dir.path());
        after.retain(|n| n != "a");
        assert_eq!(after, before);
        for name in theirs {
            assert_eq!(fs::read(at(name)).unwrap(), b"precious", "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_to_folders_stay_and_links_to_files_are_not_followed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write_folder(&at("m.odex"), &[("a", b"1")]).unwrap();
        symlink("m.odex", at("link")).unwrap();
        write_folder(&at("link"), &[("a", b"2")]).unwrap();
        assert_eq!(fs::read(at("m.odex/a")).unwrap(), b"2");
        fs::write(at("precious"), "text").unwrap();
        symlink("precious", at("a")).unwrap();
        assert!(open_own(&at("a")).is_err());
        write_file(&at("a"), |w| w.write_all(b"1")).unwrap();
        assert_eq!(fs::read(at("precious")).unwrap(), b"text");
    }
}
