//! Reads expressions that denote schemes: `adjoint(S)`, `compose(S(a), T(b))`, `power(S, n)`, `extrapolate(S, k)`, `average(S, T)`.
//!
//! Takes syntax; gives a scheme whose body is a [`Term`], its names looked up and its shape checked. An operand is a scheme
//! with its settings; it takes the fields around it in their order, or those it names. Leaves numbers to `algebra.rs`,
//! which knows the values of the scheme's parameters.

use super::algebra::{Extrapolation, Numbers, Operand, Term, TermKind};
use super::define::{Algebra, Body, SchemeDef};
use super::names::Definition;
use super::resolve::{Resolver, count, repeated_argument, unknown_argument};
use super::scalar::{name_of, not_supported};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::rc::Rc;

/// The functions from methods to methods.
pub const METHODS: [&str; 5] = ["adjoint", "compose", "power", "extrapolate", "average"];

/// Whether this is one of them, with its operands.
pub fn is_method(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Call(call) => {
            name_of(&call.callee).is_some_and(|n| METHODS.contains(&n.name.as_str()))
        }
        _ => false,
    }
}

/// The fields that operands take.
struct Around {
    /// `None` until the first operand says.
    fields: Option<Vec<Ident>>,
    /// Whether they are parameters of a scheme, which operands may name.
    declared: bool,
    takes_flows: bool,
    adjoints: usize,
}

impl Resolver<'_, '_> {
    /// An expression as a scheme of its own.
    pub(super) fn expression(&mut self, e: &Expr) -> Option<Rc<SchemeDef>> {
        let name = Ident {
            name: self.names.quote(e.span).to_string(),
            span: e.span,
        };
        let own = SchemeDef::new(name, Body::Method(e.clone()));
        self.with_term(&own, e)
    }

    /// A scheme whose body is an expression, looked up once.
    pub(super) fn made_of(&mut self, scheme: &SchemeDef, e: &Expr) -> Option<Rc<SchemeDef>> {
        self.made_once(scheme, e.span, |r| r.with_term(scheme, e))
    }

    /// What is made of a scheme that names others at `span`, once.
    pub(super) fn made_once(
        &mut self,
        scheme: &SchemeDef,
        span: Span,
        make: impl FnOnce(&mut Self) -> Option<Rc<SchemeDef>>,
    ) -> Option<Rc<SchemeDef>> {
        let name = &scheme.name;
        if let Some((known, height)) = self.made.get(&name.span) {
            self.height = self.height.max(*height);
            return known.clone();
        }
        if let Some(from) = self.making.iter().position(|n| n.span == name.span) {
            let round = self.making[from..].iter().chain([name]);
            let round: Vec<&str> = round.map(|n| n.name.as_str()).collect();
            let message = format!("scheme `{}` is defined by itself", name.name);
            let d = Diagnostic::error(codes::CYCLIC_DEFINITION, span, message);
            let d = d.label(round.join(" → "));
            return self.fail(d);
        }
        let beside = std::mem::take(&mut self.height);
        self.making.push(name.clone());
        let made = make(self);
        self.making.pop();
        self.made.insert(name.span, (made.clone(), self.height));
        self.height = self.height.max(beside);
        made
    }

    fn with_term(&mut self, own: &SchemeDef, e: &Expr) -> Option<Rc<SchemeDef>> {
        let declared = !own.fields.is_empty();
        let mut around = Around {
            fields: declared.then(|| own.fields.clone()),
            declared,
            takes_flows: true,
            adjoints: 0,
        };
        let (term, fraction) = self.term(e, &mut around)?;
        if let Some(f) = fraction {
            return self.fail(no_fraction(f.span));
        }
        super::unused::operands(&own.fields, &term, self.sink);
        if let (Some((_, span)), 0) = (&own.solve, around.adjoints) {
            let d = Diagnostic::error(codes::NOTHING_TO_SOLVE, *span, "there is nothing to solve")
                .label("here `solve by` applies to adjoints only")
                .help("give an operand its own settings: `compose(gauss4(r: 5), heun)`");
            return self.fail(d);
        }
        let algebra = Algebra {
            term: Rc::new(term),
            takes_flows: around.takes_flows,
        };
        Some(Rc::new(SchemeDef {
            fields: around.fields?,
            body: Body::Algebra(algebra),
            ..own.clone()
        }))
    }

    /// A method, and the fraction of h behind it.
    fn term<'e>(&mut self, e: &'e Expr, around: &mut Around) -> Option<(Term, Option<&'e Expr>)> {
        self.nested(e.span, |r| r.term_inside(e, around))
    }

    fn term_inside<'e>(
        &mut self,
        e: &'e Expr,
        around: &mut Around,
    ) -> Option<(Term, Option<&'e Expr>)> {
        let (name, call) = match &e.kind {
            ExprKind::Call(call) => match name_of(&call.callee) {
                Some(name) => (Some(name), Some(&**call)),
                None if matches!(call.callee.kind, ExprKind::Call(_)) => {
                    return self.with_fraction(call, e.span, around);
                }
                None => (None, None),
            },
            _ => (name_of(e), None),
        };
        let Some(name) = name else {
            let d = Diagnostic::error(codes::NOT_A_SCHEME, e.span, "this is not a scheme")
                .label("a scheme, or a method such as `adjoint(heun)`, is expected");
            return self.fail(d);
        };
        match call {
            Some(call) if METHODS.contains(&name.name.as_str()) => {
                let kind = self.function(&name, call, e.span, around)?;
                Some((Term { kind, span: e.span }, None))
            }
            _ => self.operand(&name, call, e.span, around),
        }
    }

    /// `lie(B, A)(1/2)`.
    fn with_fraction<'e>(
        &mut self,
        call: &'e Call,
        span: Span,
        around: &mut Around,
    ) -> Option<(Term, Option<&'e Expr>)> {
        let (term, inner) = self.term(&call.callee, around)?;
        let [
            Arg {
                label: None,
                value,
                by: None,
            },
        ] = &call.args[..]
        else {
            let message = "one fraction of `h` is expected here";
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            return self.fail(d.help("write `compose(lie(B, A)(1/2), …)`"));
        };
        if let Some(inner) = inner {
            let d = Diagnostic::error(
                codes::REPEATED_ARGUMENT,
                value.span,
                "a second fraction of `h`",
            );
            return self.fail(d.also(inner.span, "the first one"));
        }
        Some((term, Some(value)))
    }

    /// A scheme by name, its fields and settings.
    fn operand<'e>(
        &mut self,
        name: &Ident,
        call: Option<&'e Call>,
        span: Span,
        around: &mut Around,
    ) -> Option<(Term, Option<&'e Expr>)> {
        if METHODS.contains(&name.name.as_str()) {
            let d = Diagnostic::error(
                codes::ARGUMENT_COUNT,
                span,
                format!("`{}` needs its operands", name.name),
            );
            return self.fail(d.help(usage(&name.name)));
        }
        let scheme = match self.definition(name)? {
            Definition::Scheme(scheme) => scheme,
            other => {
                let d = other.not_a_scheme(name);
                return self.fail(d.label("a scheme is expected here"));
            }
        };
        self.is_one_step(&scheme, name)?;
        around.takes_flows &= scheme.body.takes_flows();
        let mut values: Vec<(Ident, Expr)> = Vec::new();
        let mut given: Vec<&Expr> = Vec::new();
        for a in call.iter().flat_map(|c| &c.args) {
            self.no_by(a)?;
            let Some(label) = &a.label else {
                given.push(&a.value);
                continue;
            };
            if !scheme.values.iter().any(|(p, _)| p.name == label.name) {
                let known: Vec<&str> = scheme.values.iter().map(|(p, _)| p.name.as_str()).collect();
                return self.fail(unknown_argument(&name.name, label, &known));
            }
            if let Some((first, _)) = values.iter().find(|(n, _)| n.name == label.name) {
                return self.fail(repeated_argument(label, first.span));
            }
            values.push((label.clone(), a.value.clone()));
        }
        let fields = around.fields.get_or_insert_with(|| scheme.fields.clone());
        let place = |e: &&Expr| {
            let n = name_of(e).filter(|_| around.declared)?;
            fields.iter().position(|f| f.name == n.name)
        };
        let named: Vec<usize> = given.iter().filter_map(place).collect();
        let takes = count(scheme.fields.len(), "field");
        let (places, fraction) = match &given[..] {
            [] | [_] if named.is_empty() && fields.len() == scheme.fields.len() => {
                ((0..fields.len()).collect(), given.first().copied())
            }
            all if !named.is_empty()
                && named.len() == all.len()
                && all.len() == scheme.fields.len() =>
            {
                (named, None)
            }
            _ => {
                let has: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
                let (callee, has) = (&name.name, has.join(", "));
                let message = match named.is_empty() && given.len() < 2 {
                    true => format!("`{callee}` takes {takes}, and here there are {has}"),
                    false if named.len() == given.len() => {
                        format!("`{callee}` takes {takes}, not {}", named.len())
                    }
                    false => format!("`{callee}` takes {takes}, each one of {has}"),
                };
                let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message)
                    .also(scheme.name.span, "defined here");
                let own = scheme.fields.iter().map(|f| f.name.as_str());
                let own: Vec<&str> = own.collect();
                return self.fail(match around.declared {
                    true => d.help(format!("name its fields, and behind them its fraction of `h`: `{}({})(1/2)`", name.name, own.join(", "))),
                    false => d.help(format!("operands take the same fields in one order; otherwise define a scheme: `scheme mine({}) {{ method … }}`", own.join(", "))),
                });
            }
        };
        let operand = Operand {
            scheme,
            values,
            fields: places,
        };
        let kind = TermKind::Scheme(operand);
        Some((Term { kind, span }, fraction))
    }

    /// Methods of one step alone can be reversed, repeated and averaged.
    pub(super) fn is_one_step(&mut self, scheme: &SchemeDef, name: &Ident) -> Option<()> {
        if let Some(list) = &scheme.list {
            let d = not_supported(name.span, "an operand that takes a list of fields");
            return self.fail(d.also(list.span, "the list"));
        }
        if !scheme.looks_back() && !matches!(scheme.body, Body::Multistep(_)) {
            return Some(());
        }
        let message = format!("`{}` reads values of earlier steps", name.name);
        let d = Diagnostic::error(codes::NESTED_HISTORY, name.span, message)
            .label("a one-step method is expected here")
            .also(scheme.name.span, "defined here");
        self.fail(d.help("take a one-step method, such as `heun`, `rk4` or `gauss4`; only an `evolve` keeps a history"))
    }

    pub(super) fn no_by(&mut self, a: &Arg) -> Option<()> {
        let Some(by) = &a.by else {
            return Some(());
        };
        let d = Diagnostic::error(codes::MISPLACED, by.span, "`by` cannot be used here")
            .label("operands are schemes without their fields")
            .help("inner schemes are named where the method is applied: `adjoint(strang)(ffn by heun, att)`");
        self.fail(d)
    }

    fn function(
        &mut self,
        name: &Ident,
        call: &Call,
        span: Span,
        around: &mut Around,
    ) -> Option<TermKind> {
        let label = match name.name.as_str() {
            "adjoint" => Some("iterations"),
            "extrapolate" => Some("sequence"),
            "average" => Some("weights"),
            _ => None,
        };
        let mut labelled: Option<(&Ident, &Expr)> = None;
        let mut given: Vec<&Expr> = Vec::new();
        for a in &call.args {
            self.no_by(a)?;
            match (&a.label, labelled) {
                (None, _) => given.push(&a.value),
                (Some(l), _) if Some(l.name.as_str()) != label => {
                    let known: Vec<&str> = label.into_iter().collect();
                    return self.fail(unknown_argument(&name.name, l, &known));
                }
                (Some(l), Some((first, _))) => return self.fail(repeated_argument(l, first.span)),
                (Some(l), None) => labelled = Some((l, &a.value)),
            }
        }
        let value = labelled.map(|(_, e)| e);
        let wrong = |r: &mut Self, what: &str| {
            let message = format!("`{}` takes {what}, not {}", name.name, given.len());
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            r.fail(d.help(usage(&name.name)))
        };
        Some(match (name.name.as_str(), &given[..]) {
            ("adjoint", [of]) => {
                around.adjoints += 1;
                TermKind::Adjoint {
                    of: self.whole_step(of, around)?,
                    iterations: value.cloned(),
                }
            }
            ("adjoint", _) => return wrong(self, "one method"),
            ("power", [of, n]) => TermKind::Power(self.whole_step(of, around)?, (*n).clone()),
            ("power", _) => return wrong(self, "a method and a number of steps"),
            ("extrapolate", [of, rows @ ..])
                if rows.len() < 2 && !(rows.is_empty() && value.is_none()) =>
            {
                TermKind::Extrapolate(Extrapolation {
                    of: self.whole_step(of, around)?,
                    rows: rows.first().map(|k| (*k).clone()),
                    sequence: self.numbers(value)?,
                })
            }
            ("extrapolate", _) => return wrong(self, "a method and a number of rows"),
            (_, []) => return wrong(self, "one method or more"),
            ("compose", all) => {
                let mut parts: Vec<(Term, Option<Expr>)> = Vec::new();
                for e in all {
                    let (term, fraction) = self.term(e, around)?;
                    if let Some((first, said)) = parts.first()
                        && said.is_some() != fraction.is_some()
                    {
                        let (bare, said) = match said {
                            Some(_) => (term.span, first.span),
                            None => (first.span, term.span),
                        };
                        let message = "this operand has no fraction of `h`";
                        let d = Diagnostic::error(codes::MISSING_ARGUMENT, bare, message)
                            .also(said, "this one does");
                        return self.fail(d.help("write fractions for all operands, or for none: then each takes the same"));
                    }
                    parts.push((term, fraction.cloned()));
                }
                TermKind::Compose(parts)
            }
            (_, all) => {
                let mut of = Vec::new();
                for e in all {
                    of.push(*self.whole_step(e, around)?);
                }
                TermKind::Average {
                    of,
                    weights: self.numbers(value)?,
                }
            }
        })
    }

    /// An operand that takes the whole step.
    fn whole_step(&mut self, e: &Expr, around: &mut Around) -> Option<Box<Term>> {
        let (term, fraction) = self.term(e, around)?;
        match fraction {
            None => Some(Box::new(term)),
            Some(f) => self.fail(no_fraction(f.span)),
        }
    }

    /// A list of numbers, if one is given.
    fn numbers(&mut self, e: Option<&Expr>) -> Option<Option<Numbers>> {
        let Some(e) = e else {
            return Some(None);
        };
        let ExprKind::List(items) = &e.kind else {
            let d = Diagnostic::error(codes::NOT_A_LIST, e.span, "this is not a list");
            return self.fail(d.label("numbers in brackets are expected: `[1, 2, 4]`"));
        };
        Some(Some(Numbers {
            items: items.clone(),
            span: e.span,
        }))
    }
}

fn no_fraction(span: Span) -> Diagnostic {
    Diagnostic::error(
        codes::MISPLACED,
        span,
        "a fraction of `h` cannot be used here",
    )
    .label("only operands of `compose` take parts of the step")
    .help("settings have names: `gauss4(r: 5)`")
}

fn usage(name: &str) -> &'static str {
    match name {
        "adjoint" => "write `adjoint(heun, iterations: 3)`",
        "compose" => "write `compose(euler(1/2), backward_euler(1/2))`",
        "power" => "write `power(heun, 2)`",
        "extrapolate" => {
            "write `extrapolate(euler, 4)`, or `extrapolate(euler, sequence: [1, 2, 4])`"
        }
        _ => "write `average(lie(A, B), lie(B, A))`",
    }
}
