//! Step programs that mix stages and history as general linear methods.
//!
//! Takes a flow, whose late step `scheme/method` reads over what the step before hands to it; gives the four matrices with the
//! names of these values: the state, and what each name was so many steps ago. Leaves what is true of them to `odec-numerics`.

use crate::scheme::expansion::Expanded;
use crate::scheme::flow::Flow;
use crate::scheme::method::{
    Asked, GeneralLinear, Incoming, Unsupported, general_linear, late, program_span,
};
use crate::scheme::per_use::SHARED;
use crate::scheme::stage::{StageProgram, Steps};
use odec_exact::Exact;
use odec_numerics::glm::{Glm, MAX_STAGES, MAX_VALUES};
use odec_numerics::linear_step::{Inputs, Row, Value};
use std::collections::BTreeMap;

/// A method, and what its values are called.
#[derive(Clone, Debug, PartialEq)]
pub struct General {
    pub glm: Glm,
    /// `x`, `x[-1]`, `h f[-2]`.
    pub names: Vec<String>,
    /// Behind the state, each name with the steps since and its power of h.
    pub(super) asked: Vec<Asked>,
}

impl General {
    /// Its expansion, where an exact starting procedure is decided.
    pub fn expanded(&self) -> Option<Expanded> {
        let (method, trees) = self.glm.expansion()?;
        Some(Expanded {
            method: Box::new(method),
            trees,
            fields: self.glm.fields.clone(),
        })
    }

    /// Whether later steps read more than the state.
    pub fn has_history(&self) -> bool {
        self.glm.values() > 1
    }
}

/// The method of a flow with a history.
pub fn general(flow: &Flow) -> Result<General, Unsupported> {
    let late = late(flow, Steps::Euler, &SHARED)?;
    let here = of_program(flow, &late.here)?;
    match &late.next {
        Some(next) if of_program(flow, next)? != here => Err(late.grows),
        _ => Ok(here),
    }
}

/// The method of one program.
pub(super) fn of_program(flow: &Flow, program: &StageProgram) -> Result<General, Unsupported> {
    let GeneralLinear {
        located,
        names: kept,
    } = general_linear(flow, program)?;
    let evaluations = located.stages();
    if let Some(span) = evaluations.get(MAX_STAGES) {
        return Err(Unsupported::at(*span, "it has too many evaluations"));
    }
    let (mut names, mut asked) = (vec!["x".to_string()], Vec::new());
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, kept) in &kept {
        first.insert(name, names.len());
        if names.len() + kept.depth > MAX_VALUES {
            let why = "it reads too many values of earlier steps";
            return Err(Unsupported::at(program_span(flow), why));
        }
        let times = match kept.power {
            None | Some(0) => String::new(),
            Some(1) => "h ".into(),
            Some(n) => format!("h^{n} "),
        };
        names.extend((1..=kept.depth).map(|n| format!("{times}{name}[-{n}]")));
        asked.extend((1..=kept.depth).map(|n| (name.clone(), n, kept.power)));
    }
    let incoming = |(name, ago): &Incoming| Some(first.get(name.as_str())? + ago - 1);
    let ends = kept.values().map(|k| k.value);
    let ends: Vec<Value> = [located.line.result].into_iter().chain(ends).collect();
    let inputs = Inputs {
        count: names.len(),
        place: &incoming,
    };
    let rows = located.line.rows(&ends, inputs);
    let rows = rows.map_err(|no| located.why_not(&no))?;
    let (mut b, mut v) = (Vec::new(), Vec::new());
    let depths = [1].into_iter().chain(kept.values().map(|k| k.depth));
    for (row, depth) in rows.ends.into_iter().zip(depths) {
        b.push(row.evaluations);
        v.push(row.incoming);
        // Older values are handed on.
        for _ in 1..depth {
            let mut unit = vec![Exact::zero(); names.len()];
            unit[v.len() - 1] = Exact::one();
            b.push(vec![Exact::zero(); evaluations.len()]);
            v.push(unit);
        }
    }
    let split = |row: Row| (row.evaluations, row.incoming);
    let (a, u) = rows.points.into_iter().map(split).unzip();
    Ok(General {
        glm: Glm {
            fields: located.line.fields.clone(),
            field_of: rows.stages.iter().map(|(field, _)| *field).collect(),
            a,
            u,
            b,
            v,
            state: 0,
        },
        names,
        asked,
    })
}
