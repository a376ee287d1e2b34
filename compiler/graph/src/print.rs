//! Graphs as text, one line a node: the form of [`crate::text`].
//!
//! [`text_unfolded`] is what [`crate::text::parse`] reads. [`text`], for `--emit graph`, says of a step that it repeats the one before.
//! Gives the same text for the same graph, always.

use crate::fold::{Piece, Steps, fold};
use crate::graph::{Pass, Solution};
use crate::ops::Graph;
use crate::text::{attrs::exact, site, word};
use crate::value::Value;
use odec_solver::Solver;
use std::fmt::Write;

/// The whole graph; steps that repeat the one before are folded into a line that says so.
pub fn text(graph: &Graph) -> String {
    let mut out = String::new();
    for piece in fold(graph) {
        match piece {
            Piece::Plain(nodes) => lines(&mut out, graph, &nodes, ""),
            Piece::Steps(steps) => {
                put(
                    &mut out,
                    format_args!("{}:", title(&steps, steps.first, steps.first)),
                );
                lines(&mut out, graph, &steps.nodes, "  ");
                if steps.last != steps.first {
                    folded(&mut out, graph, &steps);
                }
            }
        }
    }
    ends(&mut out, graph);
    out
}

/// The whole graph, every node.
pub fn text_unfolded(graph: &Graph) -> String {
    let mut out = String::new();
    lines(&mut out, graph, &Vec::from_iter(0..graph.len()), "");
    ends(&mut out, graph);
    out
}

/// Fixed points and outputs.
fn ends(out: &mut String, graph: &Graph) {
    for solution in graph.solutions() {
        put(out, format_args!("{}", self::solution(graph, solution)));
    }
    for (name, v) in graph.outputs() {
        let (name, v) = (word(name), value(graph, *v));
        put(out, format_args!("output {name} = {v}"));
    }
}

fn solution(graph: &Graph, solution: &Solution) -> String {
    let list = |values: &[Value]| {
        let each: Vec<String> = values.iter().map(|v| value(graph, *v)).collect();
        each.join(", ")
    };
    let (z, f, outs) = (&solution.pair.z, &solution.pair.f, &solution.outs);
    let (z, f, outs) = (list(z), list(f), list(outs));
    let Solver { mixing, iterations } = &solution.solver;
    let mixing = mixing.as_ref().map(|m| {
        let (tol, rule) = (exact(&m.tol), m.rule.name());
        format!(" tol={tol} memory={} rule={rule}", m.memory)
    });
    let mixing = mixing.unwrap_or_default();
    format!("solution z=[{z}] f=[{f}] outs=[{outs}] iterations={iterations}{mixing}")
}

/// How text names a value.
pub fn value(graph: &Graph, v: Value) -> String {
    match graph.node(v.node).types.len() {
        1 => format!("%{}", v.node),
        _ => format!("%{}.{}", v.node, v.port),
    }
}

/// One node.
pub fn node(graph: &Graph, n: u32) -> String {
    let node = graph.node(n);
    let operands: Vec<String> = node.operands.iter().map(|v| value(graph, *v)).collect();
    let attrs: String = node
        .op
        .attrs()
        .iter()
        .map(|(k, v)| format!(" {k}={v}"))
        .collect();
    let types: Vec<String> = node.types.iter().map(|t| t.to_string()).collect();
    let site = match site(&node.site) {
        s if s.is_empty() => s,
        s => format!(" @ {s}"),
    };
    let (name, operands, types) = (node.op.name(), operands.join(", "), types.join(", "));
    format!("%{n} = {name}({operands}){attrs} : {types}{site}")
}

fn lines(out: &mut String, graph: &Graph, nodes: &[u32], indent: &str) {
    for n in nodes {
        put(out, format_args!("{indent}{}", node(graph, *n)));
    }
}

/// `steps 1–3: as step 0, 36 nodes each (%44–%151); instead of %7, %43 of the step before`.
fn folded(out: &mut String, graph: &Graph, steps: &Steps) {
    let second = if steps.last > steps.first {
        steps.first + 1
    } else {
        steps.first - 1
    };
    let one = title(steps, steps.first, steps.first);
    let carried = steps.carried.iter().map(|(x, y)| {
        let (x, y) = (value(graph, *x), value(graph, *y));
        format!("; instead of {x}, {y} of the step before")
    });
    put(
        out,
        format_args!(
            "{}: as {one}, {} nodes each (%{}–%{}){}",
            title(steps, second, steps.last),
            steps.nodes.len(),
            steps.others.first().unwrap_or(&0),
            steps.others.last().unwrap_or(&0),
            carried.collect::<String>(),
        ),
    );
}

/// `core step 3 backward`, `steps 1–3`.
fn title(steps: &Steps, first: u32, last: u32) -> String {
    let evolve = match &*steps.evolve {
        "" => String::new(),
        e => format!("{e} "),
    };
    let pass = if steps.pass == Pass::Backward {
        " backward"
    } else {
        ""
    };
    match first == last {
        true => format!("{evolve}step {first}{pass}"),
        false => format!("{evolve}steps {first}–{last}{pass}"),
    }
}

fn put(out: &mut String, line: std::fmt::Arguments) {
    writeln!(out, "{line}").expect("strings take everything");
}
