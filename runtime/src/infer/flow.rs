//! Images and sequences of vectors from a model that moves noise to data: its velocity, integrated from time 0 to 1 by an explicit Runge–Kutta method.
//!
//! Takes the numbers of a method, and what is to be drawn; gives samples in the numbers of the data: those of images are from 0 to 1. Noise is a function of the
//! seed and the sample's number, so that a sample does not depend on those beside it, nor on the method. States are kept in f64 between evaluations. Leaves where
//! the numbers of a method come from to the caller.
//!
//! What is drawn, images or sequences of vectors, is a variant of [`Drawn`]. Of vectors, pictures are made by `compiler/src/simulate/scatter.rs`,
//! arrays by `data/written.rs`. Noise and times of training are drawn in `data/flow.rs`.

use crate::data::DataError;
use crate::data::dataset::{Dataset, Numbers};
use crate::data::flow::{self, Draws};
use crate::data::images::Layout;
use crate::data::picture::{self, Size};
use crate::data::written::{Elements, npz};
use crate::executor::{Executor, RunError, Value};
use crate::infer::confusion::largest;
use crate::infer::evaluate::window;
use odec_program::manifest::{Flow, Form, Images, Predicts, Vectors};
use odec_program::rng::Stream;
use odec_program::{Bindings, EntryId, names};
use std::io;

/// An explicit Runge–Kutta method: `kᵢ = v(x + h Σ aᵢⱼ kⱼ, t + cᵢ h)` over earlier j, `x + h Σ bᵢ kᵢ` after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    pub a: Vec<Vec<f64>>,
    pub b: Vec<f64>,
    pub c: Vec<f64>,
}

/// Why nothing can be drawn.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error("this model was not trained with `loss velocity`, so it draws nothing")]
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
    #[error("{drawn} were drawn, and the classifier reads {reads}, a class of {classes}")]
    Classifier {
        drawn: String,
        reads: String,
        classes: u64,
    },
    #[error("the run that is to classify does not tell classes of {of}")]
    NoClassifier { of: &'static str },
    #[error("the samples make no .npz file: {0}")]
    Archive(io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// What a model draws, in the form that it reads data in.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawn {
    Images(Images),
    Vectors(Vectors),
}

impl Drawn {
    /// What a training reads.
    fn of(form: &Form) -> Option<Drawn> {
        match form {
            Form::Images(images) => Some(Drawn::Images(images.clone())),
            Form::Vectors(vectors) => Some(Drawn::Vectors(vectors.clone())),
            Form::Text { .. }
            | Form::Sentences(_)
            | Form::Tokens
            | Form::Pairs(_)
            | Form::Labelled(_) => None,
        }
    }

    /// What samples are called.
    pub fn many(&self) -> &'static str {
        match self {
            Drawn::Images(_) => "images",
            Drawn::Vectors(_) => "sequences",
        }
    }

    pub fn one(&self) -> &'static str {
        match self {
            Drawn::Images(_) => "image",
            Drawn::Vectors(_) => "sequence",
        }
    }

    fn flow(&self) -> Option<Flow> {
        match self {
            Drawn::Images(images) => images.flow,
            Drawn::Vectors(vectors) => vectors.flow,
        }
    }

    /// The classes that the model is told, or tells.
    fn classes(&self) -> u64 {
        match self {
            Drawn::Images(images) => images.classes,
            Drawn::Vectors(vectors) => vectors.targets.first().map_or(0, |t| t.columns),
        }
    }

    /// The input that reads it, numbers of a sample, and zeros behind these.
    fn read(&self) -> (&'static str, usize, usize) {
        match self {
            Drawn::Images(i) => (names::PATCHES, i.numbers(), i.row() * i.leading as usize),
            Drawn::Vectors(v) => {
                let empty = (v.width * v.leading) as usize;
                (names::VECTORS, v.numbers() as usize, empty)
            }
        }
    }

    /// A state, in the numbers of the data.
    fn sample(&self, state: &[f64]) -> Vec<f64> {
        match self {
            Drawn::Images(images) => images.join(state),
            Drawn::Vectors(v) => state.iter().map(|x| x * v.std + v.mean).collect(),
        }
    }

    /// Appends a sample as a model reads it.
    fn state(&self, sample: &[f64], out: &mut Vec<f32>) {
        match self {
            // As it is read from a file.
            Drawn::Images(images) => {
                let image: Vec<f32> = sample.iter().map(|n| n.clamp(0.0, 1.0) as f32).collect();
                images.cut(&image, out);
            }
            Drawn::Vectors(v) => {
                let standard = |x: &f64| ((x - v.mean) / v.std) as f32;
                out.extend(sample.iter().map(standard));
            }
        }
    }

    /// Its sizes, in words.
    fn sizes(&self) -> String {
        match self {
            Drawn::Images(images) => format!("images of {}", size(images)),
            Drawn::Vectors(v) => format!("sequences of {} × {}", v.positions, v.width),
        }
    }
}

/// What is drawn: a sample for each entry, of its class where the model is told one.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    pub classes: Vec<Option<u64>>,
    pub steps: u64,
    pub seed: u64,
    /// w of the velocity `v(x, t) + w (v(x, t, class) − v(x, t))` (Ho & Salimans 2022, there 1 + w); 1: that of the class.
    pub guidance: f64,
}

/// What a run draws, if it does.
///
/// # Errors
/// When it was trained for something else.
pub fn drawn(x: &Executor) -> Result<(Drawn, Flow), FlowError> {
    let train = x.manifest().train.as_ref();
    let drawn = train.and_then(|t| Drawn::of(&t.data.form));
    let drawn = drawn.ok_or(FlowError::NoFlow)?;
    let flow = drawn.flow().ok_or(FlowError::NoFlow)?;
    Ok((drawn, flow))
}

/// The classes of which so many samples each are drawn: the one that is asked for, or all; one row without a class where the model is told none.
///
/// # Errors
/// When there is no such class, or the model draws nothing.
pub fn rows(x: &Executor, class: Option<u64>) -> Result<Vec<Option<u64>>, FlowError> {
    let (drawn, flow) = drawn(x)?;
    let classes = drawn.classes();
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

/// Draws samples: the numbers of each, of images from 0 to 1 and a little beyond, in the order of y, x and channel; of sequences vector by vector.
///
/// # Errors
/// When the model draws none, has no such class, or has diverged.
pub fn sample(
    x: &mut Executor,
    method: &Method,
    s: &Sampling,
    report: &mut dyn FnMut(u64),
) -> Result<Vec<Vec<f64>>, FlowError> {
    let (drawn, _) = drawn(x)?;
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
    let (_, numbers, empty) = drawn.read();
    let mut made = Vec::new();
    for (part, classes) in s.classes.chunks(together).enumerate() {
        let first = (part * together) as u64;
        let mut noise = Vec::new();
        for number in first..first + classes.len() as u64 {
            let draws = Draws {
                stream,
                number,
                labels: None,
            };
            noise.extend(draws.noise(numbers));
            noise.extend(vec![0.0; empty]);
        }
        let length = noise.len() / classes.len().max(1);
        let ended = integrate(x, method, (classes, s), noise)?;
        let each = ended.chunks_exact(length);
        made.extend(each.map(|state| drawn.sample(&state[..numbers])));
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
    let (drawn, flow) = drawn(x)?;
    let times = vec![time; classes.len()];
    let labels = Numbers::F32(flow::labels(classes.iter().copied(), drawn.classes()));
    let mut given = vec![
        (drawn.read().0, Value::F64(points)),
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

/// The class that another run tells of each sample; none, where its result is no number.
///
/// # Errors
/// When it tells no classes of such samples, or not so many.
pub fn classified(
    x: &mut Executor,
    drawn: &Drawn,
    all: &[Vec<f64>],
) -> Result<Vec<Option<usize>>, FlowError> {
    let train = x.manifest().train.as_ref();
    let reads = train
        .filter(|t| t.loss.predicts() == Predicts::Class)
        .and_then(|t| Drawn::of(&t.data.form))
        .filter(|reads| reads.many() == drawn.many())
        .ok_or(FlowError::NoClassifier { of: drawn.many() })?;
    let classes = reads.classes();
    if reads.sizes() != drawn.sizes() || classes != drawn.classes() {
        return Err(FlowError::Classifier {
            drawn: drawn.sizes(),
            reads: reads.sizes(),
            classes,
        });
    }
    let entries = &x.manifest().program.entries;
    let planned = entries.get(&EntryId::Forward).map_or(1, |e| e.maxima.batch);
    let (input, _, empty) = reads.read();
    let mut told = Vec::new();
    for samples in all.chunks(planned.max(1) as usize) {
        let mut rows = Vec::new();
        for sample in samples {
            reads.state(sample, &mut rows);
            rows.extend(vec![0.0; empty]);
        }
        let at = Bindings::new(samples.len() as u64, window(x));
        let given = [(input, Value::F32(&rows))];
        let out = x.run(EntryId::Forward, at, &given, &[])?;
        let logits: Vec<f64> = out.reals(names::LOGITS)?.iter().collect();
        told.extend(logits.chunks_exact(classes as usize).map(largest));
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

/// How far samples are from others of the same numbers: the root of the mean square of differences.
pub fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let both = || a.iter().flatten().zip(b.iter().flatten());
    let squares: f64 = both().map(|(a, b)| (a - b) * (a - b)).sum();
    (squares / both().count().max(1) as f64).sqrt()
}

/// Sequences as arrays in an `.npz` file, by the names of those that the model was trained on, so that another can be: with their classes, if they have some.
///
/// # Errors
/// When they are more than such a file holds.
pub fn archive(
    of: &Vectors,
    all: &[Vec<f64>],
    classes: &[Option<u64>],
) -> Result<Vec<u8>, FlowError> {
    let numbers: Vec<f64> = all.iter().flatten().copied().collect();
    let classes: Vec<i64> = classes.iter().flatten().map(|n| *n as i64).collect();
    let (n, shape) = (all.len() as u64, [all.len() as u64, of.positions, of.width]);
    let inputs = (&*of.inputs, &shape[..], Elements::Real(&numbers));
    let of_classes = [n];
    let told = of.targets.first();
    let told = told.map(|t| (&*t.array, &of_classes[..], Elements::Whole(&classes)));
    let arrays: Vec<_> = [inputs].into_iter().chain(told).collect();
    npz(&arrays).map_err(FlowError::Archive)
}

/// Samples with the class of each.
type Classed = (Vec<Vec<f64>>, Vec<Option<u64>>);

/// At most so many sequences that are held out. They are read from the points on the way to them, `x₁ = x(t) + (1 − t) v`.
///
/// # Errors
/// When the data cannot be read.
pub fn held_out(data: &dyn Dataset, of: &Vectors, most: usize) -> Result<Classed, DataError> {
    let drawn = Drawn::Vectors(of.clone());
    let (input, numbers, empty) = drawn.read();
    let (mut samples, mut classes) = (vec![], vec![]);
    for batch in data.held_out_batches(1, of.positions + of.leading, Some(most as u64))? {
        let batch = batch?;
        let [points, moves, times, labels] =
            [input, names::TARGETS, names::TIME, names::LABEL].map(|name| batch.real(name));
        let length = numbers + empty;
        let rows = points.chunks_exact(length).zip(moves.chunks_exact(length));
        for ((points, moves), t) in rows.zip(times) {
            let both = points.iter().zip(moves).take(numbers);
            let left = 1.0 - f64::from(*t);
            let state = both.map(|(x, v)| f64::from(*x) + left * f64::from(*v));
            samples.push(drawn.sample(&state.collect::<Vec<_>>()));
        }
        let class = labels.iter().position(|x| *x == 1.0).map(|n| n as u64);
        classes.push(class);
    }
    Ok((samples, classes))
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
