//! A flow run aside, on fields of which nothing is known and apart from the program that is being made.
//!
//! This is tracing, not extraction: sub-flows are exact and implicit stages found exactly, so that coefficients can be read off
//! what comes out. Leaves that to `additive.rs` and `known_order.rs`.

use super::super::Coeff;
use super::super::combination::ValueId;
use super::super::embedded::{Embedded, Reached};
use super::super::flow::{Field, Flow, FlowArg, FlowArgKind, Leaf};
use super::super::layer::Layers;
use super::super::per_use::OWN;
use super::super::run::{Frame, StageTracer};
use super::super::stage::{StageProgram, Steps};
use super::super::vocabulary::Facts;
use odec_grammar::Span;
use odec_grammar::ast::Ident;
use std::rc::Rc;

/// What a run aside made.
pub(crate) struct Aside {
    pub program: StageProgram,
    /// The fields that were evaluated: their places among those of the flow, and where they are written.
    pub fields: Vec<usize>,
    pub places: Vec<Vec<Vec<Span>>>,
    /// The flow on opaque fields.
    pub flow: Flow,
}

fn opaque_field(name: &Ident, i: Option<usize>) -> FlowArg {
    let leaf = Leaf {
        name: i.map_or(name.name.clone(), |i| format!("{}.{}", name.name, i + 1)),
        params: Vec::new(),
        body: None,
        layers: Layers::default(),
        facts: Facts::OPEN,
        span: name.span,
    };
    FlowArg {
        kind: FlowArgKind::Field {
            field: Rc::new(Field::Leaf(Rc::new(leaf))),
            by: None,
        },
        span: name.span,
    }
}

impl StageTracer<'_> {
    /// Runs something on a flow's own scheme with other fields, apart from the program that is being made; work and learned
    /// coefficients are counted here.
    pub(crate) fn aside(
        &mut self,
        flow: &Flow,
        go: impl FnOnce(&mut Self, &Frame) -> Option<Reached>,
    ) -> Option<Aside> {
        let scheme = &flow.scheme;
        let args: Vec<FlowArg> = scheme
            .fields
            .iter()
            .map(|f| opaque_field(f, None))
            .collect();
        let listed = scheme.list.iter();
        let list = listed.flat_map(|l| (0..flow.list.len()).map(move |i| opaque_field(l, Some(i))));
        let strange = Flow {
            list: list.collect(),
            args,
            ..flow.clone()
        };
        let named = strange.args.iter().chain(&strange.list);
        let named: Vec<Rc<Leaf>> = named.filter_map(leaf_of).collect();
        let at = self.at;
        self.at.inner = Steps::Exact;
        self.at.solved = true;
        self.at.analysed = true;
        self.at.timed = false;
        self.at.pasts = None;
        // Whoever asks for a tableau tells the places apart itself.
        self.at.per_use = &OWN;
        let outside = (
            std::mem::take(&mut self.instrs),
            std::mem::take(&mut self.known),
            std::mem::take(&mut self.pasts),
            std::mem::take(&mut self.products),
            std::mem::take(&mut self.leaves),
            std::mem::take(&mut self.leaf_of),
            std::mem::take(&mut self.place),
            std::mem::take(&mut self.evaluated),
            std::mem::take(&mut self.made),
            std::mem::take(&mut self.clocks),
        );
        let h = Coeff::symbol("h");
        let end = self
            .frame(&strange, ValueId::STATE, &h, false)
            .and_then(|frame| go(self, &frame));
        let used = std::mem::take(&mut self.leaves);
        let instrs = std::mem::take(&mut self.instrs);
        (
            self.instrs,
            self.known,
            self.pasts,
            self.products,
            self.leaves,
            self.leaf_of,
            self.place,
            self.evaluated,
            self.made,
            self.clocks,
        ) = outside;
        self.at = at;
        let place = |l: &Rc<Leaf>| named.iter().position(|n| n == l);
        let fields = used.iter().map(|u| place(&u.leaf));
        let fields = fields.collect::<Option<_>>()?;
        let places = used.iter().map(|u| {
            let mut places = vec![Vec::new(); u.usages.len()];
            for (place, usage) in &u.usages {
                places[*usage] = place.clone();
            }
            places
        });
        let Reached { end, embedded, .. } = end?;
        let program = StageProgram {
            title: String::new(),
            usages: vec![1; used.len()],
            fields: used.iter().map(|u| u.leaf.clone()).collect(),
            instrs,
            learned: self.learned.clone(),
            derived: Vec::new(),
            keeps: Vec::new(),
            called: Vec::new(),
            result: end,
            embedded: embedded.map(|result| Embedded {
                instrs: Vec::new(),
                result,
            }),
        };
        Some(Aside {
            program,
            fields,
            places: places.collect(),
            flow: strange,
        })
    }
}

fn leaf_of(arg: &FlowArg) -> Option<Rc<Leaf>> {
    match &arg.kind {
        FlowArgKind::Field { field, .. } => match &**field {
            Field::Leaf(leaf) => Some(leaf.clone()),
            _ => None,
        },
        FlowArgKind::Flow(_) => None,
    }
}
