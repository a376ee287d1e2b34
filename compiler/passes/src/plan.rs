//! Static memory planning: every arena buffer gets an offset before anything runs.
//!
//! Gradients of parameters have their places at the beginning of the arena ([`Slot::Grads`]): from the launch that writes one until the entry
//! ends nothing else lies there, and before that anything may. An entry that reads gradients of an earlier run leaves them all alone.
//!
//! Takes a [`LaunchList`] and the [`Maxima`] of a run; gives a [`Layout`]. A buffer lives from its first write to
//! its last use. Buffers are first joined into *blocks* where a row kernel may write over an input that dies in it;
//! blocks are then placed by size, largest first, each into the tightest gap left by the blocks alive at the same
//! time (best fit). [`check`] replays the code over a layout and proves that every read finds the value that was
//! written for it. What a chunk of rows shares with the rest of the program is alive in all of it.

use super::launch_list::{BufferId, Chunk, LaunchList, Placement};
use super::timeline::Timeline;
use odec_program::kernel::{Mode, OperandAccess, Signature};
use odec_program::{Access, Bindings, Maxima, Slot};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Offsets are multiples of this many bytes: a cache line, and the widest vector.
pub const ALIGN: u64 = 64;

/// The largest arena that is planned for.
pub const LIMIT: u64 = 1 << 40;

/// Why memory cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    #[error("`{name}` needs more memory than can be counted at batch {batch}, sequence {seq}")]
    Overflow { name: String, batch: u64, seq: u64 },
    #[error(
        "{} of memory at batch {batch}, sequence {seq}, where at most 1 TiB is planned for; the largest value is `{largest}`",
        odec_text::number::bytes(*.bytes)
    )]
    TooLarge {
        bytes: u64,
        batch: u64,
        seq: u64,
        largest: String,
    },
}

/// Where the arena buffers of a [`LaunchList`] live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Byte offset of every buffer; `None` for buffers outside of the arena and buffers never used.
    pub offsets: Vec<Option<u64>>,
    /// Bytes of the arena.
    pub peak: u64,
    /// Bytes that the same values would take side by side.
    pub unshared: u64,
    /// Bytes alive at the busiest launch: no layout without moves can do better.
    pub lower_bound: u64,
}

/// First and last launch that a buffer is used by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub first: u32,
    pub last: u32,
}

/// Lifetimes of all buffers; `None` for buffers never used. A chunk of rows is run again and again: what is made before it,
/// or read after it, lives as long as it does.
pub fn lifetimes(code: &LaunchList) -> Vec<Option<Lifetime>> {
    let mut out: Vec<Option<Lifetime>> = vec![None; code.buffers.len()];
    for (i, launch) in code.launches.iter().enumerate() {
        for b in launch.guard.iter().chain(&launch.args) {
            let life = &mut out[b.0 as usize];
            let first = life.map_or(i as u32, |l| l.first);
            *life = Some(Lifetime {
                first,
                last: i as u32,
            });
        }
    }
    for chunk in &code.chunks {
        let range = chunk.range();
        let (first, last) = (range.start as u32, range.end as u32 - 1);
        for (n, l) in range.clone().zip(&code.launches[range]) {
            for (arg, b) in l.args.iter().enumerate() {
                let outlives = |life: &Lifetime| life.first < first || life.last > last;
                let life = out[b.0 as usize].as_mut();
                if let Some(life) = life.filter(|life| outlives(life) || code.moves(n, arg) > 0) {
                    life.first = life.first.min(first);
                    life.last = life.last.max(last);
                }
            }
        }
    }
    out
}

/// A stretch of arena with its time: one buffer, or several that take turns in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub bytes: u64,
    pub life: Lifetime,
}

/// Gives every arena buffer its offset.
///
/// # Errors
/// When a size overflows or the arena exceeds [`LIMIT`].
pub fn plan(code: &LaunchList, maxima: impl Into<Maxima>) -> Result<Layout, PlanError> {
    let maxima: Maxima = maxima.into();
    let Bindings { batch, seq, .. } = maxima.longest();
    code.assert_types();
    let lives = lifetimes(code);
    let mut bytes = vec![0; code.buffers.len()];
    for (b, buffer) in code.buffers.iter().enumerate() {
        bytes[b] = maxima
            .most(|at| buffer.bytes(at))
            .and_then(|n| n.checked_next_multiple_of(ALIGN))
            .ok_or_else(|| PlanError::Overflow {
                name: buffer.name.to_string(),
                batch,
                seq,
            })?;
    }
    let planned = |b: usize| code.buffers[b].home == Placement::Arena && lives[b].is_some();
    let held = gradients(code, &lives, &bytes);

    let block_of = join_in_place(code, &lives);
    let mut blocks: Vec<Block> = Vec::new();
    let mut index: BTreeMap<u32, usize> = BTreeMap::new();
    let mut unshared: u64 = held.iter().map(|g| g.block.bytes).sum();
    for b in (0..code.buffers.len()).filter(|b| planned(*b)) {
        let life = lives[b].expect("planned buffers are used");
        unshared = unshared.saturating_add(bytes[b]);
        let at = *index.entry(block_of[b]).or_insert_with(|| {
            blocks.push(Block { bytes: 0, life });
            blocks.len() - 1
        });
        let block = &mut blocks[at];
        block.bytes = block.bytes.max(bytes[b]);
        block.life.first = block.life.first.min(life.first);
        block.life.last = block.life.last.max(life.last);
    }

    let lower_bound = {
        let all = blocks.iter().chain(held.iter().map(|g| &g.block));
        busiest(all, code.launches.len())
    };
    let (mut placed, mut peak) = place(&blocks, &held);
    let gradients_end = held.iter().map(Held::end).max().unwrap_or(0);
    if peak > lower_bound.max(gradients_end) {
        // Around gradients what is large may find no room that it would find above them.
        let (alone, bytes) = place(&blocks, &[]);
        if gradients_end.saturating_add(bytes) < peak {
            placed = alone.iter().map(|at| gradients_end + at).collect();
            peak = gradients_end + bytes;
        }
    }
    if peak > LIMIT {
        let largest = (0..code.buffers.len())
            .filter(|b| planned(*b))
            .max_by_key(|b| bytes[*b]);
        let largest = largest.map_or(String::new(), |b| code.buffers[b].name.to_string());
        return Err(PlanError::TooLarge {
            bytes: peak,
            batch,
            seq,
            largest,
        });
    }
    let offsets = (0..code.buffers.len())
        .map(|b| match planned(b) {
            true => Some(placed[index[&block_of[b]]]),
            false => gradient(&code.buffers[b].home).filter(|_| lives[b].is_some()),
        })
        .collect();
    Ok(Layout {
        offsets,
        peak,
        unshared,
        lower_bound,
    })
}

/// A stretch of the arena that is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub at: u64,
    pub block: Block,
}

impl Held {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.block.bytes)
    }
}

/// Where in the arena a gradient's home is.
fn gradient(home: &Placement) -> Option<u64> {
    match home {
        Placement::Fixed(o) if o.slot == Slot::Grads => Some(o.offset),
        _ => None,
    }
}

/// The gradients that the code uses, each once: those that it writes from their first launch on, those of an earlier run all the time.
fn gradients(code: &LaunchList, lives: &[Option<Lifetime>], bytes: &[u64]) -> Vec<Held> {
    let written = written_gradients(code);
    let last = code.launches.len().saturating_sub(1) as u32;
    let held = code.buffers.iter().enumerate().filter_map(|(b, buffer)| {
        let (at, life) = (gradient(&buffer.home)?, lives[b]?);
        let first = match written.contains(&(b as u32)) {
            true => life.first,
            false => 0,
        };
        let (bytes, life) = (bytes[b], Lifetime { first, last });
        Some(Held {
            at,
            block: Block { bytes, life },
        })
    });
    let mut held: Vec<Held> = held.collect();
    held.sort_by_key(|g| (g.at, std::cmp::Reverse(g.block.bytes), g.block.life.first));
    // A part of one that is there as long is no more.
    held.dedup_by(|part, g| part.end() <= g.end() && part.block.life.first >= g.block.life.first);
    held
}

/// The numbers of the gradients that the code writes.
fn written_gradients(code: &LaunchList) -> BTreeSet<u32> {
    let uses = code.launches.iter().flat_map(|l| l.uses());
    let written = uses.filter(|(b, mode)| mode.writes() && gradient(&code.get(*b).home).is_some());
    written.map(|(b, _)| b.0).collect()
}

/// Places blocks so that no two alive at the same time overlap, nor what is held; gives offsets and the total size.
///
/// Greedy by size (Pisarchyk & Lee 2020, "Efficient memory management for deep neural net inference", §5.2): blocks
/// in falling order of size, each into the smallest gap that holds it among those already placed, or after them.
pub fn place(blocks: &[Block], held: &[Held]) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|i| {
        (
            std::cmp::Reverse(blocks[*i].bytes),
            blocks[*i].life.first,
            *i,
        )
    });
    let mut offsets: Vec<u64> = vec![0; blocks.len()];
    let lives = blocks.iter().chain(held.iter().map(|g| &g.block));
    let launches = lives.map(|b| b.life.last as usize + 1).max();
    let mut taken = Timeline::new(launches.unwrap_or(0));
    let mut peak = 0;
    for g in held {
        peak = peak.max(g.end());
        taken.add(g.block.life, g.at, g.end());
    }
    for i in order {
        let need = blocks[i].bytes;
        let mut best: Option<(u64, u64)> = None;
        let mut free_from: u64 = 0;
        for (start, end) in taken.during(blocks[i].life) {
            let gap = start.saturating_sub(free_from);
            if gap >= need && best.is_none_or(|(size, _)| gap < size) {
                best = Some((gap, free_from));
            }
            free_from = free_from.max(end);
        }
        let at = best.map_or(free_from, |(_, at)| at);
        offsets[i] = at;
        let end = at.saturating_add(need);
        peak = peak.max(end);
        taken.add(blocks[i].life, at, end);
    }
    (offsets, peak)
}

/// The most bytes alive at one launch.
fn busiest<'a>(blocks: impl Iterator<Item = &'a Block>, launches: usize) -> u64 {
    let mut change = vec![0i128; launches + 1];
    for b in blocks {
        change[b.life.first as usize] += b.bytes as i128;
        change[b.life.last as usize + 1] -= b.bytes as i128;
    }
    let alive = change.iter().scan(0i128, |sum, c| {
        *sum += c;
        Some(*sum)
    });
    alive.max().unwrap_or(0) as u64
}

/// The block of every buffer: outputs of row kernels join the block of an input that dies there, where the kernel
/// reads and writes the two in the same way.
fn join_in_place(code: &LaunchList, lives: &[Option<Lifetime>]) -> Vec<u32> {
    let mut block: Vec<u32> = (0..code.buffers.len() as u32).collect();
    for (i, launch) in code.launches.iter().enumerate() {
        let mut taken = BTreeSet::new();
        let signature = launch.spec.signature();
        for (out, access) in in_place_outputs(signature) {
            let o = launch.args[out].0 as usize;
            let starts_here = lives[o].is_some_and(|l| l.first == i as u32);
            if code.buffers[o].home != Placement::Arena || !starts_here {
                continue;
            }
            let kept = launch.held.iter().flat_map(|h| &h.pairs);
            let mut kept = kept.filter(|(made, _)| *made == launch.args[out]);
            let kept = kept.next().map(|(_, kept)| *kept);
            let free = |(a, b): &(usize, &BufferId)| {
                let n = b.0 as usize;
                code.buffers[n].home == Placement::Arena
                    && code.buffers[n].size == code.buffers[o].size
                    && code.buffers[n].dtype == code.buffers[o].dtype
                    && lives[n].is_some_and(|l| l.first < i as u32 && l.last == i as u32)
                    && !taken.contains(&n)
                    && launch.args.iter().filter(|x| *x == *b).count() == 1
                    && reads_only(&signature.operands[*a], access)
            };
            let mut hosts = launch.args.iter().enumerate().filter(free);
            let best = hosts.clone().find(|(_, b)| Some(**b) == kept);
            let host = best.or_else(|| hosts.next());
            if let Some((_, b)) = host {
                taken.insert(b.0 as usize);
                block[o] = block[b.0 as usize];
            }
        }
    }
    block
}

/// Outputs that may take the place of an input, with their access: those that are written row by row.
fn in_place_outputs(signature: &Signature) -> Vec<(usize, Access)> {
    let operands = signature.operands.iter().enumerate();
    operands
        .filter(|(_, o)| o.mode.writes())
        .flat_map(|(n, o)| o.walks().map(move |access| (n, access)))
        .collect()
}

/// Whether an operand is read through `access` and in no other way.
fn reads_only(operand: &OperandAccess, access: Access) -> bool {
    !operand.mode.writes() && operand.walks().all(|a| a == access)
}

/// A read that does not find its value: a fault of the compiler.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CheckError {
    #[error("launch {launch} ({site}) reads `{buffer}` before it was written")]
    Unwritten {
        launch: usize,
        site: String,
        buffer: String,
    },
    #[error("launch {launch} ({site}) reads `{buffer}`, which `{by}` has overwritten")]
    Overwritten {
        launch: usize,
        site: String,
        buffer: String,
        by: String,
    },
    #[error(
        "launch {launch} ({site}) writes `{buffer}` over its own argument `{over}`, which it reads differently"
    )]
    Clash {
        launch: usize,
        site: String,
        buffer: String,
        over: String,
    },
    #[error("`{buffer}` ends at byte {end} of an arena of {peak} bytes")]
    Outside { buffer: String, end: u64, peak: u64 },
    #[error("`{by}` lies over the gradient `{buffer}`")]
    Gradient { buffer: String, by: String },
}

/// The launches as they are run, with two pieces for each chunk: the second finds what the first has left.
fn order(code: &LaunchList) -> impl Iterator<Item = usize> + '_ {
    let twice = |s: &Chunk| s.range().chain(s.range()).collect::<Vec<_>>();
    let mut out: Vec<usize> = Vec::new();
    let mut next = 0;
    for s in &code.chunks {
        out.extend(next..s.range().start);
        out.extend(twice(s));
        next = s.range().end;
    }
    out.extend(next..code.launches.len());
    out.into_iter()
}

/// Replays the code over a layout: every read of an arena buffer must find what was written to that buffer, and a
/// launch may overlap its own arguments only where its kernel allows it. Gradients are there when the code ends, those of an earlier run all the
/// time.
pub fn check(
    code: &LaunchList,
    layout: &Layout,
    maxima: impl Into<Maxima>,
) -> Result<(), CheckError> {
    let maxima: Maxima = maxima.into();
    // offset → (end, buffer): the value that lives there now; stretches are disjoint.
    let mut memory: BTreeMap<u64, (u64, BufferId)> = BTreeMap::new();
    let mut overwritten_by: BTreeMap<BufferId, BufferId> = BTreeMap::new();
    let stretch = |b: BufferId| {
        let start = layout.offsets[b.0 as usize]?;
        let bytes = maxima.most(|at| code.get(b).bytes(at));
        Some((start, start + bytes.unwrap_or(0)))
    };
    let name = |b: BufferId| code.get(b).name.to_string();
    let is_gradient = |b: BufferId| gradient(&code.get(b).home).is_some();
    let written = written_gradients(code);
    let of_another_run = |b: BufferId| is_gradient(b) && !written.contains(&b.0);
    for (i, launch) in order(code).map(|i| (i, &code.launches[i])) {
        let site = || launch.site.to_string();
        for (b, mode) in launch.uses() {
            let Some((start, end)) = stretch(b) else {
                continue;
            };
            if end > layout.peak {
                return Err(CheckError::Outside {
                    buffer: name(b),
                    end,
                    peak: layout.peak,
                });
            }
            let is_there = || of_another_run(b) || memory.get(&start).is_some_and(|m| m.1 == b);
            if mode.reads() && !is_there() {
                return Err(match overwritten_by.get(&b) {
                    Some(by) => CheckError::Overwritten {
                        launch: i,
                        site: site(),
                        buffer: name(b),
                        by: name(*by),
                    },
                    None => CheckError::Unwritten {
                        launch: i,
                        site: site(),
                        buffer: name(b),
                    },
                });
            }
        }
        let signature = launch.spec.signature();
        let in_place = in_place_outputs(signature);
        for (o, out) in launch
            .args
            .iter()
            .enumerate()
            .filter(|(o, _)| signature.operands[*o].mode.writes())
        {
            let Some((start, end)) = stretch(*out) else {
                continue;
            };
            for (a, arg) in launch.args.iter().enumerate().filter(|(a, _)| *a != o) {
                let Some((s, e)) = stretch(*arg) else {
                    continue;
                };
                if s >= end || e <= start {
                    continue;
                }
                let allowed = in_place
                    .iter()
                    .any(|(x, access)| *x == o && reads_only(&signature.operands[a], *access));
                if arg == out || (s, e) != (start, end) || !allowed {
                    return Err(CheckError::Clash {
                        launch: i,
                        site: site(),
                        buffer: name(*out),
                        over: name(*arg),
                    });
                }
            }
        }
        for (b, mode) in launch.uses().filter(|(_, m)| m.writes()) {
            let Some((start, end)) = stretch(b) else {
                continue;
            };
            if mode == Mode::Accumulate {
                continue;
            }
            let below = memory
                .range(..start)
                .next_back()
                .filter(|(_, m)| m.0 > start)
                .map(|(s, _)| *s);
            let inside: Vec<u64> = memory.range(start..end).map(|(s, _)| *s).collect();
            for s in below.into_iter().chain(inside) {
                let (_, gone) = memory.remove(&s).expect("just found");
                overwritten_by.insert(gone, b);
            }
            memory.insert(start, (end, b));
        }
    }
    // What was written over a gradient has left something there.
    let gradients = (0..code.buffers.len() as u32).map(BufferId);
    for g in gradients.filter(|b| is_gradient(*b)) {
        let Some((start, end)) = stretch(g) else {
            continue;
        };
        let mut here = memory.range(..end).filter(|(_, m)| m.0 > start);
        if let Some((_, (_, by))) = here.find(|(_, m)| !is_gradient(m.1)) {
            return Err(CheckError::Gradient {
                buffer: name(g),
                by: name(*by),
            });
        }
    }
    Ok(())
}
