//! Linear attention: a matrix for each head that tokens decay, add to and read ([`LinearAttend`]): signature and meaning.
//!
//! The recurrence is followed token by token, each element by itself: no order of summation is left open, and reading a text in pieces
//! gives the bits of reading it whole.

use super::signature::{Count, Dimension, Mode, OperandAccess, Signature, Work};
use super::validate::{self, MOST_HEAD, MOST_HEADS};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::Memory;
use crate::expr::BinaryOp;
use crate::real::Real;
use serde::{Deserialize, Serialize};

/// Per sequence and head, `S_t = α_t S_{t−1} + k_tᵀ v_t`, `o_t = q_t S_t` (Katharopoulos et al. 2020; with decay α: Yang et al. 2024), S a
/// matrix of `key` × `value` that starts at zero. `reversed`: from the last token on, `S_t = α_{t+1} S_{t+1} + k_tᵀ v_t`.
/// `delta`: o_t is what the matrix before the token, faded, misses of v_t, and takes the place of v_t: `o_t = v_t − q_t α_t S_{t−1}`,
/// `S_t = α_t S_{t−1} + k_tᵀ o_t` (the delta rule of Widrow & Hoff 1960, as in Schlag et al. 2021).
///
/// dims: `[batch, seq]`. Operands q and k `[batch, seq, heads · key]`, v `[batch, seq, heads · value]`, α unless there is none, o like v.
/// `continued`: one operand more, the matrices that the last run left, `[batch, heads · key, value]`, of which those after the last token
/// take the place, and one of dims, `past`; where it is 0, S starts at zero.
/// tiles: `batch · heads · ceil(value / COLS)`, a block of columns of values each, index = (b · heads + h) · blocks + block.
///
/// In each element: the product with α rounded, then a fused multiply-add of k_i v_j; o_j sums `q_i S_ij` over i in order from zero by
/// fused multiply-add. `delta`: that sum is taken before the addition, and the difference of v_j and it rounded.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct LinearAttend {
    pub dtype: DType,
    pub heads: u64,
    /// Columns of a head of queries and keys: rows of S.
    pub key: u64,
    /// Columns of a head of values and results: columns of S.
    pub value: u64,
    pub decay: Decay,
    pub reversed: bool,
    pub continued: bool,
    pub delta: bool,
}

/// What α is a number for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// There is none: α is 1.
    None,
    /// Each head: `[batch, seq, heads]`.
    Head,
    /// Each column of a key, a row of S: `[batch, seq, heads · key]`.
    Key,
    /// Each column of a value: `[batch, seq, heads · value]`.
    Value,
}

impl LinearAttend {
    /// Columns of values of a tile.
    pub const COLS: u64 = 64;

    /// Columns of α, if there is one.
    pub fn decays(&self) -> Option<u64> {
        match self.decay {
            Decay::None => None,
            Decay::Head => Some(self.heads),
            Decay::Key => Some(self.heads * self.key),
            Decay::Value => Some(self.heads * self.value),
        }
    }

    /// Products for each token: by the decay, of keys and values, of queries and matrices.
    pub fn products(&self) -> u64 {
        let each = 2 + u64::from(self.decay != Decay::None);
        (self.heads * self.key)
            .saturating_mul(self.value)
            .saturating_mul(each)
    }

    /// Where α is, if there is one.
    pub fn decay_operand(&self) -> Option<u32> {
        self.decays().map(|_| 3)
    }

    /// Where o is.
    pub fn result(&self) -> u32 {
        3 + u32::from(self.decays().is_some())
    }

    /// Where the matrices are that outlive a launch, if there are such.
    pub fn matrices(&self) -> Option<u32> {
        self.continued.then(|| self.result() + 1)
    }

    /// How many operands there are.
    pub fn operands(&self) -> u32 {
        self.result() + 1 + u32::from(self.continued)
    }

    fn operand(&self, name: &'static str, mode: Mode, cols: u64) -> OperandAccess {
        OperandAccess::new(name, self.dtype, mode, [Count::rows(&[0, 1], cols)])
    }
}

pub(super) struct LinearAttendKind;

impl Kind for LinearAttendKind {
    type Spec = LinearAttend;
    const NAME: &'static str = "linear_attend";

    fn dtype(a: &LinearAttend) -> DType {
        a.dtype
    }

    fn validate(a: &LinearAttend) -> Result<(), String> {
        validate::sums(a.dtype)?;
        let fits = |n: u64| (1..=MOST_HEAD).contains(&n);
        if !(1..=MOST_HEADS).contains(&a.heads) || !fits(a.key) || !fits(a.value) {
            return Err(format!(
                "{} heads of {} and {} columns",
                a.heads, a.key, a.value
            ));
        }
        match a.reversed && a.continued {
            true => Err("what is read backwards has nothing to go on from".into()),
            false => Ok(()),
        }
    }

    fn signature(a: &LinearAttend) -> Signature {
        let (keys, values) = (a.heads * a.key, a.heads * a.value);
        let mut operands = vec![
            a.operand("q", Mode::Read, keys),
            a.operand("k", Mode::Read, keys),
            a.operand("v", Mode::Read, values),
        ];
        operands.extend(a.decays().map(|n| a.operand("decay", Mode::Read, n)));
        operands.push(a.operand("o", Mode::Write, values));
        let mut dims = vec![Dimension::any("batch"), Dimension::any("seq")];
        if a.continued {
            let extent = Count::rows(&[0], a.heads * a.key * a.value);
            let matrices = OperandAccess::new("matrices", a.dtype, Mode::Accumulate, [extent]);
            operands.push(matrices);
            dims.push(Dimension::any("past"));
        }
        Signature {
            dtype: a.dtype,
            operands,
            dims,
            coeffs: 0,
            scratch: vec![Count::fixed(a.key * LinearAttend::COLS)],
            work: Work::recurrences(Count::rows(&[0, 1], a.products())),
        }
    }

    fn tiles(a: &LinearAttend, dims: &[u64]) -> u64 {
        dims[0] * a.heads * a.value.div_ceil(LinearAttend::COLS)
    }

    fn headline(a: &LinearAttend) -> String {
        let decay = match a.decay {
            Decay::None => "",
            Decay::Head => ", decay of heads",
            Decay::Key => ", decay of keys",
            Decay::Value => ", decay of values",
        };
        let reversed = if a.reversed { ", reversed" } else { "" };
        let continued = if a.continued { ", continued" } else { "" };
        let delta = if a.delta { ", delta rule" } else { "" };
        format!(
            "{} heads of {} × {}{decay}{delta}{reversed}{continued}",
            a.heads, a.key, a.value
        )
    }

    fn run<T: Real>(a: &LinearAttend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_linear_attend::<T>(a, m, at.dims);
    }

    fn samples() -> Vec<Sample<LinearAttend>> {
        let sample = |dtype, decay, [reversed, continued, delta]: [bool; 3]| {
            let spec = LinearAttend {
                dtype,
                heads: 2,
                key: 3,
                value: 5,
                decay,
                reversed,
                continued,
                delta,
            };
            let dims: &[u64] = if continued { &[2, 4, 3] } else { &[2, 4] };
            Sample::new(spec, dims, &[])
        };
        vec![
            sample(DType::F32, Decay::None, [false, false, false]),
            sample(DType::F32, Decay::Head, [true, false, false]),
            sample(DType::F64, Decay::Key, [false, true, false]),
            sample(DType::F32, Decay::Value, [true, false, false]),
            sample(DType::F32, Decay::None, [false, true, false]),
            sample(DType::F32, Decay::Key, [false, false, true]),
            sample(DType::F32, Decay::Head, [true, false, true]),
            sample(DType::F64, Decay::None, [false, true, true]),
        ]
    }
}

/// Runs a whole launch. `dims` are `[batch, seq]`, and `past` if it is continued.
pub fn eval_linear_attend<T: Real>(
    kernel: &LinearAttend,
    memory: &mut impl Memory<T>,
    dims: &[u64],
) {
    for batch in 0..dims[0] {
        for number in 0..kernel.heads {
            let head = Head {
                kernel,
                number,
                first: batch * dims[1],
                matrix: (batch * kernel.heads + number) * kernel.key * kernel.value,
            };
            head.run::<T>(memory, dims);
        }
    }
}

/// One head of one sequence.
struct Head<'a> {
    kernel: &'a LinearAttend,
    number: u64,
    /// Rows before those of the sequence.
    first: u64,
    /// Elements before its matrix.
    matrix: u64,
}

impl Head<'_> {
    fn run<T: Real>(&self, m: &mut impl Memory<T>, dims: &[u64]) {
        let (a, seq) = (self.kernel, dims[1]);
        let elements = self.matrix..self.matrix + a.key * a.value;
        let goes_on = |_: &u32| dims[2] > 0;
        let before = a.matrices().filter(goes_on);
        let element = |i| before.map_or(T::ZERO, |operand| m.load(operand, i));
        let mut state: Vec<T> = elements.clone().map(element).collect();
        for t in 0..seq {
            let row = if a.reversed { seq - 1 - t } else { t };
            self.token(m, self.first + row, &mut state);
        }
        if let Some(after) = a.matrices() {
            for (i, x) in elements.zip(&state) {
                m.store(after, i, *x);
            }
        }
    }

    fn token<T: Real>(&self, m: &mut impl Memory<T>, row: u64, state: &mut [T]) {
        let a = self.kernel;
        let at = |m: &_, operand, cols: u64, c: u64| -> T {
            Memory::load(m, operand, (row * a.heads + self.number) * cols + c)
        };
        for j in 0..a.value {
            let decay = |m: &_, s: T, i: u64| match a.decay {
                Decay::None => s,
                Decay::Head => T::binary(BinaryOp::Mul, at(m, 3, 1, 0), s),
                Decay::Key => T::binary(BinaryOp::Mul, at(m, 3, a.key, i), s),
                Decay::Value => T::binary(BinaryOp::Mul, at(m, 3, a.value, j), s),
            };
            let place = |i: u64| (i * a.value + j) as usize;
            if !a.reversed {
                for i in 0..a.key {
                    state[place(i)] = decay(m, state[place(i)], i);
                }
            }
            let read = |m: &_, state: &[T]| {
                (0..a.key).fold(T::ZERO, |o, i| {
                    T::fma(at(m, 0, a.key, i), state[place(i)], o)
                })
            };
            let v = at(m, 2, a.value, j);
            let missing = a.delta.then(|| T::binary(BinaryOp::Sub, v, read(m, state)));
            let written = missing.unwrap_or(v);
            for i in 0..a.key {
                state[place(i)] = T::fma(at(m, 1, a.key, i), written, state[place(i)]);
            }
            let o = missing.unwrap_or_else(|| read(m, state));
            if a.reversed {
                for i in 0..a.key {
                    state[place(i)] = decay(m, state[place(i)], i);
                }
            }
            let column = (row * a.heads + self.number) * a.value + j;
            m.store(a.result(), column, o);
        }
    }
}
