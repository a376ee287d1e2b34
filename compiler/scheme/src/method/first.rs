//! The first steps of an evolution as they are computed, as one line: what is there where a history is not complete yet.
//!
//! Takes the programs from the start on; gives the state after them, and what later steps read of them.

use super::super::ValueId;
use super::super::flow::Flow;
use super::super::per_use::SHARED;
use super::super::stage::StageProgram;
use super::Coeff;
use super::programs::program_span;
use super::reading::{Numbers, at_start};
use super::refusal::{DIFFERENT_POWERS, OTHER_FIELD, Unsupported};
use super::walk::{Named, Programs, Walk};
use odec_exact::Exact;
use odec_numerics::LinearStep;
use odec_numerics::linear_step::Value;

/// The first steps as one line, which ends with the state after them, and in it what later steps read.
pub struct FirstSteps {
    pub line: LinearStep,
    /// The state, then the values that were asked for; `None`: it is 0.
    pub ends: Vec<Option<Value>>,
}

/// What a name was so many steps ago, as a power of h more than what the program has; `None`: any.
pub type Asked = (String, usize, Option<i32>);

/// `programs`: all from the first one; `fields`: those that later steps evaluate.
pub fn first_steps(
    flow: &Flow,
    programs: &[StageProgram],
    fields: &[String],
    asked: &[Asked],
) -> Result<FirstSteps, Unsupported> {
    let known = |c: &Coeff, ago: i64| {
        let program = programs.len().checked_sub(ago as usize + 1)?;
        at_start(&programs[program], c)
    };
    let equal = |_| Exact::one();
    let numbers = Numbers {
        known: &known,
        ratio: &equal,
    };
    let body = program_span(flow);
    let mut walk = Walk::new(Programs::First(programs), &numbers, &SHARED, body);
    walk.fields = fields.iter().cloned().map(Named::alone).collect();
    let result = walk.value(ValueId::STATE, -1)?;
    let mut ends = vec![Some(result)];
    for (name, steps, power) in asked {
        let ago = *steps as i64 - 1;
        let Some(kept) = walk.kept(name, ago) else {
            ends.push(None);
            continue;
        };
        let v = walk.value(kept, ago)?;
        if walk.is_zero(v) {
            ends.push(None);
            continue;
        }
        if power.is_some_and(|p| walk.powers[v] != Some(p)) {
            return Err(Unsupported::at(body, DIFFERENT_POWERS));
        }
        ends.push(Some(v));
    }
    walk.close()?;
    if walk.fields.len() > fields.len() {
        return Err(Unsupported::at(body, OTHER_FIELD));
    }
    let line = walk.line(result, None).line;
    Ok(FirstSteps { line, ends })
}
