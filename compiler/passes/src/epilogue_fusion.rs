//! Fuses each contraction with the map that alone reads its result: epilogues.
//!
//! Takes a [`LaunchList`]; gives the same without the sums that stood between the two. A map joins a contraction as its
//! [`Epilogue`] where it has one result, over the same rows and columns, reads the sum at its own element, and all else by
//! row and column, as an epilogue can; every operand is of the program's real type, but for the result on tensor cores, which may be
//! bf16. The sum is finished before the same
//! expression is evaluated, so no bit changes. Coefficients stay launch arguments.
//!
//! The joined launch stands where the contraction stood: the result lives where the sum lived, and nothing lives longer
//! than it did. So the map's other operands must be there by then. Leaves as they are: contractions that add onto what
//! is there, gradients of weights, maps that hold, draw or number, and elementary functions too long for a copy in each
//! register of a tile.

use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::spec::Specs;
use odec_program::expr::{ColMap, Expr, RowMap, UnaryOp};
use odec_program::gpu::tensor;
use odec_program::kernel::{Epilogue, KernelSpec, Rows};
use odec_program::{Access, Body, DType, Size, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// Most expressions of an epilogue, with those that elementary functions stand for: every vector of a register tile has
/// a copy of them.
pub const MAX_EXPRESSIONS: usize = 64;

/// Operands of a contraction before those of its epilogue.
const FIRST: usize = 2;

/// Joins what can be joined.
pub fn fuse_epilogues(mut code: LaunchList) -> LaunchList {
    let mut uses = uses(&code);
    let mut gone = BTreeSet::new();
    let mut specs = Specs::default();
    for map in 0..code.launches.len() {
        let Some((at, launch)) = joined(&code, &uses, &mut specs, map) else {
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

/// The launches that use a buffer, and whether they write it.
type Uses = BTreeMap<usize, bool>;

fn uses(code: &LaunchList) -> Vec<Uses> {
    let mut out = vec![Uses::new(); code.buffers.len()];
    for (i, l) in code.launches.iter().enumerate() {
        for (b, mode) in l.uses() {
            *out[b.0 as usize].entry(i).or_default() |= mode.writes();
        }
    }
    out
}

/// What a map and a contraction become, and the contraction's place.
fn joined(
    code: &LaunchList,
    uses: &[Uses],
    specs: &mut Specs,
    map: usize,
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
    let real = |d: &DType| *d == k.dtype;
    if !one_result || !plain || !read.iter().all(real) || !(real(result) || *result == DType::Bf16)
    {
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
    let launch = with_epilogue(&code.launches[at], after, specs, k, arg)?;
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
            Slot::Params | Slot::Consts | Slot::Prepared | Slot::Input(_)
        ),
    }
}

/// Whether a result of `to` can be written from `from` on.
fn free_from(code: &LaunchList, uses: &[Uses], b: BufferId, (from, to): (usize, usize)) -> bool {
    let alone = match &code.get(b).home {
        Placement::Arena => true,
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
    let bare = !c.accumulate && !c.a_transposed && c.epilogue.is_none() && before.held.is_none();
    let fits = (before.dims[0], before.dims[1]) == (after.dims[0], Size::fixed(k.cols));
    if !bare || !fits || c.dtype != k.dtype || before.guard != after.guard {
        return None;
    }
    let (body, operands) = of_sum(&k.body, sum, k.cols)?;
    let mut args = before.args[..FIRST].to_vec();
    args.extend(operands.iter().map(|i| after.args[*i as usize]));
    args.push(*after.args.last()?);
    let mut c = c.clone();
    c.rounds = k.operands.last() == Some(&DType::Bf16);
    if c.rounds && (c.dtype != DType::F32 || !tensor::contract::runs(&c)) {
        return None;
    }
    // What is rounded when it is stored need not be rounded before.
    let value = match body.nodes[k.stores[0].value.0 as usize] {
        Expr::Unary(UnaryOp::Bf16, of) if c.rounds => of,
        _ => k.stores[0].value,
    };
    let same =
        operands.is_empty() && k.uniforms == 0 && matches!(body.nodes[value.0 as usize], Expr::Acc);
    c.epilogue = (!same).then_some(Epilogue {
        operands: operands.len() as u32,
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

/// A body of which an operand is the sum at hand, and its other operands in the order in which it reads them.
/// `None` if it reads sums of other elements.
fn of_sum(body: &Body, sum: usize, cols: u64) -> Option<(Body, Vec<u32>)> {
    let mut operands: Vec<u32> = Vec::new();
    let mut out = Body::default();
    for e in &body.nodes {
        out.nodes.push(match *e {
            Expr::Load { operand, access } if operand as usize == sum => {
                if access != Access::full(cols) {
                    return None;
                }
                Expr::Acc
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
            other => other,
        });
    }
    Some((out, operands))
}
