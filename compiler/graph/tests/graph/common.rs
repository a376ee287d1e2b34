//! What the tests of this crate share: random tensors, derivatives by differences, row rules evaluated.

use odec_graph::interp::Tensor;
use odec_graph::op::{Kind, Read, Scalars};
use odec_graph::types::Fit;
use odec_graph::{Elem, InferTypes, OpKind, TensorType};
use odec_program::expr::{Access, BinaryOp, Body, CmpOp, ColMap, Expr, ReduceOp, RowMap, UnaryOp};
use odec_program::{Bindings, Coeff, Dim, bf16, noise};

/// A small generator (SplitMix64), so that tests need no seed file.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// In [low, high).
    pub fn real(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Reals in a range, indices below a bound.
    pub fn tensor(
        &mut self,
        ty: &TensorType,
        b: Bindings,
        range: (f64, f64),
        indices: u64,
    ) -> Tensor {
        let shape = ty.concrete(b);
        let n = shape.iter().product::<u64>();
        let one = |_| match ty.elem {
            Elem::Real | Elem::Bf16 => self.real(range.0, range.1),
            Elem::Index => (self.bits() % indices) as f64,
        };
        Tensor::new(shape, (0..n).map(one).collect())
    }
}

/// `f'(0)` from four points at several distances: the value on which two neighbouring distances agree best.
/// The error of one is h⁴/30 of the fifth derivative plus rounding over h.
pub fn slope(mut f: impl FnMut(f64) -> f64) -> f64 {
    let mut at = |h: f64| (8.0 * (f(h) - f(-h)) - (f(2.0 * h) - f(-2.0 * h))) / (12.0 * h);
    let slopes = [1e-3, 2e-4, 4e-5, 8e-6].map(&mut at);
    let pairs = slopes.windows(2);
    let best = pairs.min_by(|a, b| (a[0] - a[1]).abs().total_cmp(&(b[0] - b[1]).abs()));
    best.expect("three pairs")[1]
}

pub fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
}

/// The result of an op as its row rule computes it; `None`: the op has no row rule.
pub fn by_rule(
    op: &OpKind,
    types: &[TensorType],
    ins: &[Tensor],
    bindings: Bindings,
) -> Option<Tensor> {
    let Kind::Rows { reads, rule } = op.kind(types) else {
        return None;
    };
    let out = op.infer(types).expect("a sample").remove(0);
    let pointwise = reads.iter().zip(types);
    let pointwise = pointwise.filter(|(read, _)| **read == Read::Pointwise);
    let widest = pointwise
        .map(|(_, ty)| ty)
        .chain([&out])
        .max_by_key(|t| (t.rank(), t.cols()));
    let full = widest.expect("there is a result");
    let (mut body, mut coeffs, mut xs) = (Body::default(), Vec::new(), Vec::new());
    for (i, (read, ty)) in reads.iter().zip(types).enumerate() {
        let accesses = match read {
            Read::Pointwise => vec![ty.fit(full).expect("broadcasts").access(full.cols())],
            Read::Through(accesses) => accesses.clone(),
        };
        xs.extend(accesses.into_iter().map(|a| body.load(i as u32, a)));
    }
    let mut scalars = Scalars {
        body: &mut body,
        coeffs: &mut coeffs,
    };
    let result = rule(&mut scalars, &xs);
    let coeffs: Vec<f64> = coeffs
        .iter()
        .map(|c| match c {
            Coeff::Value(x) => *x,
            other => panic!("no row rule of an op has {other:?}"),
        })
        .collect();
    let shape = out.concrete(bindings);
    let cols = full.cols() as usize;
    let rows = full.rows().at(bindings).expect("small") as usize;
    // Of a grid, its tokens.
    let seq = if out.is_state() {
        out.tokens()
    } else {
        Dim::Seq
    };
    let seq = seq.at(bindings) as usize;
    let mut data = Vec::new();
    for r in 0..rows {
        let row = row_of(&body, ins, &coeffs, r, cols, seq);
        let row = &row[result.0 as usize];
        match out
            .fit(full)
            .expect("the result is as wide as the domain or per row")
        {
            Fit::PerRow => data.push(row[0]),
            _ => data.extend_from_slice(row),
        }
    }
    Some(Tensor::new(shape, data))
}

/// Every node of a body at every column of row `r`.
fn row_of(
    body: &Body,
    ins: &[Tensor],
    coeffs: &[f64],
    r: usize,
    cols: usize,
    seq: usize,
) -> Vec<Vec<f64>> {
    let mut values: Vec<Vec<f64>> = Vec::new();
    for e in &body.nodes {
        let value = match *e {
            Expr::Reduce(op, a) => {
                let all = values[a.0 as usize].iter().copied();
                let x = match op {
                    ReduceOp::Sum => all.sum(),
                    ReduceOp::Max => all.fold(f64::NEG_INFINITY, f64::max),
                };
                vec![x; cols]
            }
            _ => (0..cols)
                .map(|c| element(e, &values, ins, coeffs, (r, c), seq))
                .collect(),
        };
        values.push(value);
    }
    values
}

fn element(
    e: &Expr,
    values: &[Vec<f64>],
    ins: &[Tensor],
    coeffs: &[f64],
    (r, c): (usize, usize),
    seq: usize,
) -> f64 {
    let at = |id: odec_program::ExprId| values[id.0 as usize][c];
    match *e {
        Expr::Const(x) => x,
        Expr::Uniform(n) => coeffs[n as usize],
        Expr::Load { operand, access } => {
            address(access, r, c, seq).map_or(0.0, |i| ins[operand as usize].data[i])
        }
        Expr::RowIndex => r as f64,
        Expr::ColIndex => c as f64,
        Expr::Random(args) => noise::uniform(args.map(|a| at(a) as u32)),
        Expr::Unary(op, a) => match op {
            UnaryOp::Neg => -at(a),
            UnaryOp::Sqrt => at(a).sqrt(),
            UnaryOp::Exp => at(a).exp(),
            UnaryOp::Log => at(a).ln(),
            UnaryOp::Erf => libm::erf(at(a)),
            UnaryOp::Bf16 => bf16::to_f32(bf16::of_f64(at(a))).into(),
            UnaryOp::Round => at(a).round_ties_even(),
            other => panic!("no op uses {other:?}"),
        },
        Expr::Binary(op, a, b) => match op {
            BinaryOp::Add => at(a) + at(b),
            BinaryOp::Sub => at(a) - at(b),
            BinaryOp::Mul => at(a) * at(b),
            BinaryOp::Div => at(a) / at(b),
            BinaryOp::Max if at(a) > at(b) => at(a),
            BinaryOp::Max => at(b),
            other => panic!("no op uses {other:?}"),
        },
        Expr::Fma(a, b, d) => at(a).mul_add(at(b), at(d)),
        Expr::Select { cmp, a, b, t, f } => {
            let chosen = match cmp {
                CmpOp::Eq => at(a) == at(b),
                CmpOp::Lt => at(a) < at(b),
            };
            if chosen { at(t) } else { at(f) }
        }
        Expr::Acc | Expr::Reduce(..) => panic!("not an element of a row rule"),
    }
}

/// Where an element is read; `None`: it is zero.
fn address(a: Access, r: usize, c: usize, seq: usize) -> Option<usize> {
    let row = match a.row {
        RowMap::Row => r,
        RowMap::Zero => 0,
        RowMap::Position => r % seq,
        RowMap::Sequence => r / seq,
        RowMap::Shift(by) => {
            let there = (r % seq) as i64 - i64::from(by);
            let inside = (0..seq as i64).contains(&there);
            inside.then(|| r / seq * seq + there as usize)?
        }
        RowMap::Window(window, through) => window.apply(through, r as u64)? as usize,
    };
    let col = match a.col {
        ColMap::Col => c,
        ColMap::Zero => 0,
        ColMap::Turn { cols, by } => (c + by as usize) % cols as usize,
        ColMap::HalfSwap(n) => {
            let (n, half) = (n as usize, n as usize / 2);
            c / n * n + (c % n + half) % n
        }
        ColMap::Transposed { rows, cols } => {
            let (rows, cols) = (rows as usize, cols as usize);
            c % rows * cols + c / rows
        }
    };
    Some(row * a.stride as usize + col)
}
