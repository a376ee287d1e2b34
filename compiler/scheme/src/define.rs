//! Reads the definition of one scheme and checks its parts: parameters, constants, claims, right-hand side.

use super::algebra::Term;
use super::history::History;
use super::mentions::Mentions;
use super::multistep::{self, Multistep};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{
    Expr, Ident, Learn, LearnFrom, Method, ParamKind, RepeatCount, Scheme, SchemeItem, Step, Stmt,
    SubFlow, Tableau,
};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of a step, from 0, where a scheme defines no such name of its own.
pub const NUMBER: &str = "k";
/// Its symbol in coefficients of a step that is no certain one: no name, for it is a keyword.
pub const STEP: &str = "step";

/// A scheme whose parts are known; its coefficients are evaluated when it is applied.
#[derive(Clone, Debug)]
pub struct SchemeDef {
    pub name: Ident,
    /// Field parameters, in order. A tableau without parameters has one, `F`.
    pub fields: Vec<Ident>,
    /// The list parameter, the last one: `L[..]`.
    pub list: Option<Ident>,
    /// Value parameters with their defaults.
    pub values: Vec<(Ident, Expr)>,
    pub lets: Vec<(Ident, Expr)>,
    /// Learned coefficients, as declared.
    pub learns: Vec<Learn>,
    pub body: Body,
    /// Whose coefficients the body's entries start from, where they are learned.
    pub learned: Option<LearnFrom>,
    /// The schemes that its sub-flows name, looked up where it is applied.
    pub inner: BTreeMap<String, Rc<SchemeDef>>,
    /// The partner of a splitting.
    pub embedded: Option<Vec<SubFlow>>,
    /// What `start { … }` says, and where.
    pub start: Option<(Vec<Stmt>, Span)>,
    /// The scheme that takes the first steps of a multistep method.
    pub start_by: Option<Ident>,
    /// What a step keeps for later ones.
    pub history: History,
    /// Whether a step reads its number ([`NUMBER`]).
    pub numbered: bool,
    /// How the stages of an implicit tableau are found.
    pub solve: Option<(Method, Span)>,
    pub claims: Vec<OrderClaim>,
    /// Claims about anything but the order.
    pub properties: Vec<PropertyClaim>,
    /// The order that the learned coefficients keep while they are trained.
    pub keep: Option<(Expr, Span)>,
}

/// `order 4`, `order 4 within 1e-14`.
#[derive(Clone, Debug)]
pub struct OrderClaim {
    /// As written.
    pub text: String,
    pub order: Expr,
    pub within: Option<Expr>,
    pub span: Span,
}

/// `stages 4`, `A_stable`.
#[derive(Clone, Debug)]
pub struct PropertyClaim {
    pub name: String,
    pub value: Option<Expr>,
    pub span: Span,
}

impl SchemeDef {
    /// The residual that its claims allow where its coefficients are rounded: `order 4 within 1e-14`.
    pub fn residual(&self) -> Option<&Expr> {
        self.claims.iter().find_map(|c| c.within.as_ref())
    }

    /// A scheme of a body alone.
    pub fn new(name: Ident, body: Body) -> SchemeDef {
        SchemeDef {
            name,
            fields: Vec::new(),
            list: None,
            values: Vec::new(),
            lets: Vec::new(),
            learns: Vec::new(),
            body,
            learned: None,
            inner: BTreeMap::new(),
            embedded: None,
            start: None,
            start_by: None,
            history: History::default(),
            numbered: false,
            solve: None,
            claims: Vec::new(),
            properties: Vec::new(),
            keep: None,
        }
    }

    /// Whether a step reads what earlier ones made.
    pub fn looks_back(&self) -> bool {
        self.start.is_some() || !self.history.past.is_empty()
    }
}

/// The ways to write a step.
#[derive(Clone, Debug)]
pub enum Body {
    Tableau(Tableau),
    Splitting(Vec<SubFlow>),
    Step(Step),
    Multistep(Multistep),
    /// `learn tableau from rk4`: the method of another scheme, which is looked up when this one is applied.
    LearnedFrom(LearnFrom),
    /// `method adjoint(heun)`, whose names are looked up when this one is applied.
    Method(Expr),
    /// The same, looked up.
    Algebra(Algebra),
}

impl Body {
    /// Whether its fields may be flows, or name the schemes that advance them.
    pub fn takes_flows(&self) -> bool {
        match self {
            Body::Splitting(_) | Body::Step(_) => true,
            Body::Algebra(a) => a.takes_flows,
            Body::Tableau(_) | Body::Multistep(_) | Body::LearnedFrom(_) | Body::Method(_) => false,
        }
    }
}

/// A method made of others.
#[derive(Clone, Debug)]
pub struct Algebra {
    pub term: Rc<Term>,
    /// Whether flows may stand for its fields, as in all schemes that it is made of.
    pub takes_flows: bool,
}

/// Sorts the parts of a scheme. `text` is the source, for quoting claims as they were written.
pub fn define(ast: &Scheme, text: &str, sink: &mut Vec<Diagnostic>) -> Option<SchemeDef> {
    let before = sink.len();
    let mut def = SchemeDef::new(ast.name.clone(), Body::Splitting(Vec::new()));
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for p in &ast.params {
        if let Some(first) = seen.insert(&p.name.name, p.name.span) {
            let message = format!("two parameters are called `{}`", p.name.name);
            sink.push(
                Diagnostic::error(codes::REDEFINITION, p.name.span, message)
                    .also(first, "the first one"),
            );
        }
        match &p.kind {
            ParamKind::Field | ParamKind::Fields if !def.values.is_empty() => sink.push(
                Diagnostic::error(
                    codes::PARAMETER_ORDER,
                    p.name.span,
                    "a field parameter comes after a value parameter",
                )
                .help("fields come first: `scheme name(F, r = 3)`"),
            ),
            ParamKind::Field | ParamKind::Fields if def.list.is_some() => sink.push(
                Diagnostic::error(
                    codes::PARAMETER_ORDER,
                    p.name.span,
                    "a field parameter comes after a list of fields",
                )
                .help("one list, after all single fields: `scheme name(A, L[..])`"),
            ),
            ParamKind::Field => def.fields.push(p.name.clone()),
            ParamKind::Fields => def.list = Some(p.name.clone()),
            ParamKind::Value(default) => def.values.push((p.name.clone(), default.clone())),
        }
    }
    let mut bodies: Vec<(Body, Span)> = Vec::new();
    let mut partner: Option<Span> = None;
    for item in &ast.items {
        match item {
            SchemeItem::Cite { .. } => {}
            SchemeItem::Order {
                order,
                within,
                span,
            } => {
                let quote = |s: Span| {
                    text.get(s.start as usize..s.end as usize)
                        .unwrap_or("")
                        .trim()
                        .to_string()
                };
                let mut claim = format!("order {}", quote(order.span));
                if let Some(within) = within {
                    claim += &format!(" within {}", quote(within.span));
                }
                def.claims.push(OrderClaim {
                    text: claim,
                    order: order.clone(),
                    within: within.clone(),
                    span: *span,
                });
            }
            SchemeItem::Let { name, value } => def.lets.push((name.clone(), value.clone())),
            SchemeItem::Tableau(t) => bodies.push((Body::Tableau(t.clone()), t.span)),
            SchemeItem::Step(s) => bodies.push((Body::Step(s.clone()), s.span)),
            SchemeItem::Splitting(flows) => {
                let span = flows
                    .iter()
                    .map(|f| f.span)
                    .reduce(Span::to)
                    .unwrap_or(ast.name.span);
                bodies.push((Body::Splitting(flows.clone()), span));
            }
            SchemeItem::Method { value, span } => bodies.push((Body::Method(value.clone()), *span)),
            SchemeItem::Property { name, value, span } => def.properties.push(PropertyClaim {
                name: name.name.clone(),
                value: value.clone(),
                span: *span,
            }),
            SchemeItem::Keep { order, span } => match &def.keep {
                Some((_, first)) => sink.push(
                    Diagnostic::error(codes::REPEATED_ITEM, *span, "`keep order` is given twice")
                        .also(*first, "first given here")
                        .help("all learned coefficients of a scheme keep one order together"),
                ),
                None => def.keep = Some((order.clone(), *span)),
            },
            SchemeItem::Learn(l) => def.learns.push(l.clone()),
            SchemeItem::LearnFrom(l) => bodies.push((Body::LearnedFrom(l.clone()), l.span)),
            SchemeItem::Multistep { rows, span } => {
                let read = Multistep::read(rows, *span, sink);
                bodies.extend(read.map(|m| (Body::Multistep(m), *span)));
            }
            SchemeItem::StartBy { scheme, span } => match &def.start_by {
                Some(first) => sink.push(
                    Diagnostic::error(codes::REPEATED_ITEM, *span, "`start by` is given twice")
                        .also(first.span, "first given here"),
                ),
                None => def.start_by = Some(scheme.clone()),
            },
            SchemeItem::SolveBy { method, span } => match &def.solve {
                Some((_, first)) => sink.push(
                    Diagnostic::error(codes::REPEATED_ITEM, *span, "`solve by` is given twice")
                        .also(*first, "first given here"),
                ),
                None => def.solve = Some((method.clone(), *span)),
            },
            SchemeItem::Start { body, span } => match &def.start {
                Some((_, first)) => sink.push(
                    Diagnostic::error(codes::REPEATED_ITEM, *span, "a second `start`")
                        .also(*first, "the first one"),
                ),
                None => def.start = Some((body.clone(), *span)),
            },
            SchemeItem::Embedded { flows, span } => match partner.replace(*span) {
                Some(first) => sink.push(
                    Diagnostic::error(codes::REPEATED_ITEM, *span, "a second embedded partner")
                        .also(first, "the first one"),
                ),
                None => def.embedded = Some(flows.clone()),
            },
        }
    }
    let unsupported = sink.len() > before;
    let mut bodies = bodies.into_iter();
    match (bodies.next(), bodies.next()) {
        (Some((body, _)), None) => def.body = body,
        (Some((_, first)), Some((_, second))) => sink.push(
            Diagnostic::error(codes::SCHEME_BODY, second, format!("scheme `{}` defines its step twice", def.name.name))
                .label("a second one")
                .also(first, "the first one"),
        ),
        (None, _) if unsupported => {}
        (None, _) => sink.push(
            Diagnostic::error(codes::SCHEME_BODY, def.name.span, format!("scheme `{}` does not define its step", def.name.name))
                .help("give it a `tableau { … }`, a splitting such as `A(1/2) B(1) A(1/2)`, or `step x { … return … }`, or combine other schemes: `method compose(heun, midpoint)`"),
        ),
    }
    if let (Some(span), false, false) =
        (partner, matches!(def.body, Body::Splitting(_)), unsupported)
    {
        sink.push(
            Diagnostic::error(codes::MISPLACED, span, "`embedded` needs a splitting")
                .help("in a tableau, write a second row of weights; in a step program, `return y embedded z`"),
        );
    }
    def.history = super::history::check(&def, sink);
    def.numbered = reads_number(&def);
    if !unsupported {
        super::learn::check(&def, sink);
    }
    match (&def.body, &def.start_by) {
        (Body::Multistep(m), _) => multistep::check(&def, m, sink),
        (Body::LearnedFrom(l), _) if l.what.name == "multistep" => {}
        (Body::Step(_), Some(by)) if !unsupported => started(&def, by, sink),
        (_, Some(by)) if !unsupported => sink.push(
            Diagnostic::error(
                codes::NOTHING_TO_START,
                by.span,
                "there is no multistep method to start",
            )
            .help("`start by` is for multistep methods and for step programs that read earlier values"),
        ),
        _ => {}
    }
    if let (Some(list), false) = (&def.list, matches!(def.body, Body::Step(_))) {
        let message = "only a step program takes a list of fields";
        sink.push(
            Diagnostic::error(codes::FIELD_COUNT, list.span, message)
                .help("write the step out: `step x { … repeat l in L[..] { … } … }`"),
        );
    }
    let of_one_field = match &def.body {
        Body::Tableau(t) => Some(("a tableau", t.span)),
        Body::Multistep(m) => Some(("a multistep method", m.span)),
        Body::LearnedFrom(l) if l.what.name == "tableau" => Some(("a tableau", l.from.span)),
        Body::LearnedFrom(l) => Some(("a multistep method", l.from.span)),
        Body::Splitting(_) | Body::Step(_) | Body::Method(_) | Body::Algebra(_) => None,
    };
    if let Some((what, span)) = of_one_field {
        if def.fields.is_empty() {
            def.fields.push(Ident {
                name: "F".into(),
                span: def.name.span,
            });
        } else if def.fields.len() > 1 {
            sink.push(
                Diagnostic::error(
                    codes::FIELD_COUNT,
                    def.fields[1].span,
                    format!(
                        "{what} has one field, `{}` has {}",
                        def.name.name,
                        def.fields.len()
                    ),
                )
                .also(span, "this one"),
            );
        }
    } else if let Body::Method(_) = def.body {
        // Its fields and what is to be solved are those of what it names.
    } else if let Some((_, span)) = def.solve.as_ref().filter(|_| sink.len() == before) {
        sink.push(
            Diagnostic::error(codes::NOTHING_TO_SOLVE, *span, "there is nothing to solve")
                .label("`solve by` is for implicit tableaus and multistep methods")
                .help("in a step program, write the iteration: `repeat r { y = x + h*F(y) }`"),
        );
    } else if def.fields.is_empty() && def.list.is_none() && sink.len() == before {
        sink.push(
            Diagnostic::error(
                codes::FIELD_COUNT,
                def.name.span,
                format!("scheme `{}` has no field to integrate", def.name.name),
            )
            .help(format!("name its fields: `scheme {}(F)`", def.name.name)),
        );
    }
    if sink.len() > before {
        return None;
    }
    super::unused::check(ast, sink);
    Some(def)
}

/// Whether a step program reads [`NUMBER`] and defines it nowhere.
fn reads_number(def: &SchemeDef) -> bool {
    let Body::Step(step) = &def.body else {
        return false;
    };
    let start = def.start.as_ref().map_or(&[][..], |(body, _)| body);
    let mut used = Mentions::default();
    used.statements(&step.body);
    used.statements(start);
    def.lets.iter().for_each(|(_, value)| used.expr(value));
    let fields = def.fields.iter().chain(&def.list);
    let numbers = def.values.iter().chain(&def.lets).map(|(name, _)| name);
    let learned = def.learns.iter().map(|l| &l.name);
    let mut own = fields.chain(numbers).chain(learned).chain([&step.state]);
    let defined = own.any(|name| name.name == NUMBER) || used.set.contains(NUMBER);
    used.read.contains(NUMBER) && !defined && !counts_by(&step.body, NUMBER)
}

/// Whether a `repeat` gives a name its values.
fn counts_by(body: &[Stmt], name: &str) -> bool {
    body.iter().any(|s| match s {
        Stmt::Repeat { count, body, .. } => {
            let own = matches!(count, RepeatCount::Over(variable, _) if variable.name == name);
            own || counts_by(body, name)
        }
        _ => false,
    })
}

/// What `start by` asks of a step program.
fn started(def: &SchemeDef, by: &Ident, sink: &mut Vec<Diagnostic>) {
    let d = |code, message: &str| Diagnostic::error(code, by.span, message);
    if def.history.past.is_empty() {
        let d = d(codes::NOTHING_TO_START, "there is nothing to start")
            .label("no step reads a value of an earlier step");
        sink.push(d.help("`v[-1]` is the value of `v` in the step before"));
    } else if def.fields.len() != 1 || def.list.is_some() {
        let message = "`start by` takes a step program of one field";
        let d = d(codes::FIELD_COUNT, message);
        sink.push(d.help("set the first values in `start { … }`"));
    }
}
