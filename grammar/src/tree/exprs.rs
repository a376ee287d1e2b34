//! Expressions: operators grouped, references, calls, ranges.

use super::{Builder, Children, string};
use crate::ast::*;
use crate::rules::Rule;
use crate::span::Span;
use pest::iterators::Pair;

impl Builder<'_> {
    /// `expr? dots expr?`, as `range` or as a `value` with dots in it.
    pub(super) fn range(&self, pair: Pair<Rule>) -> Range {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        let start = inner.next_if(Rule::expr).map(|p| self.expr(p));
        let inclusive = inner
            .next_if(Rule::dots)
            .is_some_and(|p| p.as_str() == "..=");
        let end = inner.next_if(Rule::expr).map(|p| self.expr(p));
        Range {
            start,
            end,
            inclusive,
            span,
        }
    }

    /// `value`: an expression or a range.
    pub fn value(&self, pair: Pair<Rule>) -> Expr {
        let span = self.span(&pair);
        let is_range = pair.clone().into_inner().any(|p| p.as_rule() == Rule::dots);
        match is_range {
            true => Expr {
                kind: ExprKind::Range(Box::new(self.range(pair))),
                span,
            },
            false => self.wrapped(pair),
        }
    }

    pub(super) fn expr(&self, pair: Pair<Rule>) -> Expr {
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::expr | Rule::pipe | Rule::product => return self.chain(pair),
            Rule::unary => {
                let mut inner = Children::of(pair);
                let negative = inner.skip(Rule::minus);
                let value = self.expr(inner.next());
                match negative {
                    true => ExprKind::Neg(Box::new(value)),
                    false => return value,
                }
            }
            Rule::power => return self.power(pair),
            Rule::quantity => {
                let mut inner = Children::of(pair);
                let number = inner.next().as_str().to_string();
                match inner.next_if(Rule::unit) {
                    Some(unit) => ExprKind::Quantity(number, unit.as_str().trim().to_string()),
                    None => ExprKind::Number(number),
                }
            }
            Rule::string => ExprKind::Str(string(&pair)),
            Rule::list => ExprKind::List(pair.into_inner().map(|p| self.value(p)).collect()),
            Rule::tuple => {
                let mut values: Vec<Expr> = pair.into_inner().map(|p| self.expr(p)).collect();
                match values.len() {
                    // Parentheses only group; the span keeps them.
                    1 => {
                        return Expr {
                            span,
                            ..values.remove(0)
                        };
                    }
                    _ => ExprKind::Tuple(values),
                }
            }
            Rule::sum => {
                let mut inner = Children::of(pair);
                inner.skip(Rule::k_sum);
                let (var, over) = self.over(inner.next());
                inner.skip(Rule::open);
                ExprKind::Sum {
                    var,
                    over: Box::new(over),
                    body: Box::new(self.expr(inner.next())),
                }
            }
            Rule::flow => {
                let mut inner = Children::of(pair);
                inner.skip(Rule::k_flow);
                let mut flows = Vec::new();
                while let Some(flow) = inner.next_if(Rule::sub_flow) {
                    flows.push(self.sub_flow(flow));
                }
                inner.skip(Rule::k_from);
                ExprKind::Flow {
                    flows,
                    from: Box::new(self.expr(inner.next())),
                }
            }
            _ => return self.reference(pair),
        };
        Expr { kind, span }
    }

    /// `operand (operator operand)*`, grouped to the left.
    pub(super) fn chain(&self, pair: Pair<Rule>) -> Expr {
        let mut inner = Children::of(pair);
        let mut left = self.expr(inner.next());
        let mut rest = inner.rest();
        while let (Some(op), Some(right)) = (rest.next(), rest.next()) {
            let right = self.expr(right);
            let span = left.span.to(right.span);
            let (a, b) = (Box::new(left), Box::new(right));
            let kind = match op.as_str() {
                "|>" => ExprKind::Pipe(a, b),
                "+" => ExprKind::Binary(BinOp::Add, a, b),
                "-" => ExprKind::Binary(BinOp::Sub, a, b),
                "*" => ExprKind::Binary(BinOp::Mul, a, b),
                _ => ExprKind::Binary(BinOp::Div, a, b),
            };
            left = Expr { kind, span };
        }
        left
    }

    /// `primary (^ -? primary)*`, grouped to the right.
    pub(super) fn power(&self, pair: Pair<Rule>) -> Expr {
        let mut inner = Children::of(pair);
        let mut terms = vec![(None, self.expr(inner.next()))];
        while inner.skip(Rule::pow_op) {
            let minus = inner.next_if(Rule::minus).map(|p| self.span(&p));
            terms.push((minus, self.expr(inner.next())));
        }
        let negated = |(minus, value): (Option<Span>, Expr)| match minus {
            Some(minus) => Expr {
                span: minus.to(value.span),
                kind: ExprKind::Neg(Box::new(value)),
            },
            None => value,
        };
        let mut acc = None;
        while let Some((minus, base)) = terms.pop() {
            let value = match acc {
                None => base,
                Some(exponent) => power_of(base, exponent),
            };
            acc = Some(negated((minus, value)));
        }
        acc.expect("a power has a base")
    }

    /// `name`, `name[i]`, `name(…)`, `name[i](…)`, `name(…)(…)`.
    pub(super) fn reference(&self, pair: Pair<Rule>) -> Expr {
        let mut inner = Children::of(pair);
        let name = self.ident(inner.next());
        let name_span = name.span;
        let mut callee = match inner.next_if(Rule::index) {
            Some(index) => {
                let span = name_span.to(self.span(&index));
                Expr {
                    kind: ExprKind::Index(name, Box::new(self.wrapped(index))),
                    span,
                }
            }
            None => Expr {
                kind: ExprKind::Name(name.name),
                span: name_span,
            },
        };
        while let Some(args) = inner.next_if(Rule::args) {
            let span = name_span.to(self.span(&args));
            let args = self.args(args);
            callee = Expr {
                kind: ExprKind::Call(Box::new(Call { callee, args })),
                span,
            };
        }
        callee
    }

    /// What stands in brackets behind a name.
    pub(super) fn args(&self, pair: Pair<Rule>) -> Vec<Arg> {
        pair.into_inner().map(|p| self.arg(p)).collect()
    }

    pub(super) fn arg(&self, pair: Pair<Rule>) -> Arg {
        let mut inner = Children::of(pair);
        let label = inner
            .next_if(Rule::label)
            .map(|p| self.ident(Children::of(p).next()));
        let value = match inner.next_if(Rule::counted) {
            Some(counted) => self.counted(counted),
            None => self.value(inner.next()),
        };
        let by = inner.next_if(Rule::by).map(|p| {
            let mut inner = Children::of(p);
            inner.skip(Rule::k_by);
            self.expr(inner.next())
        });
        Arg { label, value, by }
    }

    /// `200 steps`.
    fn counted(&self, pair: Pair<Rule>) -> Expr {
        let span = self.span(&pair);
        let number = Children::of(pair).next().as_str().to_string();
        Expr {
            kind: ExprKind::Quantity(number, "steps".into()),
            span,
        }
    }

    /// `2 h`.
    pub(super) fn lasting(&self, pair: Pair<Rule>) -> Expr {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        let [number, unit] = [inner.next(), inner.next()].map(|p| p.as_str().to_string());
        Expr {
            kind: ExprKind::Quantity(number, unit),
            span,
        }
    }

    pub(super) fn number(&self, pair: Pair<Rule>) -> Expr {
        Expr {
            kind: ExprKind::Number(pair.as_str().to_string()),
            span: self.span(&pair),
        }
    }

    /// A rule that holds one expression: `entry`, `node`, `count`, `index`.
    pub(super) fn wrapped(&self, pair: Pair<Rule>) -> Expr {
        self.expr(Children::of(pair).next())
    }
}

fn power_of(base: Expr, exponent: Expr) -> Expr {
    let span = base.span.to(exponent.span);
    Expr {
        kind: ExprKind::Binary(BinOp::Pow, Box::new(base), Box::new(exponent)),
        span,
    }
}
