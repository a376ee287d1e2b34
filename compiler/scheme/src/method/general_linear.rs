//! A step as a general linear method: over the state, and over values of its names so many steps ago.
//!
//! Earlier steps are not followed: a name may depend on itself, as a momentum does. Its power of h is that of the value kept of
//! it, so the walk is repeated until the powers agree. Leaves the matrices to `analysis/general.rs`.

use super::super::flow::Flow;
use super::super::per_use::SHARED;
use super::super::stage::StageProgram;
use super::super::{Coeff, ValueId};
use super::programs::program_span;
use super::reading::{Reading, at_start};
use super::refusal::{FROM_START, TOO_LONG, Unsupported};
use super::walk::{Programs, Walk};
use super::{LocatedStep, MAX_VALUES};
use odec_exact::Exact;
use odec_numerics::linear_step::{Step, Value};
use std::collections::BTreeMap;

/// A name and how many steps ago.
pub type Incoming = (String, usize);

/// What a step reads of the ones before, and what it makes of it.
pub struct GeneralLinear {
    pub located: LocatedStep<Exact, Incoming>,
    pub names: BTreeMap<String, Kept>,
}

/// Of a name that later steps read.
pub struct Kept {
    /// Its value at the end of the step.
    pub value: Value,
    /// Its power of h; `None`: any.
    pub power: Option<i32>,
    /// How many steps back it is read.
    pub depth: usize,
}

struct Inputs<'p> {
    program: &'p StageProgram,
    powers: BTreeMap<String, i32>,
}

impl Reading for Inputs<'_> {
    type Number = Exact;
    type Past = Incoming;
    fn number(&self, c: &Coeff, _: i64) -> Option<Exact> {
        at_start(self.program, c)
    }
    fn zero(&self) -> Exact {
        Exact::zero()
    }
    fn is_zero(&self, c: &Exact) -> bool {
        c.is_zero()
    }
    fn rescaled(&self, c: Exact, _: i32, _: i64) -> Exact {
        c
    }
    fn state_before(&self, _: i64) -> Option<Incoming> {
        None
    }
    fn past(&self, name: &str, ago: i64) -> Option<(Incoming, Option<i32>)> {
        let power = self.powers.get(name).copied();
        Some(((name.to_string(), ago as usize), power))
    }
}

/// One program of a flow, with learned coefficients at their start.
pub fn general_linear(flow: &Flow, program: &StageProgram) -> Result<GeneralLinear, Unsupported> {
    if program.instrs.len() > MAX_VALUES {
        return Err(Unsupported::at(program_span(flow), TOO_LONG));
    }
    let mut inputs = Inputs {
        program,
        powers: BTreeMap::new(),
    };
    let mut stages = Vec::new();
    loop {
        let (found, evaluations) = walked(flow, &inputs, &stages)?;
        let mut powers = inputs.powers.clone();
        for (name, kept) in &found.names {
            powers.extend(kept.power.map(|p| (name.clone(), p)));
        }
        if powers.len() == inputs.powers.len() && evaluations == stages {
            return Ok(found);
        }
        (inputs.powers, stages) = (powers, evaluations);
    }
}

/// Stages are numbered as the program evaluates them, where it is known which are needed.
fn walked(
    flow: &Flow,
    inputs: &Inputs,
    stages: &[ValueId],
) -> Result<(GeneralLinear, Vec<ValueId>), Unsupported> {
    let (program, body) = (inputs.program, program_span(flow));
    let mut walk = Walk::new(Programs::Alike(program), inputs, &SHARED, body);
    for v in stages {
        walk.open(*v, 0)?;
    }
    let result = walk.state(&program.result, 0)?;
    walk.close()?;
    let mut names: BTreeMap<String, Kept> = BTreeMap::new();
    let mut read = 0;
    // What is kept of a name may read others.
    while let Some(step) = walk.steps.get(read) {
        read += 1;
        let Step::Past((name, ago)) = step else {
            continue;
        };
        let (name, depth) = (name.clone(), *ago);
        if let Some(known) = names.get_mut(&name) {
            known.depth = known.depth.max(depth);
            continue;
        }
        let Some(kept) = walk.kept(&name, 0) else {
            return Err(Unsupported::at(body, FROM_START));
        };
        let value = walk.value(kept, 0)?;
        walk.close()?;
        let power = walk.powers[value];
        let kept = Kept {
            value,
            power,
            depth,
        };
        names.insert(name, kept);
    }
    let evaluations = walk.evaluations();
    let located = walk.line(result, None);
    Ok((GeneralLinear { located, names }, evaluations))
}
