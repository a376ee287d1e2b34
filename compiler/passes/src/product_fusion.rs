//! Joins products that are added up: one contraction sums all of them and writes C once.
//!
//! Takes a [`LaunchList`]; gives the same where a contraction that adds onto the result of another of the same sizes takes that one's factors as its
//! first [`Terms`]. The gradient of what queries, keys and values are made of is such a sum, so is that of gate and up. The order of summation stays: a
//! specification with several terms means contractions one after the other. Only kernels that are fed by tensor maps take several terms, so other targets
//! have none.
//!
//! The joined launch stands where the last one stood, so factors of the first are kept until then: both must belong to one evaluation. Leaves as they are
//! launches that take rows in pieces, which lie outside of evaluations.

use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::lower::Tiling;
use super::spec::Specs;
use super::uses::{Uses, uses};
use odec_program::gpu::tensor::warpgroup::{self, Tokens};
use odec_program::kernel::{Contract, KernelSpec, Terms};
use odec_program::{Slot, Target};

/// Joins what can be joined.
pub fn fuse_products(mut code: LaunchList, tiling: Tiling) -> LaunchList {
    if tiling.warpgroups != Some(Tokens::Many) {
        return code;
    }
    let mut uses = uses(&code);
    let mut specs = Specs::default();
    let mut gone = vec![false; code.launches.len()];
    for at in 0..code.launches.len() {
        let Some((earlier, launch)) = joined(&code, &uses, &mut specs, at) else {
            continue;
        };
        for i in [earlier, at] {
            for (b, _) in code.launches[i].uses() {
                uses[b.0 as usize].remove(&i);
            }
        }
        for (b, mode) in launch.uses() {
            *uses[b.0 as usize].entry(at).or_default() |= mode.writes();
        }
        gone[earlier] = true;
        code.launches[at] = launch;
    }
    let mut gone = gone.into_iter();
    code.launches.retain(|_| gone.next() != Some(true));
    code
}

/// What a contraction and the one that it adds onto become, and that one's place.
fn joined(
    code: &LaunchList,
    uses: &[Uses],
    specs: &mut Specs,
    at: usize,
) -> Option<(usize, Launch)> {
    let after = &code.launches[at];
    let second = summed(after)?;
    let (out, factors) = after.args.split_last()?;
    if !second.accumulate || code.get(*out).home != Placement::Arena {
        return None;
    }
    let (earlier, writes) = uses[out.0 as usize].range(..at).next_back()?;
    let (earlier, before) = (*earlier, &code.launches[*earlier]);
    let first = summed(before)?;
    let terms = Terms(first.terms.0 + second.terms.0);
    let spec = Contract {
        accumulate: first.accumulate,
        terms,
        ..second.clone()
    };
    let alike = spec
        == Contract {
            terms,
            ..first.clone()
        };
    let together = alike && before.dims == after.dims && before.guard == after.guard;
    let near = after.site.evaluation.is_some()
        && before.site.neighbourhood() == after.site.neighbourhood();
    let there = before.args[..first.factors()]
        .iter()
        .all(|b| stays(code, uses, *b, (earlier, at)));
    if !writes || !together || !near || !there || terms.0 > Terms::MOST {
        return None;
    }
    let mut args = before.args[..first.factors()].to_vec();
    args.extend(factors);
    args.push(*out);
    let launch = Launch {
        spec: specs.of(KernelSpec::Contract(spec)),
        args,
        ..after.clone()
    };
    Some((earlier, launch))
}

/// A contraction that can be a term.
fn summed(l: &Launch) -> Option<&Contract> {
    let KernelSpec::Contract(c) = &*l.spec else {
        return None;
    };
    let fed = warpgroup::runs(c, Target::Sm90a) && warpgroup::streams(c);
    let bare = c.epilogue.is_none() && c.parts.0 == 1 && !c.rounds && l.held.is_none();
    (fed && bare).then_some(c)
}

/// Whether an operand that one launch reads is the same for a later one.
fn stays(code: &LaunchList, uses: &[Uses], b: BufferId, (from, to): (usize, usize)) -> bool {
    match &code.get(b).home {
        Placement::Arena => uses[b.0 as usize]
            .range(from..to)
            .all(|(_, writes)| !writes),
        // Nothing is written there.
        Placement::Fixed(o) => matches!(o.slot, Slot::Params | Slot::Rounded | Slot::Input(_)),
    }
}
