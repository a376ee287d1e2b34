//! Images from a model that moves noise to data: its velocity, integrated from time 0 to 1 by an explicit Runge–Kutta method.
//!
//! Takes the numbers of a method, and what is to be drawn; gives images as numbers from 0 to 1. Noise is a function of the seed and the image's number, so that an
//! image does not depend on those beside it, nor on the method. States are kept in f64 between evaluations. Leaves where the numbers of a method come
//! from to the caller.

use crate::data::dataset::Numbers;
use crate::data::flow::{self, Draws};
use crate::data::images::Layout;
use crate::data::picture::{self, Size};
use crate::executor::{Executor, RunError, Value};
use crate::infer::confusion::largest;
use crate::infer::evaluate::window;
use odec_program::manifest::{Flow, Form, Images, Loss};
use odec_program::rng::Stream;
use odec_program::{Bindings, EntryId, names};

/// An explicit Runge–Kutta method: `kᵢ = v(x + h Σ aᵢⱼ kⱼ, t + cᵢ h)` over earlier j, `x + h Σ bᵢ kᵢ` after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    pub a: Vec<Vec<f64>>,
    pub b: Vec<f64>,
    pub c: Vec<f64>,
}

/// Why images cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error("this model was not trained with `loss velocity`, so it draws no images")]
    NoFlow,
    #[error("this model knows {classes} classes, 0 to {}; {class} is none of them", .classes - 1)]
    Class { class: u64, classes: u64 },
    #[error("this model is not told classes; leave --class out")]
    NoClasses,
    #[error("this model is not told classes; leave --guidance out")]
    NoClassToGuide,
    #[error(
        "this model was told the class of each image in training, so it has no velocity without one to be guided by: train it with `label_token(classes: …, dropped: 10%)`"
    )]
    AlwaysTold,
    #[error("{what} is 0; give 1 or more")]
    Nothing { what: &'static str },
    #[error("the velocity is not finite at time {time}; the training of the model has diverged")]
    NonFinite { time: f64 },
    #[error("PNG has no images of {0} channels")]
    Channels(u64),
    #[error("images of {drawn} were drawn, and the classifier reads {reads}, a class of {classes}")]
    Classifier {
        drawn: String,
        reads: String,
        classes: u64,
    },
    #[error("the run that is to classify does not tell classes of images")]
    NoClassifier,
    #[error(transparent)]
    Run(#[from] RunError),
}

/// What is drawn: an image for each entry, of its class where the model is told one.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    pub classes: Vec<Option<u64>>,
    pub steps: u64,
    pub seed: u64,
    /// w of the velocity `v(x, t) + w (v(x, t, class) − v(x, t))` (Ho & Salimans 2022, there 1 + w); 1: that of the class.
    pub guidance: f64,
}

/// What a run draws, if it does.
pub fn drawn(x: &Executor) -> Result<(Images, Flow), FlowError> {
    match x.manifest().train.as_ref().map(|t| &t.data.form) {
        Some(Form::Images(images)) => {
            let flow = images.flow.ok_or(FlowError::NoFlow)?;
            Ok((images.clone(), flow))
        }
        _ => Err(FlowError::NoFlow),
    }
}

/// The classes that a grid of images has a row for each: the one that is asked for, or all; one row without a class where the model is told none.
///
/// # Errors
/// When there is no such class, or the model draws no images.
pub fn rows(x: &Executor, class: Option<u64>) -> Result<Vec<Option<u64>>, FlowError> {
    let (images, flow) = drawn(x)?;
    let classes = images.classes;
    match (flow.labelled, class) {
        (false, None) => Ok(vec![None]),
        (false, Some(_)) => Err(FlowError::NoClasses),
        (true, None) => Ok((0..classes).map(Some).collect()),
        (true, Some(class)) if class < classes => Ok(vec![Some(class)]),
        (true, Some(class)) => Err(FlowError::Class { class, classes }),
    }
}

/// Whether a model can be guided so.
///
/// # Errors
/// When it is told no classes, or was told them always.
pub fn can_guide(x: &Executor, guidance: f64) -> Result<(), FlowError> {
    let (_, flow) = drawn(x)?;
    match (guidance == 1.0, flow.labelled, flow.dropped_percent) {
        (true, ..) => Ok(()),
        (false, false, _) => Err(FlowError::NoClassToGuide),
        (false, true, 0) => Err(FlowError::AlwaysTold),
        (false, true, _) => Ok(()),
    }
}

/// Draws images: the numbers of each, from 0 to 1 and a little beyond, in the order of y, x and channel.
///
/// # Errors
/// When the model draws none, has no such class, or has diverged.
pub fn sample(
    x: &mut Executor,
    method: &Method,
    s: &Sampling,
    report: &mut dyn FnMut(u64),
) -> Result<Vec<Vec<f64>>, FlowError> {
    let (images, _) = drawn(x)?;
    can_guide(x, s.guidance)?;
    if s.steps == 0 {
        return Err(FlowError::Nothing { what: "--steps" });
    }
    let together = x
        .manifest()
        .program
        .entries
        .get(&EntryId::Forward)
        .map_or(1, |e| e.maxima.batch.max(1)) as usize;
    let stream = Stream::new(s.seed, "samples");
    let mut made = Vec::new();
    for (part, classes) in s.classes.chunks(together).enumerate() {
        let first = (part * together) as u64;
        let numbers = images.numbers();
        let empty = vec![0.0; images.row() * images.leading as usize];
        let mut noise = Vec::new();
        for number in first..first + classes.len() as u64 {
            let draws = Draws {
                stream,
                number,
                labels: None,
            };
            noise.extend(draws.noise(numbers));
            noise.extend(&empty);
        }
        let length = noise.len() / classes.len().max(1);
        let ended = integrate(x, method, (classes, s), noise)?;
        let each = ended.chunks_exact(length);
        made.extend(each.map(|state| images.join(&state[..numbers])));
        report(made.len() as u64);
    }
    Ok(made)
}

/// From time 0 to 1 in equal steps.
fn integrate(
    x: &mut Executor,
    method: &Method,
    (classes, s): (&[Option<u64>], &Sampling),
    mut state: Vec<f64>,
) -> Result<Vec<f64>, FlowError> {
    let h = 1.0 / s.steps as f64;
    for step in 0..s.steps {
        let t = step as f64 * h;
        let mut slopes: Vec<Vec<f64>> = Vec::new();
        for (row, c) in method.a.iter().zip(&method.c) {
            let mut point = state.clone();
            add(&mut point, h, row, &slopes);
            slopes.push(guided(x, (&point, t + c * h), classes, s.guidance)?);
        }
        add(&mut state, h, &method.b, &slopes);
    }
    Ok(state)
}

/// `x + h Σ wⱼ kⱼ`
fn add(x: &mut [f64], h: f64, weights: &[f64], slopes: &[Vec<f64>]) {
    for (w, k) in weights.iter().zip(slopes).filter(|(w, _)| **w != 0.0) {
        x.iter_mut().zip(k).for_each(|(x, k)| *x += h * w * k);
    }
}

/// The velocity of points at one time, away from that without a class.
fn guided(
    x: &mut Executor,
    at: (&[f64], f64),
    classes: &[Option<u64>],
    guidance: f64,
) -> Result<Vec<f64>, FlowError> {
    let mut found = velocity(x, at, classes)?;
    if guidance != 1.0 {
        let free = velocity(x, at, &vec![None; classes.len()])?;
        let both = found.iter_mut().zip(free);
        both.for_each(|(v, free)| *v = free + guidance * (*v - free));
    }
    Ok(found)
}

/// What the model says of points at one time.
fn velocity(
    x: &mut Executor,
    (points, time): (&[f64], f64),
    classes: &[Option<u64>],
) -> Result<Vec<f64>, FlowError> {
    let (images, flow) = drawn(x)?;
    let times = vec![time; classes.len()];
    let labels = Numbers::F32(flow::labels(classes.iter().copied(), images.classes));
    let mut given = vec![
        (names::PATCHES, Value::F64(points)),
        (names::TIME, Value::F64(&times)),
    ];
    if flow.labelled {
        given.push((names::LABEL, labels.value()));
    }
    let at = Bindings::new(classes.len() as u64, window(x));
    let out = x.run(EntryId::Forward, at, &given, &[])?;
    let velocity: Vec<f64> = out.reals(names::VALUES)?.iter().collect();
    match velocity.iter().all(|v| v.is_finite()) {
        true => Ok(velocity),
        false => Err(FlowError::NonFinite { time }),
    }
}

/// The class that another run tells of each image; none, where its result is no number.
///
/// # Errors
/// When it tells no classes of such images, or not so many.
pub fn classified(
    x: &mut Executor,
    drawn: &Images,
    all: &[Vec<f64>],
) -> Result<Vec<Option<usize>>, FlowError> {
    let train = x.manifest().train.as_ref();
    let reads = match train.map(|t| (t.loss, &t.data.form)) {
        Some((Loss::Class, Form::Images(reads))) => reads.clone(),
        _ => return Err(FlowError::NoClassifier),
    };
    let size = |i: &Images| size(i).to_string();
    if size(&reads) != size(drawn) || reads.classes != drawn.classes {
        return Err(FlowError::Classifier {
            drawn: size(drawn),
            reads: size(&reads),
            classes: reads.classes,
        });
    }
    let entries = &x.manifest().program.entries;
    let planned = entries.get(&EntryId::Forward).map_or(1, |e| e.maxima.batch);
    let mut told = Vec::new();
    for images in all.chunks(planned.max(1) as usize) {
        let mut patches = Vec::new();
        for image in images {
            // As it is read from a file.
            let image: Vec<f32> = image.iter().map(|n| n.clamp(0.0, 1.0) as f32).collect();
            reads.cut(&image, &mut patches);
            patches.extend(vec![0.0; reads.row() * reads.leading as usize]);
        }
        let at = Bindings::new(images.len() as u64, window(x));
        let given = [(names::PATCHES, Value::F32(&patches))];
        let out = x.run(EntryId::Forward, at, &given, &[])?;
        let logits: Vec<f64> = out.reals(names::LOGITS)?.iter().collect();
        told.extend(logits.chunks_exact(reads.classes as usize).map(largest));
    }
    Ok(told)
}

fn size(i: &Images) -> Size {
    Size {
        height: i.height,
        width: i.width,
        channels: i.channels,
    }
}

/// How far images are from others of the same number: the root of the mean square of differences.
pub fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let both = || a.iter().flatten().zip(b.iter().flatten());
    let squares: f64 = both().map(|(a, b)| (a - b) * (a - b)).sum();
    (squares / both().count().max(1) as f64).sqrt()
}

/// Images side by side as a PNG file, so many in a row, two grey pixels between them.
///
/// # Errors
/// When PNG has no images of so many channels.
pub fn grid(of: &Images, all: &[Vec<f64>], in_a_row: u64) -> Result<Vec<u8>, FlowError> {
    const GAP: u64 = 2;
    const GREY: u8 = 128;
    let one = size(of);
    let columns = in_a_row.clamp(1, all.len().max(1) as u64);
    let lines = (all.len() as u64).div_ceil(columns).max(1);
    let along = |n: u64, side: u64| n * side + (n - 1) * GAP;
    let whole = Size {
        height: along(lines, one.height),
        width: along(columns, one.width),
        ..one
    };
    let mut bytes = vec![GREY; whole.numbers()];
    let line = (one.width * one.channels) as usize;
    let row = (whole.width * whole.channels) as usize;
    for (n, image) in (0u64..).zip(all) {
        let (down, right) = (n / columns, n % columns);
        let top = (down * (one.height + GAP)) as usize;
        let left = (right * (one.width + GAP) * one.channels) as usize;
        for (y, numbers) in image.chunks_exact(line).enumerate() {
            let to = &mut bytes[(top + y) * row + left..][..line];
            let byte = |n: &f64| (n.clamp(0.0, 1.0) * 255.0).round() as u8;
            to.iter_mut().zip(numbers).for_each(|(b, n)| *b = byte(n));
        }
    }
    picture::encode(whole, &bytes).ok_or(FlowError::Channels(one.channels))
}
