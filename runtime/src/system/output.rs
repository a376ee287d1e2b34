//! Writes files that a user names: `-o`, `--svg`, `--outputs`.
//!
//! Written whole or not at all. Links are followed, devices and pipes written to as they are, permissions kept. A file of a
//! run, of an exploration or of an artifact is refused, before any work ([`check`]) and again when it is written.

use crate::system::files;
use crate::system::owned;
use crate::system::shown::Shown;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{path} is a file of the run in {run}, which needs it; name another file")]
    OfRun { path: String, run: String },
    #[error("{path} is a file of the exploration in {folder}, which needs it; name another file")]
    OfExploration { path: String, folder: String },
    #[error("{path} is in the artifact {artifact}, which holds nothing else; name another place")]
    OfArtifact { path: String, artifact: String },
    #[error(
        "{path} exists, and its name does not end in {endings}, so it is not replaced; name another file"
    )]
    OfAnotherKind { path: String, endings: String },
    #[error("{path} is read by this command; name another file")]
    Read { path: String },
    #[error("{path} leaves the folder {missing} by `..`, and there is none; name the place itself")]
    Nowhere { path: String, missing: String },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
}

/// Whether a file may be written: asked before any work.
///
/// # Errors
/// When it belongs to a run, an exploration or an artifact, is a folder, read-only, or has no folder to lie in.
pub fn check(path: &Path) -> Result<(), OutputError> {
    let refused = |source| OutputError::Write {
        path: path.shown(),
        source,
    };
    if is_special(path) {
        return Ok(());
    }
    let place = place(path).map_err(refused)?;
    let folder = files::parent(&place);
    let (path, within) = (path.shown(), folder.display().to_string());
    let of_run = owned::FILES
        .iter()
        .any(|f| place.file_name().is_some_and(|name| name == *f));
    if of_run && owned::is_run(folder) {
        return Err(OutputError::OfRun { path, run: within });
    }
    let run = files::parent(folder);
    if folder.file_name().is_some_and(|name| name == owned::KEPT) && owned::is_run(run) {
        let run = run.display().to_string();
        return Err(OutputError::OfRun { path, run });
    }
    if let Some(folder) = owned::exploration_of(&place) {
        let folder = folder.display().to_string();
        return Err(OutputError::OfExploration { path, folder });
    }
    apart_from_artifacts(&place, path)
}

/// Whether files may be written into a folder, which need not be there yet: asked before any work.
///
/// # Errors
/// When it is an artifact, lies in one, or leaves a folder that is not there.
pub fn check_folder(folder: &Path) -> Result<(), OutputError> {
    check_place(folder)?;
    apart_from_artifacts(&folder.join("_"), folder.shown())
}

/// Whether a path says where something is to lie.
///
/// # Errors
/// When it leaves a folder that is not there, or is a link to nothing.
pub fn check_place(path: &Path) -> Result<(), OutputError> {
    if files::missing_target(path).is_some() {
        let none = io::ErrorKind::NotFound.into();
        let (path, source) = (path.shown(), files::at_link(path, none));
        return Err(OutputError::Write { path, source });
    }
    match files::left_but_missing(path) {
        None => Ok(()),
        Some(missing) => Err(OutputError::Nowhere {
            path: path.shown(),
            missing: missing.shown(),
        }),
    }
}

fn apart_from_artifacts(place: &Path, path: String) -> Result<(), OutputError> {
    match owned::artifact_around(place) {
        Some(artifact) => Err(OutputError::OfArtifact {
            path,
            artifact: artifact.shown(),
        }),
        None => Ok(()),
    }
}

/// The same, of a file of a format whose names end so. It replaces files of such names and empty ones, so no source, no text, no data, and
/// nothing that the command reads.
///
/// # Errors
/// As [`check`], and when something else is there.
pub fn check_kind(path: &Path, endings: &[&str], read: &[&Path]) -> Result<(), OutputError> {
    check(path)?;
    let Some(real) = path.canonicalize().ok().filter(|real| real.is_file()) else {
        return Ok(());
    };
    let same = |p: &&Path| File::open(p).is_ok_and(|file| files::is_same(&real, &file));
    if read.iter().any(same) {
        return Err(OutputError::Read { path: path.shown() });
    }
    let name = real.to_string_lossy().to_lowercase();
    let is_of_kind = endings.iter().any(|e| name.ends_with(&format!(".{e}")));
    let is_empty = fs::metadata(&real).is_ok_and(|m| m.len() == 0);
    if is_of_kind || is_empty {
        return Ok(());
    }
    let endings: Vec<String> = endings.iter().map(|e| format!(".{e}")).collect();
    Err(OutputError::OfAnotherKind {
        path: path.shown(),
        endings: endings.join(" or "),
    })
}

/// The same, of a file made from a run: it is none of that run's files by another name.
///
/// # Errors
/// As [`check_kind`].
pub fn check_beside(path: &Path, endings: &[&str], run: &Path) -> Result<(), OutputError> {
    let same =
        |name: &&str| File::open(path).is_ok_and(|file| files::is_same(&run.join(name), &file));
    if path.is_file() && owned::FILES.iter().any(same) {
        return Err(OutputError::OfRun {
            path: path.shown(),
            run: run.shown(),
        });
    }
    check_kind(path, endings, &[])
}

/// Writes a file through `fill`; on failure the old one stays.
///
/// # Errors
/// As [`check`], and when the disk refuses.
pub fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), OutputError> {
    check(path)?;
    put(path, fill).map_err(|source| OutputError::Write {
        path: path.shown(),
        source,
    })
}

/// Writes a file of a text.
///
/// # Errors
/// As [`write()`].
pub fn write_text(path: &Path, text: &str) -> Result<(), OutputError> {
    write(path, |out| out.write_all(text.as_bytes()))
}

fn put(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    if is_special(path) {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
        fill(&mut out)?;
        return out.flush();
    }
    let permissions = fs::metadata(path).ok().map(|m| m.permissions());
    files::replace_file(&place(path)?, permissions, fill)
}

/// A device or a pipe.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir())
}

/// Where a file lies, or would lie, links followed.
fn place(path: &Path) -> io::Result<PathBuf> {
    let at = match files::is_taken(path) {
        true => (path.canonicalize()).map_err(|e| files::at_link(path, e))?,
        false => match path.file_name() {
            Some(name) => files::parent(path).canonicalize()?.join(name),
            None => return Err(io::ErrorKind::InvalidFilename.into()),
        },
    };
    match fs::metadata(&at) {
        Ok(m) if m.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(m) if m.is_file() && m.permissions().readonly() => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the file is read-only",
        )),
        _ => Ok(at),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn outputs_are_whole_follow_links_and_keep_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        write_text(&at("a"), "1").unwrap();
        let usual = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::write(at("plain"), "").unwrap();
        assert_eq!(usual(&at("a")), usual(&at("plain")));
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o604)).unwrap();
        symlink("a", at("link")).unwrap();
        write_text(&at("link"), "2").unwrap();
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "2");
        assert_eq!(usual(&at("a")), 0o604);
        let cut = write(&at("a"), |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(cut.is_err());
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "2");
        write_text(Path::new("/dev/null"), "x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(check(dir.path()).is_err() && check(&at("no/such/folder")).is_err());
    }

    #[test]
    fn sources_and_what_a_command_reads_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let read = [at("text"), at("other")];
        let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
        let kinds = ["svg", "bin"];
        for name in ["text", "other", "a.ode", "b.txt", "svg", "c.svg", "d.BIN"] {
            fs::write(at(name), "1").unwrap();
        }
        fs::write(at("empty"), "").unwrap();
        symlink("text", at("link")).unwrap();
        symlink("b.txt", at("link.svg")).unwrap();
        for name in ["text", "other", "link"] {
            let refused = check_kind(&at(name), &kinds, &read);
            assert!(matches!(refused, Err(OutputError::Read { .. })), "{name}");
        }
        for name in ["a.ode", "b.txt", "svg", "link.svg"] {
            let said = check_kind(&at(name), &kinds, &read).unwrap_err();
            assert!(said.to_string().contains("end in .svg or .bin"), "{said}");
        }
        for name in ["c.svg", "d.BIN", "empty", "b.ode", "new"] {
            check_kind(&at(name), &kinds, &read).unwrap();
        }
    }

    #[test]
    fn a_link_to_nothing_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("gone", &link).unwrap();
        let said = check(&link).unwrap_err().to_string();
        assert!(
            said.contains("it is a link to gone, where nothing is"),
            "{said}"
        );
    }

    #[test]
    fn files_of_runs_and_artifacts_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        fs::write(run.join(owned::LOCK), owned::MARK).unwrap();
        fs::write(run.join("checkpoint.safetensors"), "state").unwrap();
        for name in owned::FILES {
            let refused = check(&run.join(name));
            assert!(matches!(refused, Err(OutputError::OfRun { .. })), "{name}");
        }
        check(&run.join("notes.txt")).unwrap();
        let link = dir.path().join("link");
        symlink("run/checkpoint.safetensors", &link).unwrap();
        assert!(write_text(&link, "x").is_err());
        let same = dir.path().join("same");
        fs::hard_link(run.join("checkpoint.safetensors"), &same).unwrap();
        assert!(check_beside(&same, &["safetensors"], &run).is_err());
        check(&same).unwrap();
        assert_eq!(
            fs::read(run.join("checkpoint.safetensors")).unwrap(),
            b"state"
        );
    }
}
