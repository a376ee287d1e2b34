//! Arithmetic of one thread: integers of any width, floats in f32, conversions.
//!
//! Takes an operation, its type and the bits of its operands; gives the bits of the result, exactly as PTX says, and panics for
//! what the emitters' kernels are not made of.

use super::isa::{Op, Rounding, Ty};

/// A value as an integer of its type, extended as the type says.
fn integer(x: u64, ty: Ty) -> i128 {
    match (ty, ty.bits()) {
        (Ty::S(_), 16) => i128::from(x as i16),
        (Ty::S(_), 32) => i128::from(x as i32),
        (Ty::S(_), _) => i128::from(x as i64),
        (_, 1) => i128::from(x & 1),
        (_, 8) => i128::from(x as u8),
        (_, 16) => i128::from(x as u16),
        (_, 32) => i128::from(x as u32),
        (_, _) => i128::from(x),
    }
}

fn cut(x: i128, bits: u32) -> u64 {
    low(x as u64, bits)
}

fn low(x: u64, bits: u32) -> u64 {
    match bits {
        64 => x,
        n => x & ((1 << n) - 1),
    }
}

/// [`compute`] of all threads of a warp at once, of those operations that most instructions are and that refuse no operands; `None` of others.
pub fn lanes<const N: usize>(op: Op, ty: Ty, operands: [&[u64; N]; 3]) -> Option<[u64; N]> {
    fn each<const N: usize>(
        [a, b, c]: [&[u64; N]; 3],
        of: impl Fn(u64, u64, u64) -> u64,
    ) -> Option<[u64; N]> {
        Some(std::array::from_fn(|l| of(a[l], b[l], c[l])))
    }
    let n = ty.bits();
    /// The lower bits as a number of 64 bits, extended as the type says.
    fn wide(x: u64, ty: Ty) -> i64 {
        let left = 64 - ty.bits();
        match ty {
            Ty::S(_) => (x << left) as i64 >> left,
            _ => low(x, ty.bits()) as i64,
        }
    }
    match (op, ty) {
        (Op::Select, _) => each(operands, |a, b, c| low(if c & 1 == 1 { a } else { b }, n)),
        (Op::Convert(from @ (Ty::S(_) | Ty::U(_)), Rounding::Unnamed), Ty::S(_) | Ty::U(_)) => {
            each(operands, |a, _, _| low(wide(a, from) as u64, n))
        }
        (Op::Mov, _) => each(operands, |a, _, _| low(a, n)),
        (Op::And, _) => each(operands, |a, b, _| low(a & b, n)),
        (Op::Or, _) => each(operands, |a, b, _| low(a | b, n)),
        (Op::Xor, _) => each(operands, |a, b, _| low(a ^ b, n)),
        (Op::Add, Ty::F(32)) => each(operands, |a, b, _| (f(a) + f(b)).to_bits().into()),
        (Op::Sub, Ty::F(32)) => each(operands, |a, b, _| (f(a) - f(b)).to_bits().into()),
        (Op::Mul, Ty::F(32)) => each(operands, |a, b, _| (f(a) * f(b)).to_bits().into()),
        (Op::Fma, Ty::F(32)) => each(operands, |a, b, c| {
            f(a).mul_add(f(b), f(c)).to_bits().into()
        }),
        (Op::Compare(how), Ty::F(32)) => each(operands, |a, b, _| {
            how.holds(f(a).partial_cmp(&f(b))).into()
        }),
        (_, Ty::F(_)) => None,
        (Op::Add, _) => each(operands, |a, b, _| low(a.wrapping_add(b), n)),
        (Op::Sub, _) => each(operands, |a, b, _| low(a.wrapping_sub(b), n)),
        (Op::Mul, _) => each(operands, |a, b, _| low(a.wrapping_mul(b), n)),
        (Op::Mad, _) => each(operands, |a, b, c| {
            low(a.wrapping_mul(b).wrapping_add(c), n)
        }),
        (Op::MulWide, _) if n <= 32 => each(operands, |a, b, _| {
            low(wide(a, ty).wrapping_mul(wide(b, ty)) as u64, 2 * n)
        }),
        (Op::ShiftLeft, _) => each(operands, |a, b, _| {
            low(a.checked_shl(b as u32).unwrap_or(0), n)
        }),
        (Op::ShiftRight, Ty::S(_)) => each(operands, |a, b, _| {
            low((wide(a, ty) >> (b as u32).min(63)) as u64, n)
        }),
        (Op::ShiftRight, _) => each(operands, |a, b, _| {
            low(a, n).checked_shr(b as u32).unwrap_or(0)
        }),
        (Op::Compare(how), Ty::S(_)) => each(operands, |a, b, _| {
            how.holds(Some(wide(a, ty).cmp(&wide(b, ty)))).into()
        }),
        (Op::Compare(how), _) => each(operands, |a, b, _| {
            how.holds(Some(low(a, n).cmp(&low(b, n)))).into()
        }),
        _ => None,
    }
}

pub fn compute(op: Op, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    match (op, ty) {
        (Op::Pair, _) => {
            let half = |x: u64| u64::from(odec_program::bf16::of_f32(f(x)));
            half(a) << 16 | half(b)
        }
        (Op::Mov | Op::Select | Op::Pack, _) | (Op::And | Op::Or | Op::Xor | Op::Not, _) => {
            bits(op, ty, a, b, c)
        }
        (Op::Compare(how), Ty::F(32)) => how.holds(f(a).partial_cmp(&f(b))).into(),
        (Op::Compare(how), Ty::F(64)) => {
            let order = f64::from_bits(a).partial_cmp(&f64::from_bits(b));
            how.holds(order).into()
        }
        (Op::Convert(from, how), _) => convert(from, ty, how, a),
        (Op::Exp2, _) => {
            // As far from right as it may be; what is no normal number is zero.
            let normal = |x: f32| if x.is_subnormal() { 0.0 } else { x };
            let x = normal(f(a));
            let off = 1.0 - if x == 0.0 { 0.0 } else { 2f64.powi(-22) };
            normal((f64::from(x).exp2() * off) as f32).to_bits().into()
        }
        (_, Ty::F(32)) => {
            let (a, b, c) = (f(a), f(b), f(c));
            let x = match op {
                Op::Add => a + b,
                Op::Sub => a - b,
                Op::Mul => a * b,
                Op::Fma => a.mul_add(b, c),
                Op::Div => a / b,
                Op::Sqrt => a.sqrt(),
                Op::Reciprocal => 1.0 / a,
                Op::Neg => -a,
                Op::Abs => a.abs(),
                // the other one, where one is NaN; −0 is below +0
                Op::Min | Op::Max => {
                    let ordered = if a.total_cmp(&b).is_le() {
                        (a, b)
                    } else {
                        (b, a)
                    };
                    match (a.is_nan(), b.is_nan(), op) {
                        (true, ..) => b,
                        (_, true, _) => a,
                        (.., Op::Min) => ordered.0,
                        _ => ordered.1,
                    }
                }
                _ => panic!("{op:?} on f32"),
            };
            x.to_bits().into()
        }
        (_, Ty::F(_)) => panic!("{op:?} on {ty:?}"),
        _ => whole(op, ty, a, b, c),
    }
}

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn bits(op: Op, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    let x = match op {
        Op::Mov => a,
        Op::Select => {
            if c & 1 == 1 {
                a
            } else {
                b
            }
        }
        Op::Pack => (a & ((1 << (ty.bits() / 2)) - 1)) | b << (ty.bits() / 2),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::Not => !a,
        _ => unreachable!(),
    };
    low(x, ty.bits())
}

fn whole(op: Op, ty: Ty, a: u64, b: u64, c: u64) -> u64 {
    let n = ty.bits();
    // The lower bits of these depend on the lower bits of their operands alone, whatever the sign. They are most of all instructions.
    let lower = match op {
        Op::Add => Some(a.wrapping_add(b)),
        Op::Sub => Some(a.wrapping_sub(b)),
        Op::Mul => Some(a.wrapping_mul(b)),
        Op::Mad => Some(a.wrapping_mul(b).wrapping_add(c)),
        _ => None,
    };
    if let Some(x) = lower {
        return low(x, n);
    }
    let (x, y) = (integer(a, ty), integer(b, ty));
    let out = match op {
        Op::MulWide => return cut(x * y, 2 * n),
        Op::MulHigh => (x * y) >> n,
        Op::MadWide => return cut(x * y + i128::from(c), 2 * n),
        Op::Div => x / y,
        Op::Rem => x % y,
        Op::Min => x.min(y),
        Op::Max => x.max(y),
        Op::Neg => -x,
        Op::Abs => x.abs(),
        Op::ShiftLeft => x << (b as u32).min(64),
        Op::ShiftRight => x >> (b as u32).min(64),
        Op::Field => {
            assert!(b + c <= u64::from(n), "a field beyond its register");
            let field = x >> b & ((1 << c) - 1);
            // Its own last bit is the sign.
            match ty {
                Ty::S(_) if field >> c.saturating_sub(1) == 1 => field - (1 << c),
                _ => field,
            }
        }
        Op::Permute => {
            let both = cut(x, 32) | cut(y, 32) << 32;
            let byte = |n: u32| {
                let pick = c >> (4 * n) & 0xF;
                assert!(pick < 8, "bytes of signs");
                (both >> (8 * pick) & 0xFF) << (8 * n)
            };
            i128::from((0..4).map(byte).sum::<u64>())
        }
        Op::Popc => i128::from(cut(x, n).count_ones()),
        Op::Clz => i128::from(cut(x, n).leading_zeros() - (64 - n)),
        Op::Brev => i128::from(cut(x, n).reverse_bits() >> (64 - n)),
        Op::Compare(how) => return how.holds(Some(x.cmp(&y))).into(),
        _ => panic!("{op:?} on {ty:?}"),
    };
    cut(out, n)
}

fn convert(from: Ty, to: Ty, how: Rounding, a: u64) -> u64 {
    use Rounding::{Rn, Rni, Rzi, Unnamed};
    match (from, to, how) {
        (Ty::F(32), Ty::F(32), Rni) => f(a).round_ties_even().to_bits().into(),
        (Ty::F(64), Ty::F(32), Rn) => (f64::from_bits(a) as f32).to_bits().into(),
        (Ty::F(32), Ty::S(32), Rzi) => f(a) as i32 as u32 as u64,
        (Ty::S(_) | Ty::U(_), Ty::F(32), Rn) => (integer(a, from) as f32).to_bits().into(),
        (Ty::S(_) | Ty::U(_), Ty::S(_) | Ty::U(_), Unnamed) => cut(integer(a, from), to.bits()),
        _ => panic!("cvt {how:?} from {from:?} to {to:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::Relation;
    use super::Rounding::Unnamed;
    use super::*;

    #[test]
    fn all_threads_at_once_compute_what_each_does() {
        use Op::{
            Add, And, Compare, Convert, Div, Fma, Mad, Mov, Mul, MulWide, Or, Select, ShiftLeft,
            ShiftRight, Sub, Xor,
        };
        let relations = [
            "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "nan", "num",
        ];
        let others = relations
            .map(|name| Compare(Relation::named(name).expect("a relation")))
            .into_iter()
            .chain([Ty::U(16), Ty::S(16), Ty::S(32), Ty::U(64)].map(|t| Convert(t, Unnamed)))
            .chain([MulWide, ShiftLeft, ShiftRight]);
        let reals = [0.0f32, -0.0, 1.5, -3.0e38, f32::INFINITY, f32::NAN, 1e-42];
        let words = [0, 1, u64::MAX, 1 << 63, 0xFFFF_FFFF, 0x8000_0000, 0x1_0001];
        let (a, mut b, mut c) = (
            std::array::from_fn::<u64, 14, _>(|l| match l {
                0..7 => words[l],
                _ => reals[l - 7].to_bits().into(),
            }),
            [0; 14],
            [0; 14],
        );
        for turn in 0..14 {
            for l in 0..14 {
                b[l] = a[(l + turn) % 14];
                c[l] = a[(l + 3 * turn) % 14];
            }
            for ty in [
                Ty::Pred,
                Ty::B(16),
                Ty::B(32),
                Ty::B(64),
                Ty::U(32),
                Ty::S(32),
                Ty::S(64),
                Ty::F(32),
            ] {
                for op in others.clone() {
                    let is_of = match ty {
                        Ty::F(_) => matches!(op, Compare(_)),
                        _ => matches!(ty, Ty::U(_) | Ty::S(_)),
                    };
                    if !is_of || op == MulWide && ty.bits() == 64 {
                        continue;
                    }
                    let all = lanes(op, ty, [&a, &b, &c]).expect("no refusal");
                    let one: [u64; 14] = std::array::from_fn(|l| compute(op, ty, a[l], b[l], c[l]));
                    assert_eq!(all, one, "{op:?} on {ty:?}");
                }
                for op in [Select, Add, Sub, Mul, Fma, Mad, Mov, And, Or, Xor, Div] {
                    let of_reals = ty == Ty::F(32);
                    if op == Div || (op == Fma) != of_reals && matches!(op, Fma | Mad) {
                        assert_eq!(lanes(op, ty, [&a, &b, &c]), None);
                        continue;
                    }
                    let all = lanes(op, ty, [&a, &b, &c]).expect("no refusal");
                    let one: [u64; 14] = std::array::from_fn(|l| compute(op, ty, a[l], b[l], c[l]));
                    let same =
                        |x: u64, y: u64| x == y || of_reals && f(x).is_nan() && f(y).is_nan();
                    assert!((0..14).all(|l| same(all[l], one[l])), "{op:?} on {ty:?}");
                }
            }
        }
    }
}
