//! The coefficients in the source: the tableau before its stages are iterated, the rows of a multistep method.
//!
//! Takes a scheme that has a stage program, so that its rows are known to fit together; gives numbers. Leaves the steps
//! that are computed to `scheme/method`.

use super::opaque_field::{Settings, alone};
use crate::scheme::Coeff;
use crate::scheme::define::{Body, NUMBER, STEP, SchemeDef};
use crate::scheme::method::solved;
use crate::scheme::scalar::{Scope, exact, length_of, scalar};
use odec_exact::Exact;
use odec_grammar::ast::{Expr, SubFlow};
use odec_numerics::Tableau;
use std::rc::Rc;

/// Names of numbers: parameters, learned coefficients, constants.
pub fn scope(def: &SchemeDef, settings: &Settings, listed: usize) -> Option<Scope> {
    let given = settings.iter().cloned();
    let mut scope: Scope = given.map(|(n, v)| (n, Coeff::constant(v))).collect();
    if let Some(list) = &def.list {
        let n = Coeff::constant(Exact::int(listed as i64));
        scope.insert(length_of(&list.name), n);
    }
    let learned = def.learns.iter().map(|l| l.name.name.as_str());
    scope.extend(learned.map(|name| (name.into(), Coeff::symbol(name))));
    if def.numbered {
        scope.insert(NUMBER.into(), Coeff::symbol(STEP));
    }
    for (name, value) in &def.lets {
        let value = scalar(value, &scope).ok()?;
        scope.insert(name.name.clone(), value);
    }
    Some(scope)
}

fn row(entries: &[Expr], n: usize, scope: &Scope) -> Option<Vec<Exact>> {
    let values: Result<Vec<Exact>, _> = entries.iter().map(|e| exact(e, scope)).collect();
    let mut values = values.ok()?;
    values.resize(n, Exact::zero());
    Some(values)
}

/// The tableau of a scheme that is written as one, with all its stages, or made of others, with stages found exactly.
pub fn tableau(def: &Rc<SchemeDef>, settings: &Settings) -> Option<Tableau> {
    let t = match &def.body {
        Body::Tableau(t) => t,
        Body::Algebra(_) => return solved(&alone(def, None, settings.clone(), 0)),
        _ => return None,
    };
    let scope = scope(def, settings, 0)?;
    let s = t.rows.iter().filter(|r| r.c.is_some()).count();
    let (mut a, mut weights) = (Vec::new(), Vec::new());
    for r in &t.rows {
        let values = row(&r.entries, s, &scope)?;
        match r.c {
            Some(_) => a.push(values),
            None => weights.push(values),
        }
    }
    let mut weights = weights.into_iter();
    Some(Tableau {
        fields: def.fields.iter().map(|f| f.name.clone()).collect(),
        field_of: vec![0; s],
        a,
        b: weights.next()?,
        embedded: weights.next(),
    })
}

/// α and β of a multistep method, newest first, of the same length.
pub fn multistep(def: &SchemeDef, settings: &Settings) -> Option<(Vec<Exact>, Vec<Exact>)> {
    let Body::Multistep(m) = &def.body else {
        return None;
    };
    let scope = scope(def, settings, 0)?;
    let n = m.steps() + 1;
    Some((row(&m.alpha, n, &scope)?, row(&m.beta, n, &scope)?))
}

/// The flows of a splitting in turn, each with its part of the step; none for another scheme, or where some are schemes.
pub fn flows(def: &SchemeDef, settings: &Settings) -> Vec<(String, Exact)> {
    let Body::Splitting(flows) = &def.body else {
        return Vec::new();
    };
    let Some(scope) = scope(def, settings, 0) else {
        return Vec::new();
    };
    if flows.iter().any(|f| f.args.is_some()) {
        return Vec::new();
    }
    let part = |f: &SubFlow| Some((f.name.name.clone(), exact(&f.fraction, &scope).ok()?));
    let all: Option<Vec<_>> = flows.iter().map(part).collect();
    all.unwrap_or_default()
}
