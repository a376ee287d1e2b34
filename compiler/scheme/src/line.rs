//! Stage programs as lines of numbers: what `odec-numerics` proves things about.
//!
//! Takes a flow; runs it as a step far from the start of an evolution, with learned coefficients at their initial values;
//! gives a [`Line`]. Past values become those that a step on the exact solution would have made, on equal steps or on a given
//! grid. The first steps, as they are computed, are one line together. What lies outside of it is a sentence with a place
//! ([`Beyond`]). Leaves proofs to `odec-numerics`.

use super::define::Body;
use super::flow::{Field, Flow, FlowArgKind};
use super::per_use::SHARED;
use super::run::{At, MAX_TOTAL, Run, run};
use super::stage::{Instr, Moment, Phase, Program, Steps, Unknown};
use super::{Coeff, Combination, PerUse, ValueId};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_numerics::line::{MAX_TERMS, NoTableau, Step, Value};
use odec_numerics::series::Number;
use odec_numerics::{Line, Tableau};
use std::collections::{BTreeMap, VecDeque};

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

/// What no tableau has.
pub const FUNCTION: &str = "its coefficients are functions of a linear field";
const SEVERAL: &str = "it evaluates a field of several states";
const RATE: &str = "it evaluates a field at a rate, not at a state";
/// What a step program does that forgets `h`.
pub const DIFFERENT_POWERS: &str = "it adds what depends on `h` in different powers";

/// A line, and where its values are written.
#[derive(Clone, Debug)]
pub struct Placed<C = Exact> {
    pub line: Line<C>,
    /// How many steps back it looks.
    pub reach: i64,
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

    /// What gives the second result, where there is one.
    pub fn partner(&self) -> Option<Placed> {
        let mut partner = self.clone();
        partner.line.result = partner.line.embedded.take()?;
        Some(partner)
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
            NoTableau::Phi(v) => (v, FUNCTION.to_string()),
            NoTableau::History(v) => (v, "it uses values of earlier steps".to_string()),
            NoTableau::State(v, c) => (
                v,
                format!("it takes {c} of the old state where a method of one step takes 1"),
            ),
            NoTableau::Large(v, terms) => (
                v,
                format!("its tableau would have {terms} terms, and {MAX_TERMS} is the limit"),
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

/// The line of step `k` of an evolution whose steps have these sizes; `None`: it looks back farther than to the first one.
pub fn placed_in(
    flow: &Flow,
    k: usize,
    sizes: &[Exact],
    per_use: &PerUse,
) -> Result<Option<Placed>, Beyond> {
    let whole = (sizes.len(), sizes);
    let program = at(
        flow,
        Phase::Step(k),
        whole,
        (Steps::Euler, per_use),
        MAX_TOTAL,
    )?
    .program;
    let own = sizes[k].recip().map_err(|why| Beyond {
        span: flow.span,
        why: format!("of the size of step {k}: {why}"),
    })?;
    let ratio = |ago: i64| match k.checked_sub(ago as usize) {
        Some(before) => &sizes[before] * &own,
        None => Exact::one(),
    };
    let known = |c: &Coeff, _| at_start(&program, c);
    let placed = placed_on(flow, &program, per_use, &known, &ratio)?;
    Ok((placed.reach <= k as i64).then_some(placed))
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
pub fn program_span(flow: &Flow) -> Span {
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
    let equal = |_| C::exact(&Exact::one());
    placed_on(flow, program, per_use, known, &equal)
}

/// The same on any grid: `ratio` gives the size of a step so many steps ago, over that of the step that is looked at.
pub fn placed_on<C: Number>(
    flow: &Flow,
    program: &Program,
    per_use: &PerUse,
    known: &dyn Fn(&Coeff, i64) -> Option<C>,
    ratio: &dyn Fn(i64) -> C,
) -> Result<Placed<C>, Beyond> {
    let mut made = Made::new(flow, Programs::Alike(program), per_use, known, ratio);
    let result = made.state(&program.result, 0)?;
    let embedded = match &program.embedded {
        Some(e) => Some(made.state(&e.result, 0)?),
        None => None,
    };
    made.close()?;
    // A field that is never evaluated belongs to the equation all the same.
    for name in leaves(flow) {
        let evaluated = |f: &Named| f.leaf == name;
        if !made.fields.iter().any(evaluated) {
            made.fields.push(Named::alone(name));
        }
    }
    let line = Line {
        fields: made.fields.into_iter().map(|f| f.shown).collect(),
        steps: made.steps,
        result,
        embedded,
    };
    Ok(Placed {
        line,
        reach: made.reach,
        spans: made.spans,
    })
}

/// The first steps as one line, which ends with the state after them, and in it what later steps read.
pub struct FirstSteps {
    pub line: Line,
    /// The state, then the values that were asked for; `None`: it is 0.
    pub ends: Vec<Option<Value>>,
}

/// What a name was so many steps ago, as a power of h more than what the program has; `None`: any.
pub type Asked = (String, usize, Option<i32>);

/// `programs`: all from the first one; `fields`: those that later steps evaluate.
pub fn first_steps(
    flow: &Flow,
    programs: &[Program],
    fields: &[String],
    asked: &[Asked],
) -> Result<FirstSteps, Beyond> {
    let known = |c: &Coeff, ago: i64| {
        let program = programs.len().checked_sub(ago as usize + 1)?;
        at_start(&programs[program], c)
    };
    let equal = |_| Exact::one();
    let mut made = Made::new(flow, Programs::First(programs), &SHARED, &known, &equal);
    made.fields = fields.iter().cloned().map(Named::alone).collect();
    let result = made.value(ValueId::STATE, -1)?;
    let mut ends = vec![Some(result)];
    for (name, steps, power) in asked {
        let ago = *steps as i64 - 1;
        let Some(kept) = made.kept(name, ago) else {
            ends.push(None);
            continue;
        };
        let v = made.value(kept, ago)?;
        if made.is_zero(v) {
            ends.push(None);
            continue;
        }
        if power.is_some_and(|p| p != made.powers[v]) {
            return made.beyond(made.body, DIFFERENT_POWERS);
        }
        ends.push(Some(v));
    }
    made.close()?;
    if made.fields.len() > fields.len() {
        return made.beyond(
            made.body,
            "its first steps evaluate a field that later ones do not",
        );
    }
    let line = Line {
        fields: fields.to_vec(),
        steps: made.steps,
        result,
        embedded: None,
    };
    Ok(FirstSteps { line, ends })
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
pub struct Late {
    pub here: Program,
    pub next: Option<Program>,
    /// What to say where the difference matters.
    pub grows: Beyond,
}

/// One step of a flow by itself, or its start.
fn at(
    flow: &Flow,
    phase: Phase,
    (steps, sizes): (usize, &[Exact]),
    how: (Steps, &PerUse),
    budget: u64,
) -> Result<Run, Beyond> {
    let (inner, per_use) = how;
    let mut sink: Vec<Diagnostic> = Vec::new();
    let at = At {
        phase,
        steps,
        sizes,
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
        sizes: &[],
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

/// Why the iterations that are computed do not reach the solution that a late step is judged by.
pub fn away(flow: &Flow) -> Option<Beyond> {
    let late = late(flow, Steps::Euler, &SHARED).ok()?;
    late.here.instrs.iter().find_map(|i| match i {
        Instr::Unknown(Unknown::Solved {
            away: Some(why),
            span,
            ..
        }) => Some(Beyond {
            span: *span,
            why: why.clone(),
        }),
        _ => None,
    })
}

/// A step that finds all the history it reads.
pub fn late(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<Late, Beyond> {
    let mut k = match &flow.scheme.body {
        Body::Multistep(m) => LATE.max(m.steps()),
        _ => LATE,
    };
    let how = (inner, per_use);
    let mut here = at(flow, Phase::Step(k), (k + 2, &[]), how, MAX_TOTAL)?;
    while here.short {
        k *= 2;
        if k > LATEST {
            return Err(Beyond {
                span: program_span(flow),
                why: format!("it reads values of more than {LATEST} steps ago"),
            });
        }
        here = at(flow, Phase::Step(k), (k + 2, &[]), how, MAX_TOTAL)?;
    }
    let mut next = None;
    if here.varies && !flow.scheme.history.past.is_empty() {
        let after = at(flow, Phase::Step(k + 1), (k + 2, &[]), how, MAX_TOTAL)?.program;
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
pub fn short_steps(flow: &Flow) -> usize {
    let mut budget = MAX_TOTAL;
    let short = |k: &usize| {
        let phase = Phase::Step(*k);
        at(flow, phase, (LATEST, &[]), (Steps::Euler, &SHARED), budget).is_ok_and(|r| {
            budget = budget.saturating_sub(r.work);
            r.short
        })
    };
    match &flow.scheme.body {
        Body::Multistep(m) => m.steps().saturating_sub(1),
        _ => (0..LATEST).take_while(short).count(),
    }
}

/// The programs from the start of an evolution up to the first step that `usual` is true of, which is left out.
pub fn first_programs(
    flow: &Flow,
    usual: &dyn Fn(&Program) -> bool,
) -> Result<Vec<Program>, Beyond> {
    let mut budget = MAX_TOTAL;
    let mut one = |phase| {
        let done = at(flow, phase, (LATEST, &[]), (Steps::Euler, &SHARED), budget)?;
        budget = budget.saturating_sub(done.work);
        Ok(done)
    };
    let mut all = Vec::new();
    if flow.scheme.start.is_some() {
        all.push(one(Phase::Start)?.program);
    }
    for k in 0..=LATE {
        let done = one(Phase::Step(k))?;
        if !done.short && usual(&done.program) {
            return Ok(all);
        }
        all.push(done.program);
    }
    Err(Beyond {
        span: flow.scheme.name.span,
        why: format!("its first {LATE} steps differ from later ones"),
    })
}

/// `c·hⁿ`.
pub fn coefficient<C: Number>(
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

/// The programs whose values a line holds.
#[derive(Clone, Copy)]
enum Programs<'p> {
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
struct Named {
    leaf: String,
    usage: usize,
    shown: String,
}

impl Named {
    fn alone(name: String) -> Named {
        Named {
            leaf: name.clone(),
            usage: 0,
            shown: name,
        }
    }
}

/// A line being made. Values are kept at some distance from the step: `(value, steps ago)`.
struct Made<'p, C> {
    programs: Programs<'p>,
    coefficients: &'p dyn Fn(&Coeff, i64) -> Option<C>,
    ratio: &'p dyn Fn(i64) -> C,
    reach: i64,
    per_use: &'p PerUse,
    body: Span,
    fields: Vec<Named>,
    known: BTreeMap<(ValueId, i64), Value>,
    steps: Vec<Step<C>>,
    /// Of each value.
    spans: Vec<Span>,
    /// What each value of the line must be divided by, as a power of h, to be what the program has.
    powers: Vec<i32>,
    /// Evaluations without what they are evaluated at.
    open: VecDeque<(Value, ValueId, i64)>,
}

impl<'p, C: Number> Made<'p, C> {
    fn new(
        flow: &Flow,
        programs: Programs<'p>,
        per_use: &'p PerUse,
        coefficients: &'p dyn Fn(&Coeff, i64) -> Option<C>,
        ratio: &'p dyn Fn(i64) -> C,
    ) -> Self {
        Made {
            programs,
            coefficients,
            ratio,
            reach: 0,
            per_use,
            body: program_span(flow),
            fields: Vec::new(),
            known: BTreeMap::new(),
            steps: Vec::new(),
            spans: vec![program_span(flow)],
            powers: vec![0],
            open: VecDeque::new(),
        }
    }

    /// The solution of an equation: evaluations in it are made first, and what they are evaluated at in [`Self::close`].
    fn solution(&mut self, sum: &Combination, ago: i64) -> Result<Value, Beyond> {
        for (v, _) in self.read(sum, ago) {
            let Some(Instr::Eval {
                field,
                usage,
                at,
                span,
                ..
            }) = self.instr(v, ago)
            else {
                continue;
            };
            if self.known.contains_key(&(v, ago)) {
                continue;
            }
            let [at] = at[..] else {
                return self.beyond(*span, SEVERAL);
            };
            let field = self.field(*field, *usage, ago);
            let made = self.push(Step::Eval { field, at: 0 }, *span, 1)?;
            self.known.insert((v, ago), made);
            self.open.push_back((made, at, ago));
        }
        self.combined(sum, ago)
    }

    /// Finds what is evaluated at unknowns.
    fn close(&mut self) -> Result<(), Beyond> {
        while let Some((made, of, ago)) = self.open.pop_front() {
            let v = self.value(of, ago)?;
            if self.powers[v] != 0 {
                return self.beyond(self.spans[made], RATE);
            }
            if let Step::Eval { at, .. } = &mut self.steps[made - 1] {
                *at = v;
            }
        }
        Ok(())
    }

    /// What a program keeps of a name.
    fn kept(&self, name: &str, ago: i64) -> Option<ValueId> {
        let mut kept = self.programs.at(ago)?.keeps.iter();
        kept.find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    /// Whether a value is 0, which has any power of h.
    fn is_zero(&self, v: Value) -> bool {
        let step = v.checked_sub(1).map(|i| &self.steps[i]);
        matches!(step, Some(Step::Combine(terms)) if terms.is_empty())
    }

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
            let value = self.coefficient(c, self.body, ago);
            value.is_ok_and(|(c, _)| c.is_zero())
        };
        let terms = c.terms().filter(|(_, c)| !is_zero(c));
        terms.map(|(v, _)| (v, ago)).collect()
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
            Some(Instr::Past {
                name,
                when: Moment::Ago(n),
            }) => {
                let ago = ago + *n as i64;
                self.kept(name, ago).map(|v| (v, ago)).into_iter().collect()
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
        self.reach = self.reach.max(ago);
        let Some(instr) = self.instr(v, ago) else {
            return match (self.programs, self.programs.before(ago)) {
                (_, Some(before)) => self.state(&before.result, ago + 1),
                (Programs::Alike(_), None) if ago > 0 => {
                    self.push(Step::Solution(self.before(ago)), self.body, 0)
                }
                (_, None) => Ok(0),
            };
        };
        match instr {
            Instr::Combine(c) => self.combined(c, ago),
            Instr::Unknown(Unknown::Without { why, span }) => self.beyond(*span, why),
            Instr::Unknown(Unknown::Solved { sum, .. }) => self.solution(sum, ago),
            Instr::Eval {
                field,
                usage,
                at,
                span,
                ..
            } => {
                let [at] = at[..] else {
                    return self.beyond(*span, SEVERAL);
                };
                let at = self.value(at, ago)?;
                if self.powers[at] != 0 {
                    return self.beyond(*span, RATE);
                }
                let field = self.field(*field, *usage, ago);
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
                let field = self.field(*field, 0, ago);
                let flow = Step::Flow {
                    field,
                    at,
                    fraction,
                };
                self.push(flow, *span, 0)
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
                let (over, power) = self.coefficient(over, *span, ago)?;
                if power != 1 && !over.is_zero() {
                    return self.beyond(
                        *span,
                        "a function of a linear field needs a multiple of `h`",
                    );
                }
                let field = self.field(*field, 0, ago);
                let power = self.powers[at];
                let phi = Step::Phi {
                    field,
                    index: *index,
                    over,
                    at,
                };
                self.push(phi, *span, power)
            }
            Instr::Past { name, when } => {
                let then = match when {
                    Moment::Ago(n) => Some(ago + *n as i64),
                    Moment::Start => None,
                };
                match then.and_then(|then| Some((self.kept(name, then)?, then))) {
                    Some((v, then)) => self.value(v, then),
                    None => {
                        self.beyond(self.body, "it uses a value from the start of the evolution")
                    }
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
        let (mut terms, mut degree): (Vec<(Value, C)>, Option<i32>) = (Vec::new(), None);
        for (v, c) in c.terms() {
            let (c, power) = self.coefficient(c, self.body, ago)?;
            if c.is_zero() {
                continue;
            }
            let v = self.value(v, ago)?;
            if self.is_zero(v) {
                continue;
            }
            let span = self.spans[v];
            let own = power - self.powers[v];
            if *degree.get_or_insert(own) != own {
                return self.beyond(span, DIFFERENT_POWERS);
            }
            terms.push((v, c));
        }
        self.push(Step::Combine(terms), self.body, -degree.unwrap_or(0))
    }

    /// In a step so many steps ago, h was another one.
    fn coefficient(&self, c: &Coeff, span: Span, ago: i64) -> Result<(C, i32), Beyond> {
        let (c, power) = coefficient(c, span, &|c| (self.coefficients)(c, ago))?;
        let ratio = (self.ratio)(ago);
        let scaled = (0..power).fold(c, |product, _| product.times(&ratio));
        Ok((scaled, power))
    }

    /// When the step so many steps ago began.
    fn before(&self, ago: i64) -> C {
        let less = C::exact(&Exact::int(-1));
        let each = (1..=ago).map(|n| (self.ratio)(n).times(&less));
        each.fold(C::exact(&Exact::zero()), |sum, h| sum.plus(&h))
    }
}
