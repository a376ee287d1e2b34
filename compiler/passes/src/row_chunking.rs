//! Runs launches between contractions on a few rows at a time, so that wide intermediate values such as logits never exist for all tokens
//! at once.
//!
//! Takes a [`LaunchList`] and a limit in bytes. Where a buffer with a row for each token is larger, and nothing has rows twice as wide, the launches that use it, and
//! what must stay between them, become a chunk that is run for a few rows after the others ([`odec_program::Pieces`]):
//! buffers that only the chunk uses shrink to one piece, weight gradients are accumulated piece by piece. For a vocabulary
//! of 32,000 and 2,048 tokens in a batch of 8 this is 128 MiB of logits instead of 2 GiB. Pieces end where blocks of the
//! weight gradients' sums do, so the order of every sum stays. A chunk in which rows depend on each other (attention, positions, dropout,
//! sums that are not contractions) is left as it is. Leaves offsets to `plan`.

use super::body;
use super::launch_list::{Buffer, BufferId, Chunk, Launch, LaunchList, Placement, Spec};
use odec_graph::TensorType;
use odec_program::expr::{Expr, RowMap};
use odec_program::kernel::{Contract, KernelSpec, Layout, Pack, Parts, Rows};
use odec_program::{Access, Body, Coeff, Dim, Maxima, Pieces, Size};
use std::collections::BTreeSet;

/// Most launches that are looked at together: logits and their gradients are seven.
const REACH: usize = 64;

/// Cuts the widest of what is larger than `limit` bytes at these maxima; pieces are multiples of `unit` rows.
pub fn cut(mut code: LaunchList, maxima: Maxima, limit: u64, unit: u64) -> LaunchList {
    let mut used = uses(&code);
    let large = |b: &BufferId| {
        let bytes = maxima.most(|at| code.get(*b).bytes(at));
        bytes.is_some_and(|n| n > limit)
    };
    let buffers = (0..code.buffers.len() as u32).map(BufferId);
    let mut candidates: Vec<(u64, BufferId)> = buffers
        .filter(large)
        .filter_map(|b| Some((row_bytes(&code, b)?, b)))
        .collect();
    // Where something is wider by far, nothing else decides how much memory it takes.
    let widest = candidates.iter().map(|(bytes, _)| *bytes).max();
    candidates.retain(|(bytes, _)| Some(bytes.saturating_mul(2)) >= widest);
    // Of equally wide ones the first.
    candidates.sort_by_key(|(bytes, b)| (std::cmp::Reverse(*bytes), *b));
    for (_, b) in candidates {
        // In columns: the gradient of logits is as wide as they are, though its numbers may be smaller.
        let Some(wide) = columns(code.get(b)) else {
            continue;
        };
        let Some(range) = reach(&code, &used, b, wide) else {
            continue;
        };
        let taken = |i: usize| code.chunks.iter().any(|s| s.range().contains(&i));
        if range.clone().any(taken) {
            continue;
        }
        if let Some(cut) = chunk(&code, &used, range, wide, maxima, (limit, unit)) {
            cut.apply(&mut code);
            used = uses(&code);
        }
    }
    code
}

/// The launches that use each buffer, in order.
fn uses(code: &LaunchList) -> Vec<Vec<usize>> {
    let mut out = vec![Vec::new(); code.buffers.len()];
    for (i, l) in code.launches.iter().enumerate() {
        let guards = l.guard.iter();
        guards
            .chain(&l.args)
            .for_each(|b| out[b.0 as usize].push(i));
    }
    out
}

/// Columns of a buffer in the arena that has a row for each token.
fn columns(b: &Buffer) -> Option<u64> {
    let tokens = Size {
        factor: b.size.factor,
        ..Size::TOKENS
    };
    (b.home == Placement::Arena && b.size == tokens).then_some(b.size.factor)
}

fn row_bytes(code: &LaunchList, b: BufferId) -> Option<u64> {
    columns(code.get(b))?.checked_mul(code.get(b).dtype.bytes())
}

/// Whether a launch uses rows of so many columns or more.
fn uses_wide(code: &LaunchList, l: &Launch, wide: u64) -> bool {
    l.args.iter().any(|b| columns(code.get(*b)) >= Some(wide))
}

/// From the first to the last launch that uses a wide buffer, or one that such a launch uses; `None` if these are too many.
fn reach(
    code: &LaunchList,
    used: &[Vec<usize>],
    b: BufferId,
    wide: u64,
) -> Option<std::ops::Range<usize>> {
    let (mut new, mut seen) = (vec![b], BTreeSet::from([b]));
    let mut range = *used[b.0 as usize].first()?..0;
    while !new.is_empty() {
        for b in new.drain(..) {
            let uses = &used[b.0 as usize];
            range.start = range.start.min(*uses.first()?);
            range.end = range.end.max(uses.last()? + 1);
        }
        if range.len() > REACH {
            return None;
        }
        let args = code.launches[range.clone()].iter().flat_map(|l| &l.args);
        let more = args.filter(|b| columns(code.get(**b)) >= Some(wide) && !seen.contains(b));
        new.extend(more);
        seen.extend(&new);
    }
    Some(range)
}

/// A chunk and what stands around it.
struct Cut {
    /// The launches that it takes the place of.
    range: std::ops::Range<usize>,
    launches: Vec<Launch>,
    chunk: Chunk,
    /// Sizes of one piece.
    sizes: Vec<(BufferId, Size)>,
}

impl Cut {
    fn apply(self, code: &mut LaunchList) {
        let more = self.launches.len() - self.range.len();
        for later in &mut code.chunks {
            if later.pieces.first as usize >= self.range.end {
                later.pieces.first += more as u32;
            }
        }
        for (b, size) in self.sizes {
            code.buffers[b.0 as usize].size = size;
        }
        code.launches.splice(self.range, self.launches);
        code.chunks.push(self.chunk);
        code.chunks.sort_by_key(|s| s.pieces.first);
    }
}

/// Where a launch of the range goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    In,
    After,
}

/// A range of launches in pieces; `None` where they cannot be.
fn chunk(
    code: &LaunchList,
    used: &[Vec<usize>],
    range: std::ops::Range<usize>,
    wide: u64,
    maxima: Maxima,
    (limit, unit): (u64, u64),
) -> Option<Cut> {
    let launches = &code.launches[range.clone()];
    let places = places(code, launches, wide);
    let inside: Vec<&Launch> = launches
        .iter()
        .zip(&places)
        .filter_map(|(l, p)| (*p == Place::In).then_some(l))
        .collect();
    let uses = |b: BufferId| {
        let args = inside.iter().flat_map(|l| &l.args);
        args.filter(|x| **x == b).count()
    };
    let own = |b: BufferId| columns(code.get(b)).is_some() && uses(b) == used[b.0 as usize].len();

    let widest = inside.iter().flat_map(|l| &l.args);
    let widest = widest.filter_map(|b| row_bytes(code, *b)).max()?;
    let rows = (limit / widest / unit).max(1) * unit;
    let tokens = maxima.most(|at| Size::TOKENS.at(at));
    if tokens.is_none_or(|tokens| rows >= tokens) {
        return None;
    }

    let (mut moves, mut body, mut zeroed) = (Vec::new(), Vec::new(), Vec::new());
    for l in &inside {
        // What may be passed over would leave its part of a sum unmade.
        if l.guard.is_some() || l.held.is_some() {
            return None;
        }
        let mut launch = (*l).clone();
        let sliced = slice(&launch)?;
        for (b, how) in launch.args.iter().zip(&sliced.operands) {
            let fits = match how {
                Operand::Rows(_) => true,
                Operand::Panels => own(*b),
                // What is the same for all pieces is not made by one of them, and a sum is finished after the last.
                Operand::Whole => inside.iter().all(|l| !writes(l, *b)),
                Operand::Sum => uses(*b) == 1,
            };
            if !fits {
                return None;
            }
        }
        if let Some(size) = sliced.zeroed {
            zeroed.push(fill(code, &launch, size));
        }
        launch.spec = sliced.spec;
        let by = launch.args.iter().zip(&sliced.operands);
        moves.push(
            by.map(|(b, how)| match how {
                Operand::Rows(bytes) if !own(*b) => *bytes,
                _ => 0,
            })
            .collect(),
        );
        body.push(launch);
    }
    let piece = |b: &BufferId| Some((*b, Size::fixed(columns(code.get(*b))?.checked_mul(rows)?)));
    let args = inside.iter().flat_map(|l| &l.args);
    let owned: BTreeSet<BufferId> = args.copied().filter(|b| own(*b)).collect();
    let sizes = owned.iter().map(piece).collect::<Option<_>>()?;

    let placed = |wanted: Place| {
        let list = launches.iter().zip(&places);
        list.filter(move |(_, p)| **p == wanted)
            .map(|(l, _)| l.clone())
    };
    let mut around: Vec<Launch> = placed(Place::Before).chain(zeroed).collect();
    let pieces = Pieces {
        first: (range.start + around.len()) as u32,
        count: body.len() as u32,
        rows,
    };
    around.extend(body);
    around.extend(placed(Place::After));
    Some(Cut {
        range,
        launches: around,
        chunk: Chunk { pieces, moves },
        sizes,
    })
}

fn writes(l: &Launch, b: BufferId) -> bool {
    l.uses().any(|(x, mode)| x == b && mode.writes())
}

/// What does not touch wide rows is moved out of the range where it may be: before it, if nothing of the range must come
/// first, else behind it.
fn places(code: &LaunchList, launches: &[Launch], wide: u64) -> Vec<Place> {
    let stays = |l: &Launch| {
        let packs_rows = matches!(*l.spec, KernelSpec::Pack(_)) && l.dims[1] == Size::TOKENS;
        packs_rows || uses_wide(code, l, wide)
    };
    let apart = |l: &Launch, used: &BTreeSet<BufferId>, written: &BTreeSet<BufferId>| {
        l.uses()
            .all(|(b, mode)| !(written.contains(&b) || mode.writes() && used.contains(&b)))
    };
    let mut places = vec![Place::In; launches.len()];
    for (free, order) in [
        (Place::Before, (0..launches.len()).collect::<Vec<_>>()),
        (Place::After, (0..launches.len()).rev().collect()),
    ] {
        let (mut used, mut written) = (BTreeSet::new(), BTreeSet::new());
        for i in order {
            let l = &launches[i];
            if places[i] != Place::In {
                continue;
            }
            if !stays(l) && apart(l, &used, &written) {
                places[i] = free;
                continue;
            }
            used.extend(l.args.iter().copied());
            written.extend(l.uses().filter(|(_, m)| m.writes()).map(|(b, _)| b));
        }
    }
    places
}

/// How a launch in pieces uses an operand.
#[derive(Clone, Copy)]
enum Operand {
    /// Row by row: so many bytes each.
    Rows(u64),
    /// Panels of the piece's rows.
    Panels,
    /// The same for every piece.
    Whole,
    /// The sum over all rows, which every piece adds to.
    Sum,
}

struct Sliced {
    operands: Vec<Operand>,
    spec: Spec,
    /// Rows and columns of the sum, where it must be zero before the first piece.
    zeroed: Option<[u64; 2]>,
}

/// A launch for a part of the rows; `None` where its rows depend on each other or on their number.
fn slice(l: &Launch) -> Option<Sliced> {
    match &*l.spec {
        KernelSpec::Rows(k) => rows(k, l),
        KernelSpec::Contract(k) => contract(k, l),
        KernelSpec::Pack(k) => pack(k, l),
        // Other sums over rows have an order that accumulating pieces would change.
        _ => None,
    }
}

/// How a body reads operand `i`: its accesses agree, and none asks which row it is.
fn walked(body: &Body, stored: Option<Access>, i: usize, bytes: u64) -> Option<Operand> {
    let loads = body.nodes.iter().filter_map(|e| match e {
        Expr::Load { operand, access } if *operand as usize == i => Some(*access),
        _ => None,
    });
    let mut all = loads.chain(stored);
    let first = all.next()?;
    let same = all.all(|a| (a.row, a.stride) == (first.row, first.stride));
    match first.row {
        RowMap::Row if same => Some(Operand::Rows(first.stride * bytes)),
        RowMap::Zero if same => Some(Operand::Whole),
        _ => None,
    }
}

fn blind(body: &Body) -> bool {
    let asks = |e: &Expr| matches!(e, Expr::RowIndex | Expr::Random(_));
    !body.nodes.iter().any(asks)
}

fn rows(k: &Rows, l: &Launch) -> Option<Sliced> {
    if l.dims[0] != Size::TOKENS || !blind(&k.body) {
        return None;
    }
    let operand = |i: usize| {
        let stored = k.stores.iter().find(|s| s.operand as usize == i);
        walked(&k.body, stored.map(|s| s.access), i, k.operands[i].bytes())
    };
    Some(Sliced {
        operands: (0..l.args.len()).map(operand).collect::<Option<_>>()?,
        spec: l.spec.clone(),
        zeroed: None,
    })
}

fn contract(k: &Contract, l: &Launch) -> Option<Sliced> {
    if k.parts != Parts::ONE {
        return None;
    }
    let fixed = |s: Size| (s == Size::fixed(s.factor)).then_some(s.factor);
    let (a, b, c) = (k.a.bytes(), k.b.bytes(), k.result().bytes());
    match (&l.dims[..], k.a_transposed) {
        (&[Size::TOKENS, n, inner], false) => {
            let mut operands = vec![Operand::Rows(fixed(inner)? * a), Operand::Whole];
            if let Some(e) = &k.epilogue {
                if !blind(&e.body) {
                    return None;
                }
                let extra = |i| walked(&e.body, None, i, k.dtype.bytes());
                let extras = (2..2 + e.operands as usize).map(extra);
                operands.extend(extras.collect::<Option<Vec<_>>>()?);
            }
            operands.push(Operand::Rows(fixed(n)? * c));
            Some(Sliced {
                operands,
                spec: l.spec.clone(),
                zeroed: None,
            })
        }
        (&[m, n, Size::TOKENS], true) if k.epilogue.is_none() => {
            let (m, n) = (fixed(m)?, fixed(n)?);
            let right = match k.layout {
                Layout::Panels => Operand::Panels,
                Layout::Rows => Operand::Rows(n * b),
                Layout::Columns => return None,
            };
            Some(Sliced {
                operands: vec![Operand::Rows(m * a), right, Operand::Sum],
                spec: KernelSpec::Contract(Contract {
                    accumulate: true,
                    ..k.clone()
                })
                .into(),
                zeroed: (!k.accumulate).then_some([m, n]),
            })
        }
        _ => None,
    }
}

fn pack(k: &Pack, l: &Launch) -> Option<Sliced> {
    let [n, inner] = l.dims[..] else {
        return None;
    };
    if inner != Size::TOKENS || n != Size::fixed(n.factor) || k.transposed {
        return None;
    }
    Some(Sliced {
        operands: vec![Operand::Rows(n.factor * k.from.bytes()), Operand::Panels],
        spec: l.spec.clone(),
        zeroed: None,
    })
}

/// Makes the sum of a launch, its last operand, zero.
fn fill(code: &LaunchList, l: &Launch, [rows, cols]: [u64; 2]) -> Launch {
    let sum = l.args[l.args.len() - 1];
    let ty = TensorType::real([Dim::Fixed(rows), Dim::Fixed(cols)]);
    let (spec, dims, coeffs) = body::fill(&ty, Coeff::Value(0.0), code.get(sum).dtype);
    Launch {
        spec: KernelSpec::Rows(spec).into(),
        args: vec![sum],
        dims,
        coeffs,
        site: l.site.clone(),
        guard: None,
        held: None,
    }
}
