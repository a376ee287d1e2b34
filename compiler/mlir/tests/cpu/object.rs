//! What counts as a kernel's object.

use odec_mlir::{CodegenError, Object, Pipeline};
use odec_program::Target;

#[test]
fn calls_to_libraries_are_found() {
    let text = "module { func.func private @expf(f32) -> f32
        func.func @k(%x: f32) -> f32 { %y = func.call @expf(%x) : (f32) -> f32  return %y : f32 } }";
    let bytes = Pipeline::new().object(text, Target::Portable).unwrap();
    let error = Object::new("k", Target::Portable, bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel k refers to undefined symbols: expf"
    );
}

#[test]
fn garbage_is_not_an_object() {
    assert!(matches!(
        Object::new("k", Target::Portable, vec![1, 2, 3]),
        Err(CodegenError::Lower { .. })
    ));
    let mut cut = Pipeline::new()
        .object("module { func.func @k() { return } }", Target::Portable)
        .unwrap();
    assert!(Object::new("k", Target::Portable, cut.clone()).is_ok());
    cut.truncate(200);
    assert!(Object::new("k", Target::Portable, cut).is_err());
}
