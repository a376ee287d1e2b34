//! Other tokens as layers see them: those of one run, or those of earlier runs as well.
//!
//! Reading a text in pieces gives, bit for bit, what reading it whole gives: keys and values, and rows that shifts and convolutions read, are
//! kept under the site that made them, and rows of positions begin after the tokens so far.

use super::graph_builder::GraphBuilder;
use odec_graph::ops::{
    Add, Append, Attention, Cache, CachedAttention, Carry, Concat, Depthwise, KeptRows, Mul,
    ShiftTokens, Slice,
};
use odec_graph::types::Elem;
use odec_graph::{Builder, TypeError, Value, nn};

/// The tokens that attention sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KvMode {
    /// Those of the run.
    Prefill,
    /// Those of earlier runs as well: keys and values are kept, one pair per evaluation.
    Cached,
}

impl GraphBuilder<'_> {
    /// Attention to all tokens that a run sees.
    pub(super) fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
    ) -> Result<Value, TypeError> {
        match self.kv {
            KvMode::Prefill => nn::attend(b, attention, operands),
            KvMode::Cached => self.attend_to_kept(b, attention, operands),
        }
    }

    /// Keeps keys and values under the site's name, which is counted where several attend at it, and attends to all that are kept.
    fn attend_to_kept(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        operands: &[Value],
    ) -> Result<Value, TypeError> {
        let site = b.site.to_string();
        let positions = self.spec.sizes.context;
        let mut kept = |x: Value, what: &str| {
            let path = self.kept_path(format!("{site}.{what}"));
            let cache = Cache {
                elem: Elem::Real,
                path,
                positions,
                width: b.ty(x).cols(),
            };
            let cache = b.push1(cache, &[])?;
            b.push1(Append::default(), &[cache, x])
        };
        let mut operands = operands.to_vec();
        for (n, what) in [(1, "k"), (2, "v")] {
            operands[n] = kept(operands[n], what)?;
        }
        b.push1(CachedAttention { attention }, &operands)
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
        match &self.kept_rows(b, x, by)?[..] {
            [] => b.push1(ShiftTokens { by: by.to_vec() }, &[x]),
            [row] => Ok(*row),
            rows => b.push1(Concat, rows),
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
        let rows = self.kept_rows(b, x, by)?;
        let cols = b.ty(x).cols();
        let mut sum = None;
        for (row, k) in rows.into_iter().zip(0..) {
            let from = k * cols;
            let tap = b.push1(Slice { from, cols }, &[taps])?;
            let product = b.push1(Mul, &[tap, row])?;
            sum = Some(match sum {
                Some(before) => b.push1(Add, &[before, product])?,
                None => product,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => b.push1(Depthwise { by: by.to_vec() }, &[x, taps]),
        }
    }

    /// The rows at each of these distances, if earlier runs may have made some of them. As many rows as the longest distance lie before
    /// those of the first token, and stay zero.
    fn kept_rows(
        &mut self,
        b: &mut Builder,
        x: Value,
        by: &[i32],
    ) -> Result<Vec<Value>, TypeError> {
        let before: Result<Vec<u64>, _> = by.iter().map(|by| u64::try_from(*by)).collect();
        let before = match (self.kv, before) {
            (KvMode::Prefill, _) => return Ok(vec![]),
            (KvMode::Cached, Ok(before)) => before,
            (KvMode::Cached, Err(_)) => {
                let what = "reads tokens that are not there yet".into();
                return Err(TypeError { op: "shift", what });
            }
        };
        let after = before.iter().copied().max().unwrap_or(0);
        if after == 0 {
            return Ok(vec![]);
        }
        let cache = Cache {
            path: self.kept_path(format!("{}.rows", b.site)),
            positions: self.spec.sizes.context.saturating_add(after),
            width: b.ty(x).cols(),
            elem: Elem::Real,
        };
        let cache = b.push1(cache, &[])?;
        let kept = b.push1(Append { after }, &[cache, x])?;
        let row = |by: &u64| b.push1(KeptRows { from: after - by }, &[kept]);
        before.iter().map(row).collect()
    }
}
