//! Schemes of the library as explicit Runge–Kutta methods, for runs that integrate with them.
//!
//! Takes a name; gives the tableau that the compiler extracts from the scheme, rounded to f64, and the order that it proves. Leaves integrating to
//! [`odec_runtime::infer::flow`].

use crate::fail::{Done, Failure};
use crate::library::LIBRARY;
use odec_compiler::analysis::claims::Instance;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::measure::instances;
use odec_grammar::nearest;
use odec_runtime::infer::flow::Method;

/// An explicit method of one step, for one field.
#[derive(Clone, Debug)]
pub struct Explicit {
    pub name: String,
    /// The order that is proved; `None`, where there is no proof.
    pub order: Option<usize>,
    pub method: Method,
}

impl Explicit {
    /// Evaluations of the field in a step.
    pub fn evaluations(&self) -> u64 {
        self.method.b.len() as u64
    }
}

/// The method of this name.
///
/// # Errors
/// When the library has none of this name, or it is not explicit, takes several fields, or looks back at earlier steps.
pub fn explicit(name: &str) -> Done<Explicit> {
    let refused = |why: String| {
        let help = "`odec schemes explicit` lists schemes that can";
        Failure::Input(format!("--scheme {name}: {why}; {help}"))
    };
    let Some(file) = LIBRARY.get(name).filter(|file| !file.is_layer()) else {
        let near = nearest(name, LIBRARY.iter().map(|s| s.name));
        let near = near.map_or(String::new(), |n| format!(", did you mean `{n}`?"));
        return Err(refused(format!("the library has no such scheme{near}")));
    };
    let found = instances(file.name, file.text, LIBRARY).map_err(Failure::internal)?;
    let mut found = found.iter();
    let own = found.find(|i| i.scheme.name.name == name);
    let own = own.ok_or_else(|| Failure::internal(format!("{} holds no scheme", file.path())))?;
    let report = report::scheme(own, LIBRARY);
    if let Some(why) = why_not(own, &report) {
        return Err(refused(why));
    }
    let tableau = report.tableau.map_err(|why| refused(why.why))?.reduced();
    let nodes = tableau.nodes();
    let rows = tableau.a.iter();
    let rows = rows.map(|row| row.iter().map(|x| x.to_f64()).collect());
    Ok(Explicit {
        name: name.to_string(),
        order: report.order.ok().map(|found| found.order),
        method: Method {
            a: rows.collect(),
            b: tableau.b.iter().map(|x| x.to_f64()).collect(),
            c: nodes.iter().map(|x| x.to_f64()).collect(),
        },
    })
}

/// Why a scheme does not integrate a velocity that is one field of the state and the time, step by step.
fn why_not(i: &Instance, report: &Report) -> Option<String> {
    if i.scheme.list.is_some() || i.scheme.fields.len() != 1 {
        return Some("it is a scheme of several fields, and the velocity is one".into());
    }
    if report.multistep.is_some() || report.general.is_some() || i.scheme.looks_back() {
        return Some("it looks back at earlier steps, and is no method of one step".into());
    }
    if report.learning.is_some() {
        return Some("its coefficients are learned with a model".into());
    }
    let solved = report.implicit.is_some() || report.tolerance.is_some();
    match &report.tableau {
        Err(unsupported) => Some(unsupported.why.clone()),
        Ok(t) if solved || !t.is_explicit() => {
            Some("it is implicit: each step solves equations".into())
        }
        Ok(_) => None,
    }
}
