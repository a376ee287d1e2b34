//! Dot products of pairs of bf16 for targets that have no such instruction: the same bits, in plain arithmetic.
//!
//! Takes a type of f32 vectors; gives the text of a private function `(a, b, c) → c` with the products of pairs added, where a and b are words of 32 bits, each
//! a pair. It is what `vdpbf16ps` is defined to compute ([`odec_program::dot`]). It is for tests alone, which run the programs of `cpu:avx512bf16` on other
//! processors with it. It is much slower than the instruction. It is not inlined: a kernel calls it a hundred times, and would take minutes to compile.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::fma::sum_to_odd;
use odec_program::Target;

/// The text of the helper function `name` for vectors of type `ty`.
pub(crate) fn helper(name: &str, ty: Type, target: Target) -> String {
    Emitter::helper(name, ty, target, false, |e, a, b, c| {
        let words = [a, b].map(|x| e.bitcast(x, Elem::I32));
        let half = e.integer(16, words[0].ty);
        let upper = e.integer(-1 << 16, words[0].ty);
        let second = words.map(|w| e.and(w, upper));
        let first = words.map(|w| e.shift_left(w, half));
        let c = add(e, second, c);
        add(e, first, c)
    })
}

/// The sum `c` with the product of two factors, bits of f32, as [`odec_program::tile::fma`] adds it.
fn add(e: &mut Emitter, [a, b]: [Val; 2], c: Val) -> Val {
    let c = e.bitcast(c, Elem::I32);
    let terms = [a, b, c].map(|bits| {
        let x = without_subnormals(e, bits);
        e.convert(x, Elem::F64)
    });
    let odd = sum_to_odd(e, terms);
    let rounded = e.convert(odd, Elem::F32);
    // Halfway between the smallest normal number and the one of 24 bits before it, where ties go to even, upwards.
    let normal = f64::from(f32::MIN_POSITIVE) * (1.0 - 1.0 / f64::from(1u32 << 25));
    let (above, below) = (e.float(normal, odd.ty), e.float(-normal, odd.ty));
    let (small, large) = (e.cmp(Cmp::Lt, odd, above), e.cmp(Cmp::Gt, odd, below));
    let tiny = e.and(small, large);
    let zero = zero_of_sign(e, rounded);
    e.select(tiny, zero, rounded)
}

/// The f32 of these bits; zeros of their sign in the place of subnormal ones.
fn without_subnormals(e: &mut Emitter, bits: Val) -> Val {
    let exponent = e.integer(0x7f80_0000, bits.ty);
    let (exponent, zero) = (e.and(bits, exponent), e.integer(0, bits.ty));
    let tiny = e.cmp(Cmp::Eq, exponent, zero);
    let x = e.bitcast(bits, Elem::F32);
    let zero = zero_of_sign(e, x);
    e.select(tiny, zero, x)
}

fn zero_of_sign(e: &mut Emitter, x: Val) -> Val {
    let bits = e.bitcast(x, Elem::I32);
    let sign = e.integer(i64::from(i32::MIN), bits.ty);
    let sign = e.and(bits, sign);
    e.bitcast(sign, Elem::F32)
}
