//! Replaces fields by opaque ones, so that what is proved holds for all fields.
//!
//! Takes a scheme with settings, or a model's flow; gives a flow whose fields are leaves without a body. A field that is
//! itself the change or the result of a flow becomes one leaf. `scheme/method` runs the flow.

use crate::scheme::define::{Body, SchemeDef};
use crate::scheme::flow::{Field, Flow, FlowArg, FlowArgKind, Leaf, Method, Setting};
use crate::scheme::mentions::Mentions;
use crate::scheme::{Facts, Layers};
use odec_exact::Exact;
use odec_grammar::Span;
use std::rc::Rc;

/// The values of a scheme's parameters in one step.
pub type Settings = Vec<(String, Exact)>;

fn leaf(name: String, span: Span) -> Rc<Field> {
    Rc::new(Field::Leaf(Rc::new(Leaf {
        name,
        params: Vec::new(),
        body: None,
        layers: Layers::default(),
        facts: Facts::OPEN,
        span,
    })))
}

/// Fields of a list where nothing says how many: two show what happens to the first ones and what to the last.
const LISTED: usize = 2;

/// Fields of the list of a scheme that is looked at alone: two, or as many as its step reads by number.
pub fn listed(def: &SchemeDef) -> usize {
    let Some(list) = &def.list else { return 0 };
    let mut used = Mentions::default();
    if let Body::Step(step) = &def.body {
        used.statements(&step.body);
    }
    if let Some((start, _)) = &def.start {
        used.statements(start);
    }
    let least = used.entries.get(list.name.as_str());
    least.map_or(LISTED, |n| LISTED.max(*n))
}

/// A scheme on fields called like its parameters.
pub fn alone(
    def: &Rc<SchemeDef>,
    start_by: Option<Rc<Method>>,
    settings: Settings,
    listed: usize,
) -> Flow {
    let field = |name: String, span: Span| FlowArg {
        kind: FlowArgKind::Field {
            field: leaf(name, span),
            by: None,
        },
        span,
    };
    let args = def.fields.iter().map(|f| field(f.name.clone(), f.span));
    let list = def.list.iter().flat_map(|l| {
        let names = (1..=listed).map(|i| format!("{}.{i}", l.name));
        names.map(|name| field(name, l.span))
    });
    let settings = settings.into_iter().map(|(n, v)| (n, Setting::One(v)));
    Flow {
        scheme: def.clone(),
        start_by,
        args: args.collect(),
        list: list.collect(),
        settings: settings.collect(),
        span: def.name.span,
    }
}

/// A model's flow, at one of its steps, with each field as a whole.
pub fn opaque(flow: &Flow, step: usize) -> Flow {
    Wholes {
        step,
        names: Vec::new(),
    }
    .flow(flow)
}

/// The settings of a flow at a step.
pub fn settings(flow: &[(String, Setting)], step: usize) -> Settings {
    let one = |s: &Setting| match s {
        Setting::One(v) => Some(v.clone()),
        Setting::PerStep(values, _) => values.get(step).or(values.last()).cloned(),
    };
    let named = flow.iter().filter_map(|(n, s)| Some((n.clone(), one(s)?)));
    named.collect()
}

/// The settings of a flow, and of the flows and methods inside it.
pub fn all_settings(flow: &Flow) -> Vec<&[(String, Setting)]> {
    let mut all = vec![&flow.settings[..]];
    all.extend(flow.start_by.iter().map(|m| &m.settings[..]));
    for arg in flow.args.iter().chain(&flow.list) {
        match &arg.kind {
            FlowArgKind::Flow(inner) => all.extend(all_settings(inner)),
            FlowArgKind::Field { by, .. } => all.extend(by.iter().map(|m| &m.settings[..])),
        }
    }
    all
}

/// All of them at a step.
pub fn settings_at(flow: &Flow, step: usize) -> Vec<Settings> {
    let all = all_settings(flow).into_iter();
    all.map(|each| settings(each, step)).collect()
}

/// Fields seen so far, by identity, and the leaves that stand for them.
struct Wholes {
    step: usize,
    names: Vec<(*const (), Rc<Field>, String)>,
}

/// What a field is, whichever argument it is given for.
fn identity(field: &Field) -> *const () {
    match field {
        Field::Leaf(leaf) => Rc::as_ptr(leaf).cast(),
        Field::Sum(terms) => Rc::as_ptr(terms).cast(),
        Field::Increment(flow) | Field::Map(flow) => Rc::as_ptr(flow).cast(),
    }
}

impl Wholes {
    fn flow(&mut self, flow: &Flow) -> Flow {
        let params: Vec<String> = flow.scheme.fields.iter().map(|f| f.name.clone()).collect();
        let args = flow.args.iter().zip(&params);
        let args = args.map(|(a, param)| self.arg(a, param)).collect();
        let list = flow.list.iter().enumerate();
        let listed = flow.scheme.list.as_ref().map_or("L", |l| &l.name);
        let list = list.map(|(i, a)| self.arg(a, &format!("{listed}.{}", i + 1)));
        let list = list.collect();
        Flow {
            scheme: flow.scheme.clone(),
            start_by: flow.start_by.as_deref().map(|m| self.method(m)),
            args,
            list,
            settings: self.settings(&flow.settings),
            span: flow.span,
        }
    }

    fn arg(&mut self, arg: &FlowArg, param: &str) -> FlowArg {
        let kind = match &arg.kind {
            FlowArgKind::Field { field, by } => FlowArgKind::Field {
                field: self.whole(field, param, arg.span),
                by: by.as_deref().map(|m| self.method(m)),
            },
            FlowArgKind::Flow(inner) => FlowArgKind::Flow(Rc::new(self.flow(inner))),
        };
        FlowArg {
            kind,
            span: arg.span,
        }
    }

    fn method(&mut self, m: &Method) -> Rc<Method> {
        Rc::new(Method {
            scheme: m.scheme.clone(),
            settings: self.settings(&m.settings),
            span: m.span,
        })
    }

    fn settings(&self, given: &[(String, Setting)]) -> Vec<(String, Setting)> {
        let one = settings(given, self.step);
        one.into_iter().map(|(n, v)| (n, Setting::One(v))).collect()
    }

    fn whole(&mut self, field: &Rc<Field>, param: &str, span: Span) -> Rc<Field> {
        let at = identity(field);
        if let Some((_, known, _)) = self.names.iter().find(|(f, ..)| *f == at) {
            // Each argument is a field of its own (`apply.rs`), of one leaf.
            return Rc::new((**known).clone());
        }
        let (mut name, span) = match &**field {
            Field::Leaf(leaf) => (leaf.name.clone(), leaf.span),
            _ => (param.to_string(), span),
        };
        while self.names.iter().any(|(_, _, n)| *n == name) {
            name.push('\'');
        }
        let whole = leaf(name.clone(), span);
        self.names.push((at, whole.clone(), name));
        whole
    }
}
