//! The syntax tree: what was written, with spans, and nothing resolved.
//!
//! Numbers keep their decimal text, names their spelling. Parts of the language that later stages
//! do not know yet are parsed and kept, so that the error about them can point at the right place.

use crate::span::Span;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Ident {
    pub name: String,
    pub span: Span,
}

/// One `.ode` text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct File {
    pub uses: Vec<Use>,
    pub items: Vec<Item>,
}

/// `use "mine.ode"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Use {
    pub path: String,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Item {
    Scheme(Scheme),
    Field(Field),
    Layer(Layer),
    Model(Model),
    Train(Block),
    Explore(Block),
}

/// An expression: exact arithmetic, field pipelines and calls share one grammar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum ExprKind {
    /// The text of a decimal number: `3`, `0.25`, `1e-3`. Exact.
    Number(String),
    /// `4 GiB`, `1%`, `200 steps`, `2 h`: number text and unit (`%`, `KiB`, `MiB`, `GiB`, `kB`, `MB`, `GB`, `steps`, `h`, `min`, `s`).
    Quantity(String, String),
    Str(String),
    Name(String),
    /// `v[-1]`, `beta[j]`, `L[-1]`.
    Index(Ident, Box<Expr>),
    /// `F(x, at: 1/2)`, `lie(att by heun, ffn)`, `L[-1](v)`, `adjoint(euler)(layer)`.
    Call(Box<Call>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Neg(Box<Expr>),
    Binary(BinOp, Box<Expr>, Box<Expr>),
    /// `rmsnorm |> attention(…)`.
    Pipe(Box<Expr>, Box<Expr>),
    /// `sum j in 0..=m { … }`, `sum l in L[..] { … }`.
    Sum {
        var: Ident,
        over: Box<Over>,
        body: Box<Expr>,
    },
    /// `flow A(1/2) B(1) from x`.
    Flow {
        flows: Vec<SubFlow>,
        from: Box<Expr>,
    },
    /// `1..=4` as an argument.
    Range(Box<Range>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BinOp {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
}

/// Callee (a name, an index, or a call of one), positional and labelled arguments in source order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub callee: Expr,
    pub args: Vec<Arg>,
}

impl Call {
    /// Whether an argument has this label.
    pub fn has(&self, label: &str) -> bool {
        let mut labels = self.args.iter().filter_map(|a| a.label.as_ref());
        labels.any(|l| l.name == label)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arg {
    pub label: Option<Ident>,
    pub value: Expr,
    /// `ffn by heun`: the inner scheme of a flow.
    pub by: Option<Expr>,
}

/// `start..end`, `start..=end`; either bound may be missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Range {
    pub start: Option<Expr>,
    pub end: Option<Expr>,
    pub inclusive: bool,
    pub span: Span,
}

/// `scheme name(F, r = 3) { … }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scheme {
    pub doc: Vec<String>,
    pub name: Ident,
    pub params: Vec<Param>,
    pub items: Vec<SchemeItem>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Param {
    pub name: Ident,
    pub kind: ParamKind,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum ParamKind {
    /// `F`
    Field,
    /// `L[..]`
    Fields,
    /// `r = 3`
    Value(Expr),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum SchemeItem {
    Cite {
        text: String,
        span: Span,
    },
    /// `order 4 within 1e-14`.
    Order {
        order: Expr,
        within: Option<Expr>,
        span: Span,
    },
    /// `stages 4`, `A_stable`, `embedded order 4`.
    Property {
        /// `embedded order` is one name.
        name: Ident,
        value: Option<Expr>,
        span: Span,
    },
    /// `keep order 2`.
    Keep {
        order: Expr,
        span: Span,
    },
    Let {
        name: Ident,
        value: Expr,
    },
    Learn(Learn),
    LearnFrom(LearnFrom),
    Tableau(Tableau),
    Multistep {
        rows: Vec<(Ident, Vec<Expr>)>,
        span: Span,
    },
    StartBy {
        scheme: Ident,
        span: Span,
    },
    SolveBy {
        method: Method,
        span: Span,
    },
    Start {
        body: Vec<Stmt>,
        span: Span,
    },
    Step(Step),
    /// `method extrapolate(euler, 4)`.
    Method {
        value: Expr,
        span: Span,
    },
    /// `A(1/2) B(1) A(1/2)`.
    Splitting(Vec<SubFlow>),
    /// `embedded A(1) B(1)`.
    Embedded {
        flows: Vec<SubFlow>,
        span: Span,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learn {
    pub shared: bool,
    pub per_channel: bool,
    pub name: Ident,
    pub len: LearnLen,
    pub init: Expr,
    pub span: Span,
}

/// `learn tableau from rk4`, `learn shared multistep from ab4`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearnFrom {
    pub shared: bool,
    pub per_channel: bool,
    /// `tableau` or `multistep`.
    pub what: Ident,
    /// The method.
    pub from: Ident,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum LearnLen {
    Scalar,
    /// `name[n]`
    Count(Expr),
    /// `name[..]`
    History,
}

/// One flow of a splitting with its fraction of h.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubFlow {
    pub name: Ident,
    /// What a scheme is applied to: `A, B` of `strang(A, B)(1/2)`.
    pub args: Option<Vec<Arg>>,
    pub fraction: Expr,
    pub span: Span,
}

/// Rows in source order: `c | a…` for stages, `| b…` for weights (c absent).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tableau {
    pub rows: Vec<TableauRow>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableauRow {
    pub c: Option<Expr>,
    pub entries: Vec<Expr>,
    pub span: Span,
}

/// `step x { … }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    pub state: Ident,
    pub body: Vec<Stmt>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Stmt {
    Assign {
        name: Ident,
        value: Expr,
        span: Span,
    },
    Repeat {
        count: RepeatCount,
        body: Vec<Stmt>,
        span: Span,
    },
    Solve {
        name: Ident,
        value: Expr,
        from: Expr,
        method: Method,
        span: Span,
    },
    Return {
        value: Expr,
        embedded: Option<Expr>,
        span: Span,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum RepeatCount {
    /// `repeat r`
    Times(Expr),
    /// `repeat j in 0..n`
    Over(Ident, Over),
}

/// What a name runs over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Over {
    /// `0..n`
    Numbers(Range),
    /// `L[..-1]`, fields of a list.
    Fields(Ident, Range),
}

/// `anderson(memory: 5) gradient implicit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Method {
    pub call: Expr,
    pub gradient: Option<Expr>,
}

/// `field gate(u, v) = …`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Field {
    pub doc: Vec<String>,
    pub name: Ident,
    pub params: Vec<Ident>,
    pub body: Body,
    pub span: Span,
}

/// `layer adapter(rank, scale: number = 1) = id + …`, `layer wide(x: value) as mlp { … }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    pub doc: Vec<String>,
    pub name: Ident,
    pub params: Vec<LayerParam>,
    /// The word after `as`.
    pub role: Option<Ident>,
    pub body: Body,
    pub span: Span,
}

/// `hidden`, `scale: number above 0 = 1`, `from y: state = x`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerParam {
    /// What stands before its value where the layer is used, if that is not its name.
    pub given_as: Option<Ident>,
    pub name: Ident,
    /// The word after the colon.
    pub kind: Option<Ident>,
    pub bounds: Option<Bounds>,
    pub default: Option<Expr>,
}

/// What a number may be: `above 0`, `from 1 to width`, `from 0 below 1`. At least one of both is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bounds {
    pub least: Option<Bound>,
    pub most: Option<Bound>,
    pub span: Span,
}

impl Bounds {
    /// What stands in it.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.least.iter().chain(&self.most).map(|bound| &bound.at)
    }
}

/// One end of what a number may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    pub at: Expr,
    /// Whether the number may be this: `from` and `to`, not `above` and `below`.
    pub included: bool,
}

impl LayerParam {
    /// What it is called where the layer is used.
    pub fn label(&self) -> &Ident {
        self.given_as.as_ref().unwrap_or(&self.name)
    }
}

/// What a field or a layer computes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Body {
    /// `= rmsnorm |> linear`
    Expr(Expr),
    /// `{ gate = x |> linear(hidden); return silu(gate) }`
    Block {
        statements: Vec<BodyStmt>,
        /// Of the braces and what is between them.
        span: Span,
    },
}

impl Body {
    /// The expressions in it, as they are written.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let (one, statements) = match self {
            Body::Expr(e) => (Some(e), &[][..]),
            Body::Block { statements, .. } => (None, &statements[..]),
        };
        one.into_iter()
            .chain(statements.iter().flat_map(BodyStmt::exprs))
    }

    pub fn span(&self) -> Span {
        match self {
            Body::Expr(e) => e.span,
            Body::Block { span, .. } => *span,
        }
    }
}

/// A statement of a field's or a layer's body.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum BodyStmt {
    /// `gate = x |> linear(hidden)`
    Set { name: Ident, value: Expr },
    /// `learn a = 0`, `learn gain[width] = 1`, `learn w[rows, width] = normal`
    Learn {
        name: Ident,
        /// What stands in the brackets, if there are some.
        shape: Vec<Expr>,
        init: Expr,
    },
    /// `return silu(gate) * up`
    Return { value: Expr, span: Span },
}

impl BodyStmt {
    /// The expressions in it, as they are written.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let (shape, last) = match self {
            BodyStmt::Set { value, .. } | BodyStmt::Return { value, .. } => (&[][..], value),
            BodyStmt::Learn { shape, init, .. } => (&shape[..], init),
        };
        shape.iter().chain([last])
    }

    /// Without the word that it begins with.
    pub fn span(&self) -> Span {
        match self {
            BodyStmt::Set { name, value: to } | BodyStmt::Learn { name, init: to, .. } => {
                name.span.to(to.span)
            }
            BodyStmt::Return { span, .. } => *span,
        }
    }

    /// What it sets.
    pub fn name(&self) -> Option<&Ident> {
        match self {
            BodyStmt::Set { name, .. } | BodyStmt::Learn { name, .. } => Some(name),
            BodyStmt::Return { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    pub doc: Vec<String>,
    pub name: Ident,
    pub items: Vec<ModelItem>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum ModelItem {
    /// `input source: tokens(vocab: 256, context: 128)`.
    Input {
        label: Option<Ident>,
        value: Expr,
        span: Span,
    },
    /// `embed learned(width: 512), positions(learned)`, of the input without a label; `embed source: …` of the one that is called so.
    Embed {
        label: Option<Ident>,
        values: Vec<Expr>,
        span: Span,
    },
    Evolve(Evolve),
    /// `output rmsnorm |> logits(tied)`, and beside it `output class: rmsnorm |> classes(2, of: mean)`.
    Output {
        label: Option<Ident>,
        value: Expr,
        span: Span,
    },
    Init {
        value: Expr,
        span: Span,
    },
}

/// `evolve core: iie(layer, r: 3) for 12 steps { … }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evolve {
    pub label: Option<Ident>,
    pub flow: Expr,
    /// A number of steps, or a call such as `adaptive(…)`.
    pub extent: Expr,
    pub options: Vec<EvolveOption>,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum EvolveOption {
    /// `h = 1/steps`.
    H {
        value: Expr,
        span: Span,
    },
    /// `learn per channel h = 1`.
    LearnH {
        shared: bool,
        per_channel: bool,
        value: Expr,
        span: Span,
    },
    /// The policy of all fields (`None`) or of one.
    Weights {
        policies: Vec<(Option<Ident>, Policy)>,
        span: Span,
    },
    Gradient {
        value: Expr,
        span: Span,
    },
    /// `report energy = recall |> columns(from: width)`.
    Report {
        name: Ident,
        value: Expr,
        span: Span,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Policy {
    pub kind: PolicyKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum PolicyKind {
    PerStep,
    PerUse,
    Shared,
    Every(Expr),
    Cycle(Expr),
    TimeDependent(Vec<Arg>),
}

/// `train { … }` or `explore { … }`: entries in source order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Block {
    pub entries: Vec<Entry>,
    /// Of an explore block.
    pub matches: Vec<Match>,
    /// Of an explore block.
    pub conditions: Vec<Condition>,
    pub span: Span,
}

/// `match flops by train.steps within 1%`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Match {
    pub what: Vec<Ident>,
    /// The path of the value that is solved for.
    pub by: Vec<Ident>,
    pub within: Option<Expr>,
    pub span: Span,
}

/// `where width/heads in [16, 32]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Condition {
    pub of: Expr,
    pub values: Expr,
    pub span: Span,
}

/// `batch 32`, `data text("corpus.txt", tokenizer: bytes)`, `scheme in [...]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Dotted key: `["seed"]`, `["model", "width"]`.
    pub key: Vec<Ident>,
    /// `key in values` (explore only).
    pub is_in: bool,
    pub values: Vec<Expr>,
    /// `except norm, embed { weight_decay: 0 }` (train only).
    pub exceptions: Vec<Exception>,
    pub span: Span,
}

/// Parameters that an entry says something else of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exception {
    /// Parts of paths: `norm`, `att.q`.
    pub names: Vec<Ident>,
    pub meant: Meant,
    pub span: Span,
}

/// What is said of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Meant {
    /// `{ weight_decay: 0 }`: the arguments that differ.
    Arguments(Vec<Arg>),
    /// `by sgd(lr: 0.1)`: something else in the place of the entry's value.
    Instead(Expr),
}
