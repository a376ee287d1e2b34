//! Validates a program once, so that launching it can be cheap.
//!
//! Takes a manifest; gives the [`Signature`] of each kernel, or says what in the manifest contradicts
//! itself: kernel and operand numbers, argument counts, static extents, and that every operand stays
//! inside its slot at the entry's maxima (reach grows with batch and sequence, so it then does for
//! smaller ones too; of sequence and past, which share one maximum, each is tried at its largest). Leaves hashes and files to [`crate::artifact`], and inputs to [`crate::executor`].

use crate::artifact::numbers;
use crate::device::memory::WORD;
use odec_program::kernel::{Mode, Signature};
use odec_program::manifest::Manifest;
use odec_program::names::{self, LOGITS};
use odec_program::{
    Bindings, Coeff, DType, Dim, Entry, EntryId, Instr, Kept, Maxima, Operand, Piece, Program,
    Size, Slot, noise,
};
use std::collections::BTreeSet;
use std::ops::Range;

/// More than any machine has; keeps the arithmetic below far from overflow.
const LARGEST: u64 = 1 << 46;

const TOO_MUCH: &str = "it needs more memory than a machine can have";

/// Far more than the compiler makes.
const MOST_PIECES: u64 = 1 << 16;

/// What is wrong, and where. Damage or a fault of the compiler, never of the person who runs it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Invalid {
    pub place: String,
    pub what: String,
}

pub(crate) fn invalid<T>(place: impl Into<String>, what: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid {
        place: place.into(),
        what: what.into(),
    })
}

/// Checks everything and returns the kernels' signatures, in order.
///
/// # Errors
/// The first contradiction.
pub fn manifest(m: &Manifest) -> Result<Vec<Signature>, Invalid> {
    let p = &m.program;
    planned(p.maxima).or_else(|what| invalid("program", what))?;
    let lasting = [
        p.param_bytes,
        p.trained_bytes,
        p.const_bytes,
        p.prepared_bytes,
        p.cache_bytes,
    ];
    let memories = lasting
        .into_iter()
        .chain((p.entries.values()).flat_map(|e| [e.arena_bytes, e.scratch_bytes]));
    if memories.max() > Some(LARGEST) {
        return invalid("program", TOO_MUCH);
    }
    if p.trained_bytes > p.param_bytes {
        return invalid("program", "it trains more bytes than its parameters have");
    }
    if !matches!(p.real, DType::F32 | DType::F64) {
        return invalid("program", "its numbers are neither f32 nor f64");
    }
    numbers::check(m)?;
    tables(m)?;
    let signatures: Vec<Signature> = p
        .kernels
        .iter()
        .map(|k| {
            if k.symbol != k.spec.symbol() {
                return invalid(&k.symbol, "the kernel does not belong to its symbol");
            }
            k.spec
                .checked_signature()
                .or_else(|what| invalid(&k.symbol, what))
        })
        .collect::<Result<_, _>>()?;
    for (name, e) in &p.entries {
        entry(m, *name, e, &signatures)?;
    }
    if memory_bytes(m) > LARGEST || p.cache_bytes > LARGEST {
        return invalid("program", TOO_MUCH);
    }
    Ok(signatures)
}

/// Whether any machine could run so much.
fn planned(maxima: Maxima) -> Result<(), String> {
    let Maxima {
        batch,
        seq,
        source,
        tokens,
        kept,
    } = maxima;
    let some = |n: u64| (1..=LARGEST).contains(&n);
    let few = |size: Size| maxima.most(|at| size.at(at)).is_some_and(|n| n <= LARGEST);
    let longer = seq.max(source);
    let together = tokens.is_none_or(|n| some(n) && n >= longer);
    let fits = few(Size::TOKENS) && few(Size::SOURCES) && source <= LARGEST && together;
    // A run finds room for a token at least.
    let kept = kept.is_none_or(|k| some(k.window) && some(k.rows) && k.piece() > 0);
    match some(batch) && some(seq) && fits && kept {
        true => Ok(()),
        false => {
            let beside = match source {
                0 => String::new(),
                n => format!(" beside {n}"),
            };
            let together = tokens.map_or(String::new(), |n| format!(", {n} together,"));
            Err(format!(
                "{batch} sequences of {seq} tokens{beside}{together} are planned"
            ))
        }
    }
}

/// Parameters and constants lie inside their slots, aligned, apart from each other.
fn tables(m: &Manifest) -> Result<(), Invalid> {
    let size = m.program.real.bytes();
    let mut paths = BTreeSet::new();
    let mut taken: Vec<(u64, u64, &str)> = Vec::new();
    for p in &m.params {
        if !paths.insert(&p.path) {
            return invalid(&p.path, "two parameters have this path");
        }
        let bytes = p.shape.iter().try_fold(size, |n, d| n.checked_mul(*d));
        match bytes.and_then(|b| p.offset.checked_add(b)) {
            Some(end)
                if end <= m.program.param_bytes
                    && (p.offset >= m.program.trained_bytes || end <= m.program.trained_bytes)
                    && p.offset % 64 == 0 =>
            {
                taken.push((p.offset, end, &p.path))
            }
            _ => {
                return invalid(
                    &p.path,
                    "the parameter lies outside the parameter memory, or is not aligned",
                );
            }
        }
    }
    taken.sort_unstable();
    if let Some(w) = taken.windows(2).find(|w| w[0].1 > w[1].0) {
        return invalid(w[1].2, format!("the parameter overlaps `{}`", w[0].2));
    }
    for (i, c) in m.constants.iter().enumerate() {
        let [rows, cols] = c.table.shape();
        let bytes = rows
            .checked_mul(cols)
            .and_then(|n| n.checked_mul(size))
            .and_then(|b| c.offset.checked_add(b));
        if c.offset % size != 0 || bytes.is_none_or(|end| end > m.program.const_bytes) {
            return invalid(
                format!("constant {i}"),
                "the table lies outside the constant memory",
            );
        }
    }
    Ok(())
}

fn entry(m: &Manifest, id: EntryId, e: &Entry, signatures: &[Signature]) -> Result<(), Invalid> {
    let name = id.as_str();
    let (max, all) = (e.maxima, m.program.maxima);
    // More texts may be generated together than there are in a batch.
    let few = id == EntryId::Extend || (1..=all.batch).contains(&max.batch);
    let within = few && (1..=all.seq).contains(&max.seq) && max.source <= all.source;
    if !within || planned(max).is_err() {
        return invalid(
            format!("entry {name}"),
            "its maxima are not within the program's",
        );
    }
    let ios = e.inputs.iter().chain(&e.outputs);
    for io in ios {
        if let Some(other) = match io.dtype {
            DType::Bf16 => Some("bf16"),
            DType::I8 => Some("i8"),
            DType::F32 | DType::F64 | DType::I32 => None,
        } {
            return invalid(
                format!("entry {name}"),
                format!(
                    "`{}` is {other}: inputs and outputs must be f32 or f64",
                    io.name
                ),
            );
        }
        if most_bytes(io, max).is_none_or(|n| n > LARGEST) {
            return invalid(
                format!("entry {name}"),
                format!("`{}` needs more memory than a machine can have", io.name),
            );
        }
    }
    let logits = e.outputs.iter().find(|io| io.name == LOGITS);
    if logits.is_some_and(|io| io.shape.last() != Some(&Dim::Fixed(m.model.vocab))) {
        let what = format!("its `{LOGITS}` are not {} for each token", m.model.vocab);
        return invalid(format!("entry {name}"), what);
    }
    pieces(e, max).or_else(|what| invalid(format!("entry {name}"), what))?;
    let cache = m.program.cache(id);
    kept(e, cache.clone()).or_else(|what| invalid(format!("entry {name}"), what))?;
    if id == EntryId::Extend {
        let decode = m.program.entries.get(&EntryId::Decode);
        alike(decode, e).or_else(|what| invalid(format!("entry {name}"), what))?;
    }
    // Behind others, where they may be: the last token alone, and as many as there may be where as many are kept as there is room for.
    let most = max.tokens.map_or(max.batch, |n| max.batch.min(n));
    let piece = max.kept.map(|_| max.piece());
    let late = [1].into_iter().chain(piece).map(|seq| {
        let past = max.seq - seq;
        let recent = max.kept.map_or(past, |k| k.rows.saturating_sub(seq));
        let batch = if seq == 1 { most } else { 1 };
        let at = Bindings::new(batch, seq).after(past);
        at.dropping(past.saturating_sub(recent))
    });
    let late = late.filter(|_| max.source == 0);
    for at in max.ends().into_iter().chain(late) {
        for (i, piece) in e.launches(at) {
            let instr = &e.instrs[i];
            instruction(m, (e, &cache), instr, signatures, (at, piece)).or_else(|what| {
                let site = m.program.sites.get(instr.site as usize);
                let site = site.map_or(String::new(), |s| format!(" ({s})"));
                invalid(format!("entry {name}, instruction {i}{site}"), what)
            })?;
        }
    }
    Ok(())
}

/// What is kept of sequences lies inside the cache, and is of whole words.
fn kept(e: &Entry, cache: Range<u64>) -> Result<(), String> {
    let wrong = |k: &&Kept| {
        let each = k.rows.checked_mul(k.row);
        let all = each.and_then(|n| n.checked_mul(e.maxima.batch));
        let end = all.and_then(|n| n.checked_add(k.offset));
        let whole = k.offset.is_multiple_of(WORD) && k.row.is_multiple_of(WORD);
        !whole || k.offset < cache.start || end.is_none_or(|end| end > cache.end)
    };
    let rows = e.maxima.kept.map(|k| k.rows);
    let recent = |k: &&Kept| k.recent && (!k.grows || Some(k.rows) != rows);
    if let Some(k) = e.kept.iter().find(recent) {
        return Err(format!("{} rows of recent tokens are kept", k.rows));
    }
    match e.kept.iter().find(wrong) {
        None => Ok(()),
        Some(k) => Err(format!(
            "{} rows of {} bytes are kept of each sequence at {}, outside of {cache:?}",
            k.rows, k.row, k.offset
        )),
    }
}

/// What is kept of one text becomes what is kept of one of several.
fn alike(decode: Option<&Entry>, extend: &Entry) -> Result<(), String> {
    let kept = |e: &Entry| -> Vec<(u64, u64, [bool; 2])> {
        let each = e.kept.iter();
        each.map(|k| (k.rows, k.row, [k.grows, k.recent])).collect()
    };
    match decode.is_none_or(|decode| kept(decode) == kept(extend)) {
        true => Ok(()),
        false => Err("it keeps other things than entry decode".into()),
    }
}

/// Stretches in pieces lie inside the entry, in order and apart, and there are not so many pieces that checking takes long.
fn pieces(e: &Entry, max: Maxima) -> Result<(), String> {
    let mut next = 0;
    for p in &e.pieces {
        let end = u64::from(p.first) + u64::from(p.count);
        if u64::from(p.first) < next || end > e.instrs.len() as u64 {
            return Err("its pieces are not instructions of it, in order".into());
        }
        let tokens = max.most(|at| Size::TOKENS.at(at));
        let many = tokens.is_none_or(|t| p.rows == 0 || t.div_ceil(p.rows) > MOST_PIECES);
        // Memory is handed out in words: an even number of rows begins at one, whatever the rows hold.
        if many || p.rows % 2 != 0 {
            return Err(format!("it cannot be run in pieces of {} rows", p.rows));
        }
        next = end;
    }
    Ok(())
}

/// Bytes of an input or output, `None` when that overflows.
pub fn io_bytes(io: &odec_program::Io, at: Bindings) -> Option<u64> {
    Size::of(&io.shape)?.at(at)?.checked_mul(io.dtype.bytes())
}

/// The same of the largest run.
fn most_bytes(io: &odec_program::Io, max: Maxima) -> Option<u64> {
    max.most(|at| io_bytes(io, at))
}

fn instruction(
    m: &Manifest,
    (e, cache): (&Entry, &Range<u64>),
    instr: &Instr,
    signatures: &[Signature],
    (at, piece): (Bindings, Piece),
) -> Result<(), String> {
    let p = &m.program;
    let (kernel, signature) = match (
        p.kernels.get(instr.kernel as usize),
        signatures.get(instr.kernel as usize),
    ) {
        (Some(k), Some(s)) => (k, s),
        _ => return Err(format!("there is no kernel {}", instr.kernel)),
    };
    if p.sites.len() <= instr.site as usize {
        return Err(format!("there is no site {}", instr.site));
    }
    let counts = [
        ("operands", instr.operands.len(), signature.operands.len()),
        ("dims", instr.dims.len(), signature.dims.len()),
        ("scalars", instr.coeffs.len(), signature.coeffs),
    ];
    if let Some((what, has, wants)) = counts.into_iter().find(|(_, has, wants)| has != wants) {
        return Err(format!(
            "{has} {what} are given and {} takes {wants}",
            kernel.symbol
        ));
    }
    let mut dims = Vec::new();
    for (size, wanted) in instr.dims.iter().zip(&signature.dims) {
        let d = piece.dim(*size, at).ok_or("a dimension overflows")?;
        // Nothing but the tokens so far may be none.
        if d > LARGEST || (d == 0 && wanted.name != "past") {
            return Err(format!("a dimension is {d}"));
        }
        if let Some(w) = wanted.fixed
            && *size != Size::fixed(w)
        {
            return Err(format!(
                "a dimension is {size} and the kernel was made for {w}"
            ));
        }
        dims.push(d);
    }
    let mut largest = 0;
    for (n, (o, access)) in instr.operands.iter().zip(&signature.operands).enumerate() {
        let what = |s: &str| Err(format!("operand {n} {s}"));
        let bytes = match slot_bytes(m, e, o.slot) {
            Some((bytes, dtype)) if dtype.is_none_or(|d| d == access.dtype) => bytes,
            Some(_) => return what("has another element type than its slot"),
            None => return what("names an input or output that does not exist"),
        };
        // Memory is handed out in words, whatever they hold.
        let align = access.dtype.bytes().max(WORD);
        let whole = [o.offset, o.stride, o.recent].map(|n| n % align);
        if whole != [0; 3] || o.row % access.dtype.bytes() != 0 {
            return what("is not aligned");
        }
        if o.slot == Slot::Cache && o.offset < cache.start {
            return what("lies in the cache of another entry");
        }
        let bytes = match o.slot {
            Slot::Cache => cache.end,
            _ => bytes,
        };
        if access.mode.writes() && matches!(o.slot, Slot::Input(_) | Slot::Consts) {
            return what("is written, but lies in read-only memory");
        }
        let end = access
            .words(&dims)
            .and_then(|w| w.checked_mul(4))
            .and_then(|b| piece.start(o, at)?.checked_add(b));
        if end.is_none_or(|end| end > bytes) {
            return what(&format!("leaves its slot ({:?}, {bytes} bytes)", o.slot));
        }
        largest = largest.max(bytes);
    }
    // A launch that walks over more rows than any of its memories has bytes reads and writes the same ones for ever.
    if let Some(d) = dims.iter().find(|d| **d > largest) {
        return Err(format!(
            "a dimension is {d}, and its memories have {largest} bytes"
        ));
    }
    let scratch = signature.scratch_bytes(&dims);
    if scratch > e.scratch_bytes {
        return Err(format!(
            "it needs {scratch} bytes of scratch, {} are planned",
            e.scratch_bytes
        ));
    }
    if let Some(o) = &instr.guard {
        let size = p.real.bytes();
        let fits = |(bytes, dtype): (u64, Option<DType>)| {
            let end = Piece::ALL.start(o, at).and_then(|s| s.checked_add(size));
            let aligned = [o.offset, o.stride, o.recent].map(|n| n % size) == [0; 3];
            aligned && dtype.is_none_or(|d| d == p.real) && end.is_some_and(|end| end <= bytes)
        };
        if !slot_bytes(m, e, o.slot).is_some_and(fits) {
            return Err("its guard is not a number of its slot".into());
        }
    }
    overlaps(instr, signature, &dims, |o| piece.start(o, at))?;
    let is_depth = |name: &str| m.depths.iter().any(|d| d.input().as_deref() == Some(name));
    for (o, access) in instr.operands.iter().zip(&signature.operands) {
        let Mode::Index { rows } = access.mode else {
            continue;
        };
        // Token numbers are checked against the vocabulary when they come in, places against the longest text; nothing else may index.
        let input = match o.slot {
            Slot::Input(n) => e.inputs.get(n as usize),
            _ => None,
        };
        let below = input.and_then(|io| match io.name.as_str() {
            noise::KEY => None,
            name if is_depth(name) => None,
            names::PLACES => Some(e.maxima.seq),
            names::RECENT_PLACES => e.maxima.kept.map(|k| k.rows),
            name => Some(m.model.kinds(name)),
        });
        let rows = instr.dims[rows];
        if below.is_none() || rows.at(at) < below {
            return Err(
                "the index is no input of tokens, or the table is shorter than the vocabulary"
                    .into(),
            );
        }
        if rows != Size::fixed(rows.factor) {
            return Err("the table's height is not fixed".into());
        }
    }
    let sizes = instr.coeffs.iter().filter_map(|c| {
        if let Coeff::Inverse(s) = c {
            Some(s)
        } else {
            None
        }
    });
    for s in sizes {
        if s.at(at).is_none_or(|n| n == 0) {
            return Err("a scalar is the inverse of zero".into());
        }
    }
    Ok(())
}

/// Tiles run in any order, on any thread: what one writes, no other may touch.
fn overlaps(
    instr: &Instr,
    signature: &Signature,
    dims: &[u64],
    start: impl Fn(&Operand) -> Option<u64>,
) -> Result<(), String> {
    let range = |n: usize| {
        let start = start(&instr.operands[n]).unwrap_or(0);
        start..start + 4 * signature.operands[n].words(dims).unwrap_or(0)
    };
    let written = (0..signature.operands.len()).filter(|n| signature.operands[*n].mode.writes());
    for (w, n) in written.flat_map(|w| (0..signature.operands.len()).map(move |n| (w, n))) {
        let (a, b) = (range(w), range(n));
        let [one, other] = [w, n].map(|n| memory_of(instr.operands[n].slot));
        let meet = one == other && a.start < b.end && b.start < a.end;
        // An accumulator or a table reads what it writes, tile by tile, and needs no check against itself. What is walked over does.
        let alone = w == n && signature.operands[w].walks().next().is_none();
        if meet
            && !alone
            && !(a.start == b.start && signature.operands[w].may_coincide(&signature.operands[n]))
        {
            return Err(format!("operand {w} is written and overlaps operand {n}"));
        }
    }
    Ok(())
}

/// The slot whose memory a slot is a part of.
fn memory_of(slot: Slot) -> Slot {
    match slot {
        Slot::Grads => Slot::Arena,
        other => other,
    }
}

/// Bytes of a slot at the maxima, and its element type where it has one.
fn slot_bytes(m: &Manifest, e: &Entry, slot: Slot) -> Option<(u64, Option<DType>)> {
    let p = &m.program;
    let io = |list: &[odec_program::Io], n: u32| {
        let io = list.get(n as usize)?;
        Some((most_bytes(io, e.maxima)?, Some(io.dtype)))
    };
    match slot {
        Slot::Arena => Some((e.arena_bytes, None)),
        Slot::Params => Some((p.param_bytes, Some(p.real))),
        Slot::Grads => Some((p.trained_bytes.min(e.arena_bytes), Some(p.real))),
        Slot::Sums | Slot::Moment1 | Slot::Moment2 | Slot::Average => {
            Some((m.trained_slot_bytes(slot), Some(p.real)))
        }
        Slot::Consts => Some((p.const_bytes, Some(p.real))),
        Slot::Prepared => Some((p.prepared_bytes, None)),
        Slot::Rounded => Some((p.rounded_bytes(), Some(DType::Bf16))),
        Slot::Cache => Some((p.cache_bytes, None)),
        Slot::Input(n) => io(&e.inputs, n),
        Slot::Output(n) => io(&e.outputs, n),
    }
}

/// Bytes of memory that a run takes, scratch and code aside; of what is kept in generation, that of one text; of inputs and outputs, those of
/// training and of either way to predict, token by token or a whole text at once.
pub fn memory_bytes(m: &Manifest) -> u64 {
    let p = &m.program;
    let arena = p.arena_bytes();
    let fixed = [
        p.param_bytes,
        p.const_bytes,
        p.prepared_bytes,
        p.rounded_bytes(),
        p.generation_bytes(),
        arena,
    ];
    let ios = |of: &[EntryId]| -> u64 {
        let entries = of.iter().filter_map(|id| p.entries.get(id));
        let each = entries.flat_map(|e| {
            let ios = e.inputs.iter().chain(&e.outputs);
            ios.filter_map(|io| most_bytes(io, e.maxima))
        });
        each.fold(0, u64::saturating_add)
    };
    use EntryId::{
        Accumulate, Decode, Encode, Extend, Forward, Grad, Loss, Prepare, Round, Update,
    };
    let ios = [
        ios(&[Accumulate, Grad, Loss, Prepare, Round, Update]),
        ios(&[Forward]).max(ios(&[Decode, Encode, Extend])),
    ];
    let trained = [Slot::Sums, Slot::Moment1, Slot::Moment2, Slot::Average];
    let trained = trained.map(|slot| m.trained_slot_bytes(slot));
    (fixed.into_iter().chain(trained).chain(ios)).fold(0, u64::saturating_add)
}

/// Bytes of scratch one thread needs for any launch of the program.
pub fn scratch_bytes(p: &Program) -> u64 {
    p.entries
        .values()
        .map(|e| e.scratch_bytes)
        .max()
        .unwrap_or(0)
}
