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
use odec_grammar::work;
use odec_graph::TensorType;
use odec_program::expr::{Expr, RowMap};
use odec_program::kernel::{Contract, KernelSpec, Layout, Pack, Parts, Rows, Terms};
use odec_program::{Access, Body, Coeff, Dim, Maxima, Pieces, Size};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

/// Most launches that are looked at together: logits and their gradients are seven.
const REACH: usize = 64;

/// Cuts the widest of what is larger than `limit` bytes at these maxima; pieces are multiples of `unit` rows.
pub fn cut(mut code: LaunchList, maxima: Maxima, limit: u64, unit: u64) -> LaunchList {
    let large = |b: &BufferId| {
        let bytes = maxima.most(|at| code.get(*b).bytes(at));
        bytes.is_some_and(|n| n > limit)
    };
    let buffers = (0..code.buffers.len() as u32).map(BufferId);
    let mut candidates: Vec<(u64, BufferId)> = buffers
        .filter(large)
        .filter_map(|b| Some((row_bytes(&code, b)?, b)))
        .collect();
    if candidates.is_empty() {
        return code;
    }
    // Where something is wider by far, nothing else decides how much memory it takes.
    let widest = candidates.iter().map(|(bytes, _)| *bytes).max();
    candidates.retain(|(bytes, _)| Some(bytes.saturating_mul(2)) >= widest);
    // Of equally wide ones the first.
    candidates.sort_by_key(|(bytes, b)| (std::cmp::Reverse(*bytes), *b));
    let mut around = Around::new(&mut code);
    for (_, b) in candidates {
        // In columns: the gradient of logits is as wide as they are, though its numbers may be smaller.
        let Some(wide) = columns(code.get(b)) else {
            continue;
        };
        let Some(range) = around.reach(&code, b, wide) else {
            continue;
        };
        if let Some(cut) = chunk(&code, &around, range, wide, maxima, (limit, unit)) {
            around.apply(&mut code, cut);
        }
    }
    around.finish(&mut code);
    code
}

/// The launches of a program by rising numbers that leave room between each other: a cut changes what it touches, and nothing after it.
struct Around {
    launches: BTreeMap<u64, Launch>,
    /// Buffers in the arena with the launches that use them, and how often each does.
    used: BTreeMap<(BufferId, u64), usize>,
    /// By the number of their first launch.
    chunks: BTreeMap<u64, Chunk>,
    /// Launches of chunks.
    taken: BTreeSet<u64>,
}

/// Between launches at first.
const ROOM: u64 = 1 << 32;

impl Around {
    /// Takes the launches of a program.
    fn new(code: &mut LaunchList) -> Around {
        let mut around = Around {
            launches: BTreeMap::new(),
            used: BTreeMap::new(),
            chunks: BTreeMap::new(),
            taken: BTreeSet::new(),
        };
        let launches = std::mem::take(&mut code.launches);
        for (number, launch) in (0..).step_by(ROOM as usize).zip(launches) {
            around.add(code, number, launch);
        }
        around
    }

    fn add(&mut self, code: &LaunchList, number: u64, launch: Launch) {
        for b in used_in_arena(code, &launch) {
            work::add(1);
            *self.used.entry((b, number)).or_default() += 1;
        }
        self.launches.insert(number, launch);
    }

    fn uses(&self, b: BufferId) -> impl DoubleEndedIterator<Item = (u64, usize)> {
        let all = self.used.range((b, 0)..=(b, u64::MAX));
        all.map(|((_, number), times)| (*number, *times))
    }

    /// From the first to the last launch that uses a wide buffer, or one that such a launch uses; `None` if these are too many, or in
    /// a chunk already.
    fn reach(&self, code: &LaunchList, b: BufferId, wide: u64) -> Option<RangeInclusive<u64>> {
        let (mut new, mut seen) = (vec![b], BTreeSet::from([b]));
        let (mut first, mut last) = (self.uses(b).next()?.0, 0);
        while !new.is_empty() {
            for b in new.drain(..) {
                first = first.min(self.uses(b).next()?.0);
                last = last.max(self.uses(b).next_back()?.0);
            }
            let launches = || self.launches.range(first..=last);
            work::add(launches().take(REACH + 1).count());
            if launches().nth(REACH).is_some() {
                return None;
            }
            let args = launches().flat_map(|(_, l)| &l.args);
            let more = args.filter(|b| columns(code.get(**b)) >= Some(wide) && !seen.contains(b));
            new.extend(more);
            seen.extend(&new);
        }
        let taken = self.taken.range(first..=last).next().is_some();
        (!taken).then_some(first..=last)
    }

    /// Puts a cut in the place of its launches.
    fn apply(&mut self, code: &mut LaunchList, cut: Cut) {
        let (first, last) = cut.range.into_inner();
        let old: Vec<u64> = self.launches.range(first..=last).map(|l| *l.0).collect();
        for number in old {
            let launch = self.launches.remove(&number);
            for b in launch.iter().flat_map(|l| used_in_arena(code, l)) {
                self.used.remove(&(b, number));
            }
        }
        let after = self.launches.range(last..).next();
        let end = after.map_or(last.saturating_add(ROOM), |(number, _)| *number);
        let apart = (end - first) / cut.launches.len() as u64;
        assert!(
            apart > 0,
            "a stretch of {REACH} launches is cut a few times"
        );
        let numbers: Vec<u64> = (0..cut.launches.len() as u64)
            .map(|n| first + n * apart)
            .collect();
        for (number, launch) in numbers.iter().zip(cut.launches) {
            self.add(code, *number, launch);
        }
        let inside = &numbers[cut.inside];
        self.taken.extend(inside);
        self.chunks.insert(inside[0], cut.chunk);
        for (b, size) in cut.sizes {
            code.buffers[b.0 as usize].size = size;
        }
    }

    /// Gives the launches back, with the chunks in order.
    fn finish(self, code: &mut LaunchList) {
        let mut chunks = self.chunks.into_iter().peekable();
        for (place, (number, launch)) in self.launches.into_iter().enumerate() {
            if let Some((_, mut chunk)) = chunks.next_if(|(first, _)| *first == number) {
                chunk.pieces.first = place as u32;
                code.chunks.push(chunk);
            }
            code.launches.push(launch);
        }
    }
}

fn used_in_arena(code: &LaunchList, l: &Launch) -> impl Iterator<Item = BufferId> {
    let all = l.guard.iter().chain(&l.args).copied();
    all.filter(|b| code.get(*b).home == Placement::Arena)
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

/// A chunk and what stands around it.
struct Cut {
    /// The launches that it takes the place of.
    range: RangeInclusive<u64>,
    launches: Vec<Launch>,
    /// Those that are run in pieces.
    inside: Range<usize>,
    /// Its first launch is known when all cuts are.
    chunk: Chunk,
    /// Sizes of one piece.
    sizes: Vec<(BufferId, Size)>,
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
    all: &Around,
    range: RangeInclusive<u64>,
    wide: u64,
    maxima: Maxima,
    (limit, unit): (u64, u64),
) -> Option<Cut> {
    let launches: Vec<&Launch> = all.launches.range(range.clone()).map(|l| l.1).collect();
    let places = places(code, &launches, wide);
    let inside: Vec<&Launch> = launches
        .iter()
        .zip(&places)
        .filter_map(|(l, p)| (*p == Place::In).then_some(*l))
        .collect();
    let uses = |b: BufferId| {
        let args = inside.iter().flat_map(|l| &l.args);
        args.filter(|x| **x == b).count()
    };
    let times = |b: BufferId| all.uses(b).map(|(_, times)| times).sum::<usize>();
    let own = |b: BufferId| columns(code.get(b)).is_some() && uses(b) == times(b);

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
            .map(|(l, _)| (*l).clone())
    };
    let mut around: Vec<Launch> = placed(Place::Before).chain(zeroed).collect();
    let pieces = Pieces {
        first: 0,
        count: body.len() as u32,
        rows,
    };
    let first = around.len();
    around.extend(body);
    let inside = first..around.len();
    around.extend(placed(Place::After));
    Some(Cut {
        range,
        launches: around,
        inside,
        chunk: Chunk { pieces, moves },
        sizes,
    })
}

fn writes(l: &Launch, b: BufferId) -> bool {
    l.uses().any(|(x, mode)| x == b && mode.writes())
}

/// What does not touch wide rows is moved out of the range where it may be: before it, if nothing of the range must come
/// first, else behind it.
fn places(code: &LaunchList, launches: &[&Launch], wide: u64) -> Vec<Place> {
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
            let l = launches[i];
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
    if k.parts != Parts::ONE || k.terms != Terms::ONE {
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
                Layout::Columns | Layout::Quantized(_) => return None,
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
