//! What a walk over a stage program takes its coefficients for: numbers, polynomials, or the coefficients themselves.
//!
//! Also says what becomes of values of earlier steps: followed into the step that made them, the exact solution at their
//! time, or values that come in.

use super::super::Coeff;
use super::super::define::STEP;
use super::super::stage::StageProgram;
use super::refusal::Unsupported;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_numerics::series::Number;
use std::convert::Infallible;

/// Coefficients of a walk, and its past values.
pub(super) trait Reading {
    type Number;
    type Past;
    /// What a coefficient is in the step so many steps before the one that is looked at.
    fn number(&self, c: &Coeff, ago: i64) -> Option<Self::Number>;
    fn zero(&self) -> Self::Number;
    fn is_zero(&self, c: &Self::Number) -> bool;
    /// The coefficient of `hⁿ` of such a step, with the h of the one that is looked at.
    fn rescaled(&self, c: Self::Number, n: i32, ago: i64) -> Self::Number;
    /// The state that such a step began with; `None`: there are no earlier steps.
    fn state_before(&self, ago: i64) -> Option<Self::Past>;
    /// What a name was so many steps ago, and its power of h where that is known; `None`: its value is followed.
    fn past(&self, _name: &str, _ago: i64) -> Option<(Self::Past, Option<i32>)> {
        None
    }
    /// A coefficient with its functions of learned numbers as they are taken.
    fn settled(&self, program: &StageProgram, c: &Coeff) -> Coeff {
        functions_at_start(program, c)
    }
}

/// Numbers of any kind, and exact past values.
pub(super) struct Numbers<'a, C> {
    pub known: &'a dyn Fn(&Coeff, i64) -> Option<C>,
    /// The size of a step so many steps ago, over that of the step that is looked at.
    pub ratio: &'a dyn Fn(i64) -> C,
}

impl<C: Number> Reading for Numbers<'_, C> {
    type Number = C;
    type Past = C;
    fn number(&self, c: &Coeff, ago: i64) -> Option<C> {
        (self.known)(c, ago)
    }
    fn zero(&self) -> C {
        C::exact(&Exact::zero())
    }
    fn is_zero(&self, c: &C) -> bool {
        c.is_zero()
    }
    fn rescaled(&self, c: C, n: i32, ago: i64) -> C {
        let ratio = (self.ratio)(ago);
        (0..n).fold(c, |product, _| product.times(&ratio))
    }
    fn state_before(&self, ago: i64) -> Option<C> {
        let less = C::exact(&Exact::int(-1));
        let each = (1..=ago).map(|n| (self.ratio)(n).times(&less));
        Some(each.fold(self.zero(), |sum, h| sum.plus(&h)))
    }
}

/// Coefficients as they are, in a method of one step.
pub(super) struct Symbols;

impl Reading for Symbols {
    type Number = Coeff;
    type Past = Infallible;
    fn number(&self, c: &Coeff, _: i64) -> Option<Coeff> {
        Some(c.clone())
    }
    fn zero(&self) -> Coeff {
        Coeff::zero()
    }
    fn is_zero(&self, c: &Coeff) -> bool {
        c.is_zero()
    }
    fn rescaled(&self, c: Coeff, _: i32, _: i64) -> Coeff {
        c
    }
    fn state_before(&self, _: i64) -> Option<Infallible> {
        None
    }
    fn settled(&self, _: &StageProgram, c: &Coeff) -> Coeff {
        c.clone()
    }
}

/// A coefficient where learned ones are at their start.
pub fn at_start(program: &StageProgram, c: &Coeff) -> Option<Exact> {
    c.at(&|name| start(program, name))
}

fn start(program: &StageProgram, name: &str) -> Option<Exact> {
    let mut learned = program.learned.iter();
    learned.find(|l| l.name == name).map(|l| l.init.clone())
}

/// A coefficient with functions of learned numbers where these are at their start: `exp(a)` is 1 where `a` starts at 0.
pub fn functions_at_start(program: &StageProgram, c: &Coeff) -> Coeff {
    match c.has_functions() {
        false => c.clone(),
        true => {
            let settled = c.with_in_functions(&|name| start(program, name));
            settled.unwrap_or_else(|_| c.clone())
        }
    }
}

/// `c·hⁿ`.
pub fn coefficient<C: Number>(
    c: &Coeff,
    span: Span,
    known: &dyn Fn(&Coeff) -> Option<C>,
) -> Result<(C, i32), Unsupported> {
    let known = |c: &Coeff, _| known(c);
    let equal = |_| C::exact(&Exact::one());
    let numbers = Numbers {
        known: &known,
        ratio: &equal,
    };
    monomial(&numbers, c, span, 0)
}

/// `c·hⁿ` in the step so many steps ago.
pub(super) fn monomial<R: Reading>(
    reading: &R,
    c: &Coeff,
    span: Span,
    ago: i64,
) -> Result<(R::Number, i32), Unsupported> {
    let beyond = |why: &str| Err(Unsupported::at(span, why));
    for of in c.functions() {
        if of.names().contains("h") {
            return beyond(&format!("`{of}` is a function of the step size"));
        }
    }
    let mut found = None;
    for (n, c) in c.in_powers_of("h").into_iter().enumerate() {
        if c.symbols().contains("t") {
            return beyond("a coefficient depends on the time `t`");
        }
        if c.symbols().contains(STEP) {
            return beyond("a coefficient depends on the number `k` of the step");
        }
        let Some(value) = reading.number(&c, ago) else {
            return beyond(&match c.functions().next() {
                Some(of) => format!("`{of}` has no exact value"),
                None => "a coefficient has no exact value".into(),
            });
        };
        match found {
            _ if reading.is_zero(&value) => {}
            None => found = Some((value, n as i32)),
            Some(_) => return beyond("a coefficient is no multiple of one power of `h`"),
        }
    }
    Ok(match found {
        Some((c, n)) => (reading.rescaled(c, n, ago), n),
        None => (reading.zero(), 0),
    })
}
