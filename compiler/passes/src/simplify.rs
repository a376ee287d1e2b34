//! Algebraic simplification. Takes and gives a graph; sites and spans stay with the nodes.
//!
//! | rewrite | exact in floating point |
//! |---|---|
//! | dead nodes vanish; equal ops on equal operands become one | yes |
//! | `stop_gradient(x) = x` and `region_begin(x) = x`, `predicate(x) = x`, once derivatives are taken | yes |
//! | `select(c, a, b)` is `a` or `b` for a constant c; `select(p, a, a) = a` | yes |
//! | `select(p, a, b) + select(p, c, d) = select(p, a + c, b + d)`, zeros left out | yes, but for the sign of a zero |
//! | `s + select(p, c, 0) = select(p, s + c, s)`, which costs nothing where p is not positive and it is made in place of s | yes, but for the sign of a zero |
//! | `broadcast(x) = x`, `reshape(x) = x` where the type stays; `reshape(reshape(x)) = reshape(x)` | yes |
//! | `f(broadcast(x)) = broadcast(f(x))` for maps element by element of one operand, so that f is computed once | yes |
//! | `f(broadcast(x), y) = f(x, y)` for maps that broadcast by themselves | yes |
//! | `c · x = Σ [c] x` for a constant c | yes |
//! | `Σ [1] x = x`; zero terms dropped, a sum without terms is a zero | yes (for finite x) |
//! | `Σ cᵢ` of constants = one constant | it is rounded once instead of several times |
//! | `… + c x + d x = … + (c + d) x` | rounds once less |
//! | `c · (Σ dᵢ xᵢ) + … = Σ (c dᵢ) xᵢ + …` where the inner sum is used once | rounds less; exact for c = 1 in first place |
//!
//! In the backward pass only inner sums of one term are flattened: a longer one would keep all its terms alive until
//! the outer sum, while gradients are best added as they come.

use super::facts::kind;
use super::rewrite::rebuild;
use odec_grammar::work;
use odec_graph::op::Kind;
use odec_graph::ops::{Broadcast, Combine, Constant, OpKind, Select};
use odec_graph::{Builder, Exact, Graph, InferTypes, Node, Pass, TensorType, TypeError, Value};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

/// Simplifies until nothing changes size any more.
pub fn simplify(graph: &Graph) -> Result<Graph, TypeError> {
    let mut now = once(graph)?;
    loop {
        let next = once(&now)?;
        if next.len() == now.len() {
            return Ok(next);
        }
        now = next;
    }
}

fn once(graph: &Graph) -> Result<Graph, TypeError> {
    let live = graph.live(graph.outputs().iter().map(|(_, v)| *v));
    let mut uses = vec![0u32; graph.len() as usize];
    let operands = graph
        .nodes()
        .filter(|(n, _)| live[*n as usize])
        .flat_map(|(_, node)| &node.operands);
    operands
        .chain(graph.outputs().iter().map(|(_, v)| v))
        .for_each(|v| uses[v.node as usize] += 1);

    let mut seen = Seen::default();
    rebuild(graph, |b, _, node, operands, _| {
        if let Some(v) = broadcast_after(b, &mut seen, node, operands)? {
            return Ok(v);
        }
        match (&node.op, operands) {
            (OpKind::StopGradient(_) | OpKind::RegionBegin(_) | OpKind::Predicate(_), [x]) => {
                Ok(vec![*x])
            }
            (OpKind::Select(_), [flag, a, b_]) => match chosen(b, node, [*flag, *a, *b_]) {
                Some(v) => Ok(vec![v]),
                None => seen.copy(b, graph, node, operands),
            },
            (OpKind::Broadcast(_) | OpKind::Reshape(_), [x]) if *b.ty(*x) == node.types[0] => {
                Ok(vec![*x])
            }
            (OpKind::Reshape(_), [x]) => {
                let inner = b.graph().node(x.node);
                let of = match inner.op {
                    OpKind::Reshape(_) => inner.operands[0],
                    _ => *x,
                };
                match *b.ty(of) == node.types[0] {
                    true => Ok(vec![of]),
                    false => seen.push(b, node.op.clone(), &[of]),
                }
            }
            (OpKind::Combine(c), _) => {
                if let Some(v) = sum_of_selected(b, &mut seen, node, &c.coeffs, operands, &uses)? {
                    return Ok(vec![v]);
                }
                let used_once: Vec<bool> = node
                    .operands
                    .iter()
                    .map(|v| uses[v.node as usize] == 1)
                    .collect();
                sum(b, &mut seen, node, &c.coeffs, operands, &used_once)
            }
            (OpKind::Mul(_), [x, y]) => {
                let scaled = [(*x, *y), (*y, *x)].into_iter().find_map(|(x, c)| {
                    let c = constant(b, c)?;
                    (*b.ty(x) == node.types[0]).then_some((c, x))
                });
                match scaled {
                    Some((c, x)) => sum(b, &mut seen, node, &[c], &[x], &[false]),
                    None => narrowed(b, &mut seen, graph, node, operands),
                }
            }
            (OpKind::Add(_), _) => narrowed(b, &mut seen, graph, node, operands),
            _ => seen.copy(b, graph, node, operands),
        }
    })
}

/// The side of a `select` that is known to be chosen, where it has the result's type.
fn chosen(b: &Builder, node: &Node, [flag, x, y]: [Value; 3]) -> Option<Value> {
    let side = match constant(b, flag) {
        _ if x == y => x,
        Some(c) if !c.is_zero() && !c.is_negative() => x,
        Some(_) => y,
        None => return None,
    };
    (*b.ty(side) == node.types[0]).then_some(side)
}

/// The sum of two values, the second or both of which are selected, as one `select`.
fn sum_of_selected(
    b: &mut Builder,
    seen: &mut Seen,
    node: &Node,
    coeffs: &[Exact],
    operands: &[Value],
    uses: &[u32],
) -> Result<Option<Value>, TypeError> {
    let [s, t] = operands[..] else {
        return Ok(None);
    };
    let once = |i: usize| uses[node.operands[i].node as usize] == 1;
    if s == t || !coeffs.iter().all(Exact::is_one) || !once(1) {
        return Ok(None);
    }
    let held = |b: &Builder, v: Value| {
        let node = b.graph().node(v.node);
        let is = matches!(node.op, OpKind::Select(_));
        is.then(|| [node.operands[0], node.operands[1], node.operands[2]])
    };
    let Some([flag, c, d]) = held(b, t) else {
        return Ok(None);
    };
    let zero = |b: &Builder, v: Value| constant(b, v).is_some_and(|c| c.is_zero());
    let mut plus = |b: &mut Builder, x: Value, y: Value| -> Result<Option<Value>, TypeError> {
        if zero(b, x) {
            return Ok(Some(y));
        }
        if zero(b, y) {
            return Ok(Some(x));
        }
        if b.ty(x) != b.ty(y) {
            return Ok(None);
        }
        let coeffs = vec![Exact::one(); 2];
        Ok(Some(seen.push(b, Combine::of(coeffs), &[x, y])?[0]))
    };
    let sides = match held(b, s).filter(|[other, ..]| *other == flag && once(0)) {
        Some([_, x, y]) => plus(b, x, c)?.zip(plus(b, y, d)?),
        None if zero(b, d) => plus(b, s, c)?.map(|sum| (sum, s)),
        None => None,
    };
    let Some((x, y)) = sides else {
        return Ok(None);
    };
    let all_zero = zero(b, x) && zero(b, y);
    if all_zero
        || OpKind::from(Select)
            .infer(&types(b, &[flag, x, y]))
            .as_ref()
            != Ok(&node.types)
    {
        return Ok(None);
    }
    Ok(Some(seen.push(b, Select, &[flag, x, y])?[0]))
}

fn types(b: &Builder, values: &[Value]) -> Vec<TensorType> {
    values.iter().map(|v| b.ty(*v).clone()).collect()
}

/// Reads operands before they are broadcast, where the op broadcasts by itself.
fn narrowed(
    b: &mut Builder,
    seen: &mut Seen,
    graph: &Graph,
    node: &Node,
    operands: &[Value],
) -> Result<Vec<Value>, TypeError> {
    let mut ops = operands.to_vec();
    for i in 0..ops.len() {
        let wide = b.graph().node(ops[i].node);
        if !matches!(wide.op, OpKind::Broadcast(_)) {
            continue;
        }
        let narrow = wide.operands[0];
        let kept = std::mem::replace(&mut ops[i], narrow);
        if node.op.infer(&types(b, &ops)).as_ref() != Ok(&node.types) {
            ops[i] = kept;
        }
    }
    seen.copy(b, graph, node, &ops)
}

/// A map of values that are all broadcast alike, computed before they are.
fn broadcast_after(
    b: &mut Builder,
    seen: &mut Seen,
    node: &Node,
    operands: &[Value],
) -> Result<Option<Vec<Value>>, TypeError> {
    if !is_of_elements(&node.op) {
        return Ok(None);
    }
    let narrow = |v: &Value| {
        let wide = b.graph().node(v.node);
        let alike = matches!(wide.op, OpKind::Broadcast(_)) && wide.types == node.types;
        alike.then(|| wide.operands[0])
    };
    let Some(narrow) = operands.iter().map(narrow).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    // What is known at launch is no value that a launch would have to make.
    let known = |v: &Value| matches!(kind(b.graph(), v.node), Kind::Scalar(_));
    let types = types(b, &narrow);
    let same = types.first().filter(|t| types.iter().all(|u| u == *t));
    let Some(ty) = same.filter(|_| !narrow.iter().any(known)) else {
        return Ok(None);
    };
    if node.op.infer(&types).ok().as_deref() != Some(std::slice::from_ref(ty)) {
        return Ok(None);
    }
    let made = seen.push(b, node.op.clone(), &narrow)?;
    let to = node.types[0].clone();
    Ok(Some(seen.push(b, Broadcast { to }, &made)?))
}

/// Whether each element of the result is made of the elements at its place, whatever the shape is.
fn is_of_elements(op: &OpKind) -> bool {
    matches!(
        op,
        OpKind::Exp(_)
            | OpKind::Log(_)
            | OpKind::Sqrt(_)
            | OpKind::Power(_)
            | OpKind::Rsqrt(_)
            | OpKind::Recip(_)
            | OpKind::Sin(_)
            | OpKind::Tanh(_)
            | OpKind::Sigmoid(_)
            | OpKind::Softplus(_)
            | OpKind::NormalCdf(_)
            | OpKind::NormalPdf(_)
            | OpKind::Heaviside(_)
            | OpKind::WherePositive(_)
            | OpKind::Maximum(_)
            | OpKind::Shift(_)
            | OpKind::Mul(_)
            | OpKind::Add(_)
            | OpKind::Combine(_)
    )
}

fn constant(b: &Builder, v: Value) -> Option<Exact> {
    match &b.graph().node(v.node).op {
        OpKind::Constant(c) => Some(c.value.clone()),
        _ => None,
    }
}

/// `Σ cᵢ xᵢ` in its shortest form.
fn sum(
    b: &mut Builder,
    seen: &mut Seen,
    node: &Node,
    coeffs: &[Exact],
    operands: &[Value],
    used_once: &[bool],
) -> Result<Vec<Value>, TypeError> {
    let mut terms: Vec<(Exact, Value)> = Vec::new();
    for ((c, x), once) in coeffs.iter().zip(operands).zip(used_once) {
        let inner = b.graph().node(x.node);
        match &inner.op {
            OpKind::Combine(d)
                if *once && (node.site.pass == Pass::Forward || d.coeffs.len() == 1) =>
            {
                let scaled = d.coeffs.iter().map(|d| (c * d).checked());
                match scaled.collect::<Result<Vec<Exact>, _>>() {
                    Ok(scaled) => scaled
                        .into_iter()
                        .zip(&inner.operands)
                        .for_each(|(c, x)| add_term(&mut terms, c, *x)),
                    // Exact, but too long: left as it is.
                    Err(_) => add_term(&mut terms, c.clone(), *x),
                }
            }
            _ => add_term(&mut terms, c.clone(), *x),
        }
    }
    let first = operands[0];
    terms.retain(|(c, _)| !c.is_zero());
    if terms.is_empty() {
        let to = b.ty(first).clone();
        let value = Exact::zero();
        let zero = seen.push(b, Constant { value }, &[])?;
        return match to.rank() {
            0 => Ok(zero),
            _ => seen.push(b, Broadcast { to }, &zero),
        };
    }
    let constants: Option<Vec<Exact>> = terms
        .iter()
        .map(|(c, x)| constant(b, *x).map(|k| c * &k))
        .collect();
    if let Some(values) = constants {
        let value = values.into_iter().sum();
        return seen.push(b, Constant { value }, &[]);
    }
    match &terms[..] {
        [(c, x)] if c.is_one() => Ok(vec![*x]),
        _ => {
            let (coeffs, xs): (Vec<Exact>, Vec<Value>) = terms.into_iter().unzip();
            seen.push(b, Combine::of(coeffs), &xs)
        }
    }
}

fn add_term(terms: &mut Vec<(Exact, Value)>, c: Exact, x: Value) {
    match terms.iter_mut().find(|(_, y)| *y == x) {
        Some((sum, _)) => *sum = &*sum + &c,
        None => terms.push((c, x)),
    }
}

/// Nodes already built.
#[derive(Default)]
struct Seen {
    /// The first of each hash.
    first: FxHashMap<u64, u32>,
    /// The next of the same hash, of those that have one; they rise.
    next: FxHashMap<u32, u32>,
}

/// Op and operands as one number. Of sources it takes what tells them apart, of which a model has thousands; other ops have operands.
fn hash(op: &OpKind, operands: &[Value]) -> u64 {
    let mut hash = FxHasher::default();
    discriminant(op).hash(&mut hash);
    match op {
        OpKind::Parameter(p) => p.path.hash(&mut hash),
        OpKind::Cache(c) => c.path.hash(&mut hash),
        OpKind::Carry(c) => c.path.hash(&mut hash),
        OpKind::Constant(c) => c.value.to_f64().to_bits().hash(&mut hash),
        _ => {}
    }
    operands.hash(&mut hash);
    hash.finish()
}

impl Seen {
    /// The equal node of the same pass that is there already, or a new one. Sharing across passes is left to the
    /// derivative rules: a shared forward value would have to be kept for the backward pass.
    fn push(
        &mut self,
        b: &mut Builder,
        op: impl Into<OpKind>,
        operands: &[Value],
    ) -> Result<Vec<Value>, TypeError> {
        let op = op.into();
        match self.find(b, &op, operands) {
            Some(made) => Ok(made),
            None => b.push(op, operands),
        }
    }

    /// The same for a node of the graph at hand.
    fn copy(
        &mut self,
        b: &mut Builder,
        graph: &Graph,
        node: &Node,
        operands: &[Value],
    ) -> Result<Vec<Value>, TypeError> {
        match self.find(b, &node.op, operands) {
            Some(made) => Ok(made),
            None => b.copy(graph, node, operands),
        }
    }

    /// The results of an equal node; none: the node that is made next is noted as the first of its kind.
    fn find(&mut self, b: &Builder, op: &OpKind, operands: &[Value]) -> Option<Vec<Value>> {
        let new = b.graph().len();
        let mut at = *self.first.entry(hash(op, operands)).or_insert(new);
        while at != new {
            work::add(1);
            let node = b.graph().node(at);
            let passes = operands.is_empty() || node.site.pass == b.site.pass;
            if passes && node.operands == operands && node.op == *op {
                let ports = node.types.len() as u32;
                return Some((0..ports).map(|port| Value { node: at, port }).collect());
            }
            at = *self.next.entry(at).or_insert(new);
        }
        None
    }
}
