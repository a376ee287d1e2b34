//! Which inner schemes would raise the order of a splitting, for as few operators as possible.
//!
//! Takes a flow; tries methods of rising order in place of Euler steps (or of the inner schemes that are written), first for all operators,
//! to see where the splitting itself ends, then for fewer. Gives the first set that is proved to have that order. Work is
//! bounded by stages and operators: what is longer stays untried. Leaves proofs to `odec-numerics`.

use crate::scheme::PerUse;
use crate::scheme::define::{Body, SchemeDef, define};
use crate::scheme::expansion::expanded;
use crate::scheme::flow::{Field, Flow, FlowArg, FlowArgKind, Method};
use crate::scheme::method::located;
use crate::scheme::per_use::SHARED;
use crate::scheme::stage::Steps;
use odec_exact::Exact;
use odec_grammar::ast::Item;
use odec_grammar::parse;
use odec_library::Library;
use odec_numerics::Trees;
use odec_numerics::order::{Weights, prove};
use std::rc::Rc;

/// Inner schemes with their orders, by few evaluations.
const INNER: [(&str, usize); 4] = [("heun", 2), ("kutta3", 3), ("rk4", 4), ("butcher6", 6)];
/// Most stages of a step that is tried.
const MAX_STAGES: usize = 128;
/// Most operators whose subsets are tried.
const MAX_OPERATORS: usize = 5;

/// A way to a higher order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderUpgrade {
    pub order: usize,
    /// Fields, and the inner scheme that each needs.
    pub by: Vec<(String, &'static str)>,
    /// All uses of a field must share their weights as well.
    pub shared: bool,
}

impl OrderUpgrade {
    /// `order 2 with heun for ffn and att`.
    pub fn sentence(&self) -> String {
        let mut names: Vec<&str> = self.by.iter().map(|(field, _)| field.as_str()).collect();
        let last = names.pop().unwrap_or_default();
        let fields = match names.as_slice() {
            [] => last.to_string(),
            names => format!("{} and {last}", names.join(", ")),
        };
        let inner = self.by.first().map_or("", |(_, scheme)| scheme);
        let shared = match self.shared {
            true => " and shared weights",
            false => "",
        };
        format!("order {} with {inner} for {fields}{shared}", self.order)
    }
}

/// What lifts a flow above the order that it has; `None`: nothing that was tried, or it has no sub-flows.
pub fn order_upgrade(
    flow: &Flow,
    per_use: &PerUse,
    within: Option<&Exact>,
    has: usize,
    library: Library,
) -> Option<OrderUpgrade> {
    let mut names = Vec::new();
    operators(flow, &mut names);
    let bare = with(flow, &names, None);
    if names.is_empty() || !located(&bare, Steps::Exact, &SHARED).ok()?.has_flows() {
        return None;
    }
    let methods = methods(flow, library)?;
    lifted(flow, &names, per_use, within, has, &methods).or_else(|| {
        // Uses that share their weights are one field.
        let found =
            lifted(flow, &names, &SHARED, within, has, &methods).filter(|_| per_use.is_any())?;
        Some(OrderUpgrade {
            shared: true,
            ..found
        })
    })
}

fn lifted(
    flow: &Flow,
    names: &[String],
    per_use: &PerUse,
    within: Option<&Exact>,
    has: usize,
    methods: &[Rc<Method>],
) -> Option<OrderUpgrade> {
    let mut best: Option<(usize, &'static str, &Rc<Method>)> = None;
    for ((scheme, order), method) in INNER.into_iter().zip(methods) {
        let all = with(flow, names, Some(method));
        let Some(reached) = order_of(&all, per_use, within, order) else {
            break;
        };
        let before = best.as_ref().map_or(has, |(o, ..)| *o);
        if reached > before {
            best = Some((reached, scheme, method));
        }
        // Here the splitting ends.
        if reached < order {
            break;
        }
    }
    let (order, scheme, method) = best?;
    let mut chosen = names.to_vec();
    if names.len() <= MAX_OPERATORS {
        let mut sets: Vec<Vec<String>> = (1u32..1 << names.len())
            .map(|set| {
                let one = |(i, n): (usize, &String)| (set >> i & 1 == 1).then(|| n.clone());
                names.iter().enumerate().filter_map(one).collect()
            })
            .collect();
        sets.sort_by_key(Vec::len);
        let enough = |set: &&Vec<String>| {
            let tried = with(flow, set, Some(method));
            order_of(&tried, per_use, within, order) == Some(order)
        };
        chosen = sets.iter().find(enough).cloned().unwrap_or(chosen);
    }
    Some(OrderUpgrade {
        order,
        by: chosen.into_iter().map(|n| (n, scheme)).collect(),
        shared: false,
    })
}

/// The order as it is computed, no more than `up_to`; `None` where that takes too long.
fn order_of(flow: &Flow, per_use: &PerUse, within: Option<&Exact>, up_to: usize) -> Option<usize> {
    let located = located(flow, Steps::Euler, per_use).ok()?;
    let tableau = located.tableau().ok()?;
    if tableau.stages() > MAX_STAGES {
        return None;
    }
    let proof = match per_use.is_any() {
        true => {
            let mut trees = Trees::new(tableau.fields.len());
            let mut weights = Weights::new(&tableau.normalised())?;
            prove(&mut weights, &mut trees, up_to, within)
        }
        false => expanded(&located).ok()?.prove(up_to, within),
    };
    Some(proof.order.min(up_to))
}

/// Names of the fields that are advanced by sub-flows, each once.
fn operators(flow: &Flow, names: &mut Vec<String>) {
    let has_flows = matches!(flow.scheme.body, Body::Splitting(_) | Body::Step(_));
    for arg in flow.args.iter().chain(&flow.list) {
        match &arg.kind {
            FlowArgKind::Flow(inner) => operators(inner, names),
            FlowArgKind::Field { field, .. } => {
                if let (Field::Leaf(leaf), true) = (&**field, has_flows)
                    && !names.contains(&leaf.name)
                {
                    names.push(leaf.name.clone());
                }
            }
        }
    }
}

/// The flow with another inner scheme for some of its fields.
fn with(flow: &Flow, names: &[String], method: Option<&Rc<Method>>) -> Flow {
    let has_flows = matches!(flow.scheme.body, Body::Splitting(_) | Body::Step(_));
    let arg = |a: &FlowArg| FlowArg {
        kind: match &a.kind {
            FlowArgKind::Flow(inner) => FlowArgKind::Flow(Rc::new(with(inner, names, method))),
            FlowArgKind::Field { field, by } => {
                let named = match &**field {
                    Field::Leaf(leaf) => has_flows && names.contains(&leaf.name),
                    _ => false,
                };
                FlowArgKind::Field {
                    field: field.clone(),
                    by: if named { method.cloned() } else { by.clone() },
                }
            }
        },
        span: a.span,
    };
    Flow {
        args: flow.args.iter().map(arg).collect(),
        list: flow.list.iter().map(arg).collect(),
        ..flow.clone()
    }
}

/// The methods of [`INNER`], to be applied where the flow is written; `None` where the library lacks one.
fn methods(flow: &Flow, library: Library) -> Option<Vec<Rc<Method>>> {
    let method = |(name, _): &(&str, usize)| {
        let text = library.get(name)?.text;
        let (file, _) = parse(0, text);
        let scheme: SchemeDef = file.items.iter().find_map(|i| match i {
            Item::Scheme(s) if s.name.name == *name => define(s, text, &mut Vec::new()),
            _ => None,
        })?;
        Some(Rc::new(Method {
            scheme: Rc::new(scheme),
            settings: Vec::new(),
            span: flow.span,
        }))
    };
    INNER.iter().map(method).collect()
}
