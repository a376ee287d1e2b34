//! `root(x^3 - 3*x + 1, 0.35)`: the real root of a polynomial that is nearest to a number.
//!
//! The variable is the one name in the polynomial that is not defined as a number.

use super::coeff::Coeff;
use super::scalar::{ROOT_WORK, Scope, constant, evaluated, exact, name_of, unknown_name};
use crate::codes;
use odec_exact::{Exact, ExactError};
use odec_grammar::ast::{Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;

/// Most roots that a message lists.
const SHOWN: usize = 6;

/// A polynomial with its variable, and what its root is near.
pub struct Named<'e> {
    pub variable: Ident,
    polynomial: &'e Expr,
    near: &'e Expr,
}

/// The polynomial that a call of `root` is about; `None`: all names in it are numbers, or it is no such call.
pub fn of<'e>(call: &'e Call, scope: &Scope) -> Option<Named<'e>> {
    let [polynomial, near] = &call.args[..] else {
        return None;
    };
    let plain = [polynomial, near]
        .iter()
        .all(|a| a.label.is_none() && a.by.is_none());
    let root = name_of(&call.callee).is_some_and(|f| f.name == "root");
    let variable = unknown(&polynomial.value, scope).filter(|_| plain && root)?;
    Some(Named {
        variable,
        polynomial: &polynomial.value,
        near: &near.value,
    })
}

/// The first name in a sum of products that stands for no number.
fn unknown(e: &Expr, scope: &Scope) -> Option<Ident> {
    match &e.kind {
        ExprKind::Name(name) if !scope.contains_key(name) => name_of(e),
        ExprKind::Neg(inner) => unknown(inner, scope),
        ExprKind::Binary(_, a, b) => unknown(a, scope).or_else(|| unknown(b, scope)),
        ExprKind::Tuple(items) if items.len() == 1 => unknown(&items[0], scope),
        _ => None,
    }
}

pub fn root(named: &Named, scope: &Scope, work: &mut usize) -> Result<Coeff, Diagnostic> {
    let variable = &named.variable;
    let mut inner = scope.clone();
    inner.insert(variable.name.clone(), Coeff::symbol(&variable.name));
    let value = evaluated(named.polynomial, &inner, work)?;
    let powers = value.in_powers_of(&variable.name);
    if powers.len() == 2 {
        let known = scope.keys().filter(|n| !n.contains('('));
        let d = unknown_name(&variable.name, variable.span, known.map(String::as_str));
        let d = d.label("a number is expected here");
        return Err(match d.help {
            Some(_) => d,
            None => d.help("the polynomial of `root(x^2 - x - 1, 1.6)` has degree 2 at least"),
        });
    }
    let coefficients = powers
        .iter()
        .map(|c| constant(c.clone(), named.polynomial.span));
    let coefficients: Vec<Exact> = coefficients.collect::<Result<_, _>>()?;
    let near = exact(named.near, scope)?;
    *work += ROOT_WORK * coefficients.len().pow(2);
    let root = Exact::root_of(&coefficients, &near);
    root.map(Coeff::constant)
        .map_err(|why| explained(why, &coefficients, &near, named))
}

/// `x` of a polynomial means something else where it is written.
pub fn bound(named: &Named) -> Diagnostic {
    let name = &named.variable.name;
    let message = format!("`{name}` is a state here");
    Diagnostic::error(codes::NOT_A_NUMBER, named.variable.span, message)
        .label("a number is expected, or the variable of a polynomial")
        .help("states have no roots; the variable of a polynomial is a name that is not defined: `root(z^3 - 3*z + 1, 0.35)`")
}

fn explained(why: ExactError, coefficients: &[Exact], near: &Exact, named: &Named) -> Diagnostic {
    let place = match why {
        ExactError::Ambiguous => named.near.span,
        ExactError::NotRational if near.as_rational().is_none() => named.near.span,
        _ => named.polynomial.span,
    };
    let roots = Exact::real_roots(coefficients).unwrap_or_default();
    let d = Diagnostic::error(codes::ARITHMETIC, place, why.to_string());
    match why {
        ExactError::Ambiguous => {
            let shown: Vec<String> = roots
                .iter()
                .take(SHOWN)
                .map(|x| format!("{x:.6}"))
                .collect();
            let more = if roots.len() > SHOWN { ", …" } else { "" };
            d.label("another root is less than twice as far away as the nearest one")
                .help(format!(
                    "write more digits; the real roots are near {}{more}",
                    shown.join(", ")
                ))
        }
        ExactError::ConstantPolynomial => {
            d.label(format!("`{}` cancels here", named.variable.name))
        }
        ExactError::NotRational => d.help("fractions and decimals are rational"),
        ExactError::LargePolynomial | ExactError::NoRealRoot => d,
        _ => {
            let near = near.to_f64();
            let apart = |x: &&f64| (**x - near).abs();
            let nearest = roots.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)));
            let digits = nearest.map_or(String::new(), |x| format!(": {x}…"));
            d.help(format!("write a decimal with as many digits as you need, and claim the order `within` it{digits}"))
        }
    }
}
