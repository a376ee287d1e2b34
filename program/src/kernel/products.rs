//! Products inside of attention ([`super::Attend`]) and of groups ([`super::Grouped`]): what they are made of and added to, in each order.
//!
//! [`Order::Chain`]: fused multiply-adds, one after the other. [`Order::Dots`]: dot products of pairs of bf16 ([`dot`]) with sums in f32, and
//! [`Order::Pairs`]: chunks of 32 on tile registers ([`tile`]). Of a pair or chunk that is
//! partly missing (the last column, key or query, one before a window, one that comes later) the factors that are missing are zeros. A pair or chunk of
//! zeros changes no sum but one that is subnormal, or a negative zero, so that it may be left out or not; results have no negative zeros.

use super::Order;
use crate::expr::{BinaryOp, UnaryOp};
use crate::real::Real;
use crate::{dot, tile};
use std::ops::Range;

/// `Σ a_i · b_i`, from zero. Pairs are of numbers that are bf16.
pub(super) fn sum<T: Real>(order: Order, a: &[T], b: &[T]) -> T {
    let terms = a.iter().zip(b);
    let singles = || terms.clone().map(|(a, b)| (single(*a), single(*b)));
    match order {
        Order::Chain => (terms.clone()).fold(T::ZERO, |sum, (a, b)| T::fma(*a, *b, sum)),
        Order::Dots => T::of(dot::sum(singles()).into()),
        Order::Pairs => T::of(tile::sum(singles()).into()),
    }
}

/// `to ← to + Σ factor · from` over terms (factor, from), those of a pair or chunk that there are; the first has number `first` in the order of the whole sum.
/// Factors of pairs are rounded.
pub(super) fn add<T: Real>(order: Order, to: &mut [T], first: usize, terms: &[(T, &[T])]) {
    let singles = |c: usize| {
        let each = terms.iter();
        each.map(move |(factor, from)| (single(self::factor(order, *factor)), single(from[c])))
    };
    match order {
        Order::Chain => terms.iter().for_each(|(factor, from)| {
            for (t, f) in to.iter_mut().zip(*from) {
                *t = T::fma(*factor, *f, *t);
            }
        }),
        Order::Dots => {
            for (c, t) in to.iter_mut().enumerate() {
                let mut terms = singles(c);
                let pair = [(); 2].map(|()| terms.next().unwrap_or((0.0, 0.0)));
                *t = T::of(dot::add(single(*t), pair).into());
            }
        }
        Order::Pairs => {
            for (c, t) in to.iter_mut().enumerate() {
                *t = T::of(tile::add_chunk(single(*t), first, singles(c)).into());
            }
        }
    }
}

/// What a number is as a factor.
fn factor<T: Real>(order: Order, x: T) -> T {
    match order {
        Order::Chain => x,
        Order::Pairs | Order::Dots => T::unary(UnaryOp::Bf16, x),
    }
}

/// What a sum is as a result: with pairs, a zero is positive.
pub(super) fn result<T: Real>(order: Order, x: T) -> T {
    match order {
        Order::Chain => x,
        Order::Pairs | Order::Dots => T::binary(BinaryOp::Add, x, T::ZERO),
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
