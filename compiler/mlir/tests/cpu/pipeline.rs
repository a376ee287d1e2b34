//! Text of MLIR becomes code for a target.

use odec_mlir::Pipeline;
use odec_mlir::emit::Emitter;
use odec_program::{DType, Target};

fn fma_kernel(target: Target) -> String {
    let mut e = Emitter::new("k", DType::F32, target);
    let p = e.operand(0);
    let x = e.load(p, e.vector());
    let y = e.fma(x, x, x);
    e.store(y, p);
    e.finish()
}

#[test]
fn every_target_has_its_own_instructions() {
    let pipeline = Pipeline::new();
    let asm = |t| pipeline.assembly(&fma_kernel(t), t).unwrap();
    assert!(asm(Target::Avx512).contains("zmm"));
    assert!(asm(Target::Avx2).contains("vfmadd"));
    let portable = asm(Target::Portable);
    assert!(
        portable.contains("mulpd") && !portable.contains("call"),
        "{portable}"
    );
}

#[test]
fn assembly_of_gpus_is_not_moved_between_threads() {
    let text = "llvm.func @k() attributes {nvvm.kernel} {\n  llvm.inline_asm has_side_effects \"wgmma.commit_group.sync.aligned;\", \"~{memory}\" : () -> ()\n  llvm.return\n}\n";
    let ir = Pipeline::new().llvm_ir(text, Target::Sm90a).unwrap();
    let call = ir.lines().find(|l| l.contains("wgmma")).expect("the call");
    let (_, attributes) = call.rsplit_once(' ').expect("a group of attributes");
    let group = format!("attributes {attributes} = {{ convergent ");
    assert!(ir.contains(&group), "{ir}");
}

#[test]
fn equal_text_gives_equal_objects() {
    let text = fma_kernel(Target::Avx2);
    let object = |p: &Pipeline| p.object(&text, Target::Avx2).unwrap();
    let (one, two) = (Pipeline::new(), Pipeline::new());
    assert_eq!(object(&one), object(&two));
    assert_eq!(object(&one), object(&one));
}

#[test]
fn bad_text_is_an_error_with_mlirs_reason() {
    let error = Pipeline::new()
        .object(
            "module { func.func @f() { return %x : f32 } }",
            Target::Avx2,
        )
        .unwrap_err();
    assert!(error.contains("undeclared"), "{error}");
}
