//! Products inside of attention ([`super::Attend`]): what they are made of and added to, in either order.
//!
//! [`Order::Chain`]: fused multiply-adds, one after the other. [`Order::Dots`]: dot products of pairs of bf16 ([`dot`]) with sums in f32; of a pair that is
//! half missing (the last column, key or query, one before a window, one that comes later) the factors that are missing are zeros. A pair of
//! zeros changes no sum but for the sign of a zero, so that it may be left out or not; results have no negative zeros.

use super::Order;
use crate::dot;
use crate::expr::{BinaryOp, UnaryOp};
use crate::real::Real;
use std::ops::Range;

/// `Σ a_i · b_i`, from zero. Pairs are of numbers that are bf16.
pub(super) fn sum<T: Real>(order: Order, a: &[T], b: &[T]) -> T {
    let terms = a.iter().zip(b);
    match order {
        Order::Chain | Order::Pairs => terms.fold(T::ZERO, |sum, (a, b)| T::fma(*a, *b, sum)),
        Order::Dots => T::of(dot::sum(terms.map(|(a, b)| (single(*a), single(*b)))).into()),
    }
}

/// `to ← to + Σ factor · from` over terms (factor, from), of which a pair has two or the one that there is. Its factors are rounded.
pub(super) fn add<T: Real>(order: Order, to: &mut [T], terms: &[(T, &[T])]) {
    match order {
        Order::Chain | Order::Pairs => terms.iter().for_each(|(factor, from)| {
            for (t, f) in to.iter_mut().zip(*from) {
                *t = T::fma(*factor, *f, *t);
            }
        }),
        Order::Dots => {
            let term = |n: usize, c: usize| {
                let at = |(factor, from): &(T, &[T])| {
                    (single(self::factor(order, *factor)), single(from[c]))
                };
                terms.get(n).map_or((0.0, 0.0), at)
            };
            for (c, t) in to.iter_mut().enumerate() {
                *t = T::of(dot::add(single(*t), [term(0, c), term(1, c)]).into());
            }
        }
    }
}

/// What a number is as a factor.
fn factor<T: Real>(order: Order, x: T) -> T {
    match order {
        Order::Chain | Order::Pairs => x,
        Order::Dots => T::unary(UnaryOp::Bf16, x),
    }
}

/// What a sum is as a result: with pairs, a zero is positive.
pub(super) fn result<T: Real>(order: Order, x: T) -> T {
    match order {
        Order::Chain | Order::Pairs => x,
        Order::Dots => T::binary(BinaryOp::Add, x, T::ZERO),
    }
}

/// A range in pieces, which begin at multiples of a size wherever the range begins.
pub(super) fn pieces(range: Range<usize>, size: u64) -> impl Iterator<Item = Range<usize>> {
    let size = size as usize;
    let first = range.start / size * size;
    (first..range.end)
        .step_by(size)
        .map(move |j| j.max(range.start)..(j + size).min(range.end))
}

/// Pairs are in f32.
fn single<T: Real>(x: T) -> f32 {
    x.to_f64() as f32
}
