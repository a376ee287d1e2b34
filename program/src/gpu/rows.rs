//! Wide rows that are reduced: whether what one sweep over the columns leaves to the next stays in registers, and whether a block takes a row.
//!
//! Takes a [`Rows`] spec; gives choices that emitter and launch agree on.

use super::{Split, WARP};
use crate::expr::{Body, Expr, Level, ReduceOp, RowMap, UnaryOp};
use crate::kernel::Rows;

/// From this many columns on rows are wide: more threads take one, each a column at a time.
pub const WIDE: u64 = 256;
/// Values that a thread may keep.
const MOST_VALUES: u64 = 96;
/// Operations that a thread may do in all, since they are written out one by one.
const MOST_CODE: u64 = 4096;

/// Whether the kernel reduces rows.
pub fn reduces(kernel: &Rows) -> bool {
    let reduction = |n: &Expr| matches!(n, Expr::Reduce(..));
    kernel.body.nodes.iter().any(reduction)
}

/// Columns of each thread of a warp that takes a row.
pub fn steps(cols: u64) -> u64 {
    cols.div_ceil(WARP)
}

/// Whether loading a node's value again costs little: all rows read the same, which is in the cache by then.
pub fn again(node: &Expr) -> bool {
    matches!(node, Expr::Load { access, .. } if access.row == RowMap::Zero)
}

/// Whether a warp takes a row and keeps it in registers.
pub fn held(kernel: &Rows) -> bool {
    let steps = steps(kernel.cols);
    if kernel.cols < WIDE || steps > MOST_VALUES || !reduces(kernel) {
        return false;
    }
    let body = &kernel.body;
    let (levels, phases) = (body.levels(), body.phases());
    let stored: Vec<usize> = kernel.stores.iter().map(|s| s.value.0 as usize).collect();
    let needed = body.reach(&stored, |_| false);
    let varies = |i: usize| levels[i] >= Level::Col;
    let nodes = || body.nodes.iter().enumerate().filter(|n| needed[n.0]);
    let code: u64 = nodes().filter(|n| varies(n.0)).map(|n| cost(n.1)).sum();
    // Phase and argument.
    let reductions = nodes().filter_map(|(i, n)| match n {
        Expr::Reduce(_, a) => Some((phases[i], a.0 as usize)),
        _ => None,
    });
    let reductions: Vec<(u32, usize)> = reductions.collect();
    let last = reductions.iter().map(|r| r.0).max().unwrap_or(0);
    let kept = (1..=last).map(|phase| values(body, &levels, &phases, &reductions, &stored, phase));
    code * steps <= MOST_CODE && kept.max().unwrap_or(0) * steps <= MOST_VALUES
}

/// From this many columns on a block takes a row that does not stay in registers: so few rows are worked on at a time that the next sweep
/// finds part of them in the cache.
pub const BLOCK_COLUMNS: u64 = 4096;
/// Threads of such a block: two of them share a multiprocessor.
pub const BLOCK_THREADS: u64 = 512;
/// Sums of such a row that are added at a time, each by 16 threads of one warp.
const BLOCK_SUMS: usize = 2;

/// Whether a block takes a row.
pub fn by_block(kernel: &Rows) -> bool {
    kernel.cols >= BLOCK_COLUMNS
        && reduces(kernel)
        && !held(kernel)
        && most_sums(kernel) <= BLOCK_SUMS
}

/// The most sums that one sweep over the columns adds up.
pub fn most_sums(kernel: &Rows) -> usize {
    let phases = kernel.body.phases();
    let sums = || {
        let nodes = kernel.body.nodes.iter().enumerate();
        nodes.filter(|n| matches!(n.1, Expr::Reduce(ReduceOp::Sum, _)))
    };
    let of = |phase: u32| sums().filter(|n| phases[n.0] == phase).count();
    sums().map(|n| of(phases[n.0])).max().unwrap_or(0)
}

/// Where things lie in the shared memory of a block that takes a row, in numbers: values of as many columns as one access of each thread has,
/// for each sum, twice, so that one half is added while the other is written; behind them a number of each warp.
pub fn block_values(kernel: &Rows) -> u64 {
    let split = Split::of(kernel);
    2 * most_sums(kernel) as u64 * split.group * split.vector
}

/// Bytes of shared memory of a block.
pub fn shared(kernel: &Rows) -> u64 {
    match by_block(kernel) {
        true => 4 * (block_values(kernel) + BLOCK_THREADS / WARP),
        false => 0,
    }
}

/// How many values of each column are there after the sweep of a phase: what it adds up, and what later ones read.
fn values(
    body: &Body,
    levels: &[Level],
    phases: &[u32],
    reductions: &[(u32, usize)],
    stored: &[usize],
    phase: u32,
) -> u64 {
    let arguments = |of: &dyn Fn(u32) -> bool| -> Vec<usize> {
        let of = reductions.iter().filter(|r| of(r.0));
        of.map(|r| r.1).collect()
    };
    let swept = body.reach(&arguments(&|p| p <= phase), |_| false);
    let has = |i: usize| levels[i] >= Level::Col && swept[i];
    let known = |i: usize| levels[i] <= Level::Row && phases[i] <= phase;
    let later = [&arguments(&|p| p > phase), stored].concat();
    let later = body.reach(&later, |i| known(i) || has(i));
    let added = arguments(&|p| p == phase);
    let kept = |i: &usize| added.contains(i) || (later[*i] && has(*i) && !again(&body.nodes[*i]));
    (0..body.nodes.len()).filter(kept).count() as u64
}

/// Instructions of a node, roughly.
fn cost(node: &Expr) -> u64 {
    match node {
        Expr::Unary(UnaryOp::Exp | UnaryOp::Log | UnaryOp::Erf, _) | Expr::Random(_) => 32,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::expr::{Access, ReduceOp};
    use crate::kernel::Store;

    /// `x · w · Σ x²` and, with `exponentials`, `e^(x − max) · Σ e^(x − max)` of rows.
    fn kernel(cols: u64, exponentials: bool) -> Rows {
        let mut body = Body::default();
        let (x, w) = (
            body.load(0, Access::full(cols)),
            body.load(1, Access::PER_COL),
        );
        let value = match exponentials {
            true => {
                let most = body.reduce(ReduceOp::Max, x);
                let x = body.sub(x, most);
                body.unary(UnaryOp::Exp, x)
            }
            false => body.mul(x, w),
        };
        let square = body.mul(value, value);
        let sum = body.reduce(ReduceOp::Sum, square);
        let value = body.mul(value, sum);
        let access = Access::full(cols);
        Rows {
            dtype: DType::F32,
            cols,
            operands: vec![DType::F32; 3],
            uniforms: 0,
            body,
            stores: vec![Store {
                operand: 2,
                access,
                value,
            }],
        }
    }

    #[test]
    fn rows_stay_in_registers_where_they_fit() {
        // A value and its square.
        for (cols, fits) in [(255, false), (256, true), (1536, true), (1537, false)] {
            assert_eq!(held(&kernel(cols, false)), fits, "{cols}");
        }
        for (cols, fits) in [(1000, true), (1408, true), (32768, false)] {
            assert_eq!(held(&kernel(cols, true)), fits, "{cols}");
        }
    }
}
