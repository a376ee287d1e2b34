//! Products of rows with the matrices of their experts: what a mixture of experts computes, and nothing of the others.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::bf16::round;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals, spread_parts};
use crate::ops::{Builder, Combine, GroupedOuter, Reshape, Slice};
use crate::tensor::{EvalCx, Tensor, add_scaled, dot};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use crate::value::Value;
use odec_program::Dim;
use odec_program::kernel::Groups;

/// `x[.., K]` or `x[.., k·K]`, `experts[.., k]`, `W[E, N, K] → [.., k·N]`: each token meets k matrices. The k parts of a row of x meet
/// one each; a row that has one part only meets all of them. `transposed`: `x[.., k·N] → [.., k·K]`. One expert may be `W[N, K]`.
///
/// An expert is named by a number that need not be whole: by how many of `1, 2, … E − 1` are not above it. `partial`: a number that is not 0
/// or more names none, and what it makes of its row is zero. `most`: of the parts of a sequence's rows, no more name an expert than so many. Costs
/// follow from it, results do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupedMatMul {
    pub transposed: bool,
    pub partial: bool,
    pub most: Option<u64>,
    /// Whether factors are rounded to bf16 first, as those of a [`MatMul`](crate::ops::MatMul).
    pub rounded: bool,
}

/// The factors of products, rounded or as they are.
pub(super) fn factor(x: &Tensor, rounded: bool) -> Tensor {
    let mut x = x.clone();
    if rounded {
        x.data.iter_mut().for_each(|x| *x = round(*x));
    }
    x
}

pub(super) fn written_factors(rounded: bool) -> Option<(&'static str, String)> {
    rounded.then(|| ("factors", "bf16".into()))
}

pub(super) fn written_most(most: Option<u64>) -> Option<(&'static str, String)> {
    most.map(|n| ("most", n.to_string()))
}

pub(super) fn read_factors(given: &mut Attrs) -> Result<bool, ParseError> {
    match given.optional::<String>("factors")?.as_deref() {
        None => Ok(false),
        Some("bf16") => Ok(true),
        Some(other) => given.refuse("factors", format!("`factors` is `bf16`, not `{other}`")),
    }
}

/// The group of so many that a number names.
pub(super) fn named(groups: u64, partial: bool, number: f64) -> Option<usize> {
    let of = Groups {
        groups,
        copies: 1,
        n: 1,
        k: 1,
        partial,
    };
    of.of(number).map(|group| group as usize)
}

/// Extents of matrices of fixed size; of one, which is the only group.
pub(super) fn matrices(op: &'static str, t: &TensorType) -> Result<[u64; 3], TypeError> {
    match t.shape[..] {
        [Dim::Fixed(e), Dim::Fixed(n), Dim::Fixed(k)] => Ok([e, n, k]),
        [Dim::Fixed(n), Dim::Fixed(k)] => Ok([1, n, k]),
        _ => fail(op, format!("{t} is no list of matrices")),
    }
}

/// How many experts each token has, where `rows` have the same rows.
pub(super) fn choices(
    op: &'static str,
    experts: &TensorType,
    rows: &TensorType,
) -> Result<u64, TypeError> {
    match experts.rank() > 1 && experts.per_row() == rows.per_row() {
        true => Ok(experts.cols()),
        false => fail(op, format!("{rows} needs numbers per row, not {experts}")),
    }
}

/// The sum of the `parts` parts of each row.
pub(super) fn sum_parts(b: &mut Builder, x: Value, parts: u64) -> Value {
    if parts == 1 {
        return x;
    }
    let cols = b.ty(x).cols() / parts;
    let part = |n: u64, b: &mut Builder| {
        let from = n * cols;
        b.push1(Slice { from, cols }, &[x]).expect("inside")
    };
    let each: Vec<Value> = (0..parts).map(|n| part(n, b)).collect();
    let coeffs = vec![crate::Exact::one(); each.len()];
    b.push1(Combine::of(coeffs), &each).expect("one type")
}

impl GroupedMatMul {
    /// How the operands meet, and the experts of each token.
    fn groups(&self, ins: &[TensorType]) -> Result<(Groups, u64), TypeError> {
        let [x, experts, w] = reals(Self::NAME, ins)?;
        let [groups, rows, cols] = matrices(Self::NAME, w)?;
        let of = choices(Self::NAME, experts, x)?;
        let (n, k) = match self.transposed {
            false => (rows, cols),
            true => (cols, rows),
        };
        let copies = match x.cols() {
            own if k.checked_mul(of) == Some(own) => 1,
            one if one == k && !self.transposed => of,
            _ => {
                let what = format!("{x} is no row for {of} of the matrices {w}");
                return fail(Self::NAME, what);
            }
        };
        let groups = Groups {
            groups,
            copies,
            n,
            k,
            partial: self.partial,
        };
        Ok((groups, of))
    }
}

impl Op for GroupedMatMul {
    const NAME: &'static str = "grouped_matmul";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let transposed = ("transposed", self.transposed.to_string());
        let own = [transposed, ("partial", self.partial.to_string())];
        let last = written_most(self.most).into_iter().chain(written_factors(self.rounded));
        own.into_iter().chain(last).collect()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(GroupedMatMul {
            transposed: given.need("transposed")?,
            partial: given.need("partial")?,
            most: given.optional("most")?,
            rounded: read_factors(given)?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (groups, of) = self.groups(ins)?;
        match groups.n.checked_mul(of) {
            Some(cols) => Ok(vec![ins[0].with_cols(cols)]),
            None => fail(Self::NAME, "too many columns"),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (experts, w) = (ins[1], factor(ins[2], self.rounded));
        let groups = if w.shape.len() > 2 { w.shape[0] } else { 1 };
        let (rows, cols) = (w.rows() / groups as usize, w.cols());
        let (n, k) = match self.transposed {
            false => (rows, cols),
            true => (cols, rows),
        };
        let x = factor(ins[0], self.rounded);
        let x = spread_parts(&x, k, experts.cols());
        let mut data = Vec::with_capacity(experts.data.len() * n);
        for (x, number) in x.chunks_exact(k).zip(&experts.data) {
            let Some(group) = named(groups, self.partial, *number) else {
                data.resize(data.len() + n, 0.0);
                continue;
            };
            let w = &w.data[group * n * k..][..n * k];
            match self.transposed {
                false => data.extend(w.chunks_exact(k).map(|w| dot(x, w))),
                true => {
                    let mut sums = vec![0.0; n];
                    for (x, w) in x.iter().zip(w.chunks_exact(n)) {
                        add_scaled(&mut sums, *x, w);
                    }
                    data.extend(sums);
                }
            }
        }
        let mut shape = experts.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last *= n as u64;
        }
        Ok(vec![Tensor::new(shape, data)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        if self.rounded {
            return Vjp::NotDifferentiable("precision is chosen after derivatives are taken");
        }
        let (x, experts, w, d) = (cx.ins[0], cx.ins[1], cx.ins[2], cx.d());
        let types: Vec<TensorType> = (0..3).map(|i| cx.in_type(i)).collect();
        let (of, _) = self.groups(&types).expect("inferred");
        let (partial, most) = (self.partial, self.most);
        let back = GroupedMatMul {
            transposed: !self.transposed,
            partial,
            most,
            rounded: false,
        };
        let back =
            cx.b.push1(back, &[d, experts, w])
                .expect("the same matrices");
        let d_x = sum_parts(cx.b, back, of.copies);
        let [groups, _, cols] = matrices(Self::NAME, &types[2]).expect("inferred");
        let factors = match self.transposed {
            false => [experts, d, x],
            true => [experts, x, d],
        };
        let outer = GroupedOuter {
            groups,
            cols,
            partial,
            most,
            rounded: false,
        };
        let d_w = cx.b.push1(outer, &factors).expect("the same rows");
        let d_w = match types[2].rank() {
            2 => {
                let to = types[2].shape.clone();
                cx.b.push1(Reshape::of(to), &[d_w]).expect("one matrix")
            }
            _ => d_w,
        };
        Vjp::Rule(vec![Some(d_x), None, Some(d_w)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let ins: Vec<TensorType> = ins.iter().map(TensorType::widened).collect();
        let (of, _) = self.groups(&ins).expect("inferred");
        Kind::Grouped {
            of,
            transposed: self.transposed,
            rounded: self.rounded,
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, transposed, rounded, cols, experts| {
            let w = TensorType::real([4, 7, 5].map(Dim::Fixed));
            let ins = vec![TensorType::state(cols), TensorType::state(experts), w];
            let op = GroupedMatMul {
                transposed,
                partial: false,
                most: None,
                rounded,
            };
            Sample::new(op, name, ins).range(0.0, 4.0).tolerance(1e-5)
        };
        let some = |transposed, cols| {
            let w = TensorType::real([7, 5].map(Dim::Fixed));
            let ins = vec![TensorType::state(cols), TensorType::state(1), w];
            let op = GroupedMatMul {
                transposed,
                partial: true,
                most: transposed.then_some(4),
                rounded: false,
            };
            let name = ["some rows", "some rows' gradients"][usize::from(transposed)];
            Sample::new(op, name, ins).range(-2.0, 2.0).tolerance(1e-5)
        };
        vec![
            sample("one of four", false, false, 5, 1),
            sample("two of a row", false, false, 5, 2),
            sample("two of parts", false, false, 10, 2),
            sample("input_gradient", true, false, 14, 2),
            sample("rounded", false, true, 5, 2),
            some(false, 5),
            some(true, 7),
        ]
    }
}
