//! The stage programs that methods are read from: of a step far from the start of an evolution, and of the first ones.
//!
//! Takes a flow; runs it by itself, with gradients left aside. Leaves the walk over its instructions to `walk.rs`.

use super::super::PerUse;
use super::super::define::Body;
use super::super::flow::Flow;
use super::super::per_use::SHARED;
use super::super::run::{At, Grid, MAX_TOTAL, Run, run};
use super::super::stage::{Phase, StageInstr, StageProgram, Steps, Unknown};
use super::super::time::KeptTimes;
use super::refusal::Unsupported;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;

/// The step that is looked at, or a later one if a multistep method reaches back farther.
const LATE: usize = 24;
/// The latest one.
const LATEST: usize = 192;

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

/// The stage program of a late step.
pub fn program(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<StageProgram, Unsupported> {
    let late = late(flow, inner, per_use)?;
    match late.next {
        Some(_) => Err(late.grows),
        None => Ok(late.here),
    }
}

/// The stage programs of a late step, and of the next one where it is another.
pub struct Late {
    pub here: StageProgram,
    pub next: Option<StageProgram>,
    /// What to say where the difference matters.
    pub grows: Unsupported,
    /// Whether `at:` says times that are not known to be those of the arguments; looked at where fields depend on time.
    pub times_differ: bool,
    /// Whether an argument moves with learned coefficients, and the time of its evaluation does not; looked at there, too.
    pub times_stay: bool,
}

/// One step of a flow by itself, or its start.
pub(super) fn at(
    flow: &Flow,
    phase: Phase,
    (steps, sizes): (usize, &[Exact]),
    how: (Steps, &PerUse),
    budget: u64,
) -> Result<Run, Unsupported> {
    let (inner, per_use) = how;
    let at = At {
        phase,
        steps,
        grid: Grid {
            sizes,
            learned: false,
        },
        inner,
        solved: false,
        analysed: true,
        timed: false,
        pasts: None,
        per_use,
        budget,
    };
    ran(flow, at)
}

fn ran(flow: &Flow, at: At) -> Result<Run, Unsupported> {
    let mut sink: Vec<Diagnostic> = Vec::new();
    run(flow, at, &mut sink).ok_or_else(|| {
        let cause = sink.first().map(|d| format!(": {}", d.message));
        let cause = cause.unwrap_or_default();
        // Here `k` is any number, which is no exponent and no bound of a `repeat`.
        let why = match flow.scheme.numbered {
            true => "it depends on the number `k` of the step".to_string(),
            false => format!("it has no stage program{cause}"),
        };
        Unsupported {
            span: flow.span,
            why,
        }
    })
}

/// The tolerance that a late step is solved to, if it is. What is said of such a step is said of the solution.
pub fn to_tolerance(flow: &Flow) -> Option<Exact> {
    let program = late_computed(flow, &SHARED, false).ok()?.here;
    program.instrs.iter().find_map(|i| match i {
        StageInstr::Mix { mixing, .. } => Some(mixing.tol.clone()),
        _ => None,
    })
}

/// Why the iterations that are computed do not reach the solution that a late step is judged by.
pub fn away(flow: &Flow) -> Option<Unsupported> {
    let late = late(flow, Steps::Euler, &SHARED).ok()?;
    late.here.instrs.iter().find_map(|i| match i {
        StageInstr::Unknown(Unknown::Solved {
            away: Some(why),
            span,
            ..
        }) => Some(Unsupported {
            span: *span,
            why: why.clone(),
        }),
        _ => None,
    })
}

/// A step that finds all the history it reads.
pub fn late(flow: &Flow, inner: Steps, per_use: &PerUse) -> Result<Late, Unsupported> {
    let how = How {
        inner,
        analysed: true,
        timed: false,
    };
    late_as(flow, how, per_use)
}

/// The same as it is computed, whose evaluations are counted: what is solved to a tolerance by all its iterations. `timed`: fields depend on
/// time, so that at one value they are evaluated once for each time.
pub fn late_computed(flow: &Flow, per_use: &PerUse, timed: bool) -> Result<Late, Unsupported> {
    let how = How {
        inner: Steps::Euler,
        analysed: false,
        timed,
    };
    late_as(flow, how, per_use)
}

/// Whether evaluations are at times that `at:` says and that are not known to be those of their arguments: what is proved of the order then holds
/// for fields that do not depend on time.
pub fn times_differ(flow: &Flow) -> bool {
    late_computed(flow, &SHARED, true).is_ok_and(|late| late.times_differ)
}

/// Whether training moves arguments away from the times that they are evaluated at, which stay those of the initial values: an order that is kept
/// then is one for fields that do not depend on time.
pub fn times_stay(flow: &Flow) -> bool {
    late_computed(flow, &SHARED, true).is_ok_and(|late| late.times_stay || late.times_differ)
}

/// How a late step is run.
struct How {
    inner: Steps,
    analysed: bool,
    timed: bool,
}

fn late_as(flow: &Flow, how: How, per_use: &PerUse) -> Result<Late, Unsupported> {
    let mut k = match &flow.scheme.body {
        Body::Multistep(m) => LATE.max(m.steps()),
        _ => LATE,
    };
    let at = |k, pasts: Option<&[KeptTimes]>, budget| {
        let at = At {
            phase: Phase::Step(k),
            steps: k + 2,
            grid: Grid::default(),
            inner: how.inner,
            solved: false,
            analysed: how.analysed,
            timed: how.timed,
            pasts,
            per_use,
            budget,
        };
        ran(flow, at)
    };
    let unknown = how.timed.then_some(&[][..]);
    let mut here = at(k, unknown, MAX_TOTAL)?;
    while here.short {
        k *= 2;
        if k > LATEST {
            return Err(Unsupported {
                span: program_span(flow),
                why: format!("it reads values of more than {LATEST} steps ago"),
            });
        }
        here = at(k, unknown, MAX_TOTAL)?;
    }
    // What the steps before it kept has the times of what it keeps. Some of these follow from others, and each run finds more.
    let mut pasts = Vec::new();
    let mut budget = MAX_TOTAL;
    let looks_back = !flow.scheme.history.past.is_empty();
    while how.timed && looks_back && pasts.first() != Some(&here.times) {
        pasts = vec![here.times.clone(); k];
        budget = budget.saturating_sub(here.work);
        // Times that take too much work to find stay unknown.
        let Ok(more) = at(k, Some(&pasts), budget) else {
            break;
        };
        here = more;
    }
    let mut next = None;
    if here.varies && looks_back {
        pasts.resize(pasts.len() + 1, here.times.clone());
        let after = at(k + 1, how.timed.then_some(&pasts[..]), MAX_TOTAL)?.program;
        let same = after.instrs == here.program.instrs && after.result == here.program.result;
        next = (!same).then_some(after);
    }
    Ok(Late {
        here: here.program,
        next,
        grows: Unsupported {
            span: flow.scheme.name.span,
            why: "no two of its steps are alike, because its history grows".into(),
        },
        times_differ: here.times_differ,
        times_stay: here.times_stay,
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
    usual: &dyn Fn(&StageProgram) -> bool,
) -> Result<Vec<StageProgram>, Unsupported> {
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
    Err(Unsupported {
        span: flow.scheme.name.span,
        why: format!("its first {LATE} steps differ from later ones"),
    })
}
