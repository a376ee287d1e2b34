//! `φₖ(z)`, functions of exponential integrators: `φ₀ = e^z`, `φₖ(z) = Σⱼ zʲ/(j + k)!`.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{BinaryOp, Body, CmpOp, ExprId, UnaryOp};

/// For |z| ≤ k + 1 the series is added up, whose terms fall from the first on; beyond, `φⱼ = (φⱼ₋₁ − 1/(j−1)!)/z` is applied k times, where
/// division by z makes earlier errors smaller. In f32 results are within 2·10⁻⁶ for k ≤ 4 and 10⁻⁴ for k ≤ 9, as shares of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phi {
    pub index: u32,
}

/// Below this share of the sum, terms of the series are left out.
const SMALL: f64 = 1e-19;

fn factorial(n: u32) -> f64 {
    (1..=n).map(f64::from).product()
}

/// Where the series ends being used.
fn near(index: u32) -> f64 {
    f64::from(index + 1)
}

/// `1/(j + k)!`, as many as the series needs.
fn coefficients(index: u32) -> Vec<f64> {
    let (mut all, mut j) = (Vec::new(), 0);
    loop {
        let c = 1.0 / factorial(index + j);
        all.push(c);
        if c * near(index).powi(j as i32) * factorial(index) < SMALL {
            return all;
        }
        j += 1;
    }
}

/// As kernels compute it.
fn rule(b: &mut Body, z: ExprId, index: u32) -> ExprId {
    let mut far = b.unary(UnaryOp::Exp, z);
    if index == 0 {
        return far;
    }
    for j in 1..=index {
        let first = b.konst(1.0 / factorial(j - 1));
        let rest = b.binary(BinaryOp::Sub, far, first);
        far = b.binary(BinaryOp::Div, rest, z);
    }
    let coefficients = coefficients(index);
    let mut sum = b.konst(coefficients[coefficients.len() - 1]);
    for c in coefficients.iter().rev().skip(1) {
        let c = b.konst(*c);
        sum = b.fma(sum, z, c);
    }
    let minus = b.unary(UnaryOp::Neg, z);
    let size = b.binary(BinaryOp::Max, z, minus);
    let near = b.konst(near(index));
    b.select(CmpOp::Lt, near, size, far, sum)
}

/// In f64.
pub fn phi(index: u32, z: f64) -> f64 {
    if index == 0 || z.abs() > near(index) {
        let step = |f: f64, j: u32| (f - 1.0 / factorial(j - 1)) / z;
        return (1..=index).fold(libm::exp(z), step);
    }
    let coefficients = coefficients(index);
    coefficients.iter().rev().fold(0.0, |sum, c| sum * z + c)
}

impl Op for Phi {
    const NAME: &'static str = "phi";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("index", self.index.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let index = given.need("index")?;
        Ok(Phi { index })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |z| phi(self.index, z))
    }

    /// `φₖ' = φₖ − k φₖ₊₁`.
    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (z, y, d) = (cx.ins[0], cx.outs[0], cx.d());
        let slope = match self.index {
            0 => y,
            k => {
                let index = k + 1;
                let next = cx.b.push1(Phi { index }, &[z]).expect("one shape");
                let coeffs = vec![Exact::one(), Exact::int(-i64::from(k))];
                let difference = Combine::of(coeffs);
                cx.b.push1(difference, &[y, next]).expect("one shape")
            }
        };
        Vjp::Rule(vec![Some(cx.b.push1(Mul, &[d, slope]).expect("one shape"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let index = self.index;
        map_kind(move |b, z| rule(b, z, index))
    }

    fn samples() -> Vec<Sample> {
        let sample = |index, name, low, high| {
            Sample::new(Phi { index }, name, vec![TensorType::state(20)])
                .range(low, high)
                .tolerance(if index > 4 { 1e-4 } else { 2e-6 })
        };
        vec![
            sample(0, "exponential", -4.0, 1.0),
            sample(1, "decay", -12.0, 0.5),
            sample(2, "near_zero", -1e-3, 1e-3),
            sample(3, "decay_3", -12.0, 2.0),
            sample(4, "decay_4", -20.0, 2.0),
            sample(8, "last", -30.0, 1.0),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_program::eval::{Evaluator, Memory};
    use odec_program::expr::Access;

    /// `φₖ(z) = ∫₀¹ e^{(1−s)z} s^{k−1}/(k−1)! ds` by Gauss–Legendre's rule of five points.
    fn integral(k: u32, z: f64) -> f64 {
        let nodes = [0.0, 0.538_469_310_105_683_1, 0.906_179_845_938_664];
        let weights = [
            0.568_888_888_888_888_9,
            0.478_628_670_499_366_47,
            0.236_926_885_056_189_1,
        ];
        let parts = 512;
        let width = 1.0 / f64::from(parts);
        let f = |s: f64| ((1.0 - s) * z).exp() * s.powi(k as i32 - 1) / factorial(k - 1);
        let part = |i: u32| {
            let middle = (f64::from(i) + 0.5) * width;
            let pair = |n: usize| {
                let d = nodes[n] * width / 2.0;
                weights[n] * (f(middle + d) + f(middle - d))
            };
            width / 2.0 * (weights[0] * f(middle) + pair(1) + pair(2))
        };
        (0..parts).map(part).sum()
    }

    struct Row(Vec<f32>);

    impl Memory<f32> for Row {
        fn load(&self, _: u32, index: u64) -> f32 {
            self.0[index as usize]
        }
        fn store(&mut self, _: u32, _: u64, _: f32) {}
    }

    #[test]
    fn values_are_those_of_the_integral() {
        for k in 1..=9u32 {
            for i in -400..=80 {
                let z = f64::from(i) / 10.0;
                let (found, exact) = (phi(k, z), integral(k, z));
                let off = ((found - exact) / exact).abs();
                let allowed = if k > 4 { 1e-11 } else { 1e-13 };
                assert!(off < allowed, "phi{k}({z}) = {found}, not {exact}: {off:e}");
            }
        }
    }

    /// Kernels in f32 against f64, on both sides of where the series ends.
    #[test]
    fn kernels_in_f32_are_as_exact_as_they_say() {
        for k in 0..=9u32 {
            let all: Vec<f32> = (-4000..=800).map(|i| i as f32 / 100.0).collect();
            let n = all.len() as u64;
            let mut body = Body::default();
            let z = body.load(0, Access::full(n));
            let f = rule(&mut body, z, k);
            let mut eval = Evaluator::new(&body, &[]);
            eval.row(&Row(all.clone()), 0, [1, 1], 0..n, &[]);
            let mut worst = 0.0f64;
            for (i, z) in all.iter().enumerate() {
                let found = f64::from(eval.value(f, i));
                let exact = phi(k, f64::from(*z));
                worst = worst.max(((found - exact) / exact).abs());
            }
            let allowed = if k > 4 { 1e-4 } else { 2e-6 };
            assert!(worst < allowed, "phi{k}: {worst:e}");
        }
    }
}
