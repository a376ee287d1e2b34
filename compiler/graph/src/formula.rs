//! Coefficients in the picture of a graph: scalars computed from parameters and constants, as formulas.
//!
//! Takes a graph; says which nodes are such numbers, and which only scale a value that a sum reads. Neither has a box of its own.

use crate::exact::Exact;
use crate::graph::Pass;
use crate::ops::{Graph, Node, OpKind};
use std::collections::BTreeMap;

/// The part of a parameter's path behind which the name of a learned coefficient stands.
const SCHEME: &str = "scheme";
/// What a reciprocal root begins with.
const ROOT: &str = "1/sqrt";

#[derive(Default)]
pub(crate) struct Formulas {
    /// Numbers by node.
    texts: BTreeMap<u32, String>,
    /// Values times a number: the number and the value.
    scaled: BTreeMap<u32, (String, u32)>,
}

/// What a node outside is called; `None`: it has no box.
type Named<'n> = &'n dyn Fn(u32) -> Option<String>;

impl Formulas {
    pub fn of(graph: &Graph) -> Formulas {
        let mut found = Formulas::default();
        for (n, node) in graph.nodes() {
            if let Some(text) = found.text(node) {
                found.texts.insert(n, text);
            }
        }
        let mut apart: Vec<bool> = vec![false; graph.len() as usize];
        for (_, node) in graph.nodes().filter(|(_, n)| n.site.pass == Pass::Forward) {
            let sums = matches!(node.op, OpKind::Combine(_)) && node.site.evaluation.is_none();
            for v in &node.operands {
                let same = graph.node(v.node).site.step == node.site.step;
                apart[v.node as usize] |= !(sums && same);
            }
        }
        for (_, v) in graph.outputs() {
            apart[v.node as usize] = true;
        }
        for (n, node) in graph.nodes().filter(|(n, _)| !apart[*n as usize]) {
            if let Some(scaled) = found.factor(node) {
                found.scaled.insert(n, scaled);
            }
        }
        found
    }

    /// Whether a node has no box.
    pub fn hides(&self, n: u32) -> bool {
        self.texts.contains_key(&n) || self.scaled.contains_key(&n)
    }

    /// The nodes that a node reads, through those that have no box.
    pub fn reads(&self, graph: &Graph, n: u32) -> Vec<u32> {
        let operands = graph.node(n).operands.iter().map(|v| v.node);
        let seen = operands.filter(|v| !self.texts.contains_key(v));
        seen.map(|v| self.scaled.get(&v).map_or(v, |(_, of)| *of))
            .collect()
    }

    /// A sum term by term, the coefficients exact; any other op as one term.
    pub fn terms(&self, graph: &Graph, n: u32, named: Named) -> Vec<String> {
        let node = graph.node(n);
        let one = Exact::one();
        let each: Vec<(&Exact, u32)> = match &node.op {
            OpKind::Combine(c) => {
                let values = node.operands.iter().map(|v| v.node);
                c.coeffs.iter().zip(values).collect()
            }
            OpKind::Add(_) => node.operands.iter().map(|v| (&one, v.node)).collect(),
            _ => return vec![self.other(graph, node, named)],
        };
        let term = |(i, (c, v)): (usize, (&Exact, u32))| {
            let minus = c.starts_with_minus();
            let sign = match (i, minus) {
                (0, false) => "",
                (0, true) => "−",
                (_, false) => "+ ",
                (_, true) => "− ",
            };
            let size = if minus { -c } else { c.clone() };
            let of = self.value(graph, v, named);
            match (size.is_one(), size.is_sum()) {
                (true, _) => format!("{sign}{of}"),
                (_, true) => format!("{sign}({size}) {of}"),
                (_, false) => format!("{sign}{size} {of}"),
            }
        };
        each.into_iter().enumerate().map(term).collect()
    }

    /// What nodes make together that give a state a mean and a deviation.
    pub fn normalised(&self, graph: &Graph, nodes: &[u32], named: Named) -> String {
        let of = nodes.iter().flat_map(|n| self.reads(graph, *n));
        let of = of.into_iter().find(|v| !nodes.contains(v)).and_then(named);
        let mut said = vec![of.unwrap_or_default()];
        // The state of mean 0 and deviation 1 is the product with the reciprocal root.
        let root = |n: &u32| {
            let mut reads = graph.node(*n).operands.iter();
            reads.any(|v| matches!(graph.node(v.node).op, OpKind::Rsqrt(_)))
        };
        let behind = nodes.iter().position(root).map_or(nodes.len(), |i| i + 1);
        for n in &nodes[behind..] {
            let node = graph.node(*n);
            let mut numbers = node.operands.iter().filter_map(|v| self.texts.get(&v.node));
            let said_here = match &node.op {
                OpKind::Mul(_) => numbers.next().map(|s| format!("std: {s}")),
                OpKind::Add(_) => numbers.next().map(|m| format!("mean: {m}")),
                OpKind::Combine(c) => c.coeffs.first().map(|s| format!("std: {s}")),
                OpKind::Shift(s) => Some(format!("mean: {}", s.by)),
                _ => None,
            };
            said.extend(said_here);
        }
        format!("normalize({})", said.join(", "))
    }

    fn value(&self, graph: &Graph, v: u32, named: Named) -> String {
        if let Some((by, of)) = self.scaled.get(&v) {
            return format!("{} {}", factor(by), self.value(graph, *of, named));
        }
        let text = || self.texts.get(&v).cloned();
        let known = named(v).or_else(text);
        known.unwrap_or_else(|| match &graph.node(v).op {
            OpKind::Parameter(p) => p.path.rsplit('.').next().unwrap_or_default().into(),
            op => op.name().into(),
        })
    }

    fn other(&self, graph: &Graph, node: &Node, named: Named) -> String {
        let values: Vec<String> = node
            .operands
            .iter()
            .map(|v| self.value(graph, v.node, named))
            .collect();
        match &node.op {
            OpKind::Mul(_) => match self.factor(node) {
                Some((by, of)) => format!("{} {}", factor(&by), self.value(graph, of, named)),
                None => values.join(" · "),
            },
            OpKind::WherePositive(_) if node.operands[0] == node.operands[1] => {
                format!("nonnegative({})", values[0])
            }
            OpKind::Shift(s) => format!("{} + {}", values[0], s.by),
            op => format!("{}({})", op.name(), values.join(", ")),
        }
    }

    /// The number and the value of a product of the two.
    fn factor(&self, node: &Node) -> Option<(String, u32)> {
        let (OpKind::Mul(_), [a, b]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        let here = node.site.step.is_some() && node.site.evaluation.is_none();
        match (self.texts.get(&a.node), self.texts.get(&b.node)) {
            (None, Some(by)) if here => Some((by.clone(), a.node)),
            (Some(by), None) if here => Some((by.clone(), b.node)),
            _ => None,
        }
    }

    /// The formula of a number.
    fn text(&self, node: &Node) -> Option<String> {
        if let OpKind::Parameter(p) = &node.op {
            return coefficient(&p.path);
        }
        let each: Option<Vec<&String>> = node
            .operands
            .iter()
            .map(|v| self.texts.get(&v.node))
            .collect();
        let each = each.filter(|t| !t.is_empty())?;
        if node.site.evaluation.is_some() {
            return None;
        }
        Some(match (&node.op, &each[..]) {
            (OpKind::Combine(c), _) => {
                let mut text = String::new();
                for (c, of) in c.coeffs.iter().zip(&each) {
                    let size = if c.starts_with_minus() { -c } else { c.clone() };
                    text += match (text.is_empty(), c.starts_with_minus()) {
                        (true, false) => "",
                        (true, true) => "−",
                        (false, false) => " + ",
                        (false, true) => " − ",
                    };
                    text += &match size.is_one() {
                        true if c.starts_with_minus() => factor(of),
                        true => of.to_string(),
                        false => format!("{size} {}", factor(of)),
                    };
                }
                text
            }
            (OpKind::Shift(s), [of]) => match of.strip_prefix('−') {
                Some(rest) => format!("{} − {rest}", s.by),
                None if s.by.starts_with_minus() => format!("{of} − {}", -&s.by),
                None => format!("{} + {of}", s.by),
            },
            (OpKind::Mul(_), [a, b]) => format!("{} {}", factor(a), factor(b)),
            (OpKind::Add(_), [a, b]) => format!("{a} + {b}"),
            (OpKind::Recip(_), [of]) => match of.strip_prefix(ROOT) {
                Some(rest) => format!("sqrt{rest}"),
                None => format!("1/({of})"),
            },
            (OpKind::Rsqrt(_), [of]) => format!("{ROOT}({of})"),
            (OpKind::Exp(_) | OpKind::Log(_) | OpKind::Sigmoid(_), [of]) => {
                format!("{}({of})", node.op.name())
            }
            (OpKind::StopGradient(_), [of]) => of.to_string(),
            (OpKind::WherePositive(_), [of, ..]) if node.operands[0] == node.operands[1] => {
                format!("max({of}, 0)")
            }
            _ => return None,
        })
    }
}

/// In parentheses, where it is a sum.
fn factor(text: &str) -> String {
    match text.contains(" + ") || text.contains(" − ") || text.starts_with('−') {
        true => format!("({text})"),
        false => text.to_string(),
    }
}

/// `w[2]` of `step.3.scheme.w.2`; `None`: no coefficient of a scheme is stored there.
fn coefficient(path: &str) -> Option<String> {
    let mut parts = path.split('.').skip_while(|p| *p != SCHEME).skip(1);
    let name = parts.next()?.to_string();
    Some(parts.fold(name, |name, i| format!("{name}[{i}]")))
}
