//! Attention to the tokens of one run, or to those of earlier runs as well.
//!
//! Reading a text in pieces gives, bit for bit, what reading it whole gives: keys and values are kept under the site that made them, and
//! rows of positions begin after the tokens so far.

use super::graph_builder::GraphBuilder;
use odec_graph::ops::{Append, Attention, Cache, CachedAttention};
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
        &self,
        b: &mut Builder,
        attention: Attention,
        qkv: [Value; 3],
    ) -> Result<Value, TypeError> {
        match self.kv {
            KvMode::Prefill => nn::attend(b, attention, qkv),
            KvMode::Cached => self.attend_to_kept(b, attention, qkv),
        }
    }

    /// Keeps keys and values under the site's name, and attends to all that are kept.
    fn attend_to_kept(
        &self,
        b: &mut Builder,
        attention: Attention,
        [q, k, v]: [Value; 3],
    ) -> Result<Value, TypeError> {
        let site = b.site.to_string();
        let (positions, width) = (self.spec.sizes.context, b.ty(k).cols());
        let mut kept = |x: Value, what: &str| {
            let path = format!("{site}.{what}");
            let cache = Cache {
                elem: Elem::Real,
                path,
                positions,
                width,
            };
            let cache = b.push1(cache, &[])?;
            b.push1(Append, &[cache, x])
        };
        let (k, v) = (kept(k, "k")?, kept(v, "v")?);
        b.push1(CachedAttention { attention }, &[q, k, v])
    }
}
