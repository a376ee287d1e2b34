//! Numbers of steps that are drawn: in which share of all draws a value is computed.
//!
//! Takes a graph and what is drawn; gives a share for each node. A run passes over a launch where its flag is not positive
//! (`passes/predication.rs`); here a flag of a drawn number is known for every number. Leaves counting to `operations.rs`.

use crate::passes::facts::Facts;
use crate::passes::predication::Predication;
use odec_graph::ops::OpKind;
use odec_graph::tensor::EvalCx;
use odec_graph::{Graph, Tensor, Value};
use odec_program::manifest::{StepCount, depth};
use odec_program::{Bindings, step_law};
use std::collections::{BTreeMap, BTreeSet};

/// The number of steps of an evolve.
pub struct Draw {
    /// The input that it is.
    input: String,
    /// The chances that it exceeds 0, 1, …; beyond them, never.
    exceeding: Vec<f64>,
}

impl Draw {
    /// Those of a model's evolves.
    pub fn all(depths: &[StepCount]) -> Vec<Draw> {
        let each = depths.iter().filter_map(|d| match d {
            StepCount::Random { evolve, mean, max } => Some(Draw {
                input: depth::input(evolve),
                exceeding: step_law::exceeding(*mean, max.saturating_sub(1)),
            }),
            StepCount::Adaptive { .. } | StepCount::Halting { .. } => None,
        });
        each.collect()
    }

    /// Always the same number.
    pub fn of(evolve: &str, number: u64) -> Draw {
        Draw {
            input: depth::input(evolve),
            exceeding: vec![1.0; number as usize],
        }
    }

    fn exceeds(&self, n: u64) -> f64 {
        self.exceeding.get(n as usize).copied().unwrap_or(0.0)
    }
}

/// Numbers of steps, as intervals: above the first, up to the second.
type Numbers = Vec<(u64, u64)>;

/// The share of all draws in which each node is computed; draws of several evolves are independent.
pub fn computed(graph: &Graph, draws: &[Draw]) -> Vec<f64> {
    let predication = Predication::new(graph, &Facts::new(graph));
    let flags = predication.flags().into_iter();
    let positive: BTreeMap<u32, (usize, Numbers)> = flags
        .filter_map(|f| Some((f, positive(graph, f, draws)?)))
        .collect();
    let mut known: BTreeMap<&BTreeSet<u32>, f64> = BTreeMap::new();
    let of = |flags: &BTreeSet<u32>| -> f64 {
        let of_draw = |(d, draw): (usize, &Draw)| {
            let its = flags.iter().filter_map(|f| positive.get(f));
            let its = its.filter(|(of, _)| *of == d).map(|(_, numbers)| numbers);
            let everywhere = vec![(0, u64::MAX)];
            let all = its.fold(everywhere, |met, numbers| both(&met, numbers));
            let chance = |(above, to): &(u64, u64)| draw.exceeds(*above) - draw.exceeds(*to);
            all.iter().map(chance).sum::<f64>()
        };
        draws.iter().enumerate().map(of_draw).product()
    };
    (0..graph.len())
        .map(|n| {
            let flags = predication.of(n);
            *known.entry(flags).or_insert_with(|| of(flags))
        })
        .collect()
}

fn both(a: &Numbers, b: &Numbers) -> Numbers {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    let met = pairs.map(|(x, y)| (x.0.max(y.0), x.1.min(y.1)));
    met.filter(|(above, to)| above < to).collect()
}

/// The numbers where a flag is positive, and the draw that it depends on; `None` where it depends on something else.
fn positive(graph: &Graph, flag: u32, draws: &[Draw]) -> Option<(usize, Numbers)> {
    let behind = behind(graph, flag)?;
    let mut draw = None;
    let mut bounds: BTreeSet<u64> = [0].into();
    for node in behind.iter().map(|n| graph.node(*n)) {
        match &node.op {
            OpKind::Input(i) => {
                let at = draws.iter().position(|d| d.input == i.name)?;
                if draw.is_some_and(|known| known != at) {
                    return None;
                }
                draw = Some(at);
            }
            OpKind::Parameter(_) | OpKind::Cache(_) | OpKind::Carry(_) => return None,
            // Nothing else tells numbers apart.
            OpKind::Exceeds(e) => drop(bounds.insert(e.than.into())),
            _ => {}
        }
    }
    let draw = draw?;
    let bounds: Vec<u64> = bounds.into_iter().chain([u64::MAX]).collect();
    let mut numbers = Numbers::new();
    for ends in bounds.windows(2) {
        if at(graph, &behind, ends[0] + 1)? > 0.0 {
            numbers.push((ends[0], ends[1]));
        }
    }
    Some((draw, numbers))
}

/// A node and all that it depends on, in their order; `None` where that is more than single numbers.
fn behind(graph: &Graph, node: u32) -> Option<BTreeSet<u32>> {
    let (mut found, mut open) = (BTreeSet::new(), vec![node]);
    while let Some(n) = open.pop() {
        let node = graph.node(n);
        if !matches!(node.op, OpKind::Input(_)) && node.types[0].rank() > 0 {
            return None;
        }
        if found.insert(n) {
            open.extend(node.operands.iter().map(|v| v.node));
        }
    }
    Some(found)
}

/// The last of some nodes, whose inputs are all this number; `None` where it cannot be computed.
fn at(graph: &Graph, nodes: &BTreeSet<u32>, number: u64) -> Option<f64> {
    let cx = EvalCx {
        bindings: Bindings::new(1, 1),
    };
    let mut values: BTreeMap<Value, Tensor> = BTreeMap::new();
    for n in nodes {
        let node = graph.node(*n);
        let results = match &node.op {
            OpKind::Input(_) => vec![Tensor::new(vec![1], vec![number as f64])],
            op => {
                let ins: Vec<&Tensor> = node.operands.iter().map(|v| &values[v]).collect();
                op.eval(&ins, &cx).ok()?
            }
        };
        for (port, t) in results.into_iter().enumerate() {
            let port = port as u32;
            values.insert(Value { node: *n, port }, t);
        }
    }
    values.values().next_back()?.data.first().copied()
}
