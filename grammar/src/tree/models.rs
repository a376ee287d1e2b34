//! Fields, layers, models, training and exploring.

use super::{Builder, Children};
use crate::ast::*;
use crate::rules::Rule;
use pest::iterators::Pair;

impl Builder<'_> {
    pub(super) fn field(&self, doc: Vec<String>, pair: Pair<Rule>) -> Field {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_field);
        let name = self.ident(inner.next());
        let params = inner
            .next_if(Rule::field_params)
            .map(|p| p.into_inner().map(|p| self.ident(p)).collect());
        Field {
            doc,
            name,
            params: params.unwrap_or_default(),
            body: self.body(inner),
            span,
        }
    }

    pub(super) fn layer(&self, doc: Vec<String>, pair: Pair<Rule>) -> Layer {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_layer);
        let name = self.ident(inner.next());
        let params = inner
            .next_if(Rule::layer_params)
            .map(|p| p.into_inner().map(|p| self.layer_param(p)).collect());
        let role = inner.next_if(Rule::role);
        let role = role.map(|p| self.role(p));
        Layer {
            doc,
            name,
            params: params.unwrap_or_default(),
            role,
            body: self.body(inner),
            span,
        }
    }

    /// `eq expr`, or statements in braces.
    fn body(&self, mut inner: Children) -> Body {
        if inner.skip(Rule::eq) {
            return Body::Expr(self.expr(inner.next()));
        }
        let open = self.span(&inner.next());
        let (mut statements, mut span) = (Vec::new(), open);
        for p in inner.rest() {
            span = span.to(self.span(&p));
            match p.as_rule() {
                Rule::close | Rule::doc => {}
                _ => statements.push(self.body_statement(p)),
            }
        }
        Body::Block { statements, span }
    }

    fn body_statement(&self, pair: Pair<Rule>) -> BodyStmt {
        let span = self.span(&pair);
        let rule = pair.as_rule();
        let mut inner = Children::of(pair);
        match rule {
            Rule::body_give => {
                inner.skip(Rule::k_return);
                BodyStmt::Return {
                    value: self.expr(inner.next()),
                    span,
                }
            }
            Rule::body_learn => {
                inner.skip(Rule::k_learn);
                let name = self.ident(inner.next());
                let shape = inner.next_if(Rule::shape);
                let shape = shape.map(|p| Children::of(p).rest().map(|e| self.expr(e)).collect());
                inner.skip(Rule::eq);
                BodyStmt::Learn {
                    name,
                    shape: shape.unwrap_or_default(),
                    init: self.expr(inner.next()),
                }
            }
            _ => {
                let name = self.ident(inner.next());
                inner.skip(Rule::eq);
                BodyStmt::Set {
                    name,
                    value: self.expr(inner.next()),
                }
            }
        }
    }

    /// `as word`
    fn role(&self, pair: Pair<Rule>) -> Ident {
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_as);
        self.ident(inner.next())
    }

    /// `from? ident kind? (eq expr)?`
    fn layer_param(&self, pair: Pair<Rule>) -> LayerParam {
        let mut inner = Children::of(pair);
        let given_as = inner.next_if(Rule::k_from).map(|p| self.ident(p));
        let name = self.ident(inner.next());
        let mut said = inner.next_if(Rule::kind).map(Children::of);
        let kind = said.as_mut().map(|said| self.ident(said.next()));
        let bounds = said.and_then(|mut said| said.next_if(Rule::bounds));
        let bounds = bounds.map(|pair| self.bounds(pair));
        let default = inner.skip(Rule::eq).then(|| self.expr(inner.next()));
        LayerParam {
            given_as,
            name,
            kind,
            bounds,
            default,
        }
    }

    /// `least most? | most`
    fn bounds(&self, pair: Pair<Rule>) -> Bounds {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        let mut bound = |end: Rule, included: Rule| {
            let mut said = Children::of(inner.next_if(end)?);
            let included = said.next().as_rule() == included;
            let at = self.expr(said.next());
            Some(Bound { at, included })
        };
        Bounds {
            least: bound(Rule::least, Rule::k_from),
            most: bound(Rule::most, Rule::k_to),
            span,
        }
    }

    pub(super) fn model(&self, doc: Vec<String>, pair: Pair<Rule>) -> Model {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_model);
        let name = self.ident(inner.next());
        let items = inner
            .rest()
            .filter(|p| !matches!(p.as_rule(), Rule::open | Rule::close | Rule::doc));
        Model {
            doc,
            name,
            items: items.map(|p| self.model_item(p)).collect(),
            span,
        }
    }

    pub(super) fn model_item(&self, pair: Pair<Rule>) -> ModelItem {
        let span = self.span(&pair);
        let rule = pair.as_rule();
        if rule == Rule::evolve {
            return ModelItem::Evolve(self.evolve(pair));
        }
        let mut label = None;
        let mut inside = pair.into_inner().peekable();
        while let Some(part) = inside.next_if(|p| p.as_rule() != Rule::expr) {
            if part.as_rule() == Rule::called_so {
                label = Some(self.ident(Children::of(part).next()));
            }
        }
        let mut values: Vec<Expr> = inside
            .filter(|p| p.as_rule() == Rule::expr)
            .map(|p| self.expr(p))
            .collect();
        match rule {
            Rule::embed => ModelItem::Embed {
                label,
                values,
                span,
            },
            Rule::input => ModelItem::Input {
                label,
                value: values.remove(0),
                span,
            },
            Rule::output => ModelItem::Output {
                label,
                value: values.remove(0),
                span,
            },
            _ => ModelItem::Init {
                value: values.remove(0),
                span,
            },
        }
    }

    pub(super) fn evolve(&self, pair: Pair<Rule>) -> Evolve {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_evolve);
        let label = inner
            .next_if(Rule::called_so)
            .map(|p| self.ident(Children::of(p).next()));
        let flow = self.expr(inner.next());
        inner.skip(Rule::k_for);
        let extent = self.expr(inner.next());
        let _ = inner.skip(Rule::k_steps) || inner.skip(Rule::k_step);
        let options = inner.next_if(Rule::options).map(|p| {
            let options = p
                .into_inner()
                .filter(|p| !matches!(p.as_rule(), Rule::open | Rule::close | Rule::doc));
            options.map(|p| self.option(p)).collect()
        });
        Evolve {
            label,
            flow,
            extent,
            options: options.unwrap_or_default(),
            span,
        }
    }

    pub(super) fn option(&self, pair: Pair<Rule>) -> EvolveOption {
        let span = self.span(&pair);
        let rule = pair.as_rule();
        if rule == Rule::gradient {
            return EvolveOption::Gradient {
                value: self.gradient(pair),
                span,
            };
        }
        let mut inner = Children::of(pair);
        match rule {
            Rule::learn_h => {
                inner.skip(Rule::k_learn);
                let shared = inner.skip(Rule::shared);
                let per_channel = inner.skip(Rule::per_channel);
                inner.skip(Rule::k_h);
                inner.skip(Rule::eq);
                EvolveOption::LearnH {
                    shared,
                    per_channel,
                    value: self.expr(inner.next()),
                    span,
                }
            }
            Rule::set_h => {
                inner.skip(Rule::k_h);
                inner.skip(Rule::eq);
                EvolveOption::H {
                    value: self.expr(inner.next()),
                    span,
                }
            }
            Rule::report => {
                inner.skip(Rule::k_report);
                let name = self.ident(inner.next());
                inner.skip(Rule::eq);
                EvolveOption::Report {
                    name,
                    value: self.expr(inner.next()),
                    span,
                }
            }
            _ => {
                inner.skip(Rule::k_weights);
                let policies = inner.rest().map(|p| {
                    let mut inner = Children::of(p);
                    let field = inner.next_if(Rule::ident).map(|p| self.ident(p));
                    (field, self.policy(inner.next()))
                });
                EvolveOption::Weights {
                    policies: policies.collect(),
                    span,
                }
            }
        }
    }

    pub(super) fn policy(&self, pair: Pair<Rule>) -> Policy {
        let span = self.span(&pair);
        let policy = Children::of(pair).next();
        let rule = policy.as_rule();
        let mut inner = Children::of(policy);
        let kind = match rule {
            Rule::per_step => PolicyKind::PerStep,
            Rule::per_use => PolicyKind::PerUse,
            Rule::shared => PolicyKind::Shared,
            Rule::every => {
                inner.skip(Rule::k_every);
                PolicyKind::Every(self.number(inner.next()))
            }
            Rule::cycle => {
                inner.skip(Rule::k_cycle);
                PolicyKind::Cycle(self.number(inner.next()))
            }
            _ => {
                let args = inner.rest().filter(|p| p.as_rule() == Rule::arg);
                PolicyKind::TimeDependent(args.map(|p| self.arg(p)).collect())
            }
        };
        Policy { kind, span }
    }

    /// `train { … }` and `explore { … }`.
    pub(super) fn block(&self, pair: Pair<Rule>) -> Block {
        let span = self.span(&pair);
        let mut block = Block {
            entries: Vec::new(),
            matches: Vec::new(),
            conditions: Vec::new(),
            span,
        };
        for part in pair.into_inner() {
            if !matches!(part.as_rule(), Rule::train_entry | Rule::explore_entry) {
                continue;
            }
            let first = part.clone().into_inner().next();
            match first.map(|p| p.as_rule()) {
                Some(Rule::k_match) => block.matches.push(self.matched(part)),
                Some(Rule::k_where) => block.conditions.push(self.condition(part)),
                _ => block.entries.push(self.entry(part)),
            }
        }
        block
    }

    /// `match flops by train.steps within 1%`
    fn matched(&self, pair: Pair<Rule>) -> Match {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_match);
        let what = self.key(inner.next());
        inner.skip(Rule::k_by);
        let by = self.key(inner.next());
        let within = inner.skip(Rule::k_within).then(|| self.expr(inner.next()));
        Match {
            what,
            by,
            within,
            span,
        }
    }

    /// `where width/heads in [16, 32]`
    fn condition(&self, pair: Pair<Rule>) -> Condition {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_where);
        let of = self.expr(inner.next());
        inner.skip(Rule::k_in);
        let values = self.value(inner.next());
        Condition { of, values, span }
    }

    fn key(&self, pair: Pair<Rule>) -> Vec<Ident> {
        pair.into_inner().map(|p| self.ident(p)).collect()
    }

    pub(super) fn entry(&self, pair: Pair<Rule>) -> Entry {
        let span = self.span(&pair);
        let mut inner = Children::of(pair);
        let key = self.key(inner.next());
        let is_in = inner.skip(Rule::k_in);
        let (exceptions, values): (Vec<_>, Vec<_>) =
            inner.rest().partition(|p| p.as_rule() == Rule::exception);
        Entry {
            key,
            is_in,
            values: (values.into_iter())
                .map(|p| match p.as_rule() {
                    Rule::lasting => self.lasting(p),
                    _ => self.value(p),
                })
                .collect(),
            exceptions: exceptions.into_iter().map(|p| self.exception(p)).collect(),
            span,
        }
    }

    /// `except norm, embed { weight_decay: 0 }`, `except embed by sgd(lr: 0.1)`.
    fn exception(&self, pair: Pair<Rule>) -> Exception {
        let span = self.span(&pair);
        let (mut names, mut args, mut instead) = (Vec::new(), Vec::new(), None);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::chosen => names.push(self.ident(part)),
                Rule::arg => args.push(self.arg(part)),
                Rule::by => {
                    let mut inner = Children::of(part);
                    inner.skip(Rule::k_by);
                    instead = Some(self.expr(inner.next()));
                }
                _ => {}
            }
        }
        Exception {
            names,
            meant: instead.map_or(Meant::Arguments(args), Meant::Instead),
            span,
        }
    }
}
