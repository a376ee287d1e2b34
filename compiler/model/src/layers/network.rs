//! The computation inside a field: layers, pipelines of them, arithmetic, and bodies with named values.
//!
//! A [`Network`] is made by `pipeline.rs` and its neighbours, with widths that fit; it lists its parameters and, on demand, appends its
//! nodes. Leaves what a layer is to its file, whose parameters they are to the model.

use super::{Angles, Inputs, LayerKind, LayerParam, Reads, TypeResult, Weights};
use odec_graph::ops::{Add, Broadcast, Mul, Power, Recip, RepeatTokens, Rsqrt, Shift};
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::Dim;

/// A map from states to states (or, inside a pipeline, between widths).
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    Layer(LayerKind),
    /// One of the named values.
    Argument(usize),
    /// The state that an evolve ended with, by its label.
    State(String),
    /// A parameter that is read as it is: the same for all tokens.
    Learned(LayerParam),
    /// A number in the place of a value: one column, the same for all tokens.
    Number(Exact),
    Pipe(Vec<Network>),
    /// `Σ cᵢ fᵢ(x) + plus`.
    Sum {
        terms: Vec<(Exact, Network)>,
        plus: Exact,
    },
    /// Element by element.
    Product(Box<[Network; 2]>),
    /// Of this exponent, which is not 0.
    Power(Box<Network>, Exact),
    /// What is the same for all tokens, as that many columns of each.
    Spread(Box<Network>, u64),
    Body(Box<Body>),
}

/// Values with names of their own, each computed once, and what is made of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// Values of the names around the body: its first names.
    pub given: Vec<Network>,
    /// Its own, each of the names before it.
    pub set: Vec<Set>,
    pub result: Network,
}

/// A value that a body computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// Below the field, as the paths of its parameters.
    pub place: String,
    pub value: Network,
}

/// The values of a layer's operands, each with a row for every token.
pub fn values(
    of: &[Network],
    b: &mut Builder,
    at: Inputs,
    w: &mut dyn Weights,
) -> TypeResult<Vec<Value>> {
    let each = of.iter().map(|part| {
        let value = part.value(b, at, w)?;
        repeated(b, value, at.tokens)
    });
    each.collect()
}

/// Whether a value is one row of each sequence for all of so many tokens.
fn is_one_row(b: &Builder, x: Value, tokens: Dim) -> bool {
    let ty = b.ty(x);
    ty.is_state() && ty.tokens() == Dim::Fixed(1) && tokens != Dim::Fixed(1)
}

/// A value with a row for every token.
fn repeated(b: &mut Builder, x: Value, tokens: Dim) -> TypeResult {
    match is_one_row(b, x, tokens) {
        true => b.push1(RepeatTokens { tokens }, &[x]),
        false => Ok(x),
    }
}

/// Values that meet: rows for every token, where some have them. The first of them that has rows, or what they are computed from.
pub(super) fn meeting(b: &mut Builder, values: &mut [Value], at: Inputs) -> TypeResult<Value> {
    let rows = |b: &Builder, v: Value| b.ty(v).is_state();
    let all = |b: &Builder, v: &Value| rows(b, *v) && !is_one_row(b, *v, at.tokens);
    if values.iter().any(|v| all(b, v)) {
        for v in &mut *values {
            *v = repeated(b, *v, at.tokens)?;
        }
    }
    let first = values.iter().copied().find(|v| rows(b, *v));
    Ok(first.unwrap_or(at.x))
}

/// A part that has parameters of its own, or reads what has none.
enum Part<'n> {
    Layer(&'n LayerKind),
    Learned(&'n LayerParam),
    State(&'n str),
}

impl Network {
    /// What it is applied to, as it is.
    pub fn input() -> Network {
        Network::Pipe(Vec::new())
    }

    /// Its layers and parameters, in the order of the computation.
    fn parts<'n>(&'n self, out: &mut Vec<Part<'n>>) {
        match self {
            Network::Layer(layer) => out.push(Part::Layer(layer)),
            Network::Argument(_) | Network::Number(_) => {}
            Network::State(label) => out.push(Part::State(label)),
            Network::Learned(p) => out.push(Part::Learned(p)),
            Network::Pipe(parts) => parts.iter().for_each(|n| n.parts(out)),
            Network::Sum { terms, .. } => terms.iter().for_each(|(_, n)| n.parts(out)),
            Network::Product(of) => of.iter().for_each(|n| n.parts(out)),
            Network::Power(of, _) | Network::Spread(of, _) => of.parts(out),
            Network::Body(body) => {
                let set = body.set.iter().map(|s| &s.value);
                let all = body.given.iter().chain(set).chain([&body.result]);
                all.for_each(|n| n.parts(out));
            }
        }
    }

    /// The number that each of its elements is before training, where that is known and one number. `named`: of the named values.
    pub fn start(&self, named: &dyn Fn(usize) -> Option<f64>) -> Option<f64> {
        match self {
            Network::Learned(p) => p.start.value(),
            Network::Argument(i) => named(*i),
            Network::Number(c) => Some(c.to_f64()),
            Network::Layer(LayerKind::Applied(function)) => function.start(named),
            Network::Sum { terms, plus } => terms.iter().try_fold(plus.to_f64(), |sum, (c, of)| {
                Some(sum + c.to_f64() * of.start(named)?)
            }),
            Network::Product(of) => Some(of[0].start(named)? * of[1].start(named)?),
            Network::Power(of, exponent) => Some(of.start(named)?.powf(exponent.to_f64())),
            Network::Spread(of, _) => of.start(named),
            Network::Layer(_) | Network::State(_) | Network::Pipe(_) | Network::Body(_) => None,
        }
    }

    /// All parameters, in the order of the computation. What is read in several places is listed once.
    pub fn params(&self) -> Vec<LayerParam> {
        let mut parts = Vec::new();
        self.parts(&mut parts);
        let mut seen = std::collections::BTreeSet::new();
        let all = parts.into_iter().flat_map(|part| match part {
            Part::Layer(layer) => layer.params(),
            Part::Learned(p) => vec![p.clone()],
            Part::State(_) => Vec::new(),
        });
        all.filter(|p| seen.insert(p.path.clone())).collect()
    }

    /// What its layers read beside their inputs and parameters.
    pub fn reads(&self) -> Reads {
        let mut parts = Vec::new();
        self.parts(&mut parts);
        let layers = parts.into_iter().filter_map(|part| match part {
            Part::Layer(layer) => Some(layer.reads()),
            Part::State(label) => Some(Reads {
                states: vec![label.to_string()],
                ..Reads::default()
            }),
            Part::Learned(_) => None,
        });
        layers.fold(Reads::default(), Reads::and)
    }

    /// Whether each row of its result is computed from that row of what it is applied to, and from parameters.
    pub fn is_row_by_row(&self) -> bool {
        let mut parts = Vec::new();
        self.parts(&mut parts);
        parts.into_iter().all(|part| match part {
            Part::Layer(layer) => layer.row_by_row(),
            Part::Learned(_) => true,
            Part::State(_) => false,
        })
    }

    /// Whether a token's result depends on tokens after it.
    pub fn looks_ahead(&self) -> bool {
        self.reads().later_tokens
    }

    /// Whether it adds something of its own to each position.
    pub fn sees_positions(&self) -> bool {
        self.reads().sinusoids
    }

    /// How heads are rotated.
    pub fn rotated(&self) -> Vec<Angles> {
        self.reads().rotary
    }

    /// Whether it ends in a layer whose results are from 0 to 1.
    pub fn ends_in_shares(&self) -> bool {
        self.gives_shares(&[])
    }

    /// The same, where it is known of the named values.
    fn gives_shares(&self, named: &[bool]) -> bool {
        match self {
            Network::Layer(layer) => layer.gives_shares(),
            Network::Argument(i) => named.get(*i).copied().unwrap_or(false),
            Network::Number(c) => !c.is_negative() && *c <= Exact::one(),
            Network::Pipe(parts) => parts.last().is_some_and(|n| n.gives_shares(named)),
            Network::Product(of) => of.iter().all(|n| n.gives_shares(named)),
            Network::Body(body) => {
                let given = body.given.iter().map(|n| n.gives_shares(named));
                let mut inside: Vec<bool> = given.collect();
                for s in &body.set {
                    inside.push(s.value.gives_shares(&inside));
                }
                body.result.gives_shares(&inside)
            }
            Network::Learned(_)
            | Network::State(_)
            | Network::Sum { .. }
            | Network::Power(..)
            | Network::Spread(..) => false,
        }
    }

    /// The number for each column, where columns times numbers are all that it computes.
    pub fn rates(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult<Option<Value>> {
        match self {
            Network::Layer(layer) => layer.rates(b, w),
            _ => Ok(None),
        }
    }

    /// Appends its nodes at the builder's site; `at` is what it is applied to.
    pub fn build(&self, b: &mut Builder, at: &[Value], w: &mut dyn Weights) -> TypeResult {
        let x = *at.first().ok_or_else(|| wrong("is evaluated at nothing"))?;
        let field = b.site.path.len();
        let at = Inputs {
            x,
            named: at,
            field,
            tokens: b.ty(x).tokens(),
        };
        let value = self.value(b, at, w)?;
        repeated(b, value, at.tokens)
    }

    /// Appends its nodes where a layer is applied to more than one value. What is the same for all tokens of a sequence is one row of it.
    pub(super) fn value(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        match self {
            Network::Layer(layer) if layer.row_by_row() => layer.build(b, at, w),
            Network::Layer(layer) => {
                let x = repeated(b, at.x, at.tokens)?;
                layer.build(b, Inputs { x, ..at }, w)
            }
            Network::Argument(i) => {
                let missing = || wrong(&format!("has no value {i}"));
                at.named.get(*i).copied().ok_or_else(missing)
            }
            Network::Learned(p) => w.param(b, &p.path),
            Network::Number(c) => nn::constant(b, c.clone()),
            Network::State(label) => w.state(b, label),
            Network::Pipe(parts) => {
                let mut at = at;
                for part in parts {
                    at.x = part.value(b, at, w)?;
                }
                Ok(at.x)
            }
            Network::Sum { terms, plus } => {
                let values = terms.iter().map(|(_, part)| part.value(b, at, w));
                let mut values: Vec<Value> = values.collect::<TypeResult<_>>()?;
                let like = meeting(b, &mut values, at)?;
                let coefficients = terms.iter().map(|(c, _)| c.clone());
                let sum = sum(b, coefficients.zip(values).collect(), like)?;
                match plus.is_zero() {
                    true => Ok(sum),
                    false => b.push1(Shift { by: plus.clone() }, &[sum]),
                }
            }
            Network::Product(of) => {
                let mut values = [of[0].value(b, at, w)?, of[1].value(b, at, w)?];
                let like = meeting(b, &mut values, at)?;
                let values = beside(b, values, like)?;
                b.push1(Mul, &values)
            }
            Network::Power(of, exponent) => {
                let x = of.value(b, at, w)?;
                power(b, x, exponent)
            }
            Network::Spread(of, columns) => {
                let mut x = [of.value(b, at, w)?];
                let like = meeting(b, &mut x, at)?;
                spread(b, x[0], like, *columns)
            }
            Network::Body(body) => {
                // As a layer in Rust reads its parameters: all before the first of them is used.
                for p in self.params() {
                    w.param(b, &p.path)?;
                }
                let given = body.given.iter().map(|given| given.value(b, at, w));
                let mut named: Vec<Value> = given.collect::<TypeResult<_>>()?;
                for set in &body.set {
                    let at = Inputs {
                        named: &named,
                        ..at
                    };
                    let value = at.place(b, &set.place, |b| set.value.value(b, at, w))?;
                    named.push(value);
                }
                let at = Inputs {
                    named: &named,
                    ..at
                };
                body.result.value(b, at, w)
            }
        }
    }
}

fn wrong(what: &str) -> TypeError {
    TypeError {
        op: "field",
        what: what.into(),
    }
}

/// `x` as a value of each token, `columns` wide; `like` has the rows.
fn spread(b: &mut Builder, x: Value, like: Value, columns: u64) -> TypeResult {
    let to = b.ty(like).with_cols(columns);
    match *b.ty(x) == to {
        true => Ok(x),
        false => b.push1(Broadcast { to }, &[x]),
    }
}

/// Two values one of which broadcasts into the other. A number for each token and one for each column meet in neither shape.
fn beside(b: &mut Builder, [x, y]: [Value; 2], like: Value) -> TypeResult<[Value; 2]> {
    let (of_x, of_y) = (b.ty(x).clone(), b.ty(y).clone());
    if of_x.fit(&of_y).is_some() || of_y.fit(&of_x).is_some() {
        return Ok([x, y]);
    }
    match of_x.rank() < of_y.rank() {
        true => Ok([spread(b, x, like, of_x.cols())?, y]),
        false => Ok([x, spread(b, y, like, of_y.cols())?]),
    }
}

/// `Σ cᵢ xᵢ`: terms of one shape in one node, then the sums of different shapes.
fn sum(b: &mut Builder, terms: Vec<(Exact, Value)>, like: Value) -> TypeResult {
    let mut shapes: Vec<Vec<(Exact, Value)>> = Vec::new();
    for term in terms {
        let same = |shape: &&mut Vec<(Exact, Value)>| b.ty(shape[0].1) == b.ty(term.1);
        match shapes.iter_mut().find(same) {
            Some(shape) => shape.push(term),
            None => shapes.push(vec![term]),
        }
    }
    let mut sums = shapes.iter().map(|terms| nn::combine(b, terms));
    let sums: Vec<Value> = sums.by_ref().collect::<TypeResult<_>>()?;
    let mut sums = sums.into_iter();
    let first = sums.next().ok_or_else(|| wrong("is a sum of nothing"))?;
    sums.try_fold(first, |x, y| {
        let both = beside(b, [x, y], like)?;
        b.push1(Add, &both)
    })
}

/// `x^exponent`: by products and a root where it is whole or a half of a whole number, which is exact to the last bits and takes whole powers of what
/// is below 0.
fn power(b: &mut Builder, x: Value, exponent: &Exact) -> TypeResult {
    let halves = (exponent * &Exact::int(2)).as_integer();
    let Some(halves) = halves.and_then(|n| i32::try_from(n).ok()) else {
        let exponent = exponent.clone();
        return b.push1(Power { exponent }, &[x]);
    };
    let (n, odd) = (halves.unsigned_abs(), halves % 2 != 0);
    match (halves < 0, odd) {
        (true, true) => {
            let root = b.push1(Rsqrt, &[x])?;
            whole_power(b, root, n)
        }
        (true, false) => {
            let inverse = b.push1(Recip, &[x])?;
            whole_power(b, inverse, n / 2)
        }
        (false, false) => whole_power(b, x, n / 2),
        (false, true) => {
            let inverse = b.push1(Rsqrt, &[x])?;
            let root = b.push1(Recip, &[inverse])?;
            match n / 2 {
                0 => Ok(root),
                n => {
                    let whole = whole_power(b, x, n)?;
                    b.push1(Mul, &[whole, root])
                }
            }
        }
    }
}

/// `xⁿ`, n from 1, by squares.
fn whole_power(b: &mut Builder, x: Value, n: u32) -> TypeResult {
    let (mut square, mut made, mut left) = (x, None, n);
    while left > 0 {
        if left % 2 == 1 {
            made = Some(match made {
                None => square,
                Some(made) => b.push1(Mul, &[made, square])?,
            });
        }
        left /= 2;
        if left > 0 {
            square = b.push1(Mul, &[square, square])?;
        }
    }
    Ok(made.unwrap_or(x))
}
