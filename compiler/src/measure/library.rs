//! The schemes to measure: of the library, or of a file.
//!
//! Takes source texts; gives each scheme with its claim, what is proved of it, and a flow on nameless fields.

use super::problem::MAX_GRADED;
use crate::analysis::claims::Instance;
use crate::analysis::opaque_field::alone;
use crate::analysis::pair::Pair;
use crate::analysis::pair_facts;
use crate::analysis::report::{self, Evolved};
use crate::analysis::unequal::Sizes;
use crate::model::{CompileError, compile};
use crate::scheme::NoFiles;
use crate::scheme::define::Body;
use crate::scheme::flow::{Flow, FlowArgKind, Method};
use crate::scheme::method::Unsupported;
use crate::scheme::per_use::SHARED;
use odec_grammar::{Sources, parse};
use odec_graph::Exact;
use odec_library::Library;
use std::rc::Rc;

/// A scheme with its claim and what is known about it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// `tableau`, `splitting`, `step program`, `multistep method`.
    pub kind: &'static str,
    /// How many fields it takes; `list`: so many or more.
    pub fields: usize,
    pub list: bool,
    /// Field evaluations of a late step, the sub-flows of splittings by Euler steps.
    pub evaluations: usize,
    /// `order 4`, as it is written.
    pub claimed: Option<String>,
    pub proved: Option<usize>,
    /// Why nothing is proved.
    pub why: Option<String>,
    /// Why there is no system to measure its order on.
    pub unmeasured: Option<String>,
    /// Of a method for x'' = F(x): the number of F among its fields in the order of their names.
    pub force: Option<usize>,
    pub flow: Rc<Flow>,
}

/// Library methods that advance the sub-flows of splittings up to an order.
const INNER: [(usize, &str); 4] = [
    (4, "rk4"),
    (6, "butcher6"),
    (8, "cooper_verner8"),
    (30, "hairer10"),
];

/// The schemes of a text, which may name those of the library.
///
/// # Errors
/// When it does not compile.
pub fn of_text(name: &str, text: &str, library: Library) -> Result<Vec<Entry>, String> {
    let instances = instances(name, text, library)?;
    instances.iter().map(|i| entry(i, library)).collect()
}

/// The schemes of a text, compiled.
///
/// # Errors
/// When it does not compile.
pub fn instances(name: &str, text: &str, library: Library) -> Result<Vec<Instance>, String> {
    let mut sources = Sources::with(library);
    let main = sources.add(name, text);
    let (file, _) = parse(main, text);
    match compile(&file, main, &mut sources, &mut NoFiles) {
        Ok(checked) => Ok(checked.instances),
        Err(CompileError::Source(d)) => {
            let first = d.first().map(|d| d.message.clone());
            Err(format!("{name}: {}", first.unwrap_or_default()))
        }
        Err(e) => Err(format!("{name}: {e}")),
    }
}

/// A scheme ready to be measured.
///
/// # Errors
/// When a method of the library that its sub-flows need does not compile.
pub fn entry(i: &Instance, library: Library) -> Result<Entry, String> {
    let order = report::proved(i);
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let pair = pair_facts::facts(&flow);
    let force = pair.as_ref().and_then(|f| force(i, &f.pair));
    let order = match &pair {
        Some(f) => f.state.ok_or_else(|| Unsupported {
            span: flow.span,
            why: format!("it is a method for {}", f.pair.equation()),
        }),
        None => order.map(|found| found.order),
    };
    let proved = order.as_ref().ok().copied().filter(|p| *p > 0);
    let evaluations = report::evaluations(&flow).unwrap_or_default();
    let splits = matches!(i.scheme.body, Body::Splitting(_)) || report::has_flows(i);
    let flow = match (splits, proved) {
        (true, Some(p)) => by(flow, &inner(p, library)?),
        _ => flow,
    };
    Ok(Entry {
        name: i.scheme.name.name.clone(),
        kind: report::kind(&i.scheme),
        fields: i.scheme.fields.len(),
        list: i.scheme.list.is_some(),
        evaluations,
        claimed: i.scheme.claims.first().map(|c| c.text.clone()),
        proved,
        why: order.err().map(|b| b.why),
        unmeasured: pair
            .filter(|_| force.is_none())
            .map(|f| format!("methods for {} are not measured", f.pair.equation())),
        force,
        flow: Rc::new(flow),
    })
}

/// Which field is the force of a method for x'' = F(x).
fn force(i: &Instance, pair: &Pair) -> Option<usize> {
    let mut names: Vec<&str> = (i.scheme.fields.iter()).map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    let own = names.iter().position(|n| *n == pair.fields[1]);
    own.filter(|_| pair.is_second_order())
}

impl Entry {
    /// Why no order can be measured, whatever is computed.
    pub fn unmeasured(&self) -> Option<String> {
        match (self.proved, &self.why) {
            (None, Some(why)) => Some(format!("no order is proved: {why}")),
            (None, None) => Some("its order is 0".into()),
            (Some(_), _) if self.unmeasured.is_some() => self.unmeasured.clone(),
            (Some(p), _) if self.graded().is_none() => Some(format!(
                "orders of more than {MAX_GRADED} are not measured, and its order is {p}"
            )),
            _ => None,
        }
    }

    /// The order that is proved on a grid.
    pub fn proved_on(&self, sizes: &[Exact]) -> Option<usize> {
        let largest = sizes.iter().max()?;
        let evolved = Evolved {
            title: self.name.clone(),
            flow: self.flow.clone(),
            step: 0,
            per_use: SHARED.clone(),
            timed: false,
            at_end: false,
            h: largest.clone(),
            sizes: Sizes::Known(sizes.to_vec()),
        };
        Some(report::order_of(&evolved).ok()?.order)
    }
}

/// A Runge–Kutta method of at least this order.
fn inner(order: usize, library: Library) -> Result<Rc<Method>, String> {
    let (_, name) = INNER.iter().find(|(p, _)| *p >= order).unwrap_or(&INNER[3]);
    let text = library.get(name).map_or("", |scheme| scheme.text);
    let found = instances(name, text, library)?.into_iter().next();
    let i = found.ok_or_else(|| format!("the library has no `{name}`"))?;
    Ok(Rc::new(Method {
        span: i.scheme.name.span,
        scheme: i.scheme,
        settings: vec![],
    }))
}

/// The same flow with its fields advanced by a method.
fn by(mut flow: Flow, method: &Rc<Method>) -> Flow {
    for arg in flow.args.iter_mut().chain(&mut flow.list) {
        if let FlowArgKind::Field { by, .. } = &mut arg.kind {
            *by = Some(method.clone());
        }
    }
    flow
}
