//! Graphs as text: one line a node, for `--emit graph` and snapshots.
//!
//! `%12 = matmul(%3, %4) layout=nt : [B, S, 64]  // step.0.eval.0.att.q`. A node with several results is
//! `%12`, read as `%12.0`, `%12.1`. Gives the same text for the same graph, always.

use crate::fold::{Piece, Steps, fold};
use crate::graph::{Graph, Pass, Value};
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
    for (name, v) in graph.outputs() {
        put(
            &mut out,
            format_args!("output {name} = {}", value(graph, *v)),
        );
    }
    out
}

/// The whole graph, every node.
pub fn text_unfolded(graph: &Graph) -> String {
    let mut out = String::new();
    lines(&mut out, graph, &Vec::from_iter(0..graph.len()), "");
    for (name, v) in graph.outputs() {
        put(
            &mut out,
            format_args!("output {name} = {}", value(graph, *v)),
        );
    }
    out
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
    let site = match node.site.to_string() {
        s if s.is_empty() => s,
        s => format!("  // {s}"),
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
