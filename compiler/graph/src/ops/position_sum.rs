//! The sum over a batch, for every position: the transpose of adding a row to each; or of all positions from the last on in one row.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::AddPositions;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::{Gather, KernelSpec};
use odec_program::{Dim, Size};

/// `x[B, S, C] → [positions, C]`, S ≤ positions: `y[p] = Σ_b x[b, p]`, in order; zero from S on. With `beyond`, S may be more, and the last row is the
/// sum of all positions from its own on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionSum {
    pub positions: u64,
    pub beyond: bool,
}

impl Op for PositionSum {
    const NAME: &'static str = "position_sum";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let beyond = self.beyond.then(|| ("beyond", "true".to_string()));
        beyond.into_iter().collect()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let [positions, _] = given.matrix()?;
        let beyond = given.optional("beyond")?.unwrap_or(false);
        Ok(PositionSum { positions, beyond })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        match x.is_state() {
            true => {
                let shape = [self.positions, x.cols()].map(Dim::Fixed);
                Ok(vec![TensorType::real(shape)])
            }
            false => fail(Self::NAME, format!("needs [B, S, width], not {x}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let x = ins[0];
        let (seq, cols) = (x.shape[1], x.shape[2]);
        if seq > self.positions && !self.beyond {
            let what = format!(
                "sequence of {seq} in a table of {} positions",
                self.positions
            );
            let op = Self::NAME;
            return Err(EvalError { op, what });
        }
        let mut out = Tensor::zeros(vec![self.positions, cols]);
        for (i, x) in (0..).zip(&x.data) {
            let (position, column) = (i / cols % seq, i % cols);
            let row = position.min(self.positions - 1);
            out.data[(row * cols + column) as usize] += x;
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        if self.beyond {
            return Vjp::NotDifferentiable("it serves the derivative of attention, whose second one has no rule");
        }
        // every row of the result is added back to all tokens at its position
        let (x, d) = (cx.ins[0], cx.d());
        let zero = crate::nn::combine(cx.b, &[(crate::Exact::zero(), x)]).expect("one type");
        let back =
            cx.b.push1(AddPositions, &[zero, d])
                .expect("a row for each position");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let kernel = move |dtype| KernelSpec::PositionSum(Gather { dtype, cols });
        let mut launch = OneLaunch::along(kernel, ins);
        launch.dims.push(Size::fixed(self.positions));
        Kind::One(launch)
    }

    fn samples() -> Vec<Sample> {
        let of = |positions, beyond, name| {
            let op = PositionSum { positions, beyond };
            Sample::new(op, name, vec![TensorType::state(5)])
        };
        vec![
            of(5, false, "longer table"),
            of(2, true, "shorter table").bindings(3, 5),
        ]
    }
}
