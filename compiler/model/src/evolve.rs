//! One `evolve`: its flow, steps, step sizes and weights policies, and the stage program of every step.

use super::args::report;
use super::decider::Decider;
use super::layers::Capacity;
use super::layers::network::Network;
use super::reports::{self, Report};
use super::step_count::{StepCount, extent, fit, gradient};
use super::time_dependent::{self, TimeDependent};
use crate::analysis::keep;
use crate::analysis::opaque_field::settings_at;
use crate::analysis::report::Evolved;
use crate::analysis::unequal::{self, Sizes};
use crate::codes;
use crate::scheme::resolve::Resolver;
use crate::scheme::run::{Grid, MAX_EVALUATIONS};
use crate::scheme::scalar::{Scope, constant, whole};
use crate::scheme::stage::Phase;
use crate::scheme::stage::StageProgram;
use crate::scheme::unroll::{Unrolled, unroll};
use crate::scheme::unused::is_deliberate;
use crate::scheme::work::Routing;
use crate::scheme::{Flow, Learned, PerUse};
use crate::step_rule;
use odec_grammar::Span;
use odec_grammar::ast::{Evolve, EvolveOption, Expr, ExprKind, Ident, Policy, PolicyKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Exact, Site};
use odec_program::kernel::Share;
use odec_program::manifest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

#[derive(Clone, Debug)]
pub struct EvolveSpec {
    /// Empty when there is one evolve without a label.
    pub label: String,
    /// The steps that are unrolled: all, or the most that there can be.
    pub steps: u64,
    /// What decides how many of them are made.
    pub depth: StepCount,
    /// How many of the last steps the gradient goes through; all by default.
    pub last: Option<u64>,
    /// Where that is said.
    pub gradient_at: Option<Span>,
    /// One flow for all steps, or one for each, as they are written.
    pub flows: Vec<(Rc<Flow>, String)>,
    pub unrolled: Unrolled,
    /// Layers of each program's fields.
    pub layers: Vec<Vec<Network>>,
    /// Policy of each program's fields.
    pub policies: Vec<Vec<Sharing>>,
    /// The time at which each step begins, where something depends on it and it is known.
    pub t: Vec<Exact>,
    /// Size of each step; its start, where it is learned.
    pub h: Vec<Exact>,
    /// How the step size is learned; its `init` is that of the first step.
    pub learn_h: Option<Learned>,
    /// Where it is written.
    pub h_at: Option<Span>,
    /// What is logged of the state after each step.
    pub reports: Vec<Report>,
    pub span: Span,
}

/// Which parameters a field uses at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    PerStep,
    /// Per step, and each written occurrence its own.
    PerUse,
    Shared,
    /// `n` consecutive steps share.
    Every(usize),
    /// Steps `k` and `k + n` share.
    Cycle(usize),
    /// All use the same, which give weights for every time.
    TimeDependent(TimeDependent),
}

impl Sharing {
    /// The phase whose parameters a phase uses; `None`: all use the same. What comes before the steps shares with none
    /// of them, unless all share.
    pub fn owner(self, at: Phase) -> Option<Phase> {
        match (self, at) {
            (Sharing::Shared | Sharing::TimeDependent(_), _) => None,
            (_, Phase::Start) => Some(Phase::Start),
            (Sharing::PerStep | Sharing::PerUse, Phase::Step(k)) => Some(Phase::Step(k)),
            (Sharing::Every(n), Phase::Step(k)) => Some(Phase::Step(k / n * n)),
            (Sharing::Cycle(n), Phase::Step(k)) => Some(Phase::Step(k % n)),
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Sharing::PerStep => f.write_str("per step"),
            Sharing::PerUse => f.write_str("per use"),
            Sharing::Shared => f.write_str("shared by all steps"),
            Sharing::Every(n) => write!(f, "shared by every {n} steps"),
            Sharing::Cycle(n) => write!(f, "in a cycle of {n}"),
            Sharing::TimeDependent(_) => f.write_str("of time"),
        }
    }
}

/// Reads an evolve; its layers are read later, when the sizes are known.
pub fn evolve(e: &Evolve, r: &mut Resolver) -> Option<EvolveSpec> {
    let written: Vec<&Expr> = match &e.flow.kind {
        ExprKind::List(flows) => flows.iter().collect(),
        _ => vec![&e.flow],
    };
    let flows: Vec<Option<Rc<Flow>>> = written.iter().map(|f| r.flow(f)).collect();
    let flows: Option<Vec<Rc<Flow>>> = flows.into_iter().collect();
    let extent = extent(&e.extent, r);
    let h = extent.as_ref().and_then(|x| step_sizes(e, x, r.sink));
    let last = extent.as_ref().and_then(|x| gradient(e, &x.1, r.sink));
    let gradient_at = e.options.iter().find_map(|o| match o {
        EvolveOption::Gradient { span, .. } => Some(*span),
        _ => None,
    });
    let policies = policies(e, r.sink);
    let reports = extent.as_ref().and_then(|x| reports::read(e, &x.1, r));
    let (flows, (steps, depth)) = (flows?, extent?);
    let ((h, learn_h), last, policies) = (h?, last?, policies?);
    let reports = reports?;
    if matches!(e.flow.kind, ExprKind::List(_)) && flows.len() as u64 != steps {
        let message = format!("a list of {} for {steps} steps", flows.len());
        r.sink.push(
            Diagnostic::error(codes::LIST_LENGTH, e.flow.span, message)
                .label("one flow for each step is expected"),
        );
        return None;
    }
    let title = |e: &&Expr| {
        let words = r.names.quote(e.span).split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    let titles = written.iter().map(title);
    let flows: Vec<(Rc<Flow>, String)> = flows.into_iter().zip(titles).collect();
    let (timed, per_use) = (policies.is_timed(), policies.per_use());
    let equal = h.iter().all(|size| *size == h[0]);
    let grid = Grid {
        sizes: if equal { &[] } else { &h },
        learned: learn_h.is_some(),
    };
    let all = (steps as usize, grid);
    let mut unrolled = unroll(&flows, all, timed, &per_use, e.span, r.sink)?;
    // Before a kept order leaves directions in the place of coefficients.
    unread_coefficients(&flows, &unrolled.programs, r.sink);
    keep::rewrite(&mut unrolled.programs, r.sink)?;
    let programs = &unrolled.programs;
    if let Some(l) = &learn_h
        && !programs.iter().any(|p| p.symbols().contains("h"))
    {
        r.sink.push(
            Diagnostic::error(
                codes::UNUSED_NAME,
                l.span,
                "the learned step size is not used",
            )
            .label("no step reads it, so it gets no gradient"),
        );
        return None;
    }
    let h_at = e.options.iter().find_map(|o| match o {
        EvolveOption::H { span, .. } | EvolveOption::LearnH { span, .. } => Some(*span),
        EvolveOption::Gradient { .. }
        | EvolveOption::Weights { .. }
        | EvolveOption::Report { .. } => None,
    });
    let mut sharing = Vec::new();
    for p in programs {
        sharing.push(p.fields.iter().map(|f| policies.of(&f.name)).collect());
    }
    for (name, _) in &policies.fields {
        if !programs
            .iter()
            .any(|p| p.fields.iter().any(|f| f.name == name.name))
        {
            let known = programs
                .iter()
                .flat_map(|p| p.fields.iter().map(|f| f.name.as_str()));
            let d = crate::scheme::scalar::unknown_name(&name.name, name.span, known)
                .label("a field that this flow evaluates is expected");
            r.sink.push(d);
            return None;
        }
    }
    let mut spec = EvolveSpec {
        depth,
        last,
        gradient_at,
        label: e.label.as_ref().map_or(String::new(), |l| l.name.clone()),
        steps,
        layers: Vec::new(),
        policies: sharing,
        flows,
        unrolled,
        t: Vec::new(),
        h,
        learn_h,
        h_at,
        reports,
        span: e.span,
    };
    spec.find_times(r.sink)?;
    spec.functions_are_finite(r.sink)?;
    fit(e, &mut spec, r.sink)?;
    Some(spec)
}

/// Warns about learned coefficients of which no step has anything left: those of values from before the first step, which are 0.
fn unread_coefficients(
    flows: &[(Rc<Flow>, String)],
    programs: &[StageProgram],
    sink: &mut Vec<Diagnostic>,
) {
    let read: BTreeSet<Span> = (programs.iter().flat_map(|p| &p.learned))
        .map(|l| l.span)
        .collect();
    let mut said = BTreeSet::new();
    for l in flows.iter().flat_map(|(f, _)| &f.scheme.learns) {
        if is_deliberate(&l.name) || read.contains(&l.name.span) || !said.insert(l.name.span) {
            continue;
        }
        let message = format!(
            "`{}` is not part of the model: no step uses it",
            l.name.name
        );
        sink.push(
            Diagnostic::warning(codes::UNUSED_NAME, l.name.span, message)
                .label("all that it multiplies is 0 in these steps")
                .help("values from before the first step are 0, and histories do not go from one `evolve` to another; take more steps, or set first values in `start { … }`"),
        );
    }
}

impl EvolveSpec {
    /// What decides how many steps are made belongs to none of them: it is kept where steps are computed again.
    pub fn outside(&self) -> Site {
        Site {
            evolve: self.label.clone(),
            path: "steps".into(),
            ..Site::default()
        }
    }

    /// The inside of all its fields, and of the one that decides for each token.
    pub fn all_layers(&self) -> impl Iterator<Item = &Network> {
        let decider = self.decider().and_then(|d| d.layer.as_ref());
        self.layers.iter().flatten().chain(decider)
    }

    /// The capacities of its mixtures of experts, each once, with the paths of routers in a step.
    pub fn expert_capacities(&self) -> Vec<Capacity> {
        let mut found: Vec<Capacity> = Vec::new();
        for (program, layers) in self.unrolled.programs.iter().zip(&self.layers) {
            for (field, layer) in program.fields.iter().zip(layers) {
                for c in layer.reads().capacities {
                    let router = format!("{}.{}", field.name, c.router);
                    let c = Capacity { router, ..c };
                    if !found.contains(&c) {
                        found.push(c);
                    }
                }
            }
        }
        found
    }

    /// The field that decides for each token how many steps it makes.
    pub fn decider(&self) -> Option<&Decider> {
        match &self.depth {
            StepCount::Halting(h) => Some(&h.field),
            StepCount::Routed(router) => Some(&router.field),
            StepCount::Known | StepCount::Adaptive(_) | StepCount::Random(_) => None,
        }
    }

    /// How often it is evaluated. The last step of tokens that halt needs no decision; tokens ask a router once, steps each.
    pub fn decisions(&self) -> u64 {
        match &self.depth {
            StepCount::Halting(_) => self.steps - 1,
            StepCount::Routed(router) if router.choice == Routing::Tokens => 1,
            StepCount::Routed(_) => self.steps,
            StepCount::Known | StepCount::Adaptive(_) | StepCount::Random(_) => 0,
        }
    }

    /// Who decides which tokens take a step, where a router is asked.
    pub fn routing(&self) -> Option<&Routing> {
        match &self.depth {
            StepCount::Routed(router) => Some(&router.choice),
            _ => None,
        }
    }

    /// The share of a text's tokens that each step takes, where steps choose them.
    pub fn step_capacities(&self) -> Option<&[Share]> {
        match self.routing() {
            Some(Routing::Steps(shares)) => Some(shares),
            _ => None,
        }
    }

    /// Whether some of its steps choose some of the tokens.
    pub fn leaves_tokens_out(&self) -> bool {
        let some = |shares: &[Share]| shares.iter().any(|s| !s.is_all());
        self.step_capacities().is_some_and(some)
    }

    /// Where it is written by what gates tokens choose for themselves, where steps do so while the model is trained.
    pub fn threshold(&self) -> Option<Span> {
        match &self.depth {
            StepCount::Routed(router) => router.threshold.as_ref().map(|(_, span)| *span),
            _ => None,
        }
    }

    /// Whether a token's steps depend on tokens after it, also where the model is not trained.
    pub fn chooses_ahead(&self) -> bool {
        self.leaves_tokens_out() && self.threshold().is_none()
    }

    /// What the runtime must know of a number of steps that is decided while it runs.
    pub fn decided(&self) -> Option<manifest::StepCount> {
        let (evolve, max) = (self.label.clone(), self.steps);
        match &self.depth {
            StepCount::Known => None,
            StepCount::Adaptive(a) => Some(manifest::StepCount::Adaptive {
                evolve,
                max,
                until: a.until.to_f64(),
            }),
            StepCount::Random(r) => Some(manifest::StepCount::Random {
                evolve,
                mean: r.mean,
                max,
            }),
            StepCount::Halting(_) | StepCount::Routed(_) => {
                Some(manifest::StepCount::Halting { evolve, max })
            }
        }
    }

    /// Which steps share weights, field by field where these differ.
    pub fn sharing(&self) -> String {
        let programs = self.unrolled.programs.iter().zip(&self.policies);
        let mut each: Vec<(&str, Sharing)> = Vec::new();
        for (f, policy) in programs.flat_map(|(p, all)| p.fields.iter().zip(all)) {
            if each.iter().all(|(name, _)| *name != f.name) {
                each.push((&f.name, *policy));
            }
        }
        match each.first() {
            Some((_, all)) if each.iter().all(|(_, s)| s == all) => all.to_string(),
            _ => {
                let each = each.iter().map(|(name, s)| format!("of {name} {s}"));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The fields that have weights at each place they are written at.
    fn per_use(&self) -> PerUse {
        let programs = self.unrolled.programs.iter().zip(&self.policies);
        let each = programs.flat_map(|(p, policies)| p.fields.iter().zip(policies));
        let fields: BTreeMap<String, bool> = each
            .map(|(f, policy)| (f.name.clone(), *policy == Sharing::PerUse))
            .collect();
        PerUse {
            // A field that is made of others has theirs.
            all: fields.values().any(|own| *own),
            fields,
        }
    }

    fn is_timed(&self) -> bool {
        let mut policies = self.policies.iter().flatten();
        let mut fields = self.unrolled.programs.iter().flat_map(|p| &p.fields);
        policies.any(|s| matches!(s, Sharing::TimeDependent(_)))
            || fields.any(|f| f.facts.reads_time)
    }

    /// Of each program, the fields whose weights are those of the end of the step: none before the first step, which has no end.
    pub fn of_end(&self) -> Vec<Vec<String>> {
        let programs = self.unrolled.programs.iter().zip(&self.policies);
        let each = programs.enumerate().map(|(n, (p, policies))| {
            let fields = p.fields.iter().zip(policies);
            let at_end = |s: &Sharing| matches!(s, Sharing::TimeDependent(o) if o.at_end);
            let of_end = fields.filter(|(_, s)| self.unrolled.start != Some(n) && at_end(s));
            of_end.map(|(f, _)| f.name.clone()).collect()
        });
        each.collect()
    }

    fn is_at_end(&self) -> bool {
        let mut policies = self.policies.iter().flatten();
        policies.any(|s| matches!(s, Sharing::TimeDependent(o) if o.at_end))
    }

    /// Warns where a method with a history has a lower order because steps are unequal; gives these schemes.
    pub fn warn_of_unequal_steps(&self, sink: &mut Vec<Diagnostic>) -> Vec<String> {
        let Some(at) = self.h_at else {
            return Vec::new();
        };
        let mut names = Vec::new();
        for e in self.evolved() {
            if let Some(warning) = unequal::warning(&e, at) {
                sink.push(warning);
                names.push(e.flow.scheme.name.name.clone());
            }
        }
        names
    }

    /// The flows as they are computed, those with different settings apart.
    pub fn evolved(&self) -> Vec<Evolved> {
        let per_use = self.per_use();
        let mut seen: Vec<(_, Evolved)> = Vec::new();
        let size = |h: &Exact| if h.is_negative() { -h } else { h.clone() };
        let sizes = sizes(&self.h, self.learn_h.as_ref());
        for k in 0..self.steps as usize {
            let (flow, title) = &self.flows[k.min(self.flows.len() - 1)];
            let settings = settings_at(flow, k);
            let key = (title.clone(), settings);
            if let Some((_, e)) = seen.iter_mut().find(|(s, _)| *s == key) {
                e.h = e.h.clone().max(size(&self.h[k]));
            } else {
                let evolved = Evolved {
                    h: size(&self.h[k]),
                    sizes: sizes.clone(),
                    title: title.clone(),
                    flow: flow.clone(),
                    step: k,
                    per_use: per_use.clone(),
                    timed: self.is_timed(),
                    at_end: self.is_at_end(),
                };
                seen.push((key, evolved));
            }
        }
        seen.into_iter().map(|(_, e)| e).collect()
    }

    /// The coefficients that are trained in a phase: the step size, then the scheme's.
    pub fn learned(&self, at: Phase) -> Vec<Learned> {
        let h = self.learn_h.iter().filter_map(|l| match at {
            Phase::Start => None,
            Phase::Step(k) => Some(Learned {
                init: self.h[k].clone(),
                ..l.clone()
            }),
        });
        let program = self.unrolled.program(at).into_iter();
        h.chain(program.flat_map(|p| p.learned.iter().cloned()))
            .collect()
    }
}

fn sizes(h: &[Exact], learned: Option<&Learned>) -> Sizes {
    match learned {
        Some(l) if !l.shared && h.len() > 1 => Sizes::Learned,
        None if h.iter().any(|each| *each != h[0]) => Sizes::Known(h.to_vec()),
        _ => Sizes::Equal,
    }
}

/// `h = 1/steps`, `h = 1/(k+1)`, `learn per channel h = 1`; 1 by default.
fn step_sizes(
    e: &Evolve,
    (steps, depth): &(u64, StepCount),
    sink: &mut Vec<Diagnostic>,
) -> Option<(Vec<Exact>, Option<Learned>)> {
    let steps = *steps;
    let mut rule: Option<(&Expr, Span)> = None;
    let mut learn = None;
    for o in &e.options {
        let (value, span) = match o {
            EvolveOption::H { value, span } => (value, *span),
            EvolveOption::LearnH {
                shared,
                per_channel,
                value,
                span,
            } => {
                learn = Some((*shared, *per_channel));
                (value, *span)
            }
            EvolveOption::Gradient { .. }
            | EvolveOption::Weights { .. }
            | EvolveOption::Report { .. } => continue,
        };
        if let Some((_, first)) = rule {
            sink.push(repeated_option("h", span, first));
            return None;
        }
        rule = Some((value, span));
    }
    if let StepCount::Adaptive(a) = depth {
        // As large as they may be; an `h = …` is refused later.
        return Some((vec![a.until.clone(); steps as usize], None));
    }
    let Some((rule, span)) = rule else {
        return Some((vec![Exact::one(); steps as usize], None));
    };
    let fits = |k: Option<u64>, h: Exact| {
        if h.to_f64().is_finite() && (!h.is_zero() || learn.is_some()) {
            return Ok(h);
        }
        let message = format!("the step size of step {} is {h}", k.unwrap_or(0));
        Err(Diagnostic::error(codes::OUT_OF_RANGE, rule.span, message)
            .label("a number other than 0 is expected"))
    };
    let mut each = report(
        step_rule::numbers(rule, depth.of(steps), &Scope::new(), constant, fits),
        sink,
    )?;
    if let [same] = &each[..] {
        each = vec![same.clone(); steps as usize];
    }
    let learned = learn.map(|(shared, per_channel)| Learned {
        name: "h".into(),
        path: "h".into(),
        shared,
        per_channel,
        init: each[0].clone(),
        span,
        owner: None,
    });
    if learned.as_ref().is_some_and(|l| l.shared)
        && let Some(k) = each.iter().position(|h| *h != each[0])
    {
        let message = "a shared step size has one initial value";
        sink.push(
            Diagnostic::error(codes::INCOMPATIBLE, rule.span, message).label(format!(
                "this is {} in step 0 and {} in step {k}",
                each[0], each[k]
            )),
        );
        return None;
    }
    Some((each, learned))
}

fn repeated_option(word: &str, span: Span, first: Span) -> Diagnostic {
    Diagnostic::error(
        codes::REPEATED_ITEM,
        span,
        format!("`{word}` is given twice"),
    )
    .also(first, "first given here")
}

/// The policy of all fields, and of single ones.
struct Policies {
    all: Sharing,
    fields: Vec<(Ident, Sharing)>,
}

impl Policies {
    fn is_timed(&self) -> bool {
        let all = self.fields.iter().map(|(_, s)| s).chain([&self.all]);
        all.into_iter()
            .any(|s| matches!(s, Sharing::TimeDependent(_)))
    }

    fn per_use(&self) -> PerUse {
        let own = |s: &Sharing| *s == Sharing::PerUse;
        let fields = self.fields.iter();
        PerUse {
            all: own(&self.all),
            fields: fields.map(|(n, s)| (n.name.clone(), own(s))).collect(),
        }
    }

    fn of(&self, field: &str) -> Sharing {
        self.fields
            .iter()
            .find(|(n, _)| n.name == field)
            .map_or(self.all, |(_, s)| *s)
    }
}

fn policies(e: &Evolve, sink: &mut Vec<Diagnostic>) -> Option<Policies> {
    let mut found = Policies {
        all: Sharing::PerStep,
        fields: Vec::new(),
    };
    let mut seen: Option<Span> = None;
    let mut good = true;
    for o in &e.options {
        let EvolveOption::Weights { policies, span } = o else {
            continue;
        };
        if let Some(first) = seen {
            sink.push(repeated_option("weights", *span, first));
            good = false;
        }
        seen = Some(*span);
        let mut all: Option<Span> = None;
        for (name, policy) in policies {
            let Some(sharing) = sharing(policy, sink) else {
                good = false;
                continue;
            };
            match name {
                Some(n) if found.fields.iter().any(|(m, _)| m.name == n.name) => {
                    sink.push(Diagnostic::error(
                        codes::REPEATED_ITEM,
                        n.span,
                        format!("two policies for `{}`", n.name),
                    ));
                    good = false;
                }
                Some(n) => found.fields.push((n.clone(), sharing)),
                None => {
                    if let Some(first) = all.replace(policy.span) {
                        sink.push(repeated_option("weights", policy.span, first));
                        good = false;
                    }
                    found.all = sharing;
                }
            }
        }
    }
    good.then_some(found)
}

fn sharing(policy: &Policy, sink: &mut Vec<Diagnostic>) -> Option<Sharing> {
    match &policy.kind {
        PolicyKind::TimeDependent(args) => {
            time_dependent::read(policy.span, args, sink).map(Sharing::TimeDependent)
        }
        _ => report(shared(policy), sink),
    }
}

fn shared(policy: &Policy) -> Result<Sharing, Diagnostic> {
    let n = |e: &Expr| {
        let n = whole(e, &Scope::new(), 1, MAX_EVALUATIONS as u64);
        n.map(|n| n as usize)
    };
    Ok(match &policy.kind {
        PolicyKind::PerStep => Sharing::PerStep,
        PolicyKind::PerUse => Sharing::PerUse,
        PolicyKind::Shared | PolicyKind::TimeDependent(_) => Sharing::Shared,
        PolicyKind::Every(e) => Sharing::Every(n(e)?),
        PolicyKind::Cycle(e) => Sharing::Cycle(n(e)?),
    })
}
