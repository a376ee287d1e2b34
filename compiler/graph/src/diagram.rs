//! A graph as a person sees it: parts of the model, and steps of field evaluations and combinations.
//!
//! Takes a graph, whose sites say what belongs together; gives a [`Diagram`] in which equal neighbouring steps are one.
//! Leaves places, lines and colours to [`crate::svg`]. Sources (parameters, tables, constants) are not shown, numbers made
//! of them stand in formulas, and of the backward pass its steps.

use crate::formula::Formulas;
use crate::graph::Pass;
use crate::op::Kind;
use crate::ops::{Graph, Node, OpKind};
use crate::types::TensorType;
use std::collections::{BTreeMap, BTreeSet};

/// The model from its input to its loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagram {
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    Part(Part),
    Steps(Steps),
}

/// A part outside of all steps: embedding, output, loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub name: String,
    /// Its parts, in order.
    pub parts: Vec<String>,
    /// Inputs of the model that it reads.
    pub inputs: Vec<String>,
    /// Type of its last result.
    pub result: TensorType,
}

/// One step, standing for all equal ones from the first to the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    pub evolve: String,
    pub first: u32,
    pub last: u32,
    /// From one of them to the next: 1, or more where steps of other kinds alternate with them.
    pub every: u32,
    /// In topological order, those that come from outside first.
    pub cells: Vec<Cell>,
    /// Which cell is the state after the step.
    pub result: usize,
}

impl Steps {
    /// How many it represents.
    pub fn count(&self) -> u32 {
        (self.last - self.first) / self.every + 1
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// `x`, `k₁`, `y₂`.
    pub name: String,
    pub kind: CellKind,
    /// Cells it reads, each once, in order.
    pub operands: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CellKind {
    /// Made before this step.
    Outside,
    /// A learned field at a state.
    Evaluation { field: String, parts: Vec<String> },
    /// The terms of a sum (`x`, `+ 1/2 k₁`), or one other expression.
    Combination { terms: Vec<String> },
}

/// The part of a site where a state is given a mean and a deviation; the instruction's number follows.
pub const NORMALIZE: &str = "normalize";

/// What the nodes of a graph make together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Part(String, String),
    Evaluation(String, u32, u32),
    Single(String, u32, u32),
    /// Nodes that one word of the source makes.
    Named(String, u32, String),
}

pub fn diagram(graph: &Graph) -> Diagram {
    let mut members: BTreeMap<Group, Vec<u32>> = BTreeMap::new();
    let mut order: Vec<Group> = Vec::new();
    let mut group_of: BTreeMap<u32, Group> = BTreeMap::new();
    let formulas = Formulas::of(graph);
    for (n, node) in graph
        .nodes()
        .filter(|(n, node)| shown(node) && !formulas.hides(*n))
    {
        let group = group(n, node);
        let nodes = members.entry(group.clone()).or_default();
        if nodes.is_empty() {
            order.push(group.clone());
        }
        nodes.push(n);
        group_of.insert(n, group);
    }
    let mut sections: Vec<Section> = Vec::new();
    let mut states = States::default();
    let mut i = 0;
    while i < order.len() {
        let step = |g: &Group| match g {
            Group::Part(..) => None,
            Group::Evaluation(e, k, _) | Group::Single(e, k, _) | Group::Named(e, k, _) => {
                Some((e.clone(), *k))
            }
        };
        let Some(at) = step(&order[i]) else {
            let nodes = &members[&order[i]];
            sections.push(Section::Part(part(graph, &order[i], nodes)));
            // What decides how many steps are made is no state.
            if !matches!(&order[i], Group::Part(_, name) if name == "steps") {
                states.state = nodes.last().copied();
            }
            i += 1;
            continue;
        };
        let same = order[i..]
            .iter()
            .take_while(|g| step(g).as_ref() == Some(&at))
            .count();
        let groups: Vec<(&Group, &Vec<u32>)> = order[i..i + same]
            .iter()
            .map(|g| (g, &members[g]))
            .collect();
        let steps = step_of((graph, &formulas), at, &groups, &group_of, &mut states);
        match sections.last_mut() {
            Some(Section::Steps(s)) if repeats(s, &steps) => s.last = steps.last,
            _ => sections.push(Section::Steps(steps)),
        }
        i += same;
    }
    let mut sections = alternating(sections);
    sections.extend(backward(graph));
    Diagram { sections }
}

/// Most kinds of steps that are seen to take turns.
const MAX_TURNS: usize = 8;

/// Steps of several kinds that take turns, each kind once.
fn alternating(sections: Vec<Section>) -> Vec<Section> {
    let mut kept: Vec<Section> = Vec::new();
    let mut rest = &sections[..];
    while let [first, after @ ..] = rest {
        let turns = (2..=MAX_TURNS).find(|kinds| rounds(rest, *kinds) > 1);
        let Some(kinds) = turns else {
            kept.push(first.clone());
            rest = after;
            continue;
        };
        let rounds = rounds(rest, kinds);
        let (first, last) = (&rest[..kinds], &rest[(rounds - 1) * kinds..]);
        for (a, z) in first.iter().zip(last) {
            if let (Section::Steps(a), Section::Steps(z)) = (a, z) {
                kept.push(Section::Steps(Steps {
                    last: z.last,
                    every: kinds as u32,
                    ..a.clone()
                }));
            }
        }
        rest = &rest[rounds * kinds..];
    }
    kept
}

/// How often the first so many sections come one after the other, if each is one step.
fn rounds(sections: &[Section], kinds: usize) -> usize {
    let equal = |pair: (&Section, &Section)| match pair {
        (Section::Steps(a), Section::Steps(b)) => {
            a.first == a.last && b.first == b.last && looks_like(a, b)
        }
        _ => false,
    };
    let Some(pattern) = sections.get(..kinds) else {
        return 0;
    };
    let same = |round: &&[Section]| pattern.iter().zip(round.iter()).all(equal);
    sections.chunks_exact(kinds).take_while(same).count()
}

/// The backward pass, its parts and steps as they come, equal neighbours together.
fn backward(graph: &Graph) -> Vec<Section> {
    // Step, label, nodes.
    let mut found: Vec<(Option<[u32; 2]>, String, Vec<u32>)> = Vec::new();
    let nodes = graph.nodes();
    for (n, node) in nodes.filter(|(_, node)| node.site.pass == Pass::Backward) {
        let s = &node.site;
        let label = match s.step {
            Some(_) => s.evolve.clone(),
            None => s.path.split('.').next().unwrap_or_default().to_string(),
        };
        match found.last_mut() {
            Some((None, last, nodes)) if s.step.is_none() && *last == label => nodes.push(n),
            Some((Some([_, to]), last, nodes)) if s.step.is_some() && *last == label => {
                *to = s.step.unwrap_or(*to);
                nodes.push(n);
            }
            _ => found.push((s.step.map(|k| [k, k]), label, vec![n])),
        }
    }
    let section = |(steps, label, nodes): (Option<[u32; 2]>, String, Vec<u32>)| {
        let evolve = match label.as_str() {
            "" => String::new(),
            e => format!("{e} "),
        };
        let name = match steps {
            None if label.is_empty() => "gradient".into(),
            None => format!("gradient of {label}"),
            Some([from, to]) if from == to => format!("gradient of {evolve}step {from}"),
            Some([from, to]) => format!("gradient of {evolve}steps {from}–{to}"),
        };
        let parts = match steps {
            None => Vec::new(),
            Some(_) => parts(graph, &nodes, &[]),
        };
        let last = nodes.last().copied().unwrap_or_default();
        Section::Part(Part {
            name,
            parts,
            inputs: Vec::new(),
            result: graph.node(last).types[0].clone(),
        })
    };
    found.into_iter().map(section).collect()
}

fn shown(node: &Node) -> bool {
    let ins: Vec<TensorType> = vec![];
    let source =
        node.operands.is_empty() && matches!(node.op.kind(&ins), Kind::Source | Kind::Scalar(_));
    node.site.pass == Pass::Forward && !source
}

fn group(n: u32, node: &Node) -> Group {
    let s = &node.site;
    match (s.step, s.evaluation) {
        (None, _) => {
            let first = s.path.split('.').next().unwrap_or_default();
            let name = if first.is_empty() {
                node.op.name()
            } else {
                first
            };
            Group::Part(s.evolve.clone(), name.into())
        }
        (Some(k), Some(e)) => Group::Evaluation(s.evolve.clone(), k, e),
        (Some(k), None) if s.path.starts_with(NORMALIZE) => {
            let number = s.path.split('.').take(2).collect::<Vec<_>>().join(".");
            Group::Named(s.evolve.clone(), k, number)
        }
        (Some(k), None) => Group::Single(s.evolve.clone(), k, n),
    }
}

fn part(graph: &Graph, group: &Group, nodes: &[u32]) -> Part {
    let Group::Part(evolve, name) = group else {
        unreachable!("steps are not parts")
    };
    let mut inputs = Vec::new();
    for v in nodes.iter().flat_map(|n| &graph.node(*n).operands) {
        if let OpKind::Input(i) = &graph.node(v.node).op
            && !inputs.contains(&i.name)
        {
            inputs.push(i.name.clone());
        }
    }
    let last = *nodes.last().expect("a group has nodes");
    Part {
        name: if evolve.is_empty() {
            name.clone()
        } else {
            format!("{evolve} {name}")
        },
        parts: parts(graph, nodes, &[name]),
        inputs,
        result: graph.node(last).types[0].clone(),
    }
}

/// The components of sites right below `prefix`, in order.
fn parts(graph: &Graph, nodes: &[u32], prefix: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for n in nodes {
        let path = &graph.node(*n).site.path;
        let below = path.split('.').nth(prefix.len()).unwrap_or_default();
        if !below.is_empty() && !found.iter().any(|p| p == below) {
            found.push(below.into());
        }
    }
    found
}

/// What steps need to know of those before.
#[derive(Default)]
struct States {
    /// The node whose first result is the state.
    state: Option<u32>,
    /// Names of values of earlier steps, with their step.
    names: BTreeMap<u32, (String, u32, String)>,
}

fn step_of(
    (graph, formulas): (&Graph, &Formulas),
    (evolve, step): (String, u32),
    groups: &[(&Group, &Vec<u32>)],
    group_of: &BTreeMap<u32, Group>,
    states: &mut States,
) -> Steps {
    let within: BTreeSet<&Group> = groups.iter().map(|(g, _)| *g).collect();
    let mut cells: Vec<Cell> = Vec::new();
    // cells by node: an outside value, or any node of a group
    let mut cell_of: BTreeMap<u32, usize> = BTreeMap::new();
    let nodes = || groups.iter().flat_map(|(_, nodes)| nodes.iter().copied());
    let mut outside: Vec<u32> = Vec::new();
    for v in nodes().flat_map(|n| formulas.reads(graph, n)) {
        let here = group_of.get(&v).is_some_and(|g| within.contains(g));
        if !here && shown(graph.node(v)) && !outside.contains(&v) {
            outside.push(v);
        }
    }
    // the state first
    outside.sort_by_key(|n| states.state != Some(*n));
    for n in outside {
        cell_of.insert(n, cells.len());
        let name = match states.names.get(&n) {
            _ if states.state == Some(n) => "x".into(),
            Some((e, k, name)) if *e == evolve => format!("{name}[−{}]", step - k),
            Some((e, k, name)) => format!("{name} of {e} step {k}"),
            None => match graph.name(n) {
                Some(name) => format!("{name} of the start"),
                None => graph.node(n).site.path.clone(),
            },
        };
        let (kind, operands) = (CellKind::Outside, vec![]);
        cells.push(Cell {
            name,
            kind,
            operands,
        });
    }
    let result = nodes().next_back().expect("a step has nodes");
    let mut sums = 0;
    let said = |nodes: &[u32]| nodes.iter().find_map(|n| graph.name(*n));
    let all = groups.iter().filter_map(|(_, nodes)| said(nodes));
    let mut names = Names::of_values(all);
    for (group, nodes) in groups {
        let mut operands: Vec<usize> = Vec::new();
        for v in nodes.iter().flat_map(|n| formulas.reads(graph, *n)) {
            if !nodes.contains(&v)
                && let Some(c) = cell_of.get(&v)
                && !operands.contains(c)
            {
                operands.push(*c);
            }
        }
        let (name, kind) = match group {
            Group::Evaluation(_, _, e) => {
                let prefix = common_path(graph, nodes);
                let below: Vec<&str> = prefix.iter().map(|s| &**s).collect();
                let field = if prefix.is_empty() {
                    "F".into()
                } else {
                    prefix.join(".")
                };
                let parts = parts(graph, nodes, &below);
                (
                    format!("k{}", subscript(e + 1)),
                    CellKind::Evaluation { field, parts },
                )
            }
            _ => {
                sums += 1;
                let name = if nodes.contains(&result) {
                    "x′".into()
                } else {
                    format!("y{}", subscript(sums))
                };
                let named = |n: u32| cell_of.get(&n).map(|c| cells[*c].name.clone());
                let terms = match group {
                    Group::Named(..) => vec![formulas.normalised(graph, nodes, &named)],
                    _ => formulas.terms(graph, nodes[0], &named),
                };
                (name, CellKind::Combination { terms })
            }
        };
        let name = match said(nodes).filter(|_| !nodes.contains(&result)) {
            Some(said) => names.of(said, name),
            None => name,
        };
        for n in *nodes {
            cell_of.insert(*n, cells.len());
            states
                .names
                .insert(*n, (evolve.clone(), step, name.clone()));
        }
        cells.push(Cell {
            name,
            kind,
            operands,
        });
    }
    states.state = Some(result);
    Steps {
        first: step,
        last: step,
        every: 1,
        result: cell_of[&result],
        evolve,
        cells,
    }
}

/// What the source calls values of a step.
struct Names<'g> {
    /// How often each name is still to come, and how often it came.
    counts: BTreeMap<&'g str, [u32; 2]>,
}

impl<'g> Names<'g> {
    fn of_values(names: impl Iterator<Item = &'g str>) -> Self {
        let mut counts: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
        names.for_each(|n| counts.entry(n).or_default()[0] += 1);
        Names { counts }
    }

    /// The name of the next value that is called so. Of those that have one name in turn the last keeps it, for that is what later steps
    /// read; the others get numbers, or the name they would have without one where that could be taken for it.
    fn of(&mut self, said: &'g str, else_called: String) -> String {
        let [left, before] = self.counts.entry(said).or_default();
        *left -= 1;
        *before += 1;
        match (*left, said) {
            (0, _) => said.to_string(),
            (_, "k" | "y") => else_called,
            _ => format!("{said}{}", subscript(*before)),
        }
    }
}

/// Two steps, one after the other, whose pictures are equal.
fn repeats(a: &Steps, b: &Steps) -> bool {
    b.first == a.last + 1 && looks_like(a, b)
}

fn looks_like(a: &Steps, b: &Steps) -> bool {
    a.evolve == b.evolve && (&a.cells, a.result) == (&b.cells, b.result)
}

/// The leading components that all sites have in common.
fn common_path(graph: &Graph, nodes: &[u32]) -> Vec<String> {
    let path = |n: &u32| -> Vec<String> {
        let path = &graph.node(*n).site.path;
        path.split('.')
            .filter(|s| !s.is_empty())
            .map(String::from)
            .collect()
    };
    let mut common = path(&nodes[0]);
    for n in nodes {
        let same = common
            .iter()
            .zip(path(n))
            .take_while(|(a, b)| **a == *b)
            .count();
        common.truncate(same);
    }
    common
}

/// `₁₂`.
fn subscript(n: u32) -> String {
    let digit = |c: char| char::from_u32('₀' as u32 + c as u32 - '0' as u32).unwrap_or(c);
    n.to_string().chars().map(digit).collect()
}
