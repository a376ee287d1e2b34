//! Compiled objects are found again, and only their owner's.

use odec_mlir::Cache;
use odec_program::Target;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The files of a cache.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    let inside = |path: PathBuf| match path.is_dir() {
        true => objects(&path),
        false => vec![path],
    };
    entries.flat_map(inside).collect()
}

fn one(paths: Vec<PathBuf>) -> PathBuf {
    let [path] = &paths[..] else {
        panic!("{paths:?}")
    };
    path.clone()
}

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
    let path = one(objects(folder.path()));
    cache.put("a", Target::Avx512, b"wide");
    for same in [Target::Amx, Target::Avx512Bf16] {
        assert_eq!(cache.get("a", same).as_deref(), Some(&b"wide"[..]));
    }
    let dots = "llvm.x86.avx512bf16.dpbf16ps.512";
    cache.put(dots, Target::Avx512Bf16, b"dots");
    assert_eq!(cache.get(dots, Target::Avx512), None);
    for damage in [&b""[..], b"short", &[7; 40]] {
        std::fs::write(&path, damage).unwrap();
        assert_eq!(cache.get("a", Target::Avx2), None);
    }
    cache.put("a", Target::Avx2, b"object");
    assert!(cache.get("a", Target::Avx2).is_some());
}

#[test]
fn an_object_of_another_kernel_or_that_others_may_change_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    cache.put("a", Target::Avx2, b"a");
    let a = one(objects(folder.path()));
    cache.put("b", Target::Avx2, b"b");
    let b = one(objects(folder.path())
        .into_iter()
        .filter(|p| *p != a)
        .collect());
    let open = |mode| {
        std::fs::set_permissions(&b, Permissions::from_mode(mode)).unwrap();
        cache.get("b", Target::Avx2)
    };
    assert_eq!(open(0o644).as_deref(), Some(&b"b"[..]));
    assert_eq!(open(0o646), None);
    assert_eq!(open(0o664), None);
    // Whole, and with a digest of its own.
    std::fs::copy(&b, &a).unwrap();
    std::fs::set_permissions(&a, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(cache.get("a", Target::Avx2), None);
    assert_eq!(open(0o600).as_deref(), Some(&b"b"[..]));
}

#[test]
fn an_unwritable_folder_is_no_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = Cache::at(file.path());
    cache.put("a", Target::Avx2, b"object");
    assert_eq!(cache.get("a", Target::Avx2), None);
}
