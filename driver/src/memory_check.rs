//! Checks that a model fits into a GPU's memory before its code is generated.
//!
//! Takes a planned program and a GPU; gives nothing, or an error that lists what other memory policies would need.

use crate::fail::{Done, Failure};
use crate::terminal;
use odec_compiler::cost::cost;
use odec_compiler::model::Built;
use odec_compiler::passes::{Assembled, Options};
use odec_program::manifest::Manifest;
use odec_program::{EntryId, Target};
use odec_runtime::ArtifactError;
use odec_runtime::artifact::check::memory_bytes;
use odec_runtime::device::cuda::fit::Card;

/// Refuses a program that card number `number` has no room for.
pub fn fits(
    (number, card): (u32, &Card),
    built: &Built,
    assembled: &Assembled,
    target: Target,
) -> Done {
    let manifest = &assembled.manifest;
    let Err(source) = card.room(memory_bytes(manifest)) else {
        return Ok(());
    };
    let refused = ArtifactError::Gpu {
        card: number,
        source,
    };
    let mut said = refused.to_string();
    if built.train.is_some() {
        let cost = cost(built, &manifest.program, Options::of(target, built.real()));
        let cost = cost.map_err(Failure::internal)?;
        let others = cost.policies.iter().filter(|p| p.memory != cost.own);
        let needs = others.filter_map(|p| {
            let needed = under(manifest, p.activations?);
            let fits = if needed <= card.free {
                ", which fits"
            } else {
                ""
            };
            let name = p.memory.to_string();
            Some(format!("`memory {name}` {}{fits}", terminal::bytes(needed)))
        });
        let needs: Vec<String> = needs.collect();
        if !needs.is_empty() {
            said += &format!("\n  this model would need with {}", needs.join("; "));
        }
    }
    Err(Failure::Input(said))
}

/// What a program needs when its gradient's arena has another size.
fn under(manifest: &Manifest, activations: u64) -> u64 {
    let arena = |grad: bool| {
        let entries = manifest.program.entries.iter();
        let of = entries.filter(|(name, _)| (**name == EntryId::Grad) == grad);
        of.map(|(_, e)| e.arena_bytes).max().unwrap_or(0)
    };
    let (own, others) = (arena(true), arena(false));
    memory_bytes(manifest) - own.max(others) + activations.max(others)
}
