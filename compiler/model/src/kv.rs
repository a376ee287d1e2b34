//! Other tokens as layers see them: those of one run, or those of earlier runs as well.
//!
//! Reading a text in pieces gives, bit for bit, what reading it whole gives: keys and values, and rows that shifts and convolutions read, are
//! kept under the site that made them, and rows of positions begin after the tokens so far. Of several sequences all but the last are read whole; what the last
//! one's attention reads of them is kept once, for all texts that are tried as its translation.
//!
//! What is kept of a text is a `Cache` with a row for each token, or for each that a window sees (`recent.rs`), or a `Carry` of one size, made here where layers ask for it. Entry `decode` reads
//! one text, any number of tokens; entry `extend` reads one token of each of several texts, each at its place. Both list what they keep in the same
//! order, so that a text can go from one to the other (`runtime/src/executor/kept.rs`, `runtime/src/infer/reader.rs`).

use super::graph_builder::GraphBuilder;
use odec_graph::ops::{
    Add, Append, Attention, Broadcast, Cache, CachedAttention, Carry, Concat, Delayed, Depthwise,
    Input, Mul, Reshape, ShiftTokens, Slice,
};
use odec_graph::types::Elem;
use odec_graph::{Builder, Exact, TensorType, TypeError, Value, nn};
use odec_program::{Dim, names};

/// The tokens that attention sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KvMode {
    /// Those of the run.
    Prefill,
    /// Those of earlier runs as well: keys and values are kept, one pair per evaluation.
    Cached,
    /// The same for several texts, each a token longer in every run, and each as long as it is.
    Several,
}

/// What is kept of a value that attention reads: rows of all tokens, or of recent ones, which windows see; or of the other sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kept {
    All,
    Recent,
    OfSource,
}

impl GraphBuilder<'_> {
    /// Attention to all tokens that a run sees, or to those of them that take the step at hand. What fills up rows is not seen: in causal
    /// attention it comes after all tokens, elsewhere it is left out. `of`: the evolve that keys and values are of.
    pub(super) fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
        of: Option<&str>,
    ) -> Result<Value, TypeError> {
        let state = of.and_then(|label| self.states.get(label));
        let sequence = state.map_or(self.sequence, |(_, sequence)| *sequence);
        let padding = match attention.causal {
            true => None,
            false => self.padding.get(&sequence),
        };
        let rows = b.rows.filter(|_| sequence == self.sequence);
        let left_out = match (rows, padding) {
            (Some(rows), Some(padding)) => {
                let both = [rows, *padding].map(|v| (Exact::one(), v));
                Some(nn::combine(b, &both)?)
            }
            (rows, padding) => rows.or(padding.copied()),
        };
        // Distances are those of all tokens.
        let partial = attention.window.is_none() && !attention.compares_places();
        let others = sequence != self.sequence;
        let (attention, operands) = match left_out {
            Some(rows) if partial => {
                let attention = Attention {
                    partial,
                    ..attention
                };
                (attention, [operands, &[rows]].concat())
            }
            Some(rows) => (attention, among(b, &attention, operands, rows)?),
            None => (attention, operands.to_vec()),
        };
        match self.kv {
            KvMode::Prefill => {
                let attention = Attention {
                    others,
                    ..attention
                };
                nn::attend(b, attention, &operands)
            }
            KvMode::Several if others => self.attend_to_source(b, attention, &operands),
            KvMode::Cached | KvMode::Several => self.attend_to_kept(b, attention, &operands),
        }
    }

    /// Attends to keys and values of the other sequence, which a run before all others has made: [`GraphBuilder::of_source`].
    fn attend_to_source(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
    ) -> Result<Value, TypeError> {
        let mut operands = operands.to_vec();
        let numbers = attention.partial.then(|| (operands.len() - 1, "numbers"));
        for (n, what) in [(1, "k"), (2, "v")].into_iter().chain(numbers) {
            operands[n] = self.kept_once(b, operands[n], Kept::OfSource, |g, b, x| {
                let path = g.kept_path(format!("{}.{what}", b.site));
                let cache = g.cache(b, x, path, g.spec.source_context(), true)?;
                let made = b.push1(Append::default(), &[cache, x])?;
                g.of_source.push(made);
                Ok(cache)
            })?;
        }
        let op = CachedAttention {
            attention,
            each: true,
            recent: false,
        };
        b.push1(op, &operands)
    }

    /// What attention reads in the place of a value: kept once, also where it stands for keys and values or several evaluations read it.
    fn kept_once(
        &mut self,
        b: &mut Builder,
        x: Value,
        how: Kept,
        keep: impl FnOnce(&mut Self, &mut Builder, Value) -> Result<Value, TypeError>,
    ) -> Result<Value, TypeError> {
        if let Some(rows) = self.kept_rows.get(&(x, how)) {
            return Ok(*rows);
        }
        let rows = keep(self, b, x)?;
        self.kept_rows.insert((x, how), rows);
        Ok(rows)
    }

    /// Room for keys or values: those of each sequence, or of one source.
    fn cache(
        &mut self,
        b: &mut Builder,
        x: Value,
        path: String,
        positions: u64,
        one: bool,
    ) -> Result<Value, TypeError> {
        let cache = Cache {
            elem: Elem::Real,
            path,
            positions,
            width: b.ty(x).cols(),
            one,
        };
        b.push1(cache, &[])
    }

    /// Keeps keys and values under the site's name, which is counted where several attend at it, and attends to all that are kept.
    fn attend_to_kept(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
    ) -> Result<Value, TypeError> {
        let each = self.kv == KvMode::Several;
        let mut operands = operands.to_vec();
        let numbers = attention.partial.then(|| (operands.len() - 1, "numbers"));
        let kept: Vec<(usize, &str)> = [(1, "k"), (2, "v")].into_iter().chain(numbers).collect();
        let read = kept.iter().map(|(n, _)| operands[*n]).collect();
        let recent = self.windows.next(attention.window, read);
        let (how, rows) = match recent {
            Some(recent) => (Kept::Recent, recent.rows),
            None => (Kept::All, self.spec.sizes.context),
        };
        let append = Append {
            each,
            recent: recent.is_some(),
        };
        for (n, what) in kept {
            operands[n] = self.kept_once(b, operands[n], how, |g, b, x| {
                let path = g.kept_path(format!("{}.{what}", b.site));
                let cache = g.cache(b, x, path, rows, false)?;
                let places = g.places_among(b, append.recent)?;
                let given: Vec<Value> = [cache, x].into_iter().chain(places).collect();
                b.push1(append, &given)
            })?;
        }
        // Behind keys and values, before all others.
        if let Some(places) = self.places_among(b, append.recent)? {
            operands.insert(3, places);
        }
        let op = CachedAttention {
            attention,
            each,
            recent: append.recent,
        };
        b.push1(op, &operands)
    }

    /// Where the token of each of several texts stands in its text; `None` where all tokens of a run follow each other.
    pub(super) fn places(&mut self, b: &mut Builder) -> Result<Option<Value>, TypeError> {
        self.places_among(b, false)
    }

    /// The same, or where it stands among the recent tokens that windows keep.
    fn places_among(&mut self, b: &mut Builder, recent: bool) -> Result<Option<Value>, TypeError> {
        if self.kv != KvMode::Several {
            return Ok(None);
        }
        let which = usize::from(recent);
        if self.places[which].is_none() {
            let place = Input {
                name: [names::PLACES, names::RECENT_PLACES][which].into(),
                ty: TensorType::index([Dim::Batch, Dim::Seq, Dim::Fixed(1)]),
            };
            self.places[which] = Some(b.push1(place, &[])?);
        }
        Ok(self.places[which])
    }

    /// What a run leaves to the next, `[B, rows, width]`, under the site's name and one more; `None` where a run sees all tokens.
    pub(super) fn carry(
        &mut self,
        b: &mut Builder,
        name: &str,
        [rows, width]: [u64; 2],
    ) -> Result<Option<Value>, TypeError> {
        if self.kv == KvMode::Prefill {
            return Ok(None);
        }
        let path = self.kept_path(format!("{}.{name}", b.site));
        let carry = Carry { path, rows, width };
        b.push1(carry, &[]).map(Some)
    }

    /// A name of its own for what outlives a run: a field may attend twice.
    fn kept_path(&mut self, path: String) -> String {
        let numbered = (2..).map(|n| format!("{path}.{n}"));
        let mut names = std::iter::once(path.clone()).chain(numbered);
        let free = names.find(|name| self.kept.insert(name.clone()));
        free.unwrap_or(path)
    }

    /// The rows `by` tokens before each, side by side.
    pub(super) fn shifted(
        &mut self,
        b: &mut Builder,
        x: Value,
        by: &[i32],
    ) -> Result<Value, TypeError> {
        match self.delayed(b, x, by)? {
            Some(rows) => Ok(rows),
            None => b.push1(ShiftTokens { by: by.to_vec() }, &[x]),
        }
    }

    /// The convolution of each column with its taps. Of kept rows, the same products are added in the same order.
    pub(super) fn depthwise(
        &mut self,
        b: &mut Builder,
        x: Value,
        taps: Value,
        by: &[i32],
    ) -> Result<Value, TypeError> {
        let Some(rows) = self.delayed(b, x, by)? else {
            return b.push1(Depthwise { by: by.to_vec() }, &[x, taps]);
        };
        let cols = b.ty(x).cols();
        let products = (0..by.len() as u64).map(|k| {
            let slice = Slice {
                from: k * cols,
                cols,
            };
            let [tap, row] = [b.push1(slice, &[taps])?, b.push1(slice, &[rows])?];
            b.push1(Mul, &[tap, row])
        });
        let products: Vec<Value> = products.collect::<Result<_, _>>()?;
        let mut sum = products[0];
        for product in &products[1..] {
            sum = b.push1(Add, &[sum, *product])?;
        }
        Ok(sum)
    }

    /// The rows at each of these distances side by side, if earlier runs may have made some of them: as many as the longest distance are kept.
    fn delayed(
        &mut self,
        b: &mut Builder,
        x: Value,
        by: &[i32],
    ) -> Result<Option<Value>, TypeError> {
        let before: Result<Vec<u32>, _> = by.iter().map(|by| u32::try_from(*by)).collect();
        let reach = by.iter().copied().max().unwrap_or(0);
        let by = match (self.kv, before) {
            (KvMode::Prefill, _) => return Ok(None),
            (_, Ok(_)) if reach == 0 => return Ok(None),
            (_, Ok(by)) => by,
            (_, Err(_)) => {
                let what = "reads tokens that are not there yet".into();
                return Err(TypeError { op: "shift", what });
            }
        };
        let width = b.ty(x).cols();
        let ring = self.carry(b, "rows", [reach as u64, width])?;
        let places = self.places(b)?;
        let each = places.is_some();
        let operands: Vec<Value> = [x].into_iter().chain(places).chain(ring).collect();
        Ok(Some(b.push(Delayed { by, each }, &operands)?[0]))
    }
}

/// The operands of attention where each head's queries and keys have one more column, by which no query meets the key of a token that is left out:
/// one that does not take the step, or what fills up a row. For attention in which distances between tokens count. `rows` is 0 or less than that. Kept keys
/// keep it, so tokens of later runs know as well.
fn among(
    b: &mut Builder,
    attention: &Attention,
    operands: &[Value],
    rows: Value,
) -> Result<Vec<Value>, TypeError> {
    let wrong = |what: String| TypeError {
        op: "attention",
        what,
    };
    let [q, k, others @ ..] = operands else {
        return Err(wrong("has no queries and keys".into()));
    };
    let columns = b.ty(*q).cols() / attention.heads.max(1);
    let columns = i64::try_from(columns).unwrap_or(i64::MAX - 1).max(1);
    // Scores are divided by the root of the number of columns, which is one larger.
    let scale = Exact::ratio(columns + 1, columns).root(2);
    let scale = scale.map_err(|e| wrong(e.to_string()))?;
    let q = nn::combine(b, &[(scale, *q)])?;
    let one = nn::constant(b, Exact::one())?;
    let like = b.ty(q).per_row();
    let one = b.push1(Broadcast { to: like }, &[one])?;
    // 0, or −2¹⁰⁰, beside which a score is nothing and of which the exponential is 0.
    let root = Exact::int(1 << 50);
    let out = nn::combine(b, &[(&root * &root, rows)])?;
    let mut all = vec![
        with_column(b, q, attention.heads, one)?,
        with_column(b, *k, attention.kv_heads, out)?,
    ];
    all.extend(others);
    Ok(all)
}

/// A number of each row behind the columns of each of its heads.
fn with_column(b: &mut Builder, x: Value, heads: u64, column: Value) -> Result<Value, TypeError> {
    let to = b.ty(x).with_cols(heads);
    let column = b.push1(Broadcast { to }, &[column])?;
    let rows = b.ty(x).shape.len().saturating_sub(1);
    let rows = b.ty(x).shape[..rows].to_vec();
    let columns = b.ty(x).cols() / heads;
    let shape = |ends: &[u64]| Reshape {
        to: rows
            .iter()
            .copied()
            .chain(ends.iter().map(|n| Dim::Fixed(*n)))
            .collect(),
    };
    let x = b.push1(shape(&[heads, columns]), &[x])?;
    let column = b.push1(shape(&[heads, 1]), &[column])?;
    let both = b.push1(Concat, &[x, column])?;
    b.push1(shape(&[heads * (columns + 1)]), &[both])
}
