//! Products of row × column views: linear maps, their input and their weight gradients.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::bf16::round;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor, add_scaled, dot};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::{Dim, Quantized};

/// Which operand is read transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `[.., K] · [N, K]ᵀ → [.., N]`: a linear map with weight [out, in].
    Nt,
    /// `[.., K] · [K, N] → [.., N]`.
    Nn,
    /// `[R.., M]ᵀ · [R.., N] → [M, N]`: summed over all rows.
    Tn,
}

impl Layout {
    const fn name(self) -> &'static str {
        match self {
            Layout::Nt => "nt",
            Layout::Nn => "nn",
            Layout::Tn => "tn",
        }
    }
}

/// With `rounded`, every factor is rounded to bf16 first: the products are exact in f32, sums are reals as ever. With `weights`, the second factor is
/// what integers stand for, in groups along the inner length ([`odec_program::quantized`]), and only the first may be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul {
    pub layout: Layout,
    pub rounded: bool,
    pub weights: Option<Quantized>,
}

impl MatMul {
    /// The product of the operands as they are.
    pub const fn new(layout: Layout) -> MatMul {
        MatMul {
            layout,
            rounded: false,
            weights: None,
        }
    }
}

impl Op for MatMul {
    const NAME: &'static str = "matmul";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![("layout", self.layout.name().into())];
        if self.rounded {
            attrs.push(("factors", "bf16".into()));
        }
        if let Some(q) = self.weights {
            attrs.push(("bits", q.bits.to_string()));
            attrs.push(("group", q.group.to_string()));
        }
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let layouts = [Layout::Nt, Layout::Nn, Layout::Tn].map(|l| (l.name(), l));
        let layout = given.choice("layout", &layouts)?;
        let rounded = match given.optional::<String>("factors")?.as_deref() {
            None => false,
            Some("bf16") => true,
            Some(other) => {
                return given.refuse("factors", format!("`factors` is `bf16`, not `{other}`"));
            }
        };
        let weights = match given.optional("bits")? {
            None => None,
            Some(bits) => Some(Quantized {
                bits,
                group: given.need("group")?,
            }),
        };
        if let Some(Err(why)) = weights.map(Quantized::validate) {
            return given.refuse("bits", why);
        }
        Ok(MatMul {
            layout,
            rounded,
            weights,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = reals(Self::NAME, ins)?;
        if a.rank() < 2 || b.rank() < 2 {
            return fail(
                Self::NAME,
                format!("{a} · {b}: both must have rows and columns"),
            );
        }
        let fixed_rows = |t: &TensorType| match t.shape[..] {
            [Dim::Fixed(n), _] => Some(n),
            _ => None,
        };
        if self.weights.is_some() && self.layout == Layout::Tn {
            return fail(Self::NAME, "sums over rows are not those of weights");
        }
        match self.layout {
            Layout::Nt if fixed_rows(b).is_some() && a.cols() == b.cols() => {
                Ok(vec![a.with_cols(fixed_rows(b).expect("just checked"))])
            }
            Layout::Nn if fixed_rows(b) == Some(a.cols()) => Ok(vec![a.with_cols(b.cols())]),
            Layout::Tn if a.shape[..a.rank() - 1] == b.shape[..b.rank() - 1] => Ok(vec![
                TensorType::real([Dim::Fixed(a.cols()), Dim::Fixed(b.cols())]),
            ]),
            l => fail(Self::NAME, format!("{a} and {b} do not fit layout {l:?}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let factor = |x: &Tensor, rounded: bool| {
            let mut x = x.clone();
            if rounded {
                x.data.iter_mut().for_each(|x| *x = round(*x));
            }
            x
        };
        let a = factor(ins[0], self.rounded);
        let mut b = factor(ins[1], self.rounded && self.weights.is_none());
        if let Some(q) = self.weights {
            quantize(&mut b, q, self.layout);
        }
        let (k, n) = (
            a.cols(),
            if self.layout == Layout::Nt {
                b.rows()
            } else {
                b.cols()
            },
        );
        let shape = match (self.layout, &a.shape[..]) {
            (Layout::Nt | Layout::Nn, [rows @ .., _]) => [rows, &[n as u64]].concat(),
            _ => vec![k as u64, n as u64],
        };
        let mut c = Tensor::zeros(shape);
        match self.layout {
            Layout::Nt => {
                for (c, a) in c.data.chunks_exact_mut(n).zip(a.data.chunks_exact(k)) {
                    c.iter_mut()
                        .zip(b.data.chunks_exact(k))
                        .for_each(|(c, b)| *c = dot(a, b));
                }
            }
            Layout::Nn => {
                for (c, a) in c.data.chunks_exact_mut(n).zip(a.data.chunks_exact(k)) {
                    a.iter()
                        .zip(b.data.chunks_exact(n))
                        .for_each(|(a, b)| add_scaled(c, *a, b));
                }
            }
            Layout::Tn => {
                for (a, b) in a.data.chunks_exact(k).zip(b.data.chunks_exact(n)) {
                    c.data
                        .chunks_exact_mut(n)
                        .zip(a)
                        .for_each(|(c, a)| add_scaled(c, *a, b));
                }
            }
        }
        Ok(vec![c])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        if self.rounded || self.weights.is_some() {
            return Vjp::NotDifferentiable("precision is chosen after derivatives are taken");
        }
        let (a, b, d) = (cx.ins[0], cx.ins[1], cx.d());
        let mut mm = |layout, x, y| {
            Some(
                cx.b.push1(MatMul::new(layout), &[x, y])
                    .expect("derivative shapes follow"),
            )
        };
        Vjp::Rule(match self.layout {
            Layout::Nt => vec![mm(Layout::Nn, d, b), mm(Layout::Tn, d, a)],
            Layout::Nn => vec![mm(Layout::Nt, d, b), mm(Layout::Tn, a, d)],
            Layout::Tn => vec![mm(Layout::Nt, b, d), mm(Layout::Nn, a, d)],
        })
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Contract {
            a_transposed: self.layout == Layout::Tn,
            b_transposed: self.layout == Layout::Nt,
            rounded: self.rounded,
            weights: self.weights,
        }
    }

    fn samples() -> Vec<Sample> {
        let matrix = |m, n| TensorType::real([Dim::Fixed(m), Dim::Fixed(n)]);
        let of = |op: MatMul, name, b| {
            let ins = vec![TensorType::state(5), b];
            Sample::new(op, name, ins).tolerance(1e-5)
        };
        let sample = |layout, rounded, name, b| {
            let plain = MatMul::new(layout);
            of(MatMul { rounded, ..plain }, name, b)
        };
        let quantized = |layout, bits, name, b| {
            let op = MatMul {
                rounded: bits == 4,
                weights: Some(Quantized { bits, group: 4 }),
                ..MatMul::new(layout)
            };
            of(op, name, b)
        };
        vec![
            sample(Layout::Nt, false, "linear", matrix(7, 5)),
            sample(Layout::Nn, false, "input_gradient", matrix(5, 7)),
            sample(Layout::Tn, false, "weight_gradient", TensorType::state(7)),
            sample(Layout::Nt, true, "linear_bf16", matrix(7, 5)),
            sample(Layout::Nn, true, "input_gradient_bf16", matrix(5, 7)),
            sample(
                Layout::Tn,
                true,
                "weight_gradient_bf16",
                TensorType::state(7),
            ),
            quantized(Layout::Nt, 8, "linear_int8", matrix(7, 5)),
            quantized(Layout::Nn, 4, "linear_int4", matrix(5, 7)),
        ]
    }
}

/// Weights as integers hold them, in groups along k: of each row where they are [N, K], of each column where they are [K, N].
fn quantize(b: &mut Tensor, q: Quantized, layout: Layout) {
    let (rows, cols) = (b.rows(), b.cols());
    let (lines, length, next, step) = match layout {
        Layout::Nt => (rows, cols, cols, 1),
        Layout::Nn | Layout::Tn => (cols, rows, 1, cols),
    };
    for (line, first) in (0..lines).flat_map(|l| (0..length).map(move |k| (l, k))) {
        if first % q.group as usize != 0 {
            continue;
        }
        let ks = first..length.min(first + q.group as usize);
        let at = |k: usize| line * next + k * step;
        let group: Vec<f32> = ks.clone().map(|k| b.data[at(k)] as f32).collect();
        for (k, x) in ks.zip(q.rounded(&group)) {
            b.data[at(k)] = x.into();
        }
    }
}
