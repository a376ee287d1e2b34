//! The user's private folder: compiled objects, and the key that signs artifacts.
//!
//! Takes the environment; gives the folder when nobody else can write to it, for what lies in it decides what code runs.

use super::os;
use crate::system::shown::Shown;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

/// Why there is no such folder.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    #[error("ODEC_CACHE is empty, or neither it nor XDG_CACHE_HOME nor HOME is set")]
    Unset,
    #[error("{path} cannot be used: {source}")]
    Unusable { path: String, source: io::Error },
    #[error("{path} {why}")]
    Exposed { path: String, why: String },
}

impl NotPrivate {
    /// Whether other users may have written there, which is worth a warning.
    pub fn is_exposed(&self) -> bool {
        matches!(self, NotPrivate::Exposed { .. })
    }
}

/// `$ODEC_CACHE`, else `$XDG_CACHE_HOME/odec`, else `$HOME/.cache/odec`, made where it is missing.
///
/// # Errors
/// When none of them is set, the folder cannot be made, or another user owns it or may write to it.
pub fn folder() -> Result<PathBuf, NotPrivate> {
    let folder = named().ok_or(NotPrivate::Unset)?;
    let path = || folder.shown().to_string();
    let unusable = |source| NotPrivate::Unusable {
        path: path(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(unusable)?;
    // A link is as good as what it leads to.
    let real = folder.canonicalize().map_err(unusable)?;
    match exposed(&fs::metadata(&real).map_err(unusable)?, 0o022) {
        Some(why) => Err(NotPrivate::Exposed { path: path(), why }),
        None => Ok(real),
    }
}

fn named() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    if let Some(own) = std::env::var_os("ODEC_CACHE") {
        return (!own.is_empty()).then(|| own.into());
    }
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = set("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    base.map(|b| b.join("odec"))
}

/// Why a file or folder is not this user's alone, when others have none of these permissions.
pub(crate) fn exposed(found: &Metadata, permissions: u32) -> Option<String> {
    let (owner, user) = (found.uid(), os::user());
    if owner != user {
        return Some(format!(
            "belongs to user {owner}, and odec runs as user {user}"
        ));
    }
    let mode = found.mode() & 0o777;
    (mode & permissions != 0)
        .then(|| format!("is open to other users (mode {mode:o}); `chmod go=` closes it"))
}
