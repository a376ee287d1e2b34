//! Warns about parameters that no gradient reaches.
//!
//! Takes the paths that the gradient's graph has nothing for: the loss does not depend on them, or only through states that `gradient last(k)`
//! takes as given. A gradient that is computed and is always 0, as behind a product with 0, is not warned of.

use super::spec::Spec;
use crate::codes;
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeSet;

/// Paths that a message names; of more it gives the number.
const NAMED: usize = 5;

/// Warns about parameters that have no gradient, of all that are to be trained.
pub fn check(spec: &Spec, all: &[&str], untrained: &[String], sink: &mut Vec<Diagnostic>) {
    if untrained.is_empty() {
        return;
    }
    let known: BTreeSet<&str> = untrained.iter().map(String::as_str).collect();
    let mut named: Vec<&str> = untrained.iter().map(|p| whole(p, all, &known)).collect();
    named.dedup();
    let shown: Vec<String> = (named.iter().take(NAMED))
        .map(|p| format!("`{p}`"))
        .collect();
    let more = match named.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let count = crate::scheme::resolve::count(untrained.len(), "parameter");
    let message = format!("no gradient reaches {count}: {}{more}", shown.join(", "));
    let cut = spec.evolves.iter().find(|e| e.last.is_some());
    let d = match cut.and_then(|e| e.gradient_at) {
        Some(span) => Diagnostic::warning(codes::NO_GRADIENT, span, message)
            .label("the gradient ends here, so they stay as they begin")
            .help("weights that all steps share (`weights shared`) and a tied embedding (`logits(tied)`) are trained by the last steps; without `gradient` all steps are"),
        None => Diagnostic::warning(codes::NO_GRADIENT, spec.name.span, message)
            .label("the loss does not depend on them"),
    };
    sink.push(d);
}

/// The shortest beginning of a path below which no parameter has a gradient.
fn whole<'p>(path: &'p str, all: &[&str], untrained: &BTreeSet<&str>) -> &'p str {
    let below = |start: &str, p: &str| {
        p.strip_prefix(start)
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let starts = path.match_indices('.').map(|(at, _)| &path[..at]);
    let mut starts = starts.filter(|start| {
        let mut below_it = all.iter().filter(|p| below(start, p));
        below_it.all(|p| untrained.contains(p))
    });
    starts.next().unwrap_or(path)
}
