//! Reads arithmetic of values: sums, products, quotients and powers, element by element.
//!
//! Takes syntax where values are known; gives networks whose widths fit: equal ones, or a value of one column, which stands for each column of
//! the other. Numbers stay exact: coefficients are collected in front of products.

use super::function::Domain;
use super::network::Network;
use super::pipeline::{Input, LayerReader, Read, Rows};
use crate::codes;
use crate::scheme::args::report;
use crate::scheme::scalar::{
    arithmetic, is_root, is_sqrt, name_of, named_function, number, rounding, with_values,
};
use crate::step_rule::NAMES;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, BinOp, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// Largest exponent.
const MOST_EXPONENT: i64 = 32;

/// A term of a sum, with its coefficient.
struct Term<'e> {
    factor: Exact,
    read: Read,
    of: &'e Expr,
}

/// The terms of a sum, and the numbers among them.
struct Sum<'e> {
    terms: Vec<Term<'e>>,
    plus: Exact,
}

impl LayerReader<'_> {
    /// Any arithmetic.
    pub(super) fn sum(&mut self, e: &Expr, input: Input) -> Option<Read> {
        let mut sum = Sum {
            terms: Vec::new(),
            plus: Exact::zero(),
        };
        self.terms(e, Exact::one(), input, &mut sum)?;
        let widest = sum.terms.iter().map(|t| t.read.columns).max();
        let Some(columns) = widest else {
            let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, "this is a number, not a value");
            return self.fail(d.label("a layer, a field or a value is expected here"));
        };
        let rows = self.rows(sum.terms.iter().map(|t| (t.of, &t.read)))?;
        let first = sum.terms.iter().find(|t| t.read.columns > 1);
        let first = first.map(|t| (t.of, t.read.columns));
        for t in &sum.terms {
            if let Some((of, width)) = first.filter(|(_, w)| !fit(*w, t.read.columns)) {
                let other = t.read.columns;
                let message = format!("terms of width {width} and {other} cannot be added");
                let d = Diagnostic::error(codes::WIDTH_MISMATCH, t.of.span, message);
                let d = located(d, (of, width), (t.of, other), input);
                return self.fail(d);
            }
        }
        let fixed = sum.terms.iter().all(|t| t.read.fixed);
        let mut terms: Vec<(Exact, Network)> = (sum.terms.into_iter())
            .map(|t| (t.factor, t.read.network))
            .collect();
        let network = match &terms[..] {
            [(c, _)] if c.is_one() && sum.plus.is_zero() => terms.remove(0).1,
            _ => Network::Sum {
                terms,
                plus: sum.plus,
            },
        };
        Some(Read {
            network,
            columns,
            fixed,
            rows,
            from: None,
        })
    }

    /// The rows of what is computed of such values element by element, if it is a matrix. All others must then be the same for all tokens: their columns
    /// meet those of each row.
    pub(super) fn rows<'r>(
        &mut self,
        of: impl Iterator<Item = (&'r Expr, &'r Read)>,
    ) -> Option<Option<Rows>> {
        let all: Vec<(&Expr, &Read)> = of.collect();
        let matrix = all
            .iter()
            .find_map(|(e, read)| Some((*e, read, read.rows?)));
        let Some((matrix, shape, rows)) = matrix else {
            return Some(None);
        };
        let wrong = |(_, read): &&(&Expr, &Read)| match read.rows {
            Some(other) => other != rows || read.columns != shape.columns,
            None => !read.fixed || ![1, shape.columns].contains(&read.columns),
        };
        let Some((other, read)) = all.iter().find(wrong) else {
            return Some(Some(rows));
        };
        if read.rows.is_none() && !read.fixed {
            let message = "a value of each token and a matrix are not combined element by element";
            let d = Diagnostic::error(codes::NOT_A_FIELD, other.span, message);
            let d = d
                .label("a value of each token")
                .also(matrix.span, "a matrix");
            return self.fail(d.help("multiply it by the matrix: `x |> linear(w)`"));
        }
        let said = |read: &Read| match read.rows {
            Some(rows) => rows.said(read.columns),
            None => format!("one row of {} columns", read.columns),
        };
        let message = "a matrix meets matrices of its size, rows of its columns and numbers";
        let d = Diagnostic::error(codes::WIDTH_MISMATCH, other.span, message);
        self.fail(d.label(said(read)).also(matrix.span, said(shape)))
    }

    /// Whether this is arithmetic of numbers, with names that are in scope.
    pub(super) fn is_number(&self, e: &Expr, input: Input) -> bool {
        match &e.kind {
            ExprKind::Number(_) | ExprKind::Quantity(..) => true,
            ExprKind::Name(name) => {
                let of_step = || NAMES.contains(&name.as_str()) && !self.names_a_value(name);
                input.find(name).is_none() && (self.scope.contains_key(name) || of_step())
            }
            // `root(x^3 - 2, 1.26)` has a name of its own.
            ExprKind::Call(call) if is_sqrt(call) || named_function(call).is_some() => {
                let number = |a: &Arg| a.label.is_none() && self.is_number(&a.value, input);
                !call.args.is_empty() && call.args.iter().all(number)
            }
            ExprKind::Call(call) => is_root(call) || rounding(call).is_some(),
            ExprKind::Tuple(items) => matches!(&items[..], [one] if self.is_number(one, input)),
            ExprKind::Neg(a) => self.is_number(a, input),
            ExprKind::Binary(_, a, b) => self.is_number(a, input) && self.is_number(b, input),
            _ => false,
        }
    }

    pub(super) fn number(&mut self, e: &Expr) -> Option<Exact> {
        report(number(e, self.scope), self.sink)
    }

    /// A coefficient times a number, or divided by it.
    fn scaled(&mut self, c: &Exact, by: &Exact, divide: bool, span: Span) -> Option<Exact> {
        let scaled = match divide {
            true => by.recip().map(|by| c * &by),
            false => Ok(c * by),
        };
        let scaled = scaled.and_then(Exact::checked);
        let scaled = scaled.map_err(|why| arithmetic(why.into(), span));
        report(scaled, self.sink)
    }

    fn terms<'e>(&mut self, e: &'e Expr, c: Exact, input: Input, out: &mut Sum<'e>) -> Option<()> {
        let minus = -&c;
        match &e.kind {
            _ if self.is_number(e, input) => {
                let number = self.number(e)?;
                let number = self.scaled(&c, &number, false, e.span)?;
                let plus = (&out.plus + &number).checked();
                let plus = plus.map_err(|why| arithmetic(why.into(), e.span));
                out.plus = report(plus, self.sink)?;
                Some(())
            }
            ExprKind::Binary(BinOp::Add, a, b) => {
                self.terms(a, c.clone(), input, out)?;
                self.terms(b, c, input, out)
            }
            ExprKind::Binary(BinOp::Sub, a, b) => {
                self.terms(a, c, input, out)?;
                self.terms(b, minus, input, out)
            }
            ExprKind::Neg(a) => self.terms(a, minus, input, out),
            ExprKind::Binary(op @ (BinOp::Mul | BinOp::Div), a, b) if self.is_number(b, input) => {
                let by = self.number(b)?;
                if let (BinOp::Div, Err(why)) = (op, by.recip()) {
                    let d = arithmetic(why.into(), e.span);
                    return self.fail(with_values(d, b, self.scope));
                }
                let c = self.scaled(&c, &by, *op == BinOp::Div, e.span)?;
                self.terms(a, c, input, out)
            }
            ExprKind::Binary(BinOp::Mul, a, b) if self.is_number(a, input) => {
                let by = self.number(a)?;
                let c = self.scaled(&c, &by, false, e.span)?;
                self.terms(b, c, input, out)
            }
            _ => {
                let (factor, read) = self.factor(e, input)?;
                let factor = self.scaled(&c, &factor, false, e.span)?;
                out.terms.push(Term {
                    factor,
                    read,
                    of: e,
                });
                Some(())
            }
        }
    }

    /// A factor of a product: its coefficient, and what that multiplies.
    fn factor(&mut self, e: &Expr, input: Input) -> Option<(Exact, Read)> {
        match &e.kind {
            ExprKind::Neg(a) => {
                let (c, a) = self.factor(a, input)?;
                Some((-&c, a))
            }
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let (c, x) = self.operand(a, input)?;
                let (d, y) = self.operand(b, input)?;
                let c = self.scaled(&c, &d, false, e.span)?;
                Some((c, self.product((a, x), (b, y), input)?))
            }
            ExprKind::Binary(BinOp::Div, a, b) => {
                let (c, x) = self.operand(a, input)?;
                let (d, y) = self.operand(b, input)?;
                let c = self.scaled(&c, &d, true, e.span)?;
                if let Some(y) = &y {
                    let by = Domain::NotZero.check("a quotient", &y.network, b, input);
                    report(by, self.sink)?;
                }
                let inverse = y.map(|y| power(y, Exact::int(-1)));
                Some((c, self.product((a, x), (b, inverse), input)?))
            }
            ExprKind::Binary(BinOp::Pow, a, b) => {
                let exponent = self.exponent(b, input)?;
                let of = self.own_value_or_matrix(a, input)?;
                let domain = match (exponent.as_integer().is_some(), exponent.is_negative()) {
                    (false, _) => Domain::Positive,
                    (true, true) => Domain::NotZero,
                    (true, false) => Domain::All,
                };
                report(domain.check("this power", &of.network, a, input), self.sink)?;
                Some((Exact::one(), power(of, exponent)))
            }
            _ => Some((Exact::one(), self.own_value_or_matrix(e, input)?)),
        }
    }

    /// A factor that may be a number alone.
    fn operand(&mut self, e: &Expr, input: Input) -> Option<(Exact, Option<Read>)> {
        if self.is_number(e, input) {
            return Some((self.number(e)?, None));
        }
        let (c, read) = self.factor(e, input)?;
        Some((c, Some(read)))
    }

    fn product(
        &mut self,
        (a, x): (&Expr, Option<Read>),
        (b, y): (&Expr, Option<Read>),
        input: Input,
    ) -> Option<Read> {
        let (x, y) = match (x, y) {
            (Some(x), Some(y)) => (x, y),
            (one, other) => return one.or(other),
        };
        let rows = self.rows([(a, &x), (b, &y)].into_iter())?;
        if !fit(x.columns, y.columns) {
            let (width, other) = (x.columns, y.columns);
            let message = format!("values of width {width} and {other} cannot be multiplied");
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, b.span, message);
            return self.fail(located(d, (a, width), (b, other), input));
        }
        Some(Read {
            columns: x.columns.max(y.columns),
            fixed: x.fixed && y.fixed,
            rows,
            from: None,
            network: Network::Product(Box::new([x.network, y.network])),
        })
    }

    /// A number within bounds, and not 0.
    fn exponent(&mut self, e: &Expr, input: Input) -> Option<Exact> {
        let wrong = |message: &str| {
            Diagnostic::error(codes::OUT_OF_RANGE, e.span, message)
                .label("a number is expected, and not 0")
                .help(format!(
                    "exponents of values are numbers from -{MOST_EXPONENT} to {MOST_EXPONENT}: `x^2`, `x^(1/3)`, `x^-1`; where x is above 0, any power is `exp(p*log(x))`"
                ))
        };
        if !self.is_number(e, input) {
            return self.fail(wrong("this exponent is not a number"));
        }
        let exponent = self.number(e)?;
        let most = Exact::int(MOST_EXPONENT);
        match !exponent.is_zero() && exponent <= most && -&exponent <= most {
            true => Some(exponent),
            false => self.fail(wrong("a value has no such power here")),
        }
    }
}

fn power(of: Read, exponent: Exact) -> Read {
    Read {
        network: Network::Power(Box::new(of.network), exponent),
        ..of
    }
}

/// Whether values of these widths meet element by element.
fn fit(a: u64, b: u64) -> bool {
    a == b || a == 1 || b == 1
}

/// Says which of two values has which width, and where it got it.
fn located(
    d: Diagnostic,
    (a, width): (&Expr, u64),
    (b, other): (&Expr, u64),
    input: Input,
) -> Diagnostic {
    let set = |e: &Expr| input.find(&name_of(e)?.name);
    let says = |e: &Expr, width: u64| match set(e) {
        Some(named) => format!("`{}` has width {width}", named.name.name),
        None => format!("this has width {width}"),
    };
    let d = d.label(says(b, other)).also(a.span, says(a, width));
    let written = match name_of(b) {
        Some(name) => format!("`{} |> linear({width})`", name.name),
        None => format!("`… |> linear({width})` for the second"),
    };
    let (wide, narrow) = (width.max(other), width.min(other));
    // Heads of fewer columns are rare.
    let of_heads = match wide.is_multiple_of(narrow) && wide >= 4 * narrow {
        true => format!(
            "; numbers of {narrow} heads stand beside their columns as `broadcast(…, to: {wide}, heads: {narrow})`"
        ),
        false => String::new(),
    };
    let d = d.help(format!(
        "bring both to one width, for example by {written}{of_heads}"
    ));
    let places = [a, b].into_iter().filter_map(set);
    places.fold(d, |d, n| {
        let label = format!("`{}` gets its width here", n.name.name);
        d.also(n.name.span, label)
    })
}
