//! The cache of compiled objects.
//!
//! A file per object, named by the SHA-256 of everything that decides its bytes: MLIR text, instruction set,
//! lowering and LLVM version. Targets of one instruction set share objects: what tiles are used for is in the text. Keying by the text, not the spec, means that a changed emitter never
//! meets an old object. Files appear by rename, so readers never see half of one. Each carries a digest of its name and
//! contents, so that a damaged one, or another kernel's, is the same as none. So is one that somebody else owns or may
//! change: objects are run. That the folder is its owner's alone is for the caller to know. A cache that cannot be written is no error.

use crate::ffi;
use crate::pipeline;
use odec_program::Target;
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

const DIGEST: usize = 32;

/// Bumped when files come to look otherwise: versions that share a folder then leave each other's alone.
const FORMAT: &str = "2";

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

    /// What decides the bytes of an object.
    fn key(text: &str, target: Target) -> [u8; DIGEST] {
        let mut hash = Sha256::new();
        for part in [
            FORMAT,
            env!("CARGO_PKG_VERSION"),
            &ffi::code_generator(target),
            pipeline::passes(target),
            ffi::cpu(target),
            &ffi::features(target, text).to_string_lossy(),
            text,
        ] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    fn path(&self, key: &[u8; DIGEST]) -> PathBuf {
        let name: String = key.iter().map(|b| format!("{b:02x}")).collect();
        self.folder
            .join(&name[..2])
            .join(format!("{}.o", &name[2..]))
    }

    /// The object compiled from `text`, if it is here, undamaged and its owner's alone.
    pub fn get(&self, text: &str, target: Target) -> Option<Vec<u8>> {
        let key = Cache::key(text, target);
        let mut file = File::open(self.path(&key)).ok()?;
        let (found, folder) = (file.metadata().ok()?, self.folder.metadata().ok()?);
        if !found.is_file() || found.uid() != folder.uid() || found.mode() & 0o022 != 0 {
            return None;
        }
        let mut contents = Vec::new();
        file.read_to_end(&mut contents).ok()?;
        let (digest, bytes) = contents.split_at_checked(DIGEST)?;
        (digest_of(&key, bytes) == digest).then(|| bytes.to_vec())
    }

    /// Keeps an object. Failing to is silent: the next build compiles again.
    pub fn put(&self, text: &str, target: Target, bytes: &[u8]) {
        let key = Cache::key(text, target);
        let path = self.path(&key);
        let folder = path.parent().expect("a file in a folder");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let _ = made.and_then(|()| {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(&digest_of(&key, bytes))?;
            file.write_all(bytes)?;
            file.persist(&path)?;
            Ok(())
        });
    }
}

fn digest_of(key: &[u8; DIGEST], bytes: &[u8]) -> [u8; DIGEST] {
    let hash = Sha256::new().chain_update(key).chain_update(bytes);
    hash.finalize().into()
}
