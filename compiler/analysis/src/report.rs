//! Collects all facts about a scheme, or about an evolve as it is computed.
//!
//! Takes a scheme or an evolve; gives facts in exact numbers. `text.rs`, `json.rs` and `latex.rs` print them.

use super::claims::Instance;
use super::declared_tableau;
use super::exponential::{Stiff, stiff};
use super::general::{General, general};
use super::internal::internal_stability;
use super::iterated::Iterated;
use super::keep::{self, Kept};
use super::learned::{self, Learning};
use super::modified::{self, ModifiedEquation};
use super::opaque_field::{alone, opaque};
use super::order_upgrade::{OrderUpgrade, order_upgrade};
use super::pair::pair;
use super::pair_facts::{self, PairFacts};
use super::same_field::same_field;
use super::start::{Limited, Started, limited, started};
use super::unequal::{Sizes, Unequal, unequal};
use super::varied::keeps_differ;
use crate::scheme::PerUse;
use crate::scheme::define::{Body, SchemeDef};
use crate::scheme::expansion::{Expanded, MAX_CLAIM, expanded};
use crate::scheme::flow::Flow;
use crate::scheme::method::{LocatedStep, Unsupported, away, late_computed, located, to_tolerance};
use crate::scheme::per_use::SHARED;
use crate::scheme::scalar::exact;
use crate::scheme::stage::Steps;
use crate::scheme::work::StepWork;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_library::Library;
use odec_numerics::glm;
use odec_numerics::internal::Internal;
use odec_numerics::joint::Joint;
use odec_numerics::multistep::{Facts, Multistep};
use odec_numerics::order::{Weights, principal_error, prove};
use odec_numerics::properties::Properties;
use odec_numerics::ssp::{Ssp, ssp};
use odec_numerics::stability::{Stability, StabilityFunction};
use odec_numerics::steps::StepBounds;
use odec_numerics::{Tableau, Trees, draw};
use std::rc::Rc;

/// Highest order whose methods are described where coefficients are learned.
const MAX_LEARNING: usize = 6;

/// An evolve of a model.
#[derive(Clone, Debug)]
pub struct Evolved {
    /// The flow as it is written.
    pub title: String,
    pub flow: Rc<Flow>,
    /// The step whose settings are used.
    pub step: usize,
    /// Fields each written occurrence of which has its own weights.
    pub per_use: PerUse,
    /// Whether a field depends on time.
    pub timed: bool,
    /// Whether a field's weights are those of the end of a step, wherever in it they are used.
    pub at_end: bool,
    /// The largest step size it is taken with.
    pub h: Exact,
    /// Of all steps.
    pub sizes: Sizes,
}

/// An order and what limits it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub order: usize,
    /// The first condition that does not hold; `None`: no end was found.
    pub limit: Option<Limit>,
    /// What conditions may be off by; `None`: nothing.
    pub within: Option<Exact>,
    /// What the first steps leave of the order, where it is that of the steps as they are computed, first ones included.
    pub first: Option<Limited>,
}

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// `F''(F, F'F)`.
    pub differential: String,
    /// The same, drawn.
    pub tree: String,
    pub value: Exact,
    pub expected: Exact,
    /// What that means, where there is more to say than the numbers.
    pub meaning: Option<String>,
}

/// The terms of the first order that is missed.
#[derive(Clone, Debug, PartialEq)]
pub struct PrincipalError {
    pub norm: f64,
    /// Conditions of that order, and how many of them do not hold.
    pub conditions: usize,
    pub missed: usize,
    /// Each missed one, with Φ − 1/γ.
    pub terms: Vec<(String, Exact)>,
}

/// What is true of a method of one field.
#[derive(Clone, Debug)]
pub struct OneField {
    pub properties: Properties,
    pub stability: Option<Stability>,
    /// Of the embedded partner.
    pub partner: Option<StabilityFunction>,
    pub steps: Option<StepBounds>,
    pub ssp: Option<Ssp>,
}

/// What is true of a method of several fields on linear equations.
#[derive(Clone, Debug)]
pub struct Additive {
    pub fields: Vec<String>,
    pub joint: Joint,
    /// The method with its fixed-point iterations converged.
    pub converged: bool,
}

#[derive(Clone, Debug)]
pub struct Report {
    /// The scheme's name, or the flow as it is written.
    pub name: String,
    /// `tableau`, `splitting`, `step program`, `multistep method`, `method expression`, `evolve`.
    pub kind: &'static str,
    pub claims: Vec<String>,
    /// As claims are meant.
    pub order: Result<Found, Unsupported>,
    /// With Euler sub-steps, for splittings.
    pub stepped: Option<Found>,
    /// As it is computed.
    pub tableau: Result<Tableau, Unsupported>,
    /// Of a splitting: its flows in turn, each with its part of the step.
    pub flows: Vec<(String, Exact)>,
    /// As it is written, where stages are found by iteration; with its own order.
    pub implicit: Option<(Tableau, Found)>,
    /// What a token's residual may be in a step that is solved for, as a share of its length: everything else is said of the
    /// solution.
    pub tolerance: Option<Exact>,
    /// What of its stability is left in the step that is computed.
    pub iterated: Option<Iterated>,
    /// The order of the embedded partner.
    pub embedded: Option<usize>,
    pub error: Option<PrincipalError>,
    /// Of a method of one step, implicit where there is such, of a splitting with exact flows.
    pub modified: Option<ModifiedEquation>,
    /// What the end of the step makes of rounding errors of its stages, as it is computed.
    pub internal: Option<Internal>,
    /// Of the implicit method where there is one, else as it is computed.
    pub one_field: Option<OneField>,
    pub additive: Option<Additive>,
    /// The step size of an evolve.
    pub h: Option<Exact>,
    /// A known Lipschitz bound of the field.
    pub lipschitz: Option<Exact>,
    pub multistep: Option<(Multistep, Facts)>,
    /// What the conditions say about learned coefficients.
    pub learning: Option<Result<Learning, Unsupported>>,
    /// The manifold that they are kept on.
    pub kept: Option<Kept>,
    /// What would lift the order as it is computed.
    pub upgrade: Option<OrderUpgrade>,
    /// Evaluations of a step far from the start.
    pub work: Option<StepWork>,
    /// Of a step program with a history.
    pub general: Option<(General, glm::Facts)>,
    /// Who takes the first steps.
    pub started: Option<Started>,
    /// The order as it is computed, where that may be another: of schemes with a history, first steps included, and of equations that
    /// iterations do not solve.
    pub computed: Option<Result<Found, Unsupported>>,
    /// For an evolve whose history has steps of other sizes.
    pub unequal: Option<Unequal>,
    /// Of an exponential integrator.
    pub stiff: Option<Result<Stiff, Unsupported>>,
    /// Of a step program that keeps a velocity or a momentum.
    pub pair: Option<PairFacts>,
}

/// The order of an expansion.
pub(super) fn found(e: &mut Expanded, within: Option<&Exact>) -> Found {
    let proof = e.prove(MAX_CLAIM as usize, within);
    let limit = proof.violation.as_ref().map(|v| Limit {
        differential: draw::differential(&e.trees, v.tree, &e.fields),
        tree: draw::tree(&e.trees, v.tree, &e.fields),
        value: v.value.clone(),
        expected: v.expected.clone(),
        meaning: None,
    });
    Found {
        order: proof.order,
        limit,
        within: within.cloned(),
        first: None,
    }
}

/// An order of later steps with what the first ones leave of it.
fn as_computed(
    order: Result<Found, Unsupported>,
    flow: &Flow,
    general: Option<&General>,
) -> Result<Found, Unsupported> {
    let mut found = order?;
    if general
        .and_then(|g| g.glm.zero_stable())
        .is_some_and(|s| !s.0)
    {
        return Err(Unsupported {
            span: flow.scheme.name.span,
            why: "it is not zero-stable: its errors grow from step to step".into(),
        });
    }
    if let Some(beyond) = away(flow) {
        return Err(beyond);
    }
    found.first = limited(flow, found.order, found.within.as_ref())?;
    if let Some(first) = &found.first {
        found.order = first.order;
    }
    Ok(found)
}

fn of_tableau(t: &Tableau, within: Option<&Exact>) -> Option<Found> {
    let mut e = Expanded {
        method: Box::new(Weights::new(t)?),
        trees: Trees::new(t.fields.len()),
        fields: t.fields.clone(),
    };
    Some(found(&mut e, within))
}

/// What a method of one step integrates instead; where it has flows they are exact.
pub(super) fn modified_of(
    t: Option<&Tableau>,
    flows: Option<&LocatedStep>,
) -> Option<ModifiedEquation> {
    match (flows, t) {
        (Some(p), _) => modified::of_flows(p, &order(&Ok(p.clone()), None).ok()?),
        (None, t) => modified::of_tableau(t?, &of_tableau(t?, None)?),
    }
}

/// The residual that a scheme's claim allows.
fn residual(scheme: &SchemeDef, settings: &super::opaque_field::Settings) -> Option<Exact> {
    let within = scheme.claims.iter().find_map(|c| c.within.as_ref())?;
    exact(within, &declared_tableau::scope(scheme, settings, 0)?).ok()
}

fn order(
    p: &Result<LocatedStep, Unsupported>,
    within: Option<&Exact>,
) -> Result<Found, Unsupported> {
    let mut e = expanded(p.as_ref().map_err(Clone::clone)?)?;
    Ok(found(&mut e, within))
}

fn error(t: &Tableau, order: usize) -> Option<PrincipalError> {
    error_of(
        Expanded {
            method: Box::new(Weights::new(t)?),
            trees: Trees::new(t.fields.len()),
            fields: t.fields.clone(),
        },
        order,
    )
}

fn error_of(e: Expanded, order: usize) -> Option<PrincipalError> {
    let (mut method, mut trees) = (e.method, e.trees);
    let (terms, norm) = principal_error(&mut *method, &mut trees, order)?;
    Some(PrincipalError {
        norm,
        conditions: trees.of_order(order + 1).count(),
        missed: terms.len(),
        terms: terms
            .into_iter()
            .map(|(tree, off)| (draw::differential(&trees, tree, &e.fields), off))
            .collect(),
    })
}

pub(super) fn embedded(t: &Tableau, within: Option<&Exact>) -> Option<usize> {
    let partner = t.partner()?;
    let mut trees = Trees::new(t.fields.len());
    let mut weights = Weights::new(&partner)?;
    Some(prove(&mut weights, &mut trees, MAX_CLAIM as usize, within).order)
}

/// The order of the partner of a line, with exact sub-flows where it has such.
pub(super) fn embedded_in(p: &LocatedStep, within: Option<&Exact>) -> Option<usize> {
    let mut partner = expanded(&p.partner()?).ok()?;
    Some(partner.prove(MAX_CLAIM as usize, within).order)
}

/// What a scheme is called by how it is written.
pub fn kind(scheme: &SchemeDef) -> &'static str {
    match &scheme.body {
        Body::Tableau(_) | Body::LearnedFrom(_) => "tableau",
        Body::Splitting(_) => "splitting",
        Body::Step(_) => "step program",
        Body::Multistep(_) => "multistep method",
        Body::Method(_) | Body::Algebra(_) => "method expression",
    }
}

/// A scheme's line, as claims are meant.
fn meant(i: &Instance) -> Result<LocatedStep, Unsupported> {
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    located(&flow, Steps::Exact, &SHARED)
}

/// The order that is proved of a scheme, first steps included, within the residual that its claim allows.
pub fn proved(i: &Instance) -> Result<Found, Unsupported> {
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let within = residual(&i.scheme, &i.settings);
    let found = order(&meant(i), within.as_ref());
    let general = with_history(&flow);
    let found = order_or(found, (&flow, general.as_ref()), within.as_ref());
    as_computed(found, &flow, general.as_ref())
}

/// Whether a scheme is a composition of flows of its fields.
pub fn has_flows(i: &Instance) -> bool {
    meant(i).is_ok_and(|p| p.has_flows())
}

/// Field evaluations of a late step; sub-flows take one Euler step each. What earlier steps evaluated is not evaluated again.
pub fn evaluations(flow: &Flow) -> Option<usize> {
    Some(late_computed(flow, &SHARED, false).ok()?.here.evaluations())
}

/// How much of a scheme is looked into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Without principal error, modified equation, and what would lift the order.
    Line,
    All,
}

/// A scheme on fields of which nothing is known.
pub fn scheme(i: &Instance, library: Library) -> Report {
    described(i, library, Detail::All)
}

/// The same; what the detail leaves out is `None`.
pub(super) fn described(i: &Instance, library: Library, detail: Detail) -> Report {
    let all = detail == Detail::All;
    let within = residual(&i.scheme, &i.settings);
    let within = within.as_ref();
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let meant = located(&flow, Steps::Exact, &SHARED);
    let computed = located(&flow, Steps::Euler, &SHARED);
    let has_flows = meant.as_ref().is_ok_and(LocatedStep::has_flows);
    let (work, tolerance) = (work(&flow, &SHARED, false), to_tolerance(&flow));
    let tableau = computed.clone().and_then(|p| p.tableau());
    let tableau = computed_tableau(tableau, tolerance.as_ref(), &flow);
    let written = computed.as_ref().map_or(Vec::new(), LocatedStep::stages);
    let implicit = declared_tableau::tableau(&i.scheme, &i.settings).filter(|t| !t.is_explicit());
    let implicit = implicit.and_then(|t| {
        let found = of_tableau(&t, within)?;
        Some((t, found))
    });
    let stepped = match has_flows {
        true => order(&computed, None).ok(),
        false => None,
    };
    let pair = pair_facts::facts(&flow);
    let general = with_history(&flow).filter(|_| pair.is_none());
    let order = order_or(order(&meant, within), (&flow, general.as_ref()), within);
    let best = implicit.as_ref().map(|(t, _)| t).or(tableau.as_ref().ok());
    let of_best = match &implicit {
        Some((_, found)) => Some(found.order),
        None => order.as_ref().ok().map(|f| f.order),
    };
    let of_meant = match &implicit {
        Some((_, found)) => Some(found),
        None => order.as_ref().ok(),
    };
    let one_field = (best.filter(|t| t.fields.len() == 1))
        .map(|t| one_field(t, computed.as_ref().ok().filter(|_| implicit.is_none())));
    let rows = declared_tableau::multistep(&i.scheme, &i.settings);
    let known = order.as_ref().map_or(0, |f| f.order.min(MAX_LEARNING));
    let history = history(&flow);
    let otherwise = flow.scheme.looks_back() || away(&flow).is_some();
    let solves = rows.as_ref().is_some_and(|(_, beta)| !beta[0].is_zero());
    let iterated = match (&tableau, &implicit) {
        _ if tolerance.is_some() => None,
        (Ok(t), Some(_)) => Iterated::with_steps(t),
        _ if solves => Iterated::of_steps(&flow),
        _ => None,
    };
    Report {
        learning: learned::learning(i, known),
        kept: keep::kept(i).and_then(Result::ok),
        name: i.scheme.name.name.clone(),
        kind: kind(&i.scheme),
        claims: i.scheme.claims.iter().map(|c| c.text.clone()).collect(),
        stepped: stepped.clone(),
        embedded: match &meant {
            // As the order is meant.
            Ok(p) if has_flows => embedded_in(p, within),
            _ => best.and_then(|t| embedded(t, within)),
        },
        error: best
            .zip(of_best)
            .filter(|_| all && !has_flows)
            .and_then(|(t, p)| error(t, p))
            .or_else(|| {
                let general = general.as_ref().filter(|_| all)?;
                error_of(general.expanded()?, order.as_ref().ok()?.order)
            }),
        modified: match (&meant, best, of_meant) {
            _ if !all => None,
            (Ok(p), _, Some(found)) if has_flows => modified::of_flows(p, found),
            (_, Some(t), Some(found)) => modified::of_tableau(t, found),
            _ => None,
        },
        internal: internal_stability(&computed, one_field.as_ref().filter(|_| implicit.is_none())),
        one_field,
        additive: best.and_then(|t| additive(t, &written)),
        h: None,
        lipschitz: None,
        multistep: rows.map(|(alpha, beta)| {
            let m = Multistep { alpha, beta };
            let facts = m.facts();
            (m, facts)
        }),
        upgrade: stepped
            .as_ref()
            .filter(|_| all)
            .and_then(|f| order_upgrade(&flow, &SHARED, within, f.order, library)),
        work,
        tolerance,
        general: general.map(|g| {
            let facts = g.glm.facts();
            (g, facts)
        }),
        started: started(i, &flow),
        computed: otherwise.then(|| as_computed(order.clone(), &flow, history.as_ref())),
        unequal: None,
        stiff: computed.as_ref().ok().and_then(stiff),
        pair,
        flows: declared_tableau::flows(&i.scheme, &i.settings),
        iterated,
        order,
        tableau,
        implicit,
    }
}

/// What has a history as a general linear method.
fn history(flow: &Flow) -> Option<General> {
    if flow.scheme.history.past.is_empty() {
        return None;
    }
    general(flow).ok().filter(General::has_history)
}

/// The same of a step program: multistep methods are reported by their rows.
fn with_history(flow: &Flow) -> Option<General> {
    let step = matches!(flow.scheme.body, Body::Step(_));
    history(flow).filter(|_| step)
}

/// An order, or that of a general linear method or a pair where a line has none.
fn order_or(
    order: Result<Found, Unsupported>,
    (flow, general): (&Flow, Option<&General>),
    within: Option<&Exact>,
) -> Result<Found, Unsupported> {
    order.or_else(|beyond| {
        let expanded = general.and_then(General::expanded);
        let expanded = expanded.or_else(|| Some(pair(flow).ok()?.expanded()));
        Ok(found(&mut expanded.ok_or(beyond)?, within))
    })
}

/// `computed`: the step that the tableau is made of.
fn one_field(t: &Tableau, computed: Option<&LocatedStep>) -> OneField {
    let stability = stability(t, computed);
    OneField {
        properties: Properties::new(t),
        partner: t.partner().and_then(|t| StabilityFunction::new(&t)),
        steps: stability.as_ref().map(|s| StepBounds::new(t, s)),
        stability,
        ssp: ssp(t),
    }
}

/// By the values of the step where they are known, which are fewer terms than the tableau has.
pub(super) fn stability(t: &Tableau, computed: Option<&LocatedStep>) -> Option<Stability> {
    let line = computed.filter(|_| t.is_explicit()).map(|p| &p.line);
    match line.and_then(StabilityFunction::of_linear_step) {
        Some(function) => Some(Stability::of(function)),
        None => Stability::new(t),
    }
}

/// Of several fields; `written`: where each stage is.
fn additive(t: &Tableau, written: &[Span]) -> Option<Additive> {
    if t.fields.len() < 2 {
        return None;
    }
    let limit = t.converged(written);
    Some(Additive {
        fields: t.fields.clone(),
        converged: limit.is_some(),
        joint: Joint::new(&limit.unwrap_or_else(|| t.clone()))?,
    })
}

/// What is known of an evolve as it is computed.
struct Computed {
    order: Result<Found, Unsupported>,
    tableau: Result<Tableau, Unsupported>,
    general: Option<General>,
    unequal: Option<Unequal>,
    stiff: Option<Result<Stiff, Unsupported>>,
    /// Its step.
    located: Option<LocatedStep>,
}

/// The order of an evolve as it is computed, and its tableau. Where each written occurrence has weights of its own, each field stands
/// in the equation with the weight that the scheme gives it.
fn computed(e: &Evolved) -> Computed {
    let settings = super::opaque_field::settings(&e.flow.settings, e.step);
    let within = residual(&e.flow.scheme, &settings);
    let whole = opaque(&e.flow, e.step);
    let located = located(&whole, Steps::Euler, &e.per_use);
    let general = match e.per_use.is_any() {
        true => None,
        false => with_history(&whole),
    };
    let tableau = located.clone().and_then(|p| p.tableau());
    let stiff = located.as_ref().ok().and_then(stiff);
    let found = match &tableau {
        Ok(t) if e.per_use.is_any() => of_tableau(&t.normalised(), within.as_ref()),
        _ => None,
    };
    let order = found.map_or_else(|| order(&located, within.as_ref()), Ok);
    let weightless = tableau.as_ref().ok().and_then(|t| weightless(t, e));
    let order = match (e.per_use.is_any(), weightless) {
        (true, Some(why)) => Err(Unsupported {
            span: e.flow.span,
            why,
        }),
        (true, None) => order,
        (false, _) => order_or(order, (&whole, general.as_ref()), within.as_ref()),
    };
    let order = match tableau.is_err() && keeps_differ(e) {
        true => Err(Unsupported {
            span: e.flow.span,
            why: "earlier steps, with other settings, keep other values".into(),
        }),
        false => order,
    };
    let looks_back = tableau.is_err().then(|| unequal(e, &order)).flatten();
    let with_first_steps = |order| match e.per_use.is_any() && whole.scheme.looks_back() {
        false => as_computed(order, &whole, history(&whole).as_ref()),
        true => order.and(Err(Unsupported {
            span: whole.span,
            why: "each occurrence of a field has weights of its own, in the first steps too".into(),
        })),
    };
    let (unequal, order) = match looks_back {
        Some((about, on_grid)) => {
            let equal = with_first_steps(order).ok().map(|f| f.order);
            (Some(Unequal { equal, ..about }), on_grid)
        }
        None => (None, order),
    };
    let mut order = with_first_steps(order);
    if let Ok(found) = &mut order {
        let meaning = same_field(e, found);
        if let Some(limit) = &mut found.limit {
            limit.meaning = meaning;
        }
    }
    Computed {
        order,
        tableau,
        // What is said of it is true of equal steps.
        general: general.filter(|_| unequal.is_none()),
        unequal,
        stiff,
        located: located.ok(),
    }
}

/// Why a method is one for no equation: an occurrence with weights of its own takes part in it, and not in its result.
fn weightless(t: &Tableau, e: &Evolved) -> Option<String> {
    let own = |name: &str| {
        let occurrence = name.rsplit_once('.');
        occurrence.is_some_and(|(leaf, _)| e.per_use.of(leaf))
    };
    let weight = |field: usize| -> Exact {
        let stages = t.b.iter().zip(&t.field_of);
        let stages = stages.filter(|(_, f)| **f == field);
        stages.map(|(b, _)| b.clone()).sum()
    };
    let mut fields = t.fields.iter().enumerate();
    let (_, name) = fields.find(|(f, name)| own(name) && weight(*f).is_zero())?;
    Some(format!(
        "`{name}` has weights of its own, and in the result it has no weight: it stands in no equation that this step could solve"
    ))
}

/// A model's evolve as it is computed, each field as a whole.
pub fn evolve(e: &Evolved, library: Library) -> Report {
    let Computed {
        order,
        tableau,
        general,
        unequal,
        stiff,
        located,
    } = computed(e);
    let written = located.as_ref().map_or(Vec::new(), LocatedStep::stages);
    let flow = opaque(&e.flow, e.step);
    let tolerance = to_tolerance(&flow);
    let tableau = computed_tableau(tableau, tolerance.as_ref(), &flow);
    let built = tableau.as_ref().ok();
    let meant = built.map(|t| match e.per_use.is_any() {
        true => t.normalised(),
        false => t.clone(),
    });
    Report {
        name: e.title.clone(),
        kind: "evolve",
        learning: None,
        kept: None,
        claims: Vec::new(),
        stepped: None,
        flows: Vec::new(),
        upgrade: order
            .as_ref()
            .ok()
            .and_then(|f| order_upgrade_of(e, f.order, library)),
        work: work(&flow, &e.per_use, e.timed),
        tolerance,
        implicit: None,
        iterated: None,
        embedded: None,
        error: meant
            .as_ref()
            .zip(order.as_ref().ok())
            .and_then(|(t, f)| error(t, f.order)),
        modified: (meant.as_ref().zip(order.as_ref().ok()))
            .and_then(|(t, f)| modified::of_tableau(t, f)),
        internal: None,
        one_field: built
            .filter(|t| t.fields.len() == 1)
            .map(|t| one_field(t, located.as_ref())),
        additive: built.and_then(|t| additive(t, &written)),
        h: Some(e.h.clone()),
        lipschitz: None,
        multistep: None,
        general: general.map(|g| {
            let facts = g.glm.facts();
            (g, facts)
        }),
        started: None,
        computed: None,
        pair: order
            .is_ok()
            .then(|| pair_facts::facts(&flow))
            .flatten()
            .filter(|_| unequal.is_none()),
        unequal,
        stiff,
        order,
        tableau,
    }
}

/// What would lift an evolve above the order that it has.
pub fn order_upgrade_of(e: &Evolved, has: usize, library: Library) -> Option<OrderUpgrade> {
    let settings = super::opaque_field::settings(&e.flow.settings, e.step);
    let within = residual(&e.flow.scheme, &settings);
    order_upgrade(
        &opaque(&e.flow, e.step),
        &e.per_use,
        within.as_ref(),
        has,
        library,
    )
}

/// The orders of an evolve and of its embedded partner, as they are computed.
pub fn orders_of_pair(e: &Evolved) -> Result<[usize; 2], Unsupported> {
    let settings = super::opaque_field::settings(&e.flow.settings, e.step);
    let within = residual(&e.flow.scheme, &settings);
    let Computed { order, tableau, .. } = computed(e);
    let (order, tableau) = (order?, tableau?);
    let none = || Unsupported {
        span: e.flow.span,
        why: "it has no embedded partner".into(),
    };
    let partner = embedded(&tableau, within.as_ref()).ok_or_else(none)?;
    Ok([order.order, partner])
}

fn work(flow: &Flow, per_use: &PerUse, timed: bool) -> Option<StepWork> {
    let late = late_computed(flow, per_use, timed).ok()?;
    late.next.is_none().then(|| StepWork::of(&late.here))
}

/// What is solved to a tolerance is not computed by the iterations that decide its order.
fn computed_tableau(
    of: Result<Tableau, Unsupported>,
    tolerance: Option<&Exact>,
    flow: &Flow,
) -> Result<Tableau, Unsupported> {
    match tolerance {
        None => of,
        Some(tol) => Err(Unsupported {
            span: flow.scheme.name.span,
            why: format!("it is solved for, to {tol}"),
        }),
    }
}

/// The order of an evolve as it is computed, and what limits it.
pub fn order_of(e: &Evolved) -> Result<Found, Unsupported> {
    computed(e).order
}

/// The same, and what is known of its steps where they are not equal.
pub fn steps_of(e: &Evolved) -> (Result<Found, Unsupported>, Option<Unequal>) {
    let Computed { order, unequal, .. } = computed(e);
    (order, unequal)
}
