//! Schemes: params, claims, tableaus, splittings, step programs.

use super::{Builder, Children, string};
use crate::ast::*;
use crate::rules::Rule;
use crate::span::Span;
use pest::iterators::Pair;

impl Builder<'_> {
    pub(super) fn scheme(&self, doc: Vec<String>, pair: Pair<Rule>) -> Scheme {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_scheme);
        let name = self.ident(inner.next());
        let params = inner
            .next_if(Rule::params)
            .map(|p| p.into_inner().map(|p| self.param(p)).collect());
        let items = inner
            .rest()
            .filter(|p| !matches!(p.as_rule(), Rule::open | Rule::close | Rule::doc))
            .map(|p| self.scheme_item(p))
            .collect();
        Scheme {
            doc,
            name,
            params: params.unwrap_or_default(),
            items,
            span,
        }
    }

    pub(super) fn param(&self, pair: Pair<Rule>) -> Param {
        let mut inner = Children::of(pair);
        let name = self.ident(inner.next());
        let kind = if inner.skip(Rule::eq) {
            ParamKind::Value(self.expr(inner.next()))
        } else if inner.skip(Rule::history) {
            ParamKind::Fields
        } else {
            ParamKind::Field
        };
        Param { name, kind }
    }

    pub(super) fn scheme_item(&self, pair: Pair<Rule>) -> SchemeItem {
        let span = self.span(&pair);
        let rule = pair.as_rule();
        let mut inner = Children::of(pair);
        match rule {
            Rule::cite => {
                inner.skip(Rule::k_cite);
                SchemeItem::Cite {
                    text: string(&inner.next()),
                    span,
                }
            }
            Rule::order => {
                inner.skip(Rule::k_order);
                let order = self.number(inner.next());
                let within = inner
                    .skip(Rule::k_within)
                    .then(|| self.number(inner.next()));
                SchemeItem::Order {
                    order,
                    within,
                    span,
                }
            }
            Rule::property => {
                let first = inner.next();
                let mut name = Ident {
                    name: first.as_str().to_string(),
                    span: self.span(&first),
                };
                if let Some(order) = inner.next_if(Rule::k_order) {
                    name.name += " order";
                    name.span = name.span.to(self.span(&order));
                }
                let value = inner.next_if(Rule::expr).map(|e| self.expr(e));
                SchemeItem::Property { name, value, span }
            }
            Rule::keep => {
                inner.skip(Rule::k_keep);
                inner.skip(Rule::k_order);
                SchemeItem::Keep {
                    order: self.number(inner.next()),
                    span,
                }
            }
            Rule::constant => {
                inner.skip(Rule::k_let);
                let name = self.ident(inner.next());
                inner.skip(Rule::eq);
                SchemeItem::Let {
                    name,
                    value: self.expr(inner.next()),
                }
            }
            Rule::learn => SchemeItem::Learn(self.learn(span, inner)),
            Rule::learn_from => {
                inner.skip(Rule::k_learn);
                let shared = inner.skip(Rule::shared);
                inner.skip(Rule::per_step);
                let per_channel = inner.skip(Rule::per_channel);
                let what = self.ident(inner.next());
                inner.skip(Rule::k_from);
                SchemeItem::LearnFrom(LearnFrom {
                    shared,
                    per_channel,
                    what,
                    from: self.ident(inner.next()),
                    span,
                })
            }
            Rule::tableau => {
                let rows = inner
                    .rest()
                    .filter(|p| p.as_rule() == Rule::row)
                    .map(|p| self.row(p))
                    .collect();
                SchemeItem::Tableau(Tableau { rows, span })
            }
            Rule::multistep => {
                let lines = inner.rest().filter(|p| p.as_rule() == Rule::line);
                let rows = lines.map(|line| {
                    let mut inner = Children::of(line);
                    let name = self.ident(inner.next());
                    (
                        name,
                        inner.rest().map(|entry| self.wrapped(entry)).collect(),
                    )
                });
                SchemeItem::Multistep {
                    rows: rows.collect(),
                    span,
                }
            }
            Rule::start_by => {
                inner.skip(Rule::k_start);
                inner.skip(Rule::k_by);
                SchemeItem::StartBy {
                    scheme: self.ident(inner.next()),
                    span,
                }
            }
            Rule::solve_by => {
                inner.skip(Rule::k_solve);
                inner.skip(Rule::k_by);
                SchemeItem::SolveBy {
                    method: self.method(inner.next()),
                    span,
                }
            }
            Rule::start => {
                inner.skip(Rule::k_start);
                SchemeItem::Start {
                    body: self.statements(inner),
                    span,
                }
            }
            Rule::step => {
                inner.skip(Rule::k_step);
                let state = self.ident(inner.next());
                SchemeItem::Step(Step {
                    state,
                    body: self.statements(inner),
                    span,
                })
            }
            Rule::expression => {
                inner.skip(Rule::k_method);
                SchemeItem::Method {
                    value: self.expr(inner.next()),
                    span,
                }
            }
            Rule::embedded => {
                inner.skip(Rule::k_embedded);
                SchemeItem::Embedded {
                    flows: inner.rest().map(|p| self.sub_flow(p)).collect(),
                    span,
                }
            }
            _ => SchemeItem::Splitting(inner.rest().map(|p| self.sub_flow(p)).collect()),
        }
    }

    pub(super) fn learn(&self, span: Span, mut inner: Children) -> Learn {
        inner.skip(Rule::k_learn);
        let shared = inner.skip(Rule::shared);
        inner.skip(Rule::per_step);
        let per_channel = inner.skip(Rule::per_channel);
        let name = self.ident(inner.next());
        let len = if inner.skip(Rule::history) {
            LearnLen::History
        } else if let Some(count) = inner.next_if(Rule::count) {
            LearnLen::Count(self.wrapped(count))
        } else {
            LearnLen::Scalar
        };
        inner.skip(Rule::eq);
        Learn {
            shared,
            per_channel,
            name,
            len,
            init: self.expr(inner.next()),
            span,
        }
    }

    pub(super) fn row(&self, pair: Pair<Rule>) -> TableauRow {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        let c = inner.next_if(Rule::node).map(|p| self.wrapped(p));
        inner.skip(Rule::bar);
        TableauRow {
            c,
            entries: inner.rest().map(|p| self.wrapped(p)).collect(),
            span,
        }
    }

    pub(super) fn method(&self, pair: Pair<Rule>) -> Method {
        let mut inner = Children::of(pair);
        let call = self.expr(inner.next());
        let gradient = inner.next_if(Rule::gradient).map(|p| self.gradient(p));
        Method { call, gradient }
    }

    pub(super) fn gradient(&self, pair: Pair<Rule>) -> Expr {
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_gradient);
        self.expr(inner.next())
    }

    pub(super) fn sub_flow(&self, pair: Pair<Rule>) -> SubFlow {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        let name = self.ident(inner.next());
        let first = inner.next();
        let (args, last) = match inner.next_if(Rule::args) {
            Some(last) => (Some(self.args(first)), last),
            None => (None, first),
        };
        let fraction = self.fraction(&name, last);
        SubFlow {
            name,
            args,
            fraction,
            span,
        }
    }

    /// The one expression in brackets; of anything else a call, which is no number.
    fn fraction(&self, name: &Ident, pair: Pair<Rule>) -> Expr {
        let span = name.span.to(self.span(&pair));
        match &self.args(pair)[..] {
            [
                Arg {
                    label: None,
                    value,
                    by: None,
                },
            ] => value.clone(),
            args => {
                let kind = ExprKind::Name(name.name.clone());
                let callee = Expr {
                    kind,
                    span: name.span,
                };
                let args = args.to_vec();
                Expr {
                    kind: ExprKind::Call(Box::new(Call { callee, args })),
                    span,
                }
            }
        }
    }

    /// `{ statement* }`
    pub(super) fn statements(&self, inner: Children) -> Vec<Stmt> {
        let body = inner
            .rest()
            .filter(|p| !matches!(p.as_rule(), Rule::open | Rule::close | Rule::doc));
        body.map(|p| self.statement(p)).collect()
    }

    pub(super) fn statement(&self, pair: Pair<Rule>) -> Stmt {
        let span = self.span(&pair);
        let rule = pair.as_rule();
        let mut inner = Children::of(pair);
        match rule {
            Rule::solve => {
                inner.skip(Rule::k_solve);
                let name = self.ident(inner.next());
                inner.skip(Rule::eq);
                let value = self.expr(inner.next());
                inner.skip(Rule::k_from);
                let from = self.expr(inner.next());
                inner.skip(Rule::k_by);
                Stmt::Solve {
                    name,
                    value,
                    from,
                    method: self.method(inner.next()),
                    span,
                }
            }
            Rule::repeat => {
                inner.skip(Rule::k_repeat);
                let head = inner.next();
                let count = match head.as_rule() {
                    Rule::over => {
                        let (name, over) = self.over(head);
                        RepeatCount::Over(name, over)
                    }
                    _ => RepeatCount::Times(self.expr(head)),
                };
                Stmt::Repeat {
                    count,
                    body: self.statements(inner),
                    span,
                }
            }
            Rule::give => {
                inner.skip(Rule::k_return);
                let value = self.expr(inner.next());
                let embedded = inner
                    .skip(Rule::k_embedded)
                    .then(|| self.expr(inner.next()));
                Stmt::Return {
                    value,
                    embedded,
                    span,
                }
            }
            _ => {
                let name = self.ident(inner.next());
                inner.skip(Rule::eq);
                Stmt::Assign {
                    name,
                    value: self.expr(inner.next()),
                    span,
                }
            }
        }
    }

    pub(super) fn over(&self, pair: Pair<Rule>) -> (Ident, Over) {
        let mut inner = Children::of(pair);
        let name = self.ident(inner.next());
        inner.skip(Rule::k_in);
        let range = inner.next();
        let over = match range.as_rule() {
            Rule::slice => {
                let mut inner = Children::of(range);
                let list = self.ident(inner.next());
                Over::Fields(list, self.range(inner.next()))
            }
            _ => Over::Numbers(self.range(range)),
        };
        (name, over)
    }
}
