//! The two floating-point types that kernels compute in, with exactly the operations of
//! [`crate::expr`].

use crate::expr::{BinaryOp, CmpOp, UnaryOp};
use crate::{DType, bf16};

/// f32 or f64. Every method means the same as the expression node of its name.
pub trait Real: Copy + PartialOrd + std::fmt::Debug + Send + Sync + 'static {
    const DTYPE: DType;
    const ZERO: Self;
    /// Rounded to nearest, as constants and coefficients are.
    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
    /// The bits of the nearest bf16.
    fn bf16(self) -> u16;
    /// Indices and token numbers.
    fn of_i32(x: i32) -> Self;
    /// None of [`UnaryOp::Exp`], [`UnaryOp::Log`], [`UnaryOp::Erf`]: those are expanded first.
    fn unary(op: UnaryOp, a: Self) -> Self;
    fn binary(op: BinaryOp, a: Self, b: Self) -> Self;
    /// Rounded once.
    fn fma(a: Self, b: Self, c: Self) -> Self;
    /// `y ← fma(a, x, y)` of each element.
    fn axpy(a: Self, x: &[Self], y: &mut [Self]);

    fn compare(cmp: CmpOp, a: Self, b: Self) -> bool {
        match cmp {
            CmpOp::Eq => a == b,
            CmpOp::Lt => a < b,
        }
    }
}

macro_rules! real {
    ($t:ty, $dtype:expr, $bits:ty, $mantissa:expr, $bias:expr, $round:expr) => {
        impl Real for $t {
            const DTYPE: DType = $dtype;
            const ZERO: Self = 0.0;

            #[inline]
            fn of(x: f64) -> Self {
                x as $t
            }
            #[inline]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline]
            fn bf16(self) -> u16 {
                $round(self)
            }
            #[inline]
            fn of_i32(x: i32) -> Self {
                x as $t
            }

            #[inline]
            fn unary(op: UnaryOp, a: Self) -> Self {
                const FIELD: $bits = 2 * $bias + 1;
                const FRACTION: $bits = (1 << $mantissa) - 1;
                match op {
                    UnaryOp::Neg => -a,
                    UnaryOp::Sqrt => a.sqrt(),
                    UnaryOp::Round => a.round_ties_even(),
                    UnaryOp::Exponent => {
                        (((a.to_bits() >> $mantissa) & FIELD) as i32 - $bias) as $t
                    }
                    UnaryOp::Mantissa => {
                        <$t>::from_bits((a.to_bits() & FRACTION) | ($bias << $mantissa))
                    }
                    UnaryOp::Bf16 => <$t>::from(bf16::to_f32(Self::bf16(a))),
                    UnaryOp::Exp | UnaryOp::Log | UnaryOp::Erf => {
                        unreachable!("transcendentals are expanded before evaluation")
                    }
                }
            }

            #[inline]
            fn binary(op: BinaryOp, a: Self, b: Self) -> Self {
                match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::Div => a / b,
                    BinaryOp::Max => {
                        if a > b {
                            a
                        } else {
                            b
                        }
                    }
                    BinaryOp::Min => {
                        if a < b {
                            a
                        } else {
                            b
                        }
                    }
                    BinaryOp::Scale => {
                        if b <= -($bias as $t) {
                            return 0.0;
                        }
                        if b.is_nan() {
                            return b;
                        }
                        // Two exact powers of two: only the first product can round.
                        let n = (b as i32).min(2 * $bias);
                        let first = n.min($bias);
                        let power = |n: i32| <$t>::from_bits(((n + $bias) as $bits) << $mantissa);
                        a * power(first) * power(n - first)
                    }
                }
            }

            #[inline]
            fn fma(a: Self, b: Self, c: Self) -> Self {
                a.mul_add(b, c)
            }

            fn axpy(a: Self, x: &[Self], y: &mut [Self]) {
                #[cfg(target_arch = "x86_64")]
                {
                    /// Without it, each is a call.
                    #[target_feature(enable = "avx2,fma")]
                    fn fused(a: $t, x: &[$t], y: &mut [$t]) {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = a.mul_add(*x, *y);
                        }
                    }
                    if std::arch::is_x86_feature_detected!("avx2")
                        && std::arch::is_x86_feature_detected!("fma")
                    {
                        // SAFETY: the processor has both.
                        return unsafe { fused(a, x, y) };
                    }
                }
                for (y, x) in y.iter_mut().zip(x) {
                    *y = Self::fma(a, *x, *y);
                }
            }
        }
    };
}

real!(f32, DType::F32, u32, 23, 127, bf16::of_f32);
real!(f64, DType::F64, u64, 52, 1023, bf16::of_f64);
