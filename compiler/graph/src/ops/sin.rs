//! `sin x`, for arguments of at most some thousands: features of a time that is found as the program runs.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Mul, Shift};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{Body, ExprId, UnaryOp};

/// Kernels take whole turns away, `r = x − 2π·round(x/2π)` with 2π in three parts of 24 bits (Cody & Waite 1980), and add up Taylor's
/// series of r, |r| ≤ π, whose first term left out, `π³¹/31!`, is below 10⁻¹⁸. In f32 the argument itself is rounded: an angle x is
/// off by 6·10⁻⁸·x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sin;

/// The last power of the series.
const DEGREE: u32 = 29;

/// 2π = 6.28125 + 0.00193500518798828125 + 3.0199…·10⁻⁷: the first two are exact in f32, and so is their product with a turn number below 2¹⁰.
const TURN: [f64; 3] = [
    6.28125,
    0.001_935_005_187_988_281_2,
    3.019_915_981_956_753e-7,
];

fn rule(b: &mut Body, x: ExprId) -> ExprId {
    let per_turn = b.konst(1.0 / std::f64::consts::TAU);
    let turns = b.mul(x, per_turn);
    let turns = b.unary(UnaryOp::Round, turns);
    let mut r = x;
    for part in TURN {
        let part = b.konst(-part);
        r = b.fma(turns, part, r);
    }
    let square = b.mul(r, r);
    let coefficient = |n: u32| {
        let factorial: f64 = (1..=n).map(f64::from).product();
        if n % 4 == 1 {
            1.0 / factorial
        } else {
            -1.0 / factorial
        }
    };
    let mut sum = b.konst(coefficient(DEGREE));
    for i in (0..DEGREE / 2).rev() {
        let c = b.konst(coefficient(2 * i + 1));
        sum = b.fma(sum, square, c);
    }
    b.mul(r, sum)
}

impl Op for Sin {
    const NAME: &'static str = "sin";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Sin)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], libm::sin)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, d) = (cx.ins[0], cx.d());
        let quarter = Exact::decimal("1.57079632679489661923132169163975").expect("a decimal");
        let ahead = cx.b.push1(Shift { by: quarter }, &[x]).expect("one shape");
        let cos = cx.b.push1(Sin, &[ahead]).expect("one shape");
        Vjp::Rule(vec![Some(cx.b.push1(Mul, &[d, cos]).expect("one shape"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(rule)
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(Sin, "a_turn", vec![TensorType::state(20)]).range(-3.5, 3.5),
            Sample::new(Sin, "many_turns", vec![TensorType::state(20)])
                .range(-1000.0, 1000.0)
                .tolerance(1e-4),
        ]
    }
}
