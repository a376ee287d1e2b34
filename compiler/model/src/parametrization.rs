//! `parametrization mup(width: 256)`: the rates and deviations that a train block says, found at one size, carried over to the size of the model.
//!
//! Maximal update parametrization (Yang et al. 2022, "Tensor Programs V", arXiv:2203.03466, table 3), for optimisers whose steps do not grow with the gradient. With m = width of the
//! model / `width`:
//!
//! | | deviation at the start | rate | decay |
//! |---|---|---|---|
//! | matrices of fields | σ/√m | α/m | λ m |
//! | matrix of the output | σ/m | α/m | λ m |
//! | embeddings, vectors, scalars | σ | α | λ |
//!
//! α λ, by which a step shrinks a parameter, is the same at any width (as in the authors' `MuAdamW`).
//!
//! CompleteP (Dey et al. 2025, arXiv:2505.01618, table 1, with its α = 1): the same, and with l = steps of the evolve / `depth` a residual branch is multiplied by 1/l, which is the step size
//! `h = depth/steps` (it is checked, not set), ε is ε/(m l) for parameters of fields and ε/m for others. The matrix of the output keeps its ε: the paper divides logits by m in the place of the
//! matrix, so that gradients of its matrix are m times smaller.
//!
//! Takes the words of a train block; changes initial deviations, and makes groups of parameters ([`super::groups`]) with arguments of their own. Sizes that do not grow with the width have no rule: matrices are
//! told apart by where they stand, not by their sides.
//!
//! A new rule is a variant of [`Parametrization`]. Nothing behind the builder of models knows of it.

use super::args::Args;
use super::evolve::Sharing;
use super::layers::MAX_WIDTH;
use super::outputs::OUTPUT;
use super::params::EMBED;
use super::spec::Spec;
use super::step_count::StepCount;
use crate::codes;
use crate::scheme::scalar::Scope;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_graph::ops::Parameter;
use odec_program::manifest::{Init, Train, Tune};
use odec_program::optimizers::group::is_called;
use odec_program::optimizers::{Group, Scale};

/// Largest number of steps of a base.
const MAX_DEPTH: u64 = 1 << 20;

/// The rule, with the size at which rates and deviations were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parametrization {
    Mup { width: u64 },
    CompleteP { width: u64, depth: u64 },
}

/// Reads `mup(width: 256)`, or `complete_p(width: 256, depth: 8)`.
pub fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Parametrization> {
    let Some(mut args) =
        Args::of(e).filter(|a| ["mup", "complete_p"].contains(&a.callee.name.as_str()))
    else {
        let message = "this is not a parametrization";
        let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message);
        sink.push(d.label("`mup(width: 256)` or `complete_p(width: 256, depth: 8)` is expected"));
        return None;
    };
    let before = sink.len();
    let width = args.size("width", &Scope::new(), MAX_WIDTH, sink);
    let depth = match args.callee.name.as_str() {
        "mup" => None,
        _ => Some(args.size("depth", &Scope::new(), MAX_DEPTH, sink)),
    };
    args.finish(&[], sink);
    if sink.len() > before {
        return None;
    }
    let width = width?;
    Some(match depth {
        None => Parametrization::Mup { width },
        Some(depth) => Parametrization::CompleteP {
            width,
            depth: depth?,
        },
    })
}

/// Where a parameter stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A matrix of a field.
    Hidden,
    /// Another parameter of an evolve.
    OfField,
    /// The matrix of the output.
    Output,
    /// An embedding, or a vector of the output.
    Other,
}

impl Place {
    fn of(p: &Parameter) -> Place {
        let called = |name| is_called(name, &p.path, &p.shape);
        let matrix = p.shape.len() >= 2;
        match (called(EMBED), called(OUTPUT)) {
            (true, _) => Place::Other,
            (_, true) if matrix => Place::Output,
            (_, true) => Place::Other,
            _ if matrix => Place::Hidden,
            _ => Place::OfField,
        }
    }
}

impl Parametrization {
    fn name(self) -> &'static str {
        match self {
            Parametrization::Mup { .. } => "mup",
            Parametrization::CompleteP { .. } => "complete_p",
        }
    }

    /// Widths and depths of the model as multiples of those of the base.
    fn multiples(self, spec: &Spec) -> (f64, Option<f64>) {
        let width = spec.sizes.width as f64;
        match self {
            Parametrization::Mup { width: base } => (width / base as f64, None),
            Parametrization::CompleteP { width: base, depth } => {
                let steps: u64 = spec.evolves.iter().map(|e| e.steps).sum();
                (width / base as f64, Some(steps as f64 / depth as f64))
            }
        }
    }
}

/// What the arguments of a parameter's optimiser are multiplied by.
fn scale(place: Place, (m, l): (f64, Option<f64>)) -> Scale {
    let (rate, decay) = match place {
        Place::Hidden | Place::Output => (1.0 / m, m),
        Place::OfField | Place::Other => (1.0, 1.0),
    };
    let eps = match (l, place) {
        (None, _) | (Some(_), Place::Output) => 1.0,
        (Some(l), Place::Hidden | Place::OfField) => 1.0 / (m * l),
        (Some(_), Place::Other) => 1.0 / m,
    };
    Scale { rate, decay, eps }
}

/// Parameters with one optimiser whose arguments are multiplied alike.
struct Alike {
    group: usize,
    scale: Scale,
    members: Vec<usize>,
}

/// Gives parameters their deviations, and the rates of their optimisers.
pub fn apply(
    (rule, at): (Parametrization, Span),
    spec: &Spec,
    params: &mut [Parameter],
    train: &mut Train,
    sink: &mut Vec<Diagnostic>,
) {
    if let Some(d) = unfit((rule, at), spec, params, train) {
        sink.push(d);
        return;
    }
    let multiples = rule.multiples(spec);
    let (m, _) = multiples;
    for p in params.iter_mut() {
        let place = Place::of(p);
        if let Init::Normal { std } = &mut p.init {
            *std *= match place {
                Place::Hidden => 1.0 / m.sqrt(),
                Place::Output => 1.0 / m,
                Place::OfField | Place::Other => 1.0,
            };
        }
    }
    let mut alike: Vec<Alike> = Vec::new();
    for (n, p) in params.iter().enumerate() {
        let scale = scale(Place::of(p), multiples);
        if scale == Scale::NONE {
            continue;
        }
        let group = train.group_of(&p.path, &p.shape);
        match alike
            .iter_mut()
            .find(|a| a.group == group && a.scale == scale)
        {
            Some(a) => a.members.push(n),
            None => alike.push(Alike {
                group,
                scale,
                members: vec![n],
            }),
        }
    }
    let mut groups = Vec::new();
    for a in &alike {
        let optimizer = train.optimizer_of(a.group);
        let Some(scaled) = optimizer.scaled(a.scale) else {
            let message = format!("`{}` has no rule for `{}`", rule.name(), optimizer.name());
            let d = Diagnostic::error(codes::INCOMPATIBLE, at, message);
            sink.push(
                d.label(format!("`{}` follows it", params[a.members[0]].path))
                    .help("`adamw` and `lion` make steps that do not grow with the gradient, for which the rules are"),
            );
            return;
        };
        let own = a.group.checked_sub(1).map(|n| &train.groups[n]);
        groups.push(Group {
            of: names(params, &a.members),
            optimizer: scaled,
            vectors_decay: own.is_some_and(|g| g.vectors_decay),
        });
    }
    train.groups.extend(groups);
}

/// Names that mean these parameters and no others: without their steps where all steps are meant.
fn names(params: &[Parameter], members: &[usize]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let means_others = |name: &str| {
        let all = params.iter().enumerate();
        let mut meant = all.filter(|(_, p)| is_called(name, &p.path, &p.shape));
        meant.any(|(n, _)| members.binary_search(&n).is_err())
    };
    for n in members {
        let path = &params[*n].path;
        if names
            .iter()
            .any(|name| is_called(name, path, &params[*n].shape))
        {
            continue;
        }
        // `step.3.att.q.weight`: what stands behind the number.
        let step = path.strip_prefix("step.").or_else(|| {
            let (_, behind) = path.split_once(".step.")?;
            Some(behind)
        });
        let short = step.and_then(|s| s.split_once('.')).map(|(_, rest)| rest);
        let short = short.filter(|short| !means_others(short));
        names.push(short.unwrap_or(path).to_string());
    }
    names
}

/// Why the rule cannot be followed.
fn unfit(
    (rule, at): (Parametrization, Span),
    spec: &Spec,
    params: &[Parameter],
    train: &Train,
) -> Option<Diagnostic> {
    let name = rule.name();
    let refused = |message: String| Diagnostic::error(codes::INCOMPATIBLE, at, message);
    if train.tune != Tune::All {
        let d = refused(format!("`{name}` has no rule for factors of `tune lora`"));
        return Some(d.help("write `tune all`, or leave `parametrization` out"));
    }
    if train.spectral.is_some() {
        let d = refused(format!(
            "`{name}` has no rule for matrices that `constrain` bounds"
        ));
        return Some(d.help("leave one of them out"));
    }
    let timed = spec.evolves.iter().find(|e| {
        let mut all = e.policies.iter().flatten();
        all.any(|s| matches!(s, Sharing::TimeDependent(_)))
    });
    if let Some(e) = timed {
        let d = refused(format!("`{name}` has no rule for weights of time"));
        return Some(d.also(e.span, "they are computed from other parameters"));
    }
    // Their matrices have a side that does not grow with the width.
    let chooses = |p: &&Parameter| p.path.split('.').any(|part| part == "router");
    let decider = spec.evolves.iter().find(|e| e.decider().is_some());
    if let Some(e) = decider {
        let d = refused(format!("`{name}` has no rule for what decides steps"));
        return Some(d.also(e.span, "the number of steps is decided by a field"));
    }
    let timed = |p: &&Parameter| p.path.split('.').any(|part| part == "time_token");
    for (is, what) in [
        (&chooses as &dyn Fn(&&Parameter) -> bool, "routers"),
        (&timed, "`time_token`"),
    ] {
        if let Some(p) = params.iter().find(|p| is(p)) {
            let d = refused(format!("`{name}` has no rule for {what}"));
            return Some(d.label(format!("this model has `{}`", p.path)));
        }
    }
    let outputs = params.iter().filter(|p| Place::of(p) == Place::Output);
    match outputs.collect::<Vec<_>>()[..] {
        [_] => {}
        [] => {
            let d = refused(format!("`{name}` needs an output with a matrix of its own"));
            return Some(d.also(spec.output.span, "this one has none").help(
                "write `logits` in the place of `logits(tied)`: the deviations of an embedding and of an output differ with the width",
            ));
        }
        [first, ..] => {
            let d = refused(format!("`{name}` knows outputs with one matrix"));
            let label = format!("`{}` is not the last one", first.path);
            let help = "a rule for rates at other sizes is for models with one output and `logits`: leave one of the two out";
            return Some(d.also(spec.output.span, label).help(help));
        }
    }
    match rule {
        Parametrization::Mup { .. } => None,
        Parametrization::CompleteP { depth, .. } => unfit_steps(depth, at, spec),
    }
}

/// Why depth cannot be carried over.
fn unfit_steps(depth: u64, at: Span, spec: &Spec) -> Option<Diagnostic> {
    let refused = |message: &str| Diagnostic::error(codes::INCOMPATIBLE, at, message);
    let [e] = &spec.evolves[..] else {
        let d = refused("`complete_p` has a rule for one evolve");
        return spec
            .evolves
            .get(1)
            .map(|e| d.also(e.span, "the second one"));
    };
    if e.depth != StepCount::Known {
        let d = refused("`complete_p` needs a number of steps that is written in the file");
        return Some(d.also(e.span, "it is decided here while the model runs"));
    }
    if e.learn_h.is_some() {
        let d = refused("`complete_p` says what the step size is, and here it is learned");
        return Some(
            d.also(e.span, "learned here")
                .help("write a number for `h`"),
        );
    }
    let wanted = Exact::ratio(i64::try_from(depth).ok()?, i64::try_from(e.steps).ok()?);
    if e.h.iter().all(|h| *h == wanted) {
        return None;
    }
    let d =
        refused("`complete_p` divides each residual branch by the depth: the step size says so");
    let place = e.h_at.unwrap_or(e.span);
    Some(
        d.also(place, format!("{} steps of a base of {depth}", e.steps))
            .help(format!("write `h = {depth}/{}`", e.steps)),
    )
}
