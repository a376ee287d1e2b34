//! Where threads read and write: columns of operands' rows, one or four at a time.
//!
//! Takes addresses and column maps; gives scalars or vectors of four in f32. Four columns are one access where they lie
//! together and the address is known to be aligned, else four.

use crate::access::transposed;
use crate::emit::{Elem, Emitter, Type, Val};
use odec_program::expr::{Access, ColMap};
use odec_program::gpu::whole;

/// A scalar (`vector` = 1) or a vector.
pub(crate) fn wide(elem: Elem, vector: u64) -> Type {
    match vector {
        1 => Type::scalar(elem),
        n => Type::vector(elem, n),
    }
}

/// Loads the columns that the access gives for `vector` columns of the domain from `first` on, as f32. `base` is the
/// start of the operand's row.
pub(crate) fn load(
    e: &mut Emitter,
    base: Val,
    elem: Elem,
    access: Access,
    first: Val,
    vector: u64,
) -> Val {
    let x = if access.col == ColMap::Zero {
        let x = e.load(base, Type::scalar(elem));
        if vector > 1 {
            e.broadcast(x, vector)
        } else {
            x
        }
    } else if whole(access, vector) {
        let c = column(e, access.col, first);
        let p = e.at(base, c, elem);
        e.load_whole(p, wide(elem, vector))
    } else {
        let parts: Vec<Val> = (0..vector as i64)
            .map(|i| {
                let c = e.add_int(first, i);
                let c = column(e, access.col, c);
                let p = e.at(base, c, elem);
                e.load(p, Type::scalar(elem))
            })
            .collect();
        if vector > 1 { e.join(&parts) } else { parts[0] }
    };
    e.convert(x, e.elem)
}

/// Stores as many columns as `value` has, which has the operand's type, from `first` on.
pub(crate) fn store(e: &mut Emitter, value: Val, base: Val, access: Access, first: Val) {
    let elem = value.ty.elem;
    if access
        .stride
        .is_multiple_of(u64::from(value.ty.lanes.max(1)))
    {
        let p = e.at(base, first, elem);
        return e.store_whole(value, p);
    }
    for (i, x) in e.parts(value).into_iter().enumerate() {
        let c = e.add_int(first, i as i64);
        let p = e.at(base, c, elem);
        e.store(x, p);
    }
}

/// The operand's column for column `c` of the domain.
fn column(e: &mut Emitter, map: ColMap, c: Val) -> Val {
    match map {
        ColMap::Col => c,
        ColMap::Zero => e.int(0),
        ColMap::Turn { cols, by } => {
            let n = e.int(cols as i64);
            let c = e.add_int(c, by as i64);
            e.rem(c, n)
        }
        ColMap::HalfSwap(n) => {
            // the half that c lies in has an even or odd number
            let half = e.int(n as i64 / 2);
            let number = e.div(c, half);
            let two = e.int(2);
            let odd = e.rem(number, two);
            let back = e.mul_int(odd, n as i64);
            let there = e.add(c, half);
            e.sub(there, back)
        }
        ColMap::Transposed { rows, cols } => transposed(e, c, rows, cols),
    }
}
