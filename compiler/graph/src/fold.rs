//! Finds steps of a graph that repeat the one before, so that printers show them once.
//!
//! Takes a graph; gives its nodes in pieces, with repeated steps together. Two steps are equal if they have the same ops (parameters
//! renamed from `step.3.…` to `step.4.…`) on the same operands, seen from their own step. Sources of no single step (shared parameters,
//! tables) count as earlier values.

use crate::graph::Pass;
use crate::ops::{Graph, Node, OpKind};
use crate::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Nodes that are shown together; in order, pieces hold every node once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Nodes outside of all steps.
    Plain(Vec<u32>),
    Steps(Steps),
}

/// A step and those right after it that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    pub evolve: String,
    pub pass: Pass,
    /// Numbers of the first and the last step; they fall in the backward pass.
    pub first: u32,
    pub last: u32,
    /// Nodes of the first step.
    pub nodes: Vec<u32>,
    /// Nodes of the others, as many each.
    pub others: Vec<u32>,
    /// What the first step reads from outside → what the others read instead, in the numbers of the step before.
    pub carried: BTreeMap<Value, Value>,
}

/// Cuts the nodes into pieces, in order.
pub fn fold(graph: &Graph) -> Vec<Piece> {
    let runs = Runs::new(graph);
    let mut pieces: Vec<Piece> = Vec::new();
    // the last step of the piece that is being folded
    let mut previous: Option<&Run> = None;
    for run in &runs.list {
        let Some(step) = run.step else {
            pieces.push(Piece::Plain(run.nodes.clone()));
            previous = None;
            continue;
        };
        if let (Some(p), Some(Piece::Steps(steps))) = (previous, pieces.last_mut())
            && let Some(carried) = same(graph, &runs, p, run, steps)
        {
            steps.carried = carried;
            steps.last = step;
            steps.others.extend(&run.nodes);
        } else {
            pieces.push(Piece::Steps(Steps {
                evolve: run.evolve.into(),
                pass: run.pass,
                first: step,
                last: step,
                nodes: run.nodes.clone(),
                others: Vec::new(),
                carried: BTreeMap::new(),
            }));
        }
        previous = Some(run);
    }
    pieces
}

/// Nodes of one step, or of none.
struct Run<'a> {
    evolve: &'a str,
    pass: Pass,
    step: Option<u32>,
    nodes: Vec<u32>,
    /// No other run belongs to the same step and pass.
    whole: bool,
}

struct Runs<'a> {
    list: Vec<Run<'a>>,
    /// For each node its run and its place there.
    place: Vec<(usize, usize)>,
}

impl Run<'_> {
    fn of_none(nodes: Vec<u32>) -> Self {
        Run {
            evolve: "",
            pass: Pass::Forward,
            step: None,
            nodes,
            whole: true,
        }
    }
}

impl<'a> Runs<'a> {
    fn new(graph: &'a Graph) -> Runs<'a> {
        let mut list: Vec<Run> = Vec::new();
        // sources met since the last other node
        let mut common: Vec<u32> = Vec::new();
        for (n, node) in graph.nodes() {
            if is_common(node) {
                common.push(n);
                continue;
            }
            let s = &node.site;
            let same = |r: &Run| (r.evolve, r.pass, r.step) == (&*s.evolve, s.pass, s.step);
            if !list.last().is_some_and(same) {
                list.push(Run {
                    evolve: &s.evolve,
                    pass: s.pass,
                    step: s.step,
                    nodes: vec![],
                    whole: true,
                });
            }
            // within steps they belong before them
            let plain = list.iter_mut().rev().find(|r| r.step.is_none());
            match plain {
                Some(r) => r.nodes.append(&mut common),
                None if common.is_empty() => {}
                None => list.insert(0, Run::of_none(std::mem::take(&mut common))),
            }
            list.last_mut().expect("just made").nodes.push(n);
        }
        if !common.is_empty() {
            list.push(Run::of_none(common));
        }
        let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
        let mut place = vec![(0, 0); graph.len() as usize];
        for (i, r) in list.iter().enumerate() {
            let key = (r.evolve, r.pass, r.step);
            if !seen.insert(key) {
                twice.insert(key);
            }
            for (k, n) in r.nodes.iter().enumerate() {
                place[*n as usize] = (i, k);
            }
        }
        for r in &mut list {
            r.whole = !twice.contains(&(r.evolve, r.pass, r.step));
        }
        Runs { list, place }
    }

    /// The run of a value and the place of its node there.
    fn of(&self, v: Value) -> (&Run<'a>, usize) {
        let (run, place) = self.place[v.node as usize];
        (&self.list[run], place)
    }
}

/// A source that is the same in all steps.
fn is_common(node: &Node) -> bool {
    let own = |k| match &node.op {
        OpKind::Parameter(p) => of_step(&p.path, i64::from(k)).is_some(),
        _ => false,
    };
    node.operands.is_empty() && node.site.pass == Pass::Forward && !node.site.step.is_some_and(own)
}

/// Whether `run` repeats `p`, the last of `steps` so far; then what the first step's outside operands become.
fn same(
    graph: &Graph,
    runs: &Runs,
    p: &Run,
    run: &Run,
    steps: &Steps,
) -> Option<BTreeMap<Value, Value>> {
    let (from, to) = (i64::from(p.step?), i64::from(run.step?));
    let direction = i64::from(steps.last) - i64::from(steps.first);
    let next = match direction.signum() {
        0 => (from - to).abs() == 1,
        d => to - from == d,
    };
    let alike = (p.evolve, p.pass, p.nodes.len()) == (run.evolve, run.pass, run.nodes.len());
    if !next || !alike || !p.whole || !run.whole {
        return None;
    }
    let first = p.nodes == steps.nodes;
    // images of what the first step reads from outside, itself or carried
    let mut images: BTreeMap<Value, Value> = BTreeMap::new();
    for (i, j) in p.nodes.iter().zip(&run.nodes) {
        let (a, b) = (graph.node(*i), graph.node(*j));
        if !same_node(a, b, from, to) {
            return None;
        }
        for (x, y) in a.operands.iter().zip(&b.operands) {
            let ((rx, px), (ry, py)) = (runs.of(*x), runs.of(*y));
            // each in the step as far away, at the same place
            let relative = match (rx.step, ry.step) {
                (Some(sx), Some(sy)) => {
                    i64::from(sx) - from == i64::from(sy) - to
                        && (rx.evolve, rx.pass, rx.whole) == (ry.evolve, ry.pass, ry.whole)
                        && rx.whole
                        && px == py
                        && x.port == y.port
                }
                _ => false,
            };
            let inside = std::ptr::eq(rx, p) || std::ptr::eq(ry, run);
            if relative && inside {
                continue;
            }
            let parameters = same_node(graph.node(x.node), graph.node(y.node), from, to)
                && is_parameter(graph, *x);
            let carried = first && std::ptr::eq(ry, p);
            if inside || !(x == y || relative || parameters || carried) {
                return None;
            }
            if first && *images.entry(*x).or_insert(*y) != *y {
                return None;
            }
        }
    }
    if !first {
        return Some(steps.carried.clone());
    }
    images.retain(|_, y| std::ptr::eq(runs.of(*y).0, p));
    Some(images)
}

fn is_parameter(graph: &Graph, v: Value) -> bool {
    matches!(graph.node(v.node).op, OpKind::Parameter(_))
}

/// The same op at the same place of its step, operands aside.
fn same_node(a: &Node, b: &Node, from: i64, to: i64) -> bool {
    let op = match (&a.op, &b.op) {
        (OpKind::Parameter(p), OpKind::Parameter(q)) => {
            (&p.shape, &p.init) == (&q.shape, &q.init)
                && (p.path == q.path || of_step(&p.path, from) == of_step(&q.path, to))
        }
        (p, q) => p == q,
    };
    op && a.types == b.types
        && a.operands.len() == b.operands.len()
        && (a.site.evaluation, &a.site.path) == (b.site.evaluation, &b.site.path)
}

/// A path without the number of its step: `step.3.att` → `step.*.att`; `None`: it belongs to no such step.
fn of_step(path: &str, step: i64) -> Option<String> {
    let number = step.to_string();
    let mut parts: Vec<&str> = path.split('.').collect();
    let at = parts.windows(2).position(|w| w == ["step", &*number])?;
    parts[at + 1] = "*";
    Some(parts.join("."))
}
