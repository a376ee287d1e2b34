//! Applies a part of a graph once more, to other values.
//!
//! Takes values and what was made of them; appends the nodes between once more, on values in their place. What does not depend on
//! them is not copied. Solutions in between stay solutions. Derivatives go through the copies alone.

use crate::autodiff::needed;
use crate::graph::Solution;
use crate::op::TypeError;
use crate::ops::Builder;
use crate::solve::Pair;
use crate::value::Value;
use std::collections::BTreeMap;

/// The values `made` as they would be if each of `from` were the one of `to` beside it. The copies stand at the sites of their
/// originals, in the part `part`.
pub fn replay(
    b: &mut Builder,
    from: &[Value],
    to: &[Value],
    made: &[Value],
    part: &str,
) -> Result<Vec<Value>, TypeError> {
    let end = b.graph().len();
    let nodes: Vec<u32> = from.iter().map(|v| v.node).collect();
    let begin = nodes.iter().min().map_or(end, |n| *n);
    let between = needed(b.graph(), begin..end, &nodes, made.iter().copied());
    let mut map: BTreeMap<Value, Value> = from.iter().copied().zip(to.iter().copied()).collect();
    let solved: Vec<Solution> = b.graph().solutions.clone();
    let (site, span) = (b.site.clone(), b.span);
    for n in between.nodes().filter(|n| !nodes.contains(n)) {
        let node = b.graph().node(n).clone();
        let at = |v: &Value| map.get(v).copied().unwrap_or(*v);
        let operands: Vec<Value> = node.operands.iter().map(at).collect();
        b.site = node.site.clone();
        b.site.path = format!("{}.{part}", node.site.path);
        b.span = node.span;
        let copies = b.push(node.op, &operands)?;
        for (port, copy) in copies.into_iter().enumerate() {
            let port = port as u32;
            map.insert(Value { node: n, port }, copy);
        }
    }
    (b.site, b.span) = (site, span);
    let at = |v: &Value| map.get(v).copied().unwrap_or(*v);
    let all = |vs: &[Value]| vs.iter().map(at).collect::<Vec<Value>>();
    for s in solved {
        if s.outs.iter().all(|v| map.contains_key(v)) {
            b.graph.solutions.push(Solution {
                pair: Pair {
                    z: all(&s.pair.z),
                    f: all(&s.pair.f),
                },
                outs: all(&s.outs),
                solver: s.solver,
            });
        }
    }
    Ok(all(made))
}
