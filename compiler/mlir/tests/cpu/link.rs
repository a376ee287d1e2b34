//! Objects become a shared library.

use odec_mlir::{CodegenError, Object, Pipeline, link};
use odec_program::Target;

fn objects() -> Vec<Object> {
    let pipeline = Pipeline::new();
    let object = |name: &str| {
        let text = format!("module {{ func.func @{name}() {{ return }} }}");
        let bytes = pipeline.object(&text, Target::Portable).unwrap();
        Object::new(name, Target::Portable, bytes).unwrap()
    };
    vec![object("one"), object("two")]
}

#[test]
fn equal_objects_give_equal_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = folder.path().join(name);
        link(&objects(), &path).unwrap();
        std::fs::read(path).unwrap()
    };
    assert_eq!(file("a.so"), file("b.so"));
}

#[test]
fn what_cannot_be_linked_is_an_error_with_the_linkers_reason() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = link(&objects(), &folder.path().join("no/such/folder.so")).unwrap_err();
    assert!(matches!(nowhere, CodegenError::Io { .. }), "{nowhere}");
    let twice = [objects(), objects()].concat();
    let error = link(&twice, &folder.path().join("c.so")).unwrap_err();
    assert!(error.to_string().contains("one"), "{error}");
}
