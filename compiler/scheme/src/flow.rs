//! Names and expressions after resolution: fields, and schemes applied to fields.

use super::define::SchemeDef;
use super::layer::Layers;
use super::vocabulary::Facts;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Body, Ident};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A learned right-hand side that is evaluated as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// Its name in parameter paths: the field's own, or that of the scheme's parameter it is given for.
    pub name: String,
    /// What it is evaluated at, where its definition says so: `field gate(u, v) = …`.
    pub params: Vec<Ident>,
    /// What it computes; absent when a scheme is looked at without a model.
    pub body: Option<Body>,
    /// The layers written in the language and the fields that it names.
    pub layers: Layers,
    /// What its layers say of it before sizes are known.
    pub facts: Facts,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum Field {
    Leaf(Rc<Leaf>),
    /// `Σ cᵢ fᵢ(x)`.
    Sum(Rc<Terms>),
    /// `Φ(x) − x`, inside with h = 1.
    Increment(Rc<Flow>),
    /// `Φ(x)`, inside with h = 1.
    Map(Rc<Flow>),
}

/// The terms of a sum of fields, each with its coefficient and the place it is written at.
pub type Terms = Vec<(Exact, Rc<Field>, Span)>;

/// A scheme with everything it is applied to.
#[derive(Clone, Debug)]
pub struct Flow {
    pub scheme: Rc<SchemeDef>,
    pub args: Vec<FlowArg>,
    /// The argument of the list parameter.
    pub list: Vec<FlowArg>,
    pub settings: Vec<(String, Setting)>,
    /// The scheme that takes the first steps of a multistep method.
    pub start_by: Option<Rc<Method>>,
    pub span: Span,
}

impl Flow {
    /// Whether a field of it, or of a flow inside it, reads the time itself.
    pub fn reads_time(&self) -> bool {
        self.reads(&mut BTreeSet::new())
    }

    /// `seen`: fields that do not, for sums share their terms.
    fn reads(&self, seen: &mut BTreeSet<*const Field>) -> bool {
        let mut all = self.args.iter().chain(&self.list);
        all.any(|a| match &a.kind {
            FlowArgKind::Field { field, .. } => field.reads(seen),
            FlowArgKind::Flow(flow) => flow.reads(seen),
        })
    }
}

impl Field {
    fn reads(&self, seen: &mut BTreeSet<*const Field>) -> bool {
        if !seen.insert(self) {
            return false;
        }
        match self {
            Field::Leaf(leaf) => leaf.facts.reads_time,
            Field::Sum(terms) => terms.iter().any(|(_, f, _)| f.reads(seen)),
            Field::Increment(flow) | Field::Map(flow) => flow.reads(seen),
        }
    }
}

/// The argument of a field parameter.
#[derive(Clone, Debug)]
pub struct FlowArg {
    pub kind: FlowArgKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum FlowArgKind {
    Field {
        field: Rc<Field>,
        by: Option<Rc<Method>>,
    },
    Flow(Rc<Flow>),
}

/// A scheme of one field that waits for its field: `heun` in `ffn by heun`.
#[derive(Clone, Debug)]
pub struct Method {
    pub scheme: Rc<SchemeDef>,
    pub settings: Vec<(String, Setting)>,
    pub span: Span,
}

/// A scheme with the settings it is applied with.
#[derive(Clone, Debug)]
pub struct Applied {
    pub scheme: Rc<SchemeDef>,
    pub settings: Vec<(String, Setting)>,
    /// The arguments of its list parameter, by number.
    pub listed: usize,
    pub start_by: Option<Rc<Method>>,
    pub span: Span,
}

/// The value of a scheme's parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    One(Exact),
    /// One value per step: `r: [3, 1, 1, 2]`.
    PerStep(Vec<Exact>, Span),
}
