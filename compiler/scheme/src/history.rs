//! Values that a step keeps for later steps: `v[-j]`, `start { v = … }`.
//!
//! Takes a step program; gives the names that have a history, and past values as instructions of the stage program,
//! each loaded once. Before the first step a value is zero, unless `start` made an entry. The program of a step thus
//! depends on how many steps went before it. With `start by` a value that is not there yet is none: what needs it is left out
//! (`StageTracer::tried`), and another scheme takes the step. Leaves unrolling to `unroll.rs`, finding the values to `odec-model`.

use super::combination::Combination;
use super::define::{Body, SchemeDef};
use super::flow::Flow;
use super::mentions::Mentions;
use super::multistep;
use super::run::{Frame, StageTracer};
use super::stage::{Moment, Phase, StageInstr};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Ident, Learn, LearnLen, Step, Stmt};
use odec_grammar::diag::Diagnostic;
use std::collections::{BTreeMap, BTreeSet};

/// The names of a step program that outlive a step.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Names of which past values are read, and where; the state perhaps among them.
    pub past: BTreeMap<String, Span>,
    /// Names that only `start` sets: the same in all steps.
    pub constants: BTreeSet<String>,
    /// Names with a history that `start` gives a first entry.
    pub started: BTreeSet<String>,
}

impl History {
    pub fn of(step: &Step, start: &[Stmt], learns: &[Learn]) -> History {
        let (mut inside, mut before) = (Mentions::default(), Mentions::default());
        inside.statements(&step.body);
        before.statements(start);
        let list = |n: &str| {
            let listed = |l: &Learn| l.name.name == n && !matches!(l.len, LearnLen::Scalar);
            learns.iter().any(listed)
        };
        let state = step.state.name.as_str();
        let own = |n: &str| !list(n) && (inside.set.contains(n) || n == state);
        let past = inside.indexed.iter().filter(|(n, _)| own(n));
        let past: BTreeMap<String, Span> = past.map(|(n, at)| (n.to_string(), *at)).collect();
        let set = before.set.iter().filter(|n| **n != state);
        let (again, once) = set.partition::<Vec<&str>, _>(|n| inside.set.contains(*n));
        let started = again.into_iter().filter(|n| past.contains_key(*n));
        History {
            started: started.map(str::to_string).collect(),
            constants: once.into_iter().map(str::to_string).collect(),
            past,
        }
    }

    /// Entries so far, the current one included: what `0..` runs over, and how long `a[..]` is.
    pub fn entries(&self, phase: Phase) -> usize {
        match phase {
            Phase::Start => 1,
            Phase::Step(k) => k + 1 + usize::from(!self.started.is_empty()),
        }
    }
}

/// Lengths of learned lists that are as long as the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub now: usize,
    /// At the last step.
    pub longest: usize,
}

/// The history of a scheme; reports a `start` without a step program or with names that are never read.
pub(super) fn check(def: &SchemeDef, sink: &mut Vec<Diagnostic>) -> History {
    let (body, start) = match (&def.body, &def.start) {
        (Body::Step(step), start) => (step, start),
        (Body::Multistep(m), None) if m.steps() > 1 => {
            let names = [multistep::STATE, multistep::RATE];
            return History {
                past: names.map(|n| (n.to_string(), m.span)).into(),
                ..History::default()
            };
        }
        (_, None) => return History::default(),
        (_, Some((_, span))) => {
            let message = "`start { … }` without a step program";
            let d = Diagnostic::error(codes::NOTHING_TO_START, *span, message)
                .help("define the step: `step x { … return … }`");
            sink.push(d);
            return History::default();
        }
    };
    let start = start.as_ref().map_or(&[][..], |(body, _)| body);
    let history = History::of(body, start, &def.learns);
    let mut used = Mentions::default();
    used.statements(&body.body);
    used.statements(start);
    for s in start {
        if let Stmt::Assign { name, .. } = s
            && history.constants.contains(&name.name)
            && !used.read.contains(name.name.as_str())
        {
            let message = format!("`{}` is set in `start` and never read", name.name);
            let mut d = Diagnostic::error(codes::UNUSED_NAME, name.span, message);
            if let Some(near) = odec_grammar::nearest(&name.name, used.read.iter().copied()) {
                d = d.help(format!("the step reads `{near}`"));
            }
            sink.push(d);
        }
    }
    history
}

impl StageTracer<'_> {
    /// What a name of the evolve's own scheme was at an earlier moment.
    pub(super) fn past(&mut self, name: &str, when: Moment) -> Combination {
        let known = self.pasts.get(&(name.to_string(), when)).copied();
        let v = known.unwrap_or_else(|| {
            let name = name.to_string();
            let v = self.push(StageInstr::Past {
                name: name.clone(),
                when,
            });
            self.pasts.insert((name, when), v);
            v
        });
        Combination::value(v)
    }

    /// `name[-age]`; zero where nothing was made yet.
    pub(super) fn entry(
        &mut self,
        name: &Ident,
        age: usize,
        span: Span,
        frame: &Frame,
    ) -> Option<Combination> {
        let history = self.history(span, frame)?;
        let Phase::Step(step) = self.at.phase else {
            return self.fail(
                Diagnostic::error(
                    codes::BEFORE_FIRST_STEP,
                    span,
                    "there is no step before the start",
                )
                .label("`start` sets the first values and cannot read earlier ones"),
            );
        };
        if history.constants.contains(&name.name) {
            let message = format!("`{}` is set once, in `start`", name.name);
            return self.fail(
                Diagnostic::error(codes::NO_HISTORY, span, message)
                    .label("it has no history")
                    .help(format!("write `{}`", name.name)),
            );
        }
        if !history.past.contains_key(&name.name) {
            let message = format!("`{}` is never set in this step", name.name);
            let d = Diagnostic::error(codes::NOT_SET, span, message)
                .label("a state of this step, or a learned list, is expected before `[`");
            let near = odec_grammar::nearest(&name.name, history.past.keys().map(String::as_str));
            return self.fail(match near {
                Some(near) => d.help(format!("did you mean `{near}`?")),
                None => d,
            });
        }
        let entries = step + usize::from(history.started.contains(&name.name));
        if age <= entries {
            return Some(self.past(&name.name, Moment::Ago(age)));
        }
        self.short = true;
        match frame.flow.start_by {
            // What needs it has no value, and another scheme takes the step.
            Some(_) => None,
            None => Some(Combination::zero()),
        }
    }

    /// How long lists of the scheme of a flow are that are as long as its history.
    pub(super) fn lengths(&mut self, flow: &Flow, outermost: bool) -> Option<Lengths> {
        let history = &flow.scheme.history;
        if !outermost {
            let long = |l: &&Learn| matches!(l.len, LearnLen::History);
            let list = flow.scheme.learns.iter().find(long).map(|l| l.span);
            let start = flow.scheme.start.as_ref().map(|(_, span)| *span);
            if let Some(span) = list.or(start) {
                return self.fail(nested(span, flow));
            }
        }
        self.varies |= outermost && !history.past.is_empty();
        let last = Phase::Step(self.at.steps.saturating_sub(1));
        Some(Lengths {
            now: history.entries(self.at.phase),
            longest: history.entries(last),
        })
    }

    /// The history of the scheme at hand, if it is the evolve's own.
    pub(super) fn history<'f>(&mut self, span: Span, frame: &Frame<'f>) -> Option<&'f History> {
        if frame.outermost {
            return Some(&frame.flow.scheme.history);
        }
        self.fail(nested(span, frame.flow))
    }
}

/// A history in `increment(Φ)`, `map(Φ)`, or a flow of a splitting.
fn nested(span: Span, flow: &Flow) -> Diagnostic {
    let name = &flow.scheme.name.name;
    let message = format!("`{name}` reads values of earlier steps and is inside another flow");
    Diagnostic::error(codes::NESTED_HISTORY, span, message)
        .label("only an `evolve` keeps a history")
        .help(format!("apply it outermost: `evolve {name}(…) for …`"))
}
