//! Step programs with two states: the state x, and a velocity or momentum that each step passes on to the next.
//!
//! Takes a flow; gives its step as a method for `x'' = F(x)` or for `x' = A(v)`, `v' = B(x)`, however it is written: with `v[-1]`, with h v or
//! the older state in the place of v, with evaluations kept for the next step. Which of the equations it is follows from the powers of h:
//! what is added to x as `h*h*F(x)` is an acceleration. Leaves the first steps to `pair_start.rs`, mathematics to `odec-numerics`.

use crate::scheme::Combination;
use crate::scheme::define::Body;
use crate::scheme::expansion::Expanded;
use crate::scheme::flow::Flow;
use crate::scheme::method::refusal::{FROM_START, PRODUCT, SEVERAL, TOO_LONG};
use crate::scheme::method::{
    DIFFERENT_POWERS, Unsupported, at_start, coefficient, functions_at_start, late, program_span,
};
use crate::scheme::per_use::SHARED;
use crate::scheme::stage::{Moment, StageInstr, StageProgram, Steps, Unknown};
use odec_exact::Exact;
use odec_grammar::Span;
use odec_numerics::Tableau;
use odec_numerics::partitioned::nystrom::Nystrom;
use odec_numerics::partitioned::{A, B, Partitioned};
use std::collections::{BTreeMap, BTreeSet};

/// Most instructions that are looked at.
const MAX_INSTRS: usize = 1024;

/// A method for two states.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub method: Partitioned,
    /// What is kept beside the state: `v`.
    pub kept: String,
    /// Names of A and B; of `x'' = F(x)` those of the velocity and of the field.
    pub fields: [String; 2],
    /// The velocity times h is so many times x and so many times what is kept.
    pub(super) velocity: [Exact; 2],
    /// The scale of each name of which later steps read values.
    pub(super) scales: BTreeMap<String, Scale>,
    /// After so many steps, whatever the start was, all that is kept beside is 0, the state, or an evaluation at it, as it is taken to be.
    pub(super) settled: usize,
}

/// Values of one space can be added; `hʷ` times a value of power w needs no further h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    pub of_p: bool,
    pub power: i32,
}

impl Pair {
    pub fn is_second_order(&self) -> bool {
        self.method.nystrom().is_some()
    }

    /// `x'' = F(x)`, `x' = A(v), v' = B(x)`.
    pub fn equation(&self) -> String {
        let [a, b] = &self.fields;
        let v = &self.kept;
        match self.is_second_order() {
            true => format!("x'' = {b}(x)"),
            false => format!("x' = {a}({v}), {v}' = {b}(x)"),
        }
    }

    /// Evaluations of a step, those that the step before made included.
    pub fn evaluations(&self) -> usize {
        match self.method.nystrom() {
            Some(n) => n.stages(),
            None => self.method.tableau().stages(),
        }
    }

    pub fn expanded(&self) -> Expanded {
        Expanded {
            method: Box::new(self.method.started()),
            trees: self.method.trees(),
            fields: self.fields.to_vec(),
        }
    }

    /// The scale of an evaluation of a field.
    pub(super) fn scale_of(&self, field: &str) -> Option<(usize, Scale)> {
        let number = self.fields.iter().rposition(|f| f == field)?;
        let scale = match (self.is_second_order(), number) {
            (true, B) => Scale {
                of_p: false,
                power: 2,
            },
            (true, _) => return None,
            (false, number) => Scale {
                of_p: number == B,
                power: 1,
            },
        };
        Some((number, scale))
    }
}

/// What values are made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Atom {
    State,
    Past(String, usize),
    /// An evaluation, by its value; 0 is one at the state.
    Eval(usize),
}

/// Coefficients, each with a power of h.
pub(super) type Sum = BTreeMap<Atom, (Exact, i32)>;

/// The values of a program as sums.
pub(super) struct Reading<'p> {
    pub program: &'p StageProgram,
    pub values: Vec<Sum>,
    pub result: Sum,
    span: Span,
}

fn beyond<T>(span: Span, why: &str) -> Result<T, Unsupported> {
    let why = why.to_string();
    Err(Unsupported { span, why })
}

impl<'p> Reading<'p> {
    pub fn new(flow: &Flow, program: &'p StageProgram) -> Result<Reading<'p>, Unsupported> {
        let span = program_span(flow);
        if program.instrs.len() > MAX_INSTRS {
            return beyond(span, TOO_LONG);
        }
        let alone = |atom| Sum::from([(atom, (Exact::one(), 0))]);
        let mut r = Reading {
            values: vec![alone(Atom::State)],
            result: Sum::new(),
            program,
            span,
        };
        // Unknowns read evaluations that are made after them.
        for (i, instr) in program.instrs.iter().enumerate() {
            r.values.push(match instr {
                StageInstr::Eval { .. } => alone(Atom::Eval(i + 1)),
                StageInstr::Past {
                    name,
                    when: Moment::Ago(n),
                } => alone(Atom::Past(name.clone(), *n)),
                _ => Sum::new(),
            });
        }
        for (i, instr) in program.instrs.iter().enumerate() {
            match instr {
                StageInstr::Combine(sum) | StageInstr::Unknown(Unknown::Solved { sum, .. }) => {
                    r.values[i + 1] = r.sum(sum)?;
                }
                StageInstr::Eval { at, span, .. } if at.len() != 1 => {
                    return beyond(*span, SEVERAL);
                }
                StageInstr::Eval { .. } => {}
                StageInstr::Past {
                    when: Moment::Ago(_),
                    ..
                } => {}
                StageInstr::Unknown(Unknown::Without { why, span }) => return beyond(*span, why),
                StageInstr::Product(_) => return beyond(span, PRODUCT),
                _ => return beyond(span, "it has operations other than evaluations and sums"),
            }
        }
        r.result = r.sum(&program.result)?;
        Ok(r)
    }

    fn sum(&self, of: &Combination) -> Result<Sum, Unsupported> {
        let mut sum = Sum::new();
        for (v, c) in of.terms() {
            let known = |c: &_| at_start(self.program, c);
            let c = functions_at_start(self.program, c);
            let (c, n) = coefficient(&c, self.span, &known)?;
            if c.is_zero() {
                continue;
            }
            for (atom, (own, m)) in &self.values[v.0 as usize] {
                let (all, power) = sum.entry(atom.clone()).or_insert((Exact::zero(), n + m));
                if *power != n + m {
                    return beyond(self.span, DIFFERENT_POWERS);
                }
                *all = &*all + &(&c * own);
            }
        }
        sum.retain(|_, (c, _)| !c.is_zero());
        Ok(sum)
    }

    /// What the step keeps of a name.
    pub fn kept(&self, name: &str) -> Option<&Sum> {
        let mut kept = self.program.keeps.iter();
        let (_, v) = kept.find(|(n, _)| n == name)?;
        Some(&self.values[v.0 as usize])
    }

    /// The name of the field of an evaluation, and where it is evaluated.
    pub fn evaluation(&self, v: usize) -> Option<(&str, &Sum)> {
        let StageInstr::Eval { field, at, .. } = &self.program.instrs[v.checked_sub(1)?] else {
            return None;
        };
        let at = &self.values[at.first()?.0 as usize];
        Some((&self.program.fields[*field].name, at))
    }

    /// Forgets names of which 0 is kept in all steps; gives after how many steps none of them is anything else.
    fn without_zeros(&mut self) -> usize {
        let mut settled = 0;
        loop {
            let mut names: BTreeSet<String> = BTreeSet::new();
            for (name, _) in &self.program.keeps {
                if self.kept(name).is_some_and(Sum::is_empty) {
                    names.insert(name.clone());
                }
            }
            let gone = |a: &Atom| matches!(a, Atom::Past(name, _) if names.contains(name));
            let atoms = self.values.iter().flat_map(Sum::keys).filter(|a| gone(a));
            let ago = atoms.map(|a| match a {
                Atom::Past(_, ago) => *ago,
                _ => 0,
            });
            settled += ago.max().unwrap_or(0);
            let all = self.values.iter_mut().chain([&mut self.result]);
            let mut found = false;
            for sum in all {
                let before = sum.len();
                sum.retain(|a, _| !gone(a));
                found |= sum.len() < before;
            }
            if !found {
                return settled;
            }
        }
    }

    /// What the result depends on, in this step and later ones.
    fn reached(&self) -> BTreeSet<Atom> {
        let mut reached: BTreeSet<Atom> = BTreeSet::new();
        let mut open: Vec<&Sum> = vec![&self.result];
        while let Some(sum) = open.pop() {
            for atom in sum.keys() {
                if reached.insert(atom.clone()) {
                    open.extend(match atom {
                        Atom::State => None,
                        Atom::Past(name, _) => self.kept(name),
                        Atom::Eval(v) => self.evaluation(*v).map(|(_, at)| at),
                    });
                }
            }
        }
        reached
    }
}

/// What has a scale.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scaled {
    State,
    Name(String),
    /// Evaluations of a field.
    Field(String),
    /// Where a field is evaluated.
    Argument(String),
}

/// Scales relative to each other: classes with a leader and a power each.
#[derive(Default)]
struct Scales(BTreeMap<Scaled, (Scaled, i32)>);

impl Scales {
    fn find(&self, of: &Scaled) -> (Scaled, i32) {
        let own = (of.clone(), 0);
        self.0.get(of).cloned().unwrap_or(own)
    }

    /// The power of one is that of the other and `more`; `false`: it is known to be another.
    fn relate(&mut self, one: &Scaled, other: &Scaled, more: i32) -> bool {
        let ((a, m), (b, n)) = (self.find(one), self.find(other));
        if a == b {
            return m == n + more;
        }
        let known: Vec<Scaled> = self.0.keys().cloned().chain([a.clone()]).collect();
        for x in known {
            let (leader, power) = self.find(&x);
            if leader == a {
                self.0.insert(x, (b.clone(), power - m + n + more));
            }
        }
        true
    }
}

/// The method of a flow.
pub fn pair(flow: &Flow) -> Result<Pair, Unsupported> {
    if !matches!(flow.scheme.body, Body::Step(_)) || flow.scheme.history.past.is_empty() {
        return beyond(flow.span, "it keeps no second state");
    }
    let late = late(flow, Steps::Euler, &SHARED)?;
    let here = of_program(flow, &late.here)?;
    match &late.next {
        Some(next) if of_program(flow, next)? != here => Err(late.grows),
        _ => Ok(here),
    }
}

type Row = BTreeMap<Atom, Exact>;

fn pure(sum: &Sum) -> Row {
    let terms = sum.iter();
    terms.map(|(a, (c, _))| (a.clone(), c.clone())).collect()
}

/// The method of one program.
pub(super) fn of_program(flow: &Flow, program: &StageProgram) -> Result<Pair, Unsupported> {
    let mut reading = Reading::new(flow, program)?;
    let settled = reading.without_zeros();
    Finder {
        settled,
        span: program_span(flow),
        reached: reading.reached(),
        reading,
        scales: Scales::default(),
    }
    .pair()
}

struct Finder<'p> {
    reading: Reading<'p>,
    reached: BTreeSet<Atom>,
    scales: Scales,
    span: Span,
    settled: usize,
}

impl Finder<'_> {
    fn beyond<T>(&self, why: &str) -> Result<T, Unsupported> {
        beyond(self.span, why)
    }

    fn scaled(&self, atom: &Atom) -> Scaled {
        match atom {
            Atom::State => Scaled::State,
            Atom::Past(name, _) => Scaled::Name(name.clone()),
            Atom::Eval(v) => {
                let field = self.reading.evaluation(*v).map_or("", |(f, _)| f);
                Scaled::Field(field.to_string())
            }
        }
    }

    /// All terms of a sum have one scale, and it is that of what they make.
    fn relate(&mut self, what: &Scaled, sum: &Sum) -> Result<(), Unsupported> {
        for (atom, (_, n)) in sum {
            let of = self.scaled(atom);
            if !self.scales.relate(what, &of, -n) {
                return self.beyond(DIFFERENT_POWERS);
            }
        }
        Ok(())
    }

    fn find_scales(&mut self) -> Result<(), Unsupported> {
        let result = self.reading.result.clone();
        self.relate(&Scaled::State, &result)?;
        for atom in self.reached.clone() {
            match &atom {
                Atom::State => {}
                Atom::Past(name, _) => match self.reading.kept(name).cloned() {
                    Some(kept) => self.relate(&Scaled::Name(name.clone()), &kept)?,
                    None => return self.beyond(FROM_START),
                },
                Atom::Eval(v) => {
                    let found = self.reading.evaluation(*v);
                    if let Some((field, at)) = found.map(|(f, at)| (f.to_string(), at.clone())) {
                        self.relate(&Scaled::Argument(field), &at)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The power over that of the state, or over that of where A is evaluated.
    fn power(&self, of: &Scaled, over: &Scaled) -> Option<i32> {
        let ((a, m), (b, n)) = (self.scales.find(of), self.scales.find(over));
        (a == b).then_some(m - n)
    }

    /// The fields, A before B; `true`: the equation is of second order, and there is no A.
    fn fields(&self) -> Result<(Vec<String>, bool), Unsupported> {
        let mut fields: Vec<String> = Vec::new();
        for atom in &self.reached {
            if let Scaled::Field(name) = self.scaled(atom)
                && !fields.contains(&name)
            {
                fields.push(name);
            }
        }
        let state = Scaled::State;
        let out = |f: &str, over: &Scaled| self.power(&Scaled::Field(f.into()), over);
        let at = |f: &str, over: &Scaled| self.power(&Scaled::Argument(f.into()), over);
        if let [b] = &fields[..]
            && out(b, &state) == Some(2)
            && at(b, &state) == Some(0)
        {
            return Ok((fields, true));
        }
        if fields.len() == 2 {
            fields.sort_by_key(|f| out(f, &state).is_none());
            let [a, b] = [&fields[0], &fields[1]];
            let momentum = Scaled::Argument(a.clone());
            let of_a = out(a, &state) == Some(1) && at(a, &state).is_none();
            let of_b = at(b, &state) == Some(0) && out(b, &momentum) == Some(1);
            if of_a && of_b {
                return Ok((fields, false));
            }
        }
        self.beyond("what it keeps is neither a velocity nor a momentum")
    }

    fn pair(mut self) -> Result<Pair, Unsupported> {
        self.find_scales()?;
        let (fields, second_order) = self.fields()?;
        let momentum = match second_order {
            true => Scaled::State,
            false => Scaled::Argument(fields[0].clone()),
        };
        let names = self.reached.iter().filter_map(|a| match a {
            Atom::Past(name, _) => Some(name.clone()),
            _ => None,
        });
        let mut scales = BTreeMap::new();
        for name in names {
            let own = Scaled::Name(name.clone());
            let of_x = self.power(&own, &Scaled::State).map(|power| (false, power));
            let of_p = || self.power(&own, &momentum).map(|power| (true, power));
            if let Some((of_p, power)) = of_x.or_else(of_p) {
                scales.insert(name, Scale { of_p, power });
            }
        }
        let rows = self.rows()?;
        self.settled += usize::from(rows.told);
        match second_order {
            true => self.second_order(rows, fields, scales),
            false => self.separable(rows, fields, scales),
        }
    }

    /// The step in what is left of earlier steps: the state and one name.
    fn rows(&self) -> Result<Rows, Unsupported> {
        let result = pure(&self.reading.result);
        let mut known: BTreeMap<Atom, Row> = BTreeMap::new();
        let mut kept: Vec<String> = Vec::new();
        let mut at_state = None;
        for atom in &self.reached {
            let Atom::Past(name, ago) = atom else {
                continue;
            };
            let row = self.reading.kept(name).map(pure).unwrap_or_default();
            let evaluated = match row.iter().next() {
                Some((Atom::Eval(v), c)) if row.len() == 1 => self
                    .reading
                    .evaluation(*v)
                    .filter(|(_, at)| pure(at) == result)
                    .map(|(f, _)| (f.to_string(), c.clone())),
                _ => None,
            };
            match evaluated {
                _ if *ago > 1 => return self.beyond("it reads values of more than one step ago"),
                // What a step ends with is the state of the next one.
                _ if row == result => {
                    known.insert(atom.clone(), [(Atom::State, Exact::one())].into());
                }
                Some((field, c)) if at_state.as_ref().is_none_or(|f| *f == field) => {
                    at_state = Some(field);
                    known.insert(atom.clone(), [(Atom::Eval(0), c)].into());
                }
                _ => kept.push(name.clone()),
            }
        }
        let [name] = &kept[..] else {
            return self.beyond(match kept.is_empty() {
                true => "it keeps no second state",
                false => "it keeps more than two states",
            });
        };
        let others = !known.is_empty();
        let told = |row: Row| -> Row {
            let mut told = Row::new();
            for (atom, c) in row {
                let alone = || [(atom.clone(), Exact::one())].into();
                for (own, x) in known.get(&atom).cloned().unwrap_or_else(alone) {
                    let slot: &mut Exact = told.entry(own).or_default();
                    *slot = &*slot + &(&c * &x);
                }
            }
            told.retain(|_, c| !c.is_zero());
            told
        };
        let mut stages: Vec<(Atom, String, Row)> = Vec::new();
        for atom in &self.reached {
            if let Atom::Eval(v) = atom
                && let Some((field, at)) = self.reading.evaluation(*v)
            {
                stages.push((atom.clone(), field.to_string(), told(pure(at))));
            }
        }
        if let Some(field) = at_state {
            let state = [(Atom::State, Exact::one())].into();
            stages.push((Atom::Eval(0), field, state));
        }
        Ok(Rows {
            result: told(result),
            next: told(self.reading.kept(name).map(pure).unwrap_or_default()),
            kept: name.clone(),
            told: others,
            stages,
        })
    }

    fn second_order(
        &self,
        rows: Rows,
        fields: Vec<String>,
        scales: BTreeMap<String, Scale>,
    ) -> Result<Pair, Unsupported> {
        let (state, kept) = (Atom::State, rows.past());
        let of = |row: &Row, atom: &Atom| row.get(atom).cloned().unwrap_or_default();
        let [xx, xv] = [&state, &kept].map(|a| of(&rows.result, a));
        let [vx, vv] = [&state, &kept].map(|a| of(&rows.next, a));
        let trace = &xx + &vv;
        let determinant = &(&xx * &vv) - &(&xv * &vx);
        let Ok(over) = xv.recip() else {
            return self.beyond("its state does not depend on the velocity");
        };
        if trace != Exact::int(2) || !determinant.is_one() {
            return self.beyond("without a force its velocity changes");
        }
        // h times the velocity is what the state grows by where no force acts.
        let more = &xx - &Exact::one();
        let mut c = Vec::new();
        for (_, _, at) in &rows.stages {
            let time = &of(at, &kept) * &over;
            if !(&of(at, &state) - &(&time * &more)).is_one() {
                return self.beyond("a field is evaluated at a multiple of the state other than 1");
            }
            c.push(time);
        }
        let evals = |row: &Row| -> Vec<Exact> {
            let stages = rows.stages.iter();
            stages.map(|(atom, ..)| of(row, atom)).collect()
        };
        let b_bar = evals(&rows.result);
        let next = evals(&rows.next);
        let weights = b_bar.iter().zip(&next);
        let method = Nystrom {
            c,
            a: rows.stages.iter().map(|(_, _, at)| evals(at)).collect(),
            b: weights.map(|(x, v)| &(&more * x) + &(&xv * v)).collect(),
            b_bar,
        };
        let names = ["v".to_string(), fields[0].clone()];
        Ok(Pair {
            method: Partitioned::second_order(method, names.clone()),
            fields: names,
            velocity: [more, xv],
            kept: rows.kept,
            settled: self.settled,
            scales,
        })
    }

    fn separable(
        &self,
        rows: Rows,
        fields: Vec<String>,
        scales: BTreeMap<String, Scale>,
    ) -> Result<Pair, Unsupported> {
        let n = rows.stages.len();
        let kept = rows.past();
        let number = |field: &String| usize::from(*field == fields[1]);
        let row = |row: &Row, of_p: bool| -> Result<Vec<Exact>, Unsupported> {
            let mut all = vec![Exact::zero(); n];
            let own = if of_p { &kept } else { &Atom::State };
            if row.get(own).is_none_or(|c| !c.is_one()) {
                return self.beyond("the coefficient of the old state is not 1 in a new one");
            }
            for (atom, c) in row.iter().filter(|(a, _)| *a != own) {
                match rows.stages.iter().position(|(a, ..)| a == atom) {
                    Some(stage) => all[stage] = c.clone(),
                    None => return self.beyond("its two states are added"),
                }
            }
            Ok(all)
        };
        let of_stage = |(_, field, at): &(Atom, String, Row)| row(at, number(field) == A);
        let a = rows.stages.iter().map(of_stage);
        let a = a.collect::<Result<Vec<_>, Unsupported>>()?;
        let (x, v) = (row(&rows.result, false)?, row(&rows.next, true)?);
        let tableau = Tableau {
            field_of: rows.stages.iter().map(|(_, f, _)| number(f)).collect(),
            b: x.iter().zip(&v).map(|(x, v)| x + v).collect(),
            embedded: None,
            fields: fields.clone(),
            a,
        };
        let Some(method) = Partitioned::separable(tableau) else {
            return self.beyond("its two states are added");
        };
        Ok(Pair {
            method,
            fields: [fields[0].clone(), fields[1].clone()],
            velocity: [Exact::zero(), Exact::one()],
            kept: rows.kept,
            settled: self.settled,
            scales,
        })
    }
}

/// A step: the new state, the new value of the name that is kept, and where fields are evaluated.
struct Rows {
    result: Row,
    next: Row,
    kept: String,
    /// Whether other names are told by these.
    told: bool,
    stages: Vec<(Atom, String, Row)>,
}

impl Rows {
    fn past(&self) -> Atom {
        Atom::Past(self.kept.clone(), 1)
    }
}
