//! The walk over stage programs that every method is read from: each instruction becomes one value of a [`LinearStep`].
//!
//! Takes a program, or the first ones of an evolution, and a [`Reading`] of its coefficients. Makes what is asked for, after what
//! that needs; an evaluation may be made before its argument, as in implicit stages. Leaves single instructions to
//! `instruction.rs`, sums over evaluations to `odec_numerics::linear_step`.

mod instruction;

use super::reading::{Reading, monomial};
use super::refusal::{NO_STATE, RATE, SEVERAL, TOO_LONG, Unsupported};
use super::{LocatedStep, MAX_VALUES};
use crate::stage::{Moment, StageInstr, StageProgram};
use crate::{Coeff, Combination, PerUse, ValueId};
use odec_grammar::Span;
use odec_numerics::LinearStep;
use odec_numerics::linear_step::{Step, Value};
use std::collections::{BTreeMap, VecDeque};

/// How many steps a value may reach back.
const MAX_PAST: i64 = 64;

/// The programs whose values a line holds.
#[derive(Clone, Copy)]
pub(super) enum Programs<'p> {
    /// A step like all before it, which the exact solution goes through.
    Alike(&'p StageProgram),
    /// All from the beginning, oldest first.
    First(&'p [StageProgram]),
}

impl<'p> Programs<'p> {
    /// The program so many steps before the newest one.
    fn at(self, ago: i64) -> Option<&'p StageProgram> {
        match self {
            Programs::Alike(program) => Some(program),
            Programs::First(all) => {
                let back = usize::try_from(ago).ok()?;
                all.get(all.len().checked_sub(back + 1)?)
            }
        }
    }

    /// What made the state that a program begins with.
    fn before(self, ago: i64) -> Option<&'p StageProgram> {
        match self {
            Programs::Alike(_) => None,
            Programs::First(_) => self.at(ago + 1),
        }
    }
}

/// A field of a line.
pub(super) struct Named {
    pub leaf: String,
    usage: usize,
    shown: String,
}

impl Named {
    pub fn alone(name: String) -> Named {
        Named {
            leaf: name.clone(),
            usage: 0,
            shown: name,
        }
    }
}

/// A line being made. Values are kept at some distance from the step: `(value, steps ago)`.
pub(super) struct Walk<'p, R: Reading> {
    programs: Programs<'p>,
    reading: &'p R,
    reach: i64,
    per_use: &'p PerUse,
    body: Span,
    pub fields: Vec<Named>,
    known: BTreeMap<(ValueId, i64), Value>,
    pub steps: Vec<Step<R::Number, R::Past>>,
    /// Of each value.
    spans: Vec<Span>,
    /// What each value of the line must be divided by, as a power of h, to be what the program has. `None`: it is 0, or nothing but
    /// incoming values of which that is not known.
    pub powers: Vec<Option<i32>>,
    /// Evaluations without what they are evaluated at.
    open: VecDeque<(Value, ValueId, i64)>,
}

impl<'p, R: Reading> Walk<'p, R> {
    /// `body`: what is blamed where nothing nearer can be.
    pub fn new(
        programs: Programs<'p>,
        reading: &'p R,
        per_use: &'p PerUse,
        body: Span,
    ) -> Walk<'p, R> {
        Walk {
            programs,
            reading,
            reach: 0,
            per_use,
            body,
            fields: Vec::new(),
            known: BTreeMap::new(),
            steps: Vec::new(),
            spans: vec![body],
            powers: vec![Some(0)],
            open: VecDeque::new(),
        }
    }

    /// The line of what was walked over.
    pub fn line(self, result: Value, embedded: Option<Value>) -> LocatedStep<R::Number, R::Past> {
        LocatedStep {
            line: LinearStep {
                fields: self.fields.into_iter().map(|f| f.shown).collect(),
                steps: self.steps,
                result,
                embedded,
            },
            reach: self.reach,
            spans: self.spans,
        }
    }

    /// An evaluation before what it is evaluated at, which [`Self::close`] finds; nothing for another value, or for one that is there.
    pub fn open(&mut self, v: ValueId, ago: i64) -> Result<(), Unsupported> {
        let Some(StageInstr::Eval {
            field,
            usage,
            at,
            span,
            ..
        }) = self.instr(v, ago)
        else {
            return Ok(());
        };
        if self.known.contains_key(&(v, ago)) {
            return Ok(());
        }
        let at = self.argument(at, *span)?;
        let field = self.field(*field, *usage, ago);
        let made = self.push(Step::Eval { field, at: 0 }, *span, Some(1))?;
        self.known.insert((v, ago), made);
        self.open.push_back((made, at, ago));
        Ok(())
    }

    /// Finds what is evaluated at where that was left open.
    pub fn close(&mut self) -> Result<(), Unsupported> {
        while let Some((made, of, ago)) = self.open.pop_front() {
            let v = self.value(of, ago)?;
            self.evaluable(v, self.spans[made])?;
            if let Step::Eval { at, .. } = &mut self.steps[made - 1] {
                *at = v;
            }
        }
        Ok(())
    }

    /// What a program keeps of a name.
    pub fn kept(&self, name: &str, ago: i64) -> Option<ValueId> {
        let mut kept = self.programs.at(ago)?.keeps.iter();
        kept.find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    /// Whether a value is 0, which has any power of h.
    pub fn is_zero(&self, v: Value) -> bool {
        let step = v.checked_sub(1).map(|i| &self.steps[i]);
        matches!(step, Some(Step::Combine(terms)) if terms.is_empty())
    }

    /// The evaluations that are known, in the order of their program.
    pub fn evaluations(&self) -> Vec<ValueId> {
        let known = self.known.iter();
        let evals = known.filter(|(_, made)| {
            let step = made.checked_sub(1).map(|i| &self.steps[i]);
            matches!(step, Some(Step::Eval { .. }))
        });
        evals.map(|((v, _), _)| *v).collect()
    }

    fn beyond<T>(&self, span: Span, why: &str) -> Result<T, Unsupported> {
        Err(Unsupported::at(span, why))
    }

    fn argument(&self, at: &[ValueId], span: Span) -> Result<ValueId, Unsupported> {
        match at {
            [at] => Ok(*at),
            _ => self.beyond(span, SEVERAL),
        }
    }

    fn evaluable(&self, at: Value, span: Span) -> Result<(), Unsupported> {
        match self.powers[at] {
            None | Some(0) => Ok(()),
            Some(_) => self.beyond(span, RATE),
        }
    }

    fn push(
        &mut self,
        step: Step<R::Number, R::Past>,
        span: Span,
        power: Option<i32>,
    ) -> Result<Value, Unsupported> {
        if self.steps.len() == MAX_VALUES {
            return self.beyond(self.body, TOO_LONG);
        }
        self.steps.push(step);
        self.spans.push(span);
        self.powers.push(power);
        Ok(self.steps.len())
    }

    /// A combination that is a state.
    pub fn state(&mut self, c: &Combination, ago: i64) -> Result<Value, Unsupported> {
        let v = match c.as_value() {
            Some(v) => self.value(v, ago)?,
            None => self.combined(c, ago)?,
        };
        match self.powers[v] {
            None | Some(0) => Ok(v),
            Some(_) => self.beyond(self.spans[v], NO_STATE),
        }
    }

    /// A value, and before it those that it is made of: chains may be thousands of values long, so without recursion.
    pub fn value(&mut self, v: ValueId, ago: i64) -> Result<Value, Unsupported> {
        let mut open = vec![(v, ago)];
        while let Some(&(v, ago)) = open.last() {
            if !self.known.contains_key(&(v, ago)) {
                let before = open.len();
                let needs = self.needs(v, ago).into_iter().rev();
                open.extend(needs.filter(|n| !self.known.contains_key(n)));
                if open.len() > before {
                    continue;
                }
                let made = self.made(v, ago)?;
                self.known.insert((v, ago), made);
            }
            open.pop();
        }
        Ok(self.known[&(v, ago)])
    }

    fn instr(&self, v: ValueId, ago: i64) -> Option<&'p StageInstr> {
        let i = (v.0 as usize).checked_sub(1)?;
        let program = self.programs.at(ago)?;
        let own = program.instrs.len();
        Some(match &program.embedded {
            Some(e) if i >= own => &e.instrs[i - own],
            _ => &program.instrs[i],
        })
    }

    /// `c·hⁿ` in the step so many steps ago.
    fn monomial(&self, c: &Coeff, span: Span, ago: i64) -> Result<(R::Number, i32), Unsupported> {
        match self.programs.at(ago) {
            Some(program) => {
                let settled = self.reading.settled(program, c);
                monomial(self.reading, &settled, span, ago)
            }
            None => monomial(self.reading, c, span, ago),
        }
    }

    /// The values in a combination whose coefficients are not 0.
    fn read(&self, c: &Combination, ago: i64) -> Vec<(ValueId, i64)> {
        let is_zero = |c: &Coeff| {
            let value = self.monomial(c, self.body, ago);
            value.is_ok_and(|(c, _)| self.reading.is_zero(&c))
        };
        let terms = c.terms().filter(|(_, c)| !is_zero(c));
        terms.map(|(v, _)| (v, ago)).collect()
    }

    /// What an earlier step keeps of a name, and how long ago that was.
    fn earlier(&self, name: &str, when: &Moment, ago: i64) -> Option<(ValueId, i64)> {
        let Moment::Ago(n) = when else { return None };
        let then = ago + *n as i64;
        Some((self.kept(name, then)?, then))
    }

    /// The values that [`Self::made`] asks for, in its order.
    fn needs(&self, v: ValueId, ago: i64) -> Vec<(ValueId, i64)> {
        match self.instr(v, ago) {
            _ if ago > MAX_PAST => vec![],
            None => match self.programs.before(ago) {
                Some(before) => self.read(&before.result, ago + 1),
                None => vec![],
            },
            Some(StageInstr::Combine(c)) => self.read(c, ago),
            // Evaluations at the unknown come after it.
            Some(StageInstr::Unknown(u)) => {
                let mut all = u.sum().map_or(vec![], |sum| self.read(sum, ago));
                all.retain(|(v, _)| !matches!(self.instr(*v, ago), Some(StageInstr::Eval { .. })));
                all
            }
            Some(StageInstr::Eval { at, .. }) if at.len() == 1 => vec![(at[0], ago)],
            Some(StageInstr::Flow { at, .. } | StageInstr::Phi { at, .. }) => vec![(*at, ago)],
            Some(StageInstr::Past { name, when }) => {
                let mut all: Vec<_> = self.earlier(name, when, ago).into_iter().collect();
                all.retain(|(_, then)| self.reading.past(name, *then).is_none());
                all
            }
            _ => vec![],
        }
    }
}
