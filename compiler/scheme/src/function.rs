//! Functions of coefficients: `exp(-a*h)`, `sqrt(h)`, `1/(1 + a)`, where no exact number says what they are.
//!
//! A function of a number whose value is exact is that value: `exp(0)`, `sqrt(4/9)`, `tanh(0)`. Any other is a symbol of its own
//! ([`Symbol::Function`]), equal only to the same function of an equal coefficient. Leaves rounding to whoever emits code.
//!
//! A new function is a variant of [`Function`]: name, exact values, f64. Its ops are in `compiler/model/src/coefficient.rs`, its formula in
//! pictures in `compiler/graph/src/formula.rs`.

use super::coeff::{Coeff, CoeffError};
use odec_exact::{Exact, ExactError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Most functions one inside the other.
const MAX_DEPTH: usize = 16;
/// Most terms in the argument of a function, those of functions in it included.
const MAX_WEIGHT: usize = 1024;

/// A function of a coefficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    Exp,
    Log,
    Sqrt,
    Tanh,
    Sigmoid,
    Softplus,
    /// Written as a quotient.
    Recip,
}

/// The functions that have a name.
pub const NAMED: [(&str, Function); 6] = [
    ("exp", Function::Exp),
    ("log", Function::Log),
    ("sqrt", Function::Sqrt),
    ("tanh", Function::Tanh),
    ("sigmoid", Function::Sigmoid),
    ("softplus", Function::Softplus),
];

impl Function {
    /// The function of a name.
    pub fn called(name: &str) -> Option<Function> {
        let named = NAMED.iter().find(|(n, _)| *n == name);
        named.map(|(_, f)| *f)
    }

    /// In f64; infinite or no number where it is not defined.
    pub fn at(self, x: f64) -> f64 {
        match self {
            Function::Exp => libm::exp(x),
            Function::Log => libm::log(x),
            Function::Sqrt => x.sqrt(),
            Function::Tanh => libm::tanh(x),
            Function::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
            Function::Softplus => x.max(0.0) + libm::log1p(libm::exp(-x.abs())),
            Function::Recip => x.recip(),
        }
    }

    /// The value at an exact number; `None`: it has no exact one.
    fn exactly(self, x: &Exact) -> Result<Option<Exact>, CoeffError> {
        let at_zero = x.is_zero();
        Ok(match self {
            Function::Exp if at_zero => Some(Exact::one()),
            Function::Tanh if at_zero => Some(Exact::zero()),
            Function::Sigmoid if at_zero => Some(Exact::ratio(1, 2)),
            Function::Log if x.is_one() => Some(Exact::zero()),
            Function::Log if at_zero || x.is_negative() => return Err(CoeffError::Logarithm),
            Function::Sqrt => match x.root(2) {
                Err(ExactError::NotReal) => return Err(ExactError::NotReal.into()),
                root => root.ok(),
            },
            Function::Recip => Some(x.recip()?),
            Function::Exp
            | Function::Log
            | Function::Tanh
            | Function::Sigmoid
            | Function::Softplus => None,
        })
    }
}

/// What a coefficient is a polynomial in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// The step size, the time, a learned number.
    Name(Arc<str>),
    Function(Function, Arc<Coeff>),
}

impl Symbol {
    /// Functions one inside the other.
    fn depth(&self) -> usize {
        match self {
            Symbol::Name(_) => 0,
            Symbol::Function(_, of) => 1 + depth(of),
        }
    }

    /// The names in it.
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        match self {
            Symbol::Name(name) => [name.clone()].into(),
            Symbol::Function(_, of) => of.symbols(),
        }
    }

    /// Terms of all constants in it.
    pub fn weight(&self) -> usize {
        match self {
            Symbol::Name(_) => 0,
            Symbol::Function(_, of) => 1 + of.weight(),
        }
    }
}

fn depth(of: &Coeff) -> usize {
    of.factors().iter().map(|s| s.depth()).max().unwrap_or(0)
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Symbol::Name(name) => f.write_str(name),
            Symbol::Function(Function::Recip, of) => write!(f, "1/{}", divisor(of)),
            Symbol::Function(function, of) => {
                let named = NAMED.iter().find(|(_, g)| g == function);
                write!(f, "{}({of})", named.map_or("", |(name, _)| *name))
            }
        }
    }
}

/// What stands behind `/`.
pub(super) fn divisor(of: &Coeff) -> String {
    match of.as_symbol() {
        Some(Symbol::Name(name)) => name.to_string(),
        Some(symbol @ Symbol::Function(function, _)) if *function != Function::Recip => {
            symbol.to_string()
        }
        _ => format!("({of})"),
    }
}

/// A function of a coefficient, in its simplest form.
///
/// # Errors
/// Where it has no value, or its argument is too large.
pub fn apply(function: Function, of: &Coeff) -> Result<Coeff, CoeffError> {
    if let Some(x) = of.as_constant()
        && let Some(value) = function.exactly(&x)?
    {
        return Ok(Coeff::constant(value));
    }
    match (function, of.as_symbol()) {
        (Function::Exp, Some(Symbol::Function(Function::Log, x)))
        | (Function::Log, Some(Symbol::Function(Function::Exp, x))) => return Ok((**x).clone()),
        (Function::Recip, _) => return reciprocal(of),
        _ => {}
    }
    symbol(function, of)
}

fn symbol(function: Function, of: &Coeff) -> Result<Coeff, CoeffError> {
    if depth(of) >= MAX_DEPTH || of.weight() > MAX_WEIGHT {
        return Err(ExactError::TooLarge.into());
    }
    let symbol = Symbol::Function(function, Arc::new(of.clone()));
    Ok(Coeff::of_symbol(symbol))
}

/// `1/c`: of a product the product of reciprocals, of a sum with its first constant taken out.
fn reciprocal(of: &Coeff) -> Result<Coeff, CoeffError> {
    let Some((powers, c)) = of.as_monomial() else {
        let first = of.first_constant();
        let inverse = Coeff::constant(first.recip()?);
        return symbol(Function::Recip, &of.mul(&inverse)?)?.mul(&inverse);
    };
    let mut product = Coeff::constant(c.recip()?);
    for (s, n) in powers {
        let inverse = match s {
            Symbol::Function(Function::Recip, x) => (**x).clone(),
            Symbol::Function(Function::Exp, x) => apply(Function::Exp, &x.neg())?,
            s => symbol(Function::Recip, &Coeff::of_symbol(s.clone()))?,
        };
        product = product.mul(&inverse.power(u64::from(*n))?)?;
    }
    Ok(product)
}

/// Powers of symbols, simplified where functions meet: what takes the place of some of them, and the others stay.
///
/// `exp(a)·exp(b) = exp(a + b)`, `sqrt(a)² = a`, `a/a = 1`: each is exact, and each leaves fewer functions than before.
///
/// # Errors
/// Where the result is too large.
pub(super) fn simplified(powers: &mut BTreeMap<Symbol, u32>) -> Result<Coeff, CoeffError> {
    let mut instead = Coeff::one();
    let functions = powers.keys().filter(|s| matches!(s, Symbol::Function(..)));
    let functions: Vec<Symbol> = functions.cloned().collect();
    let (mut exponent, mut exponentials) = (Coeff::zero(), 0);
    for s in &functions {
        let (Symbol::Function(function, of), Some(n)) = (s, powers.get(s).copied()) else {
            continue;
        };
        match function {
            Function::Exp => {
                exponent = exponent.add(&of.mul(&Coeff::constant(Exact::int(n.into())))?)?;
                exponentials += n;
            }
            Function::Sqrt if n > 1 => {
                set(powers, s, n % 2);
                instead = instead.mul(&of.power(u64::from(n / 2))?)?;
            }
            Function::Recip => {
                let Some(under) = of.as_symbol() else {
                    continue;
                };
                let over = powers.get(under).copied().unwrap_or(0);
                let both = over.min(n);
                set(powers, under, over - both);
                set(powers, s, n - both);
            }
            _ => {}
        }
    }
    if exponentials > 1 {
        powers.retain(|s, _| !matches!(s, Symbol::Function(Function::Exp, _)));
        instead = instead.mul(&apply(Function::Exp, &exponent)?)?;
    }
    Ok(instead)
}

fn set(powers: &mut BTreeMap<Symbol, u32>, of: &Symbol, n: u32) {
    match n {
        0 => _ = powers.remove(of),
        n => _ = powers.insert(of.clone(), n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn q(n: i64, d: i64) -> Coeff {
        Coeff::constant(Exact::ratio(n, d))
    }
    fn a() -> Coeff {
        Coeff::symbol("a")
    }
    fn of(f: Function, x: &Coeff) -> Coeff {
        apply(f, x).unwrap()
    }

    #[test]
    fn exact_values_stay_exact() {
        assert_eq!(of(Function::Exp, &Coeff::zero()), Coeff::one());
        assert_eq!(of(Function::Sqrt, &q(4, 9)), q(2, 3));
        assert_eq!(of(Function::Sigmoid, &Coeff::zero()), q(1, 2));
        assert_eq!(of(Function::Tanh, &Coeff::zero()), Coeff::zero());
        assert_eq!(of(Function::Log, &Coeff::one()), Coeff::zero());
        assert_eq!(of(Function::Recip, &q(2, 3)), q(3, 2));
        let symbols = [Function::Exp, Function::Tanh, Function::Softplus];
        assert!(symbols.map(|f| of(f, &q(1, 1)).as_constant()) == [None, None, None]);
    }

    #[test]
    fn what_has_no_value_is_refused() {
        assert_eq!(apply(Function::Log, &q(-1, 1)), Err(CoeffError::Logarithm));
        assert_eq!(
            apply(Function::Sqrt, &q(-1, 1)),
            Err(ExactError::NotReal.into())
        );
        assert_eq!(
            apply(Function::Recip, &q(0, 1)),
            Err(ExactError::DivisionByZero.into())
        );
    }

    #[test]
    fn functions_meet() {
        let (exp, root) = (of(Function::Exp, &a()), of(Function::Sqrt, &a()));
        assert_eq!(exp.mul(&of(Function::Exp, &a().neg())), Ok(Coeff::one()));
        assert_eq!(root.mul(&root), Ok(a()));
        assert_eq!(of(Function::Log, &exp), a());
        assert_eq!(a().div(&a()), Ok(Coeff::one()));
        assert_eq!(
            Coeff::one().div(&exp).unwrap(),
            of(Function::Exp, &a().neg())
        );
        let twice = q(2, 1).add(&a().mul(&q(2, 1)).unwrap()).unwrap();
        assert_eq!(q(1, 1).div(&twice).unwrap().to_string(), "1/2/(1 + a)");
    }

    #[test]
    fn they_are_printed_as_they_are_written() {
        let h = Coeff::symbol("h");
        let decay = of(Function::Exp, &a().mul(&h).unwrap().neg());
        assert_eq!(decay.mul(&h).unwrap().to_string(), "h*exp(-a*h)");
        let sum = Coeff::one().add(&a()).unwrap();
        assert_eq!(h.div(&sum).unwrap().to_string(), "h/(1 + a)");
        assert_eq!(
            h.div(&sum.mul(&sum).unwrap()).unwrap().to_string(),
            "h/(1 + 2*a + a^2)"
        );
        let over = Coeff::one().div(&sum).unwrap();
        assert_eq!(over.mul(&over).unwrap().to_string(), "1/(1 + a)^2");
        assert_eq!(
            Coeff::one()
                .div(&of(Function::Sqrt, &h))
                .unwrap()
                .to_string(),
            "1/sqrt(h)"
        );
    }

    #[test]
    fn towers_of_functions_are_refused_before_they_are_large() {
        let mut c = a();
        let grown = (0..100).try_for_each(|_| {
            c = apply(Function::Exp, &c.add(&a())?)?;
            Ok::<_, CoeffError>(())
        });
        assert_eq!(grown, Err(ExactError::TooLarge.into()));
        let mut c = a();
        let grown = (0..100).try_for_each(|_| {
            let both = apply(Function::Tanh, &c)?.add(&apply(Function::Sigmoid, &c)?)?;
            c = both.add(&c)?;
            Ok::<_, CoeffError>(())
        });
        assert_eq!(grown, Err(ExactError::TooLarge.into()));
    }

    /// Sums, products and functions of `a`, and what they are in f64.
    fn any() -> impl Strategy<Value = Coeff> {
        let leaf = prop_oneof![
            Just(Coeff::symbol("a")),
            Just(Coeff::symbol("h")),
            (1i64..5, 1i64..5).prop_map(|(n, d)| Coeff::constant(Exact::ratio(n, d))),
        ];
        leaf.prop_recursive(4, 24, 3, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                pair.clone()
                    .prop_filter_map("too large", |(a, b)| a.add(&b).ok()),
                pair.clone()
                    .prop_filter_map("too large", |(a, b)| a.mul(&b).ok()),
                pair.prop_filter_map("too large", |(a, b)| a.div(&b).ok()),
                (inner, 0usize..6)
                    .prop_filter_map("undefined", |(a, f)| apply(NAMED[f].1, &a).ok()),
            ]
        })
    }

    fn numbers(name: &str) -> Option<f64> {
        Some(if name == "a" { 0.7 } else { 0.3 })
    }

    proptest! {
        /// Simplification keeps values: of a product, a quotient and a sum those of their parts.
        #[test]
        fn values_are_kept(c in any(), d in any()) {
            let at = |c: &Coeff| c.to_f64(&numbers);
            let (x, y) = (at(&c), at(&d));
            let (Some(x), Some(y)) = (x, y) else { return Ok(()) };
            let close = |made: Result<Coeff, CoeffError>, wanted: f64| {
                let found = made.ok().and_then(|m| at(&m));
                let size = wanted.abs().max(x.abs()).max(y.abs()).max(1.0);
                found.is_none_or(|f| !wanted.is_finite() || size > 1e9 || (f - wanted).abs() <= 1e-6 * size)
            };
            prop_assert!(close(c.mul(&d), x * y));
            prop_assert!(close(c.add(&d), x + y));
            if y.abs() > 1e-3 {
                prop_assert!(close(c.div(&d), x / y), "({})/({})", c, d);
            }
        }

        /// What is put in for a symbol is put into functions too.
        #[test]
        fn numbers_are_put_into_functions(c in any()) {
            if let (Ok(with), Some(x)) = (c.with("a", &Exact::ratio(7, 10)), c.to_f64(&numbers)) {
                prop_assert!(!with.symbols().contains("a"));
                let found = with.to_f64(&numbers).unwrap();
                let near = (found - x).abs() <= 1e-6 * x.abs().max(1.0);
                prop_assert!(near || !x.is_finite() || x.abs() > 1e9, "{}: {} {}", c, found, x);
            }
        }
    }
}
