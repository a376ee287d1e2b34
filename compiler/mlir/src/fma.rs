//! Fused multiply-add for targets that have no such instruction: the same bits, in plain arithmetic.
//!
//! Takes a float type; gives the text of a private function `(a, b, c) → a·b + c`, rounded once. Dot products of pairs of bf16 are emulated with a part of it
//! ([`crate::dot`]).
//!
//! Both forms round an exact sum *to odd* before the last rounding, which makes the double rounding
//! harmless (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved
//! algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008).
//! f32: exact for all values. f64: exact while |a|, |b| < 2^996 and a·b is zero or above 2^−969.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::Target;

/// The text of the helper function `name` for values of type `ty`. That of f64 is not inlined: training steps take 1.1 times as long then, and builds of
/// them a fifth of the time.
pub(crate) fn helper(name: &str, ty: Type, target: Target) -> String {
    let inlined = ty.elem != Elem::F64;
    Emitter::helper(name, ty, target, inlined, |e, a, b, c| match ty.elem {
        Elem::F64 => through_errors(e, a, b, c),
        _ => through_f64(e, a, b, c),
    })
}

/// The product of two f32 is exact in f64, the sum is rounded to odd there, 53 ≥ 24 + 2 bits.
fn through_f64(e: &mut Emitter, a: Val, b: Val, c: Val) -> Val {
    let (a, b, c) = (
        e.convert(a, Elem::F64),
        e.convert(b, Elem::F64),
        e.convert(c, Elem::F64),
    );
    let odd = sum_to_odd(e, [a, b, c]);
    e.convert(odd, Elem::F32)
}

/// `a·b + c` in f64 of numbers that are f32, rounded to odd.
pub(crate) fn sum_to_odd(e: &mut Emitter, [a, b, c]: [Val; 3]) -> Val {
    let product = e.mul(a, b);
    let (sum, error) = two_sum(e, product, c);
    to_odd(e, sum, error)
}

/// Boldo and Melquiond's `Fmac`: exact product, two exact sums, one sum rounded to odd.
fn through_errors(e: &mut Emitter, a: Val, b: Val, c: Val) -> Val {
    let (high, low) = two_product(e, a, b);
    let (t, t_low) = two_sum(e, c, low);
    let (v, v_low) = two_sum(e, high, t);
    let (z, error) = two_sum(e, t_low, v_low);
    let z = to_odd(e, z, error);
    let sum = e.add(v, z);
    // infinities, NaN and the sign of zero are those of the plain expression
    let plain = e.add(high, c);
    let zero = e.float(0.0, sum.ty);
    let (below, above) = (e.cmp(Cmp::Lt, sum, zero), e.cmp(Cmp::Gt, sum, zero));
    let regular = e.or(below, above);
    e.select(regular, sum, plain)
}

/// `a + b` and its rounding error (D. Knuth).
fn two_sum(e: &mut Emitter, a: Val, b: Val) -> (Val, Val) {
    let sum = e.add(a, b);
    let b_part = e.sub(sum, a);
    let a_part = e.sub(sum, b_part);
    let (a_error, b_error) = (e.sub(a, a_part), e.sub(b, b_part));
    (sum, e.add(a_error, b_error))
}

/// `a·b` and its rounding error (T. Dekker), with factors cut into halves of 26 bits (G. Veltkamp).
fn two_product(e: &mut Emitter, a: Val, b: Val) -> (Val, Val) {
    let halves = |e: &mut Emitter, x: Val| {
        let splitter = e.float(134_217_729.0, x.ty); // 2^27 + 1
        let g = e.mul(splitter, x);
        let rest = e.sub(g, x);
        let high = e.sub(g, rest);
        (high, e.sub(x, high))
    };
    let product = e.mul(a, b);
    let ((ah, al), (bh, bl)) = (halves(e, a), halves(e, b));
    let mut error = product;
    for (x, y) in [(ah, bh), (al, bh), (ah, bl)] {
        let part = e.mul(x, y);
        error = e.sub(error, part);
    }
    let last = e.mul(al, bl);
    (product, e.sub(last, error))
}

/// `sum + error` rounded to odd: an inexact sum with an even mantissa moves one step towards the error.
fn to_odd(e: &mut Emitter, sum: Val, error: Val) -> Val {
    let bits_type = sum.ty.with(Elem::I64);
    let bits = e.bitcast(sum, Elem::I64);
    let error_bits = e.bitcast(error, Elem::I64);
    let (zero, one, minus) = (
        e.integer(0, bits_type),
        e.integer(1, bits_type),
        e.integer(-1, bits_type),
    );
    let signs = e.xor(bits, error_bits);
    let apart = e.cmp(Cmp::Lt, signs, zero);
    let step = e.select(apart, minus, one);
    let last_bit = e.and(bits, one);
    let even = e.cmp(Cmp::Eq, last_bit, zero);
    let none = e.float(0.0, sum.ty);
    let (below, above) = (e.cmp(Cmp::Lt, error, none), e.cmp(Cmp::Gt, error, none));
    let inexact = e.or(below, above); // false when the sum is infinite or NaN, whose error is NaN
    let moves = e.and(even, inexact);
    let stepped = e.add(bits, step);
    let bits = e.select(moves, stepped, bits);
    e.bitcast(bits, sum.ty.elem)
}
