//! One instruction of a stage program as a value of a [`odec_numerics::LinearStep`], with h divided out.
//!
//! Each value has a power of h, known or open; sums have one power in all their terms, and fields are evaluated at states. What no
//! method has is refused here.

use super::super::reading::Reading;
use super::super::refusal::{
    ALL_EARLIER, DIFFERENT_POWERS, FROM_START, OTHER_MULTIPLE, OTHER_TIME, PRODUCT, PROJECTION,
    RANDOM, TOLERANCE, Unsupported,
};
use super::{MAX_PAST, Named, Programs, Walk};
use crate::stage::{Moment, StageInstr, Unknown};
use crate::{Combination, ValueId};
use odec_numerics::linear_step::{Step, Value};

impl<R: Reading> Walk<'_, R> {
    /// The values that it needs are known, but for those of sums, which are asked for.
    pub(super) fn made(&mut self, v: ValueId, ago: i64) -> Result<Value, Unsupported> {
        if ago > MAX_PAST {
            return self.beyond(self.body, ALL_EARLIER);
        }
        self.reach = self.reach.max(ago);
        let Some(instr) = self.instr(v, ago) else {
            return self.start(ago);
        };
        match instr {
            StageInstr::Combine(c) => self.combined(c, ago),
            StageInstr::Unknown(Unknown::Without { why, span }) => self.beyond(*span, why),
            StageInstr::Unknown(Unknown::Solved { sum, .. }) => {
                // Evaluations at the unknown are made first.
                for (v, _) in self.read(sum, ago) {
                    self.open(v, ago)?;
                }
                self.combined(sum, ago)
            }
            StageInstr::Eval {
                field,
                usage,
                at,
                span,
                ..
            } => {
                let at = self.argument(at, *span)?;
                let at = self.value(at, ago)?;
                self.evaluable(at, *span)?;
                let field = self.field(*field, *usage, ago);
                self.push(Step::Eval { field, at }, *span, Some(1))
            }
            StageInstr::Flow {
                field,
                at,
                over,
                span,
            } => {
                let at = self.value(*at, ago)?;
                let (fraction, power) = self.monomial(over, *span, ago)?;
                let whole = power == 1 || self.reading.is_zero(&fraction);
                if !whole || self.powers[at].is_some_and(|p| p != 0) {
                    return self.beyond(*span, OTHER_TIME);
                }
                let field = self.field(*field, 0, ago);
                let flow = Step::Flow {
                    field,
                    at,
                    fraction,
                };
                self.push(flow, *span, Some(0))
            }
            StageInstr::Phi {
                field,
                index,
                over,
                at,
                span,
            } => {
                let at = self.value(*at, ago)?;
                if self.is_zero(at) {
                    return Ok(at);
                }
                let (over, power) = self.monomial(over, *span, ago)?;
                if power != 1 && !self.reading.is_zero(&over) {
                    return self.beyond(*span, OTHER_MULTIPLE);
                }
                let phi = Step::Phi {
                    field: self.field(*field, 0, ago),
                    index: *index,
                    over,
                    at,
                };
                self.push(phi, *span, self.powers[at])
            }
            StageInstr::Past { name, when } => self.past(name, when, ago),
            StageInstr::Mix { .. } | StageInstr::Stop(_) | StageInstr::Solution { .. } => {
                self.beyond(self.body, TOLERANCE)
            }
            StageInstr::Product(_) => self.beyond(self.body, PRODUCT),
            StageInstr::Normal { .. } => self.beyond(self.body, RANDOM),
            StageInstr::Project { .. } => self.beyond(self.body, PROJECTION),
        }
    }

    /// The state that a step begins with.
    fn start(&mut self, ago: i64) -> Result<Value, Unsupported> {
        match (self.programs, self.programs.before(ago)) {
            (_, Some(before)) => self.state(&before.result, ago + 1),
            (Programs::Alike(_), None) if ago > 0 => match self.reading.state_before(ago) {
                Some(state) => self.push(Step::Past(state), self.body, Some(0)),
                None => self.beyond(self.body, FROM_START),
            },
            (_, None) => Ok(0),
        }
    }

    fn past(&mut self, name: &str, when: &Moment, ago: i64) -> Result<Value, Unsupported> {
        let Some((v, then)) = self.earlier(name, when, ago) else {
            return self.beyond(self.body, FROM_START);
        };
        match self.reading.past(name, then) {
            Some((past, power)) => self.push(Step::Past(past), self.body, power),
            None => self.value(v, then),
        }
    }

    pub(super) fn field(&mut self, field: usize, usage: usize, ago: i64) -> usize {
        let Some(program) = self.programs.at(ago) else {
            return 0;
        };
        let leaf = program.fields[field].name.clone();
        let own = self.per_use.of(&leaf);
        let usage = if own { usage } else { 0 };
        let same = |f: &Named| f.leaf == leaf && f.usage == usage;
        if let Some(known) = self.fields.iter().position(same) {
            return known;
        }
        let shown = match own && program.usages[field] > 1 {
            true => format!("{leaf}.{}", usage + 1),
            false => leaf.clone(),
        };
        self.fields.push(Named { leaf, usage, shown });
        self.fields.len() - 1
    }

    pub(super) fn combined(&mut self, c: &Combination, ago: i64) -> Result<Value, Unsupported> {
        let (mut terms, mut degree): (Vec<(Value, R::Number)>, Option<i32>) = (Vec::new(), None);
        for (v, c) in c.terms() {
            let (c, power) = self.monomial(c, self.body, ago)?;
            if self.reading.is_zero(&c) {
                continue;
            }
            let v = self.value(v, ago)?;
            if self.is_zero(v) {
                continue;
            }
            if let Some(own) = self.powers[v].map(|p| power - p)
                && *degree.get_or_insert(own) != own
            {
                return self.beyond(self.spans[v], DIFFERENT_POWERS);
            }
            terms.push((v, c));
        }
        self.push(Step::Combine(terms), self.body, degree.map(|d| -d))
    }
}
