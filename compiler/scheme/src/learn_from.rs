//! Methods with learned coefficients that start from another scheme's: `learn tableau from rk4`, `learn multistep from ab4`.
//!
//! The scheme takes the rows, constants, parameters, start and solver of the other one, the last three unless it gives its own. Then the
//! entries that this kind of method may have become learned coefficients. A tableau stays explicit, and a multistep method keeps its
//! length: structural zeros stay zero.

use super::coeff::Coeff;
use super::define::{Body, SchemeDef};
use super::learn::Learned;
use super::multistep::{self, Coefficients, Multistep};
use super::names::Definition;
use super::resolve::Resolver;
use super::run::{Frame, StageTracer};
use super::tableau::{Row, Rows};
use crate::codes;
use odec_grammar::ast::LearnFrom;
use odec_grammar::diag::Diagnostic;
use std::rc::Rc;

impl Resolver<'_, '_> {
    /// The scheme with the rows that it starts from, or with those that it is made of.
    pub fn concrete(&mut self, scheme: Rc<SchemeDef>) -> Option<Rc<SchemeDef>> {
        let l = match &scheme.body {
            Body::LearnedFrom(l) => l,
            Body::Method(e) => return self.made_of(&scheme, e),
            _ => return self.with_inner(scheme),
        };
        let from = &l.from;
        let source = match self.names.get(from, self.sink) {
            Ok(Definition::Scheme(source)) => source,
            Err(true) => return None,
            Err(false) => {
                let d = self.names.unknown(from, self.sink.len());
                return self.fail(d);
            }
            Ok(other) => return self.fail(other.not_a_scheme(from)),
        };
        let (fits, kind) = match l.what.name.as_str() {
            "tableau" => (matches!(source.body, Body::Tableau(_)), "a tableau"),
            _ => (
                matches!(source.body, Body::Multistep(_)),
                "a multistep method",
            ),
        };
        if !fits {
            let bare = kind.trim_start_matches("a ");
            let message = format!("`{}` has no {bare} to start from", from.name);
            let d = Diagnostic::error(codes::LEARN_SOURCE, from.span, message)
                .label(format!("a scheme given as {kind} is expected"))
                .also(source.name.span, "defined here");
            return self.fail(match source.body {
                Body::Tableau(_) => d.help("write `learn tableau from …`"),
                Body::Multistep(_) => d.help("write `learn multistep from …`"),
                _ => d,
            });
        }
        let def = self.checked(merged(&scheme, &source, l))?;
        if let Body::Multistep(m) = &def.body {
            let before = self.sink.len();
            multistep::check(&def, m, self.sink);
            if self.sink.len() > before {
                return None;
            }
        }
        Some(Rc::new(def))
    }
}

/// A scheme with the body of its source. A parameter of the source may be declared again, with another default.
fn merged(own: &SchemeDef, source: &SchemeDef, l: &LearnFrom) -> Result<SchemeDef, Diagnostic> {
    let (mut values, mut lets) = (source.values.clone(), source.lets.clone());
    for (name, default) in &own.values {
        match values.iter_mut().find(|(n, _)| n.name == name.name) {
            Some(known) => *known = (name.clone(), default.clone()),
            None => values.push((name.clone(), default.clone())),
        }
    }
    lets.extend(own.lets.iter().cloned());
    let theirs = |n: &str| source.values.iter().any(|(v, _)| v.name == n);
    for (name, _) in own.values.iter().chain(&own.lets) {
        if let Some((constant, _)) = source.lets.iter().find(|(n, _)| n.name == name.name) {
            let message = format!("`{}` is a constant of `{}`", name.name, l.from.name);
            let d = Diagnostic::error(codes::REDEFINITION, name.span, message);
            return Err(d.also(constant.span, "defined here"));
        }
        if own.solve.is_none() && !theirs(&name.name) {
            let message = format!("`{}` is not used", name.name);
            let d = Diagnostic::error(codes::UNUSED_NAME, name.span, message);
            return Err(d.also(l.span, "the rows and their names come from here"));
        }
    }
    Ok(SchemeDef {
        values,
        lets,
        body: source.body.clone(),
        learned: Some(l.clone()),
        history: source.history.clone(),
        solve: own.solve.clone().or_else(|| source.solve.clone()),
        start_by: own.start_by.clone().or_else(|| source.start_by.clone()),
        ..own.clone()
    })
}

/// Coefficients so far, each in the place of the number it starts from.
struct Learning<'l> {
    how: &'l LearnFrom,
    learned: Vec<Learned>,
}

impl Learning<'_> {
    fn entry(&mut self, entry: &mut Coeff, row: &str, at: &[usize]) {
        let Some(init) = entry.as_constant() else {
            return;
        };
        let brackets: String = at.iter().map(|i| format!("[{i}]")).collect();
        let dots: String = at.iter().map(|i| format!(".{i}")).collect();
        let name = format!("{row}{brackets}");
        *entry = Coeff::symbol(&name);
        self.learned.push(Learned {
            name,
            path: format!("{row}{dots}"),
            shared: self.how.shared,
            per_channel: self.how.per_channel,
            init,
            span: self.how.span,
            owner: None,
        });
    }
}

impl StageTracer<'_> {
    /// All weights; of the stages all entries, or those up to the diagonal where all behind it are zero, or those below it
    /// where the diagonal is zero too. The partner of a method whose coefficients move estimates nothing.
    pub(super) fn learn_tableau(
        &mut self,
        how: &LearnFrom,
        rows: &mut Rows,
        frame: &Frame,
    ) -> Option<()> {
        let s = rows.stages.len();
        let zero_from = |row: &Row, j: usize| row.a.iter().skip(j).all(Coeff::is_zero);
        let all = |behind: usize| {
            let mut stages = rows.stages.iter().enumerate();
            stages.all(|(i, row)| zero_from(row, i + behind))
        };
        let reach = if all(0) {
            0
        } else if all(1) {
            1
        } else {
            s
        };
        self.charge(s * s, how.span)?;
        let learned = Vec::new();
        let mut learning = Learning { how, learned };
        for (i, row) in rows.stages.iter_mut().enumerate() {
            for (j, a) in row.a.iter_mut().take(i + reach).enumerate() {
                learning.entry(a, "a", &[i, j]);
            }
        }
        for (j, b) in rows.weights.a.iter_mut().enumerate() {
            learning.entry(b, "b", &[j]);
        }
        rows.embedded = None;
        self.learns(frame.flow, &["a", "b"], learning.learned)
    }

    /// Every entry that is written, zeros too, but for the new state's own weight, and β₀ of an explicit method.
    pub(super) fn learn_multistep(
        &mut self,
        how: &LearnFrom,
        m: &Multistep,
        both: &mut Coefficients,
        frame: &Frame,
    ) -> Option<()> {
        let learned = Vec::new();
        let mut learning = Learning { how, learned };
        for (i, a) in both
            .alpha
            .iter_mut()
            .enumerate()
            .take(m.alpha.len())
            .skip(1)
        {
            learning.entry(a, "alpha", &[i]);
        }
        let first = usize::from(both.beta[0].is_zero());
        for (i, b) in both
            .beta
            .iter_mut()
            .enumerate()
            .take(m.beta.len())
            .skip(first)
        {
            learning.entry(b, "beta", &[i]);
        }
        self.learns(frame.flow, &["alpha", "beta"], learning.learned)
    }
}
