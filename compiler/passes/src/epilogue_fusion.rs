//! Fuses each contraction with the map that alone reads its result: epilogues.
//!
//! Takes a [`LaunchList`]; gives the same without the sums that stood between the two. A map joins a contraction as its
//! [`Epilogue`] where it has one result, over the same rows and columns, reads the sum at its own element, and all else by
//! row and column, as an epilogue can; every operand is of the program's real type, but on tensor cores the result may be
//! bf16, and where few tokens are read all others too. The sum is finished before the same
//! expression is evaluated, so no bit changes. Coefficients stay launch arguments. Attention on tensor cores rounds its result by itself, where a map
//! does nothing else with it.
//!
//! The joined launch stands where the contraction stood: the result lives where the sum lived, and nothing lives longer
//! than it did. So the map's other operands must be there by then. Leaves as they are: contractions that add onto what
//! is there, gradients of weights, maps that hold, draw or number, and elementary functions too long for a copy in each
//! register of a tile.

use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::lower::Tiling;
use super::spec::Specs;
use super::uses::{Uses, uses};
use odec_program::expr::{ColMap, Expr, ExprId, RowMap, UnaryOp};
use odec_program::gpu::tensor;
use odec_program::gpu::tensor::warpgroup::Tokens;
use odec_program::kernel::{Epilogue, KernelSpec, Rows, Terms};
use odec_program::{Access, Body, DType, Size, Slot};
use std::collections::BTreeSet;

/// Most expressions of an epilogue, with those that elementary functions stand for: every vector of a register tile has
/// a copy of them.
pub const MAX_EXPRESSIONS: usize = 64;

/// Operands of a contraction before those of its epilogue.
const FIRST: usize = 2;
/// The result of attention among its operands.
const RESULT: usize = 3;

/// Joins what can be joined.
pub fn fuse_epilogues(mut code: LaunchList, tiling: Tiling) -> LaunchList {
    let mut uses = uses(&code);
    let mut gone = BTreeSet::new();
    let mut specs = Specs::default();
    for map in 0..code.launches.len() {
        let Some((at, launch)) = joined(&code, &uses, &mut specs, map, tiling) else {
            continue;
        };
        for i in [at, map] {
            for (b, _) in code.launches[i].uses() {
                uses[b.0 as usize].remove(&i);
            }
        }
        for (b, mode) in launch.uses() {
            uses[b.0 as usize].insert(at, mode.writes());
        }
        gone.insert(map);
        code.launches[at] = launch;
    }
    let mut number = 0..;
    code.launches
        .retain(|_| !number.next().is_some_and(|i| gone.contains(&i)));
    code
}

/// What a map and a contraction become, and the contraction's place.
fn joined(
    code: &LaunchList,
    uses: &[Uses],
    specs: &mut Specs,
    map: usize,
    tiling: Tiling,
) -> Option<(usize, Launch)> {
    let after = &code.launches[map];
    let KernelSpec::Rows(k) = &*after.spec else {
        return None;
    };
    let (out, inputs) = after.args.split_last()?;
    let one_result = k.stores.len() == 1
        && k.stores[0].operand as usize == inputs.len()
        && k.stores[0].access == Access::full(k.cols);
    let plain = k.body.nodes.iter().all(is_plain) && after.held.is_none();
    let (result, read) = k.operands.split_last()?;
    // Where few tokens are read, a thread has few elements, and a launch less counts.
    let few = tiling.warpgroups == Some(Tokens::Few);
    let real = |d: &DType| *d == k.dtype;
    let known = |d: &DType| real(d) || *d == DType::Bf16;
    let reads = read.iter().all(|d| real(d) || (few && known(d)));
    if !one_result || !plain || !reads || !known(result) {
        return None;
    }
    if k.body.expand_transcendentals(k.dtype).0.nodes.len() > MAX_EXPRESSIONS {
        return None;
    }
    // Of several sums the last: the others are there by then.
    let mut sums: Vec<(usize, usize)> = (0..inputs.len())
        .filter_map(|arg| Some((made_for(code, uses, inputs[arg], map)?, arg)))
        .collect();
    sums.sort_unstable();
    let (at, arg) = sums.pop()?;
    let known = |(i, b): (usize, &BufferId)| i == arg || there_by(code, uses, *b, at);
    if !inputs.iter().enumerate().all(known) || !free_from(code, uses, *out, (at, map)) {
        return None;
    }
    let before = &code.launches[at];
    if let KernelSpec::Attend(_) | KernelSpec::AttendCached(_) = &*before.spec {
        let whole = code.get(inputs[arg]).size == code.get(*out).size;
        // A processor packs what it multiplies; it has no such kernel.
        if tiling.packs {
            return None;
        }
        let launch = rounding(before, after, specs, k)?;
        return (whole && before.args[RESULT] == inputs[arg]).then_some((at, launch));
    }
    let launch = with_epilogue(before, after, specs, k, arg)?;
    Some((at, launch))
}

/// What an epilogue may contain: nothing of other elements, and nothing that depends on where in the whole a row is.
fn is_plain(e: &Expr) -> bool {
    match e {
        Expr::Load { access, .. } => matches!(
            (access.row, access.col),
            (RowMap::Row | RowMap::Zero, ColMap::Col | ColMap::Zero)
        ),
        Expr::RowIndex | Expr::ColIndex | Expr::Random(_) | Expr::Reduce(..) => false,
        _ => true,
    }
}

/// The launch that makes a value in the arena, if only it and the reader use that.
fn made_for(code: &LaunchList, uses: &[Uses], b: BufferId, reader: usize) -> Option<usize> {
    let of = &uses[b.0 as usize];
    let (maker, written) = of.first_key_value()?;
    let apart = of.len() == 2 && *written && of.get(&reader) == Some(&false);
    (apart && code.get(b).home == Placement::Arena).then_some(*maker)
}

/// Whether a launch at `at` reads what later ones do.
fn there_by(code: &LaunchList, uses: &[Uses], b: BufferId, at: usize) -> bool {
    match &code.get(b).home {
        Placement::Arena => uses[b.0 as usize].range(at..).all(|(_, writes)| !writes),
        // Other buffers may lie at the same place, but nothing is written there.
        Placement::Fixed(o) => matches!(
            o.slot,
            Slot::Params | Slot::Rounded | Slot::Consts | Slot::Prepared | Slot::Input(_)
        ),
    }
}

/// Whether a result of `to` can be written from `from` on.
fn free_from(code: &LaunchList, uses: &[Uses], b: BufferId, (from, to): (usize, usize)) -> bool {
    let alone = match &code.get(b).home {
        Placement::Arena => true,
        // Other buffers may name the same part of what is kept: nothing else may come between.
        Placement::Fixed(o) if o.slot == Slot::Cache => to == from + 1,
        Placement::Fixed(o) => matches!(o.slot, Slot::Output(_)),
    };
    alone
        && uses[b.0 as usize].range(from..to).next().is_none()
        && uses[b.0 as usize].range(..from).next().is_none()
}

/// A contraction with a map as its epilogue; argument `sum` of the map is its result.
fn with_epilogue(
    before: &Launch,
    after: &Launch,
    specs: &mut Specs,
    k: &Rows,
    sum: usize,
) -> Option<Launch> {
    let KernelSpec::Contract(c) = &*before.spec else {
        return None;
    };
    let alone = !c.accumulate && c.terms == Terms::ONE;
    let bare = alone && !c.a_transposed && c.epilogue.is_none() && before.held.is_none();
    let fits = (before.dims[0], before.dims[1]) == (after.dims[0], Size::fixed(k.cols));
    if !bare || !fits || c.dtype != k.dtype || before.guard != after.guard {
        return None;
    }
    let (body, value, operands) = of_sum(k, sum, c.rounds)?;
    let numbered = (FIRST as u32..).zip(&operands);
    let halves = numbered.filter(|(_, i)| k.operands[**i as usize] == DType::Bf16);
    let halves: Vec<u32> = halves.map(|(number, _)| number).collect();
    let mut args = before.args[..FIRST].to_vec();
    args.extend(operands.iter().map(|i| after.args[*i as usize]));
    args.push(*after.args.last()?);
    let mut c = c.clone();
    c.rounds = k.operands.last() == Some(&DType::Bf16);
    let any = c.rounds || !halves.is_empty();
    if any && (c.dtype != DType::F32 || !tensor::contract::runs(&c)) {
        return None;
    }
    // What is rounded when it is stored need not be rounded before.
    let value = match body.nodes[value.0 as usize] {
        Expr::Unary(UnaryOp::Bf16, of) if c.rounds => of,
        _ => value,
    };
    let same =
        operands.is_empty() && k.uniforms == 0 && matches!(body.nodes[value.0 as usize], Expr::Acc);
    c.epilogue = (!same).then_some(Epilogue {
        operands: operands.len() as u32,
        halves,
        uniforms: k.uniforms,
        body,
        value,
    });
    Some(Launch {
        spec: specs.of(KernelSpec::Contract(c)),
        args,
        coeffs: after.coeffs.clone(),
        ..before.clone()
    })
}

/// Attention that rounds its result, where a map does nothing else.
fn rounding(before: &Launch, after: &Launch, specs: &mut Specs, k: &Rows) -> Option<Launch> {
    let mut spec = (*before.spec).clone();
    let (KernelSpec::Attend(a) | KernelSpec::AttendCached(a)) = &mut spec else {
        return None;
    };
    let (body, value, operands) = of_sum(k, 0, false)?;
    let value = match body.nodes[value.0 as usize] {
        Expr::Unary(UnaryOp::Bf16, of) => of,
        _ => value,
    };
    let same = operands.is_empty() && matches!(body.nodes[value.0 as usize], Expr::Acc);
    let rounds = k.operands.last() == Some(&DType::Bf16) && !a.rounds;
    let fits = k.cols == a.heads * a.value_head() && before.guard == after.guard;
    if !same || !rounds || !fits || before.held.is_some() || !tensor::attend::runs(a) {
        return None;
    }
    a.rounds = true;
    let mut args = before.args.clone();
    args[RESULT] = *after.args.last()?;
    Some(Launch {
        spec: specs.of(spec),
        args,
        ..before.clone()
    })
}

/// The body of a map, and its value, of which an operand is the sum at hand, rounded to bf16 where it was stored so; and its other operands in the
/// order in which it reads them. `None` if it reads sums of other elements.
fn of_sum(k: &Rows, sum: usize, rounded: bool) -> Option<(Body, ExprId, Vec<u32>)> {
    let mut operands: Vec<u32> = Vec::new();
    let mut out = Body::default();
    // The sum itself stands before all others.
    let before = u32::from(rounded);
    if rounded {
        out.push(Expr::Acc);
    }
    let node = |of: ExprId| ExprId(of.0 + before);
    for e in &k.body.nodes {
        out.nodes.push(match *e {
            Expr::Load { operand, access } if operand as usize == sum => {
                if access != Access::full(k.cols) {
                    return None;
                }
                match rounded {
                    true => Expr::Unary(UnaryOp::Bf16, ExprId(0)),
                    false => Expr::Acc,
                }
            }
            Expr::Load { operand, access } => {
                let known = operands.iter().position(|o| *o == operand);
                let place = known.unwrap_or_else(|| {
                    operands.push(operand);
                    operands.len() - 1
                });
                Expr::Load {
                    operand: (FIRST + place) as u32,
                    access,
                }
            }
            other => other.of(node),
        });
    }
    Some((out, node(k.stores[0].value), operands))
}
