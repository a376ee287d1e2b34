//! Unrolls a flow over the steps of an evolution: the distinct stage programs, and which one each step runs.
//!
//! Takes a resolved flow and a number of steps. A step is run again only where its program may differ from the first
//! one: a setting with one value per step, or a history that is still growing. Leaves weights and sizes of steps to
//! `odec-model`.

use super::flow::Flow;
use super::per_use::PerUse;
use super::run::{At, Grid, MAX_EVALUATIONS, MAX_TOTAL, run, too_many_evaluations};
use super::stage::{Phase, StageProgram, Steps};
use super::time::KeptTimes;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use std::rc::Rc;

/// An evolution as programs.
#[derive(Clone, Debug)]
pub struct Unrolled {
    pub programs: Vec<StageProgram>,
    /// The program that runs before the first step.
    pub start: Option<usize>,
    /// The program of each step.
    pub steps: Vec<usize>,
}

impl Unrolled {
    /// All phases in order, with their programs.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, usize)> {
        let start = self.start.iter().map(|p| (Phase::Start, *p));
        let steps = self.steps.iter().enumerate();
        start.chain(steps.map(|(k, p)| (Phase::Step(k), *p)))
    }

    /// The program of a phase.
    pub fn program(&self, at: Phase) -> Option<&StageProgram> {
        let number = match at {
            Phase::Start => self.start,
            Phase::Step(k) => self.steps.get(k).copied(),
        };
        self.programs.get(number?)
    }

    /// Field evaluations in all phases.
    pub fn evaluations(&self) -> usize {
        self.total(StageProgram::evaluations)
    }

    /// What mixing costs in all phases.
    pub fn mixing(&self) -> usize {
        self.total(StageProgram::mixing)
    }

    fn total(&self, of: impl Fn(&StageProgram) -> usize) -> usize {
        let each: Vec<usize> = self.programs.iter().map(of).collect();
        self.phases()
            .fold(0usize, |sum, (_, p)| sum.saturating_add(each[p]))
    }
}

/// Unrolls one flow, or one for each step, with what they are called. `span` is blamed when there are too many
/// evaluations, `timed` says that weights of fields depend on time, `per_use` which fields have weights at each place.
pub fn unroll(
    flows: &[(Rc<Flow>, String)],
    (steps, grid): (usize, Grid),
    timed: bool,
    per_use: &PerUse,
    span: Span,
    sink: &mut Vec<Diagnostic>,
) -> Option<Unrolled> {
    let (first, _) = flows.first()?;
    let other = |(f, _): &&(Rc<Flow>, String)| !Rc::ptr_eq(&f.scheme, &first.scheme);
    let past = |(f, _): &&(Rc<Flow>, String)| f.scheme.looks_back();
    if let (Some((back, _)), Some((other, _))) = (flows.iter().find(past), flows.iter().find(other))
    {
        let name = &back.scheme.name.name;
        let message = format!("`{name}` reads values of earlier steps, which other schemes take");
        let other = if Rc::ptr_eq(&back.scheme, &other.scheme) {
            first
        } else {
            other
        };
        sink.push(
            Diagnostic::error(codes::NESTED_HISTORY, back.span, message)
                .label("all steps of this evolve must be taken by this scheme")
                .also(other.span, "another scheme"),
        );
        return None;
    }
    let of = |phase: Phase| match phase {
        Phase::Start => 0,
        Phase::Step(k) => k.min(flows.len() - 1),
    };
    let mut all = Unrolled {
        programs: Vec::new(),
        start: None,
        steps: Vec::new(),
    };
    let (mut varies, mut budget, mut evaluations) = (flows.len() > 1, MAX_TOTAL, 0usize);
    let wanted = timed || flows.iter().any(|(f, _)| f.reads_time());
    let mut pasts: Vec<KeptTimes> = Vec::new();
    let start = first.scheme.start.iter().map(|_| Phase::Start);
    for phase in start.chain((0..steps).map(Phase::Step)) {
        if !varies && let Some(first) = all.steps.first() {
            all.steps.push(*first);
            continue;
        }
        let at = At {
            phase,
            steps,
            grid,
            inner: Steps::Euler,
            solved: false,
            analysed: false,
            timed,
            pasts: wanted.then_some(&pasts[..]),
            per_use,
            budget,
        };
        let (flow, title) = &flows[of(phase)];
        let mut done = run(flow, at, sink)?;
        done.program.title = title.clone();
        pasts.push(done.times);
        varies |= done.varies;
        budget = budget.saturating_sub(done.work);
        evaluations += done.program.evaluations();
        if evaluations > MAX_EVALUATIONS {
            sink.push(too_many_evaluations(span));
            return None;
        }
        // Most often a step is like the one before it.
        let known = all.programs.iter().rposition(|p| same(p, &done.program));
        let number = known.unwrap_or_else(|| {
            all.programs.push(done.program);
            all.programs.len() - 1
        });
        match phase {
            Phase::Start => all.start = Some(number),
            Phase::Step(_) => all.steps.push(number),
        }
    }
    if all.programs.len() > 1 {
        for p in 0..all.programs.len() {
            let phases = phases(&all, p);
            all.programs[p].title += &format!(", {phases}");
        }
    }
    Some(all)
}

fn same(p: &StageProgram, q: &StageProgram) -> bool {
    let fields = |p: &StageProgram| p.fields.iter().map(Rc::as_ptr).collect::<Vec<_>>();
    p.instrs == q.instrs
        && p.result == q.result
        && p.keeps == q.keeps
        && p.embedded == q.embedded
        && p.learned == q.learned
        && p.derived == q.derived
        && fields(p) == fields(q)
}

/// The phases that run a program: `start`, `step 0`, `steps 3–5, 8`.
fn phases(all: &Unrolled, program: usize) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (k, p) in all.steps.iter().enumerate() {
        match runs.last_mut() {
            _ if *p != program => {}
            Some((_, last)) if *last + 1 == k => *last = k,
            _ => runs.push((k, k)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}–{last}"),
        })
        .collect();
    let one = runs.len() == 1 && runs[0].0 == runs[0].1;
    let steps = match shown.len() {
        0 => None,
        _ if one => Some(format!("step {}", shown[0])),
        _ => Some(format!("steps {}", shown.join(", "))),
    };
    let start = all.start.filter(|s| *s == program).map(|_| "start".into());
    start
        .into_iter()
        .chain(steps)
        .collect::<Vec<_>>()
        .join(", ")
}
