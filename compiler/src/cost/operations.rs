//! Counts the multiply-adds of a graph: contractions and attention, as papers count them.
//!
//! Takes a graph and sizes; gives whole numbers. What counts: each multiply-add of a matrix product; each product of a recurrence along tokens with its
//! sum, of linear attention those by the decay, of keys and values, of queries and matrices; of attention, the products of
//! queries with keys and of weights with values, for the pairs of tokens that see each other (causal: a token and those
//! before it, S(S+1)/2 pairs, or those of its window), forward two products, backward five (scores are computed again). What does not: sums,
//! norms, activations, softmax, combinations of states, the loss, the optimiser; and convolutions of each column by itself, k multiply-adds for each number
//! where a linear map behind them has one for each column.

use odec_graph::{Graph, Kind, Node, OpKind, Site, TensorType};
use odec_program::kernel::Attend;
use odec_program::{Bindings, DType, Dim};
use std::ops::Add;

/// Multiply-adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    pub contractions: u64,
    pub attention: u64,
    /// Of recurrences along tokens.
    pub recurrences: u64,
}

impl Operations {
    /// A multiply-add is two operations.
    pub fn flops(self) -> u64 {
        self.contractions
            .saturating_add(self.attention)
            .saturating_add(self.recurrences)
            .saturating_mul(2)
    }
}

impl Operations {
    /// The share of one of so many, rounded.
    pub fn shared_by(self, many: u64) -> Operations {
        let of = |n: u64| (n / many) + (2 * (n % many)) / many;
        Operations {
            contractions: of(self.contractions),
            attention: of(self.attention),
            recurrences: of(self.recurrences),
        }
    }
}

impl Add for Operations {
    type Output = Operations;
    fn add(self, other: Operations) -> Operations {
        Operations {
            contractions: self.contractions.saturating_add(other.contractions),
            attention: self.attention.saturating_add(other.attention),
            recurrences: self.recurrences.saturating_add(other.recurrences),
        }
    }
}

/// The multiply-adds of each of a graph's live nodes at some sites, where products of some rows are computed for a share of them, which
/// depends on their site.
fn each<'g>(
    graph: &'g Graph,
    at: Bindings,
    wanted: impl Fn(&Site) -> bool + 'g,
    share: impl Fn(&Site) -> RowShare + 'g,
) -> impl Iterator<Item = (u32, Operations)> + 'g {
    let live = graph.live(graph.outputs().iter().map(|(_, v)| *v));
    let nodes = graph.nodes();
    let nodes = nodes.filter(move |(n, node)| live[*n as usize] && wanted(&node.site));
    nodes.map(move |(n, node)| (n, of(graph, node, at, share(&node.site))))
}

/// The multiply-adds of a graph's live nodes at some sites.
pub fn count(graph: &Graph, at: Bindings, wanted: impl Fn(&Site) -> bool) -> Operations {
    count_shares(graph, at, wanted, |_| RowShare::ALL)
}

/// The same where products of some rows are computed for a share of them, which depends on their site.
pub fn count_shares(
    graph: &Graph,
    at: Bindings,
    wanted: impl Fn(&Site) -> bool,
    share: impl Fn(&Site) -> RowShare,
) -> Operations {
    each(graph, at, wanted, share).fold(Operations::default(), |sum, (_, one)| sum + one)
}

/// The mean of many runs, in which each node is `computed` with this frequency.
pub fn count_mean(
    graph: &Graph,
    at: Bindings,
    wanted: impl Fn(&Site) -> bool,
    share: impl Fn(&Site) -> RowShare,
    computed: &[f64],
) -> Operations {
    let mut sums = [0.0; 3];
    for (n, one) in each(graph, at, wanted, share) {
        let kinds = [one.contractions, one.attention, one.recurrences];
        for (sum, many) in sums.iter_mut().zip(kinds) {
            *sum += computed[n as usize] * many as f64;
        }
    }
    let [contractions, attention, recurrences] = sums.map(|sum| sum.round() as u64);
    Operations {
        contractions,
        attention,
        recurrences,
    }
}

/// So many of so many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShare {
    pub of: u64,
    pub from: u64,
}

impl RowShare {
    pub const ALL: RowShare = RowShare { of: 1, from: 1 };

    fn part(self, all: u64) -> u64 {
        let part = u128::from(all) * u128::from(self.of) / u128::from(self.from.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

/// The multiply-adds of the products of experts with so many rows, of `each` for a row: of a share of the rows, where those that belong to no
/// matrix are left out, and of no more rows than the experts take of all sequences.
fn grouped(op: &OpKind, [rows, each]: [u64; 2], at: Bindings, share: RowShare) -> u64 {
    let (partial, most) = match op {
        OpKind::GroupedMatMul(m) => (m.partial, m.most),
        OpKind::GroupedOuter(m) => (m.partial, m.most),
        _ => (false, None),
    };
    let all = rows.saturating_mul(each);
    let all = if partial { share.part(all) } else { all };
    all.min(most.map_or(u64::MAX, |n| {
        n.saturating_mul(at.batch).saturating_mul(each)
    }))
}

/// The multiply-adds of [`count_shares`] of nodes that depend on more than parameters.
pub fn count_varying(
    graph: &Graph,
    at: Bindings,
    wanted: impl Fn(&Site) -> bool,
    share: impl Fn(&Site) -> RowShare,
) -> Operations {
    let mut constant: Vec<bool> = Vec::new();
    for (_, node) in graph.nodes() {
        let of_constants = || node.operands.iter().all(|v| constant[v.node as usize]);
        constant.push(match &node.op {
            OpKind::Input(_) | OpKind::Cache(_) | OpKind::Carry(_) => false,
            _ => of_constants(),
        });
    }
    let varying = each(graph, at, wanted, share).filter(|(n, _)| !constant[*n as usize]);
    varying.fold(Operations::default(), |sum, (_, one)| sum + one)
}

/// The same where only some tokens take part, in attention that leaves the others out.
fn pairs_of(tokens: Bindings, a: &Attend, share: RowShare) -> u64 {
    let part = |n: u64| if a.partial { share.part(n) } else { n };
    let (seq, past) = (part(tokens.seq), part(tokens.past));
    pairs(
        Bindings {
            seq,
            past,
            ..tokens
        },
        a,
    )
}

/// Pairs of tokens of all sequences that see each other.
pub fn pairs(at: Bindings, a: &Attend) -> u64 {
    let (s, p) = (u128::from(at.seq), u128::from(at.past));
    let each = match (a.causal, a.window.map(u128::from)) {
        (true, None) => s * p + s * (s + 1) / 2,
        // Tokens before the w-th see all of theirs, the others w.
        (true, Some(w)) => {
            let all = w.clamp(p, s + p) - p;
            all * p + all * (all + 1) / 2 + (s - all) * w
        }
        (false, _) => s * (s + p),
    };
    u64::try_from(each * u128::from(at.batch)).unwrap_or(u64::MAX)
}

fn of(graph: &Graph, node: &Node, at: Bindings, share: RowShare) -> Operations {
    let ins: Vec<TensorType> = node.operands.iter().map(|v| graph.ty(*v).clone()).collect();
    let rows = |t: &TensorType| t.rows().at(at).unwrap_or(u64::MAX);
    // Of a grid there are as many tokens whatever a run's sequences have, and a source has a length of its own.
    let tokens = match ins.first().map(TensorType::tokens) {
        Some(of_its_own @ (Dim::Fixed(_) | Dim::Source)) => Bindings {
            seq: of_its_own.at(at),
            ..at
        },
        _ => at,
    };
    // Pairs of queries and keys.
    let seen = |a: &Attend| match a.others {
        true => rows(&ins[0]).saturating_mul(ins[1].tokens().at(at)),
        false => pairs_of(tokens, a, share),
    };
    let mut found = Operations::default();
    match node.op.kind(&ins) {
        Kind::Contract { a_transposed, .. } => {
            let inner = if a_transposed {
                rows(&ins[0])
            } else {
                ins[0].cols()
            };
            let out = &node.types[0];
            let elements = rows(out).saturating_mul(out.cols());
            found.contractions = elements.saturating_mul(inner);
        }
        // Each row meets the matrices of its experts, and no others.
        Kind::Grouped { of, .. } => {
            let rows = rows(&ins[1]).saturating_mul(ins[1].cols());
            found.contractions = grouped(&node.op, [rows, of.n.saturating_mul(of.k)], at, share);
        }
        Kind::GroupedOuter { of, .. } => {
            let rows = rows(&ins[0]).saturating_mul(ins[0].cols());
            found.contractions = grouped(&node.op, [rows, of.n.saturating_mul(of.k)], at, share);
        }
        Kind::Attend(a) | Kind::AttendCached(a, _) => {
            found.attention = a.forward_products().saturating_mul(seen(&a));
        }
        Kind::AttendBackward(a) => {
            found.attention = a.backward_products().saturating_mul(seen(&a));
        }
        Kind::One(launch) => {
            let dims = launch.dims.iter().map(|d| d.at(at).unwrap_or(u64::MAX));
            let dims: Vec<u64> = dims.collect();
            let before = launch.before.iter().map(|before| &before.kernel);
            let each = before.chain([&launch.kernel]).map(|kernel| {
                let work = kernel(DType::F64).signature().work;
                work.multiply_adds(&dims)
            });
            found.recurrences = each.fold(0, u64::saturating_add);
        }
        _ => {}
    }
    found
}
