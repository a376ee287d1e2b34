//! Evaluates fields and makes values of combinations, each once.
//!
//! A sum of fields becomes a sum of evaluations; `increment(Φ)` and `map(Φ)` become the flow itself. The same parameters at the same
//! value are evaluated once.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::flow::{Field, FlowArg, Leaf, Terms};
use super::run::{Frame, MAX_EVALUATIONS, StageTracer, too_many_evaluations};
use super::stage::{StageInstr, Unknown};
use super::time::Viewer;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What an evaluation gives depends on these alone.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Evaluation {
    field: usize,
    usage: usize,
    at: Vec<ValueId>,
    when: Option<Coeff>,
    /// Who sees its time, where it has one: the rates of two arguments are not one.
    viewer: Option<Viewer>,
    /// Its time, where it is not known whether the field reads it.
    said: Option<(ValueId, Coeff)>,
}

/// What a sum of fields gives depends on these alone, where no place has parameters of its own.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct SumAt {
    terms: *const Terms,
    operand: Option<*const Field>,
    at: ValueId,
    said: Option<(ValueId, Coeff)>,
}

/// A leaf that was evaluated.
pub(super) struct Used {
    pub leaf: Rc<Leaf>,
    /// The places it was written at, where each has parameters of its own.
    pub usages: BTreeMap<Vec<Span>, usize>,
    /// Whether it reads the time itself.
    pub timed: bool,
}

impl StageTracer<'_> {
    /// The argument of a field parameter.
    pub(super) fn argument(&self, name: &str, frame: &Frame) -> Option<FlowArg> {
        let i = frame
            .flow
            .scheme
            .fields
            .iter()
            .position(|f| f.name == name)?;
        frame.flow.args.get(i).cloned()
    }

    /// Evaluations written at `span`: a different place has different parameters under `weights per use`.
    pub(super) fn written_at<T>(
        &mut self,
        span: Span,
        go: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        self.place.push(span);
        let result = go(self);
        self.place.pop();
        result
    }

    pub(super) fn field_at(
        &mut self,
        field: &Field,
        at: Combination,
        span: Span,
    ) -> Option<Combination> {
        self.written_at(span, |m| m.field(field, at, span))
    }

    pub(super) fn field(
        &mut self,
        field: &Field,
        at: Combination,
        span: Span,
    ) -> Option<Combination> {
        let outer = self.operand;
        self.operand = outer.or(Some(field));
        let k = self.field_inside(field, at, span);
        self.operand = outer;
        k
    }

    fn field_inside(&mut self, field: &Field, at: Combination, span: Span) -> Option<Combination> {
        match field {
            Field::Leaf(leaf) => {
                let at = self.value(at, span)?;
                self.evaluate(leaf, vec![at], span)
            }
            Field::Sum(terms) => {
                let at = self.value(at, span)?;
                self.sum_of_fields(terms, at)
            }
            Field::Map(flow) => {
                let start = self.value(at, span)?;
                let outer = self.say(start, Coeff::zero(), None);
                let end = self.flow(flow, start, &Coeff::one());
                self.unsay(outer);
                end
            }
            Field::Increment(flow) => {
                let start = self.value(at, span)?;
                let outer = self.say(start, Coeff::zero(), None);
                let end = self.flow(flow, start, &Coeff::one());
                self.unsay(outer);
                let end = end?;
                let end = self.expanded(end, start, span)?;
                self.add_scaled(end, &Coeff::one().neg(), &Combination::value(start), span)
            }
        }
    }

    /// A sum of fields that share their parameters is made once for a value and a time: sums of sums may name it many times.
    fn sum_of_fields(&mut self, terms: &Rc<Terms>, at: ValueId) -> Option<Combination> {
        let key = SumAt {
            terms: Rc::as_ptr(terms),
            operand: self.operand,
            at,
            said: self.clocks.said(),
        };
        if let Some((_, sum)) = self.sums.get(&key) {
            return Some(sum.clone());
        }
        let mut sum = Combination::zero();
        for (c, f, span) in terms.iter() {
            let k = self.field_at(f, Combination::value(at), *span)?;
            sum = self.add_scaled(sum, &Coeff::constant(c.clone()), &k, *span)?;
        }
        if !self.at.per_use.is_any() {
            self.sums.insert(key, (terms.clone(), sum.clone()));
        }
        Some(sum)
    }

    pub(super) fn evaluate(
        &mut self,
        leaf: &Rc<Leaf>,
        at: Vec<ValueId>,
        span: Span,
    ) -> Option<Combination> {
        self.charge(1, span)?;
        let takes = leaf.params.len().max(1);
        if leaf.body.is_some() && takes != at.len() {
            let takes = super::resolve::count(takes, "argument");
            let message = format!("field `{}` takes {takes}, not {}", leaf.name, at.len());
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            return self.fail(d.also(leaf.span, "its definition"));
        }
        let field = self.leaf(leaf);
        let own = self.at.per_use.of(&leaf.name);
        let usage = match own {
            true => {
                let usages = &mut self.leaves[field].usages;
                let next = usages.len();
                *usages.entry(self.place.clone()).or_insert(next)
            }
            false => 0,
        };
        let viewer = match self.at.timed || self.leaves[field].timed {
            true => Some(self.clocks.viewer(field, self.operand)),
            false => None,
        };
        let when = match viewer {
            Some(viewer) => self.time_of(viewer, at[0], span)?,
            None => None,
        };
        // The same parameters at the same value and time give the same.
        let key = Evaluation {
            field,
            usage,
            at: at.clone(),
            when: when.clone(),
            viewer,
            said: match self.at.analysed {
                true => self.clocks.said_of(at[0]),
                false => None,
            },
        };
        if let Some(v) = self.evaluated.get(&key) {
            return Some(Combination::value(*v));
        }
        if self.evaluated.len() == MAX_EVALUATIONS {
            return self.fail(too_many_evaluations(span));
        }
        let v = self.push(StageInstr::Eval {
            field,
            usage,
            at,
            when,
            span,
        });
        self.evaluated.insert(key, v);
        self.clocks.evaluated(v, viewer);
        Some(Combination::value(v))
    }

    /// The number of a leaf.
    pub(super) fn leaf(&mut self, leaf: &Rc<Leaf>) -> usize {
        let key = (leaf.name.clone(), leaf.span);
        let field = *self.leaf_of.entry(key).or_insert(self.leaves.len());
        if field == self.leaves.len() {
            self.leaves.push(Used {
                leaf: leaf.clone(),
                usages: BTreeMap::new(),
                timed: leaf.facts.reads_time,
            });
        }
        field
    }

    /// Where the exact flow of a leaf leads.
    pub(super) fn exact_flow(
        &mut self,
        leaf: &Rc<Leaf>,
        at: ValueId,
        over: &Coeff,
        span: Span,
    ) -> Option<Combination> {
        self.charge(1, span)?;
        let field = self.leaf(leaf);
        let over = over.clone();
        let flow = StageInstr::Flow {
            field,
            at,
            over,
            span,
        };
        Some(Combination::value(self.push(flow)))
    }

    /// The combination as one value: itself, one made before, or a new instruction.
    pub(super) fn value(&mut self, c: Combination, span: Span) -> Option<ValueId> {
        if let Some(v) = c.as_value().or_else(|| self.known.get(&c).copied()) {
            return Some(v);
        }
        self.charge(2 * c.weight() + 1, span)?;
        let v = self.push(StageInstr::Combine(c.clone()));
        self.known.insert(c, v);
        Some(v)
    }

    /// The same vector over `start` and evaluations alone.
    pub(super) fn expanded(
        &mut self,
        mut c: Combination,
        start: ValueId,
        span: Span,
    ) -> Option<Combination> {
        loop {
            let inner = c
                .terms()
                .rev()
                .map(|(v, _)| v)
                .filter(|v| *v > start)
                .find_map(|v| match &self.instrs[v.0 as usize - 1] {
                    StageInstr::Combine(of)
                    | StageInstr::Unknown(Unknown::Solved { sum: of, .. }) => Some((v, of.clone())),
                    _ => None,
                });
            let Some((v, of)) = inner else { return Some(c) };
            self.charge(c.weight() + of.weight(), span)?;
            let next = c.substituted(v, &of);
            c = self.exact(next, span)?;
        }
    }

    /// The product of two values, made once.
    pub(super) fn product_of(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let of = [a.min(b), a.max(b)];
        match self.products.get(&of) {
            Some(v) => *v,
            None => {
                let v = self.push(StageInstr::Product(of));
                self.products.insert(of, v);
                v
            }
        }
    }

    /// What an instruction makes that gives the same for the same values: made before, or now.
    pub(super) fn once(&mut self, instr: StageInstr, span: Span) -> Option<ValueId> {
        let reads = instr.reads();
        let first = reads.first().copied().unwrap_or(ValueId::STATE);
        let known = self.made.get(&first).map_or(&[][..], Vec::as_slice);
        let same = |v: &&ValueId| self.instrs[v.0 as usize - 1] == instr;
        if let Some(v) = known.iter().find(same) {
            return Some(*v);
        }
        let work = reads.len() * (known.len() + 1);
        self.charge(work, span)?;
        let v = self.push(instr);
        self.made.entry(first).or_default().push(v);
        Some(v)
    }

    pub(super) fn push(&mut self, instr: StageInstr) -> ValueId {
        self.instrs.push(instr);
        ValueId(self.instrs.len() as u32)
    }
}
