//! Tables with a row for each position: angles of rotary attention, and sinusoids. Each is made once, and begins after the tokens so far.

use super::graph_builder::GraphBuilder;
use super::kv::KvMode;
use super::layers::{Angles, SINUSOID_BASE};
use odec_graph::ops::{Embedding, FromPast, Table};
use odec_graph::{Builder, Site, TypeError, Value, nn};
use odec_program::manifest;
use std::collections::BTreeMap;

/// Those that were made.
#[derive(Default)]
pub(super) struct PositionTables {
    /// By what they are made of, and for how many positions.
    rotary: Vec<((Angles, u64), nn::Rotary)>,
    /// By their positions and columns.
    sinusoids: BTreeMap<[u64; 2], Value>,
}

impl GraphBuilder<'_> {
    /// A table with a row for each position, as the tokens of a run see it: from the first token's on, or, of several texts, the row of each token.
    pub(super) fn positions(&mut self, b: &mut Builder, table: Value) -> Result<Value, TypeError> {
        let places = match (self.kv, self.places(b)?) {
            (KvMode::Prefill, _) => return Ok(table),
            (_, None) => return b.push1(FromPast, &[table]),
            (_, Some(places)) => places,
        };
        // Rows of tokens, as those of the embedding are, whoever reads them.
        let begin = self.spec.begins().nth(self.sequence);
        let stage = begin.and_then(|begin| begin.stages.first());
        let embed = stage.map(|stage| Site {
            path: stage.path.clone(),
            ..Site::default()
        });
        let own = b.site.clone();
        let site = embed.map_or(own, Into::into);
        let site = std::mem::replace(&mut b.site, site);
        let rows = b.push1(Embedding, &[table, places]);
        b.site = site;
        rows
    }

    pub(super) fn rotary(
        &mut self,
        b: &mut Builder,
        angles: Angles,
    ) -> Result<nn::Rotary, TypeError> {
        let of = (angles, self.sizes.context);
        let known = self.tables.rotary.iter().find(|(known, _)| *known == of);
        if let Some((_, tables)) = known {
            return Ok(*tables);
        }
        let Angles { head, base, turns } = angles;
        let outside = Site {
            path: "rotary".into(),
            ..Site::default()
        };
        let site = std::mem::replace(&mut b.site, outside.into());
        let made = nn::rotary(b, self.sizes.context, (head, base), turns);
        let made = made.and_then(|r| {
            Ok(nn::Rotary {
                cos: self.positions(b, r.cos)?,
                sin: self.positions(b, r.sin)?,
                ..r
            })
        });
        b.site = site;
        let made = made?;
        self.tables.rotary.push((of, made));
        Ok(made)
    }

    /// The sinusoids of the tokens' positions, as wide as the state.
    pub(super) fn sinusoids(&mut self, b: &mut Builder) -> Result<Value, TypeError> {
        let (positions, width) = (self.sizes.context, self.sizes.width);
        if let Some(known) = self.tables.sinusoids.get(&[positions, width]) {
            return Ok(*known);
        }
        let table = manifest::Table::Sinusoid {
            positions,
            width,
            base: SINUSOID_BASE,
        };
        let table = b.push1(Table { table }, &[])?;
        let table = self.positions(b, table)?;
        self.tables.sinusoids.insert([positions, width], table);
        Ok(table)
    }
}
