//! What is at a path that a command cannot use, and which command does: for errors.

use super::files;
use super::owned::{self, exploration};
use super::shown::Shown;
use std::path::Path;

/// Something that some command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Source,
    Run,
    Artifact,
    Exploration,
}

impl Kind {
    /// What is at a path, by the end of the name of a source and what is inside of all others.
    pub fn of(path: &Path) -> Option<Kind> {
        if path.is_file() {
            return (path.extension().is_some_and(|e| e == "ode")).then_some(Kind::Source);
        }
        if owned::is_run(path) {
            return Some(Kind::Run);
        }
        if owned::is_artifact(path) {
            return Some(Kind::Artifact);
        }
        path.join(exploration::PLAN)
            .is_file()
            .then_some(Kind::Exploration)
    }
}

/// What is at a path that is not of the kind that was asked for: a sentence without a subject, `is a run; …`.
pub fn instead(path: &Path, asked: &[Kind]) -> Option<String> {
    if let Some(to) = files::missing_target(path) {
        return Some(format!("is a link to {}, where nothing is", to.shown()));
    }
    let found = Kind::of(path).filter(|kind| !asked.contains(kind))?;
    let path = path.shown();
    Some(match found {
        Kind::Source => format!(
            "is a .ode file; `odec train {path}` makes a run of it, `odec build {path}` an artifact, `odec check {path}` describes it"
        ),
        Kind::Run => format!(
            "is a run; `odec eval {path}` evaluates it, `odec train --resume {path}` continues it, and the artifact in it is {path}/{}",
            owned::MODEL
        ),
        Kind::Artifact => format!("is an artifact; `odec train {path}` makes a run of it"),
        Kind::Exploration => format!("is an exploration; `odec runs {path}` lists its runs"),
    })
}
