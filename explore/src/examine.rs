//! One point of a space: what it costs, what is proved of it, and what it is known by.
//!
//! Takes the parsed file and settings over it; gives exact costs, orders as they are computed, stability on two axes. Mistakes that a setting makes
//! are told where its value is written.

use crate::identity;
use crate::space::Value;
use odec_compiler::analysis::notation::end;
use odec_compiler::analysis::report::{Evolved, evolve, steps_of};
use odec_compiler::model::{Built, Checked};
use odec_driver::artifact::{assembled, target};
use odec_driver::fail::{Done, Failure};
use odec_driver::library::LIBRARY;
use odec_driver::source::{Parsed, has_errors, report};
use odec_grammar::{Diagnostic, Severity, set};
use odec_numerics::poly::Extent;
use odec_program::manifest::Train;
use odec_runtime::artifact::check::memory_bytes;

/// Settings over a file: paths of `--set`, and what stands there.
pub type Settings = [(String, Value)];

/// What is known of a point before it is trained.
#[derive(Clone, Debug)]
pub struct Examined {
    pub model: String,
    pub train: Train,
    /// Floating-point operations of a training step, of all its sequences.
    pub flops_per_step: u128,
    /// Whether that is the most that there can be, because tokens are left out or steps are decided while the model runs.
    pub at_most: bool,
    /// Whether numbers of steps are drawn: [`Examined::flops_per_step`] is the mean over all draws.
    pub drawn: bool,
    pub parameters: u64,
    /// Bytes that training takes, as it is planned; scratch and code aside.
    pub memory: u64,
    pub proved: Vec<Proved>,
    /// What the files that the source reads are known by.
    pub imports: String,
}

/// What is proved of a flow, its fields taken as wholes.
#[derive(Clone, Debug, PartialEq)]
pub struct Proved {
    /// The flow as it is written.
    pub flow: String,
    /// As it is computed; `None`: not known.
    pub order: Option<usize>,
    /// Whether it may be higher.
    pub at_least: bool,
    /// How far `|R| ≤ 1` on the negative real axis and on the imaginary one; of methods of one field, where it is decided.
    pub real: Option<f64>,
    pub imaginary: Option<f64>,
}

/// The end of an extent; infinite where it has none.
fn reach(e: &Option<Extent>, squared: bool) -> Option<f64> {
    match e.as_ref()? {
        Extent::Zero => Some(0.0),
        Extent::Infinite => Some(f64::INFINITY),
        Extent::Until { hi, .. } => Some(end(hi, squared)),
    }
}

impl Proved {
    fn of(e: &Evolved) -> Proved {
        let (found, _) = steps_of(e);
        let known = evolve(e, LIBRARY);
        let one = known.one_field.as_ref();
        let stability = one.and_then(|one| one.stability.as_ref());
        let found = found.ok();
        let first = found.as_ref().and_then(|f| f.first.as_ref());
        Proved {
            flow: e.title.clone(),
            at_least: first.is_some_and(|first| !first.exactly),
            order: found.as_ref().map(|f| f.order),
            real: stability.and_then(|s| reach(&s.real, false)),
            imaginary: stability.and_then(|s| reach(&s.imaginary_squared, true)),
        }
    }
}

/// What is wrong with a point, and the texts that messages point into.
struct Wrong {
    messages: Vec<Diagnostic>,
    parsed: Box<Parsed>,
}

/// The file with its settings; prints what is wrong with them.
///
/// # Errors
/// A path that there is not, or a value that is none.
pub fn applied(base: &Parsed, settings: &Settings) -> Done<Parsed> {
    set_all(base, settings).or_else(refused)
}

fn refused<T>(wrong: Wrong) -> Done<T> {
    report(&wrong.messages, &wrong.parsed.sources)?;
    Err(Failure::internal("a point is wrong without an error"))
}

fn set_all(base: &Parsed, settings: &Settings) -> Result<Parsed, Wrong> {
    let mut parsed = base.clone();
    for (path, value) in settings {
        if let Err(d) = set(&mut parsed.file, &mut parsed.sources, path, &value.text) {
            let messages = vec![placed(d, &parsed, settings)];
            let parsed = Box::new(parsed);
            return Err(Wrong { messages, parsed });
        }
    }
    Ok(parsed)
}

/// A message about a trial, with the place where the value is written that makes it one.
fn placed(d: Diagnostic, parsed: &Parsed, settings: &Settings) -> Diagnostic {
    let known = d.labels.iter().find_map(|l| {
        let text = parsed.sources.text(l.span.source);
        let meant =
            |(path, value): &&(String, Value)| text == format!("--set {path}={}", value.text);
        settings.iter().find(meant)
    });
    match (known, settings) {
        (Some((path, value)), _) | (None, [(path, value)]) => {
            let text = format!("where `{path}` is {}", value.text);
            d.also(value.span, text)
        }
        (None, several) => several.iter().fold(d, |d, (path, value)| {
            d.also(value.span, format!("where `{path}` is {}", value.text))
        }),
    }
}

/// The checked model of a point, or what is wrong with it.
fn checked(base: &Parsed, settings: &Settings) -> Done<Result<(Parsed, Checked), Wrong>> {
    let mut parsed = match set_all(base, settings) {
        Ok(parsed) => parsed,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let (found, messages) = parsed.examined()?;
    match found.filter(|_| !has_errors(&messages)) {
        Some(checked) => Ok(Ok((parsed, checked))),
        None => {
            let errors = messages.into_iter();
            let errors = errors.filter(|d| d.severity == Severity::Error);
            let errors = errors.map(|d| placed(d, &parsed, settings));
            Ok(Err(Wrong {
                messages: errors.collect(),
                parsed: Box::new(parsed),
            }))
        }
    }
}

/// What a number of the model is at a point, without planning its program; `None` where the point is wrong.
///
/// # Errors
/// odec's own.
pub fn parameters(base: &Parsed, settings: &Settings) -> Done<Option<u64>> {
    let found = checked(base, settings)?.ok();
    Ok(found.and_then(|(_, c)| c.built.map(|b| b.summary.parameters)))
}

/// Everything about a point; prints what is wrong with it.
///
/// # Errors
/// A mistake in the file or in a setting; odec's own.
pub fn examine(base: &Parsed, settings: &Settings) -> Done<Examined> {
    match checked(base, settings)? {
        Ok((parsed, checked)) => examined(&parsed, checked),
        Err(wrong) => refused(wrong),
    }
}

/// The same, quietly: `None` where the point is wrong.
///
/// # Errors
/// odec's own.
pub fn tried(base: &Parsed, settings: &Settings) -> Done<Option<Examined>> {
    match checked(base, settings)? {
        Ok((parsed, checked)) => examined(&parsed, checked).map(Some),
        Err(_) => Ok(None),
    }
}

fn examined(parsed: &Parsed, checked: Checked) -> Done<Examined> {
    let imports = identity::imports(parsed);
    let name = parsed.sources.name(parsed.main).to_string();
    let (built, train) = trained(&name, checked.built)?;
    let target = target("cpu", built.precision())?;
    let planned = assembled(&built, parsed.sources.text(parsed.main), target)?;
    let memory = memory_bytes(&planned.manifest);
    let cost = parsed.cost_of(&built, &planned)?;
    let of_all = u128::from(cost.training().flops()) * u128::from(train.batch);
    let mut proved: Vec<Proved> = Vec::new();
    for e in &checked.evolved {
        if !proved.iter().any(|p| p.flow == e.title) {
            proved.push(Proved::of(e));
        }
    }
    Ok(Examined {
        model: built.name.clone(),
        flops_per_step: of_all / u128::from(cost.batch),
        at_most: cost.at_most() || cost.solves,
        drawn: cost.drawn.is_some(),
        parameters: built.summary.parameters,
        memory,
        proved,
        imports,
        train,
    })
}

fn trained(file: &str, built: Option<Built>) -> Done<(Built, Train)> {
    let without = |what: &str, add: &str| {
        Failure::Input(format!(
            "{file}: this file has no {what}; add `{add} {{ … }}`"
        ))
    };
    let built = built.ok_or_else(|| without("model", "model name"))?;
    let train = built.train.clone();
    let train = train.ok_or_else(|| without("train block", "train"))?;
    Ok((built, train))
}
