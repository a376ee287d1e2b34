//! This user's own key, which signs the artifacts that are built here.
//!
//! Takes the manifest's SHA-256, which covers the kernels' hashes too; gives an HMAC-SHA256 of it (RFC 2104), or says whether one
//! is ours. The key is made once, in [`mod@crate::system::private`]'s folder, and never leaves it.

use crate::system::hash::hex;
use crate::system::input;
use crate::system::private::{self, NotPrivate};
use crate::system::shown::Shown;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io::{self, Write};
use std::path::Path;

/// The key's name in the folder.
const FILE: &str = "key";
const BYTES: usize = 32;
/// What is signed begins with this, so that a signature never counts for something else.
const PURPOSE: &[u8] = b"odec artifact 1\n";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    Folder(#[from] NotPrivate),
    #[error("the key {path} cannot be used: {source}")]
    Unusable { path: String, source: io::Error },
    #[error("the key {path} {why}; remove it, and odec makes a new one")]
    Damaged { path: String, why: String },
}

pub struct Key(Hmac<Sha256>);

impl Key {
    /// This user's key; the first to ask makes it.
    ///
    /// # Errors
    /// When the folder cannot be had, or the key is not this user's alone.
    pub fn own() -> Result<Key, KeyError> {
        let path = private::folder()?.join(FILE);
        let unusable = |source| KeyError::Unusable {
            path: path.shown().to_string(),
            source,
        };
        match Key::read(&path) {
            Err(KeyError::Unusable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                make(&path).map_err(unusable)?;
                Key::read(&path)
            }
            read => read,
        }
    }

    fn read(path: &Path) -> Result<Key, KeyError> {
        let shown = || path.shown().to_string();
        let unusable = |source| KeyError::Unusable {
            path: shown(),
            source,
        };
        let damaged = |why| KeyError::Damaged { path: shown(), why };
        let file = input::open_itself(path).map_err(unusable)?;
        if let Some(why) = private::exposed(&file.metadata().map_err(unusable)?, 0o077) {
            return Err(damaged(why));
        }
        let key = input::all(file, BYTES as u64).map_err(unusable)?;
        match Hmac::new_from_slice(&key) {
            Ok(mac) if key.len() == BYTES => Ok(Key(mac)),
            _ => Err(damaged(format!(
                "has {} bytes instead of {BYTES}",
                key.len()
            ))),
        }
    }

    fn of(&self, manifest: &str) -> Hmac<Sha256> {
        self.0.clone().chain_update(PURPOSE).chain_update(manifest)
    }

    /// The signature of the manifest with this hash.
    pub fn sign(&self, manifest: &str) -> String {
        hex(&self.of(manifest).finalize().into_bytes())
    }

    /// Whether a signature is ours.
    pub fn signed(&self, manifest: &str, signature: &str) -> bool {
        let bytes: Option<Vec<u8>> = (signature.as_bytes().chunks(2))
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        // In one spelling alone: damage to it is seen, too.
        bytes.is_some_and(|b| hex(&b) == signature && self.of(manifest).verify_slice(&b).is_ok())
    }
}

/// Makes a key, unless another process has just made one.
fn make(path: &Path) -> io::Result<()> {
    let mut key = [0; BYTES];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    // For its owner alone, under a name that nobody can foresee.
    let mut file = tempfile::NamedTempFile::new_in(crate::system::files::parent(path))?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(e.error),
        _ => Ok(()),
    }
}
