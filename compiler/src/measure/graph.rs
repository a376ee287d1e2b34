//! A method applied to a test equation of [`super::problem`], as a planned program in f64.
//!
//! Takes a flow on nameless fields and a step size; gives a [`Manifest`] whose entry `forward` maps the input `x` to the output `y`. A
//! one-step method becomes a program of one step, which is run repeatedly. A method with a history is unrolled, and its history starts
//! anew in each run. A field sees the time that the method evaluates it at, as those of models do, where it is known. Fields of second order
//! and linear ones see the time of the state. The caller runs it.

use super::problem::{Matrix, ONE, Problem, T, WIDTH};
use crate::model::BuildError;
use crate::model::coefficient::Coefficients;
use crate::model::step::{Evaluation, Fields, Function, Kept, Place};
use crate::passes::assemble::{AssembleError, ModelParts, Options, assemble};
use crate::scheme::per_use::SHARED;
use crate::scheme::run::Grid;
use crate::scheme::stage::{Derived, Phase, StageProgram};
use crate::scheme::unroll::{Unrolled, unroll};
use crate::scheme::{Coeff, Flow, StageInstr};
use odec_graph::ops::{Concat, Exp, Input, Mul, Parameter, Slice};
use odec_graph::{Builder, Exact, Graph, Site, TensorType, TypeError, Value, nn};
use odec_numerics::exponential::sums::over_factorial;
use odec_program::Bindings;
use odec_program::manifest::{Init, Manifest, Precision};
use std::collections::BTreeMap;
use std::rc::Rc;
use thiserror::Error;

/// What the state is called before and after a run.
pub const INPUT: &str = "x";
pub const OUTPUT: &str = "y";

/// Terms of the functions of linear fields.
const TERMS: u32 = 20;

/// Why a method cannot be measured.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MeasureError {
    #[error("{0}")]
    Scheme(String),
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Assemble(#[from] AssembleError),
}

/// A method that takes so many steps.
pub struct Planned {
    pub manifest: Manifest,
    pub problem: Problem,
    /// Values of its parameters.
    pub matrices: Vec<Matrix>,
    /// How often the program is to be run.
    pub runs: usize,
    /// Field evaluations of all runs.
    pub evaluations: usize,
}

/// Plans a method's programs. The method is unrolled once for all step sizes if each of its steps computes the same.
pub struct Stepper<'f> {
    flow: &'f Rc<Flow>,
    /// The method unrolled over two steps, if each step computes the same: then one step is planned, and run repeatedly.
    alike: Option<Unrolled>,
}

impl<'f> Stepper<'f> {
    pub fn new(flow: &'f Rc<Flow>) -> Stepper<'f> {
        let mut stepper = Stepper { flow, alike: None };
        let alone = |u: &Unrolled| {
            u.programs.len() == 1
                && u.start.is_none()
                && u.programs.iter().all(|p| p.keeps.is_empty())
        };
        stepper.alike = stepper.unrolled(2, &[]).ok().filter(alone);
        stepper
    }

    fn unrolled(&self, steps: usize, grid: &[Exact]) -> Result<Unrolled, MeasureError> {
        let flows = [(self.flow.clone(), self.flow.scheme.name.name.clone())];
        let mut sink = Vec::new();
        let span = self.flow.span;
        let grid = Grid {
            sizes: grid,
            learned: false,
        };
        let all = unroll(&flows, (steps, grid), true, &SHARED, span, &mut sink);
        all.ok_or_else(|| MeasureError::Scheme(message(&sink)))
    }

    /// The program that takes `steps` steps from time 0 to `until`, a numerator and a denominator.
    ///
    /// # Errors
    /// When the method is not made of combinations and evaluations of its fields.
    pub fn plan(
        &self,
        problem: Problem,
        steps: usize,
        until: (i64, i64),
        options: Options,
    ) -> Result<Planned, MeasureError> {
        let h = Exact::ratio(until.0, until.1 * steps as i64);
        self.plan_on(problem, &vec![h; steps], options)
    }

    /// The program that takes steps of these sizes from time 0.
    ///
    /// # Errors
    /// When the method is not made of combinations and evaluations of its fields.
    pub fn plan_on(
        &self,
        problem: Problem,
        sizes: &[Exact],
        options: Options,
    ) -> Result<Planned, MeasureError> {
        let equal = sizes.iter().all(|h| *h == sizes[0]);
        let grid = if equal { &[] } else { sizes };
        match &self.alike {
            Some(one) if equal => {
                let (runs, evaluations) = (sizes.len(), one.programs[0].evaluations());
                let runs = (runs, runs * evaluations);
                self.planned(one, problem, &sizes[..1], runs, options)
            }
            _ => {
                let all = self.unrolled(sizes.len(), grid)?;
                self.planned(&all, problem, sizes, (1, all.evaluations()), options)
            }
        }
    }

    /// The program that takes steps of these sizes, and how often it is run, with the evaluations of all runs.
    fn planned(
        &self,
        all: &Unrolled,
        problem: Problem,
        sizes: &[Exact],
        (runs, evaluations): (usize, usize),
        options: Options,
    ) -> Result<Planned, MeasureError> {
        let fields = fields(all);
        let graph = evolution(all, problem, sizes)?;
        let matrices = problem.matrices_of(&fields.values().copied().collect::<Vec<_>>());
        let params: Vec<Parameter> = matrices.iter().map(parameter).collect();
        let run = (Precision::F64, Bindings::new(1, 1));
        let name = &self.flow.scheme.name.name;
        let model = ModelParts::alone(name, &graph, &params, [1, WIDTH as u64], run);
        let manifest = assemble(&model, options)?.manifest;
        Ok(Planned {
            manifest,
            problem,
            matrices,
            runs,
            evaluations,
        })
    }
}

fn message(sink: &[odec_grammar::Diagnostic]) -> String {
    let first = sink.first().map(|d| d.message.clone());
    first.unwrap_or_else(|| "it cannot be unrolled".into())
}

/// Names of the fields of all programs, in order, and whether functions of them are applied.
pub fn fields(all: &Unrolled) -> BTreeMap<String, bool> {
    let mut known = BTreeMap::new();
    for p in &all.programs {
        for f in &p.fields {
            known.entry(f.name.clone()).or_insert(false);
        }
        for i in &p.instrs {
            if let StageInstr::Phi { field, .. } = i {
                known.insert(p.fields[*field].name.clone(), true);
            }
        }
    }
    known
}

fn parameter(m: &Matrix) -> Parameter {
    Parameter {
        path: m.path.clone(),
        shape: vec![m.rows as u64, m.cols() as u64],
        init: Init::Zeros,
    }
}

/// The field of the problem.
struct System<'p> {
    program: &'p StageProgram,
    /// What the step begins with, and numbers for symbols.
    start: Value,
    known: BTreeMap<String, Exact>,
    /// Whether the problem's time is that of evaluations.
    timed: bool,
    names: &'p [String],
    is_linear: &'p [bool],
    params: &'p BTreeMap<String, Value>,
}

impl System<'_> {
    fn times(&self, b: &mut Builder, path: &str, x: Value) -> Result<Value, TypeError> {
        let m = self.params.get(path).copied().ok_or_else(|| TypeError {
            op: "parameter",
            what: format!("`{path}` is not there"),
        })?;
        nn::linear(b, x, m)
    }

    /// An argument whose time is that of the evaluation: the time at the start, and as much of the column that is 1. So a distance is a coefficient,
    /// which a launch is given, and not a number in a kernel.
    fn at_time(&self, b: &mut Builder, x: Value, when: &Coeff) -> Result<Value, BuildError> {
        let missing = || BuildError::Missing(format!("the time {when}"));
        let ahead = when.sub(&Coeff::symbol("t")).map_err(|_| missing())?;
        let by = ahead.at(&|s| self.known.get(s).cloned());
        let by = by.ok_or_else(missing)?;
        if x == self.start && by.is_zero() {
            return Ok(x);
        }
        let (t, width) = (T as u64, WIDTH as u64);
        let slice = |b: &mut Builder, x, from, cols| b.push1(Slice { from, cols }, &[x]);
        let begin = slice(b, self.start, t, 1)?;
        let time = match by.is_zero() {
            true => begin,
            false => {
                let one = slice(b, self.start, ONE as u64, 1)?;
                nn::combine(b, &[(Exact::one(), begin), (by, one)])?
            }
        };
        let (left, right) = (slice(b, x, 0, t)?, slice(b, x, t + 1, width - t - 1)?);
        Ok(b.push1(Concat, &[left, time, right])?)
    }
}

impl Fields for System<'_> {
    fn normal(
        &mut self,
        _: &mut Builder,
        _: Value,
        _: &Exact,
        _: usize,
    ) -> Result<Option<Value>, BuildError> {
        Err(BuildError::Missing("random numbers".into()))
    }

    /// Its series: the matrix is nilpotent on graded systems, and h is small on others.
    fn function(
        &mut self,
        b: &mut Builder,
        of: Function,
        coefficients: &mut Coefficients,
        x: Value,
    ) -> Result<Value, BuildError> {
        let name = &self.program.fields[of.field].name;
        let Some(j) = self.names.iter().position(|n| n == name) else {
            return Err(BuildError::Missing(format!("`{name}`")));
        };
        let path = format!("field.{j}.linear");
        let (mut terms, mut power) = (Vec::new(), x);
        for n in 0..TERMS {
            terms.push((over_factorial(of.index + n), power));
            let next = self.times(b, &path, power)?;
            power = coefficients.affine(b, next, of.over, &Coeff::zero())?;
        }
        Ok(nn::combine(b, &terms)?)
    }

    fn evaluate(&mut self, b: &mut Builder, e: Evaluation) -> Result<Value, BuildError> {
        let name = &self.program.fields[e.field].name;
        b.site.path = name.clone();
        let (&[x], Some(j)) = (e.points, self.names.iter().position(|n| n == name)) else {
            let what = format!("a field of {} states", e.points.len());
            return Err(BuildError::Missing(what));
        };
        let x = match e.when.filter(|_| self.timed && !self.is_linear[j]) {
            Some(when) => self.at_time(b, x, when)?,
            None => x,
        };
        let [p, q, r] = ["a", "b", "c"].map(|m| self.times(b, m, x));
        let product = b.push1(Mul, &[p?, q?])?;
        let product = b.push1(Mul, &[product, r?])?;
        let exponent = self.times(b, "d", x)?;
        let power = b.push1(Exp, &[exponent])?;
        let linear = self.times(b, &format!("field.{j}.linear"), x)?;
        let products = self.times(b, &format!("field.{j}.product"), product)?;
        let exponential = self.times(b, &format!("field.{j}.exponential"), power)?;
        let one = Exact::one;
        let parts = [(one(), linear), (one(), products), (one(), exponential)];
        Ok(nn::combine(b, &parts)?)
    }
}

/// The value of a computed coefficient at the start of those that it is computed from.
fn started(d: &Derived, known: &BTreeMap<String, Exact>) -> Option<Exact> {
    let at = |c: &Coeff| c.at(&|symbol| known.get(symbol).cloned());
    Some(&at(&d.over)? * &at(&d.under)?.recip().ok()?)
}

/// The graph of the first steps, of these sizes.
fn evolution(all: &Unrolled, problem: Problem, sizes: &[Exact]) -> Result<Graph, BuildError> {
    let timed = !matches!(problem, Problem::Second { .. });
    let mut b = Builder::new();
    let ty = TensorType::state(WIDTH as u64);
    let name = INPUT.into();
    let mut x = b.push1(Input { name, ty }, &[])?;
    let names = fields(all);
    let mut params = BTreeMap::new();
    let is_linear: Vec<bool> = names.values().copied().collect();
    let names: Vec<String> = names.into_keys().collect();
    for m in problem.matrices_of(&is_linear) {
        let value = b.push1(parameter(&m), &[])?;
        params.insert(m.path, value);
    }
    let mut kept = Kept::new();
    for (at, number) in all.phases() {
        let program = &all.programs[number];
        let (step, h) = match at {
            Phase::Step(k) if k >= sizes.len() => break,
            Phase::Step(k) => (Some(k as u32), &sizes[k]),
            Phase::Start => (None, &sizes[0]),
        };
        let learned = program.learned.iter();
        let mut known: BTreeMap<String, Exact> =
            learned.map(|l| (l.name.clone(), l.init.clone())).collect();
        known.insert("h".into(), h.clone());
        for d in &program.derived {
            let value = started(d, &known).ok_or_else(|| BuildError::Missing(d.to_string()))?;
            known.insert(d.name.clone(), value);
        }
        let place = Place {
            program,
            site: Site {
                step,
                ..Site::default()
            },
            span: None,
        };
        let mut system = System {
            program,
            start: x,
            known: known.clone(),
            timed,
            names: &names,
            is_linear: &is_linear,
            params: &params,
        };
        let mut coefficients = Coefficients::new(known, BTreeMap::new());
        x = place.step(&mut b, x, &mut coefficients, &mut kept, &mut system)?;
    }
    b.output(OUTPUT, x);
    Ok(b.finish())
}
