//! Graphs in Graphviz's DOT with every node, for other tools. [`crate::svg`] draws the picture for people.

use crate::graph::{Pass, Site};
use crate::ops::Graph;
use crate::print::value;
use std::fmt::Write;

/// The whole graph: nodes are boxes with op, attributes and types, in nested clusters by evolve, step and evaluation;
/// an edge is a use, labelled with the operand's number where there are several.
pub fn dot(graph: &Graph) -> String {
    let mut out =
        String::from("digraph graph_of_tensors {\n  node [shape=box, fontname=\"monospace\"];\n");
    // clusters that are open, outermost first
    let mut open: Vec<String> = Vec::new();
    let mut clusters = 0;
    for (n, node) in graph.nodes() {
        let path = clusters_of(&node.site);
        let common = open.iter().zip(&path).take_while(|(a, b)| a == b).count();
        close(&mut out, &mut open, common);
        for label in &path[common..] {
            put(
                &mut out,
                open.len(),
                format_args!("subgraph cluster_{clusters} {{"),
            );
            open.push(label.clone());
            put(
                &mut out,
                open.len(),
                format_args!("label=\"{}\";", escaped(label)),
            );
            clusters += 1;
        }
        let attrs: String = node
            .op
            .attrs()
            .iter()
            .map(|(k, v)| format!("\\n{k}={}", escaped(v)))
            .collect();
        let types: Vec<String> = node.types.iter().map(|t| t.to_string()).collect();
        let (name, types) = (node.op.name(), types.join(", "));
        put(
            &mut out,
            open.len(),
            format_args!("n{n} [label=\"%{n} {name}{attrs}\\n{types}\"];"),
        );
    }
    close(&mut out, &mut open, 0);
    for (n, node) in graph.nodes() {
        for (i, v) in node.operands.iter().enumerate() {
            let label = match node.operands.len() {
                1 => String::new(),
                _ => format!(" [label=\"{i}\"]"),
            };
            put(&mut out, 0, format_args!("n{} -> n{n}{label};", v.node));
        }
    }
    for (i, (name, v)) in graph.outputs().iter().enumerate() {
        let (name, from) = (escaped(name), value(graph, *v));
        put(
            &mut out,
            0,
            format_args!("out{i} [label=\"{name} = {from}\", shape=oval];"),
        );
        put(&mut out, 0, format_args!("n{} -> out{i};", v.node));
    }
    out.push_str("}\n");
    out
}

fn clusters_of(site: &Site) -> Vec<String> {
    let mut path = Vec::new();
    if !site.evolve.is_empty() {
        path.push(site.evolve.clone());
    }
    let backward = if site.pass == Pass::Backward {
        " backward"
    } else {
        ""
    };
    path.extend(site.step.map(|k| format!("step {k}{backward}")));
    path.extend(site.evaluation.map(|k| format!("evaluation {k}")));
    path
}

fn close(out: &mut String, open: &mut Vec<String>, down_to: usize) {
    while open.len() > down_to {
        open.pop();
        put(out, open.len(), format_args!("}}"));
    }
}

fn escaped(s: &str) -> String {
    s.replace('\\', "\\\\").replace('"', "\\\"")
}

fn put(out: &mut String, depth: usize, line: std::fmt::Arguments) {
    writeln!(out, "{}{line}", "  ".repeat(depth + 1)).expect("strings take everything");
}
