//! Objects that were compiled before.
//!
//! A file per object, named by the SHA-256 of everything that decides its bytes: MLIR text, target,
//! lowering and LLVM version. Keying by the text, not the spec, means that a changed emitter never
//! meets an old object. Files appear by rename, so readers never see half of one, and carry a digest of
//! their contents, so that a damaged one is the same as none. A cache that cannot be written is no error.

use crate::ffi;
use crate::pipeline::PASSES;
use odec_program::Target;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::PathBuf;

const DIGEST: usize = 32;

/// A directory of compiled objects.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// A cache in a directory, which is made when the first object is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache {
            folder: folder.into(),
        }
    }

    /// `$ODEC_CACHE`, else `$XDG_CACHE_HOME/odec`, else `$HOME/.cache/odec`. `None` when none of them is
    /// set or `$ODEC_CACHE` is empty.
    pub fn from_env() -> Option<Cache> {
        if let Some(own) = std::env::var_os("ODEC_CACHE") {
            return (!own.is_empty()).then(|| Cache::at(own));
        }
        let set = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        base.map(|b| Cache::at(b.join("odec")))
    }

    fn path(&self, text: &str, target: Target) -> PathBuf {
        let mut hash = Sha256::new();
        for part in [
            env!("CARGO_PKG_VERSION"),
            &ffi::code_generator(),
            PASSES,
            target.name(),
            text,
        ] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let name: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        self.folder
            .join(&name[..2])
            .join(format!("{}.o", &name[2..]))
    }

    /// The object compiled from `text`, if it is here and undamaged.
    pub fn get(&self, text: &str, target: Target) -> Option<Vec<u8>> {
        let file = std::fs::read(self.path(text, target)).ok()?;
        let (digest, bytes) = file.split_at_checked(DIGEST)?;
        (Sha256::digest(bytes).as_slice() == digest).then(|| bytes.to_vec())
    }

    /// Keeps an object. Failing to is silent: the next build compiles again.
    pub fn put(&self, text: &str, target: Target, bytes: &[u8]) {
        let path = self.path(text, target);
        let folder = path.parent().expect("a file in a folder");
        let _ = std::fs::create_dir_all(folder).and_then(|()| {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(Sha256::digest(bytes).as_slice())?;
            file.write_all(bytes)?;
            file.persist(&path)?;
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_by_text_and_target_and_ignores_damage() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("new"));
        assert_eq!(cache.get("a", Target::Avx2), None);
        cache.put("a", Target::Avx2, b"object");
        assert_eq!(
            cache.get("a", Target::Avx2).as_deref(),
            Some(&b"object"[..])
        );
        assert_eq!(cache.get("a", Target::Avx512), None);
        assert_eq!(cache.get("b", Target::Avx2), None);
        let path = cache.path("a", Target::Avx2);
        for damage in [&b""[..], b"short", &[7; 40]] {
            std::fs::write(&path, damage).unwrap();
            assert_eq!(cache.get("a", Target::Avx2), None);
        }
        cache.put("a", Target::Avx2, b"object");
        assert!(cache.get("a", Target::Avx2).is_some());
    }

    #[test]
    fn an_unwritable_folder_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = Cache::at(file.path());
        cache.put("a", Target::Avx2, b"object");
        assert_eq!(cache.get("a", Target::Avx2), None);
    }
}
