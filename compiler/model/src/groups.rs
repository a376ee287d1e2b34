//! Groups of parameters that do not follow the optimiser that all others follow:
//! `optimizer adamw(lr: 3e-4) except norm, embed { weight_decay: 0 }`, `… except embed by sgd(lr: 0.1)`.
//!
//! In braces stand the arguments that differ; behind `by` stands another optimiser. Names are parts of the paths of parameters (`norm`,
//! `att.q`, `step.0`), or `matrices` and `vectors`. The last group that names a parameter has it. A group that says its `weight_decay` means
//! all of its parameters, vectors too. Leaves what a name means to [`odec_program::optimizers::group`].

use super::settings;
use crate::codes;
use odec_grammar::ast::{Exception, Ident, Meant};
use odec_grammar::diag::Diagnostic;
use odec_grammar::nearest;
use odec_graph::ops::Parameter;
use odec_program::choice;
use odec_program::manifest::{Train, group_of};
use odec_program::optimizers::group::{MATRICES, VECTORS, is_called};
use odec_program::optimizers::{Group, OptimizerKind};
use std::collections::BTreeSet;

/// Those that an optimiser makes itself, then its exceptions.
pub fn read(o: &OptimizerKind, all: &[Exception], sink: &mut Vec<Diagnostic>) -> Vec<Group> {
    let read = all.iter().filter_map(|e| {
        let (optimizer, vectors_decay) = match &e.meant {
            Meant::Arguments(args) => settings::changed(o, args, e.span, sink)?,
            Meant::Instead(other) => (settings::optimizer(other, sink)?, false),
        };
        Some(Group {
            of: e.names.iter().map(|n| n.name.clone()).collect(),
            optimizer,
            vectors_decay,
        })
    });
    o.others().into_iter().chain(read).collect()
}

/// Reports names that no trained parameter has, and groups that later ones leave nothing of.
pub fn fit(params: &[Parameter], train: &Train, named: &[Vec<Ident>], sink: &mut Vec<Diagnostic>) {
    let first = train.groups.len() - named.len();
    let trained = || params.iter().filter(|p| train.tune.trains(&p.path));
    for (n, names) in named.iter().enumerate() {
        let before = sink.len();
        for name in names {
            let is = |p: &Parameter| is_called(&name.name, &p.path, &p.shape);
            if !trained().any(is) {
                sink.push(unknown(name, trained()));
            }
        }
        let has = |p: &Parameter| group_of(&train.groups, &p.path, &p.shape) == first + n + 1;
        if sink.len() == before && !trained().any(has) {
            let (first, last) = (names[0].span, names[names.len() - 1].span);
            let message = "later groups have all of these parameters";
            let d = Diagnostic::error(codes::NO_EFFECT, first.to(last), message);
            sink.push(
                d.help("the last group that names a parameter has it: write the wider one first"),
            );
        }
    }
}

/// The parameters of a group.
pub struct Members {
    /// As it was chosen; nothing of those that are in no group.
    pub names: Vec<String>,
    /// What they follow, with all arguments.
    pub optimizer: String,
    /// How many numbers they have.
    pub numbers: u64,
    pub paths: Vec<String>,
}

impl Members {
    /// Their paths, once for all steps: `step.*.att.q.weight`.
    pub fn short(&self) -> Vec<String> {
        let mut short: Vec<String> = Vec::new();
        for path in &self.paths {
            let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
            let parts = path
                .split('.')
                .map(|part| if number(part) { "*" } else { part });
            let path = parts.collect::<Vec<_>>().join(".");
            if !short.contains(&path) {
                short.push(path);
            }
        }
        short
    }
}

/// All groups, those that are in none first; nothing where all parameters follow the same.
pub fn members(params: &[Parameter], train: &Train) -> Vec<Members> {
    let groups = match train.groups.len() {
        0 => 0..0,
        n => 0..n + 1,
    };
    let of = |group: usize| {
        let is = |p: &&Parameter| {
            train.tune.trains(&p.path) && train.group_of(&p.path, &p.shape) == group
        };
        let all = || params.iter().filter(is);
        let names = group.checked_sub(1).map(|n| train.groups[n].of.clone());
        Members {
            names: names.unwrap_or_default(),
            optimizer: choice::text(train.optimizer_of(group)),
            numbers: all().map(|p| p.shape.iter().product::<u64>()).sum(),
            paths: all().map(|p| p.path.clone()).collect(),
        }
    };
    groups.map(of).collect()
}

/// That no trained parameter is called so.
fn unknown<'p>(name: &Ident, trained: impl Iterator<Item = &'p Parameter>) -> Diagnostic {
    let mut known = BTreeSet::from([MATRICES, VECTORS]);
    for p in trained {
        let parts = p.path.split('.');
        known.extend(parts.filter(|part| !part.bytes().all(|b| b.is_ascii_digit())));
    }
    let message = format!("no trained parameter is called `{}`", name.name);
    let d = Diagnostic::error(codes::UNKNOWN_NAME, name.span, message);
    match nearest(&name.name, known.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => {
            let known: Vec<&str> = known.into_iter().collect();
            d.help(format!(
                "there are `{}`, and two that follow one another, as in `att.q`",
                known.join("`, `")
            ))
        }
    }
}
