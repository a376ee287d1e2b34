//! The syntax tree as text, for `--emit ast` and for snapshots.
//!
//! Takes a [`File`]; gives one s-expression per item, broken to a readable width. Spans are left out. Deterministic.

use crate::ast::*;

/// Longest line before a list is broken.
const WIDTH: usize = 110;

/// The tree of a file, one item after another. Ends with a newline unless the file is empty.
pub fn dump(file: &File) -> String {
    let uses = file
        .uses
        .iter()
        .map(|path| list("use", [quoted(&path.path)]));
    let items = file.items.iter().map(item);
    uses.chain(items).fold(String::new(), |mut out, node| {
        node.print(0, &mut out);
        out.push('\n');
        out
    })
}

/// One expression on one line.
pub fn dump_expr(value: &Expr) -> String {
    let mut out = String::new();
    expr(value).flat(&mut out);
    out
}

enum Node {
    Atom(String),
    List(Vec<Node>),
}

impl Node {
    fn flat(&self, out: &mut String) {
        match self {
            Node::Atom(text) => out.push_str(text),
            Node::List(nodes) => {
                out.push('(');
                for (at, node) in nodes.iter().enumerate() {
                    if at > 0 {
                        out.push(' ');
                    }
                    node.flat(out);
                }
                out.push(')');
            }
        }
    }

    /// Broken lists keep their leading atoms on the first line; statements always stand on lines of their own.
    fn print(&self, indent: usize, out: &mut String) {
        let mut flat = String::new();
        self.flat(&mut flat);
        let nodes = match self {
            Node::List(nodes) if flat.len() + indent > WIDTH || self.is_block() => nodes,
            _ => return out.push_str(&flat),
        };
        let leading = nodes
            .iter()
            .take_while(|node| matches!(node, Node::Atom(_)))
            .count();
        out.push('(');
        for (at, node) in nodes.iter().enumerate() {
            if at < leading {
                if at > 0 {
                    out.push(' ');
                }
                node.flat(out);
            } else {
                out.push('\n');
                out.push_str(&" ".repeat(indent + 2));
                node.print(indent + 2, out);
            }
        }
        out.push(')');
    }

    fn is_block(&self) -> bool {
        let Node::List(nodes) = self else {
            return false;
        };
        let Some(Node::Atom(head)) = nodes.first() else {
            return false;
        };
        let lists = nodes
            .iter()
            .skip(1)
            .any(|node| matches!(node, Node::List(_)));
        let blocks = [
            "scheme",
            "model",
            "train",
            "explore",
            "tableau",
            "multistep",
            "step",
            "start",
            "repeat",
            "evolve",
        ];
        lists && blocks.contains(&head.as_str())
    }
}

fn atom(text: impl Into<String>) -> Node {
    Node::Atom(text.into())
}

fn name(ident: &Ident) -> Node {
    atom(&ident.name)
}

fn quoted(text: &str) -> Node {
    atom(format!("{text:?}"))
}

fn list(head: &str, rest: impl IntoIterator<Item = Node>) -> Node {
    Node::List(std::iter::once(atom(head)).chain(rest).collect())
}

fn docs(doc: &[String]) -> impl Iterator<Item = Node> {
    doc.iter().map(|line| list("doc", [quoted(line)]))
}

fn item(item: &Item) -> Node {
    match item {
        Item::Scheme(scheme) => {
            let params = scheme.params.iter().map(|param| match &param.kind {
                ParamKind::Field => name(&param.name),
                ParamKind::Fields => atom(format!("{}[..]", param.name.name)),
                ParamKind::Value(value) => list("=", [name(&param.name), expr(value)]),
            });
            let params = (!scheme.params.is_empty()).then(|| list("params", params));
            let items = scheme.items.iter().map(scheme_item);
            let head = std::iter::once(name(&scheme.name));
            list(
                "scheme",
                head.chain(docs(&scheme.doc)).chain(params).chain(items),
            )
        }
        Item::Field(field) => {
            let params =
                (!field.params.is_empty()).then(|| list("params", field.params.iter().map(name)));
            let head = std::iter::once(name(&field.name));
            list(
                "field",
                head.chain(docs(&field.doc))
                    .chain(params)
                    .chain(body(&field.body)),
            )
        }
        Item::Layer(layer) => {
            let param = |p: &LayerParam| {
                let given_as = p.given_as.as_ref().map(name);
                let kind = p.kind.as_ref().map(|k| atom(format!(": {}", k.name)));
                let bound = |words: [&str; 2], b: &Bound| {
                    list(words[usize::from(b.included)], [expr(&b.at)])
                };
                let (least, most) = match &p.bounds {
                    Some(b) => (b.least.as_ref(), b.most.as_ref()),
                    None => (None, None),
                };
                let least = least.map(|b| bound(["above", "from"], b));
                let most = most.map(|b| bound(["below", "to"], b));
                let default = p.default.as_ref().map(expr);
                let names = given_as.into_iter().chain([name(&p.name)]);
                let said = kind.into_iter().chain(least).chain(most);
                let all: Vec<_> = names.chain(said).chain(default).collect();
                match all.len() {
                    1 => name(&p.name),
                    _ => list("=", all),
                }
            };
            let params =
                (!layer.params.is_empty()).then(|| list("params", layer.params.iter().map(param)));
            let role = layer.role.as_ref().map(|r| list("as", [name(r)]));
            let head = std::iter::once(name(&layer.name));
            list(
                "layer",
                head.chain(docs(&layer.doc))
                    .chain(params)
                    .chain(role)
                    .chain(body(&layer.body)),
            )
        }
        Item::Model(model) => {
            let head = std::iter::once(name(&model.name));
            list(
                "model",
                head.chain(docs(&model.doc))
                    .chain(model.items.iter().map(model_item)),
            )
        }
        Item::Train(block) => list("train", block.entries.iter().map(entry)),
        Item::Explore(block) => {
            let entries = block.entries.iter().map(entry);
            let matches = block.matches.iter().map(|m| {
                let within = m.within.iter().map(|w| list("within", [expr(w)]));
                list(
                    "match",
                    [dotted(&m.what), dotted(&m.by)].into_iter().chain(within),
                )
            });
            let conditions = block.conditions.iter();
            let conditions = conditions.map(|c| list("where", [expr(&c.of), expr(&c.values)]));
            list("explore", entries.chain(matches).chain(conditions))
        }
    }
}

/// The expression, or the statements.
fn body(body: &Body) -> Vec<Node> {
    let statement = |s: &BodyStmt| match s {
        BodyStmt::Set { name: n, value } => list("=", [name(n), expr(value)]),
        BodyStmt::Learn {
            name: n,
            shape,
            init,
        } => {
            let shape = (!shape.is_empty()).then(|| list("shape", shape.iter().map(expr)));
            list(
                "learn",
                [name(n)].into_iter().chain(shape).chain([expr(init)]),
            )
        }
        BodyStmt::Return { value, .. } => list("return", [expr(value)]),
    };
    match body {
        Body::Expr(e) => vec![expr(e)],
        Body::Block { statements, .. } => vec![list("body", statements.iter().map(statement))],
    }
}

fn dotted(key: &[Ident]) -> Node {
    let parts: Vec<&str> = key.iter().map(|part| part.name.as_str()).collect();
    atom(parts.join("."))
}

fn entry(entry: &Entry) -> Node {
    let key: Vec<&str> = entry.key.iter().map(|part| part.name.as_str()).collect();
    let is_in = entry.is_in.then(|| atom("in"));
    list(
        &key.join("."),
        (is_in.into_iter())
            .chain(entry.values.iter().map(expr))
            .chain(entry.exceptions.iter().map(exception)),
    )
}

fn exception(e: &Exception) -> Node {
    let names = e.names.iter().map(name);
    let meant: Vec<Node> = match &e.meant {
        Meant::Arguments(args) => args.iter().map(arg).collect(),
        Meant::Instead(value) => vec![list("by", [expr(value)])],
    };
    list("except", names.chain(meant))
}

fn scheme_item(item: &SchemeItem) -> Node {
    match item {
        SchemeItem::Cite { text, .. } => list("cite", [quoted(text)]),
        SchemeItem::Order { order, within, .. } => {
            let within = within
                .iter()
                .map(|residual| list("within", [expr(residual)]));
            list("order", std::iter::once(expr(order)).chain(within))
        }
        SchemeItem::Property {
            name: property,
            value,
            ..
        } => list(
            "claim",
            [atom(property.name.replace(' ', "-"))]
                .into_iter()
                .chain(value.iter().map(expr)),
        ),
        SchemeItem::Keep { order, .. } => list("keep-order", [expr(order)]),
        SchemeItem::Let {
            name: constant,
            value,
        } => list("let", [name(constant), expr(value)]),
        SchemeItem::Learn(learn) => {
            let len = match &learn.len {
                LearnLen::Scalar => name(&learn.name),
                LearnLen::Count(count) => list("array", [name(&learn.name), expr(count)]),
                LearnLen::History => list("array", [name(&learn.name), atom("..")]),
            };
            list(
                "learn",
                policy_words(learn.shared, learn.per_channel).chain([len, expr(&learn.init)]),
            )
        }
        SchemeItem::LearnFrom(l) => list(
            "learn-from",
            policy_words(l.shared, l.per_channel).chain([name(&l.what), name(&l.from)]),
        ),
        SchemeItem::Tableau(tableau) => list(
            "tableau",
            tableau.rows.iter().map(|row| {
                let entries = row.entries.iter().map(expr);
                match &row.c {
                    Some(c) => list(
                        "stage",
                        std::iter::once(expr(c)).chain([atom("|")]).chain(entries),
                    ),
                    None => list("weights", entries),
                }
            }),
        ),
        SchemeItem::Multistep { rows, .. } => list(
            "multistep",
            rows.iter()
                .map(|(row, values)| list(&row.name, values.iter().map(expr))),
        ),
        SchemeItem::StartBy { scheme, .. } => list("start-by", [name(scheme)]),
        SchemeItem::SolveBy { method: solver, .. } => list("solve-by", method(solver)),
        SchemeItem::Start { body, .. } => list("start", body.iter().map(statement)),
        SchemeItem::Step(step) => list(
            "step",
            std::iter::once(name(&step.state)).chain(step.body.iter().map(statement)),
        ),
        SchemeItem::Method { value, .. } => list("method", [expr(value)]),
        SchemeItem::Splitting(flows) => list("splitting", flows.iter().map(sub_flow)),
        SchemeItem::Embedded { flows, .. } => list("embedded", flows.iter().map(sub_flow)),
    }
}

fn policy_words(shared: bool, per_channel: bool) -> impl Iterator<Item = Node> {
    let words = [(shared, "shared"), (per_channel, "per-channel")];
    words
        .into_iter()
        .filter(|(said, _)| *said)
        .map(|(_, word)| atom(word))
}

fn sub_flow(flow: &SubFlow) -> Node {
    let args = flow
        .args
        .iter()
        .map(|args| list("of", args.iter().map(arg)));
    list(&flow.name.name, args.chain([expr(&flow.fraction)]))
}

fn method(method: &Method) -> Vec<Node> {
    let gradient = method
        .gradient
        .iter()
        .map(|how| list("gradient", [expr(how)]));
    std::iter::once(expr(&method.call))
        .chain(gradient)
        .collect()
}

fn over(var: &Ident, over: &Over) -> Node {
    let over = match over {
        Over::Numbers(numbers) => range(numbers),
        Over::Fields(fields, part) => list("slice", [name(fields), range(part)]),
    };
    list("in", [name(var), over])
}

fn statement(statement: &Stmt) -> Node {
    match statement {
        Stmt::Assign {
            name: target,
            value,
            ..
        } => list("=", [name(target), expr(value)]),
        Stmt::Repeat { count, body, .. } => {
            let count = match count {
                RepeatCount::Times(times) => expr(times),
                RepeatCount::Over(var, over) => self::over(var, over),
            };
            list(
                "repeat",
                std::iter::once(count).chain(body.iter().map(self::statement)),
            )
        }
        Stmt::Solve {
            name: target,
            value,
            from,
            method: solver,
            ..
        } => {
            let head = [name(target), expr(value), list("from", [expr(from)])];
            list(
                "solve",
                head.into_iter().chain([list("by", method(solver))]),
            )
        }
        Stmt::Return {
            value, embedded, ..
        } => {
            let embedded = embedded.iter().map(|value| list("embedded", [expr(value)]));
            list("return", std::iter::once(expr(value)).chain(embedded))
        }
    }
}

fn model_item(item: &ModelItem) -> Node {
    match item {
        ModelItem::Input { label, value, .. } => {
            list("input", labelled(label).chain([expr(value)]))
        }
        ModelItem::Embed { label, values, .. } => {
            list("embed", labelled(label).chain(values.iter().map(expr)))
        }
        ModelItem::Output { label, value, .. } => {
            list("output", labelled(label).chain([expr(value)]))
        }
        ModelItem::Init { value, .. } => list("init", [expr(value)]),
        ModelItem::Evolve(evolve) => {
            let flow = [
                list("flow", [expr(&evolve.flow)]),
                list("steps", [expr(&evolve.extent)]),
            ];
            list(
                "evolve",
                labelled(&evolve.label)
                    .chain(flow)
                    .chain(evolve.options.iter().map(option)),
            )
        }
    }
}

fn labelled(label: &Option<Ident>) -> impl Iterator<Item = Node> {
    label.iter().map(|label| list("label", [name(label)]))
}

fn option(option: &EvolveOption) -> Node {
    match option {
        EvolveOption::H { value, .. } => list("h", [expr(value)]),
        EvolveOption::LearnH {
            shared,
            per_channel,
            value,
            ..
        } => list(
            "learn-h",
            policy_words(*shared, *per_channel).chain([expr(value)]),
        ),
        EvolveOption::Gradient { value, .. } => list("gradient", [expr(value)]),
        EvolveOption::Report { name, value, .. } => list("report", [self::name(name), expr(value)]),
        EvolveOption::Weights { policies, .. } => list(
            "weights",
            policies.iter().map(|(field, policy)| match field {
                Some(field) => list("of", [name(field), self::policy(policy)]),
                None => self::policy(policy),
            }),
        ),
    }
}

fn policy(policy: &Policy) -> Node {
    match &policy.kind {
        PolicyKind::PerStep => atom("per-step"),
        PolicyKind::PerUse => atom("per-use"),
        PolicyKind::Shared => atom("shared"),
        PolicyKind::Every(count) => list("every", [expr(count)]),
        PolicyKind::Cycle(count) => list("cycle", [expr(count)]),
        PolicyKind::TimeDependent(args) => list("of-time", args.iter().map(arg)),
    }
}

fn arg(arg: &Arg) -> Node {
    let value = match &arg.by {
        Some(scheme) => list("by", [expr(&arg.value), expr(scheme)]),
        None => expr(&arg.value),
    };
    match &arg.label {
        Some(label) => list(&format!("{}:", label.name), [value]),
        None => value,
    }
}

fn range(range: &Range) -> Node {
    let dots = atom(if range.inclusive { "..=" } else { ".." });
    let start = range.start.iter().map(expr);
    Node::List(
        start
            .chain([dots])
            .chain(range.end.iter().map(expr))
            .collect(),
    )
}

fn expr(value: &Expr) -> Node {
    match &value.kind {
        ExprKind::Number(text) | ExprKind::Name(text) => atom(text),
        ExprKind::Quantity(number, unit) => atom(format!("{number}{unit}")),
        ExprKind::Str(text) => quoted(text),
        ExprKind::Index(target, index) => list("index", [name(target), expr(index)]),
        ExprKind::Call(call) => Node::List(
            std::iter::once(expr(&call.callee))
                .chain(call.args.iter().map(arg))
                .collect(),
        ),
        ExprKind::List(values) => list("list", values.iter().map(expr)),
        ExprKind::Tuple(values) => list("tuple", values.iter().map(expr)),
        ExprKind::Neg(inner) => list("neg", [expr(inner)]),
        ExprKind::Binary(op, a, b) => {
            let op = match op {
                BinOp::Add => "+",
                BinOp::Sub => "-",
                BinOp::Mul => "*",
                BinOp::Div => "/",
                BinOp::Pow => "^",
            };
            list(op, [expr(a), expr(b)])
        }
        ExprKind::Pipe(a, b) => list("|>", [expr(a), expr(b)]),
        ExprKind::Sum { var, over, body } => list("sum", [self::over(var, over), expr(body)]),
        ExprKind::Flow { flows, from } => list(
            "flow",
            flows
                .iter()
                .map(sub_flow)
                .chain([list("from", [expr(from)])]),
        ),
        ExprKind::Range(inner) => range(inner),
    }
}
