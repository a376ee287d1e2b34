//! Learned coefficients: `learn [shared] [per channel] name[n] = init`, and lists as long as the history, `name[..]`.
//!
//! Takes declarations; gives one [`Learned`] for each number, with its exact start, and the symbols that stand for
//! them in coefficients. Each entry of a list is a number of its own (`beta[2]`, stored at `beta.2`), so that what is
//! compiled does not depend on the length of a list. Leaves where they are stored to `odec-model`.

use super::coeff::Coeff;
use super::define::{Body, SchemeDef};
use super::flow::Method;
use super::history::Lengths;
use super::mentions::Mentions;
use super::scalar::{Scope, constant, measured, name_of, not_supported, whole};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, Learn, LearnLen};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Longest list of learned coefficients.
const MAX_ENTRIES: u64 = 4096;

/// One coefficient that is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// The symbol in coefficients: `b`, `beta[2]`.
    pub name: String,
    /// The end of its parameter path: `b`, `beta.2`.
    pub path: String,
    /// One for all steps, instead of one for each.
    pub shared: bool,
    /// One number for each column of the state, instead of one.
    pub per_channel: bool,
    pub init: Exact,
    pub span: Span,
    /// The scheme it belongs to, where that one keeps an order.
    pub owner: Option<Rc<Owner>>,
}

/// A scheme that keeps an order, as it is applied.
#[derive(Clone, Debug)]
pub struct Owner {
    pub scheme: Rc<SchemeDef>,
    /// Its parameters at the step at hand.
    pub settings: Vec<(String, Exact)>,
    /// Fields of its list parameter.
    pub listed: usize,
    pub start_by: Option<Rc<Method>>,
    /// Where it is applied.
    pub applied: Span,
}

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        self.scheme.name.span == other.scheme.name.span
            && self.settings == other.settings
            && self.listed == other.listed
    }
}

/// What the directions are called that training moves in where an order is kept.
pub const DIRECTION: &str = "u";

/// What the declarations of a scheme make known.
#[derive(Clone, Debug, Default)]
pub(super) struct Declared {
    pub learned: Vec<Learned>,
    /// Entries of each list.
    pub lists: BTreeMap<String, usize>,
    /// What computing their starts took.
    pub work: usize,
}

/// Reads the declarations of a scheme; single coefficients join the scope.
pub(super) fn declared(
    learns: &[Learn],
    lengths: Lengths,
    scope: &mut Scope,
    sink: &mut Vec<Diagnostic>,
) -> Option<Declared> {
    let mut found = Declared::default();
    let mut good = true;
    for l in learns {
        let name = &l.name.name;
        let entry = |path: String, symbol: String, init: Exact| Learned {
            name: symbol,
            path,
            shared: l.shared,
            per_channel: l.per_channel,
            init,
            span: l.name.span,
            owner: None,
        };
        match starts(l, lengths, scope, &mut found.work) {
            Ok(None) => {
                let init = counted(&l.init, scope, &mut found.work).map_err(|d| sink.push(d));
                let Ok(init) = init else {
                    good = false;
                    continue;
                };
                found.learned.push(entry(name.clone(), name.clone(), init));
                scope.insert(name.clone(), Coeff::symbol(name));
            }
            Ok(Some(inits)) => {
                found.lists.insert(name.clone(), inits.len());
                for (i, init) in inits.into_iter().enumerate() {
                    let (path, symbol) = (format!("{name}.{i}"), format!("{name}[{i}]"));
                    found.learned.push(entry(path, symbol, init));
                }
            }
            Err(d) => {
                sink.push(d);
                good = false;
            }
        }
    }
    good.then_some(found)
}

/// A start, its work counted.
fn counted(e: &Expr, scope: &Scope, work: &mut usize) -> Result<Exact, Diagnostic> {
    let (value, took) = measured(e, scope)?;
    *work += took;
    constant(value, e.span)
}

/// The starts of a list; `None`: this is no list.
fn starts(
    l: &Learn,
    lengths: Lengths,
    scope: &Scope,
    work: &mut usize,
) -> Result<Option<Vec<Exact>>, Diagnostic> {
    let n = match &l.len {
        LearnLen::Scalar => return Ok(None),
        LearnLen::Count(n) => whole(n, scope, 1, MAX_ENTRIES)? as usize,
        LearnLen::History => {
            // What all steps share is as long as the longest.
            let n = if l.shared {
                lengths.longest
            } else {
                lengths.now
            };
            match name_of(&l.init).as_ref().map(|n| n.name.as_str()) {
                Some("delta") => {
                    let each = (0..n).map(|j| Exact::int(i64::from(j == 0)));
                    return Ok(Some(each.collect()));
                }
                Some("uniform") => return Ok(Some(vec![Exact::ratio(1, n as i64); n])),
                _ => n,
            }
        }
    };
    let ExprKind::List(items) = &l.init.kind else {
        return Ok(Some(vec![counted(&l.init, scope, work)?; n]));
    };
    if items.len() != n {
        let message = format!("{} values for {n} coefficients", items.len());
        return Err(Diagnostic::error(codes::LIST_LENGTH, l.init.span, message)
            .label(format!("`{}` has {n} entries", l.name.name))
            .also(l.name.span, "declared here")
            .help("give one value for each entry, or one for all"));
    }
    let each = |e: &Expr| counted(e, scope, work);
    items.iter().map(each).collect::<Result<_, _>>().map(Some)
}

/// Reports names that are reserved, and coefficients that are not used.
pub(super) fn check(def: &SchemeDef, sink: &mut Vec<Diagnostic>) {
    if let Some((_, span)) = &def.keep
        && def.learns.is_empty()
        && !matches!(def.body, Body::LearnedFrom(_))
    {
        let message = "no coefficient of this scheme is learned";
        let d = Diagnostic::error(codes::KEEP_ORDER, *span, message)
            .label("there is nothing to keep")
            .help("for fixed coefficients, claim `order 2`");
        sink.push(d);
    }
    let Some(first) = def.learns.first() else {
        return;
    };
    let Body::Step(step) = &def.body else {
        let d = not_supported(first.span, "a learned coefficient outside a step program");
        return sink.push(d.help("write the step out: `step x { … return x + h*b*F(x) }`"));
    };
    let mut taken: BTreeMap<&str, (Span, &str)> = BTreeMap::new();
    taken.insert(&step.state.name, (step.state.span, "the state"));
    let params = def.fields.iter().chain(def.values.iter().map(|(n, _)| n));
    for p in params.chain(&def.list) {
        taken.insert(&p.name, (p.span, "a parameter"));
    }
    for (name, _) in &def.lets {
        taken.insert(&name.name, (name.span, "a constant"));
    }
    let mut used = Mentions::default();
    used.statements(&step.body);
    let start = def.start.iter();
    start.for_each(|(body, _)| used.statements(body));
    def.lets.iter().for_each(|(_, value)| used.expr(value));
    for l in &def.learns {
        let name = l.name.name.as_str();
        if let (true, Some((_, keep))) = (name == DIRECTION, &def.keep) {
            let message =
                format!("`{name}` is reserved for the directions that `keep order` trains");
            let d = Diagnostic::error(codes::REDEFINITION, l.name.span, message)
                .label("choose another name")
                .also(*keep, "kept here");
            sink.push(d);
        } else if ["h", "t"].contains(&name) {
            let message = format!("`{name}` cannot be redefined");
            let mut d = Diagnostic::error(codes::NOT_ASSIGNABLE, l.name.span, message)
                .label("choose another name");
            if name == "h" {
                d = d.help("a learned step size belongs to the evolve: `{ learn h = 1 }`");
            }
            sink.push(d);
        } else if matches!(l.len, LearnLen::History) && def.history.past.is_empty() {
            let message = format!("`{name}` is as long as the history, and this scheme has none");
            let d = Diagnostic::error(codes::NO_HISTORY, l.span, message)
                .label("no step reads a value of an earlier step")
                .help(format!(
                    "a sum over earlier values is `sum j in 0.. {{ {name}[j]*f[-j] }}`"
                ));
            sink.push(d);
        } else if let Some((span, what)) = taken.insert(name, (l.name.span, "a coefficient")) {
            let message = format!("`{name}` is {what} already");
            sink.push(
                Diagnostic::error(codes::REDEFINITION, l.name.span, message)
                    .also(span, "the first one"),
            );
        } else if !used.read.contains(name) {
            let message = format!("the learned coefficient `{name}` is not used");
            let mut d = Diagnostic::error(codes::UNUSED_NAME, l.name.span, message)
                .label("the step does not read it, so no gradient reaches it");
            d = d.help("read it in the step, or remove the line");
            if let Some(near) = odec_grammar::nearest(name, used.read.iter().copied()) {
                d = d.help(format!("the step reads `{near}`"));
            }
            sink.push(d);
        }
    }
}
