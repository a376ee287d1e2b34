//! Warns about fields that no model of the file uses.
//!
//! Takes the syntax of a file; follows names from its model, train and explore blocks through definitions, imported ones too. A file without a model
//! defines fields for others.

use crate::codes;
use crate::scheme::mentions::Mentions;
use crate::scheme::names::Namespace;
use crate::scheme::unused::is_deliberate;
use odec_grammar::ast::{
    Body, BodyStmt, EvolveOption, File, Ident, Item, Model, ModelItem, PolicyKind,
};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeSet;

/// Warns of the file's own fields that its model does not read.
pub fn check(file: &File, model: &Model, names: &Namespace, sink: &mut Vec<Diagnostic>) {
    let reached = reached(file, model, names);
    for item in &file.items {
        let Item::Field(f) = item else { continue };
        let name = &f.name.name;
        if is_deliberate(&f.name) || reached.contains(name) {
            continue;
        }
        let message = format!("field `{name}` is not used by model `{}`", model.name.name);
        sink.push(
            Diagnostic::warning(codes::UNUSED_NAME, f.name.span, message)
                .label("nothing that the model computes reads it")
                .help(format!("it adds no parameters to the model; use it, remove it, or rename it `_{name}` if this is intended")),
        );
    }
}

/// The names that a model mentions, and those that their definitions do.
fn reached(file: &File, model: &Model, names: &Namespace) -> BTreeSet<String> {
    let mut used = Mentions::default();
    model
        .items
        .iter()
        .for_each(|item| of_model(item, &mut used));
    for item in &file.items {
        if let Item::Train(block) | Item::Explore(block) = item {
            let values = block.entries.iter().flat_map(|e| &e.values);
            values.for_each(|e| used.expr(e));
        }
    }
    let mut open: Vec<String> = used.read.into_iter().map(String::from).collect();
    let mut reached = BTreeSet::new();
    while let Some(name) = open.pop() {
        if let Some((body, given)) = names.body(&name).filter(|_| !reached.contains(&name)) {
            let mut inside = Mentions::default();
            body.exprs().for_each(|e| inside.expr(e));
            let own: BTreeSet<&str> = own(body, given);
            // What is called is a field or a layer, even where a value has its name.
            let read = |name: &&str| !own.contains(name) || inside.called.contains(name);
            open.extend(inside.read.iter().copied().filter(read).map(String::from));
        }
        reached.insert(name);
    }
    reached
}

/// The names that mean values and numbers in a body, whatever else is called so.
fn own<'b>(body: &'b Body, given: Vec<&'b Ident>) -> BTreeSet<&'b str> {
    let statements = match body {
        Body::Expr(_) => &[],
        Body::Block { statements, .. } => &statements[..],
    };
    let set = statements.iter().filter_map(BodyStmt::name);
    given.into_iter().chain(set).map(|n| &*n.name).collect()
}

fn of_model<'a>(item: &'a ModelItem, used: &mut Mentions<'a>) {
    match item {
        ModelItem::Input { value, .. }
        | ModelItem::Output { value, .. }
        | ModelItem::Init { value, .. } => used.expr(value),
        ModelItem::Embed { values, .. } => values.iter().for_each(|e| used.expr(e)),
        ModelItem::Evolve(e) => {
            used.expr(&e.flow);
            used.expr(&e.extent);
            e.options.iter().for_each(|o| of_option(o, used));
        }
    }
}

fn of_option<'a>(option: &'a EvolveOption, used: &mut Mentions<'a>) {
    match option {
        EvolveOption::H { value, .. }
        | EvolveOption::LearnH { value, .. }
        | EvolveOption::Gradient { value, .. }
        | EvolveOption::Report { value, .. } => used.expr(value),
        EvolveOption::Weights { policies, .. } => {
            for (_, policy) in policies {
                match &policy.kind {
                    PolicyKind::Every(e) | PolicyKind::Cycle(e) => used.expr(e),
                    PolicyKind::TimeDependent(args) => {
                        args.iter().for_each(|a| used.expr(&a.value))
                    }
                    PolicyKind::PerStep | PolicyKind::PerUse | PolicyKind::Shared => {}
                }
            }
        }
    }
}
