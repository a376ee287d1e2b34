//! Attention to the tokens of one run, or to those of earlier runs as well.
//!
//! Reading a text in pieces gives, bit for bit, what reading it whole gives: keys and values are kept under the site that made them, and
//! rows of positions begin after the tokens so far.

use super::graph_builder::GraphBuilder;
use odec_graph::ops::{Append, Attention, Cache, CachedAttention, Carry};
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
            b.push1(Append, &[cache, x])
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
}
