//! Steps of unequal sizes: the line of one step of an evolution on its grid, each earlier step with its ratio to this one.

use super::super::flow::Flow;
use super::super::run::MAX_TOTAL;
use super::super::stage::{Phase, Steps};
use super::super::{Coeff, PerUse};
use super::programs::at;
use super::reading::at_start;
use super::{LocatedStep, Unsupported, located_on};
use odec_exact::Exact;

/// The line of step `k` of an evolution whose steps have these sizes; `None`: it looks back farther than to the first one.
pub fn located_in(
    flow: &Flow,
    k: usize,
    sizes: &[Exact],
    per_use: &PerUse,
) -> Result<Option<LocatedStep>, Unsupported> {
    let whole = (sizes.len(), sizes);
    let program = at(
        flow,
        Phase::Step(k),
        whole,
        (Steps::Euler, per_use),
        MAX_TOTAL,
    )?
    .program;
    let own = sizes[k].recip().map_err(|why| Unsupported {
        span: flow.span,
        why: format!("of the size of step {k}: {why}"),
    })?;
    let ratio = |ago: i64| match k.checked_sub(ago as usize) {
        Some(before) => &sizes[before] * &own,
        None => Exact::one(),
    };
    let known = |c: &Coeff, _| at_start(&program, c);
    let located = located_on(flow, &program, per_use, &known, &ratio)?;
    Ok((located.reach <= k as i64).then_some(located))
}
