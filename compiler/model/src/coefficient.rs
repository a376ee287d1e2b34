//! Computes the coefficients of combinations in the graph.
//!
//! Takes exact polynomials in the step size and in learned coefficients; gives combinations of tensors. What is known
//! when the model is built stays an exact number; what is learned is computed once per step, a number or a row of
//! numbers, by Horner's rule, and multiplied into its term; functions of learned numbers are ops, those of known ones are rounded here.
//! Equal products are one node, so that an entry of a history that several iterations read is scaled once and its coefficient's gradient
//! summed once.

use super::time_dependent::Time;
use crate::error::BuildError;
use crate::scheme::function::{Function, Symbol};
use crate::scheme::stage::Derived;
use crate::scheme::{Coeff, Combination, ValueId};
use odec_graph::ops::{Add, Exp, Log, Mul, Recip, Rsqrt, Shift, Sigmoid, StopGradient};
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use std::collections::{BTreeMap, BTreeSet};

/// The coefficients of one step.
pub struct Coefficients {
    /// Known symbols: the step size, unless it is learned.
    known: BTreeMap<String, Exact>,
    /// Learned symbols.
    symbols: BTreeMap<String, Value>,
    /// Functions of learned numbers.
    functions: BTreeMap<Symbol, Value>,
    scalars: BTreeMap<Coeff, Value>,
    /// Vectors of zeros, which sums leave out.
    zeros: BTreeSet<Value>,
    /// Products, by vector and coefficient.
    scaled: BTreeMap<(Value, Value), Value>,
}

/// A number that is known, or that the graph computes.
enum Number {
    Known(Exact),
    Made(Value),
}

impl Coefficients {
    pub fn new(known: BTreeMap<String, Exact>, symbols: BTreeMap<String, Value>) -> Self {
        Coefficients {
            known,
            symbols,
            functions: BTreeMap::new(),
            zeros: BTreeSet::new(),
            scalars: BTreeMap::new(),
            scaled: BTreeMap::new(),
        }
    }

    /// Computes a coefficient from those before it.
    pub fn derive(&mut self, b: &mut Builder, d: &Derived) -> Result<(), BuildError> {
        let mut value = self.made(b, &d.over, d)?;
        if !d.under.is_one() {
            let under = self.made(b, &d.under, d)?;
            let under = b.push1(Recip, &[under])?;
            value = b.push1(Mul, &[value, under])?;
        }
        self.symbols.insert(d.name.clone(), value);
        Ok(())
    }

    /// Zeros in the shape of a vector.
    pub fn nothing(&mut self, b: &mut Builder, like: Value) -> Result<Value, BuildError> {
        let zeros = nn::combine(b, &[(Exact::zero(), like)])?;
        self.zeros.insert(zeros);
        Ok(zeros)
    }

    /// The combination of `values`.
    pub fn combine(
        &mut self,
        b: &mut Builder,
        c: &Combination,
        values: &[Value],
    ) -> Result<Value, BuildError> {
        let mut terms = Vec::new();
        for (v, coeff) in c.terms() {
            let v = value(values, v)?;
            if !self.zeros.contains(&v) {
                terms.push(self.term(b, coeff, v)?);
            }
        }
        if terms.is_empty() {
            terms.push((Exact::zero(), value(values, ValueId::STATE)?));
        }
        Ok(nn::combine(b, &terms)?)
    }

    /// `scale · x + shift`, column by column.
    pub fn affine(
        &mut self,
        b: &mut Builder,
        x: Value,
        scale: &Coeff,
        shift: &Coeff,
    ) -> Result<Value, BuildError> {
        let term = self.term(b, scale, x)?;
        let scaled = nn::combine(b, &[term])?;
        let shift = self.settled(shift)?;
        Ok(match self.number(b, &shift)? {
            Number::Known(by) if by.is_zero() => scaled,
            Number::Known(by) => b.push1(Shift { by }, &[scaled])?,
            Number::Made(by) => b.push1(Add, &[scaled, by])?,
        })
    }

    /// A time.
    pub fn time(&mut self, b: &mut Builder, of: &Coeff) -> Result<Time, BuildError> {
        let settled = self.settled(of)?;
        Ok(match self.number(b, &settled)? {
            Number::Known(t) => Time::Known(t),
            Number::Made(t) => Time::Made(t),
        })
    }

    /// With the known symbols put in.
    fn settled(&self, coeff: &Coeff) -> Result<Coeff, BuildError> {
        let too_large = |_| BuildError::Missing(format!("coefficient {coeff}"));
        let mut known = self.known.iter();
        let with = |c: Coeff, (name, value): (&String, &Exact)| c.with(name, value);
        let settled = known.try_fold(coeff.clone(), with);
        settled.and_then(|c| c.rounded()).map_err(too_large)
    }

    /// `coeff · v` as an exact number and a tensor.
    fn term(
        &mut self,
        b: &mut Builder,
        coeff: &Coeff,
        v: Value,
    ) -> Result<(Exact, Value), BuildError> {
        let coeff = self.settled(coeff)?;
        if let Some(number) = coeff.as_constant() {
            return Ok((number, v));
        }
        let (number, rest) = coeff.content();
        let scalar = match self.scalars.get(&rest) {
            Some(s) => *s,
            None => {
                let made = b.part("scheme", |b| self.number(b, &rest))?;
                let Number::Made(s) = made else {
                    return Err(BuildError::Missing(format!("coefficient {rest}")));
                };
                self.scalars.insert(rest, s);
                s
            }
        };
        let product = match self.scaled.get(&(v, scalar)) {
            Some(p) => *p,
            None => {
                let p = b.push1(Mul, &[v, scalar])?;
                self.scaled.insert((v, scalar), p);
                p
            }
        };
        Ok((number, product))
    }

    /// A polynomial as a tensor, a sum as one combination.
    fn made(&mut self, b: &mut Builder, c: &Coeff, d: &Derived) -> Result<Value, BuildError> {
        let sum = match self.affine_number(b, c)? {
            Some(sum) => sum,
            None => self.number(b, c)?,
        };
        let by = match sum {
            Number::Made(v) => return Ok(v),
            Number::Known(by) => by,
        };
        let missing = || BuildError::Missing(format!("a number in `{d}`"));
        let some = self.symbols.values().next().copied().ok_or_else(missing)?;
        let nothing = nn::combine(b, &[(Exact::zero(), some)])?;
        Ok(b.push1(Shift { by }, &[nothing])?)
    }

    /// `c + Σ cᵢ sᵢ` as one combination.
    fn affine_number(&mut self, b: &mut Builder, c: &Coeff) -> Result<Option<Number>, BuildError> {
        let (mut terms, mut by) = (Vec::new(), Exact::zero());
        for (symbols, c) in c.terms() {
            match symbols[..] {
                [] => by = c.clone(),
                [s] => terms.push((c.clone(), self.symbol(b, s)?)),
                _ => return Ok(None),
            }
        }
        if terms.len() < 2 || terms.iter().any(|(_, s)| b.ty(*s) != b.ty(terms[0].1)) {
            return Ok(None);
        }
        let sum = nn::combine(b, &terms)?;
        Ok(Some(Number::Made(match by.is_zero() {
            true => sum,
            false => b.push1(Shift { by }, &[sum])?,
        })))
    }

    /// Horner's rule in the first symbol; what stands before its powers has fewer symbols.
    fn number(&mut self, b: &mut Builder, c: &Coeff) -> Result<Number, BuildError> {
        if let Some(number) = c.as_constant() {
            return Ok(Number::Known(number));
        }
        let Some(symbol) = c.factors().into_iter().next().cloned() else {
            return Err(BuildError::Missing(format!("coefficient {c}")));
        };
        let s = self.symbol(b, &symbol)?;
        let mut sum = Number::Known(Exact::zero());
        for power in c.in_powers_of_symbol(&symbol).iter().rev() {
            let next = self.number(b, power)?;
            let product = times(b, sum, s)?;
            sum = plus(b, product, next)?;
        }
        Ok(sum)
    }

    /// A learned number, or a function of such numbers.
    fn symbol(&mut self, b: &mut Builder, s: &Symbol) -> Result<Value, BuildError> {
        let missing = || BuildError::Missing(format!("`{s}`"));
        let (function, of) = match s {
            Symbol::Name(name) => return self.symbols.get(&**name).copied().ok_or_else(missing),
            Symbol::Function(function, of) => (*function, of),
        };
        if let Some(made) = self.functions.get(s) {
            return Ok(*made);
        }
        let Number::Made(x) = self.number(b, of)? else {
            return Err(missing());
        };
        let made = function_of(b, function, x)?;
        self.functions.insert(s.clone(), made);
        Ok(made)
    }
}

/// A function of a number, or of a row of numbers.
fn function_of(b: &mut Builder, function: Function, x: Value) -> Result<Value, TypeError> {
    let scaled = |b: &mut Builder, c: i64, x: Value| nn::combine(b, &[(Exact::int(c), x)]);
    match function {
        Function::Exp => b.push1(Exp, &[x]),
        Function::Log => b.push1(Log, &[x]),
        Function::Recip => b.push1(Recip, &[x]),
        Function::Sigmoid => b.push1(Sigmoid, &[x]),
        Function::Sqrt => {
            let inverse = b.push1(Rsqrt, &[x])?;
            b.push1(Recip, &[inverse])
        }
        // 2σ(2x) − 1
        Function::Tanh => {
            let twice = scaled(b, 2, x)?;
            let share = b.push1(Sigmoid, &[twice])?;
            let share = scaled(b, 2, share)?;
            b.push1(Shift { by: Exact::int(-1) }, &[share])
        }
        // m + log(e^−m + e^(x − m)) with m = max(x, 0), which overflows nowhere; it is the same for every m, so m has no gradient.
        Function::Softplus => {
            let most = nn::relu(b, x)?;
            let most = b.push1(StopGradient, &[most])?;
            let minus = scaled(b, -1, most)?;
            let less = nn::combine(b, &[(Exact::one(), x), (Exact::int(-1), most)])?;
            let (one, other) = (b.push1(Exp, &[minus])?, b.push1(Exp, &[less])?);
            let sum = nn::combine(b, &[(Exact::one(), one), (Exact::one(), other)])?;
            let log = b.push1(Log, &[sum])?;
            nn::combine(b, &[(Exact::one(), most), (Exact::one(), log)])
        }
    }
}

fn value(values: &[Value], v: ValueId) -> Result<Value, BuildError> {
    values
        .get(v.0 as usize)
        .copied()
        .ok_or_else(|| BuildError::Missing(format!("value {}", v.0)))
}

fn times(b: &mut Builder, a: Number, s: Value) -> Result<Number, TypeError> {
    Ok(match a {
        Number::Known(a) if a.is_zero() => Number::Known(a),
        Number::Known(a) => Number::Made(nn::combine(b, &[(a, s)])?),
        Number::Made(a) => Number::Made(b.push1(Mul, &[a, s])?),
    })
}

fn plus(b: &mut Builder, a: Number, c: Number) -> Result<Number, TypeError> {
    Ok(match (a, c) {
        (Number::Known(zero), c) | (c, Number::Known(zero)) if zero.is_zero() => c,
        (Number::Known(a), Number::Known(c)) => Number::Known(&a + &c),
        (Number::Made(a), Number::Known(by)) | (Number::Known(by), Number::Made(a)) => {
            Number::Made(b.push1(Shift { by }, &[a])?)
        }
        (Number::Made(a), Number::Made(c)) if b.ty(a) == b.ty(c) => {
            let one = Exact::one();
            Number::Made(nn::combine(b, &[(one.clone(), a), (one, c)])?)
        }
        (Number::Made(a), Number::Made(c)) => Number::Made(b.push1(Add, &[a, c])?),
    })
}
