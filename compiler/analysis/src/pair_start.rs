//! How the start of a step program with two states limits its order.
//!
//! The velocity that `start` gives, whatever it is made of, is the velocity of the solution at the start; where nothing gives one, it is 0.
//! A step may keep something else: leapfrog keeps the velocity half a step before. Takes the first programs, which `scheme/method` runs;
//! gives the first power of h that is off after them. Leaves the comparison to `odec-numerics`.

use super::pair::{Atom, Pair, Reading, Scale, Sum, of_program, pair};
use super::start::Limited;
use crate::scheme::flow::Flow;
use crate::scheme::method::{Unsupported, first_programs};
use crate::scheme::stage::StageProgram;
use odec_exact::Exact;
use odec_numerics::draw;
use odec_numerics::linear_step::{LinearStep, Step, Value};
use odec_numerics::partitioned::order::{FirstSteps, Missed};
use odec_numerics::partitioned::{A, B};
use odec_numerics::trees::Trees;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Deepest chain of evaluations in a first step.
const MAX_DEPTH: usize = 64;

/// Without which A is evaluated at a point of its own.
const NO_MOMENTUM: &str = "its momentum has no initial value: set it in `start { … }`";

/// A value of the line with its scale; `None`: it is 0.
type Kept = Option<(Value, Scale)>;

struct First<'f> {
    flow: &'f Flow,
    pair: &'f Pair,
    steps: Vec<Step>,
    /// The state, and what was kept at the end of each program.
    state: Value,
    kept: Vec<BTreeMap<String, Kept>>,
    at_rest: bool,
}

/// What the first steps leave of an order, where that is less.
pub fn limited(flow: &Flow, pair: &Pair, order: usize) -> Result<Option<Limited>, Unsupported> {
    let seen = Cell::new(0);
    let usual = |p: &StageProgram| {
        let before = seen.replace(seen.get() + 1);
        before >= pair.settled && of_program(flow, p).is_ok_and(|own| own == *pair)
    };
    let programs = first_programs(flow, &usual)?;
    let starts = flow.scheme.start.is_some();
    let mut first = First {
        flow,
        pair,
        steps: Vec::new(),
        state: 0,
        kept: Vec::new(),
        at_rest: true,
    };
    for (n, program) in programs.iter().enumerate() {
        let reading = Reading::new(flow, program)?;
        match n == 0 && starts {
            true => first.start(&reading)?,
            false => first.step(&reading)?,
        }
    }
    if !pair.is_second_order() && first.at_rest {
        return first.beyond(NO_MOMENTUM);
    }
    let steps = programs.len() - usize::from(starts);
    let ends = first.ends(steps)?;
    let (mut method, mut trees) = (pair.method.started(), pair.method.trees());
    let found = ends.missed(&mut method, &mut trees, order);
    let found = found.or_else(|why| first.beyond(why))?;
    Ok(found.map(|m| Limited {
        order: m.order,
        exactly: true,
        steps,
        what: what(&m, pair, &trees),
    }))
}

fn what(m: &Missed, pair: &Pair, trees: &Trees) -> String {
    let name = match (m.of_p, pair.is_second_order()) {
        (false, _) => "x".to_string(),
        (true, true) => format!("h {}", pair.kept),
        (true, false) => pair.kept.clone(),
    };
    match m.tree {
        None => format!("{name} is {} of the state, exact {}", m.has, m.expected),
        Some(t) => {
            let of = draw::differential(trees, t, &pair.fields);
            format!("{name} has {} of {of}, exact {}", m.has, m.expected)
        }
    }
}

/// How a start could be exact enough.
pub fn how_to_start(pair: &Pair) -> String {
    let v = &pair.kept;
    let offset = pair.method.started().offset(&mut pair.method.trees());
    match offset.is_zero() {
        true => format!(
            "set the values before the first step: `start {{ {v} = … }}`, one for each value that is read"
        ),
        false => format!(
            "`{v}` is kept at t {}: let each step end with values at its end, as `leapfrog` and `velocity_verlet` do",
            steps_off(&offset)
        ),
    }
}

/// `− 1/2 h`.
pub fn steps_off(offset: &Exact) -> String {
    match offset.is_negative() {
        true => format!("− {} h", -offset),
        false => format!("+ {offset} h"),
    }
}

impl First<'_> {
    fn beyond<T>(&self, why: &str) -> Result<T, Unsupported> {
        Err(Unsupported {
            span: self.flow.scheme.name.span,
            why: why.to_string(),
        })
    }

    fn push(&mut self, step: Step) -> Value {
        self.steps.push(step);
        self.steps.len()
    }

    /// h times the velocity at the start, or the momentum there.
    fn p(&mut self) -> Value {
        match self.pair.is_second_order() {
            true => self.push(Step::Eval { field: A, at: 0 }),
            false => 0,
        }
    }

    /// An evaluation: h A(p), h B(q), or h² B(q), which is h (A(p + h B(q)) − A(p)) where A(p) = p.
    fn evaluated(&mut self, field: usize, at: Value) -> Value {
        let own = self.push(Step::Eval { field, at });
        if !self.pair.is_second_order() {
            return own;
        }
        let one = Exact::one;
        let sum = self.push(Step::Combine(vec![(0, one()), (own, one())]));
        let after = self.push(Step::Eval { field: A, at: sum });
        let before = self.push(Step::Eval { field: A, at: 0 });
        self.push(Step::Combine(vec![(after, one()), (before, -&one())]))
    }

    /// What `start` makes has no h: a velocity or momentum is whatever it makes of one; other names are multiples of the state, and
    /// evaluations at it.
    fn start(&mut self, r: &Reading) -> Result<(), Unsupported> {
        let mut velocity: Option<Sum> = None;
        let mut kept = BTreeMap::new();
        for (name, _) in &r.program.keeps {
            let sum = r.kept(name).cloned().unwrap_or_default();
            let scale = self.pair.scales.get(name).copied();
            let found = match scale.or_else(|| self.scale_in_start(r, &sum)) {
                _ if sum.is_empty() => None,
                None => continue,
                Some(scale) => {
                    let is_velocity = match self.pair.is_second_order() {
                        true => scale.power == 1,
                        false => scale.of_p && scale.power == 0,
                    };
                    let value = match is_velocity {
                        true if velocity.as_ref().is_some_and(|v| *v != sum) => {
                            return self.beyond("its start gives two velocities");
                        }
                        true => {
                            velocity = Some(sum);
                            self.p()
                        }
                        false => self.multiple(r, &sum, scale)?,
                    };
                    Some((value, scale))
                }
            };
            kept.insert(name.clone(), found);
        }
        self.at_rest = velocity.is_none();
        self.kept.push(kept);
        Ok(())
    }

    /// The scale of a name that later steps know nothing of.
    fn scale_in_start(&self, r: &Reading, sum: &Sum) -> Option<Scale> {
        let of_x = |power| Scale { of_p: false, power };
        if sum.keys().eq(r.result.keys()) {
            return Some(of_x(0));
        }
        match sum.keys().next()? {
            Atom::Eval(v) if sum.len() == 1 => {
                let (field, _) = r.evaluation(*v)?;
                let own = self.pair.scale_of(field).map(|(_, scale)| scale);
                Some(own.unwrap_or(of_x(1)))
            }
            _ => None,
        }
    }

    /// A multiple of the state, or of an evaluation at it.
    fn multiple(&mut self, r: &Reading, sum: &Sum, scale: Scale) -> Result<Value, Unsupported> {
        let strange = "its `start` sets values other than states, velocities and evaluations";
        let (first, (c, _)) = match sum.iter().next() {
            Some(found) => found,
            None => return self.beyond(strange),
        };
        if scale.power == 0 && !scale.of_p {
            let whole = r.result.get(first).map(|(x, _)| x.recip());
            let Some(Ok(over)) = whole else {
                return self.beyond(strange);
            };
            let c = c * &over;
            let same = sum.len() == r.result.len()
                && r.result
                    .iter()
                    .all(|(a, (x, _))| sum.get(a).is_some_and(|(own, _)| *own == x * &c));
            return match same {
                true => Ok(self.push(Step::Combine(vec![(0, c)]))),
                false => self.beyond(strange),
            };
        }
        let Atom::Eval(v) = first else {
            return self.beyond(strange);
        };
        let c = c.clone();
        let found = r.evaluation(*v).and_then(|(field, at)| {
            let (number, own) = self.pair.scale_of(field)?;
            (number == B && own == scale && *at == r.result && sum.len() == 1).then_some(number)
        });
        match found {
            Some(number) => {
                let value = self.evaluated(number, 0);
                Ok(self.push(Step::Combine(vec![(value, c)])))
            }
            None => self.beyond(strange),
        }
    }

    fn step(&mut self, r: &Reading) -> Result<(), Unsupported> {
        let mut made = BTreeMap::new();
        let mut kept = BTreeMap::new();
        for (name, _) in &r.program.keeps {
            if let Some(sum) = r.kept(name) {
                kept.insert(name.clone(), self.sum(r, sum, &mut made, 0)?);
            }
        }
        let state = Scale {
            of_p: false,
            power: 0,
        };
        match self.sum(r, &r.result, &mut made, 0)? {
            Some((value, scale)) if scale == state => self.state = value,
            _ => return self.beyond("its first step ends with no state"),
        }
        self.kept.push(kept);
        Ok(())
    }

    fn sum(
        &mut self,
        r: &Reading,
        sum: &Sum,
        made: &mut BTreeMap<usize, (Value, Scale)>,
        depth: usize,
    ) -> Result<Kept, Unsupported> {
        if depth > MAX_DEPTH {
            return self.beyond("its first steps solve an equation");
        }
        let mut terms = Vec::new();
        let mut common: Option<Scale> = None;
        for (atom, (c, n)) in sum {
            let found = match atom {
                Atom::State => Some((
                    self.state,
                    Scale {
                        of_p: false,
                        power: 0,
                    },
                )),
                Atom::Past(name, ago) => {
                    let then = self.kept.len().checked_sub(*ago);
                    let then = then.and_then(|k| self.kept[k].get(name));
                    match then {
                        Some(kept) => *kept,
                        None => return self.beyond("its first steps read a value that is not set"),
                    }
                }
                Atom::Eval(v) => Some(self.evaluation(r, *v, made, depth)?),
            };
            let Some((value, scale)) = found else {
                continue;
            };
            let scale = Scale {
                power: scale.power - n,
                ..scale
            };
            if common.is_some_and(|own| own != scale) {
                return self.beyond("its first steps add terms with different powers of `h`");
            }
            common = Some(scale);
            terms.push((value, c.clone()));
        }
        let Some(scale) = common else {
            return Ok(None);
        };
        Ok(Some((self.push(Step::Combine(terms)), scale)))
    }

    fn evaluation(
        &mut self,
        r: &Reading,
        v: usize,
        made: &mut BTreeMap<usize, (Value, Scale)>,
        depth: usize,
    ) -> Result<(Value, Scale), Unsupported> {
        if let Some(known) = made.get(&v) {
            return Ok(*known);
        }
        let found = r.evaluation(v).and_then(|(field, at)| {
            let (number, scale) = self.pair.scale_of(field)?;
            Some((number, scale, at.clone()))
        });
        let Some((number, scale, at)) = found else {
            return self.beyond("its first steps evaluate a field that later ones do not");
        };
        let of_p = number == A;
        let at = match self.sum(r, &at, made, depth + 1)? {
            Some((value, own)) if own == (Scale { of_p, power: 0 }) => value,
            None if of_p => return self.beyond(NO_MOMENTUM),
            _ => {
                return self
                    .beyond("its first steps evaluate a field at a value that is not a state");
            }
        };
        let known = (self.evaluated(number, at), scale);
        made.insert(v, known);
        Ok(known)
    }

    fn ends(&mut self, steps: usize) -> Result<FirstSteps, Unsupported> {
        let last = self.kept.last().and_then(|k| k.get(&self.pair.kept));
        let kept = last.copied().flatten();
        let [of_x, of_v] = self.pair.velocity.clone();
        let mut terms = Vec::new();
        if !of_x.is_zero() {
            terms.push((self.state, of_x));
        }
        let own = self.pair.scales.get(&self.pair.kept).copied();
        match kept {
            Some((value, scale)) if Some(scale) == own => terms.push((value, of_v)),
            Some(_) => {
                return self.beyond("its first steps keep a value with another power of `h`");
            }
            None if !self.pair.is_second_order() => return self.beyond(NO_MOMENTUM),
            None => {}
        }
        let p = self.push(Step::Combine(terms));
        let names = self.pair.fields.to_vec();
        Ok(FirstSteps {
            line: LinearStep {
                fields: names,
                result: self.state,
                steps: self.steps.clone(),
                embedded: None,
            },
            q: self.state,
            p,
            steps,
            at_rest: self.pair.is_second_order() && self.at_rest,
            second_order: self.pair.is_second_order(),
        })
    }
}

/// The pair of a flow and what its first steps leave of an order; `None`: it is no pair.
pub fn of_flow(flow: &Flow, order: usize) -> Option<Result<Option<Limited>, Unsupported>> {
    let own = pair(flow).ok()?;
    Some(limited(flow, &own, order))
}
