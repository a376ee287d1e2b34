//! Warns about parameters that no gradient reaches.
//!
//! Takes the paths that the gradient's graph has nothing for: the loss does not depend on them, or only through states that `gradient last(k)`
//! takes as given. Leaves products that are 0 to nobody: such a gradient is computed.

use super::spec::Spec;
use crate::codes;
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeSet;

/// Owners that a message names; of more it gives the number.
const NAMED: usize = 5;

/// Warns about parameters that are to be trained and have no gradient.
pub fn check(spec: &Spec, paths: &[String], sink: &mut Vec<Diagnostic>) {
    if paths.is_empty() {
        return;
    }
    let mut owners: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let owner = owner(path);
        if seen.insert(owner) {
            owners.push(owner);
        }
    }
    let named: Vec<String> = (owners.iter().take(NAMED))
        .map(|o| format!("`{o}`"))
        .collect();
    let more = match owners.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let count = crate::scheme::resolve::count(paths.len(), "parameter");
    let message = format!("no gradient reaches {count}: {}{more}", named.join(", "));
    let cut = spec.evolves.iter().find(|e| e.last.is_some());
    let d = match cut.and_then(|e| e.gradient_at) {
        Some(span) => Diagnostic::warning(codes::NO_GRADIENT, span, message)
            .label("the gradient ends here, so they stay as they begin")
            .help("share the weights (`weights shared`) and tie the embedding (`logits(tied)`), or leave `gradient` out"),
        None => Diagnostic::warning(codes::NO_GRADIENT, spec.name.span, message)
            .label("the loss does not depend on them"),
    };
    sink.push(d);
}

/// `step.3` of `step.3.att.q.weight`, `embed` of `embed.token.weight`.
fn owner(path: &str) -> &str {
    let mut dots = path.match_indices('.').map(|(at, _)| at);
    let first = dots.next();
    let after_number = dots.find(|at| path[..*at].ends_with(|c: char| c.is_ascii_digit()));
    &path[..after_number.or(first).unwrap_or(path.len())]
}
