//! Turns flows into stage programs: every scheme is executed on exact linear combinations instead of tensors.
//!
//! Takes a resolved [`Flow`]; gives the [`StageProgram`] of one step. Nested flows are inlined: their start state becomes a
//! value of its own, so that terms of the outer step are not copied into inner combinations; `increment(Φ)` takes
//! Φ apart again down to that start, so that the state cancels exactly. Work and size are counted while the program
//! grows, so a short text cannot make a long program unnoticed. Leaves tableaus to `tableau.rs`, step programs to `step.rs`.

use super::coeff::{Coeff, CoeffError};
use super::combination::{Combination, ValueId};
use super::define::{Body, NUMBER, STEP};
use super::embedded::{Divided, Reached, divide, pruned};
use super::evaluate::{Evaluation, SumAt, Used};
use super::flow::{Field, Flow, Leaf, Setting, Terms};
use super::learn::{self, Declared, Learned, Owner};
use super::per_use::PerUse;
use super::resolve::too_deep;
use super::scalar::{Scope, arithmetic, constant, in_range, length_of, measured};
use super::stage::{Moment, Phase, StageInstr, StageProgram, Steps};
use super::time;
use super::time::{Clocks, KeptTimes};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::{Diagnostic, Label, Severity};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Most field evaluations of a whole model (per step times steps).
pub const MAX_EVALUATIONS: usize = 20_000;
/// Most of anderson's operations of a whole model, as [`StageProgram::mixing`] counts them.
pub const MAX_MIXING: usize = 100_000;
/// Most monomials read or written while one stage program is made.
pub const MAX_WORK: u64 = 500_000;
/// The same for all programs of an evolution.
pub const MAX_TOTAL: u64 = 4_000_000;
/// Deepest nesting of expressions in flows in fields in flows; the parser's limit for one expression lies below it.
const MAX_NESTING: usize = 500;

/// What of an evolution is run.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub phase: Phase,
    pub steps: usize,
    pub grid: Grid<'a>,
    pub inner: Steps,
    /// Whether stages of implicit tableaus are found exactly instead of by iteration: evaluations then stand before what
    /// they are evaluated at, and only coefficients can be read off.
    pub solved: bool,
    /// Whether only coefficients are read off: gradients are not told apart, and what is solved to a tolerance is its solution
    /// (`unknown.rs`).
    pub analysed: bool,
    /// Whether fields have weights that depend on time.
    pub timed: bool,
    /// The times of what earlier phases kept, the latest last, where this run's are wanted too; else past values have none.
    pub pasts: Option<&'a [KeptTimes]>,
    /// Fields whose evaluations at one value may still differ.
    pub per_use: &'a PerUse,
    /// How much work it may take.
    pub budget: u64,
}

/// The sizes of an evolution's steps, where these are not all equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grid<'a> {
    /// Of each step, or none.
    pub sizes: &'a [Exact],
    /// Whether they are initial values: times count with them, and coefficients stay those of equal steps.
    pub learned: bool,
}

/// What a run gives.
pub struct Run {
    pub program: StageProgram,
    /// Whether it may differ from step to step, because some setting is a list or some past value is read.
    pub varies: bool,
    /// Whether it reads values of earlier steps that there are none of yet.
    pub short: bool,
    /// Whether fields are evaluated at times that `at:` says and that are not known to be those of their arguments.
    pub times_differ: bool,
    /// Whether an argument moves with learned coefficients, and the time of its evaluation does not.
    pub times_stay: bool,
    /// Of what it keeps.
    pub times: KeptTimes,
    pub work: u64,
}

/// The program of one phase of a flow.
pub fn run(flow: &Flow, at: At, sink: &mut Vec<Diagnostic>) -> Option<Run> {
    let mut m = StageTracer::new(at, sink);
    let reached = m.nested(flow.span, |m| {
        m.flow_inside(flow, ValueId::STATE, &Coeff::symbol("h"), true)
    })?;
    let mut names: BTreeMap<&str, &Rc<Leaf>> = BTreeMap::new();
    let clash = m.leaves.iter().find_map(|u| {
        let first = names.insert(&u.leaf.name, &u.leaf)?;
        Some((first.clone(), u.leaf.clone()))
    });
    if let Some((first, second)) = clash {
        return m.fail(
            Diagnostic::error(
                codes::PARAMETER_COLLISION,
                second.span,
                format!(
                    "two different fields would both be called `{}`",
                    second.name
                ),
            )
            .also(first.span, "the other one")
            .help("give each a name of its own: `field att = …`"),
        );
    }
    let times = m.kept_times(&reached.keeps, flow.span)?;
    let called = m.called();
    let Divided {
        instrs,
        result,
        keeps,
        called,
        embedded,
    } = match m.short && flow.start_by.is_some() {
        true => pruned(m.instrs, reached, called, &mut m.leaves),
        false => divide(m.instrs, reached, called),
    };
    let mut usages = vec![0; m.leaves.len()];
    for i in &instrs {
        if let Some((field, usage)) = i.uses() {
            usages[field] = usages[field].max(usage + 1);
        }
    }
    let mut program = StageProgram {
        title: String::new(),
        learned: m.learned,
        derived: Vec::new(),
        usages,
        fields: m.leaves.into_iter().map(|l| l.leaf).collect(),
        instrs,
        keeps,
        called,
        result,
        embedded,
    };
    let starts = |s: &str| {
        let learned = program.learned.iter().find(|l| l.name == s);
        learned.map(|l| l.init.clone())
    };
    time::resolve_times(&mut program.instrs, &starts);
    let partner = program.embedded.iter_mut();
    partner.for_each(|e| time::resolve_times(&mut e.instrs, &starts));
    let symbols = program.symbols();
    let used = |l: &Learned| symbols.contains(l.name.as_str());
    program.learned.retain(used);
    Some(Run {
        program,
        varies: m.varies,
        short: m.short,
        times_differ: m.clocks.differ,
        times_stay: m.clocks.stay,
        times,
        work: m.work,
    })
}

/// What the error of a method begins with, and whether it goes on in even powers.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownOrder {
    pub order: usize,
    pub symmetric: bool,
}

pub(super) struct StageTracer<'s> {
    sink: &'s mut Vec<Diagnostic>,
    pub(super) instrs: Vec<StageInstr>,
    /// Combinations that are values already; only looked up, never listed.
    pub(super) known: HashMap<Combination, ValueId>,
    /// What a step program calls combinations; the first name stays.
    pub(super) named: HashMap<Combination, String>,
    /// Past values that are loaded already.
    pub(super) pasts: BTreeMap<(String, Moment), ValueId>,
    /// Products that are values already.
    pub(super) products: BTreeMap<[ValueId; 2], ValueId>,
    pub(super) leaves: Vec<Used>,
    /// Leaves by name and place.
    pub(super) leaf_of: BTreeMap<(String, Span), usize>,
    /// Expressions and flows being evaluated, one inside the other.
    nesting: usize,
    /// Where the evaluation at hand is written, from the outside in.
    pub(super) place: Vec<Span>,
    pub(super) evaluated: HashMap<Evaluation, ValueId>,
    /// What sums of fields gave, with the terms, so that none are freed while they are known by their place.
    pub(super) sums: HashMap<SumAt, (Rc<Terms>, Combination)>,
    /// Other instructions that give the same for the same values, by the first of these.
    pub(super) made: BTreeMap<ValueId, Vec<ValueId>>,
    /// The times of values, as each field sees them.
    pub(super) clocks: Clocks,
    /// The argument that is evaluated, the outermost one.
    pub(super) operand: Option<*const Field>,
    work: u64,
    /// Coefficients of all flows so far.
    pub(super) learned: Vec<Learned>,
    /// The flow that each learned name belongs to, and the scheme in it.
    learned_by: BTreeMap<String, (Span, Span)>,
    /// Orders of methods that are extrapolated, by place and by the numbers known there.
    pub(super) orders: BTreeMap<(Span, Scope), KnownOrder>,
    pub(super) at: At<'s>,
    /// Whether a setting with one value per step, or a past value, was read.
    pub(super) varies: bool,
    /// Whether a past value was read before there was one.
    pub(super) short: bool,
}

/// Numbers a flow's coefficients may use, and its start.
pub(super) struct Frame<'f> {
    pub flow: &'f Flow,
    pub start: ValueId,
    pub h: Coeff,
    /// Parameters, learned coefficients and constants.
    pub scope: Scope,
    /// Entries of each learned list.
    pub lists: BTreeMap<String, usize>,
    /// Whether no other flow is around it: only then its embedded partner means something.
    pub outermost: bool,
}

impl<'s> StageTracer<'s> {
    pub(super) fn new(at: At<'s>, sink: &'s mut Vec<Diagnostic>) -> Self {
        StageTracer {
            sink,
            instrs: Vec::new(),
            known: HashMap::new(),
            named: HashMap::new(),
            pasts: BTreeMap::new(),
            products: BTreeMap::new(),
            leaves: Vec::new(),
            leaf_of: BTreeMap::new(),
            nesting: 0,
            place: Vec::new(),
            evaluated: HashMap::new(),
            sums: HashMap::new(),
            made: BTreeMap::new(),
            clocks: Clocks::default(),
            operand: None,
            work: 0,
            learned: Vec::new(),
            learned_by: BTreeMap::new(),
            orders: BTreeMap::new(),
            at,
            varies: false,
            short: false,
        }
    }

    /// The values that have a name.
    fn called(&self) -> Vec<(ValueId, String)> {
        let values = self.instrs.iter().enumerate();
        let called = values.filter_map(|(i, instr)| {
            let v = ValueId(i as u32 + 1);
            let own = self.named.get(&Combination::value(v));
            let name = own.or_else(|| match instr {
                StageInstr::Combine(c) => self.named.get(c),
                _ => None,
            })?;
            Some((v, name.clone()))
        });
        called.collect()
    }

    pub(super) fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.sink.push(d);
        None
    }

    pub(super) fn ok<T>(&mut self, r: Result<T, Diagnostic>) -> Option<T> {
        r.map_err(|d| self.sink.push(d)).ok()
    }

    pub(super) fn warn(&mut self, d: Diagnostic) {
        self.sink.push(d);
    }

    /// How many messages there are.
    pub(super) fn messages(&self) -> usize {
        self.sink.len()
    }

    /// Whether something was wrong after so many messages.
    pub(super) fn failed_since(&self, messages: usize) -> bool {
        let mut since = self.sink[messages..].iter();
        since.any(|d| d.severity == Severity::Error)
    }

    pub(super) fn sink(&mut self) -> &mut Vec<Diagnostic> {
        self.sink
    }

    pub(super) fn exact<T>(&mut self, r: Result<T, CoeffError>, span: Span) -> Option<T> {
        self.ok(r.map_err(|why| arithmetic(why, span)))
    }

    /// Counts work; `span` is blamed when it becomes too much.
    pub(super) fn charge(&mut self, work: usize, span: Span) -> Option<()> {
        let most = self.at.budget.min(MAX_WORK);
        let exhausted = self.work > most;
        self.work = self.work.saturating_add(work as u64);
        if self.work <= most {
            return Some(());
        }
        if exhausted {
            return None;
        }
        self.fail(
            Diagnostic::error(codes::TOO_LARGE, span, "the stage program grows too large")
                .label("the limit is reached here")
                .help(format!(
                    "one step may take about {MAX_WORK} terms, all steps together {MAX_TOTAL} and {MAX_EVALUATIONS} evaluations"
                )),
        )
    }

    /// A number as it is written, its work counted.
    pub(super) fn number(&mut self, e: &Expr, scope: &Scope) -> Option<Coeff> {
        let (value, work) = self.ok(measured(e, scope))?;
        self.charge(work, e.span)?;
        Some(value)
    }

    /// The same, in which no symbol may remain.
    pub(super) fn constant(&mut self, e: &Expr, scope: &Scope) -> Option<Exact> {
        let value = self.number(e, scope)?;
        self.ok(constant(value, e.span))
    }

    /// A count.
    pub(super) fn whole(&mut self, e: &Expr, scope: &Scope, min: u64, max: u64) -> Option<u64> {
        let value = self.constant(e, scope)?;
        self.ok(in_range(&value, e, min, max))
    }

    /// `a + c·b`.
    pub(super) fn add_scaled(
        &mut self,
        mut a: Combination,
        c: &Coeff,
        b: &Combination,
        span: Span,
    ) -> Option<Combination> {
        self.charge(a.weight() + b.weight() * c.weight(), span)?;
        let done = a.add_scaled(c, b);
        self.exact(done, span)?;
        Some(a)
    }

    /// One step of size `h` from a value.
    pub(super) fn flow(&mut self, flow: &Flow, start: ValueId, h: &Coeff) -> Option<Combination> {
        let reached = self.nested(flow.span, |m| m.flow_inside(flow, start, h, false))?;
        Some(reached.end)
    }

    /// Goes one expression or flow deeper, unless that is too deep.
    pub(super) fn nested<T>(
        &mut self,
        span: Span,
        go: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        if self.nesting >= MAX_NESTING {
            return self.fail(too_deep(span));
        }
        self.nesting += 1;
        let result = go(self);
        self.nesting -= 1;
        result
    }

    pub(super) fn flow_inside(
        &mut self,
        flow: &Flow,
        start: ValueId,
        h: &Coeff,
        outermost: bool,
    ) -> Option<Reached> {
        let before = self.sink.len();
        let frame = self.frame(flow, start, h, outermost);
        let result = frame.and_then(|frame| match &flow.scheme.body {
            Body::Tableau(t) => self.tableau(t, &frame),
            Body::Splitting(flows) => self.splitting(flows, &frame),
            Body::Step(step) => match self.at.phase {
                Phase::Start if outermost => self.start_program(step, &frame),
                _ => self.step_program(step, &frame),
            },
            Body::Multistep(m) => self.multistep(m, &frame),
            Body::Algebra(a) => self.algebra(&a.term, &frame),
            // Whoever applies a scheme has looked this up.
            Body::LearnedFrom(_) | Body::Method(_) => None,
        });
        // A mistake seen inside another file's scheme is often made here.
        for d in &mut self.sink[before..] {
            if d.labels.iter().all(|l| l.span.source != flow.span.source) {
                d.labels.push(Label {
                    span: flow.span,
                    text: "applied here".into(),
                });
            }
        }
        result
    }

    pub(super) fn frame<'f>(
        &mut self,
        flow: &'f Flow,
        start: ValueId,
        h: &Coeff,
        outermost: bool,
    ) -> Option<Frame<'f>> {
        let mut scope = Scope::new();
        for (name, setting) in &flow.settings {
            let value = match setting {
                Setting::One(v) => v.clone(),
                // Before the first step such a name has no value.
                Setting::PerStep(..) if outermost && self.at.phase == Phase::Start => continue,
                Setting::PerStep(values, span) => self.of_this_step(values, *span)?,
            };
            scope.insert(name.clone(), Coeff::constant(value));
        }
        if let Some(list) = &flow.scheme.list {
            let n = Coeff::constant(Exact::int(flow.list.len() as i64));
            scope.insert(length_of(&list.name), n);
        }
        let lengths = self.lengths(flow, outermost)?;
        let declared = learn::declared(&flow.scheme.learns, lengths, &mut scope, self.sink)?;
        self.charge(declared.learned.len() + declared.work, flow.span)?;
        let Declared { learned, lists, .. } = declared;
        let names: Vec<&str> = flow
            .scheme
            .learns
            .iter()
            .map(|l| l.name.name.as_str())
            .collect();
        self.learns(flow, &names, learned)?;
        if flow.scheme.numbered {
            scope.insert(NUMBER.into(), self.step_number());
        }
        for (name, value) in &flow.scheme.lets {
            let v = self.number(value, &scope)?;
            self.charge(v.as_constant().map_or(v.weight(), |c| c.cost()), value.span)?;
            scope.insert(name.name.clone(), v);
        }
        Some(Frame {
            flow,
            start,
            h: h.clone(),
            scope,
            lists,
            outermost,
        })
    }

    /// The number of the step: that of the first one before it, a symbol where no certain step is looked at.
    fn step_number(&mut self) -> Coeff {
        self.varies = true;
        match self.at.phase {
            _ if self.at.analysed => Coeff::symbol(STEP),
            Phase::Start => Coeff::zero(),
            Phase::Step(k) => Coeff::constant(Exact::int(k as i64)),
        }
    }

    /// Adds a flow's coefficients; a flow that is run again uses the same ones.
    pub(super) fn learns(
        &mut self,
        flow: &Flow,
        names: &[&str],
        mut learned: Vec<Learned>,
    ) -> Option<()> {
        let mut names = names.to_vec();
        if flow.scheme.keep.is_some() && !learned.is_empty() {
            names.push(learn::DIRECTION);
            let step = match self.at.phase {
                Phase::Start => 0,
                Phase::Step(k) => k,
            };
            let now = flow.settings.iter().filter_map(|(n, s)| {
                let value = match s {
                    Setting::One(v) => v,
                    Setting::PerStep(values, _) => values.get(step).or(values.last())?,
                };
                Some((n.clone(), value.clone()))
            });
            let from = Rc::new(Owner {
                scheme: flow.scheme.clone(),
                settings: now.collect(),
                listed: flow.list.len(),
                start_by: flow.start_by.clone(),
                applied: flow.span,
            });
            learned
                .iter_mut()
                .for_each(|l| l.owner = Some(from.clone()));
        }
        let owner = (flow.span, flow.scheme.name.span);
        for name in names {
            match self.learned_by.insert(name.to_string(), owner) {
                None => {}
                // With other settings a list may have another length.
                Some(same) if same == owner && learned.iter().all(|l| self.learned.contains(l)) => {
                    return Some(());
                }
                Some((other, _)) => {
                    let message = format!("two learned coefficients are called `{name}`");
                    return self.fail(
                        Diagnostic::error(codes::PARAMETER_COLLISION, flow.span, message)
                            .label("one belongs to this flow")
                            .also(other, "the other one belongs to this flow")
                            .help("define a scheme of your own with another name for one of them"),
                    );
                }
            }
        }
        self.learned.extend(learned);
        Some(())
    }

    fn of_this_step(&mut self, values: &[Exact], span: Span) -> Option<Exact> {
        self.varies = true;
        let Phase::Step(step) = self.at.phase else {
            return self.fail(
                Diagnostic::error(
                    codes::MISPLACED,
                    span,
                    "a list of values, one for each step",
                )
                .label("there is no step yet: `start` comes before the first one"),
            );
        };
        if values.len() != self.at.steps {
            let message = format!("a list of {} for {} steps", values.len(), self.at.steps);
            return self.fail(
                Diagnostic::error(codes::LIST_LENGTH, span, message)
                    .label("one value for each step is expected"),
            );
        }
        values.get(step).cloned()
    }
}

pub fn too_much_mixing(span: Span) -> Diagnostic {
    Diagnostic::error(
        codes::TOO_LARGE,
        span,
        "Anderson mixing takes too many operations",
    )
    .label(format!(
        "squares of memories, over all iterations, sum to more than {MAX_MIXING}"
    ))
    .help("take fewer steps, fewer iterations, a smaller memory, or `fixed_point(tol: …, max: …)`")
}

pub fn too_many_evaluations(span: Span) -> Diagnostic {
    Diagnostic::error(
        codes::TOO_LARGE,
        span,
        format!("more than {MAX_EVALUATIONS} field evaluations"),
    )
    .help("take fewer steps, fewer iterations, or a cheaper scheme")
}
