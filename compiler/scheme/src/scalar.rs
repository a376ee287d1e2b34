//! Evaluates numbers in the source exactly: coefficients, fractions of `h`, sizes, options.

use super::coeff::{Coeff, CoeffError, MAX_TERMS};
use super::function::{self, Function};
use super::polynomial;
use crate::codes;
use odec_exact::{Exact, ExactError};
use odec_exact::{MAX_BITS, MAX_FRACTION_BITS};
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;

/// Named numbers in scope.
pub type Scope = BTreeMap<String, Coeff>;

/// Most work that one number may take: entries of the linear equations that quotients are solutions of.
const MAX_WORK: usize = 200_000;
/// What a root counts for: the factors of a number are looked for.
pub(super) const ROOT_WORK: usize = 50;

/// The value of a numeric expression.
pub fn scalar(e: &Expr, scope: &Scope) -> Result<Coeff, Diagnostic> {
    measured(e, scope).map(|(value, _)| value)
}

/// The same, and the work that it took.
pub fn measured(e: &Expr, scope: &Scope) -> Result<(Coeff, usize), Diagnostic> {
    let mut work = 0;
    let value = evaluated(e, scope, &mut work)?;
    Ok((value, work))
}

pub(super) fn evaluated(e: &Expr, scope: &Scope, work: &mut usize) -> Result<Coeff, Diagnostic> {
    match &e.kind {
        ExprKind::Number(text) => literal(text, e.span),
        ExprKind::Quantity(text, unit) if unit == "%" => {
            let percent = Coeff::constant(Exact::int(100));
            literal(text, e.span)?
                .div(&percent)
                .map_err(|why| arithmetic(why, e.span))
        }
        ExprKind::Name(name) => scope.get(name).cloned().ok_or_else(|| {
            let written = scope.keys().filter(|n| !n.contains('('));
            unknown_name(name, e.span, written.map(String::as_str))
                .label("a number is expected here")
        }),
        ExprKind::Neg(inner) => Ok(evaluated(inner, scope, work)?.neg()),
        ExprKind::Binary(op, a, b) => {
            let divisor = b;
            let (a, b) = (evaluated(a, scope, work)?, evaluated(b, scope, work)?);
            let value = quotient_or(*op, (&a, &b), divisor, e.span, scope)?;
            *work += cost(*op, &a, &b, &value);
            if *work > MAX_WORK {
                let message = "this number takes too long to compute";
                let d = Diagnostic::error(codes::TOO_LARGE, e.span, message);
                return Err(d.help("write fewer quotients of sums of roots, or a decimal"));
            }
            Ok(value)
        }
        ExprKind::Tuple(items) if items.len() == 1 => evaluated(&items[0], scope, work),
        ExprKind::Call(call) if is_root(call) => match polynomial::of(call, scope) {
            Some(named) => polynomial::root(&named, scope, work),
            None => root(call, scope, e.span, work),
        },
        ExprKind::Call(call) if let Some((name, function)) = named_function(call) => {
            let arg = argument(call, &name.name, e.span)?;
            let of = evaluated(arg, scope, work)?;
            *work += ROOT_WORK + of.weight();
            applied(function, &of, e.span)
        }
        ExprKind::Call(call) if is_length(call) => length(call, scope, e.span),
        ExprKind::Call(call) if let Some(name) = rounding(call) => {
            rounded(call, &name, scope, e.span, work)
        }
        ExprKind::Index(..) => Err(not_supported(e.span, "an entry of a list or of a history")),
        _ => Err(expected_number(e)),
    }
}

/// What an operation took: a quotient is the solution of linear equations, and a power is many products.
pub fn cost(op: BinOp, a: &Coeff, b: &Coeff, value: &Coeff) -> usize {
    match op {
        BinOp::Div | BinOp::Pow => value.as_constant().map_or(value.weight(), |c| c.cost()),
        _ => a.weight() * b.weight(),
    }
}

/// The value of an expression in which no symbol may remain.
pub fn exact(e: &Expr, scope: &Scope) -> Result<Exact, Diagnostic> {
    constant(scalar(e, scope)?, e.span)
}

/// The same, where functions of constants that have no exact value, such as `log(2)`, are rounded to f64.
pub fn number(e: &Expr, scope: &Scope) -> Result<Exact, Diagnostic> {
    rounded_constant(scalar(e, scope)?, e.span)
}

/// The same of a value.
pub fn rounded_constant(value: Coeff, span: Span) -> Result<Exact, Diagnostic> {
    if let Some(exact) = value.as_constant() {
        return Ok(exact);
    }
    match nearest(&value) {
        Some(near) if near.is_finite() => constant(literal(&format!("{near:e}"), span)?, span),
        Some(_) => {
            let message = format!("`{value}` is not finite in f64");
            Err(Diagnostic::error(codes::ARITHMETIC, span, message))
        }
        None => Err(not_exact(&value, span)),
    }
}

/// The value in f64 of what depends on no name.
fn nearest(value: &Coeff) -> Option<f64> {
    match value.symbols().is_empty() {
        true => value.to_f64(&|_| None),
        false => None,
    }
}

/// A value in which no symbol may remain.
pub fn constant(value: Coeff, span: Span) -> Result<Exact, Diagnostic> {
    value.as_constant().ok_or_else(|| not_exact(&value, span))
}

fn not_exact(value: &Coeff, span: Span) -> Diagnostic {
    let Some(near) = nearest(value) else {
        return Diagnostic::error(codes::NOT_A_CONSTANT, span, "this number is not a constant")
            .label("it depends on the step, or on a learned coefficient");
    };
    let message = format!("`{value}` has no exact value");
    let d = Diagnostic::error(codes::NOT_A_CONSTANT, span, message)
        .label("an exact number is expected here");
    match near.is_finite() {
        true => d.help(format!(
            "write a decimal with as many digits as you need: {near}…"
        )),
        false => d.help("it is beyond the range of an f64"),
    }
}

/// A whole number in a range.
pub fn whole(e: &Expr, scope: &Scope, min: u64, max: u64) -> Result<u64, Diagnostic> {
    let value = exact(e, scope)?;
    in_range(&value, e, min, max).map_err(|d| match &e.kind {
        ExprKind::Number(_) => d,
        _ if value.as_rational().is_some_and(|x| !x.is_integer()) => {
            d.help("`ceil(…)` is the next whole number, `floor(…)` the one before")
        }
        _ => d,
    })
}

/// The same, of the value of an expression.
pub fn in_range(value: &Exact, e: &Expr, min: u64, max: u64) -> Result<u64, Diagnostic> {
    let n = value.as_integer().and_then(|n| u64::try_from(n).ok());
    n.filter(|n| (min..=max).contains(n)).ok_or_else(|| {
        let mut d = out_of_range(value, e);
        if value.as_integer().is_none() {
            d.message = format!("{} is not a whole number", shown(value, e));
        }
        d = d.label(format!("a whole number from {min} to {max} is expected"));
        if *value > Exact::int(i64::try_from(max).unwrap_or(i64::MAX)) {
            d.code = codes::TOO_LARGE;
        }
        d
    })
}

/// "7/2 is out of range", of the value of an expression.
pub fn out_of_range(value: &Exact, e: &Expr) -> Diagnostic {
    outside(&shown(value, e), e.span)
}

/// The same, of a number as it is shown.
pub(super) fn outside(shown: &str, span: Span) -> Diagnostic {
    let message = format!("{shown} is out of range");
    Diagnostic::error(codes::OUT_OF_RANGE, span, message)
}

/// The value of an expression in a message: a decimal where it is a short one and decimals are written there.
pub fn shown(value: &Exact, e: &Expr) -> String {
    let decimal = has_decimals(e).then(|| short_decimal(value)).flatten();
    decimal.unwrap_or_else(|| short(value))
}

/// Most digits of a decimal behind its point.
const MOST_DIGITS: usize = 12;

/// `4.5` of 9/2; none of what has more digits or no end.
fn short_decimal(value: &Exact) -> Option<String> {
    let scaled = |digits: usize| {
        let power = Exact::int(10_i64.pow(digits as u32));
        (value * &power).as_integer()
    };
    let (digits, n) = (0..=MOST_DIGITS).find_map(|d| Some((d, scaled(d)?)))?;
    let sign = if value.is_negative() { "-" } else { "" };
    let text = format!("{:0>1$}", n.magnitude().to_string(), digits + 1);
    let (whole, part) = text.split_at(text.len() - digits);
    Some(match part {
        "" => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{part}"),
    })
}

/// Whether a number with a decimal point is written in an expression.
fn has_decimals(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Number(text) | ExprKind::Quantity(text, _) => text.contains('.'),
        ExprKind::Neg(inner) => has_decimals(inner),
        ExprKind::Binary(_, a, b) => has_decimals(a) || has_decimals(b),
        ExprKind::Tuple(items) => items.iter().any(has_decimals),
        ExprKind::Call(call) => call.args.iter().any(|a| has_decimals(&a.value)),
        _ => false,
    }
}

/// The beginning of a long number.
pub(super) fn short(value: &Exact) -> String {
    let shown = value.to_string();
    match shown.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// The same as [`binary`]; where a divisor is 0, its names are shown with their values.
fn quotient_or(
    op: BinOp,
    (a, b): (&Coeff, &Coeff),
    divisor: &Expr,
    span: Span,
    scope: &Scope,
) -> Result<Coeff, Diagnostic> {
    let value = binary(op, a, b, span);
    match b.is_zero() && matches!(op, BinOp::Div) {
        true => value.map_err(|d| with_values(d, divisor, scope)),
        false => value,
    }
}

/// Says what the names in an expression stand for.
pub fn with_values(d: Diagnostic, e: &Expr, scope: &Scope) -> Diagnostic {
    let (mut open, mut found) = (vec![e], Vec::new());
    while let Some(e) = open.pop() {
        match &e.kind {
            ExprKind::Name(name) => {
                let value = scope.get(name).and_then(Coeff::as_constant);
                let said = value.map(|value| format!("`{name}` is {}", short(&value)));
                found.extend(said.filter(|said| !found.contains(said)));
            }
            ExprKind::Binary(_, a, b) => open.extend([&**b, &**a]),
            ExprKind::Neg(a) => open.push(a),
            ExprKind::Tuple(items) => open.extend(items),
            ExprKind::Call(call) => open.extend(call.args.iter().map(|a| &a.value)),
            _ => {}
        }
    }
    match found.is_empty() {
        true => d,
        false => d.label(format!("here {}", found.join(", "))),
    }
}

/// Sum, difference, product, quotient or power.
pub fn binary(op: BinOp, a: &Coeff, b: &Coeff, span: Span) -> Result<Coeff, Diagnostic> {
    match op {
        BinOp::Add => a.add(b),
        BinOp::Sub => a.sub(b),
        BinOp::Mul => a.mul(b),
        BinOp::Div => a.div(b),
        BinOp::Pow => a.pow(b),
    }
    .map_err(|why| arithmetic(why, span))
}

pub fn literal(text: &str, span: Span) -> Result<Coeff, Diagnostic> {
    Exact::decimal(text)
        .map(Coeff::constant)
        .map_err(|why| arithmetic(why.into(), span))
}

pub fn arithmetic(why: CoeffError, span: Span) -> Diagnostic {
    let d = Diagnostic::error(codes::ARITHMETIC, span, why.to_string());
    match why {
        CoeffError::Exact(ExactError::TooManyNested) => {
            d.help("write some of them as decimals, and claim the order `within` their precision")
        }
        CoeffError::Exact(ExactError::TooLarge) => d.help(format!(
            "a fraction may have {MAX_FRACTION_BITS} binary digits, a number with roots {MAX_BITS}, a polynomial {MAX_TERMS} terms"
        )),
        CoeffError::Exponent => d.help("roots have names: `sqrt(h)`, `root(2, 3)`"),
        CoeffError::Logarithm => d.help("write `log` of a number above 0: `log(2)`, `log(1 + a^2)`"),
        _ => d,
    }
}

/// Whether this is `sqrt(…)`, `root(…, n)` or `root(…, near)`.
pub fn is_root(call: &Call) -> bool {
    name_of(&call.callee).is_some_and(|f| ROOTS.contains(&f.name.as_str()))
}

/// Whether this is `sqrt(…)`, whose argument tells what its value is.
pub fn is_sqrt(call: &Call) -> bool {
    name_of(&call.callee).is_some_and(|f| f.name == ROOTS[0])
}

/// Whether this is a function whose value is a number: `exp(…)`, a root, `ceil(…)`, or `len(L)`.
pub fn is_function(call: &Call) -> bool {
    let of_numbers = is_root(call) || rounding(call).is_some() || named_function(call).is_some();
    of_numbers || is_length(call)
}

/// The name of `ceil(…)` or `floor(…)`.
pub fn rounding(call: &Call) -> Option<Ident> {
    name_of(&call.callee).filter(|f| ROUNDINGS.contains(&f.name.as_str()))
}

/// The next whole number from a rational one on, up or down.
fn rounded(
    call: &Call,
    name: &Ident,
    scope: &Scope,
    span: Span,
    work: &mut usize,
) -> Result<Coeff, Diagnostic> {
    let arg = argument(call, &name.name, span)?;
    let of = constant(evaluated(arg, scope, work)?, arg.span)?;
    let Some(number) = of.as_rational() else {
        let message = format!("`{}` takes a rational number", name.name);
        return Err(Diagnostic::error(codes::ARITHMETIC, arg.span, message));
    };
    let whole = match name.name == ROUNDINGS[0] {
        true => number.ceil(),
        false => number.floor(),
    };
    Ok(Coeff::constant(Exact::from(whole)))
}

/// The function of one number that is called, and its name.
pub fn named_function(call: &Call) -> Option<(Ident, Function)> {
    let name = name_of(&call.callee)?;
    let function = Function::called(&name.name)?;
    Some((name, function))
}

/// The one argument of a function.
pub(super) fn argument<'e>(call: &'e Call, name: &str, span: Span) -> Result<&'e Expr, Diagnostic> {
    match &call.args[..] {
        [arg] if arg.label.is_none() && arg.by.is_none() => Ok(&arg.value),
        _ => {
            let message = format!("`{name}` takes one number");
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            Err(d.help(format!("write `{name}(1/2)`")))
        }
    }
}

/// A function of a number.
pub(super) fn applied(function: Function, of: &Coeff, span: Span) -> Result<Coeff, Diagnostic> {
    function::apply(function, of).map_err(|why| arithmetic(why, span))
}

fn is_length(call: &Call) -> bool {
    name_of(&call.callee).is_some_and(|f| f.name == LENGTH)
}

/// The functions of numbers, and that of lists.
pub const ROOTS: [&str; 2] = ["sqrt", "root"];
pub const LENGTH: &str = "len";
/// Up and down.
pub const ROUNDINGS: [&str; 2] = ["ceil", "floor"];

/// The name under which a scope knows how long a list is; no user can write it as a name.
pub fn length_of(list: &str) -> String {
    format!("{LENGTH}({list})")
}

/// `len(L)`, the number of fields given for a list parameter.
fn length(call: &Call, scope: &Scope, span: Span) -> Result<Coeff, Diagnostic> {
    let help = "`len(L)` is the number of fields given for `L` in `scheme name(A, L[..])`";
    let [arg] = &call.args[..] else {
        let message = format!("`{LENGTH}` takes one list");
        return Err(Diagnostic::error(codes::ARGUMENT_COUNT, span, message).help(help));
    };
    let list = name_of(&arg.value).filter(|_| arg.label.is_none() && arg.by.is_none());
    let known = list.and_then(|l| scope.get(&length_of(&l.name)));
    known.cloned().ok_or_else(|| {
        Diagnostic::error(
            codes::NOT_A_LIST,
            arg.value.span,
            "this is not a list of fields",
        )
        .label("a list parameter of this scheme is expected")
        .help(help)
    })
}

/// `sqrt(3)`, `root(2, 3)`: a number and the degree of its root.
fn root(call: &Call, scope: &Scope, span: Span, work: &mut usize) -> Result<Coeff, Diagnostic> {
    let sqrt = name_of(&call.callee).is_some_and(|f| f.name == "sqrt");
    let plain = call
        .args
        .iter()
        .all(|a| a.label.is_none() && a.by.is_none());
    let (of, degree) = match &call.args[..] {
        [of] if sqrt && plain => (&of.value, Exact::int(2)),
        [of, degree] if !sqrt && plain => (&of.value, exact(&degree.value, scope)?),
        _ => {
            let message = if sqrt {
                "`sqrt` takes one number"
            } else {
                "`root` takes a number and a degree"
            };
            return Err(Diagnostic::error(codes::ARGUMENT_COUNT, span, message)
                .help("write `sqrt(3)`, `root(2, 3)` for the cube root of 2, or `root(x^3 - 3*x + 1, 0.35)` for the root of a polynomial near a number"));
        }
    };
    let degree = degree.as_integer().and_then(|n| u32::try_from(n).ok());
    let radicand = evaluated(of, scope, work)?;
    if sqrt && radicand.as_constant().is_none() {
        return applied(Function::Sqrt, &radicand, span);
    }
    let radicand = constant(radicand, of.span)?;
    *work += ROOT_WORK + radicand.cost();
    root_of(&radicand, degree.unwrap_or(0), span)
}

/// The root of an exact number.
pub(super) fn root_of(radicand: &Exact, degree: u32, span: Span) -> Result<Coeff, Diagnostic> {
    let value = radicand.root(degree);
    value.map(Coeff::constant).map_err(|why| {
        let d = arithmetic(why.into(), span);
        match why {
            ExactError::Nested | ExactError::PrimeFactor => {
                let near = radicand.to_f64().powf(1.0 / f64::from(degree));
                d.help(format!(
                    "write a decimal with as many digits as you need, and claim the order `within` it: {near}…"
                ))
            }
            _ => d,
        }
    })
}

/// "… is not supported yet".
pub fn not_supported(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error(
        codes::NOT_SUPPORTED,
        span,
        format!("{what} is not supported yet"),
    )
}

fn expected_number(e: &Expr) -> Diagnostic {
    let (what, expected) = match &e.kind {
        ExprKind::Quantity(..) => ("this number has a unit", "a number without a unit"),
        _ => ("this is not a number", "a number"),
    };
    Diagnostic::error(codes::NOT_A_NUMBER, e.span, what)
        .label(format!("{expected} is expected here"))
}

/// The name an expression consists of.
pub fn name_of(e: &Expr) -> Option<Ident> {
    match &e.kind {
        ExprKind::Name(name) => Some(Ident {
            name: name.clone(),
            span: e.span,
        }),
        _ => None,
    }
}

/// A word that is none of `known`, which are `what` its place takes; the nearest one as a hint, or all.
pub fn unknown_option(what: &str, word: &Ident, known: &[&str]) -> Diagnostic {
    let message = format!("`{}` is not {what}", word.name);
    let d = Diagnostic::error(codes::UNKNOWN_OPTION, word.span, message);
    match odec_grammar::nearest(&word.name, known.iter().copied()) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d.help(format!("there are `{}`", known.join("`, `"))),
    }
}

/// An unknown name, with the nearest known one as a hint.
pub fn unknown_name<'a>(
    name: &str,
    span: Span,
    known: impl Iterator<Item = &'a str>,
) -> Diagnostic {
    let d = Diagnostic::error(
        codes::UNKNOWN_NAME,
        span,
        format!("`{name}` is not defined"),
    );
    match odec_grammar::nearest(name, known) {
        Some(near) => d.help(format!("did you mean `{near}`?")),
        None => d,
    }
}
