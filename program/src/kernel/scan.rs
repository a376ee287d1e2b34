//! Recurrences of first order along tokens, and their derivative: specification, signature and meaning.

use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::{Indices, Kind, Launch, Sample, validate};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `h[t] = a[t] · h[t−1] + b[t]`, in each column of each sequence by itself, tokens in order, each step rounded once (a fused
/// multiply-add). Without factors, `h[t] = h[t−1] + b[t]`.
///
/// a, b, h, d and their derivatives are rows of `cols` columns, one for each token of each sequence. A sequence has `chunks` chunks of
/// ⌈seq / chunks⌉ tokens each, the last ones shorter or empty ([`chunk`]), which do not wait for each other: what earlier chunks leave is
/// joined from their ends and products, `[batch, chunks, cols]`, which other launches have made: from zero, chunk by chunk,
/// `x ← product · x + end`, rounded once. tiles: blocks of [`Scan::TILE`] columns of a chunk of a sequence, so a launch's parallelism is that of
/// sequences, chunks and columns.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Scan {
    pub dtype: DType,
    pub cols: u64,
    /// Whether there is an a.
    pub factors: bool,
    pub form: ScanForm,
    /// 1: each sequence is one recurrence.
    pub chunks: u64,
}

/// Where a recurrence begins, and which way it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanForm {
    /// From zero. Operands a, b, h, those of several chunks before h; dims `[batch, seq]`.
    Whole,
    /// From the row that the last run left for each sequence, or from zero where `past` is 0; the last h takes its place. Operands a, b,
    /// h, carry; dims `[batch, seq, past]`.
    Carried,
    /// The derivative, last tokens first: `g[t] = a[t+1] · g[t+1] + d[t]` from zero behind the last one is that with respect to b;
    /// `g[t] · h[t−1]` that with respect to a, 0 for the first token. Operands a, h, d, d_a, d_b, without factors d, d_b, those of several
    /// chunks before the results; dims `[batch, seq]`. A chunk begins with the factor 1 and what is behind it, which its own factor has multiplied.
    Backward,
    /// The last h of each chunk, from zero: what it adds to what came before. Operands a, b, ends; dims `[batch, seq]`.
    Ends,
    /// The same of the derivative: `a[t] · g[t]` of the chunk's first token, from zero behind its last. Operands a, d, ends.
    EndsBackward,
    /// The product of each chunk's factors, tokens in order, from 1: what is left of what came before. Operands a, products.
    Products,
}

/// The tokens of chunk `number` of `chunks`.
pub fn chunk(seq: u64, chunks: u64, number: u64) -> Range<u64> {
    let each = seq.div_ceil(chunks);
    (number * each).min(seq)..((number + 1) * each).min(seq)
}

/// What is read of rows that chunks have left, `each` elements for a chunk: the last one in the walk leaves nothing to others.
pub(super) fn left(chunks: u64, each: u64, reversed: bool) -> Count {
    match reversed {
        false => Count::Earlier {
            dims: &[0],
            of: chunks,
            each,
        },
        true => Count::rows(&[0], chunks * each),
    }
}

impl Scan {
    pub const TILE: u64 = 64;

    /// Blocks of columns of a sequence.
    pub fn blocks(&self) -> u64 {
        self.cols.div_ceil(Scan::TILE)
    }

    /// Products for each token: one for each step, and for the derivative with respect to a.
    pub fn products(&self) -> u64 {
        match (self.factors, self.form) {
            (false, _) => 0,
            (true, ScanForm::Backward) => 2 * self.cols,
            (true, _) => self.cols,
        }
    }

    /// Whether last tokens come first.
    pub fn reversed(&self) -> bool {
        matches!(self.form, ScanForm::Backward | ScanForm::EndsBackward)
    }

    /// Whether chunks begin with what others have left.
    fn joins(&self) -> bool {
        self.chunks > 1 && matches!(self.form, ScanForm::Whole | ScanForm::Backward)
    }

    /// The numbers of its operands.
    pub fn places(&self) -> Places {
        let mut count = 0;
        let mut next = |there: bool| {
            let number = count;
            count += u64::from(there);
            there.then_some(number)
        };
        let derives = self.factors && self.form == ScanForm::Backward;
        Places {
            a: next(self.factors),
            h: next(derives),
            given: next(self.form != ScanForm::Products),
            products: next(self.joins() && self.factors),
            ends: next(self.joins()),
            d_a: next(derives),
            out: next(true).unwrap_or(0),
            carry: next(self.form == ScanForm::Carried),
        }
    }
}

/// Numbers of operands.
pub struct Places {
    pub a: Option<u64>,
    /// Those of the tokens before, which the derivative with respect to a reads.
    pub h: Option<u64>,
    /// b, or d.
    pub given: Option<u64>,
    pub products: Option<u64>,
    pub ends: Option<u64>,
    pub d_a: Option<u64>,
    /// h, d_b, ends or products.
    pub out: u64,
    pub carry: Option<u64>,
}

pub(super) struct ScanKind;

impl Kind for ScanKind {
    type Spec = Scan;
    const NAME: &'static str = "scan";

    fn dtype(k: &Scan) -> DType {
        k.dtype
    }

    fn validate(k: &Scan) -> Result<(), String> {
        validate::sums(k.dtype)?;
        validate::chunks(k.chunks)?;
        match k.form {
            ScanForm::Carried if k.chunks > 1 => Err("what is carried on has no chunks".into()),
            ScanForm::Products if !k.factors => Err("products of no factors".into()),
            _ => validate::length("columns", k.cols),
        }
    }

    fn signature(k: &Scan) -> Signature {
        let places = k.places();
        let operand = |name, mode, extent| OperandAccess::new(name, k.dtype, mode, [extent]);
        let (rows, parts) = (
            Count::rows(&[0, 1], k.cols),
            Count::rows(&[0], k.chunks * k.cols),
        );
        let is_derivative = k.reversed();
        let (given, out, extent) = match k.form {
            ScanForm::Whole | ScanForm::Carried => ("b", "h", rows),
            ScanForm::Backward => ("d", "d_b", rows),
            ScanForm::Ends | ScanForm::EndsBackward => {
                (if is_derivative { "d" } else { "b" }, "ends", parts)
            }
            ScanForm::Products => ("", "products", parts),
        };
        let (dims, each) = (&[0, 1], k.cols);
        let earlier = Count::Earlier { dims, of: 1, each };
        let left = left(k.chunks, k.cols, k.reversed());
        let of =
            |place: Option<u64>, name, mode, extent| place.map(|_| operand(name, mode, extent));
        let operands = [
            of(places.a, "a", Mode::Read, rows),
            of(places.h, "h", Mode::Read, earlier),
            of(places.given, given, Mode::Read, rows),
            of(places.products, "products", Mode::Read, left),
            of(places.ends, "ends", Mode::Read, left),
            of(places.d_a, "d_a", Mode::Write, rows),
            Some(operand(out, Mode::Write, extent)),
            of(
                places.carry,
                "carry",
                Mode::Accumulate,
                Count::rows(&[0], k.cols),
            ),
        ];
        let mut dims = vec![Dimension::any("batch"), Dimension::any("seq")];
        dims.extend(places.carry.map(|_| Dimension::any("past")));
        let once = match k.joins() {
            true => k.chunks * (k.chunks - 1) / 2 * k.cols,
            false => 0,
        };
        let work = |each| Count::Sequences { each, once };
        Signature {
            dtype: k.dtype,
            operands: operands.into_iter().flatten().collect(),
            dims,
            coeffs: 0,
            scratch: vec![],
            work: match k.factors {
                true => Work::recurrences(work(k.products())),
                false => Work::others(work(k.cols)),
            },
        }
    }

    fn tiles(k: &Scan, dims: &[u64]) -> u64 {
        dims[0] * k.chunks * k.blocks()
    }

    fn headline(k: &Scan) -> String {
        let what = match (k.factors, k.form) {
            (_, ScanForm::Products) => "products of factors",
            (true, _) => "recurrence",
            (false, _) => "running sums",
        };
        let form = match k.form {
            ScanForm::Whole | ScanForm::Products => "",
            ScanForm::Carried => ", carried on",
            ScanForm::Backward => ", backward",
            ScanForm::Ends => ", ends",
            ScanForm::EndsBackward => ", ends, backward",
        };
        let chunks = match k.chunks {
            1 => String::new(),
            n => format!(" in {n} chunks"),
        };
        format!("{what} of {} columns{chunks}{form}", k.cols)
    }

    fn run<T: Real>(k: &Scan, m: &mut (impl Memory<T> + Indices), at: Launch) {
        for sequence in 0..at.dims[0] {
            for number in 0..k.chunks {
                for column in 0..k.cols {
                    let lane = Lane {
                        kernel: k,
                        sequence,
                        tokens: chunk(at.dims[1], k.chunks, number),
                        number,
                        column,
                    };
                    lane.run::<T>(m, at.dims);
                }
            }
        }
    }

    fn samples() -> Vec<Sample<Scan>> {
        let mut all = vec![];
        let forms = [
            (ScanForm::Whole, 1),
            (ScanForm::Carried, 1),
            (ScanForm::Backward, 1),
            (ScanForm::Whole, 3),
            (ScanForm::Backward, 3),
            (ScanForm::Ends, 3),
            (ScanForm::EndsBackward, 3),
            (ScanForm::Products, 3),
        ];
        for (form, chunks) in forms {
            for (factors, dtype, cols) in [
                (true, DType::F32, 70),
                (false, DType::F32, 3),
                (true, DType::F64, 64),
            ] {
                let spec = Scan {
                    dtype,
                    cols,
                    factors: factors || form == ScanForm::Products,
                    form,
                    chunks,
                };
                let dims: &[u64] = match form {
                    ScanForm::Carried => &[2, 5, 4],
                    _ => &[2, 5],
                };
                all.push(Sample::new(spec, dims, &[]));
            }
        }
        all
    }
}

/// `factor · state + more`, rounded once.
fn step<T: Real>(factor: Option<T>, state: T, more: T) -> T {
    match factor {
        Some(factor) => T::fma(factor, state, more),
        None => T::binary(BinaryOp::Add, state, more),
    }
}

/// The last h of a column of a sequence, after all are written.
/// A column of a chunk of a sequence.
struct Lane<'a> {
    kernel: &'a Scan,
    sequence: u64,
    /// Which chunk it is, and its tokens.
    number: u64,
    tokens: Range<u64>,
    column: u64,
}

impl Lane<'_> {
    fn run<T: Real>(&self, m: &mut impl Memory<T>, dims: &[u64]) {
        let (k, places) = (self.kernel, self.kernel.places());
        let at = |t: u64| (self.sequence * dims[1] + t) * k.cols + self.column;
        let part = (self.sequence * k.chunks + self.number) * k.cols + self.column;
        match k.form {
            ScanForm::Whole | ScanForm::Carried => {
                let last = self.sequence * k.cols + self.column;
                let mut h = match places.carry {
                    Some(carry) if dims[2] > 0 => m.load(carry as u32, last),
                    _ => self.joined(m, &places),
                };
                for t in self.tokens.clone() {
                    h = self.step(m, h, at(t));
                    m.store(places.out as u32, at(t), h);
                }
                if let Some(carry) = places.carry {
                    m.store(carry as u32, last, h);
                }
            }
            ScanForm::Ends => {
                let h = self
                    .tokens
                    .clone()
                    .fold(T::ZERO, |h, t| self.step(m, h, at(t)));
                m.store(places.out as u32, part, h);
            }
            ScanForm::Products => {
                let factor = |t: u64| m.load(0, at(t));
                let all = self.tokens.clone().map(factor);
                let product = all.fold(T::of(1.0), |p, a| T::binary(BinaryOp::Mul, p, a));
                m.store(places.out as u32, part, product);
            }
            ScanForm::Backward => {
                let mut behind = if k.chunks > 1 { T::of(1.0) } else { T::ZERO };
                let mut g = self.joined(m, &places);
                for t in self.tokens.clone().rev() {
                    let d = m.load(places.given.unwrap_or(0) as u32, at(t));
                    g = step(places.a.map(|_| behind), g, d);
                    m.store(places.out as u32, at(t), g);
                    if let (Some(a), Some(h), Some(d_a)) = (places.a, places.h, places.d_a) {
                        let slope = match t {
                            0 => T::ZERO,
                            _ => T::binary(BinaryOp::Mul, g, m.load(h as u32, at(t - 1))),
                        };
                        m.store(d_a as u32, at(t), slope);
                        behind = m.load(a as u32, at(t));
                    }
                }
            }
            ScanForm::EndsBackward => {
                let mut x = T::ZERO;
                for t in self.tokens.clone().rev() {
                    let d = m.load(places.given.unwrap_or(0) as u32, at(t));
                    x = T::binary(BinaryOp::Add, x, d);
                    if let Some(a) = places.a {
                        x = T::binary(BinaryOp::Mul, m.load(a as u32, at(t)), x);
                    }
                }
                m.store(places.out as u32, part, x);
            }
        }
    }

    /// The next state of a recurrence forwards.
    fn step<T: Real>(&self, m: &impl Memory<T>, h: T, at: u64) -> T {
        let places = self.kernel.places();
        let [a, b] = [places.a, places.given].map(|n| n.map(|n| m.load(n as u32, at)));
        step(a, h, b.unwrap_or(T::ZERO))
    }

    /// What the chunks before this one leave.
    fn joined<T: Real>(&self, m: &impl Memory<T>, places: &Places) -> T {
        let Some(ends) = places.ends else {
            return T::ZERO;
        };
        let k = self.kernel;
        let others: Vec<u64> = match k.reversed() {
            false => (0..self.number).collect(),
            true => (self.number + 1..k.chunks).rev().collect(),
        };
        others.into_iter().fold(T::ZERO, |x, number| {
            let at = (self.sequence * k.chunks + number) * k.cols + self.column;
            let product = places.products.map(|n| m.load(n as u32, at));
            step(product, x, m.load(ends as u32, at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values(Vec<Vec<f64>>);

    impl Memory<f64> for Values {
        fn load(&self, operand: u32, index: u64) -> f64 {
            self.0[operand as usize][index as usize]
        }
        fn store(&mut self, operand: u32, index: u64, value: f64) {
            self.0[operand as usize][index as usize] = value;
        }
    }

    impl Indices for Values {
        fn index(&self, _: u32, _: u64) -> u64 {
            0
        }
    }

    fn run(form: ScanForm, factors: bool, operands: &[&[f64]], dims: &[u64]) -> Vec<Vec<f64>> {
        let spec = Scan {
            dtype: DType::F64,
            cols: 1,
            factors,
            form,
            chunks: 1,
        };
        let mut memory = Values(operands.iter().map(|o| o.to_vec()).collect());
        let launch = Launch {
            dims,
            coeffs: &[],
            threads: 1,
        };
        ScanKind::run::<f64>(&spec, &mut memory, launch);
        memory.0
    }

    #[test]
    fn a_recurrence_goes_on_where_it_was_left_unless_it_is_the_first_run() {
        let (a, b) = ([9.0, 0.5, 2.0], [1.0, 3.0, -1.0]);
        let whole = run(ScanForm::Whole, true, &[&a, &b, &[0.0; 3]], &[1, 3]);
        assert_eq!(whole[2], [1.0, 3.5, 6.0]);
        let first = run(
            ScanForm::Carried,
            true,
            &[&a[..2], &b[..2], &[0.0; 2], &[f64::NAN]],
            &[1, 2, 0],
        );
        assert_eq!(
            (&first[2][..], &first[3][..]),
            (&[1.0, 3.5][..], &[3.5][..])
        );
        let then = run(
            ScanForm::Carried,
            true,
            &[&a[2..], &b[2..], &[0.0], &first[3]],
            &[1, 1, 2],
        );
        assert_eq!((&then[2][..], &then[3][..]), (&[6.0][..], &[6.0][..]));
    }

    #[test]
    fn sequences_are_apart_and_sums_have_no_factor() {
        let x = [1.0, 2.0, 10.0, 20.0];
        let sums = run(ScanForm::Whole, false, &[&x, &[0.0; 4]], &[2, 2]);
        assert_eq!(sums[1], [1.0, 3.0, 10.0, 30.0]);
        let slopes = run(ScanForm::Backward, false, &[&x, &[0.0; 4]], &[2, 2]);
        assert_eq!(slopes[1], [3.0, 2.0, 30.0, 20.0]);
    }

    #[test]
    fn the_derivative_runs_backwards() {
        let (a, h, d) = ([9.0, 0.5, 2.0], [1.0, 3.5, 6.0], [1.0, 1.0, 1.0]);
        let zeros = [0.0; 3];
        let found = run(
            ScanForm::Backward,
            true,
            &[&a, &h, &d, &zeros, &zeros],
            &[1, 3],
        );
        assert_eq!(found[4], [2.5, 3.0, 1.0]);
        assert_eq!(found[3], [0.0, 3.0, 3.5]);
    }
}
