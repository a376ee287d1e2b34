//! `e^x`, `ln x` and `erf x` as primitive expressions.
//!
//! Takes a [`Body`] and gives an equivalent one without [`UnaryOp::Exp`], [`UnaryOp::Log`] and [`UnaryOp::Erf`]:
//! range reduction (for `e^x` in the manner of Cody and Waite, 1980), then a minimax polynomial. Emitters and the scalar
//! evaluator both go through here, so a transcendental has one meaning, down to the last bit.
//!
//! The polynomials are weighted Remez fits made for this file; the comments give the relative error of the
//! exact polynomial against the function it stands for. Rounded evaluation stays within one unit in the last place,
//! for `erf` two; the tests hold all functions to that over their whole range.

use crate::DType;
use crate::expr::{BinaryOp, Body, CmpOp, Expr, ExprId, UnaryOp};

/// The numbers that differ between f32 and f64. `hi + lo = ln 2`, and `hi` has enough trailing zeros that its
/// product with any exponent is exact.
struct Tables {
    ln2_hi: f64,
    ln2_lo: f64,
    /// `e^x` overflows above this; small enough that the scale of the result stays representable.
    exp_limit: f64,
    /// `(e^r − 1 − r) / r²` on |r| ≤ ln 2 / 2, lowest power first.
    exp: &'static [f64],
    /// `(2·atanh(s)/s − 2) / s²` in powers of `s²`, on |s| ≤ (√2 − 1)/(√2 + 1).
    log: &'static [f64],
    min_positive: f64,
    /// `erf(x)/x − 1` in powers of `x²`, on |x| ≤ [`ERF_SPLIT`].
    erf: &'static [f64],
    /// `ln(1 − erf x)` in powers of `x − 1`, on [`ERF_SPLIT`] ≤ x ≤ `erf_limit`. The comments give the error of
    /// `erf`, not of the logarithm.
    erfc: &'static [f64],
    /// From here on `erf` is 1 in this arithmetic.
    erf_limit: f64,
    /// Multiplying a subnormal by two to this power makes it normal.
    lift: i32,
}

/// Where `erf` changes from one polynomial to the other.
const ERF_SPLIT: f64 = 0.875;

const F32: Tables = Tables {
    ln2_hi: 0.693145751953125,
    ln2_lo: 1.428606765330187e-06,
    exp_limit: 89.0,
    // 3.1e-9
    exp: &[
        0.4999999403953552,
        0.1666652113199234,
        0.04166838899254799,
        0.00836874544620514,
        0.0013814540579915047,
    ],
    // 8.1e-10
    log: &[0.6666677594184875, 0.399774968624115, 0.298730731010437],
    min_positive: f32::MIN_POSITIVE as f64,
    // 8.34e-9
    erf: &[
        0.12837915122509003,
        -0.3761255145072937,
        0.11282463371753693,
        -0.02679167129099369,
        0.005032429005950689,
        -0.0006204384844750166,
    ],
    // 1.74e-9
    erfc: &[
        -1.8496055603027344,
        -2.638967752456665,
        -0.8431065082550049,
        -0.04154789820313454,
        0.00996916089206934,
        -0.001882102806121111,
        0.00019971808069385588,
    ],
    erf_limit: 4.0,
    lift: 25,
};

const F64: Tables = Tables {
    ln2_hi: 0.6931471803691238,
    ln2_lo: 1.9082149292705877e-10,
    exp_limit: 710.0,
    // 3.6e-18
    exp: &[
        0.5000000000000011,
        0.1666666666666641,
        0.041666666666529725,
        0.008333333333494976,
        0.0013888888943759965,
        0.00019841269505773776,
        2.480149294963387e-05,
        2.7557586803895326e-06,
        2.76303062502936e-07,
        2.5000018833187374e-08,
    ],
    // 1.2e-18
    log: &[
        0.6666666666666735,
        0.3999999999941109,
        0.28571428743262955,
        0.22222198475963328,
        0.18183569740789435,
        0.15313903225620146,
        0.14797507887340616,
    ],
    min_positive: f64::MIN_POSITIVE,
    // 3.19e-19
    erf: &[
        0.1283791670955126,
        -0.37612638903183737,
        0.11283791670954309,
        -0.02686617064493354,
        0.005223977622964321,
        -0.000854832683987491,
        0.00012055324340375724,
        -1.4925381797060386e-05,
        1.6456522875069765e-06,
        -1.628841834348644e-07,
        1.4118247472372004e-08,
        -8.655527802362613e-10,
    ],
    // 3.32e-18
    erfc: &[
        -1.8496055099332482,
        -2.6389675142347917,
        -0.8431072563585011,
        -0.04156109804642702,
        0.010033825435899976,
        -0.0019779030348504208,
        0.00023732470213128917,
        2.627082268330729e-05,
        -2.714349287370862e-05,
        9.58406304257194e-06,
        -2.0308812062008376e-06,
        1.18040369363867e-07,
        1.1336394435128007e-07,
        -5.9459191156720234e-08,
        1.7437274342528577e-08,
        -3.469090151928476e-09,
        4.647651177436106e-10,
        -3.800205692943107e-11,
        1.4331227473848277e-12,
    ],
    erf_limit: 6.0,
    lift: 54,
};

impl Body {
    /// Rewrites every [`UnaryOp::Exp`], [`UnaryOp::Log`] and [`UnaryOp::Erf`] into primitive nodes for arithmetic in
    /// `dtype`.
    ///
    /// Gives the new body and, for each node of the old one, its id in the new one.
    ///
    /// - `exp`: within one ulp; exactly 0 from half a binary order under the smallest normal number downwards (f32:
    ///   x < −87.68), +∞ where the result overflows, NaN for NaN.
    /// - `log`: within one ulp for every positive number, subnormals included; −∞ for ±0, +∞ for +∞, NaN for
    ///   negative numbers and NaN.
    /// - `erf`: within two ulps; odd in every bit, ±1 at ±∞, NaN for NaN.
    pub fn expand_transcendentals(&self, dtype: DType) -> (Body, Vec<ExprId>) {
        let tables = if dtype == DType::F64 { &F64 } else { &F32 };
        let mut out = Body::default();
        let mut ids: Vec<ExprId> = Vec::with_capacity(self.nodes.len());
        for e in &self.nodes {
            let at = |a: ExprId| ids[a.0 as usize];
            let id = match *e {
                Expr::Unary(UnaryOp::Exp, a) => exp(&mut out, at(a), tables),
                Expr::Unary(UnaryOp::Log, a) => log(&mut out, at(a), tables),
                Expr::Unary(UnaryOp::Erf, a) => erf(&mut out, at(a), tables),
                Expr::Unary(op, a) => out.unary(op, at(a)),
                Expr::Binary(op, a, b) => out.binary(op, at(a), at(b)),
                Expr::Fma(a, b, c) => out.fma(at(a), at(b), at(c)),
                Expr::Select { cmp, a, b, t, f } => out.select(cmp, at(a), at(b), at(t), at(f)),
                Expr::Reduce(op, a) => out.reduce(op, at(a)),
                Expr::Random(args) => out.push(Expr::Random(args.map(at))),
                Expr::Const(_)
                | Expr::Uniform(_)
                | Expr::Load { .. }
                | Expr::RowIndex
                | Expr::ColIndex
                | Expr::Acc => out.push(*e),
            };
            ids.push(id);
        }
        (out, ids)
    }
}

/// `c₀ + c₁·x + …` by Horner's rule.
fn horner(b: &mut Body, coeffs: &[f64], x: ExprId) -> ExprId {
    let (last, rest) = coeffs.split_last().expect("a polynomial has coefficients");
    let top = b.konst(*last);
    rest.iter().rev().fold(top, |acc, c| {
        let c = b.konst(*c);
        b.fma(acc, x, c)
    })
}

/// `e^x = 2^k · e^r` with `k = round(x / ln 2)`; `Scale` gives the exact zero far below, and the clamp above
/// keeps `k` one step over the largest exponent, where the product overflows to +∞ by itself.
fn exp(b: &mut Body, x: ExprId, t: &Tables) -> ExprId {
    let limit = b.konst(t.exp_limit);
    // The limit comes first: a NaN in second place goes through.
    let x = b.binary(BinaryOp::Min, limit, x);
    let per_ln2 = b.konst(std::f64::consts::LOG2_E);
    let quotient = b.mul(x, per_ln2);
    let k = b.unary(UnaryOp::Round, quotient);
    let (hi, lo) = (b.konst(-t.ln2_hi), b.konst(-t.ln2_lo));
    let r = b.fma(k, hi, x);
    let r = b.fma(k, lo, r);
    let q = horner(b, t.exp, r);
    let one = b.konst(1.0);
    let q = b.fma(q, r, one);
    let p = b.fma(q, r, one);
    b.binary(BinaryOp::Scale, p, k)
}

/// `ln x = e·ln 2 + ln m` with m in (√2/2, √2]; with `f = m − 1` and `s = f / (2 + f)`,
/// `ln(1 + f) = 2·atanh s = f − (f²/2 − s·(f²/2 + R))`, where `R = 2·atanh(s)/s − 2`.
fn log(b: &mut Body, x: ExprId, t: &Tables) -> ExprId {
    let (zero, one, two, half) = (b.konst(0.0), b.konst(1.0), b.konst(2.0), b.konst(0.5));
    let smallest = b.konst(t.min_positive);
    let lift = b.konst(f64::from(t.lift).exp2());
    let lifted = b.mul(x, lift);
    let normal = b.select(CmpOp::Lt, x, smallest, lifted, x);
    let minus_lift = b.konst(-f64::from(t.lift));
    let offset = b.select(CmpOp::Lt, x, smallest, minus_lift, zero);
    let e = b.unary(UnaryOp::Exponent, normal);
    let e = b.add(e, offset);
    let m = b.unary(UnaryOp::Mantissa, normal);

    let root = b.konst(std::f64::consts::SQRT_2);
    let halved = b.mul(m, half);
    let next = b.add(e, one);
    let e = b.select(CmpOp::Lt, root, m, next, e);
    let m = b.select(CmpOp::Lt, root, m, halved, m);

    let f = b.binary(BinaryOp::Sub, m, one);
    let below = b.add(f, two);
    let s = b.binary(BinaryOp::Div, f, below);
    let z = b.mul(s, s);
    let r = horner(b, t.log, z);
    let r = b.mul(r, z);
    let square = b.mul(f, f);
    let square = b.mul(square, half);
    let sum = b.add(square, r);
    let (hi, lo) = (b.konst(t.ln2_hi), b.konst(t.ln2_lo));
    let low = b.mul(e, lo);
    let low = b.fma(s, sum, low);
    let low = b.binary(BinaryOp::Sub, square, low);
    let low = b.binary(BinaryOp::Sub, f, low);
    let value = b.fma(e, hi, low);

    let infinity = b.konst(f64::INFINITY);
    let value = b.select(CmpOp::Lt, x, infinity, value, x);
    let (pole, nan) = (b.konst(f64::NEG_INFINITY), b.konst(f64::NAN));
    let outside = b.select(CmpOp::Eq, x, zero, pole, nan);
    b.select(CmpOp::Lt, zero, x, value, outside)
}

/// `erf x = x + x·p(x²)` near zero, and `±(1 − e^q(|x|))` further out, where the exponential is small enough that the
/// errors of `q` and of rounding it vanish.
fn erf(b: &mut Body, x: ExprId, t: &Tables) -> ExprId {
    let square = b.mul(x, x);
    let p = horner(b, t.erf, square);
    let near = b.fma(p, x, x);

    let minus = b.unary(UnaryOp::Neg, x);
    let size = b.binary(BinaryOp::Max, x, minus);
    let (limit, one, zero) = (b.konst(t.erf_limit), b.konst(1.0), b.konst(0.0));
    // The limit comes first: a NaN in second place goes through.
    let clamped = b.binary(BinaryOp::Min, limit, size);
    let shifted = b.binary(BinaryOp::Sub, clamped, one);
    let q = horner(b, t.erfc, shifted);
    let rest = exp(b, q, t);
    let far = b.binary(BinaryOp::Sub, one, rest);
    let minus_far = b.unary(UnaryOp::Neg, far);
    let far = b.select(CmpOp::Lt, x, zero, minus_far, far);

    let split = b.konst(ERF_SPLIT);
    b.select(CmpOp::Lt, size, split, near, far)
}
