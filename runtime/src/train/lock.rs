//! Locks the folder of a run: one process at a time trains in it.
//!
//! `.lock` says in its contents that the folder is a run's, and is locked by the process that trains. A new run is begun in a
//! folder that has none of a run's files, or that was begun by odec and never had a checkpoint; names alone make nothing odec's.

use crate::system::files;
use crate::system::output;
use crate::system::owned::{
    self, CHECKPOINT, FILES, KEPT, LOCK, MARK, is_marked, is_run, open_lock,
};
use crate::system::shown::Shown;
use crate::train::failure::TrainError;
use crate::train::kept;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The lock file may be removed and created again while it is being locked.
const TRIES: usize = 16;

/// The lock of a run's folder. It ends with the process, however that ends.
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Makes the folder of a run ours.
    ///
    /// # Errors
    /// When another process trains in it, or its lock is none of odec's.
    pub fn take(out: &Path) -> Result<Lock, TrainError> {
        let path = out.join(LOCK);
        files::create_folder(out).map_err(|e| TrainError::write(out, e))?;
        for _ in 0..TRIES {
            if !files::is_taken(&path) {
                match files::create_file(&path, MARK) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(TrainError::write(&path, e));
                    }
                    _ => {}
                }
            }
            let Some(file) = open_lock(&path) else {
                match files::open_own(&path) {
                    Err(e) if files::is_denied(&e) => return Err(TrainError::write(&path, e)),
                    _ => continue,
                }
            };
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let path = out.shown();
                    return Err(TrainError::Busy { path });
                }
                // Some network file systems have no locks; a run there is as safe as its owner is careful.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
            if files::is_same(&path, &file) {
                return Ok(Lock { file, path });
            }
        }
        Err(foreign(out, LOCK))
    }

    /// Whether the folder is still the one that was locked, not one that was deleted and created again.
    pub fn is_held(&self) -> bool {
        files::is_same(&self.path, &self.file)
    }
}

/// Whether a user may begin a run in a folder: asked before any work.
///
/// # Errors
/// As [`claim`], and when the folder is that of an exploration or lies in one, which begins its own runs there.
pub fn claim_apart(out: &Path) -> Result<(), TrainError> {
    claim(out)?;
    match owned::exploration_around(&out.join("_")) {
        None => Ok(()),
        Some(exploration) => Err(TrainError::OfExploration {
            path: out.shown(),
            exploration: exploration.shown(),
        }),
    }
}

/// Whether a new run may begin in a folder: asked before any work.
///
/// # Errors
/// When there is a run already or what one has kept, an artifact, or a file that a run would overwrite.
pub fn claim(out: &Path) -> Result<(), TrainError> {
    output::check_folder(out)?;
    if !files::is_taken(out) {
        return Ok(());
    }
    if !out.is_dir() {
        return Err(TrainError::write(out, io::ErrorKind::NotADirectory.into()));
    }
    let begun = is_marked(out);
    let occupied = match begun {
        true => files::is_taken(&out.join(CHECKPOINT)),
        false => is_run(out),
    };
    if occupied {
        return Err(TrainError::Occupied { path: out.shown() });
    }
    if begun && !kept::steps(out, u64::MAX).unwrap_or_default().is_empty() {
        return Err(TrainError::Kept {
            path: out.shown(),
            kept: out.join(KEPT).shown(),
        });
    }
    let in_the_way = FILES.iter().find(|name| files::is_taken(&out.join(name)));
    match in_the_way {
        Some(name) if !begun => Err(foreign(out, name)),
        _ => Ok(()),
    }
}

fn foreign(out: &Path, name: &str) -> TrainError {
    TrainError::ForeignFile {
        path: out.join(name).shown(),
        run: out.shown(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::system::owned::{METRICS, MODEL};
    use std::fs;

    #[test]
    fn a_folder_with_files_of_others_is_no_place_for_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        claim(&out).unwrap();
        for name in FILES {
            fs::create_dir(&out).unwrap();
            for contents in ["", "mine"] {
                fs::write(out.join(name), contents).unwrap();
                let said = claim(&out).unwrap_err().to_string();
                assert!(said.contains(&format!("run/{name} exists")), "{said}");
                assert_eq!(fs::read_to_string(out.join(name)).unwrap(), contents);
            }
            fs::remove_dir_all(&out).unwrap();
        }
        // Begun by odec, and killed before its first checkpoint.
        drop(Lock::take(&out).unwrap());
        fs::create_dir(out.join(MODEL)).unwrap();
        fs::write(out.join(METRICS), "").unwrap();
        claim(&out).unwrap();
        fs::write(out.join(CHECKPOINT), "").unwrap();
        assert!(matches!(claim(&out), Err(TrainError::Occupied { .. })));
        fs::remove_file(out.join(CHECKPOINT)).unwrap();
        // Parameters that a run has kept are a user's work, with or without a checkpoint.
        fs::create_dir(out.join(KEPT)).unwrap();
        claim(&out).unwrap();
        fs::write(out.join(kept::name(500)), "").unwrap();
        assert!(matches!(claim(&out), Err(TrainError::Kept { .. })));
    }

    #[test]
    fn a_lock_that_is_a_link_or_of_others_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("precious"), "text").unwrap();
        std::os::unix::fs::symlink("precious", at(LOCK)).unwrap();
        assert!(matches!(
            Lock::take(dir.path()),
            Err(TrainError::ForeignFile { .. })
        ));
        assert_eq!(fs::read(at("precious")).unwrap(), b"text");
        fs::remove_file(at(LOCK)).unwrap();
        fs::write(at(LOCK), "somebody's").unwrap();
        assert!(Lock::take(dir.path()).is_err());
        assert_eq!(fs::read(at(LOCK)).unwrap(), b"somebody's");
    }

    #[test]
    fn a_folder_begun_anew_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let lock = Lock::take(&out).unwrap();
        assert!(lock.is_held());
        assert!(matches!(Lock::take(&out), Err(TrainError::Busy { .. })));
        fs::remove_dir_all(&out).unwrap();
        assert!(!lock.is_held());
        let other = Lock::take(&out).unwrap();
        assert!(!lock.is_held() && other.is_held());
    }
}
