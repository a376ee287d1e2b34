//! The text that an emitter writes.

use odec_mlir::emit::{Elem, Emitter, Type};
use odec_program::{DType, Target};

/// How an emitter writes a number.
fn literal(x: f64, elem: Elem) -> String {
    let mut e = Emitter::new("k", DType::F32, Target::Avx2);
    e.float(x, Type { elem, lanes: 0 });
    let text = e.finish();
    let mut constants = text.lines().filter_map(|l| l.split_once("arith.constant "));
    let (_, constant) = constants.next().expect("a constant");
    let (number, _) = constant.split_once(" : ").expect("its type");
    number.to_string()
}

#[test]
fn float_literals_keep_every_bit() {
    for x in [
        0.0,
        -0.0,
        1.0,
        0.1,
        -2.5e-7,
        f32::MIN_POSITIVE as f64,
        1e38,
        16.0,
    ] {
        let text = literal(x, Elem::F32);
        let read = text.parse::<f64>().unwrap() as f32;
        assert_eq!(read.to_bits(), (x as f32).to_bits(), "{text}");
        assert!(text.contains('.'), "{text}");
        let text = literal(x, Elem::F64);
        let read = text.parse::<f64>().unwrap();
        assert_eq!(read.to_bits(), x.to_bits(), "{text}");
    }
    assert_eq!(literal(f64::NEG_INFINITY, Elem::F32), "0xFF800000");
}

#[test]
fn text_of_a_small_kernel() {
    let mut e = Emitter::new("axpy", DType::F32, Target::Avx2);
    let (x, y, n) = (e.operand(0), e.operand(1), e.dim(0));
    let a = e.coeff(0);
    let a = e.broadcast(a, e.lanes);
    let (begin, zero) = (e.begin(), e.float(0.0, e.vector()));
    let sum = e.for_with(begin, n, 8, &[zero], |e, i, acc| {
        let p = e.at(x, i, e.elem);
        let v = e.load(p, e.vector());
        vec![e.fma(a, v, acc[0])]
    });
    let m = e.mask(n, 8);
    e.store_masked(sum[0], y, m);
    insta::assert_snapshot!(e.finish());
}
