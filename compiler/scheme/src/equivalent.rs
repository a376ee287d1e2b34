//! A method as one additive tableau with symbolic entries, on fields of which nothing is known.
//!
//! Takes a flow and how it is run; runs it aside, on stand-ins for its fields, with exact sub-flows and with implicit
//! stages found exactly; gives what came out, or, where every state is the old one plus multiples of h F(y), the
//! coefficients. Leaves what is done with them to `adjoint.rs`, `known_order.rs` and reports.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::embedded::Reached;
use super::flow::{Field, Flow, FlowArg, FlowArgKind, Leaf};
use super::layer::Layers;
use super::per_use::OWN;
use super::run::{At, Frame, MAX_TOTAL, Machine};
use super::stage::{Instr, Phase, Steps, Unknown};
use super::vocabulary::Facts;
use odec_grammar::Span;
use odec_grammar::ast::Ident;
use odec_grammar::diag::Diagnostic;
use odec_numerics::Tableau;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a run aside made.
pub(super) struct Aside {
    pub instrs: Vec<Instr>,
    pub end: Combination,
    /// The end of the embedded partner.
    partner: Option<Combination>,
    /// The stand-ins that were evaluated: their places among the fields of the flow, and where they are written.
    fields: Vec<usize>,
    places: Vec<Vec<Vec<Span>>>,
    pub leaves: Vec<Rc<Leaf>>,
    /// The flow on stand-ins.
    pub flow: Flow,
}

/// One stage.
pub(super) struct Stage {
    /// The field, counted through the flow's arguments and then its list.
    pub field: usize,
    /// Where the evaluation is written, from the outside in: its occurrence under `weights per use`.
    pub place: Vec<Span>,
    pub span: Span,
    pub a: Vec<Coeff>,
}

/// `Yᵢ = x + h Σ aᵢⱼ F(Yⱼ)`, `x₁ = x + h Σ bⱼ F(Yⱼ)`.
pub(super) struct Equivalent {
    pub stages: Vec<Stage>,
    pub b: Vec<Coeff>,
    pub embedded: Option<Vec<Coeff>>,
}

/// Why there is no tableau.
pub(super) struct Beyond {
    pub span: Option<Span>,
    pub why: &'static str,
}

fn stand_in(name: &Ident, i: Option<usize>) -> FlowArg {
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

impl Machine<'_> {
    /// Runs something on a flow's own scheme with other fields, apart from the program that is being made; work and learned
    /// coefficients are counted here.
    pub(super) fn aside(
        &mut self,
        flow: &Flow,
        go: impl FnOnce(&mut Self, &Frame) -> Option<Reached>,
    ) -> Option<Aside> {
        let scheme = &flow.scheme;
        let args: Vec<FlowArg> = scheme.fields.iter().map(|f| stand_in(f, None)).collect();
        let listed = scheme.list.iter();
        let list = listed.flat_map(|l| (0..flow.list.len()).map(move |i| stand_in(l, Some(i))));
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
        Some(Aside {
            instrs,
            end,
            partner: embedded,
            fields,
            places: places.collect(),
            leaves: used.iter().map(|u| u.leaf.clone()).collect(),
            flow: strange,
        })
    }

    /// The tableau of what was run aside; `span` is blamed for its size.
    pub(super) fn tabled(
        &mut self,
        aside: &Aside,
        span: Span,
    ) -> Option<Result<Equivalent, Beyond>> {
        let mut stage_of: BTreeMap<ValueId, usize> = BTreeMap::new();
        for (i, instr) in aside.instrs.iter().enumerate() {
            let beyond = |span: Option<Span>, why| Some(Err(Beyond { span, why }));
            match instr {
                Instr::Eval { at, .. } if at.len() == 1 => {
                    stage_of.insert(ValueId(i as u32 + 1), stage_of.len());
                }
                Instr::Eval { span, .. } => {
                    return beyond(Some(*span), "it evaluates a field of several states");
                }
                Instr::Combine(_) | Instr::Unknown(Unknown::Solved { .. }) => {}
                Instr::Unknown(Unknown::Without { why, span }) => return beyond(Some(*span), why),
                Instr::Past { .. } => return beyond(None, "it looks back at earlier steps"),
                Instr::Product(_) => return beyond(None, "it multiplies states"),
                Instr::Normal { .. } => return beyond(None, "it starts at random"),
                Instr::Project { .. } => return beyond(None, "it projects a state onto a set"),
                Instr::Mix { .. } | Instr::Stop(_) | Instr::Solution { .. } => {
                    return beyond(None, "it solves to a tolerance");
                }
                Instr::Phi { span, .. } => {
                    return beyond(Some(*span), "it applies a function of a linear field");
                }
                Instr::Flow { span, .. } => {
                    return beyond(
                        Some(*span),
                        "it follows flows otherwise than one after the other",
                    );
                }
            }
        }
        let s = stage_of.len();
        self.charge(s * s, span)?;
        let mut sums: Vec<Combination> = vec![Combination::value(ValueId::STATE)];
        for (i, instr) in aside.instrs.iter().enumerate() {
            sums.push(match instr {
                Instr::Combine(c) | Instr::Unknown(Unknown::Solved { sum: c, .. }) => {
                    self.flattened(c, &sums, &stage_of, span)?
                }
                _ => Combination::value(ValueId(i as u32 + 1)),
            });
        }
        let end = self.flattened(&aside.end, &sums, &stage_of, span)?;
        let partner = match &aside.partner {
            Some(p) => Some(self.flattened(p, &sums, &stage_of, span)?),
            None => None,
        };
        let row = |c: &Combination| -> Result<Vec<Coeff>, Beyond> {
            let beyond = |why| Err(Beyond { span: None, why });
            if c.coeff(ValueId::STATE).is_none_or(|c| !c.is_one()) {
                return beyond("a state in it is a multiple of the old one");
            }
            let mut row = vec![Coeff::zero(); s];
            for (v, c) in c.terms().filter(|(v, _)| *v != ValueId::STATE) {
                let mut powers = c.in_powers_of("h");
                if powers.len() != 2 || !powers[0].is_zero() {
                    return beyond("`h` does not stand once before each evaluation in it");
                }
                row[stage_of[&v]] = powers.remove(1);
            }
            Ok(row)
        };
        let mut stages = Vec::new();
        for instr in &aside.instrs {
            let Instr::Eval {
                field,
                usage,
                at,
                span,
                ..
            } = instr
            else {
                continue;
            };
            let a = match row(&sums[at[0].0 as usize]) {
                Ok(a) => a,
                Err(beyond) => return Some(Err(beyond)),
            };
            stages.push(Stage {
                field: aside.fields[*field],
                place: aside.places[*field][*usage].clone(),
                span: *span,
                a,
            });
        }
        let embedded = partner.map(|p| row(&p)).transpose();
        Some(row(&end).and_then(|b| {
            let embedded = embedded?;
            Ok(Equivalent {
                stages,
                b,
                embedded,
            })
        }))
    }

    /// The same over the old state and evaluations.
    fn flattened(
        &mut self,
        c: &Combination,
        sums: &[Combination],
        stage_of: &BTreeMap<ValueId, usize>,
        span: Span,
    ) -> Option<Combination> {
        let mut flat = Combination::zero();
        for (v, c) in c.terms() {
            let of = match stage_of.contains_key(&v) {
                true => Combination::value(v),
                false => sums[v.0 as usize].clone(),
            };
            flat = self.add_scaled(flat, c, &of, span)?;
        }
        Some(flat)
    }
}

/// The tableau of a scheme with its stages found exactly and learned coefficients at their start; `None`: it has none.
pub fn solved(flow: &Flow) -> Option<Tableau> {
    let at = At {
        phase: Phase::Step(0),
        steps: 1,
        sizes: &[],
        inner: Steps::Exact,
        solved: true,
        analysed: true,
        timed: false,
        per_use: &OWN,
        budget: MAX_TOTAL,
    };
    let mut sink: Vec<Diagnostic> = Vec::new();
    let mut m = Machine::new(at, &mut sink);
    let h = Coeff::symbol("h");
    let aside = m.aside(flow, |m, frame| {
        m.flow_inside(frame.flow, ValueId::STATE, &h, true)
    })?;
    let found = m.tabled(&aside, flow.span)?.ok()?;
    let params = flow.scheme.fields.iter();
    m.numbers(&found, params.map(|f| f.name.clone()).collect())
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
