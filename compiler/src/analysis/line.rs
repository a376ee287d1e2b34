//! Stage programs as lines of numbers: what `odec-numerics` proves things about.
//!
//! Takes a flow; runs it as a step far from the start of an evolution, with learned coefficients at their initial values;
//! gives a [`Line`]. Past values become those that a step on the exact solution would have made. What lies outside of it
//! is a sentence with a place ([`Beyond`]). Leaves proofs to `odec-numerics`.

use crate::scheme::define::Body;
use crate::scheme::flow::{Field, Flow, FlowArgKind};
use crate::scheme::per_use::SHARED;
use crate::scheme::run::{At, MAX_TOTAL, Run, run};
use crate::scheme::stage::{Instr, Moment, Phase, Program, Steps};
use crate::scheme::{Coeff, Combination, PerUse, ValueId};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_numerics::line::{NoTableau, Step, Value};
use odec_numerics::series::Number;
use odec_numerics::{Line, Tableau};
use std::collections::BTreeMap;

/// The step that is looked at, or a later one if a multistep method reaches back farther.
const LATE: usize = 24;
/// The latest one.
const LATEST: usize = 192;
/// How many steps a value may reach back.
const MAX_PAST: i64 = 64;
/// Most values of a line.
const MAX_VALUES: usize = 4096;

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq)]
pub struct Beyond {
    pub span: Span,
    /// One sentence without a full stop.
    pub why: String,
}

/// What a step program does that forgets `h`.
pub const DIFFERENT_POWERS: &str = "it adds what depends on `h` in different powers";

/// A line, and where its values are written.
#[derive(Clone, Debug)]
pub struct Placed<C = Exact> {
    pub line: Line<C>,
    spans: Vec<Span>,
}

impl<C> Placed<C> {
    /// Where a value is written.
    pub fn span(&self, value: Value) -> Span {
        self.spans[value]
    }
}

impl Placed {
    /// One stage for each evaluation.
    pub fn tableau(&self) -> Result<Tableau, Beyond> {
        self.line.tableau().map_err(|no| self.why_not(&no))
    }

    pub fn has_flows(&self) -> bool {
        let flow = |s: &Step| matches!(s, Step::Flow { .. });
        self.line.steps.iter().any(flow)
    }

    /// Where each evaluation is written, in the order of the tableau's stages.
    pub fn stages(&self) -> Vec<Span> {
        let steps = self.line.steps.iter().zip(&self.spans[1..]);
        let evals = steps.filter(|(s, _)| matches!(s, Step::Eval { .. }));
        evals.map(|(_, span)| *span).collect()
    }

    pub fn why_not(&self, no: &NoTableau) -> Beyond {
        let (value, why) = match no {
            NoTableau::Flow(v) => (v, "an exact flow has no stages".to_string()),
            NoTableau::History(v) => (v, "it uses values of earlier steps".to_string()),
            NoTableau::State(v, c) => (
                v,
                format!("it takes {c} of the old state where a method of one step takes 1"),
            ),
            NoTableau::Roots(v, why) => (v, format!("of its coefficients together: {why}")),
        };
        Beyond {
            span: self.spans[*value],
            why,
        }
    }
}

/// The line of a flow. `per_use`: fields each written occurrence of which is a field of its own.
pub fn placed(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<Placed, Beyond> {
    let late = late(flow, inner, per_use)?;
    let here = of_program(flow, &late.here, per_use);
    let Some(next) = &late.next else {
        return here;
    };
    // With learned coefficients at their start, steps may be alike all the same.
    match (here, of_program(flow, next, per_use)) {
        (Ok(here), Ok(next)) if here.line == next.line => Ok(here),
        _ => Err(late.grows),
    }
}

/// With learned coefficients at their start.
fn of_program(flow: &Flow, program: &Program, per_use: &PerUse) -> Result<Placed, Beyond> {
    placed_at(flow, program, per_use, &|c, _| at_start(program, c))
}

/// A coefficient where learned ones are at their start.
pub fn at_start(program: &Program, c: &Coeff) -> Option<Exact> {
    let start = |name: &str| {
        let mut learned = program.learned.iter();
        learned.find(|l| l.name == name).map(|l| l.init.clone())
    };
    c.at(&start)
}

/// Where a scheme says what a step is.
pub(super) fn program_span(flow: &Flow) -> Span {
    match &flow.scheme.body {
        Body::Tableau(t) => t.span,
        Body::Step(s) => s.span,
        Body::Multistep(m) => m.span,
        Body::Algebra(a) => a.term.span,
        Body::Splitting(_) | Body::LearnedFrom(_) | Body::Method(_) => flow.scheme.name.span,
    }
}

/// The line of a program, with what coefficients are in the step that is looked at, or in one so many steps before it.
pub fn placed_at<C: Number>(
    flow: &Flow,
    program: &Program,
    per_use: &PerUse,
    known: &dyn Fn(&Coeff, i64) -> Option<C>,
) -> Result<Placed<C>, Beyond> {
    let mut made = Made {
        program,
        coefficients: known,
        per_use,
        body: program_span(flow),
        fields: Vec::new(),
        known: BTreeMap::new(),
        steps: Vec::new(),
        spans: vec![program_span(flow)],
        powers: vec![0],
    };
    let result = made.state(&program.result, 0)?;
    let embedded = match &program.embedded {
        Some(e) => Some(made.state(&e.result, 0)?),
        None => None,
    };
    // A field that is never evaluated belongs to the equation all the same.
    for name in leaves(flow) {
        let evaluated = |f: &((usize, usize), String)| {
            let leaf = program.fields.get(f.0.0);
            leaf.is_some_and(|leaf| leaf.name == name)
        };
        if !made.fields.iter().any(evaluated) {
            made.fields.push(((usize::MAX, 0), name));
        }
    }
    let line = Line {
        fields: made.fields.into_iter().map(|(_, name)| name).collect(),
        steps: made.steps,
        result,
        embedded,
    };
    let spans = made.spans;
    Ok(Placed { line, spans })
}

/// Names of a flow's fields, each once.
fn leaves(flow: &Flow) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for arg in flow.args.iter().chain(&flow.list) {
        let more = match &arg.kind {
            FlowArgKind::Flow(inner) => leaves(inner),
            FlowArgKind::Field { field, .. } => match &**field {
                Field::Leaf(leaf) => vec![leaf.name.clone()],
                _ => Vec::new(),
            },
        };
        for name in more {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The stage program of a late step.
pub fn program(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<Program, Beyond> {
    let late = late(flow, inner, per_use)?;
    match late.next {
        Some(_) => Err(late.grows),
        None => Ok(late.here),
    }
}

/// The stage programs of a late step, and of the next one where it is another.
pub(super) struct Late {
    pub here: Program,
    pub next: Option<Program>,
    /// What to say where the difference matters.
    pub grows: Beyond,
}

/// One step of a flow by itself.
fn at(
    flow: &Flow,
    k: usize,
    steps: usize,
    how: (Steps, &PerUse),
    budget: u64,
) -> Result<Run, Beyond> {
    let (inner, per_use) = how;
    let mut sink: Vec<Diagnostic> = Vec::new();
    let at = At {
        phase: Phase::Step(k),
        steps,
        inner,
        solved: false,
        analysed: true,
        timed: false,
        per_use,
        budget,
    };
    let wrong = Beyond {
        span: flow.span,
        why: "it has no stage program".into(),
    };
    run(flow, at, &mut sink).ok_or(wrong)
}

/// The tolerance that a late step is solved to, if it is, and the step as it is computed. Everything else that is said of such a
/// step is said of the solution.
pub fn to_tolerance(flow: &Flow, per_use: &PerUse) -> Option<(Exact, Program)> {
    let k = match &flow.scheme.body {
        Body::Multistep(m) => LATE.max(m.steps()),
        _ => LATE,
    };
    let at = At {
        phase: Phase::Step(k),
        steps: k + 2,
        inner: Steps::Euler,
        solved: false,
        analysed: false,
        timed: false,
        per_use,
        budget: MAX_TOTAL,
    };
    let program = run(flow, at, &mut Vec::new())?.program;
    let tol = program.instrs.iter().find_map(|i| match i {
        Instr::Mix { mixing, .. } => Some(mixing.tol.clone()),
        _ => None,
    })?;
    Some((tol, program))
}

/// A step that finds all the history it reads.
pub(super) fn late(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<Late, Beyond> {
    let mut k = match &flow.scheme.body {
        Body::Multistep(m) => LATE.max(m.steps()),
        _ => LATE,
    };
    let how = (inner, per_use);
    let mut here = at(flow, k, k + 2, how, MAX_TOTAL)?;
    while here.short {
        k *= 2;
        if k > LATEST {
            return Err(Beyond {
                span: program_span(flow),
                why: format!("it reads values of more than {LATEST} steps ago"),
            });
        }
        here = at(flow, k, k + 2, how, MAX_TOTAL)?;
    }
    let mut next = None;
    if here.varies && !flow.scheme.history.past.is_empty() {
        let after = at(flow, k + 1, k + 2, how, MAX_TOTAL)?.program;
        let same = after.instrs == here.program.instrs && after.result == here.program.result;
        next = (!same).then_some(after);
    }
    Ok(Late {
        here: here.program,
        next,
        grows: Beyond {
            span: flow.scheme.name.span,
            why: "no two of its steps are alike, because its history grows".into(),
        },
    })
}

/// How many first steps of a flow find too short a history.
pub(super) fn short_steps(flow: &Flow) -> usize {
    let mut budget = MAX_TOTAL;
    let short = |k: &usize| {
        at(flow, *k, LATEST, (Steps::Euler, &SHARED), budget).is_ok_and(|r| {
            budget = budget.saturating_sub(r.work);
            r.short
        })
    };
    match &flow.scheme.body {
        Body::Multistep(m) => m.steps().saturating_sub(1),
        _ => (0..LATEST).take_while(short).count(),
    }
}

/// `c·hⁿ`.
pub(super) fn coefficient<C: Number>(
    c: &Coeff,
    span: Span,
    known: &dyn Fn(&Coeff) -> Option<C>,
) -> Result<(C, i32), Beyond> {
    let beyond = |why: &str| Beyond {
        span,
        why: why.to_string(),
    };
    let powers = c.in_powers_of("h").into_iter().enumerate();
    let mut found = (C::exact(&Exact::zero()), 0);
    for (n, c) in powers {
        if c.symbols().contains("t") {
            return Err(beyond("a coefficient depends on the time `t`"));
        }
        let Some(value) = known(&c) else {
            return Err(beyond("a coefficient has no exact value"));
        };
        match (value.is_zero(), found.0.is_zero()) {
            (true, _) => {}
            (false, true) => found = (value, n as i32),
            (false, false) => {
                return Err(beyond("a coefficient is no multiple of one power of `h`"));
            }
        }
    }
    Ok(found)
}

/// A line being made. Values are kept at some distance from the step: `(value, steps ago)`.
struct Made<'p, C> {
    program: &'p Program,
    coefficients: &'p dyn Fn(&Coeff, i64) -> Option<C>,
    per_use: &'p PerUse,
    body: Span,
    /// Field and usage, and the name.
    fields: Vec<((usize, usize), String)>,
    known: BTreeMap<(ValueId, i64), Value>,
    steps: Vec<Step<C>>,
    /// Of each value.
    spans: Vec<Span>,
    /// What each value of the line must be divided by, as a power of h, to be what the program has.
    powers: Vec<i32>,
}

impl<'p, C: Number> Made<'p, C> {
    fn beyond<T>(&self, span: Span, why: &str) -> Result<T, Beyond> {
        let why = why.to_string();
        Err(Beyond { span, why })
    }

    fn push(&mut self, step: Step<C>, span: Span, power: i32) -> Result<Value, Beyond> {
        if self.steps.len() == MAX_VALUES {
            return self.beyond(self.body, "it has too many values");
        }
        self.steps.push(step);
        self.spans.push(span);
        self.powers.push(power);
        Ok(self.steps.len())
    }

    /// A combination that is a state.
    fn state(&mut self, c: &Combination, ago: i64) -> Result<Value, Beyond> {
        let v = match c.as_value() {
            Some(v) => self.value(v, ago)?,
            None => self.combined(c, ago)?,
        };
        match self.powers[v] {
            0 => Ok(v),
            _ => self.beyond(
                self.spans[v],
                "its result is no state: `h` is missing, or too often there",
            ),
        }
    }

    /// A value, and before it those that it is made of: chains may be thousands of values long, so without recursion.
    fn value(&mut self, v: ValueId, ago: i64) -> Result<Value, Beyond> {
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

    fn instr(&self, v: ValueId) -> Option<&'p Instr> {
        let i = (v.0 as usize).checked_sub(1)?;
        let own = self.program.instrs.len();
        Some(match &self.program.embedded {
            Some(e) if i >= own => &e.instrs[i - own],
            _ => &self.program.instrs[i],
        })
    }

    /// The values that [`Self::made`] asks for, in its order.
    fn needs(&self, v: ValueId, ago: i64) -> Vec<(ValueId, i64)> {
        match self.instr(v) {
            _ if ago > MAX_PAST => vec![],
            Some(Instr::Combine(c)) => {
                let is_zero = |c: &Coeff| {
                    let value = self.coefficient(c, self.body, ago);
                    value.is_ok_and(|(c, _)| c.is_zero())
                };
                let terms = c.terms().filter(|(_, c)| !is_zero(c));
                terms.map(|(v, _)| (v, ago)).collect()
            }
            Some(Instr::Eval { at, .. }) if at.len() == 1 => vec![(at[0], ago)],
            Some(Instr::Flow { at, .. }) => vec![(*at, ago)],
            Some(Instr::Past {
                name,
                when: Moment::Ago(n),
            }) => {
                let kept = self.program.keeps.iter().find(|(k, _)| k == name);
                kept.map(|(_, v)| (*v, ago + *n as i64))
                    .into_iter()
                    .collect()
            }
            _ => vec![],
        }
    }

    fn made(&mut self, v: ValueId, ago: i64) -> Result<Value, Beyond> {
        if ago > MAX_PAST {
            return self.beyond(
                self.body,
                "what it keeps for later steps depends on all earlier ones",
            );
        }
        let Some(instr) = self.instr(v) else {
            return match ago {
                0 => Ok(0),
                _ => self.push(Step::Solution(-ago), self.body, 0),
            };
        };
        match instr {
            Instr::Combine(c) => self.combined(c, ago),
            Instr::Eval {
                field,
                usage,
                at,
                span,
                ..
            } => {
                let [at] = at[..] else {
                    return self.beyond(*span, "it evaluates a field of several states");
                };
                let at = self.value(at, ago)?;
                if self.powers[at] != 0 {
                    return self.beyond(*span, "it evaluates a field at a rate, not at a state");
                }
                let field = self.field(*field, *usage);
                self.push(Step::Eval { field, at }, *span, 1)
            }
            Instr::Flow {
                field,
                at,
                over,
                span,
            } => {
                let at = self.value(*at, ago)?;
                let (fraction, power) = self.coefficient(over, *span, ago)?;
                if self.powers[at] != 0 || (power != 1 && !fraction.is_zero()) {
                    return self.beyond(
                        *span,
                        "it follows a flow over another time than a part of `h`",
                    );
                }
                let field = self.field(*field, 0);
                let flow = Step::Flow {
                    field,
                    at,
                    fraction,
                };
                self.push(flow, *span, 0)
            }
            Instr::Past { name, when } => {
                let kept = self.program.keeps.iter().find(|(n, _)| n == name);
                match (when, kept) {
                    (Moment::Ago(n), Some((_, v))) => self.value(*v, ago + *n as i64),
                    _ => self.beyond(self.body, "it uses a value from the start of the evolution"),
                }
            }
            Instr::Mix { .. } | Instr::Stop(_) | Instr::Solution { .. } => {
                self.beyond(self.body, "it solves to a tolerance")
            }
            Instr::Product(_) => self.beyond(self.body, "it multiplies states"),
            Instr::Normal { .. } => self.beyond(self.body, "it starts at random"),
            Instr::Project { .. } => self.beyond(self.body, "it projects a state onto a set"),
        }
    }

    fn field(&mut self, field: usize, usage: usize) -> usize {
        let own = self.per_use.of(&self.program.fields[field].name);
        let usage = if own { usage } else { 0 };
        let key = (field, usage);
        if let Some(known) = self.fields.iter().position(|(k, _)| *k == key) {
            return known;
        }
        let mut name = self.program.fields[field].name.clone();
        if own && self.program.usages[field] > 1 {
            name += &format!(".{}", usage + 1);
        }
        self.fields.push((key, name));
        self.fields.len() - 1
    }

    fn combined(&mut self, c: &Combination, ago: i64) -> Result<Value, Beyond> {
        let (mut terms, mut degree): (Vec<(Value, C)>, Option<i32>) = (Vec::new(), None);
        for (v, c) in c.terms() {
            let (c, power) = self.coefficient(c, self.body, ago)?;
            if c.is_zero() {
                continue;
            }
            let v = self.value(v, ago)?;
            let span = self.spans[v];
            let own = power - self.powers[v];
            if *degree.get_or_insert(own) != own {
                return self.beyond(span, DIFFERENT_POWERS);
            }
            terms.push((v, c));
        }
        self.push(Step::Combine(terms), self.body, -degree.unwrap_or(0))
    }

    fn coefficient(&self, c: &Coeff, span: Span, ago: i64) -> Result<(C, i32), Beyond> {
        coefficient(c, span, &|c| (self.coefficients)(c, ago))
    }
}
