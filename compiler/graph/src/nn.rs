//! The layers of models, composed from ops.
//!
//! Takes values of a [`Builder`]; gives the values of the layer. Nodes stand at the builder's site, the parts of a
//! layer one level below it (`att` → `att.q`). Leaves which layer stands where to `odec-compiler`'s model stage.

use crate::exact::Exact;
use crate::op::{TypeError, TypeResult};
use crate::ops::matmul::Layout;
use crate::ops::{
    Add, AddPositions, Attention, Broadcast, Builder, CarriedScan, Combine, Concat, Constant,
    DepthwiseWindows, Exp, GatherCols, GroupedMatMul, InverseCount, Log, MatMul, MaxCols, Maximum,
    Mul, NormalCdf, OverWindows, Recip, RepeatTokens, Reshape, Rope, Rsqrt, Scan, Shift,
    ShiftTokens, Sigmoid, Softplus, StopGradient, SumCols, SumRows, SumTokens, Table, Transpose,
    WherePositive, Windows,
};
use crate::types::TensorType;
use crate::value::Value;
use odec_program::manifest::{self, Turns};
use odec_program::{Dim, Size, Window};

/// `Σ cᵢ xᵢ` of equal types; terms with coefficient 0 are left out.
pub fn combine(b: &mut Builder, terms: &[(Exact, Value)]) -> TypeResult {
    let kept = terms.iter().filter(|(c, _)| !c.is_zero());
    let (coeffs, xs): (Vec<Exact>, Vec<Value>) = kept.cloned().unzip();
    match (terms, &coeffs[..], &xs[..]) {
        // all coefficients are zero: the sum still has a type
        ([(c, x), ..], [], _) => b.push1(Combine::of([c.clone()]), &[*x]),
        (_, [c], [x]) if c.is_one() => Ok(*x),
        _ => b.push1(Combine::of(coeffs), &xs),
    }
}

/// An exact number, rank 0.
pub fn constant(b: &mut Builder, value: Exact) -> TypeResult {
    b.push1(Constant { value }, &[])
}

/// `x[.., K] · wᵀ` with weight `w[N, K]`: `[.., N]`. Where the builder has numbers of rows, only rows with 0 or more are computed, and
/// the others are zero.
pub fn linear(b: &mut Builder, x: Value, w: Value) -> TypeResult {
    product(b, x, w, false)
}

/// `x[.., N] · w` with weight `w[N, K]`: `[.., K]`, of the same rows.
pub fn linear_transposed(b: &mut Builder, x: Value, w: Value) -> TypeResult {
    product(b, x, w, true)
}

fn product(b: &mut Builder, x: Value, w: Value, transposed: bool) -> TypeResult {
    match rows_of(b, x)? {
        Some(rows) => b.push1(grouped(transposed, true), &[x, rows, w]),
        None if transposed => b.push1(MatMul::new(Layout::Nn), &[x, w]),
        None => b.push1(MatMul::new(Layout::Nt), &[x, w]),
    }
}

fn grouped(transposed: bool, partial: bool) -> GroupedMatMul {
    GroupedMatMul {
        transposed,
        partial,
        most: None,
        rounded: false,
    }
}

/// The builder's numbers of rows, for each row of `x`: of tokens, or of their heads.
fn rows_of(b: &mut Builder, x: Value) -> TypeResult<Option<Value>> {
    let Some(rows) = b.rows else { return Ok(None) };
    let (each, tokens) = (b.ty(x).per_row(), b.ty(rows).clone());
    if tokens == each {
        return Ok(Some(rows));
    }
    let (heads, one) = (each.rank().saturating_sub(2), each.rank().saturating_sub(1));
    let of_heads = each.rank() == tokens.rank() + 1 && each.shape[..heads] == tokens.shape[..heads];
    match each.shape.get(heads) {
        Some(Dim::Fixed(n)) if of_heads => {
            let to = tokens.with_cols(*n);
            let rows = b.push1(Broadcast { to }, &[rows])?;
            let mut to = each.shape[..one].to_vec();
            to.push(Dim::Fixed(1));
            b.push1(Reshape::of(to), &[rows]).map(Some)
        }
        _ => Ok(None),
    }
}

/// A linear map with or without a bias: `weight[N, K]`, `bias[N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    pub weight: Value,
    pub bias: Option<Value>,
}

impl From<Value> for Affine {
    fn from(weight: Value) -> Affine {
        Affine { weight, bias: None }
    }
}

/// `x[.., K] · weightᵀ + bias`: `[.., N]`.
pub fn affine(b: &mut Builder, x: Value, map: Affine) -> TypeResult {
    let y = linear(b, x, map.weight)?;
    match map.bias {
        Some(bias) => b.push1(Add, &[y, bias]),
        None => Ok(y),
    }
}

/// `x / √(mean(x²) + eps) · gain` over the columns (Zhang & Sennrich 2019); `gain[C]`.
pub fn rmsnorm(b: &mut Builder, x: Value, gain: Value, eps: &Exact) -> TypeResult {
    let normal = of_unit_size(b, x, eps)?;
    b.push1(Mul, &[normal, gain])
}

/// `x / √(mean(x²) + eps)` over the columns.
pub fn of_unit_size(b: &mut Builder, x: Value, eps: &Exact) -> TypeResult {
    let cols = b.ty(x).cols().try_into().unwrap_or(i64::MAX);
    let square = b.push1(Mul, &[x, x])?;
    let sum = b.push1(SumCols, &[square])?;
    let mean = combine(b, &[(Exact::ratio(1, cols), sum)])?;
    let shifted = b.push1(Shift { by: eps.clone() }, &[mean])?;
    let scale = b.push1(Rsqrt, &[shifted])?;
    b.push1(Mul, &[x, scale])
}

/// `x − mean(x)` over the columns.
fn centred(b: &mut Builder, x: Value) -> TypeResult {
    let cols = b.ty(x).cols().try_into().unwrap_or(i64::MAX);
    let sum = b.push1(SumCols, &[x])?;
    let minus_mean = combine(b, &[(Exact::ratio(-1, cols), sum)])?;
    b.push1(Add, &[x, minus_mean])
}

/// `(x − mean(x)) / √(var(x) + eps)` over the columns.
pub fn standardise(b: &mut Builder, x: Value, eps: &Exact) -> TypeResult {
    let centred = centred(b, x)?;
    of_unit_size(b, centred, eps)
}

/// `(x − mean(x)) / √(var(x) + eps) · gain + bias` over the columns, the variance being the mean square of what is left
/// when the mean is taken away (Ba, Kiros & Hinton 2016); `gain[C]`, `bias[C]`.
pub fn layernorm(b: &mut Builder, x: Value, gain: Value, bias: Value, eps: &Exact) -> TypeResult {
    let centred = centred(b, x)?;
    let scaled = rmsnorm(b, centred, gain, eps)?;
    b.push1(Add, &[scaled, bias])
}

/// The mean over the columns.
pub fn mean_cols(b: &mut Builder, x: Value) -> TypeResult {
    let cols = b.ty(x).cols().try_into().unwrap_or(i64::MAX);
    let sum = b.push1(SumCols, &[x])?;
    combine(b, &[(Exact::ratio(1, cols), sum)])
}

/// The mean over the tokens of each sequence: `[B, S, C] → [B, 1, C]`.
pub fn mean_tokens(b: &mut Builder, x: Value) -> TypeResult {
    let sum = b.push1(SumTokens, &[x])?;
    let tokens = b.ty(x).tokens();
    let size = Size::of(&[tokens]).unwrap_or(Size::SEQ);
    let share = b.push1(InverseCount { size }, &[])?;
    b.push1(Mul, &[sum, share])
}

/// The mean over the tokens of each sequence whose mask is 1, where others have 0: `[B, S, C], [B, S, 1] → [B, 1, C]`. Each sequence has one.
pub fn masked_mean(b: &mut Builder, x: Value, mask: Value) -> TypeResult {
    let weighted = b.push1(Mul, &[x, mask])?;
    let sum = b.push1(SumTokens, &[weighted])?;
    let tokens = b.push1(SumTokens, &[mask])?;
    let share = b.push1(Recip, &[tokens])?;
    b.push1(Mul, &[sum, share])
}

/// The first row of each sequence in its place, zeros in all others: `[B, S, C]`. Exact, and so is its derivative.
fn first_row(b: &mut Builder, x: Value) -> TypeResult {
    let others = b.push1(ShiftTokens::one(-1), &[x])?;
    let others = b.push1(ShiftTokens::one(1), &[others])?;
    combine(b, &[(Exact::one(), x), (Exact::int(-1), others)])
}

/// The first row of each sequence: `[B, S, C] → [B, 1, C]`.
pub fn first_token(b: &mut Builder, x: Value) -> TypeResult {
    if let Dim::Fixed(_) = b.ty(x).tokens() {
        return take_tokens(b, x, (0, 1));
    }
    let first = first_row(b, x)?;
    b.push1(SumTokens, &[first])
}

/// A row before those of each sequence, whose last one is left out: `[B, S, C], [C] or [B, 1, C] → [B, S, C]`; of a grid none is, `[B, n, C] → [B, n + 1, C]`.
pub fn put_first(b: &mut Builder, x: Value, row: Value) -> TypeResult {
    if let Dim::Fixed(_) = b.ty(x).tokens() {
        let shape = [Dim::Batch, Dim::Fixed(1), Dim::Fixed(b.ty(x).cols())];
        let to = TensorType::real(shape);
        let first = match b.ty(row).shape.len() {
            1 => b.push1(Broadcast { to }, &[row])?,
            _ => row,
        };
        return join_tokens(b, first, x);
    }
    let to = b.ty(x).clone();
    let tokens = to.tokens();
    let rows = match b.ty(row).shape.len() {
        1 => b.push1(Broadcast { to }, &[row])?,
        _ => b.push1(RepeatTokens { tokens }, &[row])?,
    };
    let first = first_row(b, rows)?;
    let later = b.push1(ShiftTokens::one(1), &[x])?;
    b.push1(Add, &[first, later])
}

/// Each row in the place of the one `n` before it, zeros at the end: what [`put_first`] did n times, undone but for the rows that it left out.
pub fn leave_out_first(b: &mut Builder, x: Value, n: u64) -> TypeResult {
    let by = i32::try_from(n).unwrap_or(i32::MAX);
    b.push1(ShiftTokens::one(-by), &[x])
}

/// Row `i − n` of each sequence in place of row i, zeros where there is none.
pub fn earlier(b: &mut Builder, x: Value, n: u64) -> TypeResult {
    let by = i32::try_from(n).unwrap_or(i32::MAX);
    b.push1(ShiftTokens::one(by), &[x])
}

/// 1 at each row, 0 at the last `n` of each sequence: `[B, S, 1]`.
pub fn all_but_last(b: &mut Builder, n: u64) -> TypeResult {
    let ones = ones(b)?;
    leave_out_first(b, ones, n)
}

/// 1 at each row, 0 at the first `n` of each sequence: `[B, S, 1]`.
pub fn all_but_first(b: &mut Builder, n: u64) -> TypeResult {
    let ones = ones(b)?;
    earlier(b, ones, n)
}

/// 1 at each row: `[B, S, 1]`.
fn ones(b: &mut Builder) -> TypeResult {
    let one = constant(b, Exact::one())?;
    let to = TensorType::state(1);
    b.push1(Broadcast { to }, &[one])
}

/// The mean square of the difference over the columns, per row: `[.., C], [.., C] → [.., 1]`.
pub fn squared_error(b: &mut Builder, x: Value, targets: Value) -> TypeResult {
    let off = combine(b, &[(Exact::one(), x), (Exact::int(-1), targets)])?;
    let square = b.push1(Mul, &[off, off])?;
    mean_cols(b, square)
}

/// `−t log σ(x) − (1 − t) log(1 − σ(x))`, the mean over the columns, per row: `[.., C], [.., C] → [.., 1]`. It is `softplus(x) − t x`.
pub fn binary_cross_entropy(b: &mut Builder, x: Value, targets: Value) -> TypeResult {
    let all = b.push1(Softplus, &[x])?;
    let told = b.push1(Mul, &[x, targets])?;
    let off = combine(b, &[(Exact::one(), all), (Exact::int(-1), told)])?;
    mean_cols(b, off)
}

/// The mean square over the columns of what is left when their mean is taken away.
pub fn variance(b: &mut Builder, x: Value) -> TypeResult {
    let centred = centred(b, x)?;
    let square = b.push1(Mul, &[centred, centred])?;
    mean_cols(b, square)
}

/// `x / max(‖x‖, eps)` over the columns.
pub fn unit_length(b: &mut Builder, x: Value, eps: &Exact) -> TypeResult {
    let square = b.push1(Mul, &[x, x])?;
    let sum = b.push1(SumCols, &[square])?;
    let least = constant(b, eps * eps)?;
    let sum = b.push1(Maximum, &[sum, least])?;
    let scale = b.push1(Rsqrt, &[sum])?;
    b.push1(Mul, &[x, scale])
}

/// Applies something to the columns of each head by itself: `[.., C]` as `[.., heads, C/heads]`, and back.
pub fn per_head(
    b: &mut Builder,
    x: Value,
    heads: u64,
    of: impl FnOnce(&mut Builder, Value) -> TypeResult,
) -> TypeResult {
    if heads == 1 {
        return of(b, x);
    }
    let split = split_heads(b, x, heads)?;
    let made = of(b, split)?;
    join_heads(b, made, heads)
}

/// `[.., C]` as `[.., heads, C/heads]`.
fn split_heads(b: &mut Builder, x: Value, heads: u64) -> TypeResult {
    let cols = b.ty(x).cols();
    let mut to = b.ty(x).shape.to_vec();
    to.pop();
    to.extend([Dim::Fixed(heads), Dim::Fixed(cols / heads)]);
    b.push1(Reshape::of(to), &[x])
}

/// `[.., heads, C]` as `[.., heads·C]`.
fn join_heads(b: &mut Builder, x: Value, heads: u64) -> TypeResult {
    let cols = b.ty(x).cols();
    let mut to = b.ty(x).shape.to_vec();
    to.truncate(to.len().saturating_sub(2));
    to.push(Dim::Fixed(heads * cols));
    b.push1(Reshape::of(to), &[x])
}

/// Concatenates within each head: of each part the columns of a head, and behind them those that all heads get.
pub fn concat_heads(
    b: &mut Builder,
    parts: &[Value],
    shared: Option<Value>,
    heads: u64,
) -> TypeResult {
    let copies = match shared {
        Some(x) => Some(b.push1(Concat, &vec![x; heads as usize])?),
        None => None,
    };
    let mut split = Vec::new();
    for x in parts.iter().copied().chain(copies) {
        split.push(split_heads(b, x, heads)?);
    }
    let joined = b.push1(Concat, &split)?;
    join_heads(b, joined, heads)
}

/// Each head's columns of `x` times a matrix of its own: `x[.., heads·K], W[heads, N, K] → [.., heads·N]`, by the transposes the other way. Of the same
/// rows as [`linear`].
pub fn linear_heads(
    b: &mut Builder,
    x: Value,
    matrices: Value,
    (heads, transposed): (u64, bool),
) -> TypeResult {
    let table = manifest::Table::Index { columns: heads };
    let numbers = b.push1(Table { table }, &[])?;
    let numbers = b.push1(Reshape::fixed(&[heads]), &[numbers])?;
    let to = b.ty(x).with_cols(heads);
    let mut numbers = b.push1(Broadcast { to }, &[numbers])?;
    let rows = b.rows.filter(|rows| *b.ty(*rows) == b.ty(x).per_row());
    if let Some(rows) = rows {
        // Below 0 where the row's number is.
        let one = |by: i64| Shift { by: Exact::int(by) };
        let computed = b.push1(one(1), &[rows])?;
        let above = b.push1(one(1), &[numbers])?;
        let above = b.push1(Mul, &[above, computed])?;
        numbers = b.push1(one(-1), &[above])?;
    }
    b.push1(grouped(transposed, rows.is_some()), &[x, numbers, matrices])
}

/// Each head's columns of `x` times its own number in `by`, `[.., heads]`.
pub fn scale_heads(b: &mut Builder, x: Value, by: Value) -> TypeResult {
    let heads = b.ty(by).cols();
    let by = match heads {
        1 => by,
        _ => {
            let mut to = b.ty(by).shape.to_vec();
            to.push(Dim::Fixed(1));
            b.push1(Reshape::of(to), &[by])?
        }
    };
    per_head(b, x, heads, |b, x| b.push1(Mul, &[x, by]))
}

/// `x · sigmoid(x)`.
pub fn silu(b: &mut Builder, x: Value) -> TypeResult {
    let gate = b.push1(Sigmoid, &[x])?;
    b.push1(Mul, &[x, gate])
}

/// `x · Φ(x)` with the exact Φ, not its tanh approximation (Hendrycks & Gimpel 2016).
pub fn gelu(b: &mut Builder, x: Value) -> TypeResult {
    let below = b.push1(NormalCdf, &[x])?;
    b.push1(Mul, &[x, below])
}

/// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`, as `x · sigmoid(2√(2/π) (x + 0.044715 x³))` (Hendrycks & Gimpel 2016). The root is the
/// double nearest to it, which PyTorch and JAX take as well.
pub fn gelu_tanh(b: &mut Builder, x: Value) -> TypeResult {
    let twice = Exact::ratio(7_186_705_221_432_913, 1 << 52);
    let cubic = &twice * &Exact::ratio(44_715, 1_000_000);
    let square = b.push1(Mul, &[x, x])?;
    let cube = b.push1(Mul, &[square, x])?;
    let inner = combine(b, &[(twice, x), (cubic, cube)])?;
    let below = b.push1(Sigmoid, &[inner])?;
    b.push1(Mul, &[x, below])
}

/// `max(x, 0)`; its derivative at 0 is 0.
pub fn relu(b: &mut Builder, x: Value) -> TypeResult {
    b.push1(WherePositive, &[x, x])
}

/// `down(silu(gate(x)) · up(x))` (Shazeer 2020); gate, up `[hidden, C]`, down `[C, hidden]`.
pub fn swiglu(b: &mut Builder, x: Value, gate: Affine, up: Affine, down: Affine) -> TypeResult {
    let open = b.part("gate", |b| {
        let g = affine(b, x, gate)?;
        silu(b, g)
    })?;
    let u = b.part("up", |b| affine(b, x, up))?;
    let hidden = b.part("up", |b| b.push1(Mul, &[open, u]))?;
    b.part("down", |b| affine(b, hidden, down))
}

/// A row for each token of a state, of what has one column, or is the same for all tokens.
pub fn widened(b: &mut Builder, x: Value, to: TensorType) -> TypeResult {
    match *b.ty(x) == to {
        true => Ok(x),
        false => b.push1(Broadcast { to }, &[x]),
    }
}

/// Recurrences along tokens, `h_t = a_t h_{t−1} + b_t` of `[a, b]`, running sums of `[b]`: from zero, in so many chunks, or on from what was carried.
pub fn scan(b: &mut Builder, given: &[Value], carry: Option<Value>, chunks: u64) -> TypeResult {
    match carry {
        None => b.push1(Scan { chunks }, given),
        Some(carry) => Ok(b.push(CarriedScan, &[given, &[carry]].concat())?[0]),
    }
}

/// The linear maps of an attention layer, each `[C, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionWeights {
    pub q: Affine,
    pub k: Affine,
    pub v: Affine,
    pub o: Affine,
}

/// The tables of rotary positions, `[positions, head]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotary {
    pub cos: Value,
    pub sin: Value,
    pub head: u64,
    /// Whether pairs of columns are neighbours.
    pub interleaved: bool,
}

/// Tables for up to `positions` positions; a model makes them once.
pub fn rotary(
    b: &mut Builder,
    positions: u64,
    (head, base): (u64, f64),
    turns: Turns,
) -> TypeResult<Rotary> {
    let cos = manifest::Table::RotaryCos {
        positions,
        head,
        base,
        turns,
    };
    let sin = manifest::Table::RotarySin {
        positions,
        head,
        base,
        turns,
    };
    Ok(Rotary {
        cos: b.push1(Table { table: cos }, &[])?,
        sin: b.push1(Table { table: sin }, &[])?,
        head,
        interleaved: turns.interleaved,
    })
}

/// `x` turned by its positions, head by head.
pub fn rotated(b: &mut Builder, x: Value, tables: Rotary) -> TypeResult {
    let rope = Rope {
        head: tables.head,
        interleaved: tables.interleaved,
        inverse: false,
    };
    b.push1(rope, &[x, tables.cos, tables.sin])
}

/// A state and rows for its positions, of a table that begins with the first token's; or a row for each of its tokens.
pub fn with_positions(b: &mut Builder, x: Value, rows: Value) -> TypeResult {
    match b.ty(rows).is_state() {
        true => b.push1(Add, &[x, rows]),
        false => b.push1(AddPositions, &[x, rows]),
    }
}

/// Attention of the tokens of a run to each other: `[q, k, v] → o`, or `[q, k, v, sinks] → o`. Keys may be of other tokens, of fewer of a grid or of
/// another sequence.
pub fn attend(b: &mut Builder, attention: Attention, operands: &[Value]) -> TypeResult {
    let differ = match operands {
        [q, k, ..] => b.ty(*q).tokens() != b.ty(*k).tokens(),
        _ => false,
    };
    let attention = Attention {
        others: attention.others || differ,
        ..attention
    };
    Ok(b.push(attention, operands)?[0])
}

/// So many tokens of a state of a grid, from one on: `[B, tokens, C] → [B, count, C]`.
pub fn take_tokens(b: &mut Builder, x: Value, (first, count): (u64, u64)) -> TypeResult {
    match b.ty(x).tokens() {
        Dim::Fixed(tokens) if tokens == count => Ok(x),
        tokens => {
            let window = part(tokens, first, count)?;
            b.push1(Windows { window }, &[x])
        }
    }
}

/// A state as the tokens from one on of a longer one, zeros in all others: `[B, count, C] → [B, tokens, C]`.
pub fn put_tokens(b: &mut Builder, x: Value, (first, tokens): (u64, u64)) -> TypeResult {
    match b.ty(x).tokens() {
        Dim::Fixed(count) if tokens == count => Ok(x),
        Dim::Fixed(count) => {
            let window = part(Dim::Fixed(tokens), first, count)?;
            b.push1(OverWindows { window }, &[x])
        }
        other => part(other, first, tokens).and(Ok(x)),
    }
}

fn part(tokens: Dim, first: u64, count: u64) -> TypeResult<Window> {
    let window = match tokens {
        Dim::Fixed(tokens) => Window::part(tokens, first, count),
        _ => None,
    };
    window.ok_or_else(|| TypeError {
        op: "windows",
        what: format!("{count} tokens from {first} on of {tokens}"),
    })
}

/// Applies something to the tokens of a grid, and leaves so many rows before them as they are.
pub fn behind(
    b: &mut Builder,
    x: Value,
    leading: u64,
    of: impl FnOnce(&mut Builder, Value) -> TypeResult,
) -> TypeResult {
    let Dim::Fixed(all) = b.ty(x).tokens() else {
        return of(b, x);
    };
    if leading == 0 {
        return of(b, x);
    }
    let before = take_tokens(b, x, (0, leading))?;
    let grid = take_tokens(b, x, (leading, all.saturating_sub(leading)))?;
    let made = of(b, grid)?;
    join_tokens(b, before, made)
}

/// The tokens of a state behind those of another: `[B, n, C], [B, m, C] → [B, n + m, C]`. Exact.
fn join_tokens(b: &mut Builder, x: Value, y: Value) -> TypeResult {
    let count = |b: &Builder, x: Value| match b.ty(x).tokens() {
        Dim::Fixed(n) => n,
        _ => 0,
    };
    let (before, after) = (count(b, x), count(b, y));
    let x = put_tokens(b, x, (0, before + after))?;
    let y = put_tokens(b, y, (before, before + after))?;
    b.push1(Add, &[x, y])
}

/// A convolution over a grid of tokens, `weight[N, C, kernel, kernel]`, `bias[N]`: `[B, tokens, C] → [B, windows, N]` (PyTorch's `Conv2d`).
pub fn conv2d(b: &mut Builder, x: Value, window: Window, map: Affine) -> TypeResult {
    let rows = b.ty(x).cols();
    let columns = rows * window.places();
    let to = vec![b.ty(map.weight).size().factor / columns.max(1), columns];
    let weight = b.push1(Transpose { rows, to }, &[map.weight])?;
    let x = b.push1(Windows { window }, &[x])?;
    let to = vec![Dim::Batch, Dim::Fixed(window.count()), Dim::Fixed(columns)];
    let x = b.push1(Reshape::of(to), &[x])?;
    affine(b, x, Affine { weight, ..map })
}

/// The convolution of each column over a grid by itself, `weight[C, 1, kernel, kernel]`, `bias[C]`: `[B, tokens, C] → [B, windows, C]`.
pub fn depthwise2d(b: &mut Builder, x: Value, window: Window, map: Affine) -> TypeResult {
    let (rows, to) = (b.ty(x).cols(), vec![b.ty(x).cols() * window.places()]);
    let taps = b.push1(Transpose { rows, to }, &[map.weight])?;
    let transposed = false;
    let y = b.push1(DepthwiseWindows { window, transposed }, &[x, taps])?;
    match map.bias {
        Some(bias) => b.push1(Add, &[y, bias]),
        None => Ok(y),
    }
}

/// Multi-head attention of `x[B, S, C]` to `to[B, S, D]`, which may be `x`, with rotary positions if tables are given: `[B, S, C]`. What queries,
/// keys and values come to is the caller's: [`attend`], or attention to kept keys and values as well.
pub fn multi_head_attention(
    b: &mut Builder,
    [x, to]: [Value; 2],
    w: AttentionWeights,
    rotary: Option<Rotary>,
    attend: impl FnOnce(&mut Builder, [Value; 3]) -> TypeResult,
) -> TypeResult {
    let turned = |b: &mut Builder, x, w| {
        let y = affine(b, x, w)?;
        match rotary {
            Some(tables) => rotated(b, y, tables),
            None => Ok(y),
        }
    };
    let q = b.part("q", |b| turned(b, x, w.q))?;
    let k = b.part("k", |b| turned(b, to, w.k))?;
    let v = b.part("v", |b| affine(b, to, w.v))?;
    let o = b.part("attend", |b| attend(b, [q, k, v]))?;
    b.part("o", |b| affine(b, o, w.o))
}

/// Logits without their largest, and the logarithm of the sum of their exponentials, per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normaliser {
    /// `z = x − max x`.
    pub shifted: Value,
    /// `log Σ exp z`.
    pub log: Value,
    /// `max x`; the maximum cancels in what is made of the others, so its gradient is stopped.
    pub max: Value,
}

/// `e^x / Σ e^x` over the columns.
pub fn softmax(b: &mut Builder, x: Value) -> TypeResult {
    let shifted = normaliser(b, x)?.shifted;
    let e = b.push1(Exp, &[shifted])?;
    let sum = b.push1(SumCols, &[e])?;
    let inverse = b.push1(Recip, &[sum])?;
    b.push1(Mul, &[e, inverse])
}

/// `x − log Σ e^x` over the columns.
pub fn log_softmax(b: &mut Builder, x: Value) -> TypeResult {
    let Normaliser { shifted, log, .. } = normaliser(b, x)?;
    let minus = combine(b, &[(Exact::int(-1), log)])?;
    b.push1(Add, &[shifted, minus])
}

/// `log Σ e^x` over the columns.
pub fn logsumexp(b: &mut Builder, x: Value) -> TypeResult {
    let Normaliser { log, max, .. } = normaliser(b, x)?;
    combine(b, &[(Exact::one(), log), (Exact::one(), max)])
}

/// `x − max x` and `max x` over the columns; the maximum is a constant to the gradient.
pub fn below_max(b: &mut Builder, x: Value) -> TypeResult<(Value, Value)> {
    let max = b.push1(MaxCols, &[x])?;
    let max = b.push1(StopGradient, &[max])?;
    let minus = combine(b, &[(Exact::int(-1), max)])?;
    Ok((b.push1(Add, &[x, minus])?, max))
}

/// What softmax needs of `logits[.., V]`.
pub fn normaliser(b: &mut Builder, logits: Value) -> TypeResult<Normaliser> {
    let (shifted, max) = below_max(b, logits)?;
    let e = b.push1(Exp, &[shifted])?;
    let sum = b.push1(SumCols, &[e])?;
    let log = b.push1(Log, &[sum])?;
    Ok(Normaliser { shifted, log, max })
}

impl Normaliser {
    /// `−log softmax(logits)` at the target, per row: `log Σ exp z − z_target`; `targets[.., 1] → [.., 1]`.
    pub fn cross_entropy(&self, b: &mut Builder, targets: Value) -> TypeResult {
        self.smooth_cross_entropy(b, targets, &Exact::zero())
    }

    /// The cross-entropy to a target that is right with probability 1 − ε, and any token with ε/V each (Szegedy et al. 2016, CVPR,
    /// section 7): `log Σ exp z − (1 − ε) z_target − ε mean(z)`.
    pub fn smooth_cross_entropy(&self, b: &mut Builder, targets: Value, eps: &Exact) -> TypeResult {
        let target = b.push1(GatherCols, &[self.shifted, targets])?;
        let mut terms = vec![(Exact::one(), self.log), (eps - &Exact::one(), target)];
        if !eps.is_zero() {
            let cols = b.ty(self.shifted).cols().try_into().unwrap_or(i64::MAX);
            let sum = b.push1(SumCols, &[self.shifted])?;
            terms.push((eps * &Exact::ratio(-1, cols), sum));
        }
        combine(b, &terms)
    }

    /// `(log Z)²`, Z the sum of the exponentials of the logits themselves, per row (Chowdhery et al. 2023, JMLR 24, section 5).
    pub fn z_loss(&self, b: &mut Builder) -> TypeResult {
        let log = combine(b, &[(Exact::one(), self.log), (Exact::one(), self.max)])?;
        b.push1(Mul, &[log, log])
    }
}

/// [`Normaliser::cross_entropy`] of `logits[.., V]`.
pub fn cross_entropy(b: &mut Builder, logits: Value, targets: Value) -> TypeResult {
    normaliser(b, logits)?.cross_entropy(b, targets)
}

/// The mean of a number per row: `[.., 1] → []`.
pub fn mean_rows(b: &mut Builder, x: Value) -> TypeResult {
    let size = b.ty(x).rows();
    let sum = b.push1(SumRows, &[x])?;
    let inverse = b.push1(InverseCount { size }, &[])?;
    b.push1(Mul, &[sum, inverse])
}

/// The mean of a number per row, each row with its weight: `[.., 1], [.., 1] → []`. Some weight must not be 0.
pub fn weighted_mean(b: &mut Builder, x: Value, weights: Value) -> TypeResult {
    let weighted = b.push1(Mul, &[x, weights])?;
    let (sum, total) = (
        b.push1(SumRows, &[weighted])?,
        b.push1(SumRows, &[weights])?,
    );
    let inverse = b.push1(Recip, &[total])?;
    b.push1(Mul, &[sum, inverse])
}

/// Cross-entropy in nats, averaged over all target tokens: `[]`.
pub fn mean_cross_entropy(b: &mut Builder, logits: Value, targets: Value) -> TypeResult {
    let rows = cross_entropy(b, logits, targets)?;
    mean_rows(b, rows)
}
