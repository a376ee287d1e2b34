//! The walk over stage programs that every method is read from: each instruction becomes one value of a [`Line`].
//!
//! Takes a program, or the first ones of an evolution, and a [`Reading`] of its coefficients. Divides out h: each value
//! has a power of it, known or open. Makes what is asked for and what that needs; an evaluation may be made before its
//! argument, as in implicit stages. Leaves sums over evaluations to `odec_numerics::line`.

use super::super::stage::{Instr, Moment, Program, Unknown};
use super::super::{Coeff, Combination, PerUse, ValueId};
use super::reading::{Reading, monomial};
use super::refusal::{
    ALL_EARLIER, Beyond, DIFFERENT_POWERS, FROM_START, NO_STATE, OTHER_MULTIPLE, OTHER_TIME,
    PRODUCT, PROJECTION, RANDOM, RATE, SEVERAL, TOLERANCE, TOO_LONG,
};
use super::{MAX_VALUES, Placed};
use odec_grammar::Span;
use odec_numerics::Line;
use odec_numerics::line::{Step, Value};
use std::collections::{BTreeMap, VecDeque};

/// How many steps a value may reach back.
const MAX_PAST: i64 = 64;

/// The programs whose values a line holds.
#[derive(Clone, Copy)]
pub(super) enum Programs<'p> {
    /// A step like all before it, which the exact solution goes through.
    Alike(&'p Program),
    /// All from the beginning, oldest first.
    First(&'p [Program]),
}

impl<'p> Programs<'p> {
    /// The program so many steps before the newest one.
    fn at(self, ago: i64) -> Option<&'p Program> {
        match self {
            Programs::Alike(program) => Some(program),
            Programs::First(all) => {
                let back = usize::try_from(ago).ok()?;
                all.get(all.len().checked_sub(back + 1)?)
            }
        }
    }

    /// What made the state that a program begins with.
    fn before(self, ago: i64) -> Option<&'p Program> {
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
    pub body: Span,
    pub fields: Vec<Named>,
    known: BTreeMap<(ValueId, i64), Value>,
    pub steps: Vec<Step<R::Number, R::Past>>,
    /// Of each value.
    pub spans: Vec<Span>,
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
    pub fn line(self, result: Value, embedded: Option<Value>) -> Placed<R::Number, R::Past> {
        Placed {
            line: Line {
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
    pub fn open(&mut self, v: ValueId, ago: i64) -> Result<(), Beyond> {
        let Some(Instr::Eval {
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
    pub fn close(&mut self) -> Result<(), Beyond> {
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

    pub fn beyond<T>(&self, span: Span, why: &str) -> Result<T, Beyond> {
        Err(Beyond::at(span, why))
    }

    fn argument(&self, at: &[ValueId], span: Span) -> Result<ValueId, Beyond> {
        match at {
            [at] => Ok(*at),
            _ => self.beyond(span, SEVERAL),
        }
    }

    fn evaluable(&self, at: Value, span: Span) -> Result<(), Beyond> {
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
    ) -> Result<Value, Beyond> {
        if self.steps.len() == MAX_VALUES {
            return self.beyond(self.body, TOO_LONG);
        }
        self.steps.push(step);
        self.spans.push(span);
        self.powers.push(power);
        Ok(self.steps.len())
    }

    /// A combination that is a state.
    pub fn state(&mut self, c: &Combination, ago: i64) -> Result<Value, Beyond> {
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
    pub fn value(&mut self, v: ValueId, ago: i64) -> Result<Value, Beyond> {
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

    fn instr(&self, v: ValueId, ago: i64) -> Option<&'p Instr> {
        let i = (v.0 as usize).checked_sub(1)?;
        let program = self.programs.at(ago)?;
        let own = program.instrs.len();
        Some(match &program.embedded {
            Some(e) if i >= own => &e.instrs[i - own],
            _ => &program.instrs[i],
        })
    }

    /// The values in a combination whose coefficients are not 0.
    fn read(&self, c: &Combination, ago: i64) -> Vec<(ValueId, i64)> {
        let is_zero = |c: &Coeff| {
            let value = monomial(self.reading, c, self.body, ago);
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
            Some(Instr::Combine(c)) => self.read(c, ago),
            // Evaluations at the unknown come after it.
            Some(Instr::Unknown(u)) => {
                let mut all = u.sum().map_or(vec![], |sum| self.read(sum, ago));
                all.retain(|(v, _)| !matches!(self.instr(*v, ago), Some(Instr::Eval { .. })));
                all
            }
            Some(Instr::Eval { at, .. }) if at.len() == 1 => vec![(at[0], ago)],
            Some(Instr::Flow { at, .. } | Instr::Phi { at, .. }) => vec![(*at, ago)],
            Some(Instr::Past { name, when }) => {
                let mut all: Vec<_> = self.earlier(name, when, ago).into_iter().collect();
                all.retain(|(_, then)| self.reading.past(name, *then).is_none());
                all
            }
            _ => vec![],
        }
    }

    fn made(&mut self, v: ValueId, ago: i64) -> Result<Value, Beyond> {
        if ago > MAX_PAST {
            return self.beyond(self.body, ALL_EARLIER);
        }
        self.reach = self.reach.max(ago);
        let Some(instr) = self.instr(v, ago) else {
            return self.start(ago);
        };
        match instr {
            Instr::Combine(c) => self.combined(c, ago),
            Instr::Unknown(Unknown::Without { why, span }) => self.beyond(*span, why),
            Instr::Unknown(Unknown::Solved { sum, .. }) => {
                // Evaluations at the unknown are made first.
                for (v, _) in self.read(sum, ago) {
                    self.open(v, ago)?;
                }
                self.combined(sum, ago)
            }
            Instr::Eval {
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
            Instr::Flow {
                field,
                at,
                over,
                span,
            } => {
                let at = self.value(*at, ago)?;
                let (fraction, power) = monomial(self.reading, over, *span, ago)?;
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
            Instr::Phi {
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
                let (over, power) = monomial(self.reading, over, *span, ago)?;
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
            Instr::Past { name, when } => self.past(name, when, ago),
            Instr::Mix { .. } | Instr::Stop(_) | Instr::Solution { .. } => {
                self.beyond(self.body, TOLERANCE)
            }
            Instr::Product(_) => self.beyond(self.body, PRODUCT),
            Instr::Normal { .. } => self.beyond(self.body, RANDOM),
            Instr::Project { .. } => self.beyond(self.body, PROJECTION),
        }
    }

    /// The state that a step begins with.
    fn start(&mut self, ago: i64) -> Result<Value, Beyond> {
        match (self.programs, self.programs.before(ago)) {
            (_, Some(before)) => self.state(&before.result, ago + 1),
            (Programs::Alike(_), None) if ago > 0 => match self.reading.state_before(ago) {
                Some(state) => self.push(Step::Past(state), self.body, Some(0)),
                None => self.beyond(self.body, FROM_START),
            },
            (_, None) => Ok(0),
        }
    }

    fn past(&mut self, name: &str, when: &Moment, ago: i64) -> Result<Value, Beyond> {
        let Some((v, then)) = self.earlier(name, when, ago) else {
            return self.beyond(self.body, FROM_START);
        };
        match self.reading.past(name, then) {
            Some((past, power)) => self.push(Step::Past(past), self.body, power),
            None => self.value(v, then),
        }
    }

    fn field(&mut self, field: usize, usage: usize, ago: i64) -> usize {
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

    fn combined(&mut self, c: &Combination, ago: i64) -> Result<Value, Beyond> {
        let (mut terms, mut degree): (Vec<(Value, R::Number)>, Option<i32>) = (Vec::new(), None);
        for (v, c) in c.terms() {
            let (c, power) = monomial(self.reading, c, self.body, ago)?;
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
